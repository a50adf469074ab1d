/* page_api.c - the data of the page: /api/config, /api/stats, /api/cache, /api/block.
 *
 * The first two answer at once.  The other two ask the engine, which answers between two
 * steps: a helper thread waits for it, one question after another, and posts the answers back
 * to the loop.  Few questions wait at a time; more are refused with 503.  A client that goes
 * away only takes its exchange out of its question.  docs/serving-page.md has the shapes. */
#include <stdlib.h>
#include <string.h>

#include "os/thread.h"
#include "serve/page.h"

enum { MAX_QUESTIONS = 16, NUMBER_MAX_DIGITS = 9 };

typedef enum ask_kind { ASK_CACHE, ASK_BLOCK } ask_kind;

typedef struct question {
    nb_http_ex *ex; /* loop only; NULL: its client has gone */
    ask_kind kind;
    size_t layer, tok;
    /* the answer */
    nb_status st;
    char *json;
    nb_error err;
    struct question *next;
} question;

struct nb_page {
    nb_serve *serve;
    nb_thread *thread;
    nb_mutex *lock;
    nb_cond *wake;
    size_t n_open; /* loop only: questions not answered yet */
    char *model;   /* loop only: nb_model_describe's answer */
    /* guarded by lock */
    question *queue, **queue_end, *done;
    bool stop;
};

/* ---- the helper thread ---- */

static nb_http_task_fn answer_all;

static void ask_engine(nb_engine *e, question *q)
{
    q->st = q->kind == ASK_CACHE ? nb_engine_cache_json(e, &q->json, &q->err)
                                 : nb_engine_page_json(e, q->layer, q->tok, &q->json, &q->err);
}

static void helper_main(void *arg)
{
    struct nb_page *p = arg;
    nb_mutex_lock(p->lock);
    for (;;) {
        while (!p->queue && !p->stop) nb_cond_wait(p->wake, p->lock);
        if (p->stop) break;
        question *q = p->queue;
        p->queue = q->next;
        if (!p->queue) p->queue_end = &p->queue;
        nb_mutex_unlock(p->lock);
        ask_engine(p->serve->engine, q);
        nb_mutex_lock(p->lock);
        q->next = p->done;
        p->done = q;
        nb_http_post(p->serve->http, answer_all, p->serve);
    }
    nb_mutex_unlock(p->lock);
}

/* ---- on the loop ---- */

static void free_question(question *q)
{
    nb_free(q->json);
    free(q);
}

static void reply_data(nb_http_ex *ex, nb_str body)
{
    if (nb_http_add_header(ex, "Cache-Control", "no-store") != NB_OK)
        nb_reply_error(ex, 500, NULL, "out of memory");
    else
        nb_http_reply(ex, 200, "application/json", body);
}

static void answer(question *q)
{
    nb_http_ex *ex = q->ex;
    if (!ex) return;
    if (q->st == NB_OK)
        reply_data(ex, nb_str_c(q->json));
    else if (q->st == NB_ERR_NOT_FOUND)
        nb_reply_error(ex, 404, NULL, "%s", q->err.msg);
    else if (q->st == NB_ERR_RANGE)
        nb_reply_error(ex, 400, NULL, "%s", q->err.msg);
    else
        nb_reply_error(ex, nb_http_status_of(q->st), NULL, "%s", q->err.msg);
}

static void answer_all(void *ctx)
{
    struct nb_page *p = ((nb_serve *)ctx)->page;
    if (!p) return; /* posted, then stopped */
    nb_mutex_lock(p->lock);
    question *list = p->done;
    p->done = NULL;
    nb_mutex_unlock(p->lock);
    for (question *q = list, *next; q; q = next) {
        next = q->next;
        p->n_open--;
        answer(q);
        free_question(q);
    }
}

static void client_gone(void *ctx)
{
    question *q = ctx;
    q->ex = NULL;
}

static void page_free(struct nb_page *p)
{
    nb_cond_destroy(p->wake);
    nb_mutex_destroy(p->lock);
    nb_free(p->model);
    free(p);
}

static struct nb_page *page_of(nb_serve *s)
{
    if (s->page) return s->page;
    struct nb_page *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->serve = s;
    p->queue_end = &p->queue;
    if (nb_mutex_create(&p->lock) != NB_OK) {
        free(p);
        return NULL;
    }
    if (nb_cond_create(&p->wake) != NB_OK) {
        nb_mutex_destroy(p->lock);
        free(p);
        return NULL;
    }
    s->page = p;
    return p;
}

static void ask(nb_http_ex *ex, nb_serve *s, const question *what)
{
    struct nb_page *p = page_of(s);
    nb_error err = { 0 };
    if (p && p->n_open >= MAX_QUESTIONS) {
        nb_reply_error(ex, 503, NULL, "%d questions about the cache are waiting already",
                       MAX_QUESTIONS);
        return;
    }
    if (p && !p->thread) (void)nb_thread_create(helper_main, p, &p->thread, &err);
    question *q = p && p->thread ? malloc(sizeof *q) : NULL;
    if (!q) {
        nb_reply_error(ex, 503, NULL, "no memory or thread to ask the engine");
        return;
    }
    *q = *what;
    q->ex = ex;
    nb_http_on_close(ex, client_gone, q);
    p->n_open++;
    nb_mutex_lock(p->lock);
    *p->queue_end = q;
    p->queue_end = &q->next;
    nb_cond_signal(p->wake);
    nb_mutex_unlock(p->lock);
}

/* A whole number of the query; absent: 0. */
static bool number(nb_http_ex *ex, const char *name, size_t *out)
{
    const nb_str v = nb_http_query(ex, name);
    *out = 0;
    if (!v.p) return true;
    bool ok = v.n_bytes > 0 && v.n_bytes <= NUMBER_MAX_DIGITS;
    for (size_t i = 0; ok && i < v.n_bytes; i++) {
        ok = v.p[i] >= '0' && v.p[i] <= '9';
        *out = 10 * *out + (size_t)(v.p[i] - '0');
    }
    if (!ok) nb_reply_error(ex, 400, name, "%s: expected a whole number", name);
    return ok;
}

void nb_page_cache(nb_http_ex *ex, void *ctx)
{
    ask(ex, ctx, &(question){ .kind = ASK_CACHE });
}

void nb_page_block(nb_http_ex *ex, void *ctx)
{
    question q = { .kind = ASK_BLOCK };
    if (number(ex, "layer", &q.layer) && number(ex, "tok", &q.tok)) ask(ex, ctx, &q);
}

void nb_page_stop(nb_serve *s)
{
    struct nb_page *p = s->page;
    if (!p) return;
    nb_mutex_lock(p->lock);
    p->stop = true;
    nb_cond_signal(p->wake);
    nb_mutex_unlock(p->lock);
    nb_thread_join(p->thread);
    for (int i = 0; i < 2; i++) {
        question *list = i ? p->done : p->queue;
        for (question *q = list, *next; q; q = next) {
            next = q->next;
            if (q->ex) nb_http_on_close(q->ex, NULL, NULL);
            free_question(q);
        }
    }
    s->page = NULL;
    page_free(p);
}

/* ---- at once ---- */

static json_int_t num(uint64_t v)
{
    return (json_int_t)v;
}

void nb_page_stats(nb_http_ex *ex, void *ctx)
{
    const nb_serve *s = ctx;
    nb_engine_stats st;
    nb_engine_get_stats(s->engine, &st);
    json_t *blocks = json_pack("{s:I, s:I, s:I, s:I, s:I}", "all", num(st.n_block), "free",
                               num(st.n_block_free), "held", num(st.n_block_held), "once",
                               num(st.n_block_once), "many", num(st.n_block_many));
    json_t *j = json_pack(
        "{s:f, s:I, s:I, s:I, s:I, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:I}",
        "uptime_s", st.uptime_s, "running", num(st.n_running), "waiting", num(st.n_waiting),
        "deferred", num(st.n_deferred), "waiting_tokens", num(st.n_waiting_tok), "blocks", blocks,
        "prefix_queries", num(st.prefix_queries), "prefix_hits", num(st.prefix_hits), "evicted",
        num(st.n_evicted), "preempted", num(st.n_preempted), "prompt_tokens", num(st.prompt_tok),
        "prompt_tokens_cached", num(st.prompt_tok_cached), "generated_tokens",
        num(st.generated_tok), "steps", num(st.n_step), "step_s", st.step_s, "nonfinite",
        num(st.n_nonfinite));
    nb_reply_json(ex, 200, j);
}

/* ---- what the same tokens would cost otherwise ---- */

typedef struct heads {
    size_t n_head, n_kv, d_key, d_value; /* n_kv 0: latent attention */
} heads;

static size_t size_of(const json_t *model, const char *key)
{
    const json_int_t v = json_integer_value(json_object_get(model, key));
    return v > 0 ? (size_t)v : 0;
}

/* Heads as the model has them, for attention without a latent: keys of the part without
 * position (as wide as the large models' heads), values of their own width. */
static heads heads_of(const json_t *model)
{
    heads h = { .n_head = size_of(model, "n_head"), .n_kv = size_of(model, "n_kv_head") };
    h.d_key = size_of(model, h.n_kv ? "head_dim" : "qk_nope_head_dim");
    h.d_value = size_of(model, h.n_kv ? "head_dim" : "v_head_dim");
    return h;
}

static int add_row(json_t *list, const char *name, const char *label, const char *note,
                   double bytes, bool served)
{
    return json_array_append_new(
        list, json_pack("{s:s, s:s, s:s, s:f, s:b}", "name", name, "label", label, "note", note,
                        "bytes_per_token", bytes, "served", (int)served));
}

static double record_bytes(const json_t *model, const char *dtype)
{
    size_t i;
    json_t *r;
    json_array_foreach(json_object_get(model, "records"), i, r) {
        const char *name = json_string_value(json_object_get(r, "dtype"));
        if (name && strcmp(name, dtype) == 0)
            return json_real_value(json_object_get(r, "bytes_per_token"));
    }
    return 0;
}

static int add_heads(json_t *list, const json_t *model, const heads *h, size_t n_kv,
                     const char *name, const char *kind)
{
    nb_buf label = { 0 }, note = { 0 };
    const size_t n_layer = size_of(model, "n_layer");
    const double bytes = 2.0 * (double)(h->d_key + h->d_value) * (double)n_kv * (double)n_layer;
    int bad = nb_buf_printf(&label, "%s, %zu KV heads", kind, n_kv) != NB_OK ||
              nb_buf_printf(&note, "BF16 keys of %zu, values of %zu", h->d_key, h->d_value) != NB_OK;
    bad = bad || add_row(list, name, label.p, note.p, bytes, false);
    nb_buf_deinit(&label);
    nb_buf_deinit(&note);
    return bad;
}

static json_t *compare(const nb_serve *s, const json_t *model)
{
    static const char *const others[] = { "fp8", "bf16" };
    const heads h = heads_of(model);
    const bool mla = h.n_kv == 0;
    json_t *list = json_array();
    int bad = !list || add_row(list, s->info.kv_dtype, s->info.kv_dtype,
                               mla ? "latent and rope key, as served" : "keys and values, as served",
                               s->info.kv_bytes_per_tok, true);
    for (size_t i = 0; !bad && i < NB_COUNT(others); i++) {
        const double bytes = record_bytes(model, others[i]);
        if (bytes > 0 && strcmp(others[i], s->info.kv_dtype) != 0)
            bad = add_row(list, others[i], i ? "bf16" : "fp8",
                          mla ? "latent and rope key" : "keys and values", bytes, false);
    }
    if (!bad && h.d_key && h.n_head && h.n_kv != 8)
        bad = add_heads(list, model, &h, h.n_head < 8 ? h.n_head : 8, "gqa8", "GQA");
    if (!bad && h.d_key && h.n_head && h.n_kv != h.n_head)
        bad = add_heads(list, model, &h, h.n_head, "mha", "MHA");
    if (!bad) return list;
    json_decref(list);
    return NULL;
}

static json_t *engine_json(const nb_serve *s)
{
    const nb_engine_info *i = &s->info;
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:s}", "family",
        i->family, "kv_dtype", i->kv_dtype, "kv_layout", i->kv_layout ? i->kv_layout : "",
        "weights", i->weights, "n_param", num(i->n_param), "n_layer", num(i->n_layer),
        "max_model_len", num(i->max_model_len), "max_num_seqs", num(i->max_num_seqs),
        "kv_bytes_per_tok", i->kv_bytes_per_tok, "n_block", num(i->n_block), "block_tok",
        num(i->block_tok), "block_bytes", num(i->block_bytes), "n_thread", num(i->n_thread),
        "kernels", i->kernels ? i->kernels : "");
}

/* The model's description is read once; without it (its files have gone) the comparison is
 * left out. */
static json_t *model_json(nb_serve *s)
{
    struct nb_page *p = page_of(s);
    if (!p) return NULL;
    if (!p->model) (void)nb_model_describe(s->o.model, &p->model, NULL);
    return p->model ? json_loads(p->model, 0, NULL) : json_object();
}

void nb_page_config(nb_http_ex *ex, void *ctx)
{
    nb_serve *s = ctx;
    json_t *model = model_json(s);
    json_t *j = json_pack(
        "{s:s, s:s, s:b, s:b, s:{s:f, s:f, s:I, s:f}, s:o, s:o, s:O}", "name", s->name, "version",
        nb_version(), "has_text", s->text != NULL, "has_template",
        s->text && nb_text_has_template(s->text), "sampling", "temperature",
        s->sampling.temperature, "top_p", s->sampling.top_p, "top_k", num(s->sampling.top_k),
        "min_p", s->sampling.min_p, "engine", engine_json(s), "compare", compare(s, model), "model",
        model);
    json_decref(model);
    nb_reply_json(ex, 200, j);
}
