/* attn_peer.c - times the peer's attention alone: absorbed MLA decode through ggml's public API.
 *
 *   attn_peer TYPE HEADS THREADS CONTEXT...      TYPE: f16 bf16 q8_0 q6_0 q4_0 q4_1 iq4_nl
 *
 * The graph is what ik_llama.cpp builds for a layer's attention of one generated token with -mla 3 -fa:
 * rows [rope 64 | latent 512] of one type, values a view of the same rows, mask in F16.  Steps cycle
 * through 128 MiB of layers, so that none finds its rows in a cache.  Prints one line of JSON per
 * context, in ns of a layer: median and minimum of the samples, and the median CPU time of all
 * threads, which other programs disturb less.
 * build_attn.sh compiles it against a build of the peer; none of the peer's code is in this repository. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ggml.h"

enum { LATENT = 512, ROPE = 64, ROW = LATENT + ROPE, SET_MIB = 128, SAMPLES = 15 };

static double now_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static enum ggml_type type_of(const char *name)
{
    for (int t = 0; t < GGML_TYPE_COUNT; t++) {
        const char *s = ggml_type_name((enum ggml_type)t);
        if (s && strcmp(s, name) == 0) return (enum ggml_type)t;
    }
    fprintf(stderr, "attn_peer: %s: no type\n", name);
    exit(2);
}

static uint64_t state = 1;
static float uniform(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(state >> 40) * 0x1p-23 - 1);
}

/* Repeats the rows of a few tokens. */
static void fill(struct ggml_tensor *k, enum ggml_type type)
{
    enum { DISTINCT = 64 };
    static float x[DISTINCT * ROW];
    const size_t bytes = ggml_row_size(type, ROW);
    char *p = k->data;
    for (size_t i = 0; i < DISTINCT * ROW; i++) x[i] = uniform();
    const size_t n = (size_t)k->ne[1] < DISTINCT ? (size_t)k->ne[1] : DISTINCT;
    ggml_quantize_chunk(type, x, p, 0, (int64_t)n, ROW, NULL, NULL);
    for (size_t r = n; r < (size_t)k->ne[1]; r++) memcpy(p + r * bytes, p + (r - n) * bytes, bytes);
}

static void point(enum ggml_type type, const char *name, int heads, int threads, int context)
{
    const size_t row = ggml_row_size(type, ROW), layer = row * (size_t)context;
    const size_t n_layer = ((size_t)SET_MIB << 20) / layer + 1;
    struct ggml_init_params ip = { .mem_size = n_layer * (layer + 4096) + ((size_t)64 << 20) };
    struct ggml_context *data = ggml_init(ip);
    struct ggml_tensor *q = ggml_new_tensor_3d(data, GGML_TYPE_F32, ROW, 1, heads);
    struct ggml_tensor *mask = ggml_new_tensor_2d(data, GGML_TYPE_F16, context, GGML_KQ_MASK_PAD);
    struct ggml_tensor **k = calloc(n_layer, sizeof *k);
    memset(mask->data, 0, ggml_nbytes(mask));
    for (int i = 0; i < ROW * heads; i++) ((float *)q->data)[i] = uniform();
    for (size_t i = 0; i < n_layer; i++) {
        k[i] = ggml_new_tensor_2d(data, type, ROW, context);
        fill(k[i], type);
    }
    double v[SAMPLES], cpu[SAMPLES];
    struct ggml_init_params gp = { .mem_size = (size_t)64 << 20 };
    size_t at = 0, per = 1;
    for (int s = -1; s < SAMPLES; s++) { /* the first is not counted */
        /* A graph of several layers spreads the cost of starting threads, as a whole model does. */
        struct ggml_context *c = ggml_init(gp);
        struct ggml_cgraph *g = ggml_new_graph(c);
        per = 4;
        for (size_t i = 0; i < per; i++, at++) {
            struct ggml_tensor *rows = k[at % n_layer];
            struct ggml_tensor *val =
                ggml_view_2d(c, rows, LATENT, context, row, ggml_row_size(type, ROPE));
            ggml_build_forward_expand(
                g, ggml_flash_attn_ext(c, q, rows, val, mask, 0.07216878f, 0, 0));
        }
        const double t0 = now_ns(CLOCK_MONOTONIC), c0 = now_ns(CLOCK_PROCESS_CPUTIME_ID);
        if (ggml_graph_compute_with_ctx(c, g, threads) != GGML_STATUS_SUCCESS) exit(1);
        if (s >= 0) v[s] = (now_ns(CLOCK_MONOTONIC) - t0) / (double)per;
        if (s >= 0) cpu[s] = (now_ns(CLOCK_PROCESS_CPUTIME_ID) - c0) / (double)per;
        ggml_free(c);
    }
    qsort(v, SAMPLES, sizeof *v, by_value);
    qsort(cpu, SAMPLES, sizeof *cpu, by_value);
    printf(
        "{\"type\": \"%s\", \"heads\": %d, \"threads\": %d, \"context\": %d, \"median_ns\": %.0f, "
        "\"best_ns\": %.0f, \"cpu_ns\": %.0f, \"row_bytes\": %zu}\n",
        name, heads, threads, context, v[SAMPLES / 2], v[0], cpu[SAMPLES / 2], row);
    fflush(stdout);
    free(k);
    ggml_free(data);
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        fprintf(stderr, "usage: attn_peer TYPE HEADS THREADS CONTEXT...\n");
        return 2;
    }
    for (int i = 4; i < argc; i++)
        point(type_of(argv[1]), argv[1], atoi(argv[2]), atoi(argv[3]), atoi(argv[i]));
    return 0;
}
