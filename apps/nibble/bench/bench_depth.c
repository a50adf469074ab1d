/* bench_depth.c - `nibble bench throughput --depth`: tokens per second at given depths; how they
 * are measured: bench_points.h. */
#include "bench_depth.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "../cli.h"
#include "bench_list.h"
#include "bench_points.h"
#include "bench_result.h"

typedef struct depth_bench {
    const opts *o;
    const bench_opts *b;
    bench_counts depth, prefill, batch;
    size_t max_depth, max_prefill, max_batch;
    bench_points p;
    bench_doc doc;
    json_t *decode, *prompt, *results;
    char model[72];
    double one_s; /* of the depth in hand: time of a token of a single sequence; 0: unknown */
    bool failed;
} depth_bench;

/* ---- options ------------------------------------------------------------------ */

static size_t largest(const bench_counts *c)
{
    size_t m = 0;
    for (size_t i = 0; i < c->n; i++) m = c->count[i] > m ? c->count[i] : m;
    return m;
}

static int read_options(depth_bench *x)
{
    const bench_opts *b = x->b;
    if (!bench_counts_parse(b->depth, BENCH_PAGE, 1 << 24, &x->depth))
        return cli_usage(
            "--depth %s: expected at most %d numbers of 64 or more, such as 512,4k,32k", b->depth,
            (int)BENCH_MAX_LIST);
    if (b->prefill && !bench_counts_parse(b->prefill, BENCH_PAGE, 65536, &x->prefill))
        return cli_usage("--depth-prefill %s: expected at most %d numbers in 64..64k", b->prefill,
                         (int)BENCH_MAX_LIST);
    if (!bench_counts_parse(b->batch ? b->batch : "1", 1, 1024, &x->batch))
        return cli_usage("--depth-batch %s: expected at most %d numbers in 1..1024", b->batch,
                         (int)BENCH_MAX_LIST);
    if (!x->o->serve.prefix_caching)
        return cli_usage("--depth: contexts lie in the prefix cache, which is switched off");
    if (b->point_tokens == 1)
        return cli_usage("--depth-tokens 1: expected 0, or 2 and more: gaps are timed");
    for (size_t i = 0; i < x->depth.n; i++) x->depth.count[i] -= x->depth.count[i] % BENCH_PAGE;
    for (size_t i = 0; i < x->prefill.n; i++)
        x->prefill.count[i] -= x->prefill.count[i] % BENCH_PAGE;
    x->max_depth = largest(&x->depth);
    x->max_prefill = largest(&x->prefill);
    x->max_batch = b->point_tokens ? largest(&x->batch) : 1;
    return CLI_OK;
}

static int open_engine(depth_bench *x)
{
    const size_t n = 2 * x->b->point_tokens; /* bench_points_decode, of several sequences */
    const size_t more = x->max_prefill > n ? x->max_prefill : n;
    const bench_points_spec s = { .max_model_len = bench_points_len(x->max_depth, more),
                                  .max_seqs = x->max_batch,
                                  .seed = x->b->seed,
                                  .fill = x->b->fill };
    nb_engine_options e;
    nb_device_info device;
    nb_memory_plan plan;
    nb_error err = { 0 };
    const int code = bench_points_options(x->o, &s, &e, &device);
    if (code != CLI_OK) return code;
    nb_status st = nb_engine_plan_memory(&e, &plan, &err);
    if (st != NB_OK) return cli_status(st, &err);
    /* Prompts that were timed stay behind; without room for them they push nothing else out. */
    const size_t n_page = bench_points_blocks(x->max_depth, more, x->max_batch) + 4 * (x->max_prefill / BENCH_PAGE + 1);
    e.kv_cache_bytes = (n_page * BENCH_PAGE + plan.block_tok - 1) / plan.block_tok * plan.block_bytes;
    st = bench_points_init(&x->p, &s, &e, &err);
    return st == NB_OK ? CLI_OK : cli_status(st, &err);
}

/* ---- points ---------------------------------------------------------------------- */

/* bench/compare matches by these names; `bench matrix` has the same. */
static void keep(depth_bench *x, const char *name, const nb_kbench_spread *s)
{
    nb_kbench_spread ms = { s->median * 1e3, s->mad * 1e3, s->lo * 1e3, s->hi * 1e3, s->n };
    x->failed |= !bench_row_add(x->results, NULL, name, "ms", false, &ms);
}

static void report_decode(depth_bench *x, size_t depth, size_t n_seq, const nb_kbench_spread *s)
{
    const double rate = (double)n_seq / s->median;
    const double kv = x->p.info.kv_bytes_per_tok * (double)(depth * n_seq);
    char name[BENCH_POINT_NAME];
    if (n_seq == 1) x->one_s = s->median;
    const double gain = x->one_s > 0 ? rate * x->one_s : 0;
    if (!x->o->json) {
        (void)printf("decode  %8zu %6zu %9.2f %11.3f %11.3f %8zu %8.2f %10.1f %10.1f\n", depth,
                     n_seq, rate, s->median * 1e3, s->lo * 1e3, s->n, gain, kv / (1 << 20),
                     (double)bench_peak_bytes() / (1 << 20));
        (void)fflush(stdout);
        return;
    }
    json_t *j =
        json_pack("{s:I, s:I, s:f, s:f, s:f, s:I, s:f, s:f, s:I}", "depth", (json_int_t)depth,
                  "sequences", (json_int_t)n_seq, "tokens_per_second", rate, "median_ms",
                  s->median * 1e3, "best_ms", s->lo * 1e3, "samples", (json_int_t)s->n, "over_one",
                  gain, "kv_bytes", kv, "peak_bytes", (json_int_t)bench_peak_bytes());
    x->failed |= !j || json_array_append_new(x->decode, j) != 0;
    bench_decode_name(x->model, &x->p, depth, n_seq, name);
    keep(x, name, s);
}

static int decode_point(depth_bench *x, size_t depth, size_t n_seq)
{
    nb_kbench_spread s;
    const int code = bench_points_decode(&x->p, depth, n_seq, x->b->point_tokens, &s);
    if (code == CLI_OK) report_decode(x, depth, n_seq, &s);
    return code;
}

static int prefill_point(depth_bench *x, size_t depth, size_t n_tok)
{
    nb_kbench_spread s;
    char name[BENCH_POINT_NAME];
    const int code = bench_points_prefill(&x->p, depth, n_tok, x->b->repeat, &s);
    if (code != CLI_OK) return code;
    if (!x->o->json) {
        (void)printf("prefill %8zu %6zu %9.2f %11.3f %11.3f %8zu %8s %10s %10.1f\n", depth, n_tok,
                     (double)n_tok / s.median, s.median * 1e3, s.lo * 1e3, s.n, "", "",
                     (double)bench_peak_bytes() / (1 << 20));
        (void)fflush(stdout);
        return CLI_OK;
    }
    json_t *j =
        json_pack("{s:I, s:I, s:f, s:f, s:f, s:I, s:I}", "depth", (json_int_t)depth, "tokens",
                  (json_int_t)n_tok, "tokens_per_second", (double)n_tok / s.median, "median_ms",
                  s.median * 1e3, "best_ms", s.lo * 1e3, "samples", (json_int_t)s.n, "peak_bytes",
                  (json_int_t)bench_peak_bytes());
    x->failed |= !j || json_array_append_new(x->prompt, j) != 0;
    bench_prefill_name(x->model, &x->p, depth, n_tok, name);
    keep(x, name, &s);
    return CLI_OK;
}

/* ---- the command ------------------------------------------------------------------ */

static void print_head(const depth_bench *x)
{
    bench_machine_print(stdout, &x->doc.machine);
    (void)printf("model %s, %s weights %.1f MiB, cache %s %.1f bytes per token, pool %.1f MiB, "
                 "workspace %.1f MiB, %zu threads\n",
                 x->o->model, x->p.info.weights, (double)x->p.info.weight_bytes / (1 << 20),
                 x->p.info.kv_dtype, x->p.info.kv_bytes_per_tok,
                 (double)x->p.info.kv_pool_bytes / (1 << 20),
                 (double)x->p.info.workspace_bytes / (1 << 20), x->p.info.n_thread);
    (void)printf("%-7s %8s %6s %9s %11s %11s %8s %8s %10s %10s\n", "", "depth", "seqs/", "tokens/s",
                 "median ms", "best ms", "samples", "over one", "cache MiB", "peak MiB");
    (void)printf("%-7s %8s %6s\n", "", "", "tokens");
}

static int print_json(depth_bench *x)
{
    json_t *j = json_pack(
        "{s:s, s:s, s:s, s:s, s:I, s:f, s:I, s:I, s:s, s:I, s:b, s:I, s:I, s:o, s:o, s:o}", "model",
        x->o->model, "kv_cache_dtype", x->p.info.kv_dtype, "weights", x->p.info.weights, "kernels", x->p.info.kernels,
        "weight_bytes", (json_int_t)x->p.info.weight_bytes, "kv_bytes_per_token",
        x->p.info.kv_bytes_per_tok, "pool_bytes", (json_int_t)x->p.info.kv_pool_bytes,
        "workspace_bytes", (json_int_t)x->p.info.workspace_bytes, "device", x->p.info.device,
        "threads", (json_int_t)x->p.info.n_thread, "filled", (int)x->b->fill, "seed",
        (json_int_t)x->b->seed, "peak_bytes", (json_int_t)bench_peak_bytes(), "decode", x->decode,
        "prefill", x->prompt, "results", x->results);
    return bench_doc_print(&x->doc, bench_doc_head(&x->doc, "bench throughput", &x->b->metadata),
                           j);
}

static int points(depth_bench *x)
{
    int code = CLI_OK;
    for (size_t i = 0; i < x->depth.n && code == CLI_OK; i++) {
        x->one_s = 0;
        for (size_t k = 0; x->b->point_tokens && k < x->batch.n && code == CLI_OK; k++)
            code = decode_point(x, x->depth.count[i], x->batch.count[k]);
        for (size_t k = 0; k < x->prefill.n && code == CLI_OK; k++)
            code = prefill_point(x, x->depth.count[i], x->prefill.count[k]);
    }
    return code == CLI_OK && x->failed ? cli_failed("no memory for the results") : code;
}

int bench_depth_run(const opts *o)
{
    depth_bench x = { .o = o, .b = &o->bench };
    int code = bench_doc_check_metadata(&x.b->metadata);
    if (code == CLI_OK) code = read_options(&x);
    if (code != CLI_OK) return code;
    bench_model_name(o->model, x.model, sizeof x.model);
    bench_doc_begin(&x.doc);
    code = open_engine(&x);
    if (code == CLI_OK && o->json) {
        x.decode = json_array();
        x.prompt = json_array();
        x.results = json_array();
        if (!x.decode || !x.prompt || !x.results) code = cli_failed("out of memory");
    }
    if (code == CLI_OK && !o->json) print_head(&x);
    if (code == CLI_OK) code = points(&x);
    if (code == CLI_OK && o->json) {
        code = print_json(&x);
    } else {
        json_decref(x.decode);
        json_decref(x.prompt);
        json_decref(x.results);
    }
    bench_points_deinit(&x.p);
    return code;
}
