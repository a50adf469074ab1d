/* bench_comm.c - the exchange table: microseconds of a call of comm.h among ranks that are threads, from 4 KiB to 16 MiB.
 *
 *   bench_comm [RANKS...]                             default: 2 4 8
 *   bench_comm --cuda LIBRARY [--gpus 0,1,...]        ranks are GPUs (default: all): the exchange of nb_cuda_ops.h
 *
 * bytes: what a rank gives.  gather: every rank gets all of it; exchange: each rank a part; sum: one part [bytes / 4]
 * of every rank.  The median of repetitions on rank 0, waiting for the others included.
 * GPUs: a graph of IN_GRAPH gathers, the median of graphs divided by that. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "dev/gpu.h"
#include "os/clock.h"
#include "os/pool.h"
#include "os/thread.h"

enum { MAX_RANK = 16, REPS = 41 };
static const size_t MAX_BYTES = 16 << 20;

typedef struct bench {
    nb_comm *c;
    char *own, *all;
    double *us; /* [3] of the size in hand, written by rank 0 */
    size_t n_bytes;
} bench;

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static nb_status call(bench *b, int what, size_t n)
{
    nb_comm_block send[MAX_RANK], recv[MAX_RANK];
    const size_t part = b->n_bytes / n;
    if (what == 2)
        return nb_comm_sum(b->c, (float *)(void *)b->own, 1, 0, b->n_bytes / sizeof(float),
                           (float *)(void *)b->all, NULL);
    for (size_t k = 0; k < n; k++) {
        const size_t bytes = what ? part : b->n_bytes;
        send[k] = (nb_comm_block){ b->own + (what ? k * part : 0), 1, bytes, bytes };
        recv[k] = (nb_comm_block){ b->all + k * bytes, 1, bytes, bytes };
    }
    return what ? nb_comm_exchange(b->c, send, recv, NULL) : nb_comm_gather(b->c, send, recv, NULL);
}

static void run(void *arg)
{
    bench *b = arg;
    const size_t n = nb_comm_n_rank(b->c);
    double t[REPS];
    for (int what = 0; what < 3; what++) {
        for (int i = 0; i < REPS; i++) {
            if (nb_comm_barrier(b->c, NULL) != NB_OK) return;
            const double t0 = nb_clock_s();
            if (call(b, what, n) != NB_OK) return;
            t[i] = (nb_clock_s() - t0) * 1e6;
        }
        qsort(t, REPS, sizeof *t, by_value);
        if (nb_comm_rank(b->c) == 0) b->us[what] = t[REPS / 2];
    }
}

static int table(size_t n)
{
    nb_comm *c[MAX_RANK];
    bench b[MAX_RANK] = { 0 };
    nb_thread *t[MAX_RANK];
    double us[3] = { 0 };
    if (nb_comm_create(n, 60, n <= nb_os_n_core(), c, NULL) != NB_OK) return 1;
    for (size_t k = 0; k < n; k++) {
        b[k] = (bench){ c[k], calloc(1, MAX_BYTES), calloc(n, MAX_BYTES), us, 0 };
        if (!b[k].own || !b[k].all) return 1;
    }
    printf("%zu ranks, %zu cores\n%10s %10s %10s %10s\n", n, nb_os_n_core(), "bytes", "gather us",
           "exchange", "sum");
    for (size_t bytes = 4096; bytes <= MAX_BYTES; bytes *= 4) {
        for (size_t k = 0; k < n; k++) b[k].n_bytes = bytes;
        for (size_t k = 0; k < n; k++)
            if (nb_thread_create(run, &b[k], &t[k], NULL) != NB_OK) return 1;
        for (size_t k = 0; k < n; k++) nb_thread_join(t[k]);
        printf("%10zu %10.1f %10.1f %10.1f\n", bytes, us[0], us[1], us[2]);
    }
    for (size_t k = 0; k < n; k++) {
        free(b[k].own);
        free(b[k].all);
        nb_comm_destroy(c[k]);
    }
    return 0;
}

/* ---- GPUs ---- */

enum { IN_GRAPH = 20, LIMIT_MS = 20000 };

typedef struct gpu_rank {
    struct gpu_bench *all;
    size_t k;
    nb_gpu *gpu;
    const nb_cuda_api *api;
    nb_cuda *g;
    char *own, *got; /* [max], [n][max] */
    nb_cuda_meeting *meeting;
    volatile uint32_t *alarm;
    double us;
    bool failed;
} gpu_rank;

typedef struct gpu_bench {
    size_t n, n_bytes, max_bytes;
    nb_comm *c[NB_CUDA_MAX_RANK];
    gpu_rank r[NB_CUDA_MAX_RANK];
} gpu_bench;

static void gpu_gather(gpu_rank *r)
{
    const gpu_bench *b = r->all;
    nb_cuda_exchange_args a = { .alarm = r->alarm, .rank = r->k, .n_rank = b->n, .what = 1 };
    for (size_t k = 0; k < b->n; k++) {
        a.meeting[k] = b->r[k].meeting;
        a.take[a.n_take++] = (nb_cuda_take){ .from = b->r[k].own,
                                             .to = r->got + k * b->max_bytes,
                                             .n_row = 1,
                                             .row_bytes = b->n_bytes,
                                             .from_stride = b->n_bytes,
                                             .to_stride = b->n_bytes };
    }
    r->api->exchange(r->g, &a);
}

static void gpu_run(void *arg)
{
    gpu_rank *r = arg;
    const gpu_bench *b = r->all;
    double t[REPS];
    r->api->graph_begin(r->g);
    for (int i = 0; i < IN_GRAPH; i++) gpu_gather(r);
    nb_cuda_graph *x = r->api->graph_end(r->g);
    uint64_t failed = 0;
    for (int i = 0; i < REPS; i++) {
        (void)nb_comm_barrier(b->c[r->k], NULL);
        gpu_gather(r); /* all have come */
        r->api->mark(r->g, 0);
        r->api->graph_launch(r->g, x);
        r->api->mark(r->g, 1);
        r->failed |= r->api->sync(r->g, NULL) != NB_OK;
        t[i] = r->api->elapsed_s(r->g, 0, 1) * 1e6 / IN_GRAPH;
    }
    r->api->download(r->g, &failed, &r->meeting->failed, sizeof failed);
    r->failed |= r->api->sync(r->g, NULL) != NB_OK || failed;
    r->api->graph_destroy(r->g, x);
    qsort(t, REPS, sizeof *t, by_value);
    r->us = t[REPS / 2];
}

static int gpu_open(gpu_rank *r, const char *library, int index)
{
    nb_error err = { 0 };
    const size_t max = r->all->max_bytes;
    if (nb_gpu_open(library, index, &r->gpu, &err) != NB_OK) {
        (void)fprintf(stderr, "bench_comm: %s\n", err.msg);
        return 1;
    }
    r->api = nb_gpu_api(r->gpu);
    r->g = nb_gpu_handle(r->gpu);
    r->own = r->api->alloc(r->g, max);
    r->got = r->api->alloc(r->g, r->all->n * max);
    r->meeting = r->api->alloc(r->g, sizeof *r->meeting);
    r->alarm = r->api->host_alloc(r->g, 2 * sizeof *r->alarm);
    if (!r->own || !r->got || !r->meeting || !r->alarm) return 1;
    r->alarm[0] = 0;
    r->alarm[1] = LIMIT_MS;
    r->api->fill(r->g, r->own, 1, max);
    r->api->fill(r->g, r->meeting, 0, sizeof *r->meeting);
    return r->api->sync(r->g, NULL) != NB_OK;
}

static int gpu_size(gpu_bench *b, size_t n_bytes)
{
    nb_thread *t[NB_CUDA_MAX_RANK];
    b->n_bytes = n_bytes;
    for (size_t k = 0; k < b->n; k++)
        if (nb_thread_create(gpu_run, &b->r[k], &t[k], NULL) != NB_OK) return 1;
    for (size_t k = 0; k < b->n; k++) nb_thread_join(t[k]);
    for (size_t k = 0; k < b->n; k++)
        if (b->r[k].failed) return 1;
    printf("%10zu %10.1f\n", n_bytes, b->r[0].us);
    return 0;
}

static int gpu_table(const char *library, const int *index, size_t n)
{
    static gpu_bench b;
    nb_cuda_info info;
    b.n = n;
    b.max_bytes = MAX_BYTES;
    if (nb_comm_create(n, 60, false, b.c, NULL) != NB_OK) return 1;
    for (size_t k = 0; k < n; k++) {
        b.r[k].all = &b;
        b.r[k].k = k;
        if (gpu_open(&b.r[k], library, index[k])) return 1;
    }
    for (size_t k = 0; k < n; k++)
        for (size_t o = 0; o < n; o++) {
            nb_error err = { 0 };
            if (b.r[k].api->see(b.r[k].g, b.r[o].g, &err) == NB_OK) continue;
            (void)fprintf(stderr, "bench_comm: %s\n", err.msg);
            return 1;
        }
    b.r[0].api->get_info(b.r[0].g, &info);
    printf("%zu x %s\n%10s %10s\n", n, info.name, "bytes", "gather us");
    for (size_t bytes = 4096; bytes <= (info.emulated ? 65536 : MAX_BYTES); bytes *= 4)
        if (gpu_size(&b, bytes)) return 1;
    return 0;
}

/* Numbers between commas; NULL: all GPUs, or as many as ranks are possible. */
static int gpus(const char *library, const char *list)
{
    int index[NB_CUDA_MAX_RANK];
    size_t n = 0;
    if (list) {
        for (const char *s = list; n < NB_CUDA_MAX_RANK; s++) {
            char *end;
            index[n++] = (int)strtol(s, &end, 10);
            s = end;
            if (*s != ',') break;
        }
        return gpu_table(library, index, n);
    }
    nb_gpu *g;
    nb_error err = { 0 };
    if (nb_gpu_open(library, 0, &g, &err) != NB_OK) {
        (void)fprintf(stderr, "bench_comm: %s\n", err.msg);
        return 1;
    }
    const int all = nb_gpu_api(g)->n_device(&err);
    for (; n < NB_CUDA_MAX_RANK && (int)n < all; n++) index[n] = (int)n;
    nb_gpu_close(g);
    return gpu_table(library, index, n);
}

int main(int argc, char **argv)
{
    static const size_t usual[] = { 2, 4, 8 };
    if (argc >= 3 && !strcmp(argv[1], "--cuda"))
        return gpus(argv[2], argc >= 5 && !strcmp(argv[3], "--gpus") ? argv[4] : NULL);
    for (int i = 1; i < argc; i++) {
        const long n = strtol(argv[i], NULL, 10);
        if (n < 1 || n > MAX_RANK) {
            (void)fprintf(stderr, "bench_comm: %s: expected 1 to %d ranks\n", argv[i], MAX_RANK);
            return 2;
        }
        if (table((size_t)n)) return 1;
    }
    for (size_t i = 0; argc < 2 && i < sizeof usual / sizeof *usual; i++)
        if (table(usual[i])) return 1;
    return 0;
}
