/* comm.c - ranks that are threads of one process: see comm.h.
 *
 * A call has a number on every rank.  A rank puts what it gives into its slot, writes number and kind of the call
 * into `ready`, and waits for the `ready` of the others, in rank order; then it takes from their slots, writes the
 * number into `done`, and waits for the others' `done`.  So a slot is not written while somebody reads it, and a
 * rank that is late is known by its counter.
 *
 * Who waits looks SPINS times where ranks have cores of their own, then sleeps until somebody wakes it or the
 * limit is over. */
#include "comm/comm_internal.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/clock.h"
#include "os/thread.h"

enum { LINE = 64, SPINS = 4000, NAP_MS = 20, SUM_FLOATS = 256 };
#define NOBODY SIZE_MAX

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
} slot;

/* What all ranks have together, whatever their groups. */
typedef struct fate {
    const nb_comm_ops *ops;
    size_t n_rank;
    double limit_s;
    bool spin;
    _Atomic size_t n_end, n_asleep;
    _Atomic bool failed;
    /* guarded by lock */
    char why[NB_ERROR_MSG_BYTES]; /* written once, before `failed` */
    volatile uint32_t *alarm[NB_COMM_MAX_RANK]; /* or NULL */
    size_t awaited[NB_COMM_MAX_RANK]; /* for whom a rank that sleeps waits; NOBODY */
    nb_mutex *lock;
    nb_cond *wake;
} fate;

typedef struct group {
    fate *all;
    size_t n_rank, first;                  /* ranks [first, first + n_rank) of all */
    _Atomic size_t n_end;
    struct group *part[NB_COMM_MAX_RANK];  /* made by nb_comm_split; guarded by lock */
    slot slot[];
} group;

/* ---- errors ---- */

static nb_status thread_check(const nb_comm *c, nb_error *err)
{
    const fate *all = c->g->all;
    if (!atomic_load_explicit(&all->failed, memory_order_acquire)) return NB_OK;
    return nb_fail(err, NB_ERR_FAILED, "%s", all->why); /* acquired with `failed` */
}

static void wake_all(fate *all)
{
    nb_mutex_lock(all->lock);
    nb_cond_broadcast(all->wake);
    nb_mutex_unlock(all->lock);
}

/* who: among all. */
static void fail(fate *all, size_t who, const char *why)
{
    nb_mutex_lock(all->lock);
    if (!atomic_load_explicit(&all->failed, memory_order_relaxed)) {
        (void)snprintf(all->why, sizeof all->why, "rank %zu of %zu: %.900s", who, all->n_rank, why);
        atomic_store(&all->failed, true);
        for (size_t k = 0; k < all->n_rank; k++)
            if (all->alarm[k]) *all->alarm[k] = 1;
    }
    nb_mutex_unlock(all->lock);
    wake_all(all);
}

static void thread_fail(nb_comm *c, size_t who, const char *why)
{
    fail(c->g->all, c->g->first + who, why);
}

static void thread_set_alarm(nb_comm *c, volatile uint32_t *word)
{
    fate *all = c->g->all;
    nb_mutex_lock(all->lock);
    all->alarm[c->g->first + c->rank] = word;
    if (word && atomic_load_explicit(&all->failed, memory_order_relaxed)) *word = 1;
    nb_mutex_unlock(all->lock);
}

static nb_status fail_about(nb_comm *c, size_t who, const char *why, nb_error *err)
{
    nb_comm_fail(c, who, why);
    return nb_comm_check(c, err);
}

/* How a line names rank k of this group. */
static size_t name_of(const nb_comm *c, size_t k)
{
    return c->g->first + k;
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

static bool over(const fate *all, const wait *w)
{
    return reached(w) || atomic_load(&all->failed);
}

/* What waiting has come to.  A call that all ranks have been through is good, whatever came after it. */
static nb_status result(const nb_comm *c, const wait *w, nb_error *err)
{
    return w->shift == 0 && reached(w) ? NB_OK : nb_comm_check(c, err);
}

/* Who keeps rank k (of all) waiting: itself, or whom it waits for in another group, and so on.  Under the lock. */
static size_t culprit(const fate *all, size_t k)
{
    for (size_t i = 0; i < all->n_rank && all->awaited[k] != NOBODY; i++) k = all->awaited[k];
    return k;
}

/* Until rank k's counter has come to this call, there is an error, or the limit is over. */
static nb_status await(nb_comm *c, size_t k, bool done, nb_error *err)
{
    group *g = c->g;
    fate *all = g->all;
    const wait w = { done ? &g->slot[k].done : &g->slot[k].ready, done ? 0 : KIND_BITS, c->number };
    for (int i = 0; all->spin && i < SPINS; i++) {
        if (over(all, &w)) return result(c, &w, err);
        nb_cpu_pause();
    }
    bool here = over(all, &w);
    if (here) return result(c, &w, err);
    const double until = nb_clock_s() + all->limit_s;
    size_t *const awaited = &all->awaited[name_of(c, c->rank)];
    nb_mutex_lock(all->lock);
    *awaited = name_of(c, k);
    /* Either the other rank sees the count, or this one its counter: all four are sequentially consistent. */
    (void)atomic_fetch_add(&all->n_asleep, 1);
    while (!(here = over(all, &w)) && nb_clock_s() < until)
        nb_cond_wait_for(all->wake, all->lock, NAP_MS);
    (void)atomic_fetch_sub(&all->n_asleep, 1);
    *awaited = NOBODY;
    const size_t who = culprit(all, name_of(c, k));
    nb_mutex_unlock(all->lock);
    if (here) return result(c, &w, err);
    char why[128];
    (void)snprintf(why, sizeof why, "no sign of it for %g seconds, in exchange %llu", all->limit_s,
                   (unsigned long long)c->number);
    fail(all, who, why);
    return nb_comm_check(c, err);
}

static void announce(fate *all, _Atomic uint64_t *counter, uint64_t v)
{
    atomic_store(counter, v);
    if (atomic_load(&all->n_asleep)) wake_all(all);
}

/* The rank's slot is filled: waits until those of the others are, all for the same call. */
static nb_status begin(nb_comm *c, call_kind kind, nb_error *err)
{
    group *g = c->g;
    c->number++;
    announce(g->all, &g->slot[c->rank].ready, c->number << KIND_BITS | (uint64_t)kind);
    for (size_t k = 0; k < g->n_rank; k++) {
        if (k == c->rank) continue;
        NB_TRY(await(c, k, false, err));
        const uint64_t word = atomic_load(&g->slot[k].ready);
        const call_kind other = (call_kind)(word & ((1u << KIND_BITS) - 1));
        if (word >> KIND_BITS != c->number || other == kind)
            continue; /* later: it has looked itself */
        char why[128];
        (void)snprintf(why, sizeof why, "calls %s where rank %zu calls %s", call_name[other],
                       name_of(c, c->rank), call_name[kind]);
        return fail_about(c, k, why, err);
    }
    return NB_OK;
}

/* The rank has taken what it gets: waits until nobody reads its slot any more. */
static nb_status end(nb_comm *c, nb_error *err)
{
    group *g = c->g;
    announce(g->all, &g->slot[c->rank].done, c->number);
    for (size_t k = 0; k < g->n_rank; k++)
        if (k != c->rank) NB_TRY(await(c, k, true, err));
    return NB_OK;
}

/* ---- calls ---- */

static nb_status thread_barrier(nb_comm *c, nb_error *err)
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
                       src->n_row, src->row_bytes, name_of(c, c->rank), dst->n_row, dst->row_bytes);
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

static nb_status thread_gather(nb_comm *c, const nb_comm_block *send, const nb_comm_block *recv,
                         nb_error *err)
{
    return take_blocks(c, GATHER, send, recv, err);
}

static nb_status thread_exchange(nb_comm *c, const nb_comm_block *send, const nb_comm_block *recv,
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

static nb_status thread_sum(nb_comm *c, const float *part, size_t n_part, size_t stride, size_t n,
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
                           name_of(c, c->rank), n);
            return fail_about(c, k, why, err);
        }
    for (size_t at = 0; at < n; at += SUM_FLOATS)
        add_parts(g, at, n - at < SUM_FLOATS ? n - at : SUM_FLOATS, out + at);
    return end(c, err);
}

static nb_status thread_agree(nb_comm *c, uint64_t value, const char *what, nb_error *err)
{
    group *g = c->g;
    NB_TRY(nb_comm_check(c, err));
    g->slot[c->rank].value = value;
    NB_TRY(begin(c, AGREE, err));
    for (size_t k = 1; k < g->n_rank; k++)
        if (g->slot[k].value != g->slot[0].value) {
            char why[256];
            (void)snprintf(why, sizeof why, "its %.150s differ from those of rank %zu", what, name_of(c, 0));
            return fail_about(c, k, why, err);
        }
    return end(c, err);
}

/* ---- ends ---- */

static size_t thread_n_rank(const nb_comm *c)
{
    return c->g->n_rank;
}

static void thread_set_limit(nb_comm *c, double limit_s)
{
    c->g->all->limit_s = limit_s;
}

static double thread_limit(const nb_comm *c)
{
    return c->g->all->limit_s;
}

static void free_fate(fate *all)
{
    if (!all) return;
    nb_mutex_destroy(all->lock);
    nb_cond_destroy(all->wake);
    free(all);
}

static void thread_destroy(nb_comm *c)
{
    fate *all = c->g->all;
    if (atomic_fetch_sub(&c->g->n_end, 1) == 1) free(c->g);
    if (atomic_fetch_sub(&all->n_end, 1) == 1) free_fate(all);
    free(c);
}

static fate *make_fate(size_t n_rank, double limit_s, bool spin)
{
    fate *all = calloc(1, sizeof *all);
    if (!all) return NULL;
    all->n_rank = n_rank;
    all->limit_s = limit_s;
    all->spin = spin;
    for (size_t k = 0; k < n_rank; k++) all->awaited[k] = NOBODY;
    if (nb_mutex_create(&all->lock) == NB_OK && nb_cond_create(&all->wake) == NB_OK) return all;
    free_fate(all);
    return NULL;
}

static group *make_group(fate *all, size_t n_rank, size_t first)
{
    const size_t n_bytes = sizeof(group) + n_rank * sizeof(slot);
    group *g = aligned_alloc(LINE, n_bytes); /* calloc does not know of alignas */
    if (!g) return NULL;
    memset(g, 0, n_bytes);
    g->all = all;
    g->n_rank = n_rank;
    g->first = first;
    return g;
}

/* NULL: out of memory. */
static nb_comm *make_end(group *g, size_t rank)
{
    nb_comm *c = malloc(sizeof *c);
    if (!c) return NULL;
    *c = (nb_comm){ .ops = g->all->ops, .g = g, .rank = rank };
    atomic_fetch_add(&g->n_end, 1);
    atomic_fetch_add(&g->all->n_end, 1);
    return c;
}

static nb_status thread_split(nb_comm *c, size_t n_group, nb_comm **out, nb_error *err)
{
    group *g = c->g;
    if (n_group < 1 || g->n_rank % n_group)
        return nb_fail(err, NB_ERR_RANGE, "%zu groups of %zu ranks: expected a divisor", n_group, g->n_rank);
    const size_t n = g->n_rank / n_group, which = c->rank / n;
    nb_mutex_lock(g->all->lock);
    if (!g->part[which]) g->part[which] = make_group(g->all, n, g->first + which * n);
    group *part = g->part[which];
    *out = part ? make_end(part, c->rank % n) : NULL;
    if (part && atomic_load(&part->n_end) == 0) { /* the first of them */
        free(part);
        g->part[which] = NULL;
    }
    nb_mutex_unlock(g->all->lock);
    return *out ? NB_OK : nb_fail(err, NB_ERR_NOMEM, "out of memory for %zu ranks", n);
}

static const nb_comm_ops of_threads = { .destroy = thread_destroy,
                                        .n_rank = thread_n_rank,
                                        .split = thread_split,
                                        .barrier = thread_barrier,
                                        .gather = thread_gather,
                                        .exchange = thread_exchange,
                                        .sum = thread_sum,
                                        .agree = thread_agree,
                                        .fail = thread_fail,
                                        .set_alarm = thread_set_alarm,
                                        .check = thread_check,
                                        .set_limit = thread_set_limit,
                                        .limit = thread_limit };

nb_status nb_comm_create(size_t n_rank, double limit_s, bool spin, nb_comm **out, nb_error *err)
{
    if (n_rank < 1 || n_rank > NB_COMM_MAX_RANK)
        return nb_fail(err, NB_ERR_RANGE, "%zu ranks: expected 1 to %d", n_rank, NB_COMM_MAX_RANK);
    fate *all = make_fate(n_rank, limit_s, spin);
    if (all) all->ops = &of_threads;
    group *g = all ? make_group(all, n_rank, 0) : NULL;
    nb_comm *c[NB_COMM_MAX_RANK] = { 0 };
    size_t n = 0;
    while (g && n < n_rank && (c[n] = make_end(g, n)) != NULL) n++;
    if (n == n_rank) {
        memcpy(out, c, n_rank * sizeof *c);
        return NB_OK;
    }
    if (n == 0) { /* no end frees them */
        free(g);
        free_fate(all);
    }
    while (n) nb_comm_destroy(c[--n]);
    return nb_fail(err, NB_ERR_NOMEM, "out of memory for %zu ranks", n_rank);
}
