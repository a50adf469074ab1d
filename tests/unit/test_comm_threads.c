/* test_comm_threads.c - what ranks exchange: the right bytes, one order of sums, and no hang when a rank is late,
 * lost, or does something else.  All of it with both implementations: threads that share memory, and threads that have
 * connections as processes do.  ThreadSanitizer runs this. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka needs the headers above */
#include <cmocka.h>

#include <time.h>

#include "base/rng.h"
#include "comm/comm.h"
#include "comm/comm_tcp.h"
#include "os/clock.h"
#include "os/net.h"
#include "os/thread.h"

enum { MAX_RANK = 8, ROWS = 5, N = 1000, MAX_PART = 3, MANY = 300 };

typedef struct rank {
    nb_comm *c;
    void *ctx;
    nb_status st;
    nb_error err;
    bool good; /* threads must not assert: cmocka jumps */
    double s;  /* how long it took */
} rank;

typedef void rank_fn(rank *r);

typedef struct start {
    rank *r;
    rank_fn *fn;
} start;

static void run_rank(void *arg)
{
    const start *s = arg;
    const double t = nb_clock_s();
    s->r->good = true;
    s->fn(s->r);
    s->r->s = nb_clock_s() - t;
}

/* A connection between two ends over loopback. */
static void join(int *a, int *b)
{
    int door = -1;
    assert_int_equal(nb_net_listen("127.0.0.1", 0, &door, NULL), NB_OK);
    assert_int_equal(nb_net_connect("127.0.0.1", nb_net_port(door), 10000, a, NULL), NB_OK);
    nb_net_want w = { .s = door, .read = true };
    nb_net_wait(&w, 1, 10000);
    *b = nb_net_accept(door);
    assert_true(*b >= 0);
    nb_net_close(door);
}

static bool over_tcp; /* which implementation the ranks have */

static void make_ends(size_t n, double limit_s, nb_comm **c)
{
    int link[MAX_RANK][MAX_RANK];
    if (!over_tcp) {
        assert_int_equal(nb_comm_create(n, limit_s, n <= 2, c, NULL), NB_OK);
        return;
    }
    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; i < k; i++) join(&link[k][i], &link[i][k]);
    for (size_t k = 0; k < n; k++) assert_int_equal(nb_comm_create_tcp(n, k, link[k], limit_s, &c[k], NULL), NB_OK);
}

/* fn on n ranks. */
static void run(rank *r, size_t n, double limit_s, rank_fn *fn, void *ctx)
{
    nb_comm *c[MAX_RANK];
    nb_thread *t[MAX_RANK];
    start s[MAX_RANK];
    make_ends(n, limit_s, c);
    for (size_t k = 0; k < n; k++) {
        r[k] = (rank){ .c = c[k], .ctx = ctx };
        s[k] = (start){ &r[k], fn };
        assert_int_equal(nb_comm_rank(c[k]), k);
        assert_int_equal(nb_comm_n_rank(c[k]), n);
    }
    for (size_t k = 0; k < n; k++)
        assert_int_equal(nb_thread_create(run_rank, &s[k], &t[k], NULL), NB_OK);
    for (size_t k = 0; k < n; k++) nb_thread_join(t[k]);
    for (size_t k = 0; k < n; k++) nb_comm_destroy(c[k]);
}

static void all_good(const rank *r, size_t n, const char *what)
{
    for (size_t k = 0; k < n; k++) {
        if (r[k].st != NB_OK) fail_msg("%s, rank %zu of %zu: %s", what, k, n, r[k].err.msg);
        if (!r[k].good) fail_msg("%s, rank %zu of %zu: other values", what, k, n);
    }
}

static const size_t sizes[] = { 1, 2, 3, 4, 8 };
enum { N_SIZE = sizeof sizes / sizeof *sizes };

static void nap(double s)
{
    const struct timespec t = { (time_t)s, (long)((s - (double)(time_t)s) * 1e9) };
    (void)nanosleep(&t, NULL);
}

/* ---- the right bytes ---- */

/* What rank k has in row i, column j, in call `call`. */
static uint32_t word(size_t call, size_t k, size_t i, size_t j)
{
    return (uint32_t)(call * 1000003 + k * 10007 + i * 101 + j);
}

static nb_comm_block words(uint32_t *p, size_t n_row, size_t n_col, size_t stride)
{
    return (nb_comm_block){ p, n_row, n_col * sizeof *p, stride * sizeof *p };
}

/* Columns of different widths; one rank has none; in place on every other call. */
static void gather(rank *r)
{
    const size_t n = nb_comm_n_rank(r->c), me = nb_comm_rank(r->c);
    uint32_t own[ROWS * MAX_RANK], all[ROWS * MAX_RANK * MAX_RANK];
    size_t first[MAX_RANK + 1] = { 0 };
    for (size_t k = 0; k < n; k++) first[k + 1] = first[k] + (k == 1 ? 0 : k + 1);
    const size_t w = first[me + 1] - first[me], stride = first[n];
    for (size_t call = 0; call < MANY && r->st == NB_OK; call++) {
        const bool in_place = call % 2;
        uint32_t *mine = in_place ? all + first[me] : own;
        const size_t my_stride = in_place ? stride : w;
        memset(all, 0xee, sizeof all);
        for (size_t i = 0; i < ROWS; i++)
            for (size_t j = 0; j < w; j++) mine[i * my_stride + j] = word(call, me, i, j);
        const nb_comm_block send = words(mine, ROWS, w, my_stride);
        nb_comm_block recv[MAX_RANK];
        for (size_t k = 0; k < n; k++)
            recv[k] = words(all + first[k], ROWS, first[k + 1] - first[k], stride);
        if (call % 3 == 2 && me == 0 && n > 2) recv[2].p = NULL; /* not wanted */
        r->st = nb_comm_gather(r->c, &send, recv, &r->err);
        for (size_t k = 0; k < n && r->st == NB_OK; k++)
            for (size_t i = 0; i < ROWS && recv[k].p; i++)
                for (size_t j = 0; j < first[k + 1] - first[k]; j++)
                    r->good &= all[i * stride + first[k] + j] == word(call, k, i, j);
        memset(own, 0xdd, sizeof own); /* nobody reads it any more */
    }
}

/* Rank a gives rank b (a + b) % 3 rows. */
static void exchange(rank *r)
{
    const size_t n = nb_comm_n_rank(r->c), me = nb_comm_rank(r->c);
    uint32_t out[MAX_RANK][3 * 4], in[MAX_RANK][3 * 6];
    for (size_t call = 0; call < MANY && r->st == NB_OK; call++) {
        nb_comm_block send[MAX_RANK], recv[MAX_RANK];
        for (size_t k = 0; k < n; k++) {
            const size_t rows = (me + k) % 3;
            for (size_t i = 0; i < rows * 4; i++) out[k][i] = word(call, me, k, i);
            send[k] = words(out[k], rows, 4, 4);
            recv[k] = words(in[k], rows, 4, 6);
        }
        r->st = nb_comm_exchange(r->c, send, recv, &r->err);
        for (size_t k = 0; k < n && r->st == NB_OK; k++)
            for (size_t i = 0; i < (me + k) % 3; i++)
                for (size_t j = 0; j < 4; j++)
                    r->good &= in[k][i * 6 + j] == word(call, k, me, i * 4 + j);
        memset(out, 0xdd, sizeof out);
    }
}

static void test_bytes(void **state)
{
    (void)state;
    rank r[MAX_RANK];
    for (size_t i = 0; i < N_SIZE; i++) {
        run(r, sizes[i], 60, gather, NULL);
        all_good(r, sizes[i], "gather");
        run(r, sizes[i], 60, exchange, NULL);
        all_good(r, sizes[i], "exchange");
    }
}

/* Nobody passes a barrier before all have come. */
static void barriers(rank *r)
{
    atomic_size_t *count = r->ctx;
    const size_t n = nb_comm_n_rank(r->c);
    for (size_t call = 0; call < MANY && r->st == NB_OK; call++) {
        atomic_fetch_add(count, 1);
        r->st = nb_comm_barrier(r->c, &r->err);
        r->good &= atomic_load(count) >= (call + 1) * n;
    }
}

static void test_barrier(void **state)
{
    (void)state;
    rank r[MAX_RANK];
    for (size_t i = 0; i < N_SIZE; i++) {
        atomic_size_t count = 0;
        run(r, sizes[i], 60, barriers, &count);
        all_good(r, sizes[i], "barrier");
    }
}

/* ---- one order of sums ---- */

/* Parts whose sum depends on the order in most values.  Rank k of n has parts [first, last) of n_part. */
typedef struct sum_case {
    float part[MAX_RANK * MAX_PART][N];
    size_t n_part;
    float want[N];
    float got[MAX_RANK][N];
} sum_case;

static void fill_case(sum_case *s, size_t n_part)
{
    s->n_part = n_part;
    for (size_t p = 0; p < n_part; p++)
        for (size_t i = 0; i < N; i++) {
            const double u = nb_rng_unit(7, p * N + i) - 0.5;
            s->part[p][i] = (float)(u * (i % 2 ? 1e6 : 1) * (p % 3 == 1 ? 1e-5 : 1));
        }
    for (size_t i = 0; i < N; i++) {
        s->want[i] = s->part[0][i];
        for (size_t p = 1; p < n_part; p++) s->want[i] += s->part[p][i];
    }
}

/* Eight ranges of K on n ranks: the same bits with any n. */
static void sum(rank *r)
{
    sum_case *s = r->ctx;
    const size_t n = nb_comm_n_rank(r->c), me = nb_comm_rank(r->c);
    const size_t a = s->n_part * me / n, b = s->n_part * (me + 1) / n;
    for (size_t call = 0; call < 20 && r->st == NB_OK; call++) {
        memset(s->got[me], 0xee, sizeof s->got[me]);
        r->st = nb_comm_sum(r->c, s->part[a], b - a, N, N, s->got[me], &r->err);
        r->good &= r->st != NB_OK || !memcmp(s->got[me], s->want, sizeof s->want);
    }
}

/* What a rank that begins with its own parts would get: a bug to be found. */
static void sum_from_self(rank *r)
{
    sum_case *s = r->ctx;
    const size_t n = nb_comm_n_rank(r->c), me = nb_comm_rank(r->c);
    float *got = s->got[me];
    memset(got, 0, sizeof s->got[me]);
    for (size_t k = 0; k < n; k++) {
        const size_t o = (me + k) % n, a = s->n_part * o / n, b = s->n_part * (o + 1) / n;
        for (size_t p = a; p < b; p++)
            for (size_t i = 0; i < N; i++) got[i] += s->part[p][i];
    }
    r->good = !memcmp(got, s->want, sizeof s->want);
}

static void test_sum(void **state)
{
    (void)state;
    static sum_case s;
    rank r[MAX_RANK];
    static const size_t n_part[] = { 8, 6, 1 }; /* fewer than ranks: some have none */
    for (size_t c = 0; c < sizeof n_part / sizeof *n_part; c++) {
        fill_case(&s, n_part[c]);
        for (size_t i = 0; i < N_SIZE; i++) {
            run(r, sizes[i], 60, sum, &s);
            all_good(r, sizes[i], "sum");
        }
    }
    fill_case(&s, 8);
    run(r, 4, 60, sum_from_self, &s);
    assert_true(r[0].good);
    for (size_t k = 1; k < 4; k++)
        if (r[k].good) fail_msg("the test does not notice another order of the sum on rank %zu", k);
}

/* ---- ranks that do not do their part ---- */

typedef struct fault {
    enum { LATE, LOST, REPORTS, OTHER_CALL, OTHER_SHAPE, OTHER_LENGTH, OTHER_VALUE } kind;
    size_t who;
} fault;

enum { BEFORE = 3 }; /* good calls */

static nb_status one_gather(rank *r, size_t n_col)
{
    const size_t n = nb_comm_n_rank(r->c);
    uint32_t own[8] = { 1 }, all[MAX_RANK][8];
    const nb_comm_block send = words(own, 1, n_col, 8);
    nb_comm_block recv[MAX_RANK];
    for (size_t k = 0; k < n; k++) recv[k] = words(all[k], 1, 4, 8);
    return nb_comm_gather(r->c, &send, recv, &r->err);
}

static nb_status faulty_call(rank *r, const fault *f, bool faulty)
{
    float x[16] = { 0 }, y[16];
    switch (f->kind) {
    case OTHER_CALL: return faulty ? nb_comm_barrier(r->c, &r->err) : one_gather(r, 4);
    case OTHER_SHAPE: return one_gather(r, faulty ? 3 : 4);
    case OTHER_LENGTH: return nb_comm_sum(r->c, x, 1, 16, faulty ? 15 : 16, y, &r->err);
    case OTHER_VALUE: return nb_comm_agree(r->c, faulty ? 5 : 6, "decisions", &r->err);
    default: return one_gather(r, 4);
    }
}

static void with_fault(rank *r)
{
    const fault *f = r->ctx;
    const bool faulty = nb_comm_rank(r->c) == f->who;
    for (size_t call = 0; call < BEFORE; call++)
        if (one_gather(r, 4) != NB_OK) r->good = false;
    if (faulty && f->kind == LOST) return;
    if (faulty && f->kind == LATE) nap(0.6);
    if (faulty && f->kind == REPORTS)
        nb_comm_fail(r->c, f->who, "it has no memory");
    else
        r->st = faulty_call(r, f, faulty);
    const nb_error first = r->err;
    /* it is for good, and at once */
    const double t = nb_clock_s();
    nb_error again = { 0 };
    if (nb_comm_barrier(r->c, &again) == NB_OK) r->good = false;
    if (nb_clock_s() - t > 0.2) r->good = false;
    if (r->st != NB_OK && strcmp(first.msg, again.msg) != 0) r->good = false;
    r->err = again;
    r->st = nb_comm_check(r->c, NULL);
}

static void check_fault(fault f, size_t n, const char *words_of_it)
{
    rank r[MAX_RANK];
    run(r, n, 0.25, with_fault, &f);
    for (size_t k = 0; k < n; k++) {
        if (k == f.who && f.kind == LOST) continue;
        char name[32];
        (void)snprintf(name, sizeof name, "rank %zu of %zu", f.who, n);
        if (r[k].st != NB_ERR_FAILED || !r[k].good)
            fail_msg("fault %d of rank %zu of %zu is not noticed by rank %zu: %s", (int)f.kind,
                     f.who, n, k, r[k].err.msg);
        if (!strstr(r[k].err.msg, words_of_it) || !strstr(r[k].err.msg, "rank "))
            fail_msg("fault %d: \"%s\", expected \"%s\"", (int)f.kind, r[k].err.msg, words_of_it);
        if ((f.kind == LATE || f.kind == LOST || f.kind == REPORTS) && !strstr(r[k].err.msg, name))
            fail_msg("fault %d: \"%s\" does not name %s", (int)f.kind, r[k].err.msg, name);
        if (r[k].s > 5) fail_msg("fault %d: rank %zu took %.1f s", (int)f.kind, k, r[k].s);
    }
}

static void test_faults(void **state)
{
    (void)state;
    for (size_t i = 1; i < N_SIZE; i++)
        for (size_t who = 0; who < sizes[i]; who += sizes[i] - 1) {
            check_fault((fault){ LATE, who }, sizes[i], "no sign of it for 0.25 seconds");
            check_fault((fault){ LOST, who }, sizes[i], "no sign of it for 0.25 seconds");
            check_fault((fault){ REPORTS, who }, sizes[i], "it has no memory");
            check_fault((fault){ OTHER_CALL, who }, sizes[i], " calls ");
            check_fault((fault){ OTHER_SHAPE, who }, sizes[i], "rows of 12 bytes");
            check_fault((fault){ OTHER_LENGTH, who }, sizes[i], "adds 1");
            check_fault((fault){ OTHER_VALUE, who }, sizes[i], "its decisions differ");
        }
}

/* ---- groups ---- */

typedef struct in_groups {
    size_t n_group;
    enum { WHOLE, SAYS_SO, GONE, IN_THE_GROUP } fault;
    size_t who;
} in_groups;

/* Calls of the group and of all in turns; a rank's group end is made while others call already. */
static void groups(rank *r)
{
    const in_groups *x = r->ctx;
    const size_t n = nb_comm_n_rank(r->c), me = nb_comm_rank(r->c), n_in = n / x->n_group;
    nb_comm *own;
    if (nb_comm_split(r->c, x->n_group, &own, NULL) != NB_OK) {
        r->good = false;
        return;
    }
    r->good &= nb_comm_n_rank(own) == n_in && nb_comm_rank(own) == me % n_in;
    const size_t first = me / n_in * n_in;
    for (size_t call = 0; call < MANY && r->st == NB_OK; call++) {
        uint32_t mine = word(call, me, 0, 0), all[2 * MAX_RANK];
        nb_comm_block recv[MAX_RANK];
        const nb_comm_block send = words(&mine, 1, 1, 1);
        if (me == x->who && call == BEFORE && x->fault == GONE) break;
        if (me == x->who && call == BEFORE && x->fault == SAYS_SO) nb_comm_fail(own, me % n_in, "it has no memory");
        if (me == x->who && call == BEFORE && x->fault == IN_THE_GROUP) (void)nb_comm_barrier(own, NULL);
        for (size_t k = 0; k < n_in; k++) recv[k] = words(all + k, 1, 1, 1);
        r->st = nb_comm_gather(own, &send, recv, &r->err);
        for (size_t k = 0; k < n_in && r->st == NB_OK; k++) r->good &= all[k] == word(call, first + k, 0, 0);
        if (call % 3 || r->st != NB_OK) continue;
        for (size_t k = 0; k < n; k++) recv[k] = words(all + k, 1, 1, 1);
        r->st = nb_comm_gather(r->c, &send, recv, &r->err);
        for (size_t k = 0; k < n && r->st == NB_OK; k++) r->good &= all[k] == word(call, k, 0, 0);
    }
    nb_comm_destroy(own);
}

static void test_groups(void **state)
{
    (void)state;
    static const size_t shapes[][2] = { { 1, 1 }, { 4, 2 }, { 4, 4 }, { 4, 1 }, { 6, 3 }, { 8, 2 }, { 8, 4 } };
    rank r[MAX_RANK];
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const in_groups x = { shapes[i][1], WHOLE, 0 };
        run(r, shapes[i][0], 60, groups, (void *)(uintptr_t)&x);
        all_good(r, shapes[i][0], "groups");
    }
}

/* What a rank does wrong in its group ends the calls of all, and the line names it by its number among all: also where
 * the others wait for one that waits for it. */
static void test_group_faults(void **state)
{
    (void)state;
    static const struct {
        in_groups x;
        const char *line;
    } bad[] = {
        { { 2, SAYS_SO, 3 }, "rank 3 of 4: it has no memory" },
        { { 2, SAYS_SO, 0 }, "rank 0 of 4: it has no memory" },
        { { 2, GONE, 3 }, "rank 3 of 4: no sign of it for 0.25 seconds" },
        { { 2, GONE, 0 }, "rank 0 of 4: no sign of it for 0.25 seconds" },
        { { 2, GONE, 1 }, "rank 1 of 4: no sign of it for 0.25 seconds" },
        { { 2, IN_THE_GROUP, 2 }, " calls " },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        rank r[4];
        in_groups x = bad[i].x;
        run(r, 4, 0.25, groups, &x);
        for (size_t k = 0; k < 4; k++) {
            if (k == x.who && x.fault == GONE) continue;
            if (r[k].st != NB_ERR_FAILED || !r[k].good) fail_msg("fault %d is not noticed by rank %zu", (int)x.fault, k);
            if (!strstr(r[k].err.msg, bad[i].line))
                fail_msg("fault %d: \"%s\", expected \"%s\"", (int)x.fault, r[k].err.msg, bad[i].line);
            if (r[k].s > 5) fail_msg("fault %d: rank %zu took %.1f s", (int)x.fault, k, r[k].s);
        }
    }
}

static void test_create(void **state)
{
    (void)state;
    nb_comm *c[NB_COMM_MAX_RANK];
    nb_error err;
    assert_int_equal(nb_comm_create(0, 1, false, c, &err), NB_ERR_RANGE);
    assert_int_equal(nb_comm_create(NB_COMM_MAX_RANK + 1, 1, false, c, &err), NB_ERR_RANGE);
    nb_comm_destroy(NULL);
    nb_comm *part = NULL;
    assert_int_equal(nb_comm_create(4, 1, false, c, &err), NB_OK);
    assert_int_equal(nb_comm_split(c[1], 3, &part, &err), NB_ERR_RANGE);
    assert_string_equal(err.msg, "3 groups of 4 ranks: expected a divisor");
    assert_int_equal(nb_comm_split(c[1], 0, &part, &err), NB_ERR_RANGE);
    assert_int_equal(nb_comm_split(c[1], 2, &part, &err), NB_OK);
    for (size_t k = 0; k < 4; k++) nb_comm_destroy(c[k]); /* in any order */
    nb_comm_destroy(part);
}

/* ---- what only processes do ---- */

enum { BIG = 3 << 20 }; /* bytes: more than the system buffers */

/* Rank 0 tells, all exchange much at once, and what rank 0 tells next is not lost behind it. */
static void tells(rank *r)
{
    const size_t n = nb_comm_n_rank(r->c), me = nb_comm_rank(r->c);
    unsigned char *own = malloc(BIG), *all = malloc(MAX_RANK * (size_t)BIG);
    for (uint32_t call = 0; call < 4 && r->st == NB_OK; call++) {
        uint32_t word[100] = { 0 };
        size_t n_bytes = sizeof word;
        for (uint32_t i = 0; me == 0 && i < 100; i++) word[i] = call * 1000 + i;
        r->st = me == 0 ? nb_comm_tell(r->c, word, 4 * (90 + call), &r->err)
                        : nb_comm_hear(r->c, word, &n_bytes, &r->err);
        if (me != 0) r->good &= n_bytes == 4 * (90 + call) && word[89] == call * 1000 + 89;
        memset(own, (int)(16 * call + me), BIG);
        const nb_comm_block send = { own, 1, BIG, BIG };
        nb_comm_block recv[MAX_RANK];
        for (size_t k = 0; k < n; k++) recv[k] = (nb_comm_block){ all + k * (size_t)BIG, 1, BIG, BIG };
        if (r->st == NB_OK) r->st = nb_comm_gather(r->c, &send, recv, &r->err);
        for (size_t k = 0; k < n && r->st == NB_OK; k++)
            r->good &= all[k * (size_t)BIG] == 16 * call + k && all[(k + 1) * (size_t)BIG - 1] == 16 * call + k;
        if (r->st == NB_OK) r->st = nb_comm_look(r->c, &r->err);
    }
    free(own);
    free(all);
}

static void test_tell(void **state)
{
    (void)state;
    rank r[MAX_RANK];
    over_tcp = true;
    run(r, 2, 60, tells, NULL);
    all_good(r, 2, "tell");
    run(r, 4, 60, tells, NULL);
    all_good(r, 4, "tell");
}

/* A process that has ended is not waited for: its connections are closed. */
static void test_closed(void **state)
{
    (void)state;
    nb_comm *c[3];
    nb_error err = { 0 };
    rank r = { 0 };
    over_tcp = true;
    for (int idle = 0; idle < 2; idle++) {
        make_ends(3, 60, c);
        nb_comm_destroy(c[2]);
        r.c = c[0];
        const double t = nb_clock_s();
        const nb_status st = idle ? nb_comm_look(c[0], &err) : one_gather(&r, 4);
        assert_int_equal(st, NB_ERR_FAILED);
        assert_non_null(strstr(idle ? err.msg : r.err.msg, "rank 2 of 3: its connection was closed"));
        assert_true(nb_clock_s() - t < 5);
        /* who has not looked yet hears of it from rank 0 */
        assert_int_equal(nb_comm_look(c[1], &err), NB_ERR_FAILED);
        assert_non_null(strstr(err.msg, "rank 2 of 3: its connection was closed"));
        nb_comm_destroy(c[0]);
        nb_comm_destroy(c[1]);
    }
}

/* What a rank may send that no rank sends. */
static void test_hostile(void **state)
{
    (void)state;
    static const struct {
        uint32_t word[16];
        size_t n_bytes;
        const char *want;
    } cases[] = {
        { { 0x12345678, 4, 0 }, 12, "no message of a rank" },
        { { 0x4e420001, 0xffffffff }, 8, "no message of a rank" },
        { { 0x4e420002, 4, 7 }, 12, "no message of a rank" },                  /* DATA before its HEAD */
        { { 0x4e420001, 48, 9, 0, 1 }, 56, "is at exchange 9, rank 0 at 1" },  /* another number */
        { { 0x4e420001, 48, 1, 0, 77 }, 56, "is at exchange 1" },              /* no kind */
        { { 0x4e420001, 48, 1, 0, 1, 0, 1, 0, 1, 0 }, 56, "gives 1 rows of 1 bytes" },
        { { 0x4e420003, 4, 0x0a216968 }, 12, "hi!?" }, /* an error with a line end in it */
    };
    over_tcp = true;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int link[2] = { -1, -1 }, other;
        rank r = { 0 };
        join(&link[1], &other);
        assert_int_equal(nb_comm_create_tcp(2, 0, link, 5, &r.c, NULL), NB_OK);
        assert_int_equal(nb_net_send(other, cases[i].word, cases[i].n_bytes), cases[i].n_bytes);
        assert_int_equal(one_gather(&r, 4), NB_ERR_FAILED);
        if (!strstr(r.err.msg, cases[i].want)) fail_msg("case %zu: %s, expected %s", i, r.err.msg, cases[i].want);
        nb_net_close(other);
        nb_comm_destroy(r.c);
    }
}

static int use_threads(void **state)
{
    (void)state;
    over_tcp = false;
    return 0;
}

static int use_tcp(void **state)
{
    (void)state;
    over_tcp = true;
    return 0;
}

#define BOTH(test)                                                                                                     \
    cmocka_unit_test_setup(test, use_threads), { #test "_tcp", test, use_tcp, NULL, NULL }

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_create), BOTH(test_bytes),
                                        BOTH(test_barrier),            BOTH(test_sum),
                                        BOTH(test_faults),             cmocka_unit_test(test_tell),
                                        cmocka_unit_test(test_closed), cmocka_unit_test(test_hostile),
                                        cmocka_unit_test_setup(test_groups, use_threads),
                                        cmocka_unit_test_setup(test_group_faults, use_threads) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
