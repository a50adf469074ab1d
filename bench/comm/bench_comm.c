/* bench_comm.c - the exchange table: microseconds of a call of comm.h among ranks that are threads, from 4 KiB to 16 MiB.
 *
 *   bench_comm [RANKS...]     default: 2 4 8
 *
 * bytes: what a rank gives.  gather: every rank gets all of it; exchange: each rank a part; sum: one part [bytes / 4]
 * of every rank.  The median of repetitions on rank 0, waiting for the others included. */
#include <stdio.h>
#include <stdlib.h>

#include "comm/comm.h"
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

int main(int argc, char **argv)
{
    static const size_t usual[] = { 2, 4, 8 };
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
