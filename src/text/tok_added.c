/* tok_added.c - added tokens: reading them, the sets to look for in text, and
 * what every token contributes to decoded text. */
#include <stdlib.h>

#include "base/utf8.h"
#include "text/tok_internal.h"

static nb_status no_memory(nb_error *err)
{
    return nb_fail(err, NB_ERR_NOMEM, "tokenizer: out of memory");
}

nb_status nb_tok_add_token(nb_tokenizer *t, const nb_added *a, nb_str content, bool update,
                           const char *where, nb_error *err)
{
    const int shown = (int)(content.n_bytes < 64 ? content.n_bytes : 64);
    if (!content.n_bytes) return NB_OK; /* the reference ignores these */
    if (content.n_bytes > NB_TOK_MAX_ADDED_BYTES)
        return nb_fail(err, NB_ERR_LIMIT, "%s: added token of %zu bytes, at most %d expected",
                       where, content.n_bytes, (int)NB_TOK_MAX_ADDED_BYTES);
    const uint32_t name = nb_tok_name_index(t, content);
    if (name != NB_TOK_NONE && t->name_added[name] != NB_TOK_NONE) {
        nb_added *old = &t->added[t->name_added[name]];
        if (update) {
            old->lstrip = a->lstrip;
            old->rstrip = a->rstrip;
            old->single_word = a->single_word;
        }
        if (a->special) {
            old->special = true;
            t->flags[old->id] |= NB_TF_SPECIAL;
        }
        return NB_OK;
    }
    uint32_t id = nb_tok_model_find(t, content);
    if (id == NB_TOK_NONE) {
        if (a->id == NB_TOK_NONE) return NB_OK;
        NB_TRY(nb_tok_reserve_id(t, a->id, where, err));
        if (t->flags[a->id])
            return nb_fail(err, NB_ERR_FORMAT,
                           "%s: added token \"%.*s\": id %u belongs to another token", where, shown,
                           content.p, (unsigned)a->id);
        id = a->id;
    }
    if (NB_GROW(t->added, t->cap_added, t->n_added) != NB_OK) return no_memory(err);
    if (nb_tok_name_add(t, content, id, (uint32_t)t->n_added) != NB_OK) return no_memory(err);
    nb_added *x = &t->added[t->n_added++];
    *x = *a;
    x->id = id;
    x->content = t->name[nb_tok_name_index(t, content)];
    t->flags[id] |= NB_TF_EXISTS | NB_TF_ADDED | (a->special ? NB_TF_SPECIAL : 0);
    return NB_OK;
}

nb_status nb_tok_load_added(nb_tokenizer *t, const json_t *root, nb_error *err)
{
    static const char WHERE[] = "tokenizer.json: added_tokens";
    const json_t *list = json_object_get(root, "added_tokens");
    if (!list || json_is_null(list)) return NB_OK;
    if (!json_is_array(list)) return nb_fail(err, NB_ERR_FORMAT, "%s: an array expected", WHERE);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *o = json_array_get(list, i);
        const json_t *id = json_object_get(o, "id"), *content = json_object_get(o, "content");
        if (!json_is_integer(id) || json_integer_value(id) < 0 || !json_is_string(content))
            return nb_fail(err, NB_ERR_FORMAT, "%s[%zu]: an object with id and content expected",
                           WHERE, i);
        NB_TRY(nb_tok_reserve_id(t, (uint64_t)json_integer_value(id), WHERE, err));
        const nb_added a = {
            .id = (uint32_t)json_integer_value(id),
            .special = json_is_true(json_object_get(o, "special")),
            .normalized = json_is_true(json_object_get(o, "normalized")),
            .lstrip = json_is_true(json_object_get(o, "lstrip")),
            .rstrip = json_is_true(json_object_get(o, "rstrip")),
            .single_word = json_is_true(json_object_get(o, "single_word")),
        };
        NB_TRY(nb_tok_add_token(t, &a, nb_tok_json_str(content), true, WHERE, err));
    }
    return NB_OK;
}

/* ---- sets ---------------------------------------------------------------- */

static bool contains(nb_str s, const char *what)
{
    return nb_tok_find_literal(s, 0, what, strlen(what)) < s.n_bytes;
}

/* Spelled like a control token: see NB_TOK_PARSE_SPECIAL. */
static bool looks_like_control(nb_str s)
{
    const char first = s.p[0], last = s.p[s.n_bytes - 1];
    return (first == '<' && last == '>' && s.n_bytes > 1) ||
           (first == '[' && last == ']' && s.n_bytes > 1) || contains(s, "<|") ||
           contains(s, "|>") || contains(s, "\xef\xbd\x9c");
}

typedef struct sort_item {
    const unsigned char *p;
    size_t n_bytes;
    uint32_t index;
} sort_item;

static int compare_items(const void *pa, const void *pb)
{
    const sort_item *a = pa, *b = pb;
    const size_t n = a->n_bytes < b->n_bytes ? a->n_bytes : b->n_bytes;
    const int c = memcmp(a->p, b->p, n);
    if (c) return c;
    if (a->n_bytes != b->n_bytes) return a->n_bytes < b->n_bytes ? -1 : 1;
    return a->index < b->index ? -1 : 1;
}

static nb_status build_set(nb_tokenizer *t, bool parse, bool normalized, sort_item *items)
{
    nb_added_set *set = &t->sets[parse][normalized];
    size_t n = 0;
    for (uint32_t i = 0; i < t->n_added; i++) {
        const nb_added *a = &t->added[i];
        if (a->normalized != normalized || (!parse && a->control) || !a->pattern.n_bytes) continue;
        const nb_str s = nb_tok_bytes(t, a->pattern);
        items[n++] = (sort_item){ (const unsigned char *)s.p, s.n_bytes, i };
        set->first[(unsigned char)s.p[0]] = true;
    }
    if (!n) return NB_OK;
    qsort(items, n, sizeof *items, compare_items);
    set->item = malloc(n * sizeof *set->item);
    if (!set->item) return NB_ERR_NOMEM;
    for (size_t i = 0; i < n; i++) set->item[i] = items[i].index;
    set->n_items = n;
    return NB_OK;
}

static nb_status make_pattern(nb_tokenizer *t, nb_added *a, nb_error *err)
{
    a->pattern = a->content;
    if (!a->normalized || !t->n_norm) return NB_OK;
    nb_tok_regex_run run = { 0 };
    nb_buf text = { 0 };
    nb_status st = nb_tok_normalize_run(t, &run, nb_tok_bytes(t, a->content), &text, err);
    if (st == NB_OK) st = nb_tok_blob_add(t, nb_buf_view(&text), &a->pattern);
    nb_buf_deinit(&text);
    nb_tok_regex_run_deinit(&run);
    return st;
}

nb_status nb_tok_build_added(nb_tokenizer *t, nb_error *err)
{
    for (size_t i = 0; i < t->n_added; i++) {
        nb_added *a = &t->added[i];
        a->control = a->special || looks_like_control(nb_tok_bytes(t, a->content));
        if (a->control) t->flags[a->id] |= NB_TF_CONTROL;
        const nb_status st = make_pattern(t, a, err);
        if (st != NB_OK) return nb_tok_error_fill(err, st, "tokenizer: added tokens");
    }
    for (size_t i = 0; i < t->merges.n_slots; i++)
        if (t->merges.slots[i].pair != UINT64_MAX &&
            (t->flags[t->merges.slots[i].id] & NB_TF_CONTROL))
            t->merges_make_control = true;
    sort_item *items = malloc((t->n_added + 1) * sizeof *items);
    nb_status st = items ? NB_OK : NB_ERR_NOMEM;
    for (int k = 0; k < 4 && st == NB_OK; k++) st = build_set(t, k & 1, k >> 1, items);
    free(items);
    return st == NB_OK ? st : no_memory(err);
}

/* ---- decoded text of single tokens --------------------------------------- */

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

/* The byte of "<0xHH>", or -1. */
static int fallback_byte(nb_str s)
{
    if (s.n_bytes != 6 || memcmp(s.p, "<0x", 3) != 0 || s.p[5] != '>') return -1;
    const int hi = hex_digit(s.p[3]), lo = hex_digit(s.p[4]);
    return hi < 0 || lo < 0 ? -1 : hi * 16 + lo;
}

/* A spelling through the decoder's steps for single tokens. */
static nb_status out_of(nb_tokenizer *t, uint32_t id, nb_str spelling, bool added,
                        nb_tok_regex_run *run, nb_buf *buf, nb_error *err)
{
    bool all = false;
    buf->n_bytes = 0;
    if (t->dec.kind == NB_DEC_BYTES && !(added && t->dec.raw_added))
        NB_TRY(nb_tok_standin_decode(spelling, buf, &all));
    if (t->dec.kind == NB_DEC_CHAIN) {
        NB_TRY(nb_tok_decode_steps(t, run, spelling, buf, err));
        const int byte = t->dec.byte_fallback ? fallback_byte(nb_buf_view(buf)) : -1;
        if (byte >= 0) {
            buf->n_bytes = 0;
            NB_TRY(nb_buf_add_ch(buf, (char)byte));
            t->flags[id] |= NB_TF_BYTE;
        }
    } else if (!all) {
        NB_TRY(nb_buf_add_str(buf, spelling));
    }
    return nb_tok_blob_add(t, nb_buf_view(buf), &t->out[id]);
}

static nb_status model_out(nb_tokenizer *t, uint32_t id, nb_tok_regex_run *run, nb_buf *spelling,
                           nb_buf *buf, nb_error *err)
{
    if (t->byte_level && t->dec.kind == NB_DEC_BYTES) {
        t->out[id] = t->key[id];
        return NB_OK;
    }
    spelling->n_bytes = 0;
    const nb_str key = nb_tok_bytes(t, t->key[id]);
    for (size_t i = 0; i < key.n_bytes; i++) {
        char u[4];
        const unsigned char b = (unsigned char)key.p[i];
        if (t->byte_level)
            NB_TRY(nb_buf_add(spelling, u, (size_t)nb_utf8_encode(nb_tok_standin(b), u)));
        else
            NB_TRY(nb_buf_add_ch(spelling, key.p[i]));
    }
    return out_of(t, id, nb_buf_view(spelling), false, run, buf, err);
}

nb_status nb_tok_build_out(nb_tokenizer *t, nb_error *err)
{
    nb_tok_regex_run run = { 0 };
    nb_buf spelling = { 0 }, buf = { 0 };
    nb_status st = NB_OK;
    for (uint32_t id = 0; id < t->n_ids && st == NB_OK; id++)
        if (t->key[id].n_bytes && !(t->flags[id] & NB_TF_ADDED))
            st = model_out(t, id, &run, &spelling, &buf, err);
    for (size_t v = 0; v < t->n_names && st == NB_OK; v++) {
        if (t->name_id[v] == NB_TOK_NONE) continue; /* named anew */
        /* a copy: the blob may move while the result is appended to it */
        spelling.n_bytes = 0;
        st = nb_buf_add_str(&spelling, nb_tok_bytes(t, t->name[v]));
        if (st == NB_OK)
            st = out_of(t, t->name_id[v], nb_buf_view(&spelling), t->name_added[v] != NB_TOK_NONE,
                        &run, &buf, err);
    }
    nb_buf_deinit(&spelling);
    nb_buf_deinit(&buf);
    nb_tok_regex_run_deinit(&run);
    return st == NB_OK ? st : nb_tok_error_fill(err, st, "tokenizer: decoder");
}
