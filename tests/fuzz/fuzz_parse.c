/* fuzz_parse.c - any bytes as a model's output, for every format: the events are
 * well formed, and the same byte by byte, in pieces, and with tokens' ids. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "parse/parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void need(int ok)
{
    if (!ok) abort();
}

typedef struct sink {
    nb_buf text[4]; /* reasoning, content, calls, arguments */
    size_t n_calls;
    int open, starved; /* a call is open; an allocation failed */
} sink;

static int good(sink *s, nb_status st)
{
    need(st == NB_OK || st == NB_ERR_NOMEM);
    if (st != NB_OK) s->starved = 1;
    return st == NB_OK;
}

static nb_status collect(void *ctx, const nb_parse_event *e)
{
    sink *s = ctx;
    switch (e->kind) {
    case NB_PARSE_CALL_BEGIN:
        need(!s->open && e->index == s->n_calls && *e->name && *e->id);
        s->n_calls++;
        s->open = 1;
        if (!good(s, nb_buf_add(&s->text[2], e->name, strlen(e->name) + 1))) return NB_ERR_NOMEM;
        return nb_buf_add(&s->text[2], e->id, strlen(e->id) + 1);
    case NB_PARSE_CALL_END:
        need(s->open && e->index + 1 == s->n_calls);
        s->open = 0;
        return nb_buf_add(&s->text[3], "", 1);
    case NB_PARSE_ARGUMENTS:
        need(s->open && e->index + 1 == s->n_calls && e->text.n_bytes);
        return nb_buf_add_str(&s->text[3], e->text);
    case NB_PARSE_REASONING:
    case NB_PARSE_CONTENT: break;
    }
    need(!s->open && e->text.n_bytes);
    return nb_buf_add_str(&s->text[e->kind == NB_PARSE_CONTENT], e->text);
}

static uint32_t every_marker(const void *ctx, nb_str text)
{
    (void)ctx;
    return (uint32_t)(text.n_bytes * 256 + (unsigned char)text.p[text.n_bytes / 2]);
}

static sink run(const nb_parser *p, nb_str out, size_t step, uint32_t id, nb_parse_end end)
{
    sink s = { 0 };
    nb_parse *a = NULL;
    if (!good(&s, nb_parse_create(p, 1, collect, &s, &a))) return s;
    for (size_t i = 0; i < out.n_bytes && !s.starved;) {
        const size_t left = out.n_bytes - i, k = step && step < left ? step : left;
        good(&s, nb_parse_push(a, id, (nb_str){ out.p + i, k }));
        nb_parse_where(a);
        i += k;
    }
    if (good(&s, nb_parse_finish(a, end))) need(!s.open && s.n_calls == nb_parse_n_calls(a));
    nb_parse_destroy(a);
    return s;
}

static void sink_deinit(sink *s)
{
    for (size_t i = 0; i < 4; i++) nb_buf_deinit(&s->text[i]);
}

static void compare(const nb_parser *p, nb_str out, uint32_t id, nb_parse_end end)
{
    static const size_t STEPS[] = { 1, 3, 17 };
    sink whole = run(p, out, 0, id, end);
    for (size_t i = 0; i < sizeof STEPS / sizeof *STEPS; i++) {
        sink parts = run(p, out, STEPS[i], id, end);
        for (size_t k = 0; k < 4 && !whole.starved && !parts.starved; k++)
            need(nb_str_eq(nb_buf_view(&whole.text[k]), nb_buf_view(&parts.text[k])));
        sink_deinit(&parts);
    }
    sink_deinit(&whole);
}

/* The first byte chooses how the parser is set up, a line up to the first 0 byte is a
 * tool's schema, the rest is the output. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 2) return 0;
    const unsigned how = data[0];
    char *p = malloc(n - 1); /* its own block: reading beyond it is found */
    if (!p) return 0;
    memcpy(p, data + 1, n - 1);
    const char *zero = memchr(p, 0, n - 1);
    const nb_str schema = { p, zero ? (size_t)(zero - p) : 0 };
    const size_t from = zero ? schema.n_bytes + 1 : 0;
    const nb_str out = { p + from, n - 1 - from };
    const nb_parse_tool tool = { { "bash", 4 }, schema };
    for (const char *s = nb_call_format_names(); *s; s += strspn(s, ", ")) {
        const size_t len = strcspn(s, ",");
        const nb_parser_options o = { .calls = nb_call_format_find((nb_str){ s, len }),
                                      .thought = nb_thought_format_find(
                                          nb_str_c(how & 1 ? "minicpm3" : "deepseek_r1")),
                                      .tokens = { how & 2 ? every_marker : NULL, NULL },
                                      .tools = &tool,
                                      .n_tools = 1,
                                      .starts_in_thought = how & 4 };
        nb_parser *parser = NULL;
        s += len;
        if (nb_parser_create(&o, &parser, NULL) != NB_OK) continue;
        const nb_parse_end end = how & 8 ? NB_PARSE_END_LENGTH : NB_PARSE_END_STOP;
        compare(parser, out, NB_PARSE_NO_ID, end);
        if (how & 16) compare(parser, out, 1, end); /* ids are known: no marker counts */
        nb_parser_destroy(parser);
    }
    free(p);
    return 0;
}
