/* ruler_run.c - see ruler_run.h.
 *
 * Prompts go in groups of `batch`: all of a group are submitted and generated greedily, then the
 * expected answers are read off with nb_logits.  Prompts about one text wait for the first of
 * them, so that the text is computed once; what is cached does not change a result (hit = miss).  The
 * wanted rows are asked for page by page, since only rows of a text's last page let the engine take
 * the others from its cache. */
#include "ruler_run.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE_TOK = 64, MORE_BLOCKS = 2 };

typedef struct run_state {
    nb_engine *engine;
    const nb_ruler_set *set;
    ruler_outcome *out;
    /* shared with the engine's thread */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t n_active;
    nb_status st;
    nb_error err;
} run_state;

typedef struct ticket {
    run_state *r;
    size_t item;
} ticket;

void ruler_outcomes_free(ruler_outcome *r, size_t n)
{
    for (size_t i = 0; r && i < n; i++) free(r[i].text);
    free(r);
}

/* On the engine's thread. */
static void on_done(void *ctx, nb_status st, const nb_result *res, const nb_error *err)
{
    const ticket *t = ctx;
    run_state *r = t->r;
    ruler_outcome *o = &r->out[t->item];
    if (st == NB_OK) {
        const nb_str text = { res->text ? res->text : "", res->text ? res->text_bytes : 0 };
        const nb_ruler_score s = nb_ruler_grade(&r->set->item[t->item], text);
        o->match = s.match;
        o->exact = s.exact;
        o->text = strdup(text.p);
    }
    (void)pthread_mutex_lock(&r->lock);
    if ((st != NB_OK || !o->text) && r->st == NB_OK) {
        r->st = st != NB_OK ? st : NB_ERR_NOMEM;
        (void)snprintf(r->err.msg, sizeof r->err.msg, "%s",
                       st != NB_OK && err->msg[0] ? err->msg : nb_status_text(r->st));
    }
    r->n_active--;
    (void)pthread_cond_signal(&r->changed);
    (void)pthread_mutex_unlock(&r->lock);
}

static int submit(run_state *r, ticket *t, nb_request_id after, nb_request_id *id)
{
    static const char *const newline[] = { "\n" };
    const nb_ruler_item *it = &r->set->item[t->item];
    nb_request rq = { .prompt = it->ids,
                      .n_prompt = it->n_ids,
                      .on_token_ctx = t,
                      .on_done = on_done,
                      .after = after };
    nb_error err = { 0 };
    nb_sampling_default(&rq.sampling);
    rq.sampling.temperature = 0;
    rq.sampling.max_tokens = it->max_tok;
    if (it->first_line) {
        rq.sampling.stop = newline;
        rq.sampling.n_stop = 1;
    }
    (void)pthread_mutex_lock(&r->lock);
    r->n_active++;
    (void)pthread_mutex_unlock(&r->lock);
    const nb_status st = nb_engine_submit(r->engine, &rq, id, &err);
    if (st == NB_OK) return CLI_OK;
    (void)pthread_mutex_lock(&r->lock);
    r->n_active--;
    (void)pthread_mutex_unlock(&r->lock);
    return cli_failed("prompt %zu: %s", t->item, err.msg);
}

static int generate(run_state *r, ticket *tickets, size_t first, size_t n)
{
    int code = CLI_OK;
    nb_request_id leader = 0, id = 0;
    for (size_t i = 0; code == CLI_OK && i < n; i++) {
        const nb_ruler_item *it = &r->set->item[first + i];
        if (i == 0 || it->context != it[-1].context) leader = 0;
        tickets[i] = (ticket){ r, first + i };
        code = submit(r, &tickets[i], leader, &id);
        if (code == CLI_OK && !leader) leader = id;
    }
    (void)pthread_mutex_lock(&r->lock);
    while (r->n_active) (void)pthread_cond_wait(&r->changed, &r->lock);
    const nb_status st = r->st;
    (void)pthread_mutex_unlock(&r->lock);
    if (code == CLI_OK && st != NB_OK) code = cli_failed("%s", r->err.msg);
    return code;
}

/* ---- expected answers ----------------------------------------------------------- */

typedef struct row_sum {
    const uint32_t *next; /* ids[pos + 1] */
    double sum;
} row_sum;

static int on_row(void *ctx, size_t row, const float *logits, size_t n_vocab)
{
    row_sum *s = ctx;
    float most = logits[0];
    double sum = 0;
    const uint32_t id = s->next[row];
    if (id >= n_vocab) return 1;
    for (size_t i = 1; i < n_vocab; i++)
        if (logits[i] > most) most = logits[i];
    for (size_t i = 0; i < n_vocab; i++) sum += exp((double)logits[i] - (double)most);
    s->sum += (double)logits[id] - (double)most - log(sum);
    return 0;
}

static int answer_logprob(run_state *r, size_t item)
{
    const nb_ruler_item *it = &r->set->item[item];
    row_sum s = { .next = it->full + 1 };
    size_t rows[PAGE_TOK];
    for (size_t at = it->n_given - 1; at + 1 < it->n_full;) {
        size_t n = 0;
        do rows[n++] = at++;
        while (at + 1 < it->n_full && at % PAGE_TOK != 0);
        nb_error err = { 0 };
        const nb_status st = nb_logits(r->engine, it->full, at, rows, n, on_row, &s, &err);
        if (st != NB_OK) return cli_failed("prompt %zu: %s", item, err.msg);
    }
    r->out[item].total = s.sum;
    r->out[item].logprob = s.sum / (double)(it->n_full - it->n_given);
    return CLI_OK;
}

/* ---- a variant -------------------------------------------------------------------- */

/* Room for the longest prompt `batch` times, as far as half of the memory goes. */
static int size_engine(nb_variant *v, const nb_ruler_set *s, size_t *batch)
{
    nb_memory_plan plan;
    nb_error err = { 0 };
    nb_engine_options *o = &v->options;
    o->max_model_len = s->max_tok;
    const nb_status st = nb_engine_plan_memory(o, &plan, &err);
    if (st != NB_OK) return cli_failed("%s: %s", v->name, err.msg);
    if (plan.max_model_len && s->max_tok > plan.max_model_len)
        return cli_failed("%s: prompts of %zu tokens; the model takes %zu", v->name, s->max_tok,
                          plan.max_model_len);
    const uint64_t each = (s->max_tok / plan.block_tok + MORE_BLOCKS) * plan.block_bytes;
    const uint64_t room = plan.memory_bytes ? plan.memory_bytes / 2 : UINT64_MAX;
    while (*batch > 1 && *batch > room / (each ? each : 1)) --*batch;
    o->max_num_seqs = *batch;
    o->kv_cache_bytes = *batch * each;
    if (*batch > 512) o->max_num_batched_tokens = *batch;
    return CLI_OK;
}

int ruler_run(const nb_variant *v, const nb_ruler_set *s, size_t batch, json_t *cost,
              ruler_outcome **out)
{
    nb_variant mine = *v;
    nb_engine_info info;
    run_state r = { .set = s };
    char label[96];
    int code = size_engine(&mine, s, &batch);
    ticket *tickets = calloc(batch, sizeof *tickets);
    r.out = calloc(s->n, sizeof *r.out);
    if (code == CLI_OK && (!tickets || !r.out)) code = cli_failed("out of memory");
    if (code == CLI_OK) code = eval_open_engine(&mine, &r.engine, &info);
    if (code == CLI_OK) code = eval_json_cost(cost, v, &info);
    (void)pthread_mutex_init(&r.lock, NULL);
    (void)pthread_cond_init(&r.changed, NULL);
    (void)snprintf(label, sizeof label, "%.60s: prompts", v->name);
    for (size_t first = 0; code == CLI_OK && first < s->n; first += batch) {
        const size_t n = s->n - first < batch ? s->n - first : batch;
        code = generate(&r, tickets, first, n);
        for (size_t i = 0; code == CLI_OK && i < n; i++) code = answer_logprob(&r, first + i);
        cli_progress(NULL, label, first + n, s->n);
    }
    cli_progress_end();
    nb_engine_destroy(r.engine);
    (void)pthread_cond_destroy(&r.changed);
    (void)pthread_mutex_destroy(&r.lock);
    free(tickets);
    if (code != CLI_OK) {
        ruler_outcomes_free(r.out, s->n);
        r.out = NULL;
    }
    *out = r.out;
    return code;
}
