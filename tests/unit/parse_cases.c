/* parse_cases.c - see parse_cases.h. */
#include "parse_cases.h"

#include "base/rng.h"
#include "base/utf8.h"
#include "parse/parse_internal.h"

enum { N_RANDOM = 12, MAX_CALLS = 64 };

json_t *parse_cases_read(const char *path)
{
    nb_buf b = tok_read_path(path);
    json_t *all = json_array();
    for (size_t i = 0; i < b.n_bytes;) {
        const char *end = memchr(b.p + i, '\n', b.n_bytes - i);
        const size_t n = end ? (size_t)(end - b.p) - i : b.n_bytes - i;
        if (n && b.p[i] == '{') json_array_append_new(all, tok_json((nb_str){ b.p + i, n }));
        i += n + 1;
    }
    nb_buf_deinit(&b);
    return all;
}

static const char *field(const json_t *c, const char *name, const char *otherwise)
{
    const char *s = json_string_value(json_object_get(c, name));
    return s ? s : otherwise;
}

static nb_str output_of(const json_t *c)
{
    const json_t *o = json_object_get(c, "output");
    return (nb_str){ json_string_value(o), json_string_length(o) };
}

/* ---- what a parser made of an output ------------------------------------- */

typedef struct answer {
    const char *case_id, *how;
    nb_buf reasoning, content;
    struct {
        char name[300], id[400];
        nb_buf args;
    } call[MAX_CALLS];
    size_t n_calls, n_reasoning_events;
    bool open;
} answer;

static nb_status collect(void *ctx, const nb_parse_event *e)
{
    answer *a = ctx;
    if (e->kind == NB_PARSE_CALL_BEGIN) {
        if (a->open || e->index != a->n_calls || a->n_calls == MAX_CALLS)
            fail_msg("%s (%s): call %zu begins at the wrong place", a->case_id, a->how, e->index);
        snprintf(a->call[a->n_calls].name, sizeof a->call->name, "%s", e->name);
        snprintf(a->call[a->n_calls].id, sizeof a->call->id, "%s", e->id);
        a->n_calls++;
        a->open = true;
        return NB_OK;
    }
    const bool of_call = e->kind == NB_PARSE_ARGUMENTS || e->kind == NB_PARSE_CALL_END;
    if (of_call != a->open || (of_call && e->index + 1 != a->n_calls))
        fail_msg("%s (%s): event %d at the wrong place", a->case_id, a->how, (int)e->kind);
    if (e->kind == NB_PARSE_CALL_END) {
        a->open = false;
        return NB_OK;
    }
    assert_true(e->text.n_bytes > 0);
    return nb_buf_add_str(e->kind == NB_PARSE_CONTENT     ? &a->content
                          : e->kind == NB_PARSE_REASONING ? &a->reasoning
                                                          : &a->call[a->n_calls - 1].args,
                          e->text);
}

static void answer_deinit(answer *a)
{
    nb_buf_deinit(&a->reasoning);
    nb_buf_deinit(&a->content);
    for (size_t i = 0; i < MAX_CALLS; i++) nb_buf_deinit(&a->call[i].args);
    free(a);
}

/* Numbers by value, objects without order. */
static bool same_value(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b)) return json_number_value(a) == json_number_value(b);
    if (json_is_array(a) && json_is_array(b)) {
        bool same = json_array_size(a) == json_array_size(b);
        for (size_t i = 0; same && i < json_array_size(a); i++)
            same = same_value(json_array_get(a, i), json_array_get(b, i));
        return same;
    }
    if (json_is_object(a) && json_is_object(b)) {
        bool same = json_object_size(a) == json_object_size(b);
        const char *key;
        json_t *v;
        json_object_foreach((json_t *)a, key, v)
        {
            same = same && same_value(v, json_object_get(b, key));
        }
        return same;
    }
    return json_equal(a, b) == 1;
}

static void check_text(const answer *a, const char *what, const nb_buf *got, const json_t *want)
{
    const nb_str g = nb_buf_view(got);
    const nb_str w = { want && json_is_string(want) ? json_string_value(want) : "",
                       want ? json_string_length(want) : 0 };
    if (!nb_str_eq(g, w))
        fail_msg("%s (%s): %s is \"%.*s\", expected \"%.*s\"", a->case_id, a->how, what,
                 (int)g.n_bytes, g.p, (int)w.n_bytes, w.p);
}

static void check_call(const answer *a, size_t i, const json_t *want)
{
    const nb_buf *args = &a->call[i].args;
    const char *name = field(want, "name", ""), *id = field(want, "id", NULL);
    if (strcmp(name, a->call[i].name) != 0)
        fail_msg("%s (%s): call %zu is \"%s\", expected \"%s\"", a->case_id, a->how, i,
                 a->call[i].name, name);
    if (id && strcmp(id, a->call[i].id) != 0)
        fail_msg("%s (%s): id \"%s\", expected \"%s\"", a->case_id, a->how, a->call[i].id, id);
    if (!id && (strlen(a->call[i].id) != 29 || strncmp(a->call[i].id, "call_", 5) != 0 ||
                strspn(a->call[i].id + 5, "0123456789abcdef") != 24))
        fail_msg("%s (%s): id \"%s\"", a->case_id, a->how, a->call[i].id);
    for (size_t k = 0; k < i; k++) assert_string_not_equal(a->call[k].id, a->call[i].id);
    const json_t *text = json_object_get(want, "arguments_text");
    if (text) {
        check_text(a, "arguments", args, text);
        return;
    }
    const json_t *value = json_object_get(want, "arguments");
    json_t *got = json_loadb(args->p ? args->p : "", args->n_bytes,
                             JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL);
    if (!got || !same_value(got, value)) {
        char *w = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
        fail_msg("%s (%s): arguments are %.*s, expected %s", a->case_id, a->how, (int)args->n_bytes,
                 args->p ? args->p : "", w);
    }
    json_decref(got);
}

static void check_answer(const answer *a, const json_t *c)
{
    const json_t *want = json_object_get(c, "expect"), *calls = json_object_get(want, "calls");
    const bool cut = strcmp(field(c, "end", "stop"), "length") == 0;
    check_text(a, "reasoning", &a->reasoning, json_object_get(want, "reasoning"));
    check_text(a, "content", &a->content, json_object_get(want, "content"));
    if (a->n_calls != json_array_size(calls))
        fail_msg("%s (%s): %zu calls, expected %zu", a->case_id, a->how, a->n_calls,
                 json_array_size(calls));
    for (size_t i = 0; i < a->n_calls; i++) check_call(a, i, json_array_get(calls, i));
    const char *reason = cut ? "length" : a->n_calls ? "tool_calls" : "stop";
    if (strcmp(reason, field(want, "finish_reason", reason)) != 0)
        fail_msg("%s (%s): finish_reason is %s", a->case_id, a->how, reason);
}

/* ---- running ------------------------------------------------------------- */

static const nb_call_format *format_of(const json_t *c)
{
    const nb_call_format *f = nb_call_format_find(nb_str_c(field(c, "family", "")));
    if (!f) fail_msg("family %s", field(c, "family", ""));
    return f;
}

static const nb_thought_format *thought_of(const json_t *c)
{
    const char *family = field(c, "family", "");
    if (strncmp(family, "llama3", 6) == 0) return NULL;
    return nb_thought_format_find(
        nb_str_c(strcmp(family, "minicpm3") == 0 ? "minicpm3" : "deepseek_r1"));
}

static nb_parser *make_parser(const json_t *c, nb_token_lookup tokens)
{
    const json_t *tools = json_object_get(c, "tools");
    const size_t n = json_array_size(tools);
    nb_parse_tool *t = calloc(n + 1, sizeof *t);
    nb_parser *p = NULL;
    assert_non_null(t);
    for (size_t i = 0; i < n; i++) {
        const json_t *f = json_object_get(json_array_get(tools, i), "function");
        const json_t *schema = json_object_get(f, "parameters");
        char *text = schema ? json_dumps(schema, 0) : NULL;
        t[i] = (nb_parse_tool){ nb_str_c(field(f, "name", "")), nb_str_c(text ? text : "") };
    }
    const nb_parser_options o = {
        .calls = format_of(c),
        .thought = thought_of(c),
        .tokens = tokens,
        .tools = t,
        .n_tools = n,
        .n_history_calls = (size_t)json_integer_value(json_object_get(c, "history_calls")),
        .starts_in_thought = strcmp(field(c, "start", "content"), "reasoning") == 0
    };
    assert_int_equal(nb_parser_create(&o, &p, NULL), NB_OK);
    for (size_t i = 0; i < n; i++)
        if (t[i].parameters_json.n_bytes) free((void *)(uintptr_t)t[i].parameters_json.p);
    free(t);
    return p;
}

void parse_case_check(const json_t *c, nb_token_lookup tokens, const parse_piece *pieces,
                      size_t n_pieces, const char *how)
{
    nb_parser *p = make_parser(c, tokens);
    nb_parse *a = NULL;
    answer *got = calloc(1, sizeof *got);
    const nb_str out = output_of(c);
    size_t at = 0;
    assert_non_null(got);
    got->case_id = field(c, "id", "?");
    got->how = how;
    assert_int_equal(nb_parse_create(p, 42, collect, got, &a), NB_OK);
    for (size_t i = 0; i < n_pieces; i++) {
        assert_int_equal(nb_parse_push(a, pieces[i].id, (nb_str){ out.p + at, pieces[i].n_bytes }),
                         NB_OK);
        at += pieces[i].n_bytes;
    }
    assert_int_equal(at, out.n_bytes);
    const bool cut = strcmp(field(c, "end", "stop"), "length") == 0;
    assert_int_equal(nb_parse_finish(a, cut ? NB_PARSE_END_LENGTH : NB_PARSE_END_STOP), NB_OK);
    if (got->open) fail_msg("%s (%s): a call does not end", got->case_id, how);
    assert_int_equal(nb_parse_n_calls(a), got->n_calls);
    check_answer(got, c);
    nb_parse_destroy(a);
    nb_parser_destroy(p);
    answer_deinit(got);
}

/* ---- cuttings ------------------------------------------------------------ */

/* Made-up tokens: every marker of the family. */
typedef struct made_up {
    const nb_call_format *calls;
    const nb_thought_format *thought;
} made_up;

static const char *made_up_text(const made_up *m, size_t i)
{
    if (i < NB_FORMAT_MAX_ROWS) return m->calls->rows[i].text;
    i -= NB_FORMAT_MAX_ROWS;
    return i < NB_FORMAT_MAX_ROWS && m->thought ? m->thought->rows[i].text : NULL;
}

/* Of rows that are markers: from "<" on; DSML's are text, but for their middle. */
static nb_str made_up_token(const made_up *m, size_t i)
{
    const char *s = made_up_text(m, i);
    if (!s) return (nb_str){ "", 0 };
    while (*s == '\n') s++;
    if (m->calls->part && strstr(s, m->calls->part)) return nb_str_c(m->calls->part);
    return nb_str_c(*s == '<' ? s : "");
}

static uint32_t made_up_find(const void *ctx, nb_str text)
{
    for (size_t i = 0; i < 2 * NB_FORMAT_MAX_ROWS; i++)
        if (text.n_bytes && nb_str_eq(text, made_up_token(ctx, i))) return (uint32_t)(1000 + i);
    return NB_PARSE_NO_ID;
}

/* Whether the byte belongs to text that the case spells with ordinary tokens. */
static bool is_plain(const json_t *c, size_t at)
{
    const json_t *plain = json_object_get(c, "plain");
    const nb_str out = output_of(c);
    for (size_t i = 0; i < json_array_size(plain); i++) {
        const json_t *v = json_array_get(plain, i);
        const char *s = json_string_value(v), *hit = strstr(out.p, s);
        if (!hit) fail_msg("%s: \"%s\" is not in the output", field(c, "id", "?"), s);
        const size_t from = (size_t)(hit - out.p);
        if (at >= from && at < from + json_string_length(v)) return true;
    }
    return false;
}

/* The token at a place of the output, with its length; NB_PARSE_NO_ID: none. */
static uint32_t token_at(const json_t *c, const made_up *m, size_t at, size_t *n)
{
    const nb_str out = output_of(c);
    for (size_t i = 0; i < 2 * NB_FORMAT_MAX_ROWS; i++) {
        const nb_str t = made_up_token(m, i);
        if (!t.n_bytes || out.n_bytes - at < t.n_bytes || memcmp(out.p + at, t.p, t.n_bytes) != 0)
            continue;
        if (is_plain(c, at)) return NB_PARSE_NO_ID;
        *n = t.n_bytes;
        return made_up_find(m, t);
    }
    return NB_PARSE_NO_ID;
}

typedef enum cutting { BYTES, CHARACTERS, WHOLE, RANDOM } cutting;

static size_t piece_bytes(cutting how, uint64_t seed, nb_str out, size_t at)
{
    uint32_t cp;
    const size_t left = out.n_bytes - at;
    size_t n = 1;
    if (how == WHOLE) return left;
    if (how == RANDOM) n = 1 + nb_rng_u64(seed, at) % (1 + seed * seed);
    if (how == CHARACTERS) {
        const int k = nb_utf8_decode(out.p + at, left, &cp);
        n = k > 0 ? (size_t)k : 1;
    }
    return n < left ? n : left;
}

static void check_cut(const json_t *c, cutting how, uint64_t seed, const made_up *m)
{
    const nb_str out = output_of(c);
    parse_piece *p = calloc(out.n_bytes + 1, sizeof *p);
    char name[64];
    size_t n = 0;
    assert_non_null(p);
    for (size_t at = 0; at < out.n_bytes; at += p[n++].n_bytes) {
        size_t n_tok = 0;
        p[n].id = m ? token_at(c, m, at, &n_tok) : NB_PARSE_NO_ID;
        p[n].n_bytes = n_tok ? n_tok : piece_bytes(how, seed, out, at);
        if (n_tok) continue;
        if (m) p[n].id = 1; /* an ordinary token, up to the next marker */
        for (size_t k = 1; m && k < p[n].n_bytes; k++)
            if (token_at(c, m, at + k, &n_tok) != NB_PARSE_NO_ID) p[n].n_bytes = k;
    }
    snprintf(name, sizeof name, "%s, cutting %d, seed %u", m ? "tokens" : "text", (int)how,
             (unsigned)seed);
    parse_case_check(c, m ? (nb_token_lookup){ made_up_find, m } : (nb_token_lookup){ 0 }, p, n,
                     name);
    free(p);
}

void parse_case_cut(const json_t *c)
{
    const made_up m = { format_of(c), thought_of(c) };
    const bool text = !json_object_get(c, "plain"); /* else only tokens tell them apart */
    for (int tokens = text ? 0 : 1; tokens < 2; tokens++) {
        check_cut(c, BYTES, 0, tokens ? &m : NULL);
        check_cut(c, CHARACTERS, 0, tokens ? &m : NULL);
        check_cut(c, WHOLE, 0, tokens ? &m : NULL);
        for (uint64_t s = 1; s <= N_RANDOM; s++) check_cut(c, RANDOM, s, tokens ? &m : NULL);
    }
}

/* ---- real tokens --------------------------------------------------------- */

static uint32_t find_added(const void *ctx, nb_str text)
{
    const uint32_t id = nb_tokenizer_find_added(ctx, text);
    return id == NB_TOK_NONE ? NB_PARSE_NO_ID : id;
}

nb_token_lookup parse_tokens_of(const nb_tokenizer *t)
{
    return (nb_token_lookup){ find_added, t };
}

/* Through the detokenizer, as the engine does it. */
void parse_case_tokens(const json_t *c, const nb_tokenizer *t)
{
    const nb_str out = output_of(c);
    nb_parser *p = make_parser(c, parse_tokens_of(t));
    nb_parse *a = NULL;
    answer *got = calloc(1, sizeof *got);
    nb_detok d;
    nb_buf piece = { 0 };
    uint32_t *ids = NULL;
    size_t n_ids = 0, n_marks = 0;
    assert_non_null(got);
    got->case_id = field(c, "id", "?");
    got->how = "real tokens";
    assert_int_equal(nb_tokenizer_encode(t, out, NB_TOK_PARSE_SPECIAL, &ids, &n_ids, NULL), NB_OK);
    assert_int_equal(nb_parse_create(p, 7, collect, got, &a), NB_OK);
    nb_detok_init(&d, t, true);
    const uint32_t *marks = nb_parser_marker_ids(p, &n_marks);
    nb_detok_keep(&d, marks, n_marks);
    for (size_t i = 0; i < n_ids; i++) {
        piece.n_bytes = 0;
        assert_int_equal(nb_detok_push(&d, ids[i], &piece), NB_OK);
        assert_int_equal(nb_parse_push(a, ids[i], nb_buf_view(&piece)), NB_OK);
    }
    const bool cut = strcmp(field(c, "end", "stop"), "length") == 0;
    assert_int_equal(nb_parse_finish(a, cut ? NB_PARSE_END_LENGTH : NB_PARSE_END_STOP), NB_OK);
    check_answer(got, c);
    nb_detok_deinit(&d);
    nb_buf_deinit(&piece);
    free(ids);
    nb_parse_destroy(a);
    nb_parser_destroy(p);
    answer_deinit(got);
}
