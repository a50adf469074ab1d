/* bench_load.c - `nibble bench load`: how long a model takes from its files to the first token.
 *
 * A load is what `nibble serve` does: tokenizer, engine with a pool as large as there, one token.  The
 * phases are told apart by the engine's progress: before the first of it files are opened,
 * headers checked, tensors found and mapped; then the files are read (or quantised while reading); the
 * rest is workspace and pool, on a GPU also the upload.  Before a cold load the system is asked to forget
 * the files; beside it stands what a plain read of the same files takes, in turns, so that neither
 * always comes after the other. */
#include <stdlib.h>
#include <string.h>

#include "../cli.h"
#include "../options/opts.h"
#include "../serve/serve_setup.h"
#include "bench_files.h"
#include "bench_result.h"

enum { TOKENIZER, OPEN, READ, CONVERT, POOL, FIRST, TOTAL, RATE, PLAIN, PEAK, N_FIGURE };
enum { COLD, WARM, N_STATE };
enum { MIB = 1 << 20 };
static const double KEPT = 0.05; /* more than this part still in the cache: not cold */

static const struct {
    const char *name, *what, *unit;
} figures[N_FIGURE] = {
    [TOKENIZER] = { "tokenizer", "tokenizer and template", "ms" },
    [OPEN] = { "open", "open, check, map", "ms" },
    [READ] = { "read", "read the weights", "ms" },
    [CONVERT] = { "convert", "quantise the weights", "ms" },
    [POOL] = { "pool", "workspace and pool", "ms" },
    [FIRST] = { "first token", "first token", "ms" },
    [TOTAL] = { "total", "total", "ms" },
    [RATE] = { "files", "open, read and quantise", "MiB/s" },
    [PLAIN] = { "plain read", "plain read of the files", "MiB/s" },
    [PEAK] = { "peak", "peak resident memory", "MiB" },
};
static const char *const states[N_STATE] = { "cold", "warm" };

typedef struct load_bench {
    const opts *o;
    bench_files files;
    serve_setup setup;
    bench_doc doc;
    nb_engine_info info; /* of the first load; its words are copied */
    char weights[16], kv_dtype[16], device[96], model[72];
    double *v[N_STATE][N_FIGURE]; /* [runs] */
    double resident;              /* the most after a drop; -1: unknown */
    bool want[N_STATE];
} load_bench;

/* ---- one load ---------------------------------------------------------------- */

/* When the phases of a load began and ended; 0: not there. */
typedef struct marks {
    double first, read_end, convert_begin, convert_end;
    bool read;
} marks;

static void on_progress(void *ctx, const char *label, uint64_t done, uint64_t total)
{
    marks *m = ctx;
    const double now = cli_seconds();
    (void)done;
    if (total == 0) return; /* phases without a measure */
    if (m->first == 0) m->first = now;
    if (strcmp(label, "quantising weights") == 0) {
        if (m->convert_begin == 0) m->convert_begin = now;
        m->convert_end = now;
    } else if (strcmp(label, "reading weights") ==
               0) { /* what else there is are workspace and cache */
        m->read = true;
        m->read_end = now;
    }
}

/* From now on the peak counts anew, where the system lets us. */
static void reset_peak(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "w");
    if (!f) return;
    (void)fputs("5", f);
    (void)fclose(f);
}

static nb_status first_token(nb_engine *e, nb_error *err)
{
    const uint32_t id = 0;
    nb_result r = { 0 };
    nb_request rq = { .prompt = &id, .n_prompt = 1 };
    nb_sampling_default(&rq.sampling);
    rq.sampling.temperature = 0;
    rq.sampling.max_tokens = 1;
    rq.sampling.ignore_eos = true;
    const nb_status st = nb_generate(e, &rq, &r, err);
    nb_result_deinit(&r);
    return st;
}

static void keep_info(load_bench *x, const nb_engine *e)
{
    nb_engine_get_info(e, &x->info);
    (void)snprintf(x->weights, sizeof x->weights, "%s", x->info.weights);
    (void)snprintf(x->kv_dtype, sizeof x->kv_dtype, "%s", x->info.kv_dtype);
    (void)snprintf(x->device, sizeof x->device, "%s", x->info.device);
}

/* Figures of one load but PLAIN; v may be NULL. */
static int load(load_bench *x, double *v)
{
    nb_engine_options e = x->setup.engine;
    nb_engine *engine = NULL;
    nb_text *text = NULL;
    nb_error err = { 0 };
    marks m = { 0 };
    nb_status st = NB_OK;
    reset_peak();
    const double begin = cli_seconds();
    if (!e.no_text && x->files.n_weights)
        st = nb_text_create(e.model, e.chat_template, &text, &err);
    if (st == NB_ERR_NOT_FOUND && !e.chat_template) st = NB_OK; /* as the engine: only ids then */
    const double with_text = cli_seconds();
    e.no_text = true;
    e.progress = on_progress;
    e.progress_ctx = &m;
    if (st == NB_OK) st = nb_engine_create(&e, &engine, &err);
    const double ready = cli_seconds();
    if (st == NB_OK) st = first_token(engine, &err);
    const double end = cli_seconds();
    if (st == NB_OK && !x->info.n_thread) keep_info(x, engine);
    if (st == NB_OK && v) {
        const double loaded = m.convert_end > 0 ? m.convert_end : m.read ? m.read_end : m.first;
        v[TOKENIZER] = text ? with_text - begin : 0;
        v[OPEN] = (m.first > 0 ? m.first : ready) - with_text;
        v[READ] = m.read ? m.read_end - m.first : 0;
        v[CONVERT] = m.convert_end - m.convert_begin;
        v[POOL] = m.first > 0 ? ready - loaded : 0;
        v[FIRST] = end - ready;
        v[TOTAL] = end - begin;
        const double s = v[OPEN] + v[READ] + v[CONVERT];
        v[RATE] = s > 0 ? (double)x->files.weight_bytes / MIB / s : 0;
        v[PEAK] = (double)bench_peak_bytes() / MIB;
    }
    nb_engine_destroy(engine);
    nb_text_destroy(text);
    return st == NB_OK ? CLI_OK : cli_status(st, &err);
}

/* ---- all loads ---------------------------------------------------------------- */

static int drop(load_bench *x)
{
    double part;
    const int code = bench_files_drop(&x->files, &part);
    if (code == CLI_OK && (part < 0 || part > x->resident)) x->resident = part;
    return code;
}

static int plain(load_bench *x, int state, double *mib_per_s)
{
    double s = 0;
    int code = state == COLD ? drop(x) : CLI_OK;
    if (code == CLI_OK) code = bench_files_read(&x->files, &s);
    *mib_per_s = s > 0 ? (double)x->files.weight_bytes / MIB / s : 0;
    return code;
}

static int one_run(load_bench *x, int state, size_t k)
{
    double v[N_FIGURE] = { 0 };
    int code = CLI_OK;
    if (k % 2 == 0) code = plain(x, state, &v[PLAIN]);
    if (code == CLI_OK && state == COLD) code = drop(x);
    const double rate = v[PLAIN];
    if (code == CLI_OK) code = load(x, v);
    v[PLAIN] = rate;
    if (code == CLI_OK && k % 2 == 1) code = plain(x, state, &v[PLAIN]);
    for (int i = 0; i < N_FIGURE; i++) x->v[state][i][k] = i < RATE ? v[i] * 1e3 : v[i];
    return code;
}

static int all_runs(load_bench *x)
{
    const size_t n = x->o->bench.runs;
    int code = load(x, NULL); /* warms up, and finds out whether it loads at all */
    for (int s = 0; s < N_STATE && code == CLI_OK; s++)
        for (int i = 0; i < N_FIGURE && code == CLI_OK; i++)
            if (!(x->v[s][i] = calloc(n, sizeof(double)))) code = cli_failed("out of memory");
    for (size_t k = 0; k < n && code == CLI_OK; k++) {
        cli_progress(NULL, "loading", k, n);
        for (int s = 0; s < N_STATE && code == CLI_OK; s++)
            if (x->want[s]) code = one_run(x, s, k);
    }
    cli_progress_end();
    return code;
}

/* ---- results -------------------------------------------------------------------- */

static bool has(const nb_kbench_spread *s)
{
    return s->hi > 0;
}

static void print(load_bench *x, nb_kbench_spread s[N_STATE][N_FIGURE])
{
    bench_machine_print(stdout, &x->doc.machine);
    (void)printf("model %s: %zu files with weights, %.1f MiB, %s; cache %s, pool %.1f MiB, "
                 "workspace %.1f MiB; %s, %zu threads\n",
                 x->o->model, x->files.n_weights, (double)x->files.weight_bytes / MIB, x->weights,
                 x->kv_dtype, (double)x->info.kv_pool_bytes / MIB,
                 (double)x->info.workspace_bytes / MIB, x->device, x->info.n_thread);
    if (x->want[COLD] && x->resident >= 0)
        (void)printf("cold: after the files were dropped at most %.0f%% of them were still in the "
                     "system's cache%s\n",
                     x->resident * 100, x->resident > KEPT ? ": NOT COLD" : "");
    else if (x->want[COLD])
        (void)printf("cold: whether the files were dropped cannot be told here\n");
    for (int k = 0; k < N_STATE; k++) {
        if (!x->want[k]) continue;
        (void)printf("%s, medians of %zu\n", states[k], x->o->bench.runs);
        for (int i = 0; i < N_FIGURE; i++) {
            const nb_kbench_spread *t = &s[k][i];
            if (!has(t)) continue;
            (void)printf("  %-26s %10.2f %-5s  %.2f to %.2f\n", figures[i].what, t->median,
                         figures[i].unit, t->lo, t->hi);
        }
    }
}

static int print_json(load_bench *x, nb_kbench_spread s[N_STATE][N_FIGURE])
{
    json_t *rows = json_array();
    bool ok = rows != NULL;
    char name[256];
    for (int k = 0; k < N_STATE; k++)
        for (int i = 0; i < N_FIGURE; i++) {
            const bool rate = i == PLAIN || i == RATE;
            if (!ok || !x->want[k] || !has(&s[k][i])) continue;
            (void)snprintf(name, sizeof name, "load %s %s %s %s %s threads=%zu", states[k],
                           figures[i].name, x->model, x->weights, x->kv_dtype, x->info.n_thread);
            ok = bench_row_add(rows, NULL, name, figures[i].unit, rate, &s[k][i]);
        }
    const bool told = x->want[COLD] && x->resident >= 0;
    json_t *j =
        ok ? json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:{s:o, s:o}, s:o}",
                       "model", x->o->model, "weights", x->weights, "kv_cache_dtype", x->kv_dtype,
                       "device", x->device, "files", (json_int_t)x->files.n_weights, "file_bytes",
                       (json_int_t)x->files.weight_bytes, "pool_bytes",
                       (json_int_t)x->info.kv_pool_bytes, "workspace_bytes",
                       (json_int_t)x->info.workspace_bytes, "threads", (json_int_t)x->info.n_thread,
                       "repeats", (json_int_t)x->o->bench.runs, "cold", "dropped",
                       told ? json_boolean(x->resident <= KEPT) : json_null(), "resident",
                       told ? json_real(x->resident) : json_null(), "results", rows)
           : NULL;
    if (!ok) json_decref(rows);
    return bench_doc_print(&x->doc, bench_doc_head(&x->doc, "bench load", &x->o->bench.metadata),
                           j);
}

static int setup(load_bench *x)
{
    opts full = *x->o; /* what only `serve` has options for */
    full.serve.log_format = "text";
    full.serve.generation_config = "vllm";
    int code = bench_files_list(x->o->path, &x->files);
    if (code == CLI_OK) code = serve_setup_init(&full, &x->setup);
    if (x->setup.warning[0]) cli_note("warning: %s", x->setup.warning);
    return code;
}

int cmd_bench_load(const struct opts *o)
{
    load_bench x = { .o = o };
    nb_kbench_spread s[N_STATE][N_FIGURE] = { 0 };
    int code = bench_doc_check_metadata(&o->bench.metadata);
    if (code != CLI_OK) return code;
    x.want[COLD] = strcmp(o->bench.cache, "warm") != 0;
    x.want[WARM] = strcmp(o->bench.cache, "cold") != 0;
    bench_model_name(o->model, x.model, sizeof x.model);
    bench_doc_begin(&x.doc);
    code = setup(&x);
    if (code == CLI_OK && !x.files.n_weights) { /* random weights: no files to be cold */
        x.want[COLD] = false;
        x.want[WARM] = true;
    }
    if (code == CLI_OK) code = all_runs(&x);
    for (int k = 0; k < N_STATE && code == CLI_OK; k++)
        for (int i = 0; i < N_FIGURE; i++) nb_kbench_spread_of(x.v[k][i], o->bench.runs, &s[k][i]);
    if (code == CLI_OK) {
        if (o->json)
            code = print_json(&x, s);
        else
            print(&x, s);
    }
    for (int k = 0; k < N_STATE; k++)
        for (int i = 0; i < N_FIGURE; i++) free(x.v[k][i]);
    serve_setup_deinit(&x.setup);
    bench_files_deinit(&x.files);
    return code;
}
