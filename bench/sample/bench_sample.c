/* bench_sample.c - time to choose a token from a row of logits.
 *
 *   bench_sample [-v N_VOCAB] [-n TOKENS]
 *
 * Rows: Gaussian, standard deviation 2, 3 and 4, with a few large logits; four rows in turns.
 * For each set of sampling parameters it prints the best of five medians, in microseconds per token,
 * on one thread. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/rng.h"
#include "sample/sample.h"

enum { ROWS = 4, REPEATS = 5 };

static double now_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void die(const char *what)
{
    (void)fprintf(stderr, "bench_sample: %s\n", what);
    exit(1);
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void fill(float *x, size_t n, double deviation, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        const double u = 1 - nb_rng_unit(seed, 2 * i), v = nb_rng_unit(seed, 2 * i + 1);
        x[i] = (float)(deviation * sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
    }
    for (size_t k = 0; k < 5; k++) /* a model's likely candidates */
        x[(size_t)(nb_rng_unit(seed + 1, k) * (double)n)] = (float)(deviation * 5 + 2 - (double)k);
}

/* Median time of a token, the best of the repeats. */
static double bench(const nb_sample_params *p, size_t n_vocab, nb_sample_scratch *x,
                    const float *rows, double *took, size_t n_tokens)
{
    double best = 1e30;
    for (size_t r = 0; r < REPEATS; r++) {
        nb_sampler *s = NULL;
        nb_sample_out out;
        if (nb_sampler_create(p, n_vocab, &s, NULL) != NB_OK) die("bad parameters");
        for (size_t i = 0; i < n_tokens; i++) {
            const double start = now_us();
            if (nb_sampler_next(s, x, rows + i % ROWS * n_vocab, NULL, &out) != NB_OK) die("bad logits");
            took[i] = now_us() - start;
        }
        nb_sampler_destroy(s);
        qsort(took, n_tokens, sizeof *took, ascending);
        if (took[n_tokens / 2] < best) best = took[n_tokens / 2];
    }
    return best;
}

static const struct {
    const char *name;
    double temperature, top_p, min_p, presence_penalty;
    size_t top_k;
    int n_logprobs;
} ways[] = {
    { "greedy", 0, 1, 0, 0, 0, -1 },
    { "greedy, 5 logprobs", 0, 1, 0, 0, 0, 5 },
    { "temperature 1", 1, 1, 0, 0, 0, -1 },
    { "top-k 50", 1, 1, 0, 0, 50, -1 },
    { "top-k 50, top-p 0.9", 1, 0.9, 0, 0, 50, -1 },
    { "top-p 0.9", 1, 0.9, 0, 0, 0, -1 },
    { "top-p 0.95, temperature 0.6", 0.6, 0.95, 0, 0, 0, -1 },
    { "top-p 0.95, temperature 3", 3, 0.95, 0, 0, 0, -1 },
    { "min-p 0.05", 1, 1, 0.05, 0, 0, -1 },
    { "top-k 20000", 1, 1, 0, 0, 20000, -1 },
    { "top-p 0.9, presence, 20 logprobs", 1, 0.9, 0, 0.5, 0, 20 },
};

int main(int argc, char **argv)
{
    static const double deviation[] = { 2, 3, 4 };
    size_t n_vocab = 129280, n_tokens = 101;
    for (int i = 1; i < argc; i += 2) {
        const long v = i + 1 < argc ? strtol(argv[i + 1], NULL, 10) : 0;
        if (v > 0 && strcmp(argv[i], "-v") == 0)
            n_vocab = (size_t)v;
        else if (v > 0 && strcmp(argv[i], "-n") == 0)
            n_tokens = (size_t)v;
        else
            die("usage: bench_sample [-v N_VOCAB] [-n TOKENS]");
    }
    nb_sample_scratch *x = NULL;
    float *rows = calloc(n_vocab * ROWS, sizeof *rows);
    double *took = calloc(n_tokens, sizeof *took);
    if (!rows || !took || nb_sample_scratch_create(n_vocab, &x, NULL) != NB_OK) die("no memory");
    printf("us per token, %zu tokens in the vocabulary\n%-34s", n_vocab, "deviation of the logits");
    for (size_t d = 0; d < NB_COUNT(deviation); d++) printf(" %7.0f", deviation[d]);
    printf("\n");
    for (size_t w = 0; w < NB_COUNT(ways); w++) {
        nb_sample_params p;
        nb_sample_params_default(&p);
        p.temperature = ways[w].temperature;
        p.top_p = ways[w].top_p;
        p.min_p = ways[w].min_p;
        p.presence_penalty = ways[w].presence_penalty;
        p.top_k = ways[w].top_k;
        p.n_logprobs = ways[w].n_logprobs;
        p.seed = 1;
        printf("%-34s", ways[w].name);
        for (size_t d = 0; d < NB_COUNT(deviation); d++) {
            for (size_t r = 0; r < ROWS; r++)
                fill(rows + r * n_vocab, n_vocab, deviation[d], 100 * d + 10 * r);
            printf(" %7.0f", bench(&p, n_vocab, x, rows, took, n_tokens));
        }
        printf("\n");
    }
    nb_sample_scratch_destroy(x);
    free(rows);
    free(took);
    return 0;
}
