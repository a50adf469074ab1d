/* ruler_file.c - prompts from and to files, and grading. */
#include <stdlib.h>

#include "quality/ruler_internal.h"

enum { MAX_REFS = 4096, FILE_SLACK_TOK = 16, MAX_NEW_TOK = 65536 };

/* ---- grading ------------------------------------------------------------------ */

static char lower(char ch)
{
    return ch >= 'A' && ch <= 'Z' ? (char)(ch - 'A' + 'a') : ch;
}

static bool contains(nb_str text, const char *word)
{
    const size_t n = strlen(word);
    for (size_t i = 0; i + n <= text.n_bytes; i++) {
        size_t k = 0;
        while (k < n && lower(text.p[i + k]) == lower(word[k])) k++;
        if (k == n) return true;
    }
    return false;
}

static nb_str trimmed(nb_str s)
{
    static const char white[] = " \t\r\n";
    while (s.n_bytes && strchr(white, s.p[0])) s = (nb_str){ s.p + 1, s.n_bytes - 1 };
    while (s.n_bytes && strchr(white, s.p[s.n_bytes - 1])) s.n_bytes--;
    return s;
}

/* A generation that ends at a newline gives a line; else the answer may be followed by more. */
nb_ruler_score nb_ruler_grade(const nb_ruler_item *it, nb_str generated)
{
    const nb_str want = trimmed(nb_str_c(it->answer));
    nb_str got = trimmed(generated);
    size_t hit = 0;
    for (size_t i = 0; i < it->n_ref; i++) hit += contains(generated, it->refs[i]);
    if (!it->first_line && got.n_bytes > want.n_bytes) got.n_bytes = want.n_bytes;
    return (nb_ruler_score){ .match = it->n_ref ? (double)hit / (double)it->n_ref : 0,
                             .exact = nb_str_eq(got, want) };
}

/* ---- reading -------------------------------------------------------------------- */

/* A count of an object; false after an error line. */
static bool count_at(const json_t *j, const char *key, size_t at, size_t most, size_t *out,
                     nb_error *err)
{
    const json_t *v = json_object_get(j, key);
    if (!v || json_is_null(v)) return true;
    if (!json_is_integer(v) || json_integer_value(v) < 0 ||
        (uint64_t)json_integer_value(v) > most) {
        (void)nb_fail(err, NB_ERR_FORMAT, "prompt %zu: \"%s\" is not a count up to %zu", at, key,
                      most);
        return false;
    }
    *out = (size_t)json_integer_value(v);
    return true;
}

/* A string without a zero byte in it, copied. */
static const char *text_at(nb_arena *a, const json_t *v, size_t at, const char *key, nb_error *err)
{
    if (!json_is_string(v) || strlen(json_string_value(v)) != json_string_length(v)) {
        (void)nb_fail(err, NB_ERR_FORMAT, "prompt %zu: \"%s\" is not a text", at, key);
        return NULL;
    }
    const char *s = nb_arena_strdup(a, (nb_str){ json_string_value(v), json_string_length(v) });
    if (!s) (void)nb_fail(err, NB_ERR_NOMEM, "no memory for the prompts");
    return s;
}

static nb_status read_refs(nb_arena *a, const json_t *j, size_t at, nb_ruler_item *it,
                           nb_error *err)
{
    const json_t *v = json_object_get(j, "refs");
    const size_t n = v ? json_array_size(v) : 1;
    if (v && (!json_is_array(v) || n < 1 || n > MAX_REFS))
        return nb_fail(err, NB_ERR_FORMAT, "prompt %zu: \"refs\" is not an array of 1 to %d texts",
                       at, (int)MAX_REFS);
    const char **refs = nb_arena_array(a, n, sizeof *refs);
    if (!refs) return nb_fail(err, NB_ERR_NOMEM, "no memory for the prompts");
    for (size_t i = 0; i < n; i++) {
        refs[i] = v ? text_at(a, json_array_get(v, i), at, "refs", err)
                    : text_at(a, json_object_get(j, "answer"), at, "answer", err);
        if (!refs[i]) return err && err->status ? err->status : NB_ERR_FORMAT;
        if (!*refs[i]) return nb_fail(err, NB_ERR_FORMAT, "prompt %zu: an answer is empty", at);
    }
    it->refs = refs;
    it->n_ref = n;
    return NB_OK;
}

static nb_status read_item(nb_ruler_set *set, const json_t *j, size_t at, size_t *cap,
                           const nb_ruler_options *o, nb_error *err)
{
    nb_ruler_item it = {
        .depth = NB_RULER_NO_DEPTH, .at = -1, .kind = "prompt", .first_line = true
    };
    size_t context = at;
    const json_t *v;
    nb_error e = { 0 };
    if (!json_is_object(j)) return nb_fail(err, NB_ERR_FORMAT, "prompt %zu: not an object", at);
    it.prompt = text_at(&set->arena, json_object_get(j, "prompt"), at, "prompt", &e);
    if (it.prompt) it.answer = text_at(&set->arena, json_object_get(j, "answer"), at, "answer", &e);
    if (it.answer && (v = json_object_get(j, "kind")))
        it.kind = text_at(&set->arena, v, at, "kind", &e);
    if (!it.prompt || !it.answer || !it.kind) return nb_fail(err, e.status, "%s", e.msg);
    if (!*it.prompt || !*it.answer)
        return nb_fail(err, NB_ERR_FORMAT, "prompt %zu: it or its answer is empty", at);
    if (!count_at(j, "length", at, SIZE_MAX / 4, &it.length, err) ||
        !count_at(j, "depth", at, 99, &it.depth, err) ||
        !count_at(j, "context", at, UINT32_MAX, &context, err) ||
        !count_at(j, "max_tokens", at, MAX_NEW_TOK, &it.max_tok, err))
        return NB_ERR_FORMAT;
    it.context = (uint32_t)context;
    if ((v = json_object_get(j, "at")) && json_is_number(v)) it.at = json_number_value(v);
    if ((v = json_object_get(j, "first_line"))) {
        if (!json_is_boolean(v))
            return nb_fail(err, NB_ERR_FORMAT, "prompt %zu: \"first_line\" is not a boolean", at);
        it.first_line = json_is_true(v);
    }
    NB_TRY(read_refs(&set->arena, j, at, &it, err));
    const size_t n = strlen(it.answer);
    const bool bare = !strchr(" \n\t", it.answer[0]),
               open = it.first_line && it.answer[n - 1] != '\n';
    if (bare || open) {
        char *s = nb_arena_alloc(&set->arena, n + 3);
        if (!s) return nb_fail(err, NB_ERR_NOMEM, "no memory for the prompts");
        (void)snprintf(s, n + 3, "%s%s%s", bare ? " " : "", it.answer, open ? "\n" : "");
        it.answer = s;
    }
    const size_t given = it.max_tok;
    NB_TRY(nb_ruler_add_item(set, cap, &it, o, err));
    nb_ruler_item *mine = &set->item[set->n - 1];
    if (!given) { /* what the model's answer is longer */
        mine->max_tok = mine->n_full - mine->n_given + FILE_SLACK_TOK;
        if (mine->n_ids + mine->max_tok > set->max_tok) set->max_tok = mine->n_ids + mine->max_tok;
    }
    return NB_OK;
}

nb_status nb_ruler_from_json(nb_str json, nb_ruler_encode_fn *encode, void *encode_ctx,
                             nb_ruler_set *out, nb_error *err)
{
    *out = (nb_ruler_set){ 0 };
    const nb_ruler_options o = { .encode = encode, .encode_ctx = encode_ctx };
    json_error_t e;
    json_t *j = json_loadb(json.p, json.n_bytes, JSON_REJECT_DUPLICATES, &e);
    size_t cap = 0;
    nb_status st = NB_OK;
    if (!j)
        st = nb_fail(err, NB_ERR_FORMAT, "line %d: %s", e.line, e.text);
    else if (!json_is_array(j) || json_array_size(j) == 0)
        st = nb_fail(err, NB_ERR_FORMAT, "not an array of prompts");
    for (size_t i = 0; st == NB_OK && i < json_array_size(j); i++)
        st = read_item(out, json_array_get(j, i), i, &cap, &o, err);
    for (size_t i = 0; i < out->n; i++) /* prompts of one text follow each other */
        out->n_context += i == 0 || out->item[i].context != out->item[i - 1].context;
    json_decref(j);
    return st;
}

/* ---- writing --------------------------------------------------------------------- */

static json_t *ids_json(const uint32_t *ids, size_t n)
{
    json_t *a = json_array();
    for (size_t i = 0; a && i < n; i++)
        if (json_array_append_new(a, json_integer(ids[i])) != 0) {
            json_decref(a);
            return NULL;
        }
    return a;
}

static json_t *item_json(const nb_ruler_item *it)
{
    json_t *refs = json_array();
    for (size_t i = 0; i < it->n_ref; i++)
        (void)json_array_append_new(refs, json_string(it->refs[i]));
    const bool has_depth = it->depth != NB_RULER_NO_DEPTH;
    return json_pack("{s:s, s:s, s:s, s:o, s:I, s:o, s:o, s:I, s:b, s:I, s:o, s:o}", "kind",
                     it->kind, "prompt", it->prompt, "answer", it->answer, "refs", refs, "length",
                     (json_int_t)it->length, "depth",
                     has_depth ? json_integer((json_int_t)it->depth) : json_null(), "at",
                     it->at >= 0 ? json_real(it->at) : json_null(), "context",
                     (json_int_t)it->context, "first_line", it->first_line, "max_tokens",
                     (json_int_t)it->max_tok, "ids", ids_json(it->ids, it->n_ids), "answer_ids",
                     ids_json(it->full + it->n_given, it->n_full - it->n_given));
}

json_t *nb_ruler_to_json(const nb_ruler_set *s)
{
    json_t *a = json_array();
    for (size_t i = 0; a && i < s->n; i++)
        if (json_array_append_new(a, item_json(&s->item[i])) != 0) {
            json_decref(a);
            return NULL;
        }
    return a;
}
