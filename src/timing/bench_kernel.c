/* bench_kernel.c - the timing of cases and floors; see bench_kernel.h.
 *
 * A sample is as many steps as take sample_s, so that the clock and the start of the pool do not
 * count; the median and the best of them are told.  Cold samples go on where the last one
 * stopped. */
#include "timing/bench_kernel.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/attr.h"
#include "base/rng.h"
#include "kernel/peak/peak.h"
#include "os/clock.h"
#include "os/cpu.h"
#include "os/sys.h"
#include "timing/bench_kernel_internal.h"

enum { MAX_STEPS = 1 << 22, FLOOR_SAMPLES = 5, PEAK_ROUNDS = 1 << 14 };
static const double FLOOR_S = 2e-3, PEAK_S = 2e-2;

// clang-format off
const nb_kbench_op nb_kbench_ops[] = {
    { "attn_pages",   "decode attention over encoded pages (absorbed)", true,  false, true },
    { "attn_prefill", "prefill attention, packed tiles (expanded)",     false, false, true },
    { "attn",         "attention over decoded rows",                    false, false, true },
    { "attn_score",   "scores alone, of Thrift mode's first pass",      false, false, true },
    { "index_score",  "an indexer's scores: 64 heads of 128, FP8 keys", false, false, true },
    { "index_topk",   "the 2,048 largest scores, one thread",           false, false, true },
    { "linear",       "activations times a stored matrix",              false, true,  false },
    { "linear_t",     "the same, transposed: absorbing a query",        false, true,  false },
    { "kv_codec",     "pages to floats, and BF16 rows to pages",        true,  false, true },
    { "kv_residual",  "residual planes of Thrift mode",                 true,  false, true },
    { "rmsnorm",      "normalisation of rows",                          false, false, false },
    { "rope",         "rotation of the rope part of all heads",         false, false, false },
    { "swiglu",       "the activation of a feed-forward block",         false, false, false },
    { "route",        "choice of experts",                              false, false, false },
    { "embed",        "rows of the embedding",                          false, true,  false },
    { "kda",          "delta attention with a state per head",          false, false, false },
    { NULL, NULL, false, false, false },
};
static nb_kb_setup *const setups[] = { nb_kb_attn_pages, nb_kb_attn_prefill, nb_kb_attn, nb_kb_attn_score,
                                    nb_kb_index_score, nb_kb_index_topk,
                                    nb_kb_linear, nb_kb_linear_t, nb_kb_kv_codec, nb_kb_kv_residual,
                                    nb_kb_rmsnorm, nb_kb_rope, nb_kb_swiglu, nb_kb_route, nb_kb_embed, nb_kb_kda };
// clang-format on

nb_status nb_kb_nomem(nb_error *err)
{
    return nb_fail(err, NB_ERR_NOMEM, "no memory for the data of this case");
}

/* ---- life ---- */

nb_status nb_kbench_create(size_t n_thread, uint64_t seed, nb_kbench **out, nb_error *err)
{
    nb_kbench *b = calloc(1, sizeof *b);
    if (!b) return nb_kb_nomem(err);
    const nb_status st = nb_pool_create(n_thread, &b->pool, err);
    if (st != NB_OK) {
        free(b);
        return st;
    }
    b->seed = seed;
    const uint64_t ram = nb_os_ram_bytes();
    b->max_bytes = ram ? ram / 4 * 3 : SIZE_MAX / 2;
    *out = b;
    return NB_OK;
}

static void forget(nb_kbench *b)
{
    for (size_t i = 0; i < b->n_mem; i++) free(b->mem[i]);
    b->n_mem = b->n_bytes = 0;
}

void nb_kbench_destroy(nb_kbench *b)
{
    if (!b) return;
    forget(b);
    free(b->mem);
    nb_pool_destroy(b->pool);
    free(b);
}

size_t nb_kbench_n_thread(const nb_kbench *b)
{
    return nb_pool_n_thread(b->pool);
}

size_t nb_kbench_levels(const char *name[NB_KBENCH_MAX_LEVEL])
{
    const nb_caps have = nb_cpu_caps();
    size_t n = 0;
    for (const nb_cpu_level *v = nb_cpu_level_table; v->name && n < NB_KBENCH_MAX_LEVEL - 1; v++)
        if ((v->mask & ~have) == 0) name[n++] = v->name;
    name[n] = NULL;
    return n;
}

void nb_kbench_cpu(char *name, size_t n_bytes)
{
    nb_cpu_model(name, n_bytes);
}

/* ---- statistics ---- */

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void nb_kbench_median(double *x, size_t n, double *median, double *best)
{
    qsort(x, n, sizeof *x, by_value);
    *median = n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
    *best = x[0];
}

void nb_kbench_spread_of(double *x, size_t n, nb_kbench_spread *out)
{
    double least;
    nb_kbench_median(x, n, &out->median, &out->lo);
    out->hi = x[n - 1];
    out->n = n;
    for (size_t i = 0; i < n; i++)
        x[i] = x[i] > out->median ? x[i] - out->median : out->median - x[i];
    nb_kbench_median(x, n, &out->mad, &least);
}

bool nb_kbench_slope(const double *x, const double *y, size_t n, double *slope)
{
    size_t lo = 0, hi = 0;
    for (size_t i = 1; i < n; i++) {
        if (x[i] < x[lo]) lo = i;
        if (x[i] > x[hi]) hi = i;
    }
    if (n == 0 || !(x[lo] < x[hi])) return false;
    *slope = (y[hi] - y[lo]) / (x[hi] - x[lo]);
    return true;
}

/* ---- data ---- */

void *nb_kb_alloc(nb_kbench *b, size_t n_bytes)
{
    if (b->n_mem == b->cap_mem) {
        const size_t cap = b->cap_mem ? 2 * b->cap_mem : 64;
        void **p = realloc(b->mem, cap * sizeof *p);
        if (!p) return NULL;
        b->mem = p;
        b->cap_mem = cap;
    }
    if (n_bytes > b->max_bytes - b->n_bytes) return NULL;
    const size_t n = (n_bytes ? n_bytes + 127 : 128) / 128 * 128;
    void *p = aligned_alloc(128, n);
    if (!p) return NULL;
    memset(p, 0, n);
    b->n_bytes += n_bytes;
    b->mem[b->n_mem++] = p;
    return p;
}

float *nb_kb_floats(nb_kbench *b, size_t n, uint64_t stream)
{
    float *x = n <= SIZE_MAX / sizeof *x ? nb_kb_alloc(b, n * sizeof *x) : NULL;
    for (size_t i = 0; x && i < n; i++) x[i] = (float)(2 * nb_rng_unit(b->seed + stream, i) - 1);
    return x;
}

nb_status nb_kb_make_set(nb_kb_run *r, const void *model, size_t n_model, size_t item_bytes,
                         nb_error *err)
{
    const size_t step = (item_bytes + NB_PEAK_READ - 1) / NB_PEAK_READ * NB_PEAK_READ;
    r->item_bytes = step;
    r->n_item = 1;
    if (r->c->cold) r->n_item = (r->c->set_bytes + step - 1) / step;
    if (r->n_item < 1) r->n_item = 1;
    if (step == 0 || r->n_item > SIZE_MAX / step) return nb_kb_nomem(err);
    r->set = nb_kb_alloc(r->b, r->n_item * step);
    if (!r->set) return nb_kb_nomem(err);
    for (size_t i = 0; i < r->n_item; i++)
        memcpy(r->set + i * step, (const char *)model + i % n_model * item_bytes, item_bytes);
    return NB_OK;
}

/* ---- floors ---- */

/* What a case needs of a level: the first row of peaks that has it. */
static const nb_peak_variant *reader(nb_caps caps)
{
    const nb_peak_variant *v = nb_peak_variants;
    while (v->name && (v->need & ~caps || !v->read)) v++;
    return v;
}

static nb_peak_ops_fn *ops_of(const nb_peak_variant *v, nb_kb_peak kind)
{
    return kind == KB_PEAK_F32 ? v->f32 : kind == KB_PEAK_BF16 ? v->bf16 : v->int8;
}

static nb_peak_ops_fn *peak_fn(nb_caps caps, nb_kb_peak kind)
{
    for (const nb_peak_variant *v = nb_peak_variants; v->name; v++)
        if (!(v->need & ~caps) && ops_of(v, kind)) return ops_of(v, kind);
    return NULL;
}

typedef struct read_job {
    const unsigned char *p;
    size_t n_bytes, n_part;
    nb_peak_read_fn *fn;
    uint64_t sum[1024];
} read_job;

static void read_task(void *ctx, size_t task, size_t worker)
{
    read_job *j = ctx;
    const size_t n = j->n_bytes / NB_PEAK_READ, a = n * task / j->n_part,
                 z = n * (task + 1) / j->n_part;
    (void)worker;
    j->sum[task % NB_COUNT(j->sum)] += j->fn(j->p + a * NB_PEAK_READ, (z - a) * NB_PEAK_READ);
}

static volatile uint64_t sink;

static double read_rate(nb_kbench *b, nb_caps caps, const unsigned char *p, size_t n_bytes)
{
    read_job j;
    double v[FLOOR_SAMPLES], median, best;
    size_t n = 1;
    j = (read_job){
        .p = p, .n_bytes = n_bytes, .n_part = nb_pool_n_thread(b->pool), .fn = reader(caps)->read
    };
    for (;; n *= 2) {
        const double t0 = nb_clock_s();
        for (size_t i = 0; i < n; i++) nb_pool_run(b->pool, read_task, &j, j.n_part);
        if (nb_clock_s() - t0 > FLOOR_S || n >= MAX_STEPS) break;
    }
    for (size_t k = 0; k < FLOOR_SAMPLES; k++) {
        const double t0 = nb_clock_s();
        for (size_t i = 0; i < n; i++) nb_pool_run(b->pool, read_task, &j, j.n_part);
        v[k] = (nb_clock_s() - t0) * 1e9 / ((double)n_bytes * (double)n);
    }
    for (size_t i = 0; i < NB_COUNT(j.sum); i++) sink += j.sum[i];
    nb_kbench_median(v, FLOOR_SAMPLES, &median, &best);
    return best > 0 ? 1 / best : 0; /* a floor is the best that was seen */
}

typedef struct ops_job {
    nb_peak_ops_fn *fn;
    size_t n_round;
    double n_ops[1024];
    float sink[1024];
} ops_job;

static void ops_task(void *ctx, size_t task, size_t worker)
{
    ops_job *j = ctx;
    (void)worker;
    j->n_ops[task] = j->fn(j->n_round, &j->sink[task]);
}

/* 10^9 operations a second on all threads; 0: the level has no such loop. */
static double peak_rate(nb_kbench *b, nb_caps caps, nb_kb_peak kind)
{
    ops_job j;
    if (kind == KB_PEAK_NONE) return 0;
    if (b->ops.caps != caps) memset(&b->ops, 0, sizeof b->ops);
    b->ops.caps = caps;
    if (b->ops.gops[kind] > 0) return b->ops.gops[kind];
    j = (ops_job){ .fn = peak_fn(caps, kind), .n_round = PEAK_ROUNDS };
    const size_t n = nb_pool_n_thread(b->pool) < 1024 ? nb_pool_n_thread(b->pool) : 1024;
    if (!j.fn) return 0;
    const double begin = nb_clock_s();
    double best = 0;
    for (size_t k = 0; k < FLOOR_SAMPLES || nb_clock_s() - begin < PEAK_S; k++) {
        const double t0 = nb_clock_s();
        nb_pool_run(b->pool, ops_task, &j, n);
        const double s = nb_clock_s() - t0;
        double done = 0;
        for (size_t i = 0; i < n; i++) done += j.n_ops[i];
        if (s > 0 && done / s > best) best = done / s;
    }
    return b->ops.gops[kind] = best * 1e-9;
}

/* ---- cases ---- */

static nb_status caps_of(const char *level, nb_caps *caps, nb_error *err)
{
    nb_caps mask = NB_CAPS_ALL;
    if (level) NB_TRY(nb_cpu_caps_parse(level, &mask, err));
    if (level && strcmp(level, "all") != 0)
        for (const nb_cpu_level *v = nb_cpu_level_table; v->name; v++)
            if (strcmp(v->name, level) == 0 && v->mask & ~nb_cpu_caps())
                return nb_fail(err, NB_ERR_UNSUPPORTED, "this machine has no %s", level);
    *caps = nb_cpu_caps() & mask;
    return NB_OK;
}

static double run_steps(nb_kb_run *r, const nb_kb_part *p, size_t n, size_t *at)
{
    const double t0 = nb_clock_s();
    for (size_t i = 0; i < n; i++) p->step(r, (*at)++);
    return nb_clock_s() - t0;
}

static nb_status time_part(nb_kb_run *r, const nb_kb_part *p, nb_kbench_row *row, nb_error *err)
{
    const nb_kbench_case *c = r->c;
    double *v = calloc(2 * c->n_sample, sizeof *v), *cpu = v + c->n_sample;
    size_t n = 1, at = 0;
    if (!v) return nb_kb_nomem(err);
    p->step(r, at++);
    while (run_steps(r, p, n, &at) < c->sample_s && n < MAX_STEPS) n *= 2;
    for (size_t k = 0; k < c->n_sample; k++) {
        const clock_t begin = clock();
        v[k] = run_steps(r, p, n, &at) * 1e9 / (double)n;
        cpu[k] = (double)(clock() - begin) * (1e9 / CLOCKS_PER_SEC) / (double)n;
    }
    *row = (nb_kbench_row){ .op = c->op,
                            .part = p->name,
                            .variant = p->variant,
                            .bytes = p->bytes,
                            .ops = p->ops,
                            .context = p->context,
                            .set_bytes = (double)r->n_item * (double)r->item_bytes,
                            .peak = "" };
    double least;
    nb_kbench_spread_of(v, c->n_sample, &row->spread);
    row->median_ns = row->spread.median;
    row->best_ns = row->spread.lo;
    nb_kbench_median(cpu, c->n_sample, &row->cpu_ns, &least);
    free(v);
    return NB_OK;
}

static void add_floor(nb_kb_run *r, const nb_kb_part *p, double read_gbs, nb_kbench_row *row)
{
    static const char *const name[] = { "", "f32", "bf16", "int8" };
    row->read_gbs = read_gbs;
    row->floor_ns = read_gbs > 0 ? p->bytes / read_gbs : 0;
    if (p->ops <= 0 || p->peak == KB_PEAK_NONE) return;
    const nb_kb_peak kind = peak_fn(r->caps, p->peak) ? p->peak : KB_PEAK_F32;
    row->peak = name[kind];
    row->peak_gops = peak_rate(r->b, r->caps, kind);
    const double ns = row->peak_gops > 0 ? p->ops / row->peak_gops : 0;
    if (ns > row->floor_ns) row->floor_ns = ns;
}

static nb_status check_case(const nb_kbench_case *c, nb_error *err)
{
    if (c->n_sample < 1 || c->n_sample > 100000 || c->sample_s < 0 || c->sample_s > 60)
        return nb_fail(err, NB_ERR_RANGE, "samples: expected 1..100000 of at most 60 seconds");
    if (c->context % NB_PAGE_TOK || c->context < NB_PAGE_TOK || c->context > 1u << 24)
        return nb_fail(err, NB_ERR_RANGE, "a context of %zu: expected a multiple of %d up to 16M",
                       c->context, (int)NB_PAGE_TOK);
    if (c->n_head < 1 || c->n_head > 1024 || c->n_query < 1 || c->n_query > 4096 ||
        c->n_head * c->n_query > 1u << 20)
        return nb_fail(err, NB_ERR_RANGE,
                       "%zu heads and %zu queries: expected up to 1024 and 4096, 1M together",
                       c->n_head, c->n_query);
    if (c->n_row < 1 || c->n_col < 1 || c->n_tok < 1 || c->n_row > 1u << 20 ||
        c->n_col > 1u << 20 || c->n_tok > 1u << 16)
        return nb_fail(err, NB_ERR_RANGE,
                       "rows %zu, columns %zu, tokens %zu: expected 1..1M, 1..1M, 1..64k", c->n_row,
                       c->n_col, c->n_tok);
    if ((double)c->set_bytes > 64e9) return nb_fail(err, NB_ERR_RANGE, "a set of more than 64 GB");
    return NB_OK;
}

static nb_status run_case(nb_kb_run *r, nb_kb_setup *setup, nb_kbench_row *row, size_t *n,
                          nb_error *err)
{
    NB_TRY(setup(r, err));
    for (size_t i = 0; i < r->n_part; i++) NB_TRY(time_part(r, &r->part[i], &row[i], err));
    *n = r->n_part;
    if (r->c->no_floor) return NB_OK;
    const double gbs = read_rate(r->b, r->caps, r->set, r->n_item * r->item_bytes);
    for (size_t i = 0; i < r->n_part; i++) add_floor(r, &r->part[i], gbs, &row[i]);
    return NB_OK;
}

nb_status nb_kbench_run(nb_kbench *b, const nb_kbench_case *c, nb_kbench_row row[NB_KBENCH_MAX_ROW],
                        size_t *n, nb_error *err)
{
    nb_kb_run r = { .b = b, .c = c };
    NB_TRY(caps_of(c->level, &r.caps, err));
    NB_TRY(check_case(c, err));
    for (size_t i = 0; nb_kbench_ops[i].name; i++) {
        if (strcmp(nb_kbench_ops[i].name, c->op) != 0) continue;
        const nb_status st = run_case(&r, setups[i], row, n, err);
        forget(b);
        return st;
    }
    return nb_fail(err, NB_ERR_ARG, "%s: no operation", c->op);
}

nb_status nb_kbench_peak(nb_kbench *b, const char *level, size_t n_bytes, nb_kbench_peaks *out,
                         nb_error *err)
{
    nb_caps caps;
    NB_TRY(caps_of(level, &caps, err));
    const size_t n = (n_bytes + NB_PEAK_READ - 1) / NB_PEAK_READ * NB_PEAK_READ;
    unsigned char *p = nb_kb_alloc(b, n);
    if (!p) return nb_kb_nomem(err);
    memset(p, 1, n);
    *out = (nb_kbench_peaks){ read_rate(b, caps, p, n), peak_rate(b, caps, KB_PEAK_F32),
                              peak_rate(b, caps, KB_PEAK_BF16), peak_rate(b, caps, KB_PEAK_INT8) };
    forget(b);
    return NB_OK;
}
