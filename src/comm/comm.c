/* comm.c - ranks that are threads of one process: see comm.h.
 *
 * A call has a number on every rank.  A rank puts what it gives into its slot, writes number and kind of the call
 * into `ready`, and waits for the `ready` of the others, in rank order; then it takes from their slots, writes the
 * number into `done`, and waits for the others' `done`.  So a slot is not written while somebody reads it, and a
 * rank that is late is known by its counter.
 *
 * Who waits looks SPINS times where ranks have cores of their own, then sleeps until somebody wakes it or the
 * limit is over. */
#include "comm/comm.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/clock.h"
#include "os/thread.h"

enum { LINE = 64, SPINS = 4000, NAP_MS = 20, SUM_FLOATS = 256 };

typedef enum call_kind { BARRIER, GATHER, EXCHANGE, SUM, AGREE } call_kind;
static const char *const call_name[] = { "barrier", "gather", "exchange", "sum", "agree" };
enum { KIND_BITS = 3 };

/* What a rank gives in its call. */
typedef struct slot {
    alignas(LINE) _Atomic uint64_t ready; /* number << KIND_BITS | kind */
    alignas(LINE) _Atomic uint64_t done;  /* number */
    nb_comm_block send[NB_COMM_MAX_RANK]; /* GATHER: one, EXCHANGE: one for each rank; copies, since a rank that is late
                                             may read them when the caller's have gone */
    const float *part;
    size_t n_part, stride, n;
    uint64_t value;
    volatile uint32_t *alarm; /* guarded by the lock; or NULL */
} slot;

typedef struct group {
    size_t n_rank;
    double limit_s;
    bool spin;
    _Atomic size_t n_end, n_asleep;
    _Atomic bool failed;
    char why[NB_ERROR_MSG_BYTES]; /* guarded by lock; written once, before `failed` */
    nb_mutex *lock;
    nb_cond *wake;
    slot slot[NB_COMM_MAX_RANK];
} group;

struct nb_comm {
    group *g;
    size_t rank;
    uint64_t number; /* of its last call */
};

/* ---- errors ---- */

nb_status nb_comm_check(const nb_comm *c, nb_error *err)
{
    if (!atomic_load_explicit(&c->g->failed, memory_order_acquire)) return NB_OK;
    return nb_fail(err, NB_ERR_FAILED, "%s", c->g->why); /* acquired with `failed` */
}

static void wake_all(group *g)
{
    nb_mutex_lock(g->lock);
    nb_cond_broadcast(g->wake);
    nb_mutex_unlock(g->lock);
}

void nb_comm_fail(nb_comm *c, size_t who, const char *why)
{
    group *g = c->g;
    nb_mutex_lock(g->lock);
    if (!atomic_load_explicit(&g->failed, memory_order_relaxed)) {
        (void)snprintf(g->why, sizeof g->why, "rank %zu of %zu: %.900s", who, g->n_rank, why);
        atomic_store(&g->failed, true);
        for (size_t k = 0; k < g->n_rank; k++)
            if (g->slot[k].alarm) *g->slot[k].alarm = 1;
    }
    nb_mutex_unlock(g->lock);
    wake_all(g);
}

void nb_comm_set_alarm(nb_comm *c, volatile uint32_t *word)
{
    group *g = c->g;
    nb_mutex_lock(g->lock);
    g->slot[c->rank].alarm = word;
    if (word && atomic_load_explicit(&g->failed, memory_order_relaxed)) *word = 1;
    nb_mutex_unlock(g->lock);
}

static nb_status fail_about(nb_comm *c, size_t who, const char *why, nb_error *err)
{
    nb_comm_fail(c, who, why);
    return nb_comm_check(c, err);
}

/* ---- waiting ---- */

typedef struct wait {
    const _Atomic uint64_t *counter;
    unsigned shift;
    uint64_t number;
} wait;

static bool reached(const wait *w)
{
    return atomic_load(w->counter) >> w->shift >= w->number;
}

static bool over(const group *g, const wait *w)
{
    return reached(w) || atomic_load(&g->failed);
}

/* What waiting has come to.  A call that all ranks have been through is good, whatever came after it. */
static nb_status result(const nb_comm *c, const wait *w, nb_error *err)
{
    return w->shift == 0 && reached(w) ? NB_OK : nb_comm_check(c, err);
}

/* Until rank k's counter has come to this call, there is an error, or the limit is over. */
static nb_status await(nb_comm *c, size_t k, bool done, nb_error *err)
{
    group *g = c->g;
    const wait w = { done ? &g->slot[k].done : &g->slot[k].ready, done ? 0 : KIND_BITS, c->number };
    for (int i = 0; g->spin && i < SPINS; i++) {
        if (over(g, &w)) return result(c, &w, err);
        nb_cpu_pause();
    }
    bool here = over(g, &w);
    if (here) return result(c, &w, err);
    const double until = nb_clock_s() + g->limit_s;
    nb_mutex_lock(g->lock);
    /* Either the other rank sees the count, or this one its counter: all four are sequentially consistent. */
    (void)atomic_fetch_add(&g->n_asleep, 1);
    while (!(here = over(g, &w)) && nb_clock_s() < until)
        nb_cond_wait_for(g->wake, g->lock, NAP_MS);
    (void)atomic_fetch_sub(&g->n_asleep, 1);
    nb_mutex_unlock(g->lock);
    if (here) return result(c, &w, err);
    char why[128];
    (void)snprintf(why, sizeof why, "no sign of it for %g seconds, in exchange %llu", g->limit_s,
                   (unsigned long long)c->number);
    return fail_about(c, k, why, err);
}

static void announce(group *g, _Atomic uint64_t *counter, uint64_t v)
{
    atomic_store(counter, v);
    if (atomic_load(&g->n_asleep)) wake_all(g);
}

/* The rank's slot is filled: waits until those of the others are, all for the same call. */
static nb_status begin(nb_comm *c, call_kind kind, nb_error *err)
{
    group *g = c->g;
    c->number++;
    announce(g, &g->slot[c->rank].ready, c->number << KIND_BITS | (uint64_t)kind);
    for (size_t k = 0; k < g->n_rank; k++) {
        if (k == c->rank) continue;
        NB_TRY(await(c, k, false, err));
        const uint64_t word = atomic_load(&g->slot[k].ready);
        const call_kind other = (call_kind)(word & ((1u << KIND_BITS) - 1));
        if (word >> KIND_BITS != c->number || other == kind)
            continue; /* later: it has looked itself */
        char why[128];
        (void)snprintf(why, sizeof why, "calls %s where rank %zu calls %s", call_name[other],
                       c->rank, call_name[kind]);
        return fail_about(c, k, why, err);
    }
    return NB_OK;
}

/* The rank has taken what it gets: waits until nobody reads its slot any more. */
static nb_status end(nb_comm *c, nb_error *err)
{
    group *g = c->g;
    announce(g, &g->slot[c->rank].done, c->number);
    for (size_t k = 0; k < g->n_rank; k++)
        if (k != c->rank) NB_TRY(await(c, k, true, err));
    return NB_OK;
}

/* ---- calls ---- */

nb_status nb_comm_barrier(nb_comm *c, nb_error *err)
{
    NB_TRY(nb_comm_check(c, err));
    return begin(c, BARRIER, err);
}

static nb_status copy_block(nb_comm *c, size_t from, const nb_comm_block *src,
                            const nb_comm_block *dst, nb_error *err)
{
    if (!dst->p || dst->p == src->p) return NB_OK;
    if (dst->n_row != src->n_row || (src->n_row && dst->row_bytes != src->row_bytes)) {
        char why[160];
        (void)snprintf(why, sizeof why, "gives %zu rows of %zu bytes, rank %zu expects %zu of %zu",
                       src->n_row, src->row_bytes, c->rank, dst->n_row, dst->row_bytes);
        return fail_about(c, from, why, err);
    }
    const char *s = src->p;
    char *d = dst->p;
    if (src->row_bytes == src->stride && src->row_bytes == dst->stride) {
        memcpy(d, s, src->n_row * src->row_bytes);
        return NB_OK;
    }
    for (size_t i = 0; i < src->n_row; i++)
        memcpy(d + i * dst->stride, s + i * src->stride, src->row_bytes);
    return NB_OK;
}

static nb_status take_blocks(nb_comm *c, call_kind kind, const nb_comm_block *send,
                             const nb_comm_block *recv, nb_error *err)
{
    group *g = c->g;
    NB_TRY(nb_comm_check(c, err));
    memcpy(g->slot[c->rank].send, send, (kind == EXCHANGE ? g->n_rank : 1) * sizeof *send);
    NB_TRY(begin(c, kind, err));
    for (size_t i = 0; i < g->n_rank;
         i++) { /* its neighbour's first, so that ranks read different memory */
        const size_t k = (c->rank + i) % g->n_rank;
        NB_TRY(copy_block(c, k, &g->slot[k].send[kind == EXCHANGE ? c->rank : 0], &recv[k], err));
    }
    return end(c, err);
}

nb_status nb_comm_gather(nb_comm *c, const nb_comm_block *send, const nb_comm_block *recv,
                         nb_error *err)
{
    return take_blocks(c, GATHER, send, recv, err);
}

nb_status nb_comm_exchange(nb_comm *c, const nb_comm_block *send, const nb_comm_block *recv,
                           nb_error *err)
{
    return take_blocks(c, EXCHANGE, send, recv, err);
}

/* out[n] of values [at, at + n): all parts in the order of ranks. */
static void add_parts(const group *g, size_t at, size_t n, float *out)
{
    bool first = true;
    for (size_t k = 0; k < g->n_rank; k++)
        for (size_t p = 0; p < g->slot[k].n_part; p++) {
            const float *x = g->slot[k].part + p * g->slot[k].stride + at;
            if (first)
                memcpy(out, x, n * sizeof *out);
            else
                for (size_t i = 0; i < n; i++) out[i] += x[i];
            first = false;
        }
    if (first) memset(out, 0, n * sizeof *out);
}

nb_status nb_comm_sum(nb_comm *c, const float *part, size_t n_part, size_t stride, size_t n,
                      float *out, nb_error *err)
{
    group *g = c->g;
    slot *s = &g->slot[c->rank];
    NB_TRY(nb_comm_check(c, err));
    s->part = part;
    s->n_part = n_part;
    s->stride = stride;
    s->n = n;
    NB_TRY(begin(c, SUM, err));
    for (size_t k = 0; k < g->n_rank; k++)
        if (g->slot[k].n != n) {
            char why[128];
            (void)snprintf(why, sizeof why, "adds %zu values, rank %zu adds %zu", g->slot[k].n,
                           c->rank, n);
            return fail_about(c, k, why, err);
        }
    for (size_t at = 0; at < n; at += SUM_FLOATS)
        add_parts(g, at, n - at < SUM_FLOATS ? n - at : SUM_FLOATS, out + at);
    return end(c, err);
}

nb_status nb_comm_agree(nb_comm *c, uint64_t value, const char *what, nb_error *err)
{
    group *g = c->g;
    NB_TRY(nb_comm_check(c, err));
    g->slot[c->rank].value = value;
    NB_TRY(begin(c, AGREE, err));
    for (size_t k = 1; k < g->n_rank; k++)
        if (g->slot[k].value != g->slot[0].value) {
            char why[256];
            (void)snprintf(why, sizeof why, "its %.150s differ from those of rank 0", what);
            return fail_about(c, k, why, err);
        }
    return end(c, err);
}

/* ---- ends ---- */

size_t nb_comm_rank(const nb_comm *c)
{
    return c->rank;
}

size_t nb_comm_n_rank(const nb_comm *c)
{
    return c->g->n_rank;
}

void nb_comm_set_limit(nb_comm *c, double limit_s)
{
    c->g->limit_s = limit_s;
}

double nb_comm_limit(const nb_comm *c)
{
    return c->g->limit_s;
}

static void free_group(group *g)
{
    if (!g) return;
    nb_mutex_destroy(g->lock);
    nb_cond_destroy(g->wake);
    free(g);
}

void nb_comm_destroy(nb_comm *c)
{
    if (!c) return;
    if (atomic_fetch_sub(&c->g->n_end, 1) == 1) free_group(c->g);
    free(c);
}

static group *make_group(size_t n_rank, double limit_s, bool spin)
{
    group *g = aligned_alloc(LINE, sizeof *g); /* calloc does not know of alignas */
    if (!g) return NULL;
    memset(g, 0, sizeof *g);
    g->n_rank = n_rank;
    g->limit_s = limit_s;
    g->spin = spin;
    if (nb_mutex_create(&g->lock) == NB_OK && nb_cond_create(&g->wake) == NB_OK) return g;
    free_group(g);
    return NULL;
}

nb_status nb_comm_create(size_t n_rank, double limit_s, bool spin, nb_comm **out, nb_error *err)
{
    if (n_rank < 1 || n_rank > NB_COMM_MAX_RANK)
        return nb_fail(err, NB_ERR_RANGE, "%zu ranks: expected 1 to %d", n_rank, NB_COMM_MAX_RANK);
    group *g = make_group(n_rank, limit_s, spin);
    if (!g) return nb_fail(err, NB_ERR_NOMEM, "out of memory for %zu ranks", n_rank);
    nb_comm *c[NB_COMM_MAX_RANK] = { 0 };
    for (size_t k = 0; k < n_rank; k++) {
        c[k] = malloc(sizeof *c[k]);
        if (c[k]) continue;
        while (k) free(c[--k]);
        free_group(g);
        return nb_fail(err, NB_ERR_NOMEM, "out of memory for %zu ranks", n_rank);
    }
    atomic_store(&g->n_end, n_rank);
    for (size_t k = 0; k < n_rank; k++) {
        *c[k] = (nb_comm){ g, k, 0 };
        out[k] = c[k];
    }
    return NB_OK;
}
