/* parser.c - what a request's answers share: the rows of both tables by state,
 * the markers' tokens, the declared tools. */
#include <stdlib.h>

#include "parse/parse_internal.h"

/* The index of an added token in p->ids, which gets it; -1 if there is none. */
static int token_index(nb_parser *p, nb_token_lookup tokens, nb_str text)
{
    const uint32_t id = tokens.find ? tokens.find(tokens.ctx, text) : NB_PARSE_NO_ID;
    if (id == NB_PARSE_NO_ID) return -1;
    for (size_t i = 0; i < p->n_ids; i++)
        if (p->ids[i] == id) return (int)i;
    p->ids[p->n_ids] = id;
    p->id_text[p->n_ids] = text;
    return (int)p->n_ids++;
}

/* The token inside a marker: all of it but line feeds in front, or the format's part. */
static void find_token(nb_parser *p, nb_token_lookup tokens, const char *part, nb_pmarker *m)
{
    size_t at = 0;
    while (at < m->text.n_bytes && m->text.p[at] == '\n') at++;
    nb_str s = { m->text.p + at, m->text.n_bytes - at };
    if (!s.n_bytes || s.p[0] != '<') return;
    int i = token_index(p, tokens, s);
    const char *hit = part ? strstr(s.p, part) : NULL;
    if (i < 0 && hit) {
        s = nb_str_c(part);
        at = (size_t)(hit - m->text.p);
        i = token_index(p, tokens, s);
    }
    if (i < 0) return;
    m->tok = (uint8_t)(NB_CLS_TOKEN + i);
    m->tok_at = (uint8_t)at;
    m->tok_bytes = (uint8_t)s.n_bytes;
}

static void add_rows(nb_parser *p, const nb_prow rows[NB_FORMAT_MAX_ROWS], const char *part,
                     nb_token_lookup tokens)
{
    for (size_t k = 0; k < NB_FORMAT_MAX_ROWS && rows[k].text; k++) {
        const size_t i = p->n_rows++;
        nb_pmarker *m = &p->rows[i];
        *m = (nb_pmarker){ .text = nb_str_c(rows[k].text),
                           .in = rows[k].in,
                           .next = rows[k].next,
                           .act = rows[k].act };
        find_token(p, tokens, part, m);
        for (unsigned s = 0; s < NB_PS_N; s++) {
            if (!(m->in >> s & 1)) continue;
            p->of_state[s][p->n_of_state[s]++] = (uint8_t)i;
            p->first[s][(unsigned char)m->text.p[0]] = true;
        }
    }
}

static int by_value(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

nb_status nb_parser_create(const nb_parser_options *o, nb_parser **out, nb_error *err)
{
    nb_parser *p = calloc(1, sizeof *p);
    if (!p) return nb_fail(err, NB_ERR_NOMEM, "out of memory for an output parser");
    const nb_status st = nb_ptools_create(o->tools, o->n_tools, &p->tools, err);
    if (st != NB_OK) {
        free(p);
        return st;
    }
    p->calls = o->calls;
    p->thought = o->thought;
    p->n_history_calls = o->n_history_calls;
    p->starts_in_thought = o->starts_in_thought && o->thought;
    if (o->thought) add_rows(p, o->thought->rows, NULL, o->tokens);
    if (o->calls) add_rows(p, o->calls->rows, o->calls->part, o->tokens);
    memcpy(p->by_id, p->ids, sizeof p->ids);
    qsort(p->by_id, p->n_ids, sizeof *p->by_id, by_value);
    *out = p;
    return NB_OK;
}

void nb_parser_destroy(nb_parser *p)
{
    if (!p) return;
    nb_ptools_deinit(&p->tools);
    free(p);
}

const uint32_t *nb_parser_marker_ids(const nb_parser *p, size_t *n)
{
    *n = p->n_ids;
    return p->by_id;
}

/* The start of the last occurrence, or -1. */
static ptrdiff_t last_of(nb_str s, nb_str needle)
{
    for (size_t i = s.n_bytes; i >= needle.n_bytes; i--)
        if (memcmp(s.p + i - needle.n_bytes, needle.p, needle.n_bytes) == 0)
            return (ptrdiff_t)(i - needle.n_bytes);
    return -1;
}

bool nb_prompt_in_thought(const nb_thought_format *f, nb_token_lookup tokens, const uint32_t *ids,
                          size_t n_ids, nb_str prompt_text)
{
    if (!f) return false;
    const nb_str open = nb_str_c(f->open), close = nb_str_c(f->close);
    const uint32_t open_id = tokens.find ? tokens.find(tokens.ctx, open) : NB_PARSE_NO_ID;
    const uint32_t close_id = tokens.find ? tokens.find(tokens.ctx, close) : NB_PARSE_NO_ID;
    if (open_id != NB_PARSE_NO_ID && close_id != NB_PARSE_NO_ID) {
        for (size_t i = n_ids; i-- > 0;)
            if (ids[i] == open_id || ids[i] == close_id) return ids[i] == open_id;
        return false;
    }
    return last_of(prompt_text, open) > last_of(prompt_text, close);
}
