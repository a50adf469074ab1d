/* bench_depth.c - `nibble bench throughput --depth`: tokens per second at given depths.
 *
 * Each sequence has random token ids of its own, from --seed.  Its first 512 tokens are computed; the
 * pages behind them, to the depth, are copies of theirs (nb_engine_fill), or are computed, too
 * (--no-depth-fill).  Either way they lie in the prefix cache, and every point is an ordinary
 * request that finds them: one that generates, its tokens timed one by one, or one whose prompt goes on
 * with --depth-prefill new tokens.  Batches are of different sequences: they share no page. */
#include "bench_depth.h"

#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "bench_list.h"
#include "bench_machine.h"
#include "cli.h"
#include "eval/bench_kernel.h"
#include "nibble/measure.h"

enum { PAGE = 64, COMPUTED = 512 };

typedef struct depth_bench {
    const opts *o;
    const bench_opts *b;
    bench_counts depth, prefill, batch;
    size_t max_depth, max_prefill, max_batch, n_vocab;
    nb_engine *engine;
    nb_engine_info info;
    bench_machine machine;
    uint32_t *ids; /* [max_depth + max_prefill + PAGE] */
    json_t *decode, *prompt;
    double one_s; /* of the depth in hand: time of a token of a single sequence; 0: unknown */
    bool failed;
    /* of a batch */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t n_active;
    nb_status st;
    nb_error err;
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
    if (!bench_counts_parse(b->depth, PAGE, 1 << 24, &x->depth))
        return cli_usage(
            "--depth %s: expected at most %d numbers of 64 or more, such as 512,4k,32k", b->depth,
            (int)BENCH_MAX_LIST);
    if (b->prefill && !bench_counts_parse(b->prefill, PAGE, 65536, &x->prefill))
        return cli_usage("--depth-prefill %s: expected at most %d numbers in 64..64k", b->prefill,
                         (int)BENCH_MAX_LIST);
    if (!bench_counts_parse(b->batch ? b->batch : "1", 1, 1024, &x->batch))
        return cli_usage("--depth-batch %s: expected at most %d numbers in 1..1024", b->batch,
                         (int)BENCH_MAX_LIST);
    if (!x->o->serve.prefix_caching)
        return cli_usage("--depth: contexts lie in the prefix cache, which is switched off");
    if (b->point_tokens == 1)
        return cli_usage("--depth-tokens 1: expected 0, or 2 and more: gaps are timed");
    for (size_t i = 0; i < x->depth.n; i++) x->depth.count[i] -= x->depth.count[i] % PAGE;
    for (size_t i = 0; i < x->prefill.n; i++) x->prefill.count[i] -= x->prefill.count[i] % PAGE;
    x->max_depth = largest(&x->depth);
    x->max_prefill = largest(&x->prefill);
    x->max_batch = b->point_tokens ? largest(&x->batch) : 1;
    return CLI_OK;
}

static int open_engine(depth_bench *x)
{
    nb_engine_options e = opts_engine(x->o);
    nb_memory_plan plan;
    nb_error err = { 0 };
    nb_device_info device;
    const size_t more = x->max_prefill > x->b->point_tokens ? x->max_prefill : x->b->point_tokens;
    e.no_text = true;
    e.max_model_len = x->max_depth + more + 2 * PAGE;
    nb_status st = nb_engine_find_device(&e, &device, &err);
    if (st != NB_OK) return cli_status(st, &err);
    const size_t step = opts_step_tok(x->o, device.is_gpu);
    e.max_num_batched_tokens = step;
    e.prefill_chunk = e.max_chunk_tok = step;
    e.max_num_seqs = x->max_batch;
    if (step < x->max_batch)
        return cli_usage("--max-num-batched-tokens %zu: fewer than sequences (--depth-batch)",
                         step);
    st = nb_engine_plan_memory(&e, &plan, &err);
    if (st != NB_OK) return cli_status(st, &err);
    const size_t blocks = e.max_model_len / PAGE + 2;
    /* Prompts that were timed stay behind; without room for them they push nothing else out. */
    e.kv_cache_bytes = (x->max_batch * blocks + 4 * (x->max_prefill / PAGE + 1)) * plan.block_bytes;
    e.progress = cli_progress;
    st = nb_engine_create(&e, &x->engine, &err);
    cli_progress_end();
    if (st != NB_OK) return cli_status(st, &err);
    nb_engine_get_info(x->engine, &x->info);
    x->n_vocab = x->info.vocab;
    x->ids = malloc((e.max_model_len + PAGE) * sizeof *x->ids);
    return x->ids ? CLI_OK : cli_failed("out of memory");
}

/* ---- contexts ------------------------------------------------------------------- */

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u; /* SplitMix64 */
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Tokens [from, to) of sequence `seq` into ids. */
static void draw(depth_bench *x, uint64_t seq, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        x->ids[i] = (uint32_t)(mix(mix(x->b->seed ^ mix(seq)) + i) % x->n_vocab);
}

static nb_sampling sampling(size_t n_tok)
{
    nb_sampling s;
    nb_sampling_default(&s);
    s.temperature = 0;
    s.max_tokens = n_tok;
    s.ignore_eos = true;
    return s;
}

/* The prompt of n_tok ids is computed, from where the cache ends; seconds into *s. */
static int compute(depth_bench *x, size_t n_tok, double *s)
{
    nb_error err = { 0 };
    nb_result r = { 0 };
    const nb_request rq = { .prompt = x->ids, .n_prompt = n_tok, .sampling = sampling(0) };
    const nb_status st = nb_generate(x->engine, &rq, &r, &err);
    if (s) *s = r.prefill_s;
    nb_result_deinit(&r);
    return st == NB_OK ? CLI_OK : cli_status(st, &err);
}

/* ids[0, depth) are those of `seq`, and their pages are in the cache. */
static int prepare(depth_bench *x, size_t seq, size_t depth)
{
    nb_error err = { 0 };
    draw(x, seq, 0, depth);
    /* One token more: the last of a prompt is always computed anew. */
    const size_t n = x->b->fill && depth > COMPUTED ? COMPUTED : depth;
    int code = compute(x, n, NULL);
    if (code != CLI_OK || n == depth) return code;
    const nb_status st = nb_engine_fill(x->engine, x->ids, depth, &err);
    return st == NB_OK ? CLI_OK : cli_status(st, &err);
}

/* ---- generating ------------------------------------------------------------------- */

typedef struct ticket {
    depth_bench *x;
    depth_times t;
} ticket;

static int on_token(void *ctx, const nb_token_event *ev)
{
    ticket *t = ctx;
    (void)ev;
    if (t->t.n < t->t.cap) t->t.at_s[t->t.n++] = cli_seconds();
    return 0;
}

static void on_done(void *ctx, nb_status st, const nb_result *r, const nb_error *err)
{
    depth_bench *x = ((ticket *)ctx)->x;
    (void)r;
    (void)pthread_mutex_lock(&x->lock);
    if (st != NB_OK && x->st == NB_OK) {
        x->st = st;
        x->err = *err;
    }
    x->n_active--;
    (void)pthread_cond_signal(&x->changed);
    (void)pthread_mutex_unlock(&x->lock);
}

static int generate(depth_bench *x, size_t depth, size_t n_seq, ticket *t)
{
    int code = CLI_OK;
    x->st = NB_OK;
    for (size_t i = 0; i < n_seq && code == CLI_OK; i++) code = prepare(x, i, depth);
    for (size_t i = 0; i < n_seq && code == CLI_OK; i++) {
        nb_request_id id;
        nb_error err = { 0 };
        draw(x, i, 0, depth);
        x->ids[depth] = 0; /* computed: the first token comes after it */
        const nb_request rq = { .prompt = x->ids,
                                .n_prompt = depth + 1,
                                .sampling = sampling(t[i].t.cap),
                                .on_token = on_token,
                                .on_token_ctx = &t[i],
                                .on_done = on_done };
        (void)pthread_mutex_lock(&x->lock);
        x->n_active++;
        (void)pthread_mutex_unlock(&x->lock);
        const nb_status st = nb_engine_submit(x->engine, &rq, &id, &err);
        if (st == NB_OK) continue;
        code = cli_status(st, &err);
        (void)pthread_mutex_lock(&x->lock);
        x->n_active--;
        (void)pthread_mutex_unlock(&x->lock);
    }
    (void)pthread_mutex_lock(&x->lock);
    while (x->n_active) (void)pthread_cond_wait(&x->changed, &x->lock);
    (void)pthread_mutex_unlock(&x->lock);
    return code == CLI_OK && x->st != NB_OK ? cli_status(x->st, &x->err) : code;
}

static void report_decode(depth_bench *x, size_t depth, size_t n_seq, double median_s,
                          double best_s, size_t n_gap)
{
    const double rate = (double)n_seq / median_s;
    const double kv = x->info.kv_bytes_per_tok * (double)(depth * n_seq);
    if (n_seq == 1) x->one_s = median_s;
    const double gain = x->one_s > 0 ? rate * x->one_s : 0;
    if (!x->o->json) {
        (void)printf("decode  %8zu %6zu %9.2f %11.3f %11.3f %8zu %8.2f %10.1f %10.1f\n", depth,
                     n_seq, rate, median_s * 1e3, best_s * 1e3, n_gap, gain, kv / (1 << 20),
                     (double)bench_peak_bytes() / (1 << 20));
        (void)fflush(stdout);
        return;
    }
    json_t *j =
        json_pack("{s:I, s:I, s:f, s:f, s:f, s:I, s:f, s:f, s:I}", "depth", (json_int_t)depth,
                  "sequences", (json_int_t)n_seq, "tokens_per_second", rate, "median_ms",
                  median_s * 1e3, "best_ms", best_s * 1e3, "samples", (json_int_t)n_gap, "over_one",
                  gain, "kv_bytes", kv, "peak_bytes", (json_int_t)bench_peak_bytes());
    x->failed |= !j || json_array_append_new(x->decode, j) != 0;
}

static int decode_point(depth_bench *x, size_t depth, size_t n_seq)
{
    /* Sequences that begin earlier wait for nobody: twice the tokens, of which the common time counts. */
    const size_t n_tok = n_seq > 1 ? 2 * x->b->point_tokens : x->b->point_tokens + 1;
    ticket *t = calloc(n_seq, sizeof *t);
    double *at = calloc(2 * n_seq * n_tok, sizeof *at), median_s, best_s;
    size_t n_gap;
    int code = t && at ? CLI_OK : cli_failed("out of memory");
    for (size_t i = 0; i < n_seq && code == CLI_OK; i++)
        t[i] = (ticket){ x, { at + i * n_tok, 0, n_tok } };
    if (code == CLI_OK) code = generate(x, depth, n_seq, t);
    if (code == CLI_OK) {
        depth_times *seq = calloc(n_seq, sizeof *seq);
        for (size_t i = 0; seq && i < n_seq; i++) seq[i] = t[i].t;
        if (!seq)
            code = cli_failed("out of memory");
        else if (bench_depth_gaps(seq, n_seq, at + n_seq * n_tok, &median_s, &best_s, &n_gap))
            report_decode(x, depth, n_seq, median_s, best_s, n_gap);
        else
            code = cli_failed("depth %zu: the %zu sequences never generated at the same time; more "
                              "--depth-tokens are needed",
                              depth, n_seq);
        free(seq);
    }
    free(at);
    free(t);
    return code;
}

/* ---- prompts --------------------------------------------------------------------- */

static int prefill_point(depth_bench *x, size_t depth, size_t n_tok)
{
    const size_t n = x->b->repeat;
    double *v = calloc(n, sizeof *v), median, best;
    int code = v ? prepare(x, 0, depth) : cli_failed("out of memory");
    for (size_t k = 0; k < n && code == CLI_OK; k++) {
        draw(x, 1000000 + depth + k, depth, depth + n_tok); /* tokens that no cache holds */
        code = compute(x, depth + n_tok, &v[k]);
    }
    if (code == CLI_OK) {
        nb_kbench_median(v, n, &median, &best);
        if (!x->o->json)
            (void)printf("prefill %8zu %6zu %9.2f %11.3f %11.3f %8zu %8s %10s %10.1f\n", depth,
                         n_tok, (double)n_tok / median, median * 1e3, best * 1e3, n, "", "",
                         (double)bench_peak_bytes() / (1 << 20));
        (void)fflush(stdout);
        json_t *j = x->o->json
                        ? json_pack("{s:I, s:I, s:f, s:f, s:f, s:I, s:I}", "depth",
                                    (json_int_t)depth, "tokens", (json_int_t)n_tok,
                                    "tokens_per_second", (double)n_tok / median, "median_ms",
                                    median * 1e3, "best_ms", best * 1e3, "samples", (json_int_t)n,
                                    "peak_bytes", (json_int_t)bench_peak_bytes())
                        : NULL;
        if (x->o->json) x->failed |= !j || json_array_append_new(x->prompt, j) != 0;
    }
    free(v);
    return code;
}

/* ---- the command ------------------------------------------------------------------ */

static void print_head(const depth_bench *x)
{
    bench_machine_print(stdout, &x->machine);
    (void)printf("model %s, %s weights %.1f MiB, cache %s %.1f bytes per token, pool %.1f MiB, "
                 "workspace %.1f MiB, %zu threads\n",
                 x->o->model, x->info.weights, (double)x->info.weight_bytes / (1 << 20),
                 x->info.kv_dtype, x->info.kv_bytes_per_tok,
                 (double)x->info.kv_pool_bytes / (1 << 20),
                 (double)x->info.workspace_bytes / (1 << 20), x->info.n_thread);
    (void)printf("%-7s %8s %6s %9s %11s %11s %8s %8s %10s %10s\n", "", "depth", "seqs/", "tokens/s",
                 "median ms", "best ms", "samples", "over one", "cache MiB", "peak MiB");
    (void)printf("%-7s %8s %6s\n", "", "", "tokens");
}

static int print_json(depth_bench *x)
{
    json_t *j =
        json_pack("{s:o, s:s, s:s, s:s, s:I, s:f, s:I, s:I, s:I, s:b, s:I, s:I, s:o, s:o}",
                  "machine", bench_machine_json(&x->machine), "model", x->o->model,
                  "kv_cache_dtype", x->info.kv_dtype, "weights", x->info.weights, "weight_bytes",
                  (json_int_t)x->info.weight_bytes, "kv_bytes_per_token", x->info.kv_bytes_per_tok,
                  "pool_bytes", (json_int_t)x->info.kv_pool_bytes, "workspace_bytes",
                  (json_int_t)x->info.workspace_bytes, "threads", (json_int_t)x->info.n_thread,
                  "filled", (int)x->b->fill, "seed", (json_int_t)x->b->seed, "peak_bytes",
                  (json_int_t)bench_peak_bytes(), "decode", x->decode, "prefill", x->prompt);
    char *text = j ? json_dumps(j, JSON_REAL_PRECISION(9)) : NULL;
    const int code = text ? CLI_OK : cli_failed("no memory for the results");
    if (text) (void)puts(text);
    free(text);
    json_decref(j);
    return code;
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
    int code = read_options(&x);
    if (code != CLI_OK) return code;
    if (pthread_mutex_init(&x.lock, NULL) != 0) return cli_failed("out of memory");
    if (pthread_cond_init(&x.changed, NULL) != 0) {
        (void)pthread_mutex_destroy(&x.lock);
        return cli_failed("out of memory");
    }
    bench_machine_read(&x.machine);
    code = open_engine(&x);
    if (code == CLI_OK && o->json) {
        x.decode = json_array();
        x.prompt = json_array();
        if (!x.decode || !x.prompt) code = cli_failed("out of memory");
    }
    if (code == CLI_OK && !o->json) print_head(&x);
    if (code == CLI_OK) code = points(&x);
    if (code == CLI_OK && o->json)
        code = print_json(&x);
    else {
        json_decref(x.decode);
        json_decref(x.prompt);
    }
    nb_engine_destroy(x.engine);
    free(x.ids);
    (void)pthread_cond_destroy(&x.changed);
    (void)pthread_mutex_destroy(&x.lock);
    return code;
}
