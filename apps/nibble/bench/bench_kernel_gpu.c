/* bench_kernel_gpu.c - `nibble bench kernel --device cuda`: the table and the JSON of
 * src/timing/bench_kernel_gpu.h.
 *
 * Attention without --batch is timed at the shapes that figures of this project are told at, products
 * without sizes of their own at those of DeepSeek-V2-Lite. */
#include "bench_kernel_gpu.h"

#include <stdlib.h>
#include <string.h>

#include "../cli.h"
#include "bench_list.h"
#include "bench_result.h"
#include "num/record.h"
#include "timing/bench_kernel_gpu.h"

enum { MIB = 1 << 20, SET_MIB = 2048 };

static const char *const ops[] = { "attn_pages", "linear", "experts", NULL };
static const char *const records[] = { NB_KV_NAMES NULL };
static const char *const weights[] = { "bf16", "fp8", "f16", "f32", "int8", "int4", "fp4", "q4_k", "q6_k", NULL };

/* heads, sequences, tokens */
static const size_t attn_shapes[][3] = {
    { 16, 128, 4096 }, { 16, 4, 131072 }, { 16, 1, 131072 }, { 64, 32, 32768 }, { 128, 32, 32768 }
};
/* rows, columns, batch (heads): query, latent and rope key, absorb, un-absorb, output, shared
 * experts, first layer, vocabulary */
static const size_t linear_shapes[][3] = {
    { 3072, 2048, 1 }, { 576, 2048, 1 },  { 512, 128, 16 },   { 128, 512, 16 },   { 2048, 2048, 1 },
    { 2816, 2048, 1 }, { 2048, 2816, 1 }, { 10944, 2048, 1 }, { 102400, 2048, 1 }
};
static const size_t tokens[] = { 1, 16, 64, 512, 8192 };
enum { EXPERTS = 64, TOP_K = 6, EXPERT_ROWS = 1408, EXPERT_COLS = 2048, PROMPT_FROM = 512 };

typedef struct gpu_bench {
    const opts *o;
    const kernel_opts *k;
    nb_gbench *b;
    bench_words op, record, weight;
    bench_counts context;
    bench_doc doc;
    json_t *results; /* NULL without --json */
    bool failed;
} gpu_bench;

static int words(const char *option, const char *text, const char *const *known, bench_words *out)
{
    bench_words bad = { 0 };
    if (bench_words_parse(text, known, out, &bad)) return CLI_OK;
    char list[256] = "";
    for (size_t i = 0, n = 0; known[i] && n < sizeof list; i++)
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", known[i]);
    return cli_usage("--%s: %s: on a GPU expected all, or a list of %s", option,
                     bad.n ? bad.word[0] : text, list);
}

static int read_options(gpu_bench *x)
{
    const char *d = x->k->device;
    if (strcmp(d, "cuda") != 0 &&
        (strncmp(d, "cuda:", 5) != 0 || !d[5] || d[5 + strspn(d + 5, "0123456789")]))
        return cli_usage("--device %.60s: expected cpu, cuda or cuda:N", d);
    int code = words("op", x->k->op, ops, &x->op);
    if (code == CLI_OK) code = words("kv-cache-dtype", x->k->record, records, &x->record);
    if (code == CLI_OK) code = words("weight-dtype", x->k->weight, weights, &x->weight);
    if (code == CLI_OK && !bench_counts_parse(x->k->context, 64, 1 << 24, &x->context))
        return cli_usage("--context %.100s: expected at most %d numbers in 64..16m, such as "
                         "512,4k,32k",
                         x->k->context, (int)BENCH_MAX_LIST);
    return code;
}

/* ---- results ---- */

static void print_device(const nb_gbench_info *i)
{
    (void)printf("device: %s, %zu multiprocessors, %.1f GiB, %s%s\n", i->name, i->n_sm,
                 (double)i->memory_bytes / (1 << 30), i->what,
                 i->emulated ? " (emulated: times mean nothing)" : "");
    (void)printf("roofline: copy %.0f GB/s, BF16 product (%s) %.1f TFLOP/s\n", i->copy_gbs, i->gemm,
                 i->gemm_gflops * 1e-3);
    (void)printf("%-10s %-11s %-34s %10s %10s %9s %9s %10s %6s\n", "operation", "row", "case",
                 "median us", "best us", "TFLOP/s", "GB/s", "floor us", "of it");
}

static void show(const nb_gbench_case *c, const nb_gbench_row *r)
{
    char label[96];
    if (!strcmp(c->op, "attn_pages"))
        (void)snprintf(label, sizeof label, "%s h=%zu q=%zu b=%zu s=%zu", c->record, c->n_head,
                       c->n_query, c->batch, c->context);
    else if (!strcmp(c->op, "linear"))
        (void)snprintf(label, sizeof label, "%s %zux%zu%s tokens %zu", c->weight, c->n_row,
                       c->n_col, c->n_batch > 1 ? " x heads" : "", c->n_tok);
    else
        (void)snprintf(label, sizeof label, "%s %zu of %zu, %zux%zu tokens %zu", c->weight,
                       c->top_k, c->n_expert, c->n_row, c->n_col, c->n_tok);
    (void)printf("%-10s %-11s %-34s %10.2f %10.2f %9.1f %9.0f %10.2f %5.0f%%\n", c->op, r->variant,
                 label, r->median_ns * 1e-3, r->best_ns * 1e-3, r->ops / r->median_ns * 1e-3,
                 r->bytes / r->median_ns, r->floor_ns * 1e-3,
                 r->median_ns > 0 ? 100 * r->floor_ns / r->median_ns : 0);
    (void)fflush(stdout);
}

/* As name_of in bench_kernel.c. */
static void name_of(const gpu_bench *x, const nb_gbench_case *c, char *out, size_t n_bytes)
{
    const char *device = nb_gbench_get_info(x->b)->emulated ? "emulated" : "cuda";
    const char *form = c->act && strcmp(c->act, "float") != 0 ? c->act : NULL;
    if (!strcmp(c->op, "attn_pages"))
        (void)snprintf(out, n_bytes, "%s %s %s%s%s heads=%zu queries=%zu batch=%zu context=%zu",
                       c->op, device, c->record, c->rope ? " rope=" : "", c->rope ? c->rope : "",
                       c->n_head, c->n_query, c->batch, c->context);
    else if (!strcmp(c->op, "linear"))
        (void)snprintf(out, n_bytes, "%s %s %s%s%s rows=%zu cols=%zu products=%zu tokens=%zu", c->op,
                       device, c->weight, form ? " activations=" : "", form ? form : "", c->n_row, c->n_col, c->n_batch, c->n_tok);
    else
        (void)snprintf(out, n_bytes, "%s %s %s%s%s experts=%zu top=%zu rows=%zu cols=%zu tokens=%zu",
                       c->op, device, c->weight, form ? " activations=" : "", form ? form : "", c->n_expert, c->top_k, c->n_row, c->n_col,
                       c->n_tok);
}

static void keep(gpu_bench *x, const nb_gbench_case *c, const nb_gbench_row *r)
{
    char name[256];
    name_of(x, c, name, sizeof name);
    json_t *j = json_pack(
        "{s:s, s:s, s:s?, s:s?, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:f, s:f, s:f, s:f, "
        "s:f, s:f}",
        "op", c->op, "variant", r->variant, "record", c->record, "weight", c->weight, "heads",
        (json_int_t)c->n_head, "queries", (json_int_t)c->n_query, "batch", (json_int_t)c->batch,
        "context", (json_int_t)c->context, "rows", (json_int_t)c->n_row, "cols",
        (json_int_t)c->n_col, "tokens", (json_int_t)c->n_tok, "products", (json_int_t)c->n_batch,
        "prompt", (int)c->prompt, "median_ns", r->median_ns, "best_ns", r->best_ns, "bytes",
        r->bytes, "ops", r->ops, "set_bytes", r->set_bytes, "floor_ns", r->floor_ns);
    x->failed |= !j || !bench_row_add(x->results, j, name, "ns", false, &r->spread);
}

static int run_case(gpu_bench *x, nb_gbench_case *c)
{
    nb_gbench_row row;
    nb_error err = { 0 };
    const size_t mib = x->k->set_mib ? x->k->set_mib : SET_MIB;
    c->set_bytes = mib * MIB;
    c->n_sample = x->k->repeat;
    c->sample_s = x->k->sample_ms * 1e-3;
    const nb_status st = nb_gbench_run(x->b, c, &row, &err);
    const bool several = x->op.n > 1 || x->record.n > 1 || x->weight.n > 1;
    if (st == NB_ERR_UNSUPPORTED && several) return CLI_OK;
    if (st != NB_OK) return cli_status(st, &err);
    if (x->results)
        keep(x, c, &row);
    else
        show(c, &row);
    return x->failed ? cli_failed("no memory for the results") : CLI_OK;
}

/* ---- cases ---- */

static int run_attn(gpu_bench *x)
{
    const size_t n_table = sizeof attn_shapes / sizeof *attn_shapes;
    const size_t n = x->k->batch ? x->context.n : n_table;
    int code = CLI_OK;
    for (size_t i = 0; i < n && code == CLI_OK; i++)
        for (size_t k = 0; k < x->record.n && code == CLI_OK; k++) {
            nb_gbench_case c = { .op = "attn_pages",
                                 .record = x->record.word[k],
                                 .rope = x->k->rope,
                                 .n_query = x->k->queries };
            c.n_head = x->k->batch ? x->k->heads : attn_shapes[i][0];
            c.batch = x->k->batch ? x->k->batch : attn_shapes[i][1];
            c.context = x->k->batch ? x->context.count[i] : attn_shapes[i][2];
            code = run_case(x, &c);
        }
    return code;
}

/* Sizes that were not given are those of the tables. */
static bool own_sizes(const kernel_opts *k)
{
    return k->rows || k->cols;
}

static int run_tokens(gpu_bench *x, nb_gbench_case *c)
{
    const size_t n = x->k->tokens ? 1 : sizeof tokens / sizeof *tokens;
    int code = CLI_OK;
    for (size_t i = 0; i < n && code == CLI_OK; i++) {
        c->n_tok = x->k->tokens ? x->k->tokens : tokens[i];
        c->prompt = c->n_tok >= PROMPT_FROM;
        code = run_case(x, c);
    }
    return code;
}

static int run_linear(gpu_bench *x, const char *weight)
{
    const size_t n = own_sizes(x->k) ? 1 : sizeof linear_shapes / sizeof *linear_shapes;
    int code = CLI_OK;
    for (size_t i = 0; i < n && code == CLI_OK; i++) {
        const size_t *s = linear_shapes[i];
        nb_gbench_case c = {
            .op = "linear", .weight = weight, .act = x->k->act, .n_row = s[0], .n_col = s[1], .n_batch = s[2]
        };
        if (own_sizes(x->k)) {
            c.n_row = x->k->rows ? x->k->rows : 2048;
            c.n_col = x->k->cols ? x->k->cols : 2048;
            c.n_batch = 1;
        }
        code = run_tokens(x, &c);
    }
    return code;
}

static int run_experts(gpu_bench *x, const char *weight)
{
    nb_gbench_case c = { .op = "experts",
                         .weight = weight,
                         .act = x->k->act,
                         .n_row = x->k->rows ? x->k->rows : EXPERT_ROWS,
                         .n_col = x->k->cols ? x->k->cols : EXPERT_COLS,
                         .n_expert = EXPERTS,
                         .top_k = TOP_K };
    return run_tokens(x, &c);
}

static int run_all(gpu_bench *x)
{
    const nb_gbench_info *info = nb_gbench_get_info(x->b);
    int code = CLI_OK;
    bench_doc_begin(&x->doc);
    if (x->o->json)
        x->failed = !(x->results = json_array());
    else {
        bench_machine_print(stdout, &x->doc.machine);
        print_device(info);
    }
    for (size_t i = 0; i < x->op.n && code == CLI_OK; i++) {
        const char *op = x->op.word[i];
        if (!strcmp(op, "attn_pages")) code = run_attn(x);
        for (size_t k = 0; k < x->weight.n && code == CLI_OK; k++) {
            if (!strcmp(op, "linear")) code = run_linear(x, x->weight.word[k]);
            if (!strcmp(op, "experts")) code = run_experts(x, x->weight.word[k]);
        }
    }
    if (!x->o->json) return code;
    json_t *j = json_pack("{s:{s:s, s:s, s:b, s:I, s:I, s:f, s:f, s:s}, s:o}", "device", "name",
                          info->name, "library", info->what, "emulated", (int)info->emulated,
                          "multiprocessors", (json_int_t)info->n_sm, "memory_bytes",
                          (json_int_t)info->memory_bytes, "copy_gbs", info->copy_gbs, "gemm_gflops",
                          info->gemm_gflops, "gemm", info->gemm, "results", x->results);
    if (code == CLI_OK)
        return bench_doc_print(&x->doc,
                               bench_doc_head(&x->doc, "bench kernel", &x->o->bench.metadata), j);
    json_decref(j);
    return code;
}

int bench_kernel_gpu(const opts *o)
{
    gpu_bench x = { .o = o, .k = &o->kernel };
    nb_error err = { 0 };
    const int code = read_options(&x);
    if (code != CLI_OK) return code;
    const nb_status st =
        nb_gbench_create(o->kernel.device, o->kernel.cuda_library, o->kernel.seed, &x.b, &err);
    if (st != NB_OK) return cli_status(st, &err);
    const int done = run_all(&x);
    nb_gbench_destroy(x.b);
    return done;
}
