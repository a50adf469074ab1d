/* check_bench.c - timing of kernels.
 *
 * Warm: batches of calls on the same data, each batch at least 2 ms; the median of
 * 9 batches, and the best, for machines that others use too.  Cold: the median of 9
 * single calls, each after a walk over 96 MiB that pushes the data out of the caches.
 * The ratio is to the row `c` of the same label, which runs first. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "check/check.h"
#include "os/cpu.h"

enum { SAMPLES = 9, MAX_LABEL = 256 };
static const size_t evict_bytes = (size_t)96 << 20;

typedef struct base {
    char label[CHK_NAME];
    double warm_ns, cold_ns;
} base;

struct chk_bench {
    FILE *json;
    unsigned char *evict;
    size_t n_line, n_base;
    base base[MAX_LABEL];
    double read_gbs; /* one core, from memory */
};

static double now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, size_t n)
{
    qsort(v, n, sizeof *v, by_value);
    return v[n / 2];
}

void chk_machine_line(char *out, size_t n_bytes, nb_caps have)
{
    char model[64];
    nb_buf caps = { 0 };
    nb_cpu_model(model, sizeof model);
    if (nb_cpu_caps_name(have, &caps) != NB_OK) nb_buf_deinit(&caps);
#if defined(__clang__)
    const char *compiler = "clang " __clang_version__;
#else
    const char *compiler = "gcc " __VERSION__;
#endif
    snprintf(out, n_bytes, "machine: %s, %ld cores, caps %s, %s", model,
             sysconf(_SC_NPROCESSORS_ONLN), caps.p ? caps.p : "c", compiler);
    nb_buf_deinit(&caps);
}

/* Reads the eviction buffer: 8 sums, so that the loop waits for memory only. */
static uint64_t walk(const struct chk_bench *b)
{
    const uint64_t *p = (const uint64_t *)(const void *)b->evict;
    uint64_t s[8] = { 0 };
    for (size_t i = 0; i < evict_bytes / 8; i += 8)
        for (size_t j = 0; j < 8; j++) s[j] += p[i + j];
    return s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7];
}

static volatile uint64_t sink;

struct chk_bench *chk_bench_open(const char *json_path)
{
    struct chk_bench *b = calloc(1, sizeof *b);
    double v[SAMPLES];
    if (!b) return NULL;
    b->evict = malloc(evict_bytes);
    b->json = json_path ? fopen(json_path, "w") : NULL;
    if (!b->evict || (json_path && !b->json)) {
        fprintf(stderr, "nibble-check: cannot start the benchmark\n");
        exit(2);
    }
    memset(b->evict, 1, evict_bytes);
    for (size_t i = 0; i < SAMPLES; i++) {
        const double t0 = now_ns();
        sink = walk(b);
        v[i] = (double)evict_bytes / (now_ns() - t0);
    }
    b->read_gbs = median(v, SAMPLES);
    printf("memory read rate of one core: %.1f GB/s\n", b->read_gbs);
    printf("%-18s %-28s %10s %10s %7s %8s %6s | %10s %7s %6s\n", "function", "case", "warm ns",
           "best ns", "GB/s", "GFLOP/s", "x c", "cold ns", "GB/s", "of read");
    if (b->json) fprintf(b->json, "{\"read_gbs\":%.2f,\"results\":[\n", b->read_gbs);
    return b;
}

int chk_bench_close(struct chk_bench *b)
{
    int bad = 0;
    if (!b) return 1;
    if (b->json) {
        fprintf(b->json, "\n]}\n");
        bad = fclose(b->json) != 0;
    }
    free(b->evict);
    free(b);
    return bad;
}

static double warm_ns(chk_bench_fn *fn, void *ctx, double *best)
{
    double v[SAMPLES], ns = 0;
    size_t n = 1;
    for (;;) { /* calls per batch */
        const double t0 = now_ns();
        for (size_t i = 0; i < n; i++) fn(ctx);
        ns = now_ns() - t0;
        if (ns > 2e6 || n > 1u << 24) break;
        n *= ns < 2e5 ? 8 : 2;
    }
    for (size_t k = 0; k < SAMPLES; k++) {
        const double t0 = now_ns();
        for (size_t i = 0; i < n; i++) fn(ctx);
        v[k] = (now_ns() - t0) / (double)n;
    }
    const double m = median(v, SAMPLES);
    *best = v[0]; /* sorted by now */
    return m;
}

static double cold_ns(const struct chk_bench *b, chk_bench_fn *fn, void *ctx)
{
    double v[SAMPLES];
    for (size_t k = 0; k < SAMPLES; k++) {
        sink = walk(b);
        const double t0 = now_ns();
        fn(ctx);
        v[k] = now_ns() - t0;
    }
    return median(v, SAMPLES);
}

void chk_time(chk *t, const char *label, double bytes, double flops, chk_bench_fn *fn, void *ctx)
{
    struct chk_bench *b = t->bench;
    char key[CHK_NAME];
    double best;
    const double warm = warm_ns(fn, ctx, &best), cold = cold_ns(b, fn, ctx);
    const base *c = NULL;
    snprintf(key, sizeof key, "%s %.16s %.64s", t->op->name, t->row->sub, label);
    for (size_t i = 0; i < b->n_base; i++)
        if (strcmp(b->base[i].label, key) == 0) c = &b->base[i];
    if (!c && strcmp(t->row->variant, "c") == 0 && b->n_base < MAX_LABEL) {
        base *n = &b->base[b->n_base++];
        snprintf(n->label, sizeof n->label, "%s", key);
        n->warm_ns = warm;
        n->cold_ns = cold;
        c = n;
    }
    const double ratio = c ? c->warm_ns / warm : 0;
    printf("%-18s %-28s %10.0f %10.0f %7.2f %8.2f %6.2f | %10.0f %7.2f %5.0f%%\n", t->function,
           label, warm, best, bytes / warm, flops / warm, ratio, cold, bytes / cold,
           100 * bytes / cold / b->read_gbs);
    if (b->json)
        fprintf(b->json,
                "%s{\"function\":\"%s\",\"case\":\"%s\",\"warm_ns\":%.1f,\"best_ns\":%.1f,"
                "\"cold_ns\":%.1f,"
                "\"bytes\":%.0f,\"flops\":%.0f,\"ratio_c\":%.3f}",
                b->n_line++ ? ",\n" : "", t->function, label, warm, best, cold, bytes, flops,
                ratio);
}
