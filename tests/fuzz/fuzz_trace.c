/* fuzz_trace.c - any bytes as a stream of requests and as a session; what is accepted is walked to
 * its end. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "capacity/trace.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void need(int ok)
{
    if (!ok) abort();
}

/* One line that begins with the file's name. */
static void check_error(const nb_error *e, nb_status st)
{
    const char *end = memchr(e->msg, 0, sizeof e->msg);
    need(st != NB_OK && e->status == st && end && end > e->msg);
    need(strncmp(e->msg, "fuzz.json", 9) == 0);
    for (const char *p = e->msg; p < end; p++) need((unsigned char)*p >= 0x20 && *p != 0x7f);
}

static void use_stream(const char *p, size_t n)
{
    nb_trace *t = NULL;
    nb_error e = { 0 };
    nb_status st = nb_trace_open_text(p, n, "fuzz.json", &t, &e);
    double last_s = 0;
    bool more = true;
    while (st == NB_OK && more) {
        nb_trace_req r;
        st = nb_trace_next(t, &r, &more, &e);
        if (st != NB_OK || !more) break;
        need(isfinite(r.t_s) && r.t_s >= last_s);
        last_s = r.t_s;
        need(r.n_in <= NB_TRACE_MAX_TOK && r.n_out <= NB_TRACE_MAX_TOK &&
             r.n_id <= NB_TRACE_MAX_ID);
        for (size_t i = 0; i < r.n_id; i++) need(r.id[i] <= NB_TRACE_MAX_ID_VALUE);
    }
    if (st != NB_OK) check_error(&e, st);
    nb_trace_close(t);
}

static void use_session(const char *p, size_t n)
{
    nb_session s = { 0 };
    nb_error e = { 0 };
    const nb_status st = nb_session_parse(p, n, "fuzz.json", (nb_str){ "salt", 4 }, &s, &e);
    if (st != NB_OK) {
        check_error(&e, st);
        return;
    }
    need(s.id_tok && s.id_tok % NB_BLOCK_TOK == 0);
    for (size_t i = 0; i < s.n_node; i++) need(s.parent[i] == NB_BLOCK_NONE || s.parent[i] < i);
    for (size_t i = 0; i < s.n_req; i++) {
        const nb_session_req *r = &s.req[i];
        uint32_t node = r->node;
        size_t n_id = 0;
        need(r->t_s >= 0 && r->t_s <= 6e12 && isfinite(r->api_s) && r->api_s >= 0);
        need(i == 0 || s.req[i - 1].t_s <= r->t_s);
        for (; node != NB_BLOCK_NONE; node = s.parent[node], n_id++) need(node < s.n_node);
        need(n_id == r->n_id && r->n_in <= NB_TRACE_MAX_TOK && r->n_out <= NB_TRACE_MAX_TOK);
    }
    nb_session_deinit(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char *p = malloc(n + (n == 0)); /* its own block: reading beyond it is found */
    if (!p) return 0;
    if (n) memcpy(p, data, n);
    use_stream(p, n);
    use_session(p, n);
    free(p);
    return 0;
}
