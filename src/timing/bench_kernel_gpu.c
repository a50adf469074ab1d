/* bench_kernel_gpu.c - the device, its roofline, and the timing of cases; see bench_kernel_gpu.h. */
#include "timing/bench_kernel_gpu.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "timing/bench_kernel.h"
#include "timing/bench_kernel_gpu_internal.h"

enum { MAX_LAUNCH = 4096, MAX_SAMPLE = 1000, GEMM = 8192, GEMM_EMULATED = 64 };
static const size_t COPY_BYTES = (size_t)1 << 30, COPY_EMULATED = 1 << 20;

/* ---- memory ---- */

nb_status nb_gb_nomem(nb_error *err)
{
    return nb_fail(err, NB_ERR_NOMEM, "no memory for the data of this case");
}

void *nb_gb_alloc(nb_gbench *b, size_t n_bytes)
{
    void *p = NULL;
    if (b->n_mem == b->cap_mem) {
        const size_t cap = b->cap_mem ? 2 * b->cap_mem : 64;
        void **m = realloc(b->mem, cap * sizeof *m);
        if (m) b->mem = m, b->cap_mem = cap;
    }
    if (b->n_mem < b->cap_mem) p = b->api->alloc(b->g, n_bytes ? n_bytes : 16);
    if (p)
        b->mem[b->n_mem++] = p;
    else
        b->nomem = true;
    return p;
}

void *nb_gb_upload(nb_gbench *b, const void *host, size_t n_bytes)
{
    void *p = nb_gb_alloc(b, n_bytes);
    if (p && n_bytes) b->api->upload(b->g, p, host, n_bytes);
    return p;
}

void *nb_gb_repeat(nb_gbench *b, const void *host, size_t unit_bytes, size_t n_bytes)
{
    char *p = nb_gb_alloc(b, n_bytes);
    if (!p) return NULL;
    size_t have = unit_bytes < n_bytes ? unit_bytes : n_bytes;
    b->api->upload(b->g, p, host, have);
    while (have < n_bytes) {
        const size_t n = have < n_bytes - have ? have : n_bytes - have;
        b->api->copy(b->g, p + have, p, n);
        have += n;
    }
    return p;
}

float *nb_gb_floats(nb_gbench *b, size_t n)
{
    const size_t unit = n < 1 << 16 ? n : 1 << 16;
    float *x = malloc((unit ? unit : 1) * sizeof *x);
    for (size_t i = 0; x && i < unit; i++) x[i] = (float)(2 * nb_rng_unit(b->seed, i) - 1);
    float *p = x ? nb_gb_repeat(b, x, unit * sizeof *x, n * sizeof *x) : NULL;
    b->nomem |= !p;
    free(x);
    return p;
}

static void forget(nb_gbench *b)
{
    for (size_t i = 0; i < b->n_mem; i++) b->api->free(b->g, b->mem[i]);
    b->n_mem = 0;
    b->nomem = false;
}

size_t nb_gb_sets(const nb_gb_run *r, size_t n_bytes)
{
    const size_t n = n_bytes ? (r->c->set_bytes + n_bytes - 1) / n_bytes : 1;
    return n < 1 ? 1 : n > MAX_LAUNCH ? MAX_LAUNCH : n;
}

/* ---- time ---- */

/* Seconds of a graph of n launches. */
static nb_status time_graph(nb_gb_run *r, size_t first, size_t n, size_t n_sample, double *s,
                            nb_error *err)
{
    nb_gbench *b = r->b;
    b->api->graph_begin(b->g);
    for (size_t i = 0; i < n; i++) r->step(r, first + i);
    nb_cuda_graph *x = b->api->graph_end(b->g);
    nb_status st = b->api->sync(b->g, err);
    if (!x && st == NB_OK) st = nb_fail(err, NB_ERR_INTERNAL, "the launches could not be captured");
    for (size_t i = 0; i < n_sample && st == NB_OK; i++) {
        b->api->mark(b->g, 0);
        b->api->graph_launch(b->g, x);
        b->api->mark(b->g, 1);
        st = b->api->sync(b->g, err);
        s[i] = b->api->elapsed_s(b->g, 0, 1) / (double)n;
    }
    if (x) b->api->graph_destroy(b->g, x);
    return st;
}

/* Launches of a graph: as many as take sample_s, whole rounds of the sets. */
static nb_status time_run(nb_gb_run *r, nb_kbench_spread *out, nb_error *err)
{
    const size_t k = r->c->n_sample < MAX_SAMPLE ? r->c->n_sample : MAX_SAMPLE;
    double s[MAX_SAMPLE + 1], once[2];
    NB_TRY(time_graph(r, 0, 1, 2, once, err)); /* the first one warms up */
    const double want = once[1] > 0 ? r->c->sample_s / once[1] : 1;
    size_t n = want > MAX_LAUNCH ? MAX_LAUNCH : want < 1 ? 1 : (size_t)want;
    n = (n + r->n_set - 1) / r->n_set * r->n_set;
    if (r->b->info.emulated) n = 1;
    NB_TRY(time_graph(r, 0, n, k + 1, s, err));
    for (size_t i = 1; i <= k; i++) s[i] *= 1e9;
    nb_kbench_spread_of(s + 1, k, out);
    return NB_OK;
}

/* ---- the roofline ---- */

/* Not from a graph, whose copies are another engine's work: 2,437 GB/s on an H100 where a stream's are
 * 3,012. */
static nb_status measure_copy(nb_gbench *b, nb_error *err)
{
    enum { N_SAMPLE = 5, N_COPY = 4 };
    size_t n_bytes = b->info.emulated ? COPY_EMULATED : COPY_BYTES;
    char *from, *to;
    double best = INFINITY;
    while (!(from = nb_gb_alloc(b, n_bytes)) || !(to = nb_gb_alloc(b, n_bytes))) {
        forget(b);
        n_bytes /= 2;
        if (n_bytes < COPY_EMULATED) return nb_gb_nomem(err);
    }
    b->api->fill(b->g, from, 1, n_bytes);
    for (int i = 0; i < 1 + N_SAMPLE; i++) { /* the first one warms up */
        b->api->mark(b->g, 0);
        for (int k = 0; k < N_COPY; k++) b->api->copy(b->g, to, from, n_bytes);
        b->api->mark(b->g, 1);
        NB_TRY(b->api->sync(b->g, err));
        const double s = b->api->elapsed_s(b->g, 0, 1) / N_COPY;
        if (i > 0 && s > 0) best = fmin(best, s);
    }
    if (isfinite(best)) b->info.copy_gbs = 2 * (double)n_bytes / best * 1e-9;
    forget(b);
    return NB_OK;
}

static nb_status measure_gemm(nb_gbench *b, nb_error *err)
{
    const size_t n = b->info.emulated ? GEMM_EMULATED : GEMM;
    const nb_gbench_case c = { .op = "linear",
                               .weight = "bf16",
                               .n_row = n,
                               .n_col = n,
                               .n_tok = n,
                               .n_batch = 1,
                               .prompt = true,
                               .n_sample = 5 };
    nb_gb_run r = { .b = b, .c = &c };
    nb_kbench_spread t = { 0 };
    nb_status st = nb_gb_linear(&r, err);
    if (st == NB_OK) st = time_run(&r, &t, err);
    if (t.lo > 0) b->info.gemm_gflops = r.ops / t.lo;
    (void)snprintf(b->info.gemm, sizeof b->info.gemm, "%s", r.variant ? r.variant : "");
    free(r.op);
    forget(b);
    return st;
}

/* ---- life ---- */

static nb_status index_of(const char *device, int *out, nb_error *err)
{
    char *end = NULL;
    *out = 0;
    if (!strcmp(device, "cuda")) return NB_OK;
    if (!strncmp(device, "cuda:", 5) && device[5] >= '0' && device[5] <= '9') {
        const long n = strtol(device + 5, &end, 10);
        *out = (int)n;
        if (*end == 0 && n <= 1023) return NB_OK;
    }
    return nb_fail(err, NB_ERR_ARG, "--device %.60s: expected cpu, cuda or cuda:N", device);
}

nb_status nb_gbench_create(const char *device, const char *library, uint64_t seed, nb_gbench **out,
                           nb_error *err)
{
    int index;
    NB_TRY(index_of(device, &index, err));
    nb_gbench *b = calloc(1, sizeof *b);
    if (!b) return nb_gb_nomem(err);
    b->seed = seed;
    nb_status st = nb_gpu_open(library, index, &b->gpu, err);
    if (st == NB_OK) {
        b->api = nb_gpu_api(b->gpu);
        b->g = nb_gpu_handle(b->gpu);
        b->api->get_info(b->g, &b->cuda);
        memcpy(b->info.name, b->cuda.name, sizeof b->info.name);
        memcpy(b->info.what, b->cuda.what, sizeof b->info.what);
        b->info.emulated = b->cuda.emulated;
        b->info.n_sm = b->cuda.n_sm;
        b->info.memory_bytes = b->cuda.memory_bytes;
        st = measure_copy(b, err);
    }
    if (st == NB_OK) st = measure_gemm(b, err);
    if (st != NB_OK) {
        nb_gbench_destroy(b);
        return st;
    }
    *out = b;
    return NB_OK;
}

void nb_gbench_destroy(nb_gbench *b)
{
    if (!b) return;
    if (b->api) forget(b);
    free(b->mem);
    nb_gpu_close(b->gpu);
    free(b);
}

const nb_gbench_info *nb_gbench_get_info(const nb_gbench *b)
{
    return &b->info;
}

/* ---- cases ---- */

static const struct {
    const char *name;
    nb_gb_setup *setup;
} ops[] = { { "attn_pages", nb_gb_attn },
            { "linear", nb_gb_linear },
            { "experts", nb_gb_experts } };

static nb_status check_case(const nb_gbench_case *c, nb_error *err)
{
    if (c->n_sample < 1 || c->n_sample > MAX_SAMPLE)
        return nb_fail(err, NB_ERR_RANGE, "%zu samples: expected 1..%d", c->n_sample,
                       (int)MAX_SAMPLE);
    if (c->context % NB_PAGE_TOK || c->context > 1u << 24 || c->batch > 65536 || c->n_head > 1024 ||
        c->n_query > NB_CUDA_QUERY_MAX)
        return nb_fail(err, NB_ERR_RANGE,
                       "%zu heads, %zu queries, %zu sequences of %zu: expected up to 1024, %d, "
                       "65536 and a multiple of %d",
                       c->n_head, c->n_query, c->batch, c->context, (int)NB_CUDA_QUERY_MAX,
                       (int)NB_PAGE_TOK);
    return NB_OK;
}

nb_status nb_gbench_run(nb_gbench *b, const nb_gbench_case *c, nb_gbench_row *row, nb_error *err)
{
    NB_TRY(check_case(c, err));
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        if (strcmp(ops[i].name, c->op) != 0) continue;
        nb_gb_run r = { .b = b, .c = c, .n_set = 1 };
        nb_kbench_spread t = { 0 };
        nb_status st = ops[i].setup(&r, err);
        if (st == NB_OK && b->nomem) st = nb_gb_nomem(err);
        if (st == NB_OK) st = time_run(&r, &t, err);
        const double read = b->info.copy_gbs > 0 ? r.bytes / b->info.copy_gbs : 0;
        const double work = b->info.gemm_gflops > 0 ? r.ops / b->info.gemm_gflops : 0;
        *row = (nb_gbench_row){ .variant = r.variant,
                                .median_ns = t.median,
                                .best_ns = t.lo,
                                .spread = t,
                                .bytes = r.bytes,
                                .ops = r.ops,
                                .set_bytes = r.set_bytes,
                                .floor_ns = read > work ? read : work };
        free(r.op);
        forget(b);
        return st;
    }
    return nb_fail(err, NB_ERR_ARG, "%s: expected attn_pages, linear or experts", c->op);
}
