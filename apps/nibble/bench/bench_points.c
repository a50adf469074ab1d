/* bench_points.c - see bench_points.h. */
#include "bench_points.h"

#include <stdlib.h>
#include <string.h>

#include "../cli.h"
#include "nibble/measure.h"

enum { COMPUTED = 512, TRIES = 8 }; /* a processor that others use may delay a beginning */

/* ---- the engine ---------------------------------------------------------------- */

size_t bench_points_len(size_t depth, size_t more)
{
    return depth + more + 2 * BENCH_PAGE;
}

size_t bench_points_blocks(size_t depth, size_t more, size_t n_seq)
{
    return n_seq * (bench_points_len(depth, more) / BENCH_PAGE + 2);
}

int bench_points_options(const opts *o, const bench_points_spec *s, nb_engine_options *e,
                         nb_device_info *device)
{
    nb_error err = { 0 };
    *e = opts_engine(o);
    e->no_text = true;
    e->max_model_len = s->max_model_len;
    const nb_status st = nb_engine_find_device(e, device, &err);
    if (st != NB_OK) return cli_status(st, &err);
    const size_t step = opts_step_tok(o, device->is_gpu);
    e->max_num_batched_tokens = step;
    e->prefill_chunk = e->max_chunk_tok = step;
    e->max_num_seqs = s->max_seqs;
    if (step < s->max_seqs)
        return cli_usage("--max-num-batched-tokens %zu: fewer than the %zu sequences that generate "
                         "at once",
                         step, s->max_seqs);
    return CLI_OK;
}

nb_status bench_points_init(bench_points *x, const bench_points_spec *s, const nb_engine_options *e,
                            nb_error *err)
{
    *x = (bench_points){ .seed = s->seed, .fill = s->fill };
    (void)snprintf(err->msg, sizeof err->msg, "out of memory for a lock");
    if (pthread_mutex_init(&x->lock, NULL) != 0) return NB_ERR_NOMEM;
    if (pthread_cond_init(&x->changed, NULL) != 0) {
        (void)pthread_mutex_destroy(&x->lock);
        return NB_ERR_NOMEM;
    }
    x->has_lock = true;
    const nb_status st = nb_engine_create(e, &x->engine, err);
    cli_progress_end();
    if (st != NB_OK) return st;
    nb_engine_get_info(x->engine, &x->info);
    if (x->info.warnings && *x->info.warnings) cli_note("warning: %s", x->info.warnings);
    x->ids = malloc((s->max_model_len + BENCH_PAGE) * sizeof *x->ids);
    if (x->ids) return NB_OK;
    (void)snprintf(err->msg, sizeof err->msg, "no memory for %zu token ids", s->max_model_len);
    return NB_ERR_NOMEM;
}

void bench_points_deinit(bench_points *x)
{
    nb_engine_destroy(x->engine);
    free(x->ids);
    if (x->has_lock) {
        (void)pthread_cond_destroy(&x->changed);
        (void)pthread_mutex_destroy(&x->lock);
    }
    *x = (bench_points){ 0 };
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
static void draw(bench_points *x, uint64_t seq, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        x->ids[i] = (uint32_t)(mix(mix(x->seed ^ mix(seq)) + i) % x->info.vocab);
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
static int compute(bench_points *x, size_t n_tok, double *s)
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
static int prepare(bench_points *x, size_t seq, size_t depth)
{
    nb_error err = { 0 };
    draw(x, seq, 0, depth);
    /* One token more: the last of a prompt is always computed anew. */
    const size_t n = x->fill && depth > COMPUTED ? COMPUTED : depth;
    int code = compute(x, n, NULL);
    if (code != CLI_OK || n == depth) return code;
    const nb_status st = nb_engine_fill(x->engine, x->ids, depth, &err);
    return st == NB_OK ? CLI_OK : cli_status(st, &err);
}

/* ---- generating ------------------------------------------------------------------- */

typedef struct ticket {
    bench_points *x;
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
    bench_points *x = ((ticket *)ctx)->x;
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

static int generate(bench_points *x, size_t depth, size_t n_seq, ticket *t)
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

int bench_points_decode(bench_points *x, size_t depth, size_t n_seq, size_t n_tok,
                        nb_kbench_spread *s)
{
    /* Sequences that begin earlier wait for nobody: twice the tokens, of which the common time counts. */
    const size_t n = n_seq > 1 ? 2 * n_tok : n_tok + 1;
    ticket *t = calloc(n_seq, sizeof *t);
    depth_times *seq = calloc(n_seq, sizeof *seq);
    double *at = calloc(2 * n_seq * n, sizeof *at);
    int code = t && seq && at ? CLI_OK : cli_failed("out of memory");
    bool done = false;
    for (int k = 0; k < TRIES && !done && code == CLI_OK; k++) {
        for (size_t i = 0; i < n_seq; i++) t[i] = (ticket){ x, { at + i * n, 0, n } };
        code = generate(x, depth, n_seq, t);
        for (size_t i = 0; i < n_seq; i++) seq[i] = t[i].t;
        done = code == CLI_OK && bench_depth_gaps(seq, n_seq, at + n_seq * n, s);
    }
    if (code == CLI_OK && !done)
        code = cli_failed("depth %zu: the %zu sequences never generated at the same time; more "
                          "tokens of each are needed",
                          depth, n_seq);
    free(at);
    free(seq);
    free(t);
    return code;
}

int bench_points_prefill(bench_points *x, size_t depth, size_t n_tok, size_t n, nb_kbench_spread *s)
{
    double *v = calloc(n, sizeof *v);
    int code = v ? prepare(x, 0, depth) : cli_failed("out of memory");
    for (size_t k = 0; k < n && code == CLI_OK; k++) {
        draw(x, 1000000 + depth + k, depth, depth + n_tok); /* tokens that no cache holds */
        code = compute(x, depth + n_tok, &v[k]);
    }
    if (code == CLI_OK) nb_kbench_spread_of(v, n, s);
    free(v);
    return code;
}

/* ---- names ----------------------------------------------------------------------- */

/* On a GPU the threads of the host do not count. */
static void place(const bench_points *x, char out[48])
{
    if (strcmp(x->info.device, "cpu") == 0)
        (void)snprintf(out, 48, "threads=%zu", x->info.n_thread);
    else
        (void)snprintf(out, 48, "gpu");
}

void bench_decode_name(const char *model, const bench_points *x, size_t depth, size_t n_seq,
                       char out[BENCH_POINT_NAME])
{
    char where[48];
    place(x, where);
    (void)snprintf(out, BENCH_POINT_NAME, "decode %s %s %s depth=%zu sequences=%zu %s", model,
                   x->info.weights, x->info.kv_dtype, depth, n_seq, where);
}

void bench_prefill_name(const char *model, const bench_points *x, size_t depth, size_t n_tok,
                        char out[BENCH_POINT_NAME])
{
    char where[48];
    place(x, where);
    (void)snprintf(out, BENCH_POINT_NAME, "prefill %s %s %s depth=%zu tokens=%zu %s", model,
                   x->info.weights, x->info.kv_dtype, depth, n_tok, where);
}
