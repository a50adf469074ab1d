/* replay_mix.c - which request comes when: a stream, or sessions that are always open; see replay.h.
 *
 * Open sessions wait in a heap by the time of their next request; of equal times the one opened
 * first goes first, so that the order depends on the trace and the seed only. */
#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "capacity/replay.h"

enum { MAX_OPEN = 4096, MAX_PATH = 1 << 20 };

typedef struct open_session {
    nb_session s;
    size_t at;      /* next request                                      */
    double t_s;     /* when it comes                                     */
    uint64_t order; /* of opening                                        */
    bool answered;  /* its last request was; else it is not in the heap  */
} open_session;

struct nb_mix {
    nb_mix_options o;
    nb_trace *trace;
    nb_trace_req line; /* the next of a stream */
    bool have_line, ended;
    uint64_t n_line;

    open_session *open;   /* [n_open] */
    size_t *heap, n_heap; /* [n_open] places in `open` */
    size_t *order;        /* [n_path] as they are drawn */
    size_t n_drawn, n_skipped;
    size_t n_given;

    nb_block_key *key;
    size_t cap_key;
};

/* ---- heap of open sessions ---- */

static bool sooner(const nb_mix *m, size_t a, size_t b)
{
    const open_session *x = &m->open[a], *y = &m->open[b];
    return x->t_s < y->t_s || (!(x->t_s > y->t_s) && x->order < y->order);
}

static void heap_push(nb_mix *m, size_t who)
{
    size_t i = m->n_heap++;
    for (; i && sooner(m, who, m->heap[(i - 1) / 2]); i = (i - 1) / 2)
        m->heap[i] = m->heap[(i - 1) / 2];
    m->heap[i] = who;
}

static size_t heap_pop(nb_mix *m)
{
    const size_t top = m->heap[0], last = m->heap[--m->n_heap];
    size_t i = 0;
    for (size_t k; (k = 2 * i + 1) < m->n_heap; i = k) {
        if (k + 1 < m->n_heap && sooner(m, m->heap[k + 1], m->heap[k])) k++;
        if (!sooner(m, m->heap[k], last)) break;
        m->heap[i] = m->heap[k];
    }
    if (m->n_heap) m->heap[i] = last;
    return top;
}

/* ---- sessions ---- */

static bool fits(const nb_mix *m, size_t n_in)
{
    return n_in && (!m->o.max_tok || n_in <= m->o.max_tok);
}

/* The next request that is not too long. */
static void skip_long(nb_mix *m, open_session *s)
{
    for (; s->at < s->s.n_req && !fits(m, s->s.req[s->at].n_in); s->at++)
        if (s->s.req[s->at].n_in) m->n_skipped++;
}

/* Fisher and Yates; each round through the files has its own order. */
static void draw_order(nb_mix *m, uint64_t round)
{
    for (size_t i = 0; i < m->o.n_path; i++) m->order[i] = i;
    for (size_t i = m->o.n_path; i > 1; i--) {
        const uint64_t r = nb_rng_u64(m->o.seed + 0x9e3779b97f4a7c15u * round, i);
        const size_t k = (size_t)(r % i), x = m->order[i - 1];
        m->order[i - 1] = m->order[k];
        m->order[k] = x;
    }
}

/* Another session takes the place of one that ended; *got is false when none is left. */
static nb_status open_next(nb_mix *m, size_t who, double t_s, bool *got, nb_error *err)
{
    open_session *s = &m->open[who];
    *got = false;
    for (size_t n_empty = 0;; n_empty++) {
        nb_session_deinit(&s->s);
        if (n_empty == m->o.n_path) return NB_OK; /* all are too long */
        const size_t i = m->n_drawn % m->o.n_path;
        if (i == 0 && m->n_drawn && !m->o.n_request) return NB_OK;
        if (i == 0) draw_order(m, m->n_drawn / m->o.n_path);
        char salt[32];
        const uint64_t instance = m->n_drawn++;
        for (size_t k = 0; k < 8; k++) salt[k] = (char)(instance >> (8 * k) & 0xff);
        NB_TRY(nb_session_load(m->o.path[m->order[i]], (nb_str){ salt, 8 }, &s->s, err));
        s->at = 0;
        skip_long(m, s);
        if (s->at == s->s.n_req) continue;
        s->t_s = t_s;
        s->order = instance;
        s->answered = true;
        *got = true;
        heap_push(m, who);
        return NB_OK;
    }
}

/* After request `at` of a session, which came or was answered at t_s. */
static nb_status go_on(nb_mix *m, size_t who, double t_s, nb_error *err)
{
    open_session *s = &m->open[who];
    const nb_session_req *last = &s->s.req[s->at++];
    skip_long(m, s);
    if (s->at == s->s.n_req) {
        bool got;
        return open_next(m, who, t_s, &got, err);
    }
    double gap_s = s->s.req[s->at].t_s - last->t_s;
    if (m->o.closed) gap_s -= last->api_s;
    s->t_s = t_s + fmin(fmax(gap_s, 0), m->o.max_gap_s) / m->o.speed;
    s->answered = true;
    heap_push(m, who);
    return NB_OK;
}

static nb_status session_keys(nb_mix *m, const open_session *s, nb_mix_req *r)
{
    const nb_session_req *q = &s->s.req[s->at];
    const size_t per = s->s.id_tok / NB_BLOCK_TOK;
    const size_t n_full = q->n_in / NB_BLOCK_TOK, n_all = (size_t)q->n_id * per;
    r->n_key = n_all < n_full ? n_all : n_full;
    if (!r->n_key) return NB_OK;
    NB_TRY(NB_GROW(m->key, m->cap_key, n_all));
    uint32_t node = q->node;
    for (size_t i = q->n_id; i-- > 0; node = s->s.parent[node])
        memcpy(&m->key[i * per], &s->s.key[node * per], per * sizeof *m->key);
    return NB_OK;
}

/* ---- streams ---- */

static nb_status read_line(nb_mix *m, nb_error *err)
{
    while (!m->have_line && !m->ended) {
        bool more;
        NB_TRY(nb_trace_next(m->trace, &m->line, &more, err));
        m->ended = !more;
        m->n_line += more;
        m->have_line = more && fits(m, m->line.n_in);
        if (more && !m->have_line && m->line.n_in) m->n_skipped++;
    }
    return NB_OK;
}

static nb_status stream_keys(nb_mix *m, nb_mix_req *r)
{
    const nb_trace_req *q = &m->line;
    const size_t n_full = q->n_in / NB_BLOCK_TOK, per = q->id_tok / NB_BLOCK_TOK;
    nb_block_key parent;
    r->n_key = 0;
    /* Without prefixes no block is another's: the line's number is the salt. */
    unsigned char salt[8];
    for (size_t k = 0; k < 8; k++) salt[k] = (unsigned char)(m->n_line >> (8 * k) & 0xff);
    NB_TRY(nb_block_key_root((nb_str){ (const char *)salt, per ? 0u : 8u }, &parent));
    const size_t n_id = per ? q->n_id : (n_full + 7) / 8, n_per = per ? per : 8;
    NB_TRY(NB_GROW(m->key, m->cap_key, n_full));
    for (size_t i = 0; i < n_id && r->n_key < n_full; i++) {
        const size_t left = n_full - r->n_key, n = left < n_per ? left : n_per;
        nb_block_key *key = &m->key[r->n_key];
        NB_TRY(nb_trace_keys(&parent, per ? q->id[i] : i, n * NB_BLOCK_TOK, key));
        parent = key[n - 1];
        r->n_key += n;
    }
    return NB_OK;
}

/* ---- both ---- */

static nb_status check_options(const nb_mix_options *o, nb_error *err)
{
    if (!o->n_path || o->n_path > MAX_PATH || (!o->sessions && o->n_path != 1))
        return nb_fail(err, NB_ERR_ARG, "trace: %zu files; expected %s", o->n_path,
                       o->sessions ? "1 to 1048576 sessions" : "one");
    if (o->sessions && (!o->n_open || o->n_open > MAX_OPEN))
        return nb_fail(err, NB_ERR_ARG, "trace: %zu open sessions; expected 1 to %d", o->n_open,
                       MAX_OPEN);
    if (!(o->max_gap_s >= 0) || !(o->speed > 0) || !isfinite(o->speed))
        return nb_fail(err, NB_ERR_ARG,
                       "trace: gaps of at most %g s at speed %g; expected 0 or "
                       "more, and more than 0",
                       o->max_gap_s, o->speed);
    return NB_OK;
}

static nb_status open_sessions(nb_mix *m, nb_error *err)
{
    const nb_mix_options *o = &m->o;
    m->open = calloc(o->n_open, sizeof *m->open);
    m->heap = calloc(o->n_open, sizeof *m->heap);
    m->order = calloc(o->n_path, sizeof *m->order);
    if (!m->open || !m->heap || !m->order)
        return nb_fail(err, NB_ERR_NOMEM, "trace: out of memory");
    bool got = true;
    for (size_t i = 0; i < o->n_open && got; i++) NB_TRY(open_next(m, i, 0, &got, err));
    return NB_OK;
}

nb_status nb_mix_create(const nb_mix_options *o, nb_mix **out, nb_error *err)
{
    NB_TRY(check_options(o, err));
    nb_mix *m = calloc(1, sizeof *m);
    if (!m) return nb_fail(err, NB_ERR_NOMEM, "trace: out of memory");
    m->o = *o;
    const nb_status st =
        o->sessions ? open_sessions(m, err) : nb_trace_open(o->path[0], &m->trace, err);
    if (st != NB_OK) {
        nb_mix_destroy(m);
        return st;
    }
    *out = m;
    return NB_OK;
}

void nb_mix_destroy(nb_mix *m)
{
    if (!m) return;
    for (size_t i = 0; m->open && i < m->o.n_open; i++) nb_session_deinit(&m->open[i].s);
    nb_trace_close(m->trace);
    free(m->open);
    free(m->heap);
    free(m->order);
    free(m->key);
    free(m);
}

nb_status nb_mix_peek(nb_mix *m, double *t_s, nb_error *err)
{
    *t_s = (double)INFINITY;
    if (m->o.n_request && m->n_given == m->o.n_request) return NB_OK;
    if (m->o.sessions) {
        if (m->n_heap) *t_s = m->open[m->heap[0]].t_s;
        return NB_OK;
    }
    NB_TRY(read_line(m, err));
    if (m->have_line) *t_s = m->line.t_s / m->o.speed;
    return NB_OK;
}

nb_status nb_mix_next(nb_mix *m, nb_mix_req *r, bool *more, nb_error *err)
{
    double t_s;
    NB_TRY(nb_mix_peek(m, &t_s, err));
    *more = isfinite(t_s);
    if (!*more) return NB_OK;
    nb_status st;
    *r = (nb_mix_req){ .t_s = t_s };
    if (m->o.sessions) {
        const size_t who = heap_pop(m);
        open_session *s = &m->open[who];
        r->n_in = s->s.req[s->at].n_in;
        r->n_out = s->s.req[s->at].n_out;
        r->who = who;
        st = session_keys(m, s, r);
        s->answered = false;
    } else {
        r->n_in = m->line.n_in;
        r->n_out = m->line.n_out;
        st = stream_keys(m, r);
        m->have_line = false;
    }
    if (st != NB_OK) return nb_fail(err, st, "trace: %s", nb_status_text(st));
    r->key = m->key;
    m->n_given++;
    if (m->o.sessions && !m->o.closed) return go_on(m, r->who, t_s, err);
    return NB_OK;
}

nb_status nb_mix_done(nb_mix *m, size_t who, double now_s, nb_error *err)
{
    if (!m->o.sessions || !m->o.closed) return NB_OK;
    NB_ASSERT(who < m->o.n_open && !m->open[who].answered);
    return go_on(m, who, now_s, err);
}

size_t nb_mix_n_skipped(const nb_mix *m)
{
    return m->n_skipped;
}
size_t nb_mix_n_opened(const nb_mix *m)
{
    return m->n_drawn;
}
