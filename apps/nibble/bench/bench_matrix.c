/* bench_matrix.c - `nibble bench matrix`: tokens per second, and what a million of them costs, for every record,
 * length of context and number of sequences that generate at once.
 *
 * One engine a record, with a pool for the largest of its cells that fits; cells are measured as `bench
 * throughput --depth` does (bench_points.h), under the same names.  What a cell needs comes from the
 * functions that allocate (nb_engine_plan_memory); on a GPU, where weights take another form, it is an
 * estimate, and a cell that turns out not to fit is told when it does.  Prompts are timed at the end of the
 * context: the last tokens of a prompt as long as that. */
#include <stdlib.h>
#include <string.h>

#include "../cli.h"
#include "../options/opts.h"
#include "../serve/serve_setup.h"
#include "bench_list.h"
#include "bench_points.h"
#include "bench_result.h"
#include "num/record.h"

static const char *const records[] = { NB_KV_NAMES NULL };
static const double SHARE = 0.9; /* of the memory, without --memory */
static const double HOUR_S = 3600, MILLION = 1e6;

typedef struct cell {
    size_t context, at_once;
    size_t
        depth; /* of the sequences: the context, less what is generated where the model ends there */
    uint64_t need_bytes;
    enum { FITS, TOO_LONG, NO_MEMORY } state;
    double rate, prefill_rate; /* tokens/s; 0: not measured */
    nb_kbench_spread step;     /* seconds */
} cell;

typedef struct matrix {
    const opts *o;
    const bench_opts *b;
    bench_words record;
    bench_counts context, at_once;
    bench_doc doc;
    char model[72];
    json_t *results, *cells;
    bool failed, begun;
    /* of the record in hand */
    opts own; /* with its record */
    cell cell[BENCH_MAX_LIST * BENCH_MAX_LIST];
    size_t n_cell, max_len; /* max_len: the model's */
    bool is_gpu, other_weights;
    uint64_t budget;
    nb_engine_options engine;
    nb_memory_plan plan;
    bench_points p;
} matrix;

/* ---- options --------------------------------------------------------------------- */

static int read_options(matrix *x)
{
    const bench_opts *b = x->b;
    bench_words bad = { 0 };
    if (!bench_words_parse(b->records, records, &x->record, &bad))
        return cli_usage("--kv-cache-dtype %.100s: expected all, or some of%s",
                         bad.n ? bad.word[0] : b->records, NB_KV_LIST + 1);
    if (!bench_counts_parse(b->contexts, 2 * BENCH_PAGE, 1 << 24, &x->context))
        return cli_usage("--context %.100s: expected at most %d numbers in 128..16m, such as "
                         "4k,32k,128k",
                         b->contexts, (int)BENCH_MAX_LIST);
    if (!bench_counts_parse(b->concurrency, 1, 1024, &x->at_once))
        return cli_usage("--concurrency %.100s: expected at most %d numbers in 1..1024, such as "
                         "1,8,16",
                         b->concurrency, (int)BENCH_MAX_LIST);
    for (size_t i = 0; i < x->context.n; i++)
        x->context.count[i] -= x->context.count[i] % BENCH_PAGE;
    return CLI_OK;
}

/* Prompt tokens that are timed at a context; 0: none. */
static size_t prefill_of(const matrix *x, size_t context)
{
    const size_t n = x->b->matrix_prefill - x->b->matrix_prefill % BENCH_PAGE;
    return n < context ? n : context - BENCH_PAGE;
}

/* ---- what fits ------------------------------------------------------------------------ */

static size_t generated(const matrix *x)
{
    return 2 * x->b->point_tokens; /* bench_points_decode, of several sequences */
}

static size_t blocks_of(const matrix *x, const cell *c)
{
    return bench_points_blocks(c->depth, generated(x), c->at_once) +
           4 * (prefill_of(x, c->context) / BENCH_PAGE + 1);
}

/* The plan for at most n_seq sequences: into x->engine and x->plan. */
static int plan(matrix *x, size_t n_seq)
{
    const bench_points_spec s = { .max_seqs = n_seq };
    nb_device_info device;
    nb_error err = { 0 };
    const int code = bench_points_options(&x->own, &s, &x->engine, &device);
    if (code != CLI_OK) return code;
    const nb_status st = nb_engine_plan_memory(&x->engine, &x->plan, &err);
    if (st != NB_OK) return cli_status(st, &err);
    x->is_gpu = device.is_gpu;
    const uint64_t all = device.is_gpu ? device.free_bytes : x->plan.memory_bytes;
    x->budget = x->b->memory_bytes ? x->b->memory_bytes
                : all              ? (uint64_t)(SHARE * (double)all)
                                   : UINT64_MAX;
    x->max_len = x->plan.max_model_len;
    /* On a CPU the random weights of a model share a pool, however many they are. */
    x->other_weights = !device.is_gpu && strcmp(x->own.load_format, "dummy") == 0;
    return CLI_OK;
}

static void judge(matrix *x, cell *c)
{
    const uint64_t block = x->plan.block_bytes + x->plan.residual_block_bytes;
    const size_t room = bench_points_len(0, generated(x));
    c->state = FITS;
    c->need_bytes = 0;
    if (c->context > x->max_len || x->max_len < room + 2 * BENCH_PAGE) {
        c->state = TOO_LONG;
        return;
    }
    c->depth = c->context + room <= x->max_len ? c->context : x->max_len - room;
    c->depth -= c->depth % BENCH_PAGE;
    c->need_bytes = x->plan.workspace_bytes + x->plan.tail_bytes + blocks_of(x, c) * block +
                    (x->other_weights ? 0 : x->plan.weight_bytes);
    if (c->need_bytes > x->budget) c->state = NO_MEMORY;
}

static size_t count(const matrix *x, size_t at_once)
{
    size_t n = 0;
    for (size_t i = 0; i < x->n_cell; i++)
        n += x->cell[i].state == FITS && (!at_once || x->cell[i].at_once == at_once);
    return n;
}

/* All cells of a record, and a plan for the largest number of sequences with one that fits. */
static int make_cells(matrix *x)
{
    size_t most = 0;
    x->n_cell = 0;
    for (size_t i = 0; i < x->context.n; i++)
        for (size_t k = 0; k < x->at_once.n; k++) {
            x->cell[x->n_cell++] =
                (cell){ .context = x->context.count[i], .at_once = x->at_once.count[k] };
            if (x->at_once.count[k] > most) most = x->at_once.count[k];
        }
    while (most) {
        const int code = plan(x, most);
        if (code != CLI_OK) return code;
        size_t next = 0;
        for (size_t i = 0; i < x->n_cell; i++) {
            cell *c = &x->cell[i];
            if (c->at_once > most) continue; /* judged by a plan of their own */
            judge(x, c);
            if (c->at_once < most && c->at_once > next) next = c->at_once;
        }
        if (count(x, most)) break;
        most = next;
    }
    return CLI_OK;
}

/* ---- results ----------------------------------------------------------------------------- */

static double cost(const matrix *x, double rate)
{
    return x->b->price > 0 && rate > 0 ? x->b->price / (rate * HOUR_S) * MILLION : 0;
}

static void number(double v, const char *form, char out[24])
{
    (void)snprintf(out, 24, "-");
    if (v > 0) (void)snprintf(out, 24, form, v); // NOLINT(clang-diagnostic-format-nonliteral)
}

static void header(matrix *x)
{
    char have[CLI_FIGURE_BYTES];
    if (x->begun || x->o->json) return;
    x->begun = true;
    bench_machine_print(stdout, &x->doc.machine);
    cli_bytes_text((double)x->budget, have, sizeof have);
    (void)printf("model %s; memory that may be used: %s; decode: %zu tokens of each sequence, "
                 "contexts %s; prefill: the last %zu tokens of a prompt of the context\n",
                 x->o->model, x->budget == UINT64_MAX ? "unknown" : have, x->b->point_tokens,
                 x->b->fill ? "filled with copies of 8 pages" : "computed", x->b->matrix_prefill);
    if (x->b->price > 0)
        (void)printf("price %g an hour; cost per million tokens = price / (tokens/s * 3600) * "
                     "1,000,000\n",
                     x->b->price);
    (void)printf("%-16s %-10s %8s %6s %10s %10s %8s %10s %10s %10s %10s\n", "device", "record",
                 "context", "users", "decode t/s", "per user", "step ms", "spread", "prefill t/s",
                 "cost/M out", "cost/M in");
}

static void print_cell(matrix *x, const char *record, const cell *c)
{
    char rate[24], each[24], ms[24], mad[24], prompt[24], out[24], in[24];
    char need[CLI_FIGURE_BYTES], have[CLI_FIGURE_BYTES];
    header(x);
    (void)printf("%-16.16s %-10s %8zu %6zu ", x->p.engine ? x->p.info.device : "", record,
                 c->context, c->at_once);
    if (c->state == TOO_LONG) {
        (void)printf("longer than the model's %zu tokens\n", x->max_len);
    } else if (c->state == NO_MEMORY) {
        cli_bytes_text((double)c->need_bytes, need, sizeof need);
        cli_bytes_text((double)x->budget, have, sizeof have);
        (void)printf("does not fit: needs %s (%llu bytes) of %s\n", need,
                     (unsigned long long)c->need_bytes, have);
    } else {
        number(c->rate, "%.2f", rate);
        number(c->rate / (double)c->at_once, "%.2f", each);
        number(c->step.median * 1e3, "%.2f", ms);
        number(c->step.median > 0 ? 148.26 * c->step.mad / c->step.median : 0, "%.1f%%", mad);
        number(c->prefill_rate, "%.1f", prompt);
        number(cost(x, c->rate), "%.3f", out);
        number(cost(x, c->prefill_rate), "%.3f", in);
        (void)printf("%10s %10s %8s %10s %10s %10s %10s\n", rate, each, ms, mad, prompt, out, in);
    }
    (void)fflush(stdout);
}

static json_t *positive(double v)
{
    return v > 0 ? json_real(v) : json_null();
}

static void keep_cell(matrix *x, const char *record, const cell *c)
{
    static const char *const states[] = { "measured", "longer than the model's context",
                                          "does not fit" };
    json_t *j = json_pack(
        "{s:s, s:I, s:I, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "record", record, "context",
        (json_int_t)c->context, "concurrency", (json_int_t)c->at_once, "state", states[c->state],
        "depth", c->state == FITS ? json_integer((json_int_t)c->depth) : json_null(),
        "bytes_needed", c->need_bytes ? json_integer((json_int_t)c->need_bytes) : json_null(),
        "tokens_per_second", positive(c->rate), "step_ms", positive(c->step.median * 1e3),
        "prefill_tokens_per_second", positive(c->prefill_rate), "cost_per_million_out",
        positive(cost(x, c->rate)), "cost_per_million_in", positive(cost(x, c->prefill_rate)));
    x->failed |= !j || json_array_append_new(x->cells, j) != 0;
}

static void tell(matrix *x, const char *record, const cell *c)
{
    if (x->o->json)
        keep_cell(x, record, c);
    else
        print_cell(x, record, c);
}

static void keep_row(matrix *x, const char *name, const nb_kbench_spread *s)
{
    const nb_kbench_spread ms = { s->median * 1e3, s->mad * 1e3, s->lo * 1e3, s->hi * 1e3, s->n };
    if (x->o->json) x->failed |= !bench_row_add(x->results, NULL, name, "ms", false, &ms);
}

/* ---- measuring ------------------------------------------------------------------------------ */

/* An engine for the cells that fit; those that turn out not to are taken out, the largest first. */
static int open_engine(matrix *x)
{
    nb_error err = { 0 };
    while (count(x, 0)) {
        bench_points_spec s = { .seed = x->b->seed, .fill = x->b->fill };
        cell *largest = NULL;
        for (size_t i = 0; i < x->n_cell; i++) {
            cell *c = &x->cell[i];
            if (c->state != FITS) continue;
            const size_t len = bench_points_len(c->depth, generated(x));
            if (len > s.max_model_len) s.max_model_len = len;
            if (c->context > s.max_model_len) s.max_model_len = c->context;
            if (c->at_once > s.max_seqs) s.max_seqs = c->at_once;
            if (blocks_of(x, c) > s.pool_blocks) s.pool_blocks = blocks_of(x, c);
            if (!largest || c->need_bytes > largest->need_bytes) largest = c;
        }
        x->engine.max_model_len = s.max_model_len;
        x->engine.max_num_seqs = s.max_seqs;
        x->engine.kv_cache_bytes = s.pool_blocks * x->plan.block_bytes;
        const nb_status st = bench_points_init(&x->p, &s, &x->engine, &err);
        if (st == NB_OK) return CLI_OK;
        bench_points_deinit(&x->p);
        if (st != NB_ERR_NOMEM) return cli_status(st, &err);
        cli_note("%zu sequences of %zu tokens: %s", largest->at_once, largest->context, err.msg);
        largest->state = NO_MEMORY;
    }
    return CLI_OK;
}

static int measure_cell(matrix *x, cell *c)
{
    char name[BENCH_POINT_NAME];
    const int code = bench_points_decode(&x->p, c->depth, c->at_once, x->b->point_tokens, &c->step);
    if (code != CLI_OK) return code;
    c->rate = (double)c->at_once / c->step.median;
    bench_decode_name(x->model, &x->p, c->depth, c->at_once, name);
    keep_row(x, name, &c->step);
    return CLI_OK;
}

/* Once a context: its first cell that fits; the others of the context take the figure over. */
static int measure_prefill(matrix *x, const cell *c, double *rate)
{
    const size_t n = prefill_of(x, c->context);
    char name[BENCH_POINT_NAME];
    nb_kbench_spread s;
    if (n == 0) return CLI_OK;
    const int code = bench_points_prefill(&x->p, c->context - n, n, x->b->repeat, &s);
    if (code != CLI_OK) return code;
    *rate = (double)n / s.median;
    bench_prefill_name(x->model, &x->p, c->context - n, n, name);
    keep_row(x, name, &s);
    return CLI_OK;
}

static int run_record(matrix *x, const char *record)
{
    double rate = 0;
    size_t context = 0; /* whose prefill rate that is */
    x->own = *x->o;
    x->own.kv_cache_dtype = record;
    int code = make_cells(x);
    if (code == CLI_OK) code = open_engine(x);
    for (size_t i = 0; i < x->n_cell && code == CLI_OK; i++) {
        cell *c = &x->cell[i];
        if (c->state == FITS && c->context != context) {
            context = c->context;
            rate = 0;
            code = measure_prefill(x, c, &rate);
        }
        if (c->state == FITS && code == CLI_OK) code = measure_cell(x, c);
        c->prefill_rate = c->state == FITS ? rate : 0;
        if (code == CLI_OK) tell(x, record, c);
    }
    return code;
}

static int run_all(matrix *x)
{
    json_t *info = NULL;
    int code = CLI_OK;
    for (size_t i = 0; i < x->record.n && code == CLI_OK; i++) {
        code = run_record(x, x->record.word[i]);
        if (code == CLI_OK && x->p.engine && !info)
            info = json_pack("{s:s, s:s, s:I, s:I}", "device", x->p.info.device, "weights",
                             x->p.info.weights, "weight_bytes", (json_int_t)x->p.info.weight_bytes,
                             "threads", (json_int_t)x->p.info.n_thread);
        bench_points_deinit(&x->p);
    }
    if (code == CLI_OK && x->failed) code = cli_failed("no memory for the results");
    if (code != CLI_OK || !x->o->json) {
        json_decref(info);
        return code;
    }
    json_t *j = json_pack(
        "{s:s, s:o, s:o, s:b, s:I, s:O, s:O}", "model", x->o->model, "price", positive(x->b->price),
        "memory_bytes", x->budget == UINT64_MAX ? json_null() : json_integer((json_int_t)x->budget),
        "filled", (int)x->b->fill, "seed", (json_int_t)x->b->seed, "cells", x->cells, "results",
        x->results);
    if (j && info && json_object_update(j, info) != 0) x->failed = true;
    json_decref(info);
    return bench_doc_print(&x->doc, bench_doc_head(&x->doc, "bench matrix", &x->b->metadata), j);
}

int cmd_bench_matrix(const struct opts *o)
{
    matrix *x = calloc(1, sizeof *x);
    if (!x) return cli_failed("out of memory");
    x->o = o;
    x->b = &o->bench;
    int code = bench_doc_check_metadata(&x->b->metadata);
    if (code == CLI_OK) code = read_options(x);
    if (code == CLI_OK) {
        bench_model_name(o->model, x->model, sizeof x->model);
        bench_doc_begin(&x->doc);
        x->results = json_array();
        x->cells = json_array();
        code = x->results && x->cells ? run_all(x) : cli_failed("out of memory");
    }
    bench_points_deinit(&x->p);
    json_decref(x->results);
    json_decref(x->cells);
    free(x);
    return code;
}
