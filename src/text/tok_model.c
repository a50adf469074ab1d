/* tok_model.c - reading model and post_processor of tokenizer.json. */
#include <stdlib.h>

#include "text/tok_internal.h"

#define FILE_NAME "tokenizer.json"

static nb_status no_memory(nb_error *err)
{
    return nb_fail(err, NB_ERR_NOMEM, FILE_NAME ": out of memory");
}

static nb_status table_error(nb_status st, const char *what, nb_error *err)
{
    if (st == NB_ERR_LIMIT)
        return nb_fail(err, st, FILE_NAME ": %s: too many entries that collide, or too much text",
                       what);
    return st == NB_OK ? st : nb_fail(err, st, FILE_NAME ": out of memory");
}

/* A vocabulary spelling in the form of `key`; false in *in_alphabet for an entry
 * of a byte-level model with other characters, which no text can reach. */
static nb_status to_key(const nb_tokenizer *t, nb_str spelling, nb_buf *buf, nb_str *key,
                        bool *in_alphabet)
{
    *in_alphabet = true;
    *key = spelling;
    if (!t->byte_level) return NB_OK;
    buf->n_bytes = 0;
    NB_TRY(nb_tok_standin_decode(spelling, buf, in_alphabet));
    if (*in_alphabet) *key = nb_buf_view(buf);
    return NB_OK;
}

static nb_status add_entry(nb_tokenizer *t, nb_str spelling, const json_t *value, nb_buf *buf,
                           nb_error *err)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return nb_fail(err, NB_ERR_FORMAT,
                       FILE_NAME ": model.vocab: id of \"%.64s\": a count expected", spelling.p);
    if (spelling.n_bytes > NB_TOK_MAX_TOKEN_BYTES)
        return nb_fail(err, NB_ERR_LIMIT,
                       FILE_NAME ": model.vocab: a token of %zu bytes, at most %d expected",
                       spelling.n_bytes, (int)NB_TOK_MAX_TOKEN_BYTES);
    const uint64_t id = (uint64_t)json_integer_value(value);
    NB_TRY(nb_tok_reserve_id(t, id, FILE_NAME ": model.vocab", err));
    if (t->flags[id])
        return nb_fail(err, NB_ERR_FORMAT, FILE_NAME ": model.vocab: id %llu is given twice",
                       (unsigned long long)id);
    t->flags[id] = NB_TF_EXISTS | NB_TF_MODEL;
    nb_str key;
    bool in_alphabet, added;
    if (to_key(t, spelling, buf, &key, &in_alphabet) != NB_OK) return no_memory(err);
    if (!in_alphabet || !key.n_bytes)
        return table_error(nb_tok_name_add(t, spelling, (uint32_t)id, NB_TOK_NONE), "model.vocab",
                           err);
    nb_tok_slot *slot;
    NB_TRY(table_error(nb_tok_blob_add(t, key, &t->key[id]), "model.vocab", err));
    NB_TRY(table_error(nb_tok_map_put(&t->keys, t->key, &t->blob, key, (uint32_t)id, &slot, &added),
                       "model.vocab", err));
    if (key.n_bytes > t->max_key_bytes) t->max_key_bytes = key.n_bytes;
    return NB_OK;
}

static nb_status load_vocab(nb_tokenizer *t, const json_t *vocab, nb_error *err)
{
    if (!json_is_object(vocab))
        return nb_fail(err, NB_ERR_FORMAT, FILE_NAME ": model.vocab: an object expected");
    nb_buf buf = { 0 };
    nb_status st = NB_OK;
    json_t *o = (json_t *)(uintptr_t)vocab;
    for (void *it = json_object_iter(o); it && st == NB_OK; it = json_object_iter_next(o, it))
        st =
            add_entry(t, nb_str_c(json_object_iter_key(it)), json_object_iter_value(it), &buf, err);
    nb_buf_deinit(&buf);
    return st;
}

static uint32_t key_id(const nb_tokenizer *t, nb_str key)
{
    const nb_tok_slot *s = nb_tok_map_get(&t->keys, t->key, &t->blob, key.p, key.n_bytes);
    return s ? s->value : NB_TOK_NONE;
}

/* "a b" or ["a", "b"]. */
static nb_status merge_parts(const json_t *m, size_t i, nb_str part[2], nb_error *err)
{
    if (json_is_array(m) && json_array_size(m) == 2 && json_is_string(json_array_get(m, 0)) &&
        json_is_string(json_array_get(m, 1))) {
        part[0] = nb_tok_json_str(json_array_get(m, 0));
        part[1] = nb_tok_json_str(json_array_get(m, 1));
    } else {
        const nb_str s = nb_tok_json_str(m);
        const char *sp = json_is_string(m) ? memchr(s.p, ' ', s.n_bytes) : NULL;
        if (!sp || memchr(sp + 1, ' ', s.n_bytes - (size_t)(sp - s.p) - 1))
            return nb_fail(err, NB_ERR_FORMAT,
                           FILE_NAME ": model.merges[%zu]: \"a b\" or [\"a\", \"b\"] expected", i);
        part[0] = (nb_str){ s.p, (size_t)(sp - s.p) };
        part[1] = (nb_str){ sp + 1, s.n_bytes - part[0].n_bytes - 1 };
    }
    if (!part[0].n_bytes || !part[1].n_bytes)
        return nb_fail(err, NB_ERR_FORMAT, FILE_NAME ": model.merges[%zu]: an empty part", i);
    return NB_OK;
}

static nb_status add_merge(nb_tokenizer *t, const nb_str part[2], size_t rank, nb_buf *both,
                           nb_error *err)
{
    uint32_t id[3];
    nb_str piece[3] = { part[0], part[1], { NULL, 0 } };
    both->n_bytes = 0;
    if (nb_buf_add_str(both, part[0]) != NB_OK || nb_buf_add_str(both, part[1]) != NB_OK)
        return no_memory(err);
    piece[2] = nb_buf_view(both);
    for (int k = 0; k < 3; k++) {
        id[k] = nb_tok_model_find(t, piece[k]);
        if (id[k] == NB_TOK_NONE)
            return nb_fail(err, NB_ERR_FORMAT,
                           FILE_NAME ": model.merges[%zu]: \"%.*s\" is not in the vocabulary", rank,
                           (int)(piece[k].n_bytes < 64 ? piece[k].n_bytes : 64), piece[k].p);
    }
    return table_error(nb_tok_merges_put(&t->merges, id[0], id[1], (uint32_t)rank, id[2]),
                       "model.merges", err);
}

static nb_status load_merges(nb_tokenizer *t, const json_t *merges, nb_error *err)
{
    nb_buf both = { 0 };
    nb_status st = NB_OK;
    if (!json_is_array(merges))
        return nb_fail(err, NB_ERR_FORMAT, FILE_NAME ": model.merges: an array expected");
    const size_t n = json_array_size(merges);
    for (size_t i = 0; i < n && st == NB_OK; i++) {
        nb_str part[2];
        st = merge_parts(json_array_get(merges, i), i, part, err);
        if (st == NB_OK) st = add_merge(t, part, i, &both, err);
    }
    nb_buf_deinit(&both);
    return st;
}

/* Fields of the model that change ids and that must be off. */
static nb_status check_unsupported(const json_t *m, nb_error *err)
{
    static const char *const AFFIXES[] = { "continuing_subword_prefix", "end_of_word_suffix" };
    const json_t *type = json_object_get(m, "type"), *dropout = json_object_get(m, "dropout");
    if (type && (!json_is_string(type) || strcmp(json_string_value(type), "BPE") != 0))
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       FILE_NAME ": model.type \"%.64s\" is not supported (BPE expected)",
                       json_is_string(type) ? json_string_value(type) : "(no string)");
    for (size_t i = 0; i < sizeof AFFIXES / sizeof *AFFIXES; i++) {
        const json_t *v = json_object_get(m, AFFIXES[i]);
        if (v && !json_is_null(v) && !(json_is_string(v) && json_string_length(v) == 0))
            return nb_fail(err, NB_ERR_UNSUPPORTED, FILE_NAME ": model.%s is not supported",
                           AFFIXES[i]);
    }
    if (dropout && !json_is_null(dropout) && !(json_number_value(dropout) == 0.0))
        return nb_fail(err, NB_ERR_UNSUPPORTED, FILE_NAME ": model.dropout is not supported");
    return NB_OK;
}

static nb_status flag(const json_t *m, const char *name, bool *out, nb_error *err)
{
    const json_t *v = json_object_get(m, name);
    *out = json_is_true(v);
    if (v && !json_is_null(v) && !json_is_boolean(v))
        return nb_fail(err, NB_ERR_FORMAT, FILE_NAME ": model.%s: true or false expected", name);
    return NB_OK;
}

void nb_tok_byte_tables(nb_tokenizer *t)
{
    static const char HEX[] = "0123456789ABCDEF";
    for (unsigned b = 0; b < 256; b++) {
        const char one = (char)b;
        const char hex[] = { '<', '0', 'x', HEX[b >> 4], HEX[b & 15], '>' };
        t->byte_id[b] = t->byte_level ? key_id(t, (nb_str){ &one, 1 }) : NB_TOK_NONE;
        t->fallback_id[b] = key_id(t, (nb_str){ hex, sizeof hex });
    }
}

nb_status nb_tok_load_model(nb_tokenizer *t, const json_t *root, nb_error *err)
{
    const json_t *m = json_object_get(root, "model");
    if (!json_is_object(m))
        return nb_fail(err, NB_ERR_FORMAT, FILE_NAME ": model: an object expected");
    NB_TRY(check_unsupported(m, err));
    NB_TRY(flag(m, "ignore_merges", &t->ignore_merges, err));
    NB_TRY(flag(m, "byte_fallback", &t->byte_fallback, err));
    NB_TRY(flag(m, "fuse_unk", &t->fuse_unk, err));
    NB_TRY(load_vocab(t, json_object_get(m, "vocab"), err));
    const json_t *scores = json_object_get(m, "scores");
    NB_TRY(scores ? nb_tok_load_scores(t, scores, err)
                  : load_merges(t, json_object_get(m, "merges"), err));
    nb_tok_byte_tables(t);
    /* with bytes as characters nothing falls back: a stand-in has no byte form */
    if (t->byte_level) t->byte_fallback = false;
    const json_t *unk = json_object_get(m, "unk_token");
    t->unk_id = NB_TOK_NONE;
    if (unk && !json_is_null(unk)) {
        if (!json_is_string(unk))
            return nb_fail(err, NB_ERR_FORMAT, FILE_NAME ": model.unk_token: a string expected");
        t->has_unk = true;
        t->unk_id = nb_tok_model_find(t, nb_tok_json_str(unk));
    }
    return NB_OK;
}

/* ---- post_processor ------------------------------------------------------ */

typedef struct affixes {
    uint32_t before[NB_TOK_MAX_TEMPLATE_IDS], after[NB_TOK_MAX_TEMPLATE_IDS];
    size_t n_before, n_after;
} affixes;

/* {"SpecialToken": {"id": name}}: the ids that special_tokens[name] lists. */
static nb_status template_token(const nb_tokenizer *t, const json_t *proc, const json_t *piece,
                                uint32_t *ids, size_t *n, nb_error *err)
{
    const char *name = json_string_value(json_object_get(piece, "id"));
    const json_t *all = json_object_get(proc, "special_tokens");
    const json_t *list = name ? json_object_get(json_object_get(all, name), "ids") : NULL;
    if (!json_is_array(list))
        return nb_fail(err, NB_ERR_FORMAT,
                       FILE_NAME ": TemplateProcessing: special_tokens has no ids of \"%.64s\"",
                       name ? name : "(none)");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *id = json_array_get(list, i);
        const json_int_t v = json_is_integer(id) ? json_integer_value(id) : -1;
        if (v < 0 || (uint64_t)v >= t->n_ids || !t->flags[v])
            return nb_fail(err, NB_ERR_FORMAT,
                           FILE_NAME ": TemplateProcessing: \"%.64s\" has an id without a token",
                           name);
        if (*n == NB_TOK_MAX_TEMPLATE_IDS)
            return nb_fail(err, NB_ERR_LIMIT, FILE_NAME ": TemplateProcessing: more than %d ids",
                           (int)NB_TOK_MAX_TEMPLATE_IDS);
        ids[(*n)++] = (uint32_t)v;
    }
    return NB_OK;
}

static nb_status load_template(const nb_tokenizer *t, const json_t *proc, affixes *a, nb_error *err)
{
    const json_t *single = json_object_get(proc, "single");
    bool text = false;
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *item = json_array_get(single, i);
        const json_t *special = json_object_get(item, "SpecialToken");
        if (special) {
            NB_TRY(template_token(t, proc, special, text ? a->after : a->before,
                                  text ? &a->n_after : &a->n_before, err));
        } else if (json_object_get(item, "Sequence") && !text) {
            text = true;
        } else {
            text = false;
            break;
        }
    }
    if (!text)
        return nb_fail(err, NB_ERR_FORMAT,
                       FILE_NAME ": TemplateProcessing.single: special tokens around one sequence "
                                 "expected");
    return NB_OK;
}

/* A later processor of a sequence goes around what the earlier ones made. */
static nb_status wrap(nb_tokenizer *t, const affixes *a, nb_error *err)
{
    if (a->n_before + t->n_prefix > NB_TOK_MAX_TEMPLATE_IDS ||
        a->n_after + t->n_suffix > NB_TOK_MAX_TEMPLATE_IDS)
        return nb_fail(err, NB_ERR_LIMIT, FILE_NAME ": post_processor: more than %d ids",
                       (int)NB_TOK_MAX_TEMPLATE_IDS);
    memmove(t->prefix + a->n_before, t->prefix, t->n_prefix * sizeof *t->prefix);
    memcpy(t->prefix, a->before, a->n_before * sizeof *t->prefix);
    memcpy(t->suffix + t->n_suffix, a->after, a->n_after * sizeof *t->suffix);
    t->n_prefix += a->n_before;
    t->n_suffix += a->n_after;
    return NB_OK;
}

static nb_status load_post(nb_tokenizer *t, const json_t *o, unsigned depth, nb_error *err)
{
    if (!o || json_is_null(o)) return NB_OK;
    const char *type = json_string_value(json_object_get(o, "type"));
    if (!type) return nb_fail(err, NB_ERR_FORMAT, FILE_NAME ": post_processor: a type expected");
    if (depth > NB_TOK_MAX_STEPS)
        return nb_fail(err, NB_ERR_LIMIT, FILE_NAME ": post_processor: too many steps");
    if (strcmp(type, "ByteLevel") == 0) return NB_OK; /* moves offsets, not ids */
    if (strcmp(type, "TemplateProcessing") == 0) {
        affixes a = { 0 };
        NB_TRY(load_template(t, o, &a, err));
        return wrap(t, &a, err);
    }
    if (strcmp(type, "Sequence") != 0)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       FILE_NAME ": post_processor \"%.64s\" is not supported (Sequence, "
                                 "TemplateProcessing or ByteLevel expected)",
                       type);
    const json_t *list = json_object_get(o, "processors");
    for (size_t i = 0; i < json_array_size(list); i++)
        NB_TRY(load_post(t, json_array_get(list, i), depth + 1, err));
    return NB_OK;
}

nb_status nb_tok_load_post(nb_tokenizer *t, const json_t *root, nb_error *err)
{
    return load_post(t, json_object_get(root, "post_processor"), 0, err);
}
