/* bench_onednn.c - nibble's linear beside oneDNN's matmul: same shapes, same threads, in turns.
 *
 * Each case is timed RUNS times, nibble and oneDNN in turns, so that other load on the machine affects
 * both; it prints the medians and their ratio.  oneDNN's weights are reordered beforehand (format any).
 * nibble reads rows as checkpoints have them, and its packing of activations is timed.  OpenMP reads
 * the number of threads at start, so the program restarts itself for each number.
 *
 * The types differ: nibble's activations are float with bf16 weights (oneDNN:
 * bf16, where the processor has it), and 15-bit integers with int8 weights (oneDNN: 8 bits).
 *
 *     bench_onednn [threads ...]      default: 1 2 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nb_config.h"

#if NB_HAVE_ONEDNN
#include <dnnl.h>

#include "dev/dev.h"
#include "kernel/linear/linear.h"
#include "model/plan.h"
#include "num/bf16.h"
#include "os/clock.h"
#include "os/cpu.h"

enum { RUNS = 15, ROW_BLOCK = 32, MAX_THREADS = 1024 };
static const size_t shapes[][2] = { { 2048, 2048 }, { 1408, 2048 }, { 10944, 2048 } };
static const size_t tokens[] = { 1, 16, 512 };

static void *memory(size_t n_bytes)
{
    void *p = aligned_alloc(64, (n_bytes + 63) / 64 * 64);
    if (!p) {
        (void)fprintf(stderr, "out of memory\n");
        exit(1);
    }
    memset(p, 1, n_bytes);
    return p;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *t)
{
    qsort(t, RUNS, sizeof *t, compare);
    return t[RUNS / 2];
}

/* ---- nibble ---- */

typedef struct ours {
    nb_dev *dev;
    const nb_linear_variant *v;
    nb_linear_args a;
    void *xp;
} ours;

static void pack_task(void *ctx, size_t task, size_t worker)
{
    ours *o = ctx;
    const size_t tok0 = task * NB_LINEAR_PACK_TOK, end = tok0 + NB_LINEAR_PACK_TOK;
    (void)worker;
    o->v->pack(o->xp, o->a.x, o->a.x_stride, o->a.n_tok, o->a.w.n_col, NULL, tok0,
               end < o->a.n_tok ? end : o->a.n_tok);
}

static void rows_task(void *ctx, size_t task, size_t worker)
{
    const ours *o = ctx;
    nb_linear_args a = o->a;
    (void)worker;
    a.row_begin = task * ROW_BLOCK;
    a.row_end = a.row_begin + ROW_BLOCK < a.w.n_row ? a.row_begin + ROW_BLOCK : a.w.n_row;
    a.y = o->a.y + a.row_begin;
    a.xp = o->xp;
    o->v->fn(&a);
}

static void run_ours(ours *o)
{
    if (o->v->pack)
        nb_dev_run(o->dev, pack_task, o,
                   (o->a.n_tok + NB_LINEAR_PACK_TOK - 1) / NB_LINEAR_PACK_TOK);
    nb_dev_run(o->dev, rows_task, o, (o->a.w.n_row + ROW_BLOCK - 1) / ROW_BLOCK);
}

/* ---- oneDNN ---- */

typedef struct theirs {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_t matmul;
    dnnl_memory_t src, weights, dst;
} theirs;

#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t mem_desc;
static bool make_md(mem_desc *md, size_t n0, size_t n1, dnnl_data_type_t t, dnnl_format_tag_t tag)
{
    const dnnl_dims_t d = { (dnnl_dim_t)n0, (dnnl_dim_t)n1 };
    return dnnl_memory_desc_create_with_tag(md, 2, d, t, tag) == dnnl_success;
}
static bool make_pd(dnnl_primitive_desc_t *pd, dnnl_engine_t e, const mem_desc *md)
{
    return dnnl_matmul_primitive_desc_create(pd, e, md[0], md[1], NULL, md[2], NULL) ==
           dnnl_success;
}
#define MD(md) (md)
#else
typedef dnnl_memory_desc_t mem_desc;
static bool make_md(mem_desc *md, size_t n0, size_t n1, dnnl_data_type_t t, dnnl_format_tag_t tag)
{
    const dnnl_dims_t d = { (dnnl_dim_t)n0, (dnnl_dim_t)n1 };
    return dnnl_memory_desc_init_by_tag(md, 2, d, t, tag) == dnnl_success;
}
static bool make_pd(dnnl_primitive_desc_t *pd, dnnl_engine_t e, const mem_desc *md)
{
    dnnl_matmul_desc_t d;
    return dnnl_matmul_desc_init(&d, &md[0], &md[1], NULL, &md[2]) == dnnl_success &&
           dnnl_primitive_desc_create(pd, &d, NULL, e, NULL) == dnnl_success;
}
#define MD(md) (&(md))
#endif

/* False where oneDNN has only reference code for the type. */
static bool open_theirs(theirs *o, size_t n_row, size_t n_col, size_t n_tok, dnnl_data_type_t in,
                        dnnl_data_type_t out)
{
    mem_desc md[3];
    dnnl_primitive_desc_t pd = NULL;
    const char *impl = "";
    *o = (theirs){ 0 };
    if (dnnl_engine_create(&o->engine, dnnl_cpu, 0) != dnnl_success ||
        dnnl_stream_create(&o->stream, o->engine, dnnl_stream_default_flags) != dnnl_success)
        return false;
    if (!make_md(&md[0], n_tok, n_col, in, dnnl_ab) ||
        !make_md(&md[1], n_col, n_row, in, dnnl_format_tag_any) ||
        !make_md(&md[2], n_tok, n_row, out, dnnl_ab) || !make_pd(&pd, o->engine, md))
        return false;
    (void)dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &impl);
    const bool reference = strncmp(impl, "ref", 3) == 0;
    if (!reference) {
        const dnnl_memory_desc_t *w = NULL;
#if DNNL_VERSION_MAJOR >= 3
        const const_dnnl_memory_desc_t w3 =
            dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
        const bool ok =
            dnnl_memory_create(&o->weights, w3, o->engine, DNNL_MEMORY_ALLOCATE) == dnnl_success;
        const size_t n_bytes = dnnl_memory_desc_get_size(w3);
        (void)w;
#else
        w = dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
        const bool ok =
            dnnl_memory_create(&o->weights, w, o->engine, DNNL_MEMORY_ALLOCATE) == dnnl_success;
        const size_t n_bytes = dnnl_memory_desc_get_size(w);
#endif
        void *p = NULL;
        if (!ok || dnnl_memory_get_data_handle(o->weights, &p) != dnnl_success ||
            dnnl_memory_create(&o->src, MD(md[0]), o->engine, DNNL_MEMORY_ALLOCATE) !=
                dnnl_success ||
            dnnl_memory_create(&o->dst, MD(md[2]), o->engine, DNNL_MEMORY_ALLOCATE) !=
                dnnl_success ||
            dnnl_primitive_create(&o->matmul, pd) != dnnl_success)
            return false;
        memset(p, 1, n_bytes);
        if (dnnl_memory_get_data_handle(o->src, &p) != dnnl_success) return false;
        memset(p, 1, n_tok * n_col * (in == dnnl_f32 ? 4 : in == dnnl_bf16 ? 2 : 1));
    }
    (void)dnnl_primitive_desc_destroy(pd);
    return !reference;
}

static void run_theirs(theirs *o)
{
    const dnnl_exec_arg_t arg[] = { { DNNL_ARG_SRC, o->src },
                                    { DNNL_ARG_WEIGHTS, o->weights },
                                    { DNNL_ARG_DST, o->dst } };
    (void)dnnl_primitive_execute(o->matmul, o->stream, 3, arg);
    (void)dnnl_stream_wait(o->stream);
}

static void close_theirs(theirs *o)
{
    if (o->matmul) (void)dnnl_primitive_destroy(o->matmul);
    if (o->src) (void)dnnl_memory_destroy(o->src);
    if (o->weights) (void)dnnl_memory_destroy(o->weights);
    if (o->dst) (void)dnnl_memory_destroy(o->dst);
    if (o->stream) (void)dnnl_stream_destroy(o->stream);
    if (o->engine) (void)dnnl_engine_destroy(o->engine);
}

/* ---- a case ---- */

static const struct kind {
    const char *name;
    nb_wtype type;
    dnnl_data_type_t in, out;
} kinds[] = { { "f32", NB_W_F32, dnnl_f32, dnnl_f32 },
              { "bf16", NB_W_BF16, dnnl_bf16, dnnl_f32 },
              { "int8", NB_W_INT8, dnnl_s8, dnnl_s32 } };

static void one_case(nb_dev *dev, const nb_plan *plan, const struct kind *k, size_t n_row,
                     size_t n_col, size_t n_tok)
{
    ours o = { .dev = dev, .v = plan->linear[k->type] };
    const size_t n_thread = nb_dev_n_worker(dev);
    void *w = memory(n_row * n_col * nb_wtype_bytes(k->type)), *scale = memory(n_row * 4);
    void *x = memory(n_tok * n_col * 4), *y = memory(n_tok * n_row * 4);
    if (o.v->pack) o.xp = memory(o.v->pack_bytes(n_tok, n_col));
    o.a = (nb_linear_args){
        .y = y,
        .x = x,
        .w = { .data = w, .scale = scale, .n_row = n_row, .n_col = n_col, .type = k->type },
        .n_tok = n_tok,
        .row_end = n_row,
        .x_stride = n_col,
        .y_stride = n_row
    };
    theirs d;
    const bool have = open_theirs(&d, n_row, n_col, n_tok, k->in, k->out);
    double a[RUNS], b[RUNS];
    for (int i = -2; i < RUNS; i++) { /* two to warm up */
        const double t0 = nb_clock_s();
        run_ours(&o);
        const double t1 = nb_clock_s();
        if (have) run_theirs(&d);
        const double t2 = nb_clock_s();
        if (i < 0) continue;
        a[i] = t1 - t0;
        b[i] = t2 - t1;
    }
    const double ta = median(a), tb = median(b), flop = 2.0 * (double)(n_row * n_col * n_tok);
    (void)printf("%-5s %5zu x %-5zu %4zu tok %3zu thr  %9.1f us %7.1f GFLOP/s", k->name, n_row,
                 n_col, n_tok, n_thread, ta * 1e6, flop / ta * 1e-9);
    if (have)
        (void)printf("  %9.1f us %7.1f GFLOP/s  %5.2f\n", tb * 1e6, flop / tb * 1e-9, tb / ta);
    else
        (void)printf("  %9s\n", "none here");
    close_theirs(&d);
    free(w), free(scale), free(x), free(y), free(o.xp);
}

static int measure(size_t n_thread)
{
    nb_dev *dev = NULL;
    nb_error err = { 0 };
    nb_plan plan;
    if (nb_dev_create_host(n_thread, &dev, &err) != NB_OK) {
        (void)fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    nb_plan_init(&plan, nb_cpu_caps(), NULL);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (size_t t = 0; t < sizeof tokens / sizeof *tokens; t++)
                one_case(dev, &plan, &kinds[k], shapes[s][0], shapes[s][1], tokens[t]);
    nb_dev_destroy(dev);
    return 0;
}

static int start(const char *self, size_t n_thread)
{
    char n[32];
    int status = 1;
    (void)snprintf(n, sizeof n, "%zu", n_thread);
    (void)fflush(stdout);
    const pid_t pid = fork();
    if (pid == 0) {
        (void)setenv("OMP_NUM_THREADS", n, 1);
        (void)execl("/proc/self/exe", self, "--measure", n, (char *)NULL);
        _exit(127);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid) return 1;
    return status != 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--measure") == 0)
        return measure((size_t)strtoul(argv[2], NULL, 10));
    const dnnl_version_t *v = dnnl_version();
    (void)printf("oneDNN %d.%d.%d; medians of %d runs in turns; ratio above 1: nibble is faster\n",
                 v->major, v->minor, v->patch, RUNS);
    (void)printf("%-40s %30s  %30s  %5s\n", "", "nibble", "oneDNN", "ratio");
    int bad = 0;
    for (int i = 1; i < argc; i++) {
        const unsigned long n = strtoul(argv[i], NULL, 10);
        if (n < 1 || n > MAX_THREADS) {
            (void)fprintf(stderr, "%s: expected a number of threads\n", argv[i]);
            return 2;
        }
        bad |= start(argv[0], n);
    }
    if (argc == 1) bad = start(argv[0], 1) | start(argv[0], 2);
    return bad;
}
#else
int main(void)
{
    (void)printf("skipped: oneDNN was not found when this was configured (Debian: libdnnl-dev)\n");
    return 77;
}
#endif
