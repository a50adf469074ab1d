/* bench_kernel.c - `nibble bench kernel`: the table and the JSON of src/timing/bench_kernel.h.
 *
 * Every combination of operation, level, record or weight type, cache and context is a case.  A
 * level whose best variant a lower level has already been timed with is left out. */
#include <stdlib.h>
#include <string.h>

#include "../cli.h"
#include "../options/opts.h"
#include "bench_kernel_gpu.h"
#include "bench_list.h"
#include "bench_machine.h"
#include "bench_result.h"
#include "num/record.h"
#include "timing/bench_kernel.h"

static const char *const records[] = { NB_KV_NAMES NULL };
static const char *const weights[] = { "f32", "bf16", "f16", "fp8", "int8", "int4", "fp4",
                                      "q8_0", "q4_0", "q5_0", "q4_k", "q5_k", "q6_k", NULL };

typedef struct kernel_bench {
    const opts *o;
    const kernel_opts *k;
    nb_kbench *b;
    bench_doc doc;
    bench_words op, level, record, weight;
    bench_counts context;
    json_t *results, *slopes; /* NULL without --json */
    bool failed;              /* no memory for the JSON */
    bool begun;               /* machine, floors and header are printed: with the first row */
    char seen[NB_KBENCH_MAX_LEVEL][16]; /* variants of the lower levels, of the cases in hand */
    size_t n_seen;
} kernel_bench;

/* ---- options --------------------------------------------------------------- */

static int words(const char *option, const char *text, const char *const *known, bench_words *out)
{
    bench_words bad = { 0 };
    if (bench_words_parse(text, known, out, &bad)) return CLI_OK;
    char list[512] = "";
    for (size_t i = 0, n = 0; known[i] && n < sizeof list; i++)
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", known[i]);
    return cli_usage("--%s: %s: expected all, or a list of %s", option, bad.n ? bad.word[0] : text,
                     list);
}

static int read_options(kernel_bench *x)
{
    const kernel_opts *k = x->k;
    const char *names[32], *levels[NB_KBENCH_MAX_LEVEL];
    size_t n = 0;
    for (; nb_kbench_ops[n].name; n++) names[n] = nb_kbench_ops[n].name;
    names[n] = NULL;
    const size_t n_level = nb_kbench_levels(levels);
    int code = words("op", k->op, names, &x->op);
    if (code == CLI_OK) code = words("kv-cache-dtype", k->record, records, &x->record);
    if (code == CLI_OK) code = words("weight-dtype", k->weight, weights, &x->weight);
    if (code == CLI_OK)
        code = words("cpu-caps", k->caps ? k->caps : levels[n_level - 1], levels, &x->level);
    if (code != CLI_OK) return code;
    if (!bench_counts_parse(k->context, 64, 1 << 24, &x->context))
        return cli_usage("--context %.100s: expected at most %d numbers in 64..16m, such as "
                         "512,4k,32k",
                         k->context, (int)BENCH_MAX_LIST);
    for (size_t i = 0; i < x->context.n; i++)
        if (x->context.count[i] % 64)
            return cli_usage("--context %zu: expected multiples of 64, the tokens of a page",
                             x->context.count[i]);
    return CLI_OK;
}

/* ---- results ---------------------------------------------------------------- */

static void label_of(const kernel_bench *x, const nb_kbench_case *c, const nb_kbench_row *r,
                     char *out, size_t n_bytes)
{
    const char *kind = c->record ? c->record : c->weight ? c->weight : "";
    if (r->context > 0)
        (void)snprintf(out, n_bytes, "%s%s%zu heads, %zu queries, %.0f", kind, *kind ? ", " : "",
                       c->n_head, c->n_query, r->context);
    else
        (void)snprintf(out, n_bytes, "%s%s%zu x %zu, %zu tokens", kind, *kind ? ", " : "",
                       strcmp(r->op, "rope") == 0 ? c->n_head : c->n_row, c->n_col, c->n_tok);
    (void)x;
}

static void header(void)
{
    (void)printf("%-20s %-7s %-4s %-34s %12s %12s %9s %8s %9s | %-6s %8s %9s %10s %6s\n",
                 "operation", "variant", "data", "case", "median ns", "best ns", "ns/token", "GB/s",
                 "GFLOP/s", "set in", "floor GB/s", "GFLOP/s", "floor ns", "ratio");
}

static int run_peaks(kernel_bench *x, json_t *peaks);

/* A case that is refused prints its error alone. */
static int begin(kernel_bench *x)
{
    if (x->begun || x->o->json) return CLI_OK;
    x->begun = true;
    bench_machine_print(stdout, &x->doc.machine);
    const int code = run_peaks(x, NULL);
    header();
    return code;
}

static void show(const kernel_bench *x, const nb_kbench_case *c, const nb_kbench_row *r)
{
    char name[48], label[96], token[24] = "-", ratio[24] = "-";
    (void)snprintf(name, sizeof name, "%s%s%s", r->op, *r->part ? " " : "", r->part);
    label_of(x, c, r, label, sizeof label);
    if (r->context > 0) (void)snprintf(token, sizeof token, "%.2f", r->median_ns / r->context);
    if (r->floor_ns > 0) (void)snprintf(ratio, sizeof ratio, "%.2f", r->median_ns / r->floor_ns);
    (void)printf(
        "%-20s %-7s %-4s %-34s %12.0f %12.0f %9s %8.2f %9.2f | %-6s %8.1f %9.1f %10.0f %6s\n", name,
        r->variant, c->cold ? "cold" : "warm", label, r->median_ns, r->best_ns, token,
        r->bytes / r->median_ns, r->ops / r->median_ns,
        bench_machine_home(&x->doc.machine, r->set_bytes, nb_kbench_n_thread(x->b)), r->read_gbs,
        r->peak_gops, r->floor_ns, ratio);
}

/* What bench/compare matches by: all that makes the case, and not which variant was taken. */
static void name_of(const kernel_bench *x, const nb_kbench_case *c, const nb_kbench_row *r,
                    char *out, size_t n_bytes)
{
    const char *kind = c->record ? c->record : c->weight ? c->weight : "";
    int n = snprintf(out, n_bytes, "%s%s%s %s %s%s%s%s%s", r->op, *r->part ? " " : "", r->part,
                     c->level, c->cold ? "cold" : "warm", *kind ? " " : "", kind,
                     c->record && c->rope ? " rope=" : "", c->record && c->rope ? c->rope : "");
    if (n < 0 || (size_t)n >= n_bytes) return;
    if (r->context > 0)
        n += snprintf(out + n, n_bytes - (size_t)n, " heads=%zu queries=%zu context=%.0f",
                      c->n_head, c->n_query, r->context);
    else
        n += snprintf(out + n, n_bytes - (size_t)n, " rows=%zu cols=%zu tokens=%zu",
                      strcmp(r->op, "rope") == 0 ? c->n_head : c->n_row, c->n_col, c->n_tok);
    if ((size_t)n < n_bytes)
        (void)snprintf(out + n, n_bytes - (size_t)n, " threads=%zu", nb_kbench_n_thread(x->b));
}

static json_t *text_or_null(const char *s)
{
    return s ? json_string(s) : json_null();
}

static void keep(kernel_bench *x, const nb_kbench_case *c, const nb_kbench_row *r)
{
    char name[256];
    json_t *j = json_pack(
        "{s:s, s:s, s:s, s:s, s:b, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, "
        "s:f, s:s, s:f, s:f, s:s, s:f}",
        "op", r->op, "part", r->part, "variant", r->variant, "level", c->level, "cold",
        (int)c->cold, "record", text_or_null(c->record), "weight", text_or_null(c->weight), "heads",
        (json_int_t)c->n_head, "queries", (json_int_t)c->n_query, "rows", (json_int_t)c->n_row,
        "cols", (json_int_t)c->n_col, "tokens", (json_int_t)c->n_tok, "context", r->context,
        "median_ns", r->median_ns, "best_ns", r->best_ns, "cpu_ns", r->cpu_ns, "bytes", r->bytes,
        "ops", r->ops, "set_bytes", r->set_bytes, "home",
        bench_machine_home(&x->doc.machine, r->set_bytes, nb_kbench_n_thread(x->b)), "read_gbs",
        r->read_gbs, "peak_gops", r->peak_gops, "peak", r->peak, "floor_ns", r->floor_ns);
    name_of(x, c, r, name, sizeof name);
    x->failed |= !j || !bench_row_add(x->results, j, name, "ns", false, &r->spread);
}

/* ---- cases ------------------------------------------------------------------- */

static void show_slope(kernel_bench *x, const nb_kbench_case *c, const nb_kbench_row *first,
                       const double *ctx, const double *median, const double *best, size_t n)
{
    double slope, fast, floor = 0;
    if (!nb_kbench_slope(ctx, median, n, &slope) || !nb_kbench_slope(ctx, best, n, &fast)) return;
    if (first->read_gbs > 0) floor = first->bytes / first->context / first->read_gbs;
    const double work = first->peak_gops > 0 ? first->ops / first->context / first->peak_gops : 0;
    if (work > floor) floor = work;
    if (!x->o->json) {
        (void)printf("slope: %s%s%s %s %s %s: %.2f ns per context token and layer (best samples "
                     "%.2f), floor %.2f\n",
                     first->op, *first->part ? " " : "", first->part, first->variant,
                     c->cold ? "cold" : "warm", c->record ? c->record : "", slope, fast, floor);
        return;
    }
    json_t *j = json_pack("{s:s, s:s, s:s, s:s, s:b, s:o, s:I, s:I, s:f, s:f, s:f, s:f, s:f}", "op",
                          first->op, "part", first->part, "variant", first->variant, "level",
                          c->level, "cold", (int)c->cold, "record", text_or_null(c->record),
                          "heads", (json_int_t)c->n_head, "queries", (json_int_t)c->n_query, "from",
                          ctx[0], "to", ctx[n - 1], "ns_per_token", slope, "best_ns_per_token",
                          fast, "floor_ns_per_token", floor);
    x->failed |= !j || json_array_append_new(x->slopes, j) != 0;
}

static bool seen_before(kernel_bench *x, const char *variant)
{
    for (size_t i = 0; i < x->n_seen; i++)
        if (strcmp(x->seen[i], variant) == 0) return true;
    return false;
}

/* One operation, level and type: its contexts, and their slope. */
static int run_contexts(kernel_bench *x, nb_kbench_case *c, const nb_kbench_op *op)
{
    const size_t n = op->context && strcmp(op->name, "attn_prefill") != 0 ? x->context.n : 1;
    double ctx[BENCH_MAX_LIST], median[BENCH_MAX_LIST], best[BENCH_MAX_LIST];
    nb_kbench_row row[NB_KBENCH_MAX_ROW], last = { 0 };
    for (size_t i = 0; i < n; i++) {
        size_t n_row = 0;
        nb_error err = { 0 };
        c->context = x->context.count[i];
        const nb_status st = nb_kbench_run(x->b, c, row, &n_row, &err);
        /* Of a list or of `all`, what cannot be is left out; what was asked for alone is an error. */
        if (st == NB_ERR_UNSUPPORTED && (x->op.n > 1 || x->record.n > 1 || x->weight.n > 1))
            return CLI_OK;
        if (st != NB_OK) return cli_status(st, &err);
        if (i == 0 && seen_before(x, row[0].variant)) return CLI_OK;
        if (begin(x) != CLI_OK) return CLI_FAILED;
        for (size_t k = 0; k < n_row; k++) {
            if (x->o->json)
                keep(x, c, &row[k]);
            else
                show(x, c, &row[k]);
        }
        (void)fflush(stdout);
        ctx[i] = row[0].context;
        median[i] = row[0].median_ns;
        best[i] = row[0].best_ns;
        last = row[0];
    }
    if (n > 1) show_slope(x, c, &last, ctx, median, best, n);
    return x->failed ? cli_failed("no memory for the results") : CLI_OK;
}

static int run_levels(kernel_bench *x, nb_kbench_case *c, const nb_kbench_op *op)
{
    int code = CLI_OK;
    x->n_seen = 0;
    for (size_t i = 0; i < x->level.n && code == CLI_OK; i++) {
        nb_kbench_case one = *c;
        nb_kbench_row row[NB_KBENCH_MAX_ROW];
        size_t n_row = 0;
        c->level = x->level.word[i];
        code = run_contexts(x, c, op);
        if (x->level.n == 1 || code != CLI_OK) continue;
        one.level = c->level; /* which variant that was: a quick run of the smallest case */
        one.cold = false;
        one.context = 64;
        one.n_tok = 1;
        one.n_sample = 1;
        one.sample_s = 0;
        /* a level that is named twice must not count twice: seen has room for each level */
        if (nb_kbench_run(x->b, &one, row, &n_row, NULL) == NB_OK && n_row &&
            !seen_before(x, row[0].variant))
            (void)snprintf(x->seen[x->n_seen++], sizeof x->seen[0], "%s", row[0].variant);
    }
    return code;
}

static int run_op(kernel_bench *x, const nb_kbench_op *op)
{
    const kernel_opts *k = x->k;
    const size_t n_kind = op->record ? x->record.n : op->weight ? x->weight.n : 1;
    int code = CLI_OK;
    for (size_t i = 0; i < n_kind && code == CLI_OK; i++)
        for (int cold = 0; cold < 2 && code == CLI_OK; cold++) {
            if (strcmp(k->cache, cold ? "warm" : "cold") == 0) continue;
            nb_kbench_case c = { .op = op->name,
                                 .record = op->record ? x->record.word[i] : NULL,
                                 .rope = k->rope,
                                 .weight = op->weight ? x->weight.word[i] : NULL,
                                 .act = k->act,
                                 .n_head = k->heads,
                                 .n_query = k->queries,
                                 .context = x->context.count[0],
                                 .n_row = k->rows,
                                 .n_col = k->cols,
                                 .n_tok = k->tokens,
                                 .cold = cold,
                                 .set_bytes = k->set_mib << 20,
                                 .n_sample = k->repeat,
                                 .sample_s = k->sample_ms * 1e-3 };
            code = run_levels(x, &c, op);
        }
    return code;
}

/* Peaks of the levels in hand: reading a set that no cache holds, and arithmetic. */
static int run_peaks(kernel_bench *x, json_t *peaks)
{
    const size_t n_bytes = x->k->set_mib << 20;
    nb_error err = { 0 };
    for (size_t i = 0; i < x->level.n; i++) {
        nb_kbench_peaks p;
        const nb_status st = nb_kbench_peak(x->b, x->level.word[i], n_bytes, &p, &err);
        if (st != NB_OK) return cli_status(st, &err);
        if (peaks) {
            json_t *j = json_pack("{s:s, s:f, s:f, s:f, s:f}", "level", x->level.word[i],
                                  "read_gbs", p.read_gbs, "f32_gops", p.f32_gops, "bf16_gops",
                                  p.bf16_gops, "int8_gops", p.int8_gops);
            x->failed |= !j || json_array_append_new(peaks, j) != 0;
            continue;
        }
        (void)printf("floors, %s, %zu threads: reading %zu MiB %.1f GB/s; f32 %.1f GFLOP/s",
                     x->level.word[i], nb_kbench_n_thread(x->b), x->k->set_mib, p.read_gbs,
                     p.f32_gops);
        if (p.bf16_gops > 0) (void)printf("; bf16 tiles %.1f GFLOP/s", p.bf16_gops);
        if (p.int8_gops > 0) (void)printf("; integer products %.1f Gop/s", p.int8_gops);
        (void)putchar('\n');
    }
    return CLI_OK;
}

static int run_all(kernel_bench *x)
{
    json_t *peaks = x->o->json ? json_array() : NULL;
    int code = CLI_OK;
    if (x->o->json) {
        x->results = json_array();
        x->slopes = json_array();
        x->failed = !peaks || !x->results || !x->slopes;
        code = x->failed ? cli_failed("out of memory") : run_peaks(x, peaks);
    }
    for (size_t i = 0; i < x->op.n && code == CLI_OK; i++)
        for (const nb_kbench_op *op = nb_kbench_ops; op->name && code == CLI_OK; op++)
            if (strcmp(op->name, x->op.word[i]) == 0) code = run_op(x, op);
    if (!x->o->json) return code;
    json_t *j = json_pack("{s:I, s:f, s:o, s:o, s:o}", "threads",
                          (json_int_t)nb_kbench_n_thread(x->b), "set_mib", (double)x->k->set_mib,
                          "peaks", peaks, "results", x->results, "slopes", x->slopes);
    if (code == CLI_OK)
        return bench_doc_print(&x->doc,
                               bench_doc_head(&x->doc, "bench kernel", &x->o->bench.metadata), j);
    json_decref(j);
    return code;
}

int cmd_bench_kernel(const struct opts *o)
{
    if (strcmp(o->kernel.device, "cpu") != 0) return bench_kernel_gpu(o);
    kernel_opts k = o->kernel;
    if (!k.rows) k.rows = 2048;
    if (!k.cols) k.cols = 2048;
    if (!k.tokens) k.tokens = 1;
    if (!k.set_mib) k.set_mib = 128;
    kernel_bench x = { .o = o, .k = &k };
    nb_error err = { 0 };
    int code = bench_doc_check_metadata(&o->bench.metadata);
    if (code == CLI_OK) code = read_options(&x);
    if (code != CLI_OK) return code;
    bench_doc_begin(&x.doc);
    const nb_status st = nb_kbench_create(x.k->threads, x.k->seed, &x.b, &err);
    if (st != NB_OK) return cli_status(st, &err);
    const int done = run_all(&x);
    nb_kbench_destroy(x.b);
    return done;
}
