/* bench_common.c - see bench_common.h. */
#include "bench_common.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../cli.h"
#include "../out_file.h"

enum { SHOWN_ERRORS = 5, PATH_BYTES = 4096 };

/* ---- options -------------------------------------------------------------- */

bool bench_number(const char *text, double *out)
{
    char *end;
    if (!text || !*text || strspn(text, "0123456789.eE+-") != strlen(text)) return false;
    *out = strtod(text, &end);
    return !*end && isfinite(*out);
}

static int check_numbers(const bench_opts *o)
{
    const char *const name[] = {
        "temperature",        "top-p",   "top-k", "min-p", "presence-penalty", "frequency-penalty",
        "repetition-penalty", "logprobs"
    };
    const char *const value[] = { o->temperature,
                                  o->top_p,
                                  o->top_k,
                                  o->min_p,
                                  o->presence_penalty,
                                  o->frequency_penalty,
                                  o->repetition_penalty,
                                  o->logprobs };
    double x;
    for (size_t i = 0; i < sizeof name / sizeof *name; i++)
        if (value[i] && !bench_number(value[i], &x))
            return cli_usage("--%s %s: expected a number", name[i], value[i]);
    return CLI_OK;
}

static int check_ramp(const bench_plan *p)
{
    const bench_opts *o = p->o;
    if (!o->ramp_up) return CLI_OK;
    if (isfinite(p->rate)) return cli_usage("--ramp-up-strategy sets the rate: no --request-rate");
    if (o->self_timed) return cli_usage("--ramp-up-strategy and --self-timed exclude each other");
    if (o->ramp_end <= 0 || o->ramp_start > o->ramp_end)
        return cli_usage("--ramp-up-strategy: expected 0 <= --ramp-up-start-rps <= "
                         "--ramp-up-end-rps, which is > 0");
    if (strcmp(o->ramp_up, "exponential") == 0 && o->ramp_start <= 0)
        return cli_usage("--ramp-up-start-rps 0: an exponential ramp begins above 0");
    return CLI_OK;
}

int bench_plan_make(const bench_opts *o, bench_plan *p)
{
    bench_report *r = &p->report;
    *p = (bench_plan){ .o = o };
    if (!bench_parse_rate(o->request_rate, &p->rate))
        return cli_usage("--request-rate %s: expected inf or a number > 0", o->request_rate);
    if (!bench_parse_rate(o->burstiness, &p->burstiness))
        return cli_usage("--burstiness %s: expected inf or a number > 0", o->burstiness);
    if (!bench_parse_metrics(o->percentile_metrics, r))
        return cli_usage("--percentile-metrics %s: expected a list of ttft, tpot, itl, e2el",
                         o->percentile_metrics);
    if (!bench_parse_percentiles(o->metric_percentiles, r))
        return cli_usage("--metric-percentiles %s: expected at most %d numbers in [0, 100]",
                         o->metric_percentiles, (int)BENCH_MAX_PERCENTILE);
    for (size_t i = 0; i < o->goodput.n; i++)
        if (!bench_parse_goodput(o->goodput.p[i], r))
            return cli_usage("--goodput %s: expected ttft:MS, tpot:MS or e2el:MS", o->goodput.p[i]);
    if (bench_doc_check_metadata(&o->metadata) != CLI_OK) return CLI_USAGE;
    if (o->self_timed && strcmp(o->dataset_name, "timed_trace") != 0)
        return cli_usage("--self-timed: only timed_trace has times of its own");
    r->max_concurrency = o->max_concurrency;
    r->request_rate = p->rate;
    const int code = check_ramp(p);
    return code == CLI_OK ? check_numbers(o) : code;
}

/* ---- token ids ------------------------------------------------------------ */

int bench_encode_text(const void *text, const char *s, size_t n_bytes, uint32_t **ids,
                      size_t *n_ids)
{
    nb_error err = { 0 };
    const nb_status st = nb_text_tokenize(text, s, n_bytes, 0, ids, n_ids, &err);
    return st == NB_OK ? CLI_OK : cli_status(st, &err);
}

int bench_pool_of(const nb_text *t, bench_set *s)
{
    const size_t n = nb_text_vocab_size(t);
    uint32_t *pool = malloc((n ? n : 1) * sizeof *pool);
    if (!pool) return cli_failed("out of memory");
    size_t k = 0;
    for (uint32_t id = 0; id < n; id++) {
        char *text = NULL;
        size_t n_bytes = 0;
        if (nb_text_detokenize(t, &id, 1, true, &text, &n_bytes, NULL) != NB_OK) continue;
        if (n_bytes) pool[k++] = id;
        nb_free(text);
    }
    s->pool = pool;
    s->n_pool = k;
    return k ? CLI_OK : cli_failed("the tokenizer has no tokens that stand for text");
}

/* ---- results -------------------------------------------------------------- */

static bool set(json_t *j, const char *key, json_t *v)
{
    return json_object_set_new(j, key, v) == 0;
}

/* JSON has no infinity: vLLM writes "inf". */
static json_t *number_or_inf(double x)
{
    return isfinite(x) ? json_real(x) : json_string("inf");
}

json_t *bench_result_head(const bench_plan *p, const char *backend, const char *model,
                          const char *tokenizer)
{
    const bench_opts *o = p->o;
    char date[32];
    json_t *j = json_object();
    bool ok = j != NULL;
    bench_date(date);
    ok &= set(j, "date", json_string(date));
    ok &= set(j, "endpoint_type", json_string(backend));
    ok &= set(j, "backend", json_string(backend));
    ok &= set(j, "label", o->label ? json_string(o->label) : json_null());
    ok &= set(j, "model_id", json_string(model));
    ok &= set(j, "tokenizer_id", json_string(tokenizer));
    ok &= set(j, "num_prompts", json_integer((json_int_t)o->num_prompts));
    for (size_t i = 0; ok && i < o->metadata.n; i++) {
        const char *kv = o->metadata.p[i], *v = strchr(kv, '=') + 1;
        char key[128];
        (void)snprintf(key, sizeof key, "%.*s", (int)(v - 1 - kv), kv);
        ok = set(j, key, json_string(v));
    }
    ok &= set(j, "request_rate", number_or_inf(p->rate));
    ok &= set(j, "burstiness", number_or_inf(p->burstiness));
    ok &= set(j, "max_concurrency",
              o->max_concurrency ? json_integer((json_int_t)o->max_concurrency) : json_null());
    if (o->ramp_up) {
        ok &= set(j, "ramp_up_strategy", json_string(o->ramp_up));
        ok &= set(j, "ramp_up_start_rps", json_real(o->ramp_start));
        ok &= set(j, "ramp_up_end_rps", json_real(o->ramp_end));
    }
    if (ok) return j;
    json_decref(j);
    return NULL;
}

/* The file's path, as vLLM makes it. */
static bool result_path(const bench_plan *p, const char *backend, const char *model,
                        char out[PATH_BYTES])
{
    const bench_opts *o = p->o;
    char name[512], date[32], at_once[48] = "";
    const char *base = strrchr(model, '/');
    bench_date(date);
    if (o->max_concurrency)
        (void)snprintf(at_once, sizeof at_once, "-concurrency%zu", o->max_concurrency);
    (void)snprintf(name, sizeof name, "%s-%sqps%s-%s-%s.json", o->label ? o->label : backend,
                   o->request_rate, at_once, base ? base + 1 : model, date);
    const char *file = o->result_filename ? o->result_filename : name;
    const int n = o->result_dir ? snprintf(out, PATH_BYTES, "%s/%s", o->result_dir, file)
                                : snprintf(out, PATH_BYTES, "%s", file);
    return n > 0 && n < PATH_BYTES;
}

static int write_line(const char *path, const char *text)
{
    out_file out = { 0 };
    int code = out_file_open(&out, path);
    if (code == CLI_OK && fprintf(out.f, "%s\n", text) < 0) code = out_file_failed(path);
    return out_file_close(&out, path, code);
}

int bench_result_save(const bench_plan *p, const char *backend, const char *model, json_t *j)
{
    const bench_opts *o = p->o;
    char path[PATH_BYTES];
    int code = CLI_OK;
    if (!j) return cli_failed("no memory for the results");
    if (!o->save_result && !o->append_result) {
        json_decref(j);
        return CLI_OK;
    }
    char *text = json_dumps(j, 0);
    json_decref(j);
    if (!text) return cli_failed("no memory for the results");
    if (!result_path(p, backend, model, path)) {
        code = cli_failed("--result-filename: too long");
    } else if (o->result_filename && strcmp(o->result_filename, "-") == 0) {
        (void)puts(text);
    } else {
        code = o->append_result ? out_file_append(path, text) : write_line(path, text);
    }
    free(text);
    return code;
}

int bench_verdict(const bench_rec *r, const bench_summary *s)
{
    size_t shown = 0;
    const bench_rec *first = NULL;
    for (size_t i = 0; i < s->n; i++) {
        if (r[i].outcome == BENCH_OK || r[i].outcome == BENCH_HUNG_UP) continue;
        if (!first) first = &r[i];
        if (r[i].outcome == BENCH_REFUSED) continue; /* counted, and expected under overload */
        if (shown++ < SHOWN_ERRORS)
            cli_note("request %zu: %s%s%s", i, bench_outcome_names[r[i].outcome],
                     r[i].error ? ": " : "", r[i].error ? r[i].error : "");
    }
    if (shown > SHOWN_ERRORS) cli_note("... and %zu more", shown - SHOWN_ERRORS);
    if (s->count[BENCH_PENDING])
        return cli_failed("%zu requests were lost", s->count[BENCH_PENDING]);
    if (s->count[BENCH_OK] == 0 && s->count[BENCH_HUNG_UP] == 0)
        return cli_failed("no request was completed%s%s", first && first->error ? ": " : "",
                          first && first->error ? first->error : "");
    return CLI_OK;
}
