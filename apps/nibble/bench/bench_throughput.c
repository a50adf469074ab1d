/* bench_throughput.c - `nibble bench throughput`: the workload of `bench serve`, submitted to the
 * engine directly.  What the server costs is the difference of the two. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "../cli.h"
#include "../options/opts.h"
#include "../serve/serve_setup.h"
#include "bench_common.h"
#include "bench_data.h"
#include "bench_depth.h"
#include "bench_runs.h"
#include "bench_stats.h"

enum { ENGINE_MAX_REQUESTS = 60000 };
static const char backend[] = "engine";

typedef struct direct {
    const bench_opts *o;
    bench_plan plan;
    nb_engine *engine;
    bench_set set;
    uint32_t *ids;
    /* shared with the engine's thread */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t n_active, n_done;
} direct;

typedef struct ticket {
    direct *d;
    bench_rec *rec;
    bool keep_text;
} ticket;

/* ---- on the engine's thread ------------------------------------------------ */

static int on_token(void *ctx, const nb_token_event *ev)
{
    ticket *t = ctx;
    (void)ev;
    return bench_rec_token(t->rec, cli_seconds()) ? 0 : 1;
}

static void on_done(void *ctx, nb_status st, const nb_result *r, const nb_error *err)
{
    ticket *t = ctx;
    direct *d = t->d;
    t->rec->n_prompt = r->n_prompt;
    t->rec->n_out = r->n_tokens;
    t->rec->n_cached = r->n_cached;
    t->rec->outcome = st == NB_OK ? BENCH_OK : BENCH_STREAM;
    if (st != NB_OK) bench_rec_error(t->rec, err->msg, strlen(err->msg));
    if (t->keep_text && r->text) t->rec->text = strdup(r->text);
    (void)pthread_mutex_lock(&d->lock);
    d->n_active--;
    d->n_done++;
    (void)pthread_cond_signal(&d->changed);
    (void)pthread_mutex_unlock(&d->lock);
}

/* ---- submitting ------------------------------------------------------------- */

static size_t count_given(const char *text, size_t otherwise)
{
    double x;
    return bench_number(text, &x) && x >= 0 ? (size_t)x : otherwise;
}
static double value_given(const char *text, double otherwise)
{
    double x;
    return bench_number(text, &x) ? x : otherwise;
}

static nb_sampling sampling_of(const bench_opts *o)
{
    nb_sampling s;
    nb_sampling_default(&s);
    s.temperature = value_given(o->temperature, s.temperature);
    s.top_p = value_given(o->top_p, s.top_p);
    s.min_p = value_given(o->min_p, s.min_p);
    s.top_k = count_given(o->top_k, 0);
    s.presence_penalty = value_given(o->presence_penalty, 0);
    s.frequency_penalty = value_given(o->frequency_penalty, 0);
    s.repetition_penalty = value_given(o->repetition_penalty, 1);
    s.n_logprobs = (int)value_given(o->logprobs, -1);
    s.ignore_eos = o->ignore_eos;
    s.seed = o->seed;
    return s;
}

/* The ids of an item into d->ids, or of a text into *own, for nb_free. */
static int prompt_of(direct *d, const bench_item *it, const uint32_t **ids, size_t *n,
                     uint32_t **own)
{
    *own = NULL;
    if (!it->text) {
        bench_prompt_ids(&d->set, it, d->ids);
        *ids = d->ids;
        *n = it->n_prompt;
        return CLI_OK;
    }
    nb_error err = { 0 };
    const nb_status st = nb_text_tokenize(nb_engine_text(d->engine), it->text, it->text_bytes,
                                          NB_TEXT_ADD_SPECIAL, own, n, &err);
    *ids = *own;
    return st == NB_OK ? CLI_OK : cli_status(st, &err);
}

static void sleep_until(double t_s)
{
    const double s = t_s - cli_seconds();
    if (s <= 0) return;
    const struct timespec pause = { .tv_sec = (time_t)s, .tv_nsec = (long)((s - floor(s)) * 1e9) };
    (void)nanosleep(&pause, NULL);
}

/* Waits until fewer than `most` requests are under way. */
static void wait_below(direct *d, size_t most)
{
    (void)pthread_mutex_lock(&d->lock);
    while (d->n_active >= most) (void)pthread_cond_wait(&d->changed, &d->lock);
    (void)pthread_mutex_unlock(&d->lock);
}

static int submit(direct *d, const bench_item *it, ticket *t)
{
    const uint32_t *ids;
    uint32_t *own;
    size_t n;
    nb_error err = { 0 };
    nb_request_id id;
    int code = prompt_of(d, it, &ids, &n, &own);
    if (code != CLI_OK) return code;
    nb_request rq = { .prompt = ids,
                      .n_prompt = n,
                      .sampling = sampling_of(d->o),
                      .on_token = on_token,
                      .on_token_ctx = t,
                      .on_done = on_done };
    rq.sampling.max_tokens = it->max_tokens;
    (void)pthread_mutex_lock(&d->lock);
    d->n_active++;
    (void)pthread_mutex_unlock(&d->lock);
    t->rec->start_s = cli_seconds();
    const nb_status st = nb_engine_submit(d->engine, &rq, &id, &err);
    nb_free(own);
    if (st == NB_OK) return CLI_OK;
    t->rec->outcome = BENCH_STATUS; /* the server would say 400 */
    bench_rec_error(t->rec, err.msg, strlen(err.msg));
    (void)pthread_mutex_lock(&d->lock);
    d->n_active--;
    d->n_done++;
    (void)pthread_mutex_unlock(&d->lock);
    return CLI_OK;
}

/* Runs items[first..first + n) to their end; at_s may be NULL. */
static int run(direct *d, size_t first, size_t n, const double *at_s, bench_rec *rec,
               double *duration_s)
{
    const size_t limit = d->o->max_concurrency;
    const size_t most = limit && limit < ENGINE_MAX_REQUESTS ? limit : ENGINE_MAX_REQUESTS;
    ticket *tickets = calloc(n ? n : 1, sizeof *tickets);
    int code = tickets ? CLI_OK : cli_failed("no memory for %zu requests", n);
    const double begin = cli_seconds();
    d->n_done = 0;
    for (size_t i = 0; code == CLI_OK && i < n; i++) {
        tickets[i] = (ticket){ d, &rec[i], d->o->save_detailed };
        if (at_s) sleep_until(begin + at_s[i]);
        wait_below(d, most);
        code = submit(d, &d->set.items[first + i], &tickets[i]);
        if (!d->o->quiet) cli_progress(NULL, "submitted", i + 1, n);
    }
    cli_progress_end();
    wait_below(d, 1);
    *duration_s = cli_seconds() - begin;
    free(tickets);
    return code;
}

/* ---- results ---------------------------------------------------------------- */

typedef struct steps {
    double n, s, tok, cpu_s;
} steps;

static double cpu_seconds(void)
{
    struct rusage u;
    (void)getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static steps steps_now(const nb_engine *e)
{
    nb_engine_stats st;
    nb_engine_get_stats(e, &st);
    return (steps){ (double)st.n_step, st.step_s, (double)st.step_tok_sum, cpu_seconds() };
}

static bool put(json_t *j, const char *key, double x)
{
    return json_object_set_new(j, key, json_real(x)) == 0;
}

static double part(double a, double b)
{
    return b > 0 ? a / b : 0;
}

static bool add_steps(json_t *j, const bench_summary *s, const steps *t)
{
    const double tok = (double)s->n_in + (double)s->n_out;
    bool ok = put(j, "elapsed_time", s->duration_s);
    ok &= put(j, "num_requests", (double)s->n);
    ok &= put(j, "total_num_tokens", tok);
    ok &= put(j, "requests_per_second", part((double)s->count[BENCH_OK], s->duration_s));
    ok &= put(j, "tokens_per_second", part(tok, s->duration_s));
    ok &= put(j, "steps", t->n);
    ok &= put(j, "step_s", t->s);
    ok &= put(j, "mean_step_ms", part(t->s, t->n) * 1e3);
    ok &= put(j, "mean_step_tokens", part(t->tok, t->n));
    ok &= put(j, "cpu_s", t->cpu_s);
    return ok;
}

/* One run of the workload. */
typedef struct pass {
    bench_rec *rec; /* [set.n] */
    bench_summary s;
    steps t;
} pass;

static int report(direct *d, const char *model, const pass *p, const bench_runs *runs)
{
    const bench_opts *o = d->o;
    const bench_rec *rec = p->rec;
    const steps *t = &p->t;
    const bench_summary s = p->s;
    nb_engine_info info;
    char how[64];
    nb_engine_get_info(d->engine, &info);
    (void)snprintf(how, sizeof how, "%s %s %s", info.weights, info.kv_dtype,
                   strcmp(info.device, "cpu") == 0 ? "cpu" : "gpu");
    FILE *out = o->result_filename && strcmp(o->result_filename, "-") == 0 ? stderr : stdout;
    bench_machine_print(out, &d->plan.doc.machine);
    bench_print(out, " Throughput Benchmark Result ", &s, &d->plan.report);
    bench_print_number(out, "Steps:", t->n);
    bench_print_number(out, "Mean time of a step (ms):", part(t->s, t->n) * 1e3);
    bench_print_number(out, "Mean tokens of a step:", part(t->tok, t->n));
    bench_print_number(out, "Time outside steps (s):", s.duration_s - t->s);
    bench_print_number(out, "CPU time (s):", t->cpu_s);
    bench_runs_print(out, runs);
    bench_print_end(out);
    json_t *j = bench_result_head(&d->plan, backend, model, model);
    if (j && (!bench_json(j, rec, &s, &d->plan.report, o->save_detailed) || !add_steps(j, &s, t) ||
              !bench_runs_json(j, runs, &d->plan, "throughput", model, how))) {
        json_decref(j);
        j = NULL;
    }
    return bench_result_save(&d->plan, backend, model, j);
}

/* ---- the command ------------------------------------------------------------ */

static int open_engine(direct *d, const opts *o)
{
    nb_error err = { 0 };
    serve_setup t;
    opts full = *o; /* what only `serve` has options for */
    full.serve.log_format = "text";
    full.serve.generation_config = "vllm";
    int code = serve_setup_init(&full, &t);
    if (t.warning[0]) cli_note("warning: %s", t.warning);
    if (code == CLI_OK) {
        const nb_status st = nb_engine_create(&t.engine, &d->engine, &err);
        cli_progress_end();
        if (st != NB_OK) code = cli_status(st, &err);
    }
    serve_setup_deinit(&t);
    return code;
}

static int make_prompts(direct *d)
{
    const nb_text *text = nb_engine_text(d->engine);
    const bench_tok tok = { text ? bench_encode_text : NULL, text };
    nb_engine_info info;
    nb_engine_get_info(d->engine, &info);
    int code = CLI_OK;
    if (d->o->vocab_size || !text)
        d->set.n_pool =
            d->o->vocab_size && d->o->vocab_size < info.vocab ? d->o->vocab_size : info.vocab;
    else
        code = bench_pool_of(text, &d->set);
    if (code == CLI_OK) code = bench_set_load(d->o, &tok, &d->set);
    if (code != CLI_OK) return code;
    for (size_t i = 0; i < d->set.n; i++)
        if (d->set.items[i].text && !text) return cli_failed("prompts of text need a tokenizer");
    d->ids = malloc((d->set.max_prompt + 1) * sizeof *d->ids);
    return d->ids ? CLI_OK : cli_failed("no memory for prompts of %zu tokens", d->set.max_prompt);
}

/* Run k: other ids than before where the prompts are of ids, and nothing in the cache. */
static int one_pass(direct *d, size_t k, pass *p)
{
    double duration_s = 0;
    d->set.seed = d->o->seed + k;
    double *at_s = bench_arrivals(d->o, &d->set, d->plan.rate, d->plan.burstiness);
    p->rec = calloc(d->set.n, sizeof *p->rec);
    int code = p->rec && at_s ? CLI_OK : cli_failed("no memory for %zu requests", d->set.n);
    if (code == CLI_OK && k) {
        const nb_status st = nb_engine_reset_prefix_cache(d->engine, NULL);
        if (st != NB_OK) code = cli_failed("the prefix cache cannot be emptied between runs");
    }
    const steps before = steps_now(d->engine);
    if (code == CLI_OK) code = run(d, 0, d->set.n, at_s, p->rec, &duration_s);
    const steps after = steps_now(d->engine);
    p->t = (steps){ after.n - before.n, after.s - before.s, after.tok - before.tok,
                    after.cpu_s - before.cpu_s };
    if (code == CLI_OK && !bench_summarise(p->rec, d->set.n, duration_s, &d->plan.report, &p->s))
        code = cli_failed("no memory for the results");
    free(at_s);
    return code;
}

static int warm_up(direct *d)
{
    double duration_s;
    if (!d->set.n_warm) return CLI_OK;
    bench_rec *warm = calloc(d->set.n_warm, sizeof *warm);
    if (!warm) return cli_failed("no memory for %zu requests", d->set.n_warm);
    const int code = run(d, d->set.n, d->set.n_warm, NULL, warm, &duration_s);
    bench_recs_deinit(warm, d->set.n_warm);
    return code;
}

static int measure(direct *d, const char *model)
{
    const size_t n = d->o->runs;
    bench_runs runs = { 0 };
    pass *p = calloc(n, sizeof *p);
    int code = p && bench_runs_init(&runs, n) ? warm_up(d) : cli_failed("out of memory");
    for (size_t k = 0; k < n && code == CLI_OK; k++) {
        code = one_pass(d, k, &p[k]);
        if (code == CLI_OK) bench_runs_put(&runs, k, &p[k].s);
    }
    if (code == CLI_OK) code = report(d, model, &p[bench_runs_middle(&runs)], &runs);
    for (size_t k = 0; p && k < n; k++) {
        const int verdict = p[k].s.n ? bench_verdict(p[k].rec, &p[k].s) : CLI_OK;
        if (code == CLI_OK) code = verdict;
        bench_recs_deinit(p[k].rec, d->set.n);
    }
    bench_runs_deinit(&runs);
    free(p);
    return code;
}

int cmd_bench_throughput(const struct opts *o)
{
    direct d = { .o = &o->bench };
    if (d.o->depth) return bench_depth_run(o);
    if (o->json) return cli_usage("--json goes with --depth; a workload has --save-result");
    int code = bench_plan_make(d.o, &d.plan);
    if (code != CLI_OK) return code;
    bench_doc_begin(&d.plan.doc);
    if (pthread_mutex_init(&d.lock, NULL) != 0) return cli_failed("out of memory");
    if (pthread_cond_init(&d.changed, NULL) != 0) {
        (void)pthread_mutex_destroy(&d.lock);
        return cli_failed("out of memory");
    }
    code = open_engine(&d, o);
    if (code == CLI_OK) code = make_prompts(&d);
    if (code == CLI_OK) code = measure(&d, o->model);
    nb_engine_destroy(d.engine);
    bench_set_deinit(&d.set);
    free(d.ids);
    (void)pthread_cond_destroy(&d.changed);
    (void)pthread_mutex_destroy(&d.lock);
    return code;
}
