/* fuzz_serve_request.c - the body of a request.
 *
 * Input: a byte that says which endpoint and which server, then the body.  What is accepted keeps
 * the promises of parse_request.h; what is refused says why in one line; the same body twice
 * gives the same.  The error object of the refusal is JSON. */
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "serve/chat_map.h"
#include "serve/fields.h"
#include "serve/job.h"
#include "serve/json_size.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void want(int ok)
{
    if (!ok) abort();
}

static void judge_sampling(const nb_ask *a, const nb_ask_limits *l)
{
    const nb_sampling *s = &a->sampling;
    want(s->temperature >= 0 && s->top_p > 0 && s->top_p <= 1 && s->min_p >= 0 && s->min_p <= 1);
    want(s->repetition_penalty >= 1e-6 && s->presence_penalty >= -2 && s->presence_penalty <= 2);
    want(s->n_logprobs >= -1 && s->n_logprobs <= 20 && a->logprobs == (s->n_logprobs >= 0));
    want(a->prompt_logprobs >= -1 && a->prompt_logprobs <= 20);
    want(a->n >= 1 && a->n <= l->max_n && s->n_stop <= l->max_stop);
    want(!a->has_max_tokens || s->max_tokens || a->echo);
    want(!a->continuous_usage || a->include_usage);
    for (size_t i = 0; i < s->n_stop; i++)
        want(s->stop[i][0] && nb_utf8_valid(nb_str_c(s->stop[i])));
    for (size_t i = 0; i < s->n_stop_id; i++) want(s->stop_id[i] < l->vocab);
    for (size_t i = 0; i < s->n_logit_bias; i++)
        want(s->logit_bias[i].id < l->vocab && s->logit_bias[i].bias >= -100 &&
             s->logit_bias[i].bias <= 100);
}

static void judge_refusal(const nb_ask *a)
{
    nb_writer w = { 0 };
    want(a->err.msg[0] && !strchr(a->err.msg, '\n'));
    nb_w_error(&w, 400, a->param, a->err.msg);
    if (w.st == NB_OK) {
        json_error_t je;
        json_t *j = json_loadb(w.b.p, w.b.n_bytes, 0, &je);
        want(j || json_error_code(&je) == json_error_out_of_memory);
        json_decref(j);
    }
    nb_buf_deinit(&w.b);
}

static size_t n_containers(const json_t *j)
{
    size_t n = json_is_object(j) || json_is_array(j) ? 1 : 0;
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)j, key, v) n += n_containers(v);
    for (size_t i = 0; i < json_array_size(j); i++) n += n_containers(json_array_get(j, i));
    return n;
}

/* What is counted without parsing is what the parser makes. */
static void judge_size(const nb_ask *a, nb_str body)
{
    const nb_json_size s = nb_json_measure(body);
    want(!a->doc || s.n_container == n_containers(a->doc));
    want(s.tree_bytes >= s.n_container);
}

static nb_status run(nb_ask *a, nb_ask_kind kind, nb_str body, const nb_ask_limits *l)
{
    nb_status st = nb_ask_open(a, body);
    judge_size(a, body);
    if (st == NB_OK) st = nb_ask_read(a, kind, l);
    if (st == NB_OK)
        judge_sampling(a, l);
    else
        judge_refusal(a);
    return st;
}

static bool mentions_nothing(const void *ctx, const char *word)
{
    (void)ctx;
    (void)word;
    return false;
}

/* A chat in the common form: JSON with messages, whatever the options change in it. */
static void judge_chat(const nb_ask *a, json_t *chat, uint8_t bits)
{
    const nb_chat_rules r = { .kwargs = bits & 8 ? json_pack("{s:b}", "thinking", 1) : NULL,
                              .content = (nb_content_format)(bits >> 4 & 3) % 3,
                              .hide_tools = bits & 64 };
    const json_t *own = json_object_get(chat, "chat_template_kwargs");
    if (nb_chat_rules_apply(&r, a, chat) == NB_OK) {
        char *text = json_dumps(chat, JSON_COMPACT);
        json_t *again = text ? json_loads(text, JSON_ALLOW_NUL, NULL) : NULL;
        want(!again || json_is_object(again));
        if (again && a->thinking != NB_THINKING_DEFAULT && (!own || json_is_object(own)))
            want(json_object_get(json_object_get(again, "chat_template_kwargs"), "thinking") != NULL);
        json_decref(again);
        free(text);
    }
    json_decref(r.kwargs);
}

/* The mappings of the chat APIs. */
static void map_chat(nb_str body, uint8_t bits, const nb_ask_limits *l)
{
    static const struct {
        unsigned fields;
        nb_status (*read)(nb_ask *a), (*map)(nb_ask *a, json_t **out);
    } api[] = { { NB_FIELDS_CHAT, nb_ask_read_chat, nb_map_chat },
                { NB_FIELDS_MESSAGES, nb_ask_read_messages, nb_map_messages },
                { NB_FIELDS_RESPONSES, nb_ask_read_responses, nb_map_responses } };
    for (size_t i = 0; i < NB_COUNT(api); i++) {
        nb_ask a = { 0 };
        json_t *chat = NULL;
        nb_status st = nb_ask_open(&a, body);
        if (st == NB_OK) st = nb_fields_check(&a, api[i].fields, l);
        if (st == NB_OK) st = api[i].read(&a);
        if (st == NB_OK) st = api[i].map(&a, &chat);
        if (st == NB_OK)
            judge_chat(&a, chat, bits);
        else
            judge_refusal(&a);
        json_decref(chat);
        nb_ask_deinit(&a);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n == 0) return 0;
    const nb_ask_kind kind = data[0] & 1 ? NB_ASK_COMPLETION : NB_ASK_CHAT;
    nb_ask_limits l = { .vocab = 4096,
                        .max_model_len = 1000,
                        .max_logprobs = 20,
                        .max_n = 8,
                        .max_stop = 4,
                        .priority = data[0] & 2,
                        .force_usage = data[0] & 4 };
    nb_sampling_default(&l.sampling);
    if (data[0] & 128) l.template_mentions = mentions_nothing;
    const nb_str body = { (const char *)data + 1, n - 1 };
    map_chat(body, data[0], &l);
    nb_ask a = { 0 }, b = { 0 };
    const nb_status st = run(&a, kind, body, &l), again = run(&b, kind, body, &l);
    const int starved = a.err.status == NB_ERR_NOMEM || b.err.status == NB_ERR_NOMEM;
    want(st == again || starved || strstr(a.err.msg, "memory") || strstr(b.err.msg, "memory"));
    nb_ask_deinit(&a);
    nb_ask_deinit(&b);
    return 0;
}
