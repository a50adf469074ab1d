/* test_comm_cuda.c - exchanges between devices (nb_cuda_ops.h), emulated or on the machine's GPU, each rank with a device
 * handle and a thread of its own: what they copy, one after the other and in graphs; a rank that does not come, that does
 * something else, or in another order; the alarm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka needs the headers above */
#include <cmocka.h>

#include "dev/gpu.h"
#include "os/thread.h"

enum { MAX = 8, ROWS = 5, CALLS = 6, LISTED = 5, SALTED = 4 }; /* calls with a list of rows; from which on with salt */

static const char *library(void)
{
    const char *s = getenv("NB_TEST_CUDA");
    if (!s || !*s) s = getenv("NB_CUDA_EMU_LIBRARY");
    return s && *s ? s : NULL;
}

/* What a test does on one rank. */
typedef enum deed { PLAIN, GRAPH, ABSENT, GONE, OTHER, SALT, SWAPPED, WAITS } deed;

typedef struct rank {
    struct group *g;
    size_t k;
    deed deed;
    nb_gpu *gpu;
    const nb_cuda_api *api;
    nb_cuda *c;
    unsigned char *give, *get; /* device: [CALLS][ROWS][width], [MAX][CALLS][ROWS][width] */
    nb_cuda_meeting *meeting;
    uint32_t *range;           /* device: [2] */
    uint32_t *list, *salt;     /* device: [ROWS]; [1] */
    volatile uint32_t *alarm;  /* pinned */
    unsigned char *seen;       /* host: get */
    uint64_t failed;
    nb_status st;
    nb_thread *thread;
} rank;

typedef struct group {
    size_t n, width, row_bytes, skew;
    rank r[MAX];
} group;

static unsigned char value(size_t k, size_t n, size_t i)
{
    return (unsigned char)(1 + k * 59 + n * 31 + i * 7);
}

static size_t area(const group *g)
{
    return ROWS * g->width;
}

/* Call i: rows [1, 4) of every rank's area i with `ranged`, else all; LISTED: of these only 1 and 3. */
static nb_cuda_exchange_args args_of(rank *r, size_t i, bool ranged)
{
    group *g = r->g;
    nb_cuda_exchange_args a = { .alarm = r->alarm, .rank = r->k, .n_rank = g->n, .what = (uint32_t)(100 + i) };
    if (i >= SALTED) a.salt = r->salt;
    for (size_t k = 0; k < g->n; k++) {
        a.meeting[k] = g->r[k].meeting;
        a.take[a.n_take++] = (nb_cuda_take){ .from = g->r[k].give + i * area(g) + g->skew,
                                             .to = r->get + (k * CALLS + i) * area(g) + g->skew,
                                             .n_row = ROWS,
                                             .row_bytes = g->row_bytes,
                                             .from_stride = g->width,
                                             .to_stride = g->width,
                                             .begin = ranged ? r->range : NULL,
                                             .end = ranged ? r->range + 1 : NULL,
                                             .row = i == LISTED ? r->list : NULL };
    }
    return a;
}

static void call(rank *r, size_t i, bool ranged)
{
    nb_cuda_exchange_args a = args_of(r, i, ranged);
    if (r->deed == OTHER && i == 2) a.what++;
    r->api->exchange(r->c, &a);
}

static void rank_main(void *arg)
{
    rank *r = arg;
    const bool graph = r->deed == GRAPH;
    if (graph) r->api->graph_begin(r->c);
    const size_t n_call = r->deed == GONE ? 0 : r->deed == ABSENT ? 3 : CALLS;
    for (size_t i = 0; i < n_call; i++) {
        const size_t n = r->deed == SWAPPED && (i == 1 || i == 2) ? 3 - i : i;
        call(r, n, n % 2 != 0);
    }
    if (graph) {
        nb_cuda_graph *x = r->api->graph_end(r->c);
        for (int i = 0; i < 3; i++) r->api->graph_launch(r->c, x);
        r->api->graph_destroy(r->c, x);
    }
    r->api->download(r->c, r->seen, r->get, r->g->n * CALLS * area(r->g));
    r->api->download(r->c, &r->failed, &r->meeting->failed, sizeof r->failed);
    r->st = r->api->sync(r->c, NULL); /* threads must not assert: cmocka jumps */
}

static void open_rank(rank *r, uint32_t limit_ms)
{
    group *g = r->g;
    nb_error err = { 0 };
    if (nb_gpu_open(library(), 0, &r->gpu, &err) != NB_OK) fail_msg("%s", err.msg);
    r->api = nb_gpu_api(r->gpu);
    r->c = nb_gpu_handle(r->gpu);
    const size_t n_give = CALLS * area(g), n_get = g->n * n_give;
    const uint32_t range[2] = { 1, 4 }, list[ROWS] = { 3, 0, 1, 4, 3 },
                   salt = r->deed == SALT ? 0x5a5a5b : 0x5a5a5a;
    unsigned char *mine = malloc(n_give);
    r->give = r->api->alloc(r->c, n_give);
    r->get = r->api->alloc(r->c, n_get);
    r->meeting = r->api->alloc(r->c, sizeof *r->meeting);
    r->range = r->api->alloc(r->c, sizeof range);
    r->list = r->api->alloc(r->c, sizeof list);
    r->salt = r->api->alloc(r->c, sizeof salt);
    r->alarm = r->api->host_alloc(r->c, 2 * sizeof *r->alarm);
    r->seen = malloc(n_get);
    assert_true(mine && r->give && r->get && r->meeting && r->range && r->list && r->salt && r->alarm && r->seen);
    for (size_t i = 0; i < n_give; i++) mine[i] = value(r->k, i / area(g), i % area(g));
    r->alarm[0] = r->deed == WAITS;
    r->alarm[1] = limit_ms;
    r->api->upload(r->c, r->give, mine, n_give);
    r->api->upload(r->c, r->range, range, sizeof range);
    r->api->upload(r->c, r->list, list, sizeof list);
    r->api->upload(r->c, r->salt, &salt, sizeof salt);
    r->api->fill(r->c, r->get, 0, n_get);
    r->api->fill(r->c, r->meeting, 0, sizeof *r->meeting);
    assert_int_equal(r->api->sync(r->c, NULL), NB_OK);
    free(mine);
}

static void close_rank(rank *r)
{
    r->api->free(r->c, r->give);
    r->api->free(r->c, r->get);
    r->api->free(r->c, r->meeting);
    r->api->free(r->c, r->range);
    r->api->free(r->c, r->list);
    r->api->free(r->c, r->salt);
    r->api->host_free(r->c, (void *)(uintptr_t)r->alarm);
    free(r->seen);
    nb_gpu_close(r->gpu);
}

static void run(group *g, const deed *deeds, uint32_t limit_ms)
{
    for (size_t k = 0; k < g->n; k++) {
        g->r[k] = (rank){ .g = g, .k = k, .deed = deeds[k] };
        open_rank(&g->r[k], limit_ms);
    }
    for (size_t k = 0; k < g->n; k++)
        for (size_t o = 0; o < g->n; o++)
            assert_int_equal(g->r[k].api->see(g->r[k].c, g->r[o].c, NULL), NB_OK);
    for (size_t k = 0; k < g->n; k++)
        assert_int_equal(nb_thread_create(rank_main, &g->r[k], &g->r[k].thread, NULL), NB_OK);
    for (size_t k = 0; k < g->n; k++) nb_thread_join(g->r[k].thread);
    for (size_t k = 0; k < g->n; k++) assert_int_equal(g->r[k].st, NB_OK);
}

static void done(group *g)
{
    for (size_t k = 0; k < g->n; k++) close_rank(&g->r[k]);
}

/* Byte i of an area after call n: of the rank it was taken from, or still 0. */
static unsigned char wanted(const group *g, size_t from, size_t n, size_t i)
{
    const size_t row = (i - g->skew) / g->width, col = (i - g->skew) % g->width;
    const bool in = i >= g->skew && row < ROWS && col < g->row_bytes && (n % 2 == 0 || (row >= 1 && row < 4));
    return in && (n != LISTED || row != 2) ? value(from, n, i) : 0;
}

static void check_bytes(const group *g, size_t n_call)
{
    for (size_t k = 0; k < g->n; k++)
        for (size_t from = 0; from < g->n; from++)
            for (size_t n = 0; n < CALLS; n++)
                for (size_t i = 0; i < area(g); i++) {
                    const unsigned char got = g->r[k].seen[(from * CALLS + n) * area(g) + i];
                    const unsigned char want = n < n_call ? wanted(g, from, n, i) : 0;
                    if (got != want)
                        fail_msg("rank %zu of %zu, call %zu, byte %zu of rank %zu: %u, expected %u", k, g->n, n, i,
                                 from, got, want);
                }
}

/* Alignments of 16, 4 and 2 bytes, rows shorter than their stride. */
static void test_bytes(void **state)
{
    (void)state;
    static const struct {
        size_t width, row_bytes, skew;
    } shapes[] = { { 64, 48, 0 }, { 4096, 4096, 0 }, { 20, 12, 4 }, { 14, 6, 2 } };
    static const size_t sizes[] = { 1, 2, 4, 8 };
    if (!library()) skip();
    for (size_t i = 0; i < NB_COUNT(shapes); i++)
        for (size_t j = 0; j < NB_COUNT(sizes); j++)
            for (int graph = 0; graph < 2; graph++) {
                group g = { .n = sizes[j], .width = shapes[i].width, .row_bytes = shapes[i].row_bytes };
                g.skew = shapes[i].skew;
                deed all[MAX];
                for (size_t k = 0; k < MAX; k++) all[k] = graph ? GRAPH : PLAIN;
                if (g.row_bytes + g.skew > g.width) g.skew = 0;
                run(&g, all, 60000);
                check_bytes(&g, CALLS);
                for (size_t k = 0; k < g.n; k++) assert_int_equal(g.r[k].failed, 0);
                done(&g);
            }
}

static void check_failed(const rank *r, nb_cuda_failure what, size_t about)
{
    const uint64_t want = (uint64_t)what << 32 | about;
    if (r->failed != want)
        fail_msg("rank %zu: failure %llx, expected %llx", r->k, (unsigned long long)r->failed,
                 (unsigned long long)want);
}

static void test_faults(void **state)
{
    (void)state;
    group g = { .n = 3, .width = 64, .row_bytes = 64 };
    if (!library()) skip();

    run(&g, (const deed[]){ PLAIN, PLAIN, ABSENT }, 300); /* nothing of call 3 or later is copied */
    check_failed(&g.r[0], NB_CUDA_LOST, 2);
    check_failed(&g.r[1], NB_CUDA_LOST, 2);
    check_failed(&g.r[2], 0, 0);
    check_bytes(&g, 3);
    done(&g);

    run(&g, (const deed[]){ PLAIN, OTHER, PLAIN }, 300); /* call 2 */
    check_failed(&g.r[0], NB_CUDA_OTHER, 1);
    check_failed(&g.r[2], NB_CUDA_OTHER, 1);
    assert_int_equal(g.r[1].failed >> 32, NB_CUDA_OTHER);
    check_bytes(&g, 2);
    done(&g);

    run(&g, (const deed[]){ SALT, PLAIN, PLAIN }, 300);
    check_failed(&g.r[1], NB_CUDA_OTHER, 0);
    check_failed(&g.r[2], NB_CUDA_OTHER, 0);
    check_bytes(&g, SALTED);
    done(&g);

    run(&g, (const deed[]){ PLAIN, PLAIN, SWAPPED }, 300); /* calls 1 and 2 */
    check_failed(&g.r[0], NB_CUDA_OTHER, 2);
    check_failed(&g.r[1], NB_CUDA_OTHER, 2);
    check_bytes(&g, 1);
    done(&g);

    group two = { .n = 2, .width = 64, .row_bytes = 64 };
    run(&two, (const deed[]){ WAITS, GONE }, 60000); /* the alarm ends what would wait for a minute */
    check_failed(&two.r[0], NB_CUDA_ALARM, 1);
    done(&two);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_bytes), cmocka_unit_test(test_faults) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
