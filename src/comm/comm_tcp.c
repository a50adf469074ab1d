/* comm_tcp.c - ranks that are processes: see comm_tcp.h.
 *
 * A connection carries messages: a word for the kind, one for the length, and the body.  A call begins with a HEAD (its
 * number, its kind, the shape of what follows), then DATA in pieces that fit into a buffer.  An ERROR may stand between
 * any two messages.  A rank sends its part of a call to all others and takes theirs in whatever order they come, but for
 * a sum, which takes them in the order of ranks; a rank that is ahead by a call is read no further, so that nothing is
 * kept for later but what the buffers hold.  What has been sent is in buffers of the system, so a call ends when all is
 * sent and all has come.
 *
 * Two ranks that notice an error at the same time may each keep a line of their own about it. */
#include "comm/comm_tcp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm_internal.h"
#include "os/clock.h"
#include "os/net.h"

enum {
    STAGE_BYTES = 64 << 10,
    NAP_MS = 500,
    LAST_WORDS_MS = 200 /* for telling the others why this rank has failed */
};

typedef enum call_kind { BARRIER, GATHER, EXCHANGE, SUM, AGREE, TELL, N_CALL } call_kind;
static const char *const call_name[] = { "barrier", "gather", "exchange", "sum", "agree", "tell" };
enum { HEAD = 0x4e420001, DATA, ERROR };

typedef struct message {
    uint32_t kind, n_bytes;
} message;

typedef struct head {
    uint64_t number, kind;
    uint64_t n_row, row_bytes; /* of what follows */
    uint64_t n_part, value;    /* SUM, AGREE */
} head;

typedef struct peer {
    int s;
    bool no_head, taken; /* of the call: nothing of it has come yet; all has */
    head h;
    nb_comm_block send, recv; /* of the call */
    size_t n_send, at_send, n_recv, at_recv; /* bytes */
    size_t out_at, out_end, in_at, in_end;
    unsigned char out[STAGE_BYTES + sizeof(message) + NB_ERROR_MSG_BYTES]; /* the rest: room for an ERROR */
    unsigned char in[STAGE_BYTES];
} peer;

typedef struct sum_call {
    size_t n, turn; /* the rank whose parts come next */
    float *out;
    bool begun; /* out has parts */
} sum_call;

struct nb_comm_tcp {
    size_t n_rank;
    double limit_s;
    bool failed;
    char why[NB_ERROR_MSG_BYTES];
    volatile uint32_t *alarm; /* or NULL */
    call_kind kind;
    sum_call sum;
    peer peer[]; /* [n_rank] */
};

/* ---- errors ---- */

static nb_status tcp_check(const nb_comm *c, nb_error *err)
{
    return c->tcp->failed ? nb_fail(err, NB_ERR_FAILED, "%s", c->tcp->why) : NB_OK;
}

static void keep(struct nb_comm_tcp *t, const char *line)
{
    nb_error clean = { 0 };
    (void)nb_fail(&clean, NB_ERR_FAILED, "%.1000s", line); /* it may have come from outside */
    memcpy(t->why, clean.msg, sizeof t->why);
    t->failed = true;
    if (t->alarm) *t->alarm = 1;
}

static void put(peer *p, uint32_t kind, const void *body, size_t n_bytes)
{
    const message m = { kind, (uint32_t)n_bytes };
    memcpy(p->out + p->out_end, &m, sizeof m);
    memcpy(p->out + p->out_end + sizeof m, body, n_bytes);
    p->out_end += sizeof m + n_bytes;
}

/* Sends what is staged; false: the connection is gone. */
static bool push(peer *p, bool *moved)
{
    while (p->out_at < p->out_end) {
        const long n = nb_net_send(p->s, p->out + p->out_at, p->out_end - p->out_at);
        if (n < 0) return false;
        if (n == 0) return true;
        p->out_at += (size_t)n;
        *moved = true;
    }
    p->out_at = p->out_end = 0;
    return true;
}

static void say_why(nb_comm *c)
{
    struct nb_comm_tcp *t = c->tcp;
    const double until = nb_clock_s() + LAST_WORDS_MS * 1e-3;
    for (size_t k = 0; k < t->n_rank; k++) {
        peer *p = &t->peer[k];
        if (p->out_at == 0) p->out_end = 0; /* else what was begun is ended first */
        put(p, ERROR, t->why, strlen(t->why));
    }
    for (bool more = true; more && nb_clock_s() < until;) {
        nb_net_want w[NB_COMM_MAX_RANK];
        bool moved;
        more = false;
        for (size_t k = 0; k < t->n_rank; k++) {
            peer *p = &t->peer[k];
            if (k == c->rank || !push(p, &moved)) p->out_at = p->out_end = 0;
            w[k] = (nb_net_want){ .s = p->out_end ? p->s : -1, .write = true };
            more |= p->out_end != 0;
        }
        if (more) nb_net_wait(w, t->n_rank, LAST_WORDS_MS / 4);
    }
}

static void tcp_fail(nb_comm *c, size_t who, const char *why)
{
    char line[NB_ERROR_MSG_BYTES];
    if (c->tcp->failed) return;
    (void)snprintf(line, sizeof line, "rank %zu of %zu: %.900s", who, c->tcp->n_rank, why);
    keep(c->tcp, line);
    say_why(c);
}

static nb_status fail_about(nb_comm *c, size_t who, const char *why, nb_error *err)
{
    tcp_fail(c, who, why);
    return tcp_check(c, err);
}

static void tcp_set_alarm(nb_comm *c, volatile uint32_t *word)
{
    c->tcp->alarm = word;
    if (word && c->tcp->failed) *word = 1;
}

/* ---- reading ---- */

typedef enum got { NOTHING, SOME, GONE } got;

static got pull(peer *p)
{
    if (p->in_at) memmove(p->in, p->in + p->in_at, p->in_end - p->in_at);
    p->in_end -= p->in_at;
    p->in_at = 0;
    const long n = p->in_end < sizeof p->in ? nb_net_recv(p->s, p->in + p->in_end, sizeof p->in - p->in_end) : 0;
    if (n > 0) p->in_end += (size_t)n;
    return n > 0 ? SOME : n < 0 ? GONE : NOTHING;
}

/* The next message, when all of it has come; false: it has not.  A length that no message has: *m has kind 0. */
static bool next(const peer *p, message *m)
{
    if (p->in_end - p->in_at < sizeof *m) return false;
    memcpy(m, p->in + p->in_at, sizeof *m);
    if (m->n_bytes > sizeof p->in - sizeof *m) m->kind = m->n_bytes = 0;
    return p->in_end - p->in_at >= sizeof *m + m->n_bytes;
}

static bool take_error(nb_comm *c, const peer *p, const message *m)
{
    char line[NB_ERROR_MSG_BYTES] = "";
    if (m->kind != ERROR) return false;
    const size_t n = m->n_bytes < sizeof line ? m->n_bytes : sizeof line - 1;
    memcpy(line, p->in + p->in_at + sizeof *m, n);
    if (!c->tcp->failed) keep(c->tcp, line);
    return true;
}

/* The connection to rank k is gone: for the reason that it gave last, if it did. */
static nb_status gone(nb_comm *c, size_t k, nb_error *err)
{
    peer *p = &c->tcp->peer[k];
    message m;
    do {
        while (next(p, &m)) {
            if (take_error(c, p, &m)) return tcp_check(c, err);
            p->in_at += sizeof m + m.n_bytes;
        }
    } while (pull(p) == SOME);
    return fail_about(c, k, "its connection was closed: the process has ended, or the network is down", err);
}

/* What rank k gives must be what this one expects. */
static nb_status check_head(nb_comm *c, size_t k, nb_error *err)
{
    struct nb_comm_tcp *t = c->tcp;
    peer *p = &t->peer[k];
    char why[192];
    if (p->h.kind >= N_CALL || p->h.number != c->number) {
        (void)snprintf(why, sizeof why, "is at exchange %llu, rank %zu at %llu", (unsigned long long)p->h.number, c->rank,
                       (unsigned long long)c->number);
        return fail_about(c, k, why, err);
    }
    if (p->h.kind != t->kind) {
        (void)snprintf(why, sizeof why, "calls %s where rank %zu calls %s", call_name[p->h.kind], c->rank,
                       call_name[t->kind]);
        return fail_about(c, k, why, err);
    }
    if (t->kind == SUM && p->h.row_bytes != t->sum.n * sizeof *t->sum.out) {
        (void)snprintf(why, sizeof why, "adds %llu values, rank %zu adds %zu",
                       (unsigned long long)(p->h.row_bytes / sizeof *t->sum.out), c->rank, t->sum.n);
        return fail_about(c, k, why, err);
    }
    if (t->kind == TELL && p->h.n_row == 1 && p->h.row_bytes <= p->recv.row_bytes) /* which was the room */
        p->recv.row_bytes = p->recv.stride = (size_t)p->h.row_bytes;
    const bool wanted = p->recv.p != NULL && t->kind != SUM;
    if (wanted && (p->recv.n_row != p->h.n_row || (p->h.n_row && p->recv.row_bytes != p->h.row_bytes))) {
        (void)snprintf(why, sizeof why, "gives %llu rows of %llu bytes, rank %zu expects %zu of %zu",
                       (unsigned long long)p->h.n_row, (unsigned long long)p->h.row_bytes, c->rank, p->recv.n_row,
                       p->recv.row_bytes);
        return fail_about(c, k, why, err);
    }
    if (p->h.row_bytes && p->h.n_row > SIZE_MAX / p->h.row_bytes) return fail_about(c, k, "gives more than there is", err);
    p->n_recv = (size_t)(p->h.n_row * p->h.row_bytes);
    return NB_OK;
}

/* Bytes [at, at + n) of a block to or from where they are in a row of bytes. */
static void copy_rows(const nb_comm_block *b, size_t at, unsigned char *bytes, size_t n, bool to_block)
{
    while (n) {
        const bool dense = b->stride == b->row_bytes;
        const size_t row = dense ? 0 : at / b->row_bytes, col = at - row * b->row_bytes,
                     left = dense ? n : b->row_bytes - col, m = n < left ? n : left;
        char *p = (char *)b->p + row * b->stride + col;
        if (to_block)
            memcpy(p, bytes, m);
        else
            memcpy(bytes, p, m);
        at += m;
        bytes += m;
        n -= m;
    }
}

/* Values [at, at + n) of the parts of a rank, one part after the other. */
static void add(sum_call *s, size_t at, const unsigned char *values, size_t n)
{
    for (size_t i = 0; i < n; i++, at++) {
        float x;
        memcpy(&x, values + i * sizeof x, sizeof x);
        float *y = &s->out[at % s->n];
        *y = !s->begun && at < s->n ? x : *y + x;
    }
}

static nb_status take_data(nb_comm *c, size_t k, const message *m, nb_error *err)
{
    struct nb_comm_tcp *t = c->tcp;
    peer *p = &t->peer[k];
    unsigned char *body = p->in + p->in_at + sizeof *m;
    if (m->n_bytes > p->n_recv - p->at_recv || m->n_bytes == 0 || (t->kind == SUM && m->n_bytes % sizeof(float)))
        return fail_about(c, k, "sends more than it said", err);
    if (t->kind == SUM)
        add(&t->sum, p->at_recv / sizeof(float), body, m->n_bytes / sizeof(float));
    else if (p->recv.p)
        copy_rows(&p->recv, p->at_recv, body, m->n_bytes, true);
    p->at_recv += m->n_bytes;
    return NB_OK;
}

/* What has come from rank k, up to the end of its part of the call. */
static nb_status take(nb_comm *c, size_t k, nb_error *err)
{
    peer *p = &c->tcp->peer[k];
    message m;
    while (!p->taken && next(p, &m)) {
        if (take_error(c, p, &m)) return tcp_check(c, err);
        if (m.kind == HEAD && p->no_head && m.n_bytes == sizeof p->h) {
            memcpy(&p->h, p->in + p->in_at + sizeof m, sizeof p->h);
            p->no_head = false;
            NB_TRY(check_head(c, k, err));
        } else if (m.kind == DATA && !p->no_head) {
            NB_TRY(take_data(c, k, &m, err));
        } else {
            return fail_about(c, k, "sends what is no message of a rank", err);
        }
        p->in_at += sizeof m + m.n_bytes;
        p->taken = !p->no_head && p->at_recv == p->n_recv;
    }
    return NB_OK;
}

/* ---- a call ---- */

static void stage(peer *p)
{
    while (p->at_send < p->n_send && p->out_end + sizeof(message) + sizeof(float) <= STAGE_BYTES) {
        const size_t room = (STAGE_BYTES - p->out_end - sizeof(message)) / sizeof(float) * sizeof(float),
                     left = p->n_send - p->at_send, n = left < room ? left : room;
        const message m = { DATA, (uint32_t)n };
        memcpy(p->out + p->out_end, &m, sizeof m);
        copy_rows(&p->send, p->at_send, p->out + p->out_end + sizeof m, n, false);
        p->out_end += sizeof m + n;
        p->at_send += n;
    }
}

/* Whether rank k's part is to be read now. */
static bool wants(const nb_comm *c, size_t k)
{
    return k != c->rank && !c->tcp->peer[k].taken && (c->tcp->kind != SUM || c->tcp->sum.turn == k);
}

static nb_status serve(nb_comm *c, size_t k, bool *moved, nb_error *err)
{
    peer *p = &c->tcp->peer[k];
    do {
        if (p->out_at == 0) stage(p);
        if (!push(p, moved)) return gone(c, k, err);
    } while (p->out_end == 0 && p->at_send < p->n_send);
    while (wants(c, k)) {
        NB_TRY(take(c, k, err));
        if (p->taken) *moved = true;
        if (p->taken) break;
        const got g = pull(p);
        if (g == GONE) return gone(c, k, err);
        if (g == NOTHING) break;
        *moved = true;
    }
    return NB_OK;
}

/* The ranks' parts of a sum, in order: the own ones when it is their turn. */
static bool turn(nb_comm *c)
{
    struct nb_comm_tcp *t = c->tcp;
    sum_call *s = &t->sum;
    const size_t before = s->turn;
    while (s->turn < t->n_rank && (s->turn == c->rank || t->peer[s->turn].taken)) {
        const peer *p = &t->peer[s->turn];
        const nb_comm_block *b = &p->send;
        if (s->turn == c->rank)
            for (size_t i = 0; i < b->n_row; i++)
                add(s, i * s->n, (const unsigned char *)b->p + i * b->stride, s->n);
        s->begun |= s->turn == c->rank ? b->n_row > 0 : p->n_recv > 0;
        s->turn++;
    }
    return s->turn != before;
}

static nb_status nobody_moves(nb_comm *c, nb_error *err)
{
    const struct nb_comm_tcp *t = c->tcp;
    char why[128];
    size_t k = 0;
    while (k + 1 < t->n_rank && !wants(c, k)) k++;
    for (size_t i = 0; !wants(c, k) && i < t->n_rank; i++)
        if (t->peer[i].out_end) k = i;
    (void)snprintf(why, sizeof why, "no sign of it for %g seconds, in exchange %llu", t->limit_s,
                   (unsigned long long)c->number);
    return fail_about(c, k, why, err);
}

/* Sends and takes until the call is through. */
static nb_status run(nb_comm *c, nb_error *err)
{
    struct nb_comm_tcp *t = c->tcp;
    double until = nb_clock_s() + t->limit_s;
    for (;;) {
        nb_net_want w[NB_COMM_MAX_RANK];
        bool moved = false, open = false;
        for (size_t k = 0; k < t->n_rank; k++)
            if (k != c->rank) NB_TRY(serve(c, k, &moved, err));
        if (t->kind == SUM && turn(c)) moved = true;
        for (size_t k = 0; k < t->n_rank; k++) {
            const peer *p = &t->peer[k];
            const bool write = k != c->rank && p->out_end > 0, read = wants(c, k);
            w[k] = (nb_net_want){ .s = read || write ? p->s : -1, .read = read, .write = write };
            open |= read || write;
        }
        if (!open) return NB_OK;
        const double now = nb_clock_s(), left = until - now;
        if (moved) {
            until = now + t->limit_s;
            continue;
        }
        const bool endless = t->kind == TELL && c->rank != 0 && t->peer[0].no_head;
        if (!endless && left <= 0) return nobody_moves(c, err);
        nb_net_wait(w, t->n_rank, endless || left > NAP_MS * 1e-3 ? NAP_MS : (unsigned)(left * 1e3) + 1);
    }
}

/* A call in which nothing is given to nor expected from anybody yet. */
static nb_status begin(nb_comm *c, call_kind kind, nb_error *err)
{
    struct nb_comm_tcp *t = c->tcp;
    NB_TRY(tcp_check(c, err));
    c->number++;
    t->kind = kind;
    for (size_t k = 0; k < t->n_rank; k++) {
        peer *p = &t->peer[k];
        p->no_head = true;
        p->taken = false;
        p->send = p->recv = (nb_comm_block){ 0 };
        p->n_send = p->at_send = p->n_recv = p->at_recv = 0;
    }
    return NB_OK;
}

/* Rank k gets this block, and what h says beside it. */
static void give(nb_comm *c, size_t k, const nb_comm_block *b, uint64_t n_part, uint64_t value)
{
    peer *p = &c->tcp->peer[k];
    const head h = { c->number, (uint64_t)c->tcp->kind, b->n_row, b->row_bytes, n_part, value };
    p->send = *b;
    p->n_send = k == c->rank ? 0 : b->n_row * b->row_bytes;
    if (k != c->rank) put(p, HEAD, &h, sizeof h);
}

static void copy_own(const nb_comm_block *src, const nb_comm_block *dst)
{
    if (!dst->p || dst->p == src->p) return;
    for (size_t i = 0; i < src->n_row; i++)
        memcpy((char *)dst->p + i * dst->stride, (const char *)src->p + i * src->stride, src->row_bytes);
}

static nb_status blocks(nb_comm *c, call_kind kind, const nb_comm_block *send, const nb_comm_block *recv, nb_error *err)
{
    struct nb_comm_tcp *t = c->tcp;
    NB_TRY(begin(c, kind, err));
    for (size_t k = 0; k < t->n_rank; k++) {
        give(c, k, &send[kind == EXCHANGE ? k : 0], 0, 0);
        t->peer[k].recv = recv[k];
    }
    copy_own(&send[kind == EXCHANGE ? c->rank : 0], &recv[c->rank]);
    return run(c, err);
}

static nb_status tcp_gather(nb_comm *c, const nb_comm_block *send, const nb_comm_block *recv, nb_error *err)
{
    return blocks(c, GATHER, send, recv, err);
}

static nb_status tcp_exchange(nb_comm *c, const nb_comm_block *send, const nb_comm_block *recv, nb_error *err)
{
    return blocks(c, EXCHANGE, send, recv, err);
}

static nb_status tcp_barrier(nb_comm *c, nb_error *err)
{
    const nb_comm_block none = { 0 };
    NB_TRY(begin(c, BARRIER, err));
    for (size_t k = 0; k < c->tcp->n_rank; k++) give(c, k, &none, 0, 0);
    return run(c, err);
}

static nb_status tcp_sum(nb_comm *c, const float *part, size_t n_part, size_t stride, size_t n, float *out, nb_error *err)
{
    struct nb_comm_tcp *t = c->tcp;
    const nb_comm_block b = { (void *)(uintptr_t)part, n_part, n * sizeof *part, stride * sizeof *part };
    NB_TRY(begin(c, SUM, err));
    t->sum = (sum_call){ .n = n, .out = out };
    for (size_t k = 0; k < t->n_rank; k++) give(c, k, &b, n_part, 0);
    NB_TRY(run(c, err));
    if (!t->sum.begun) memset(out, 0, n * sizeof *out);
    return NB_OK;
}

static nb_status tcp_agree(nb_comm *c, uint64_t value, const char *what, nb_error *err)
{
    const nb_comm_block none = { 0 };
    struct nb_comm_tcp *t = c->tcp;
    NB_TRY(begin(c, AGREE, err));
    for (size_t k = 0; k < t->n_rank; k++) give(c, k, &none, 0, value);
    NB_TRY(run(c, err));
    t->peer[c->rank].h.value = value;
    for (size_t k = 1; k < t->n_rank; k++)
        if (t->peer[k].h.value != t->peer[0].h.value) {
            char why[256];
            (void)snprintf(why, sizeof why, "its %.150s differ from those of rank 0", what);
            return fail_about(c, k, why, err);
        }
    return NB_OK;
}

/* ---- what rank 0 tells ---- */

nb_status nb_comm_tell(nb_comm *c, const void *p, size_t n_bytes, nb_error *err)
{
    const nb_comm_block b = { (void *)(uintptr_t)p, 1, n_bytes, n_bytes };
    NB_TRY(begin(c, TELL, err));
    for (size_t k = 0; k < c->tcp->n_rank; k++) {
        give(c, k, &b, 0, 0);
        c->tcp->peer[k].taken = true;
    }
    return run(c, err);
}

nb_status nb_comm_hear(nb_comm *c, void *p, size_t *n_bytes, nb_error *err)
{
    struct nb_comm_tcp *t = c->tcp;
    NB_TRY(begin(c, TELL, err));
    for (size_t k = 1; k < t->n_rank; k++) t->peer[k].taken = true;
    t->peer[0].recv = (nb_comm_block){ p, 1, *n_bytes, *n_bytes };
    const nb_status st = run(c, err);
    if (st == NB_OK) *n_bytes = t->peer[0].n_recv;
    return st;
}

nb_status nb_comm_look(nb_comm *c, nb_error *err)
{
    struct nb_comm_tcp *t = c->tcp;
    message m;
    for (size_t k = 0; k < t->n_rank && !t->failed; k++) {
        peer *p = &t->peer[k];
        if (k == c->rank) continue;
        if (pull(p) == GONE || nb_net_is_gone(p->s)) return gone(c, k, err);
        if (next(p, &m)) (void)take_error(c, p, &m);
    }
    return tcp_check(c, err);
}

/* ---- ends ---- */

static size_t tcp_n_rank(const nb_comm *c)
{
    return c->tcp->n_rank;
}

/* Groups are of data-parallel ranks, which are in one process. */
static nb_status tcp_split(nb_comm *c, size_t n_group, nb_comm **out, nb_error *err)
{
    (void)c;
    (void)out;
    return nb_fail(err, NB_ERR_UNSUPPORTED, "%zu groups of ranks in several processes", n_group);
}

static void tcp_set_limit(nb_comm *c, double limit_s)
{
    c->tcp->limit_s = limit_s;
}

static double tcp_limit(const nb_comm *c)
{
    return c->tcp->limit_s;
}

static void tcp_destroy(nb_comm *c)
{
    for (size_t k = 0; k < c->tcp->n_rank; k++) nb_net_close(c->tcp->peer[k].s);
    free(c->tcp);
    free(c);
}

static const nb_comm_ops of_processes = { .destroy = tcp_destroy,
                                          .n_rank = tcp_n_rank,
                                          .split = tcp_split,
                                          .barrier = tcp_barrier,
                                          .gather = tcp_gather,
                                          .exchange = tcp_exchange,
                                          .sum = tcp_sum,
                                          .agree = tcp_agree,
                                          .fail = tcp_fail,
                                          .set_alarm = tcp_set_alarm,
                                          .check = tcp_check,
                                          .set_limit = tcp_set_limit,
                                          .limit = tcp_limit };

nb_status nb_comm_create_tcp(size_t n_rank, size_t rank, const int *link, double limit_s, nb_comm **out, nb_error *err)
{
    nb_comm *c = calloc(1, sizeof *c);
    struct nb_comm_tcp *t = calloc(1, sizeof *t + n_rank * sizeof *t->peer);
    if (!c || !t) {
        for (size_t k = 0; k < n_rank; k++)
            if (k != rank) nb_net_close(link[k]);
        free(c);
        free(t);
        return nb_fail(err, NB_ERR_NOMEM, "out of memory for the connections of %zu ranks", n_rank);
    }
    t->n_rank = n_rank;
    t->limit_s = limit_s;
    for (size_t k = 0; k < n_rank; k++) t->peer[k].s = k == rank ? -1 : link[k];
    *c = (nb_comm){ .ops = &of_processes, .tcp = t, .rank = rank };
    *out = c;
    return NB_OK;
}
