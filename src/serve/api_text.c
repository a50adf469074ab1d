/* api_text.c - GET /v1/models, POST /tokenize and /detokenize, GET /tokenizer_info. */
#include "serve/job.h"

static json_t *permission(const nb_serve *s, const char *id)
{
    return json_pack("{s:s+, s:s, s:I, s:b, s:b, s:b, s:b, s:b, s:b, s:s, s:n, s:b}", "id",
                     "modelperm-", id, "object", "model_permission", "created",
                     (json_int_t)s->created, "allow_create_engine", 0, "allow_sampling", 1,
                     "allow_logprobs", 1, "allow_search_indices", 0, "allow_view", 1,
                     "allow_fine_tuning", 0, "organization", "*", "group", "is_blocking", 0);
}

static json_t *card(const nb_serve *s, const char *id)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:n, s:I, s:[o]}", "id", id, "object", "model",
                     "created", (json_int_t)s->created, "owned_by", "nibble", "root", s->o.model,
                     "parent", "max_model_len", (json_int_t)s->info.max_model_len, "permission",
                     permission(s, id));
}

void nb_api_models(nb_http_ex *ex, void *ctx)
{
    const nb_serve *s = ctx;
    json_t *data = json_array();
    for (size_t i = 0; data && i < s->o.n_served_name; i++)
        if (json_array_append_new(data, card(s, s->o.served_name[i])) != 0) {
            json_decref(data);
            data = NULL;
        }
    nb_reply_json(ex, 200, data ? json_pack("{s:s, s:o}", "object", "list", "data", data) : NULL);
}

/* ---- /tokenize ---- */

/* A text as it is, or a chat through its template. */
static nb_status read_tokenize(const nb_serve *s, nb_http_ex *ex, nb_ask *a, nb_prompt *p)
{
    const json_t *prompt = nb_ask_get(a, "prompt");
    nb_error err = { 0 };
    if (!s->text) return nb_ask_bad(a, NULL, "the model has no tokenizer");
    a->add_special = prompt != NULL;
    NB_TRY(nb_ask_bool(a, "add_special_tokens", &a->add_special));
    if (!prompt) {
        if (!nb_ask_get(a, "messages"))
            return nb_ask_bad(a, "prompt", "expected a prompt or messages");
        if (nb_ask_get(a, "chat_template"))
            return nb_ask_bad(a, "chat_template", "chat_template: the template is the server's");
        return nb_render_chat(s, a, nb_http_body(ex), p);
    }
    if (!json_is_string(prompt)) return nb_ask_bad(a, "prompt", "prompt: expected a string");
    const unsigned flags = NB_TEXT_PARSE_SPECIAL | (a->add_special ? NB_TEXT_ADD_SPECIAL : 0);
    const nb_status st =
        nb_text_tokenize(s->text, json_string_value(prompt), json_string_length(prompt), flags,
                         &p->ids, &p->n_ids, &err);
    if (st != NB_OK) return nb_ask_bad(a, "prompt", "prompt: %s", err.msg);
    p->owned = true;
    return NB_OK;
}

static void write_token_strs(nb_writer *w, const nb_serve *s, const nb_prompt *p)
{
    NB_W(w, "[");
    for (size_t i = 0; i < p->n_ids; i++) {
        size_t n = 0;
        const char *t = nb_text_token_bytes(s->text, p->ids[i], &n);
        if (i) NB_W(w, ",");
        nb_w_str(w, (nb_str){ t ? t : "", t ? n : 0 });
    }
    NB_W(w, "]");
}

void nb_api_tokenize(nb_http_ex *ex, void *ctx)
{
    const nb_serve *s = ctx;
    nb_ask a = { 0 };
    nb_prompt p = { 0 };
    nb_writer w = { 0 };
    bool strs = false;
    if (nb_open_body(ex, &a) && nb_check_model(s, ex, &a)) {
        nb_status st = nb_ask_bool(&a, "return_token_strs", &strs);
        if (st == NB_OK) st = read_tokenize(s, ex, &a, &p);
        if (st == NB_OK) {
            NB_W(&w, "{\"count\":");
            nb_w_uint(&w, p.n_ids);
            NB_W(&w, ",\"max_model_len\":");
            nb_w_uint(&w, s->info.max_model_len);
            NB_W(&w, ",\"tokens\":");
            nb_w_ids(&w, p.ids, p.n_ids);
            NB_W(&w, ",\"token_strs\":");
            if (strs)
                write_token_strs(&w, s, &p);
            else
                NB_W(&w, "null");
            NB_W(&w, "}");
            nb_reply_writer(ex, &w);
        } else {
            nb_reply_ask(ex, &a);
        }
    }
    nb_buf_deinit(&w.b);
    nb_prompt_deinit(&p);
    nb_ask_deinit(&a);
}

/* ---- /detokenize ---- */

static nb_status detokenize(const nb_serve *s, nb_ask *a, nb_writer *w)
{
    uint32_t *ids;
    size_t n_ids, n = 0;
    char *text = NULL;
    nb_error err = { 0 };
    if (!s->text) return nb_ask_bad(a, NULL, "the model has no tokenizer");
    const json_t *list = nb_ask_get(a, "tokens");
    if (!list) return nb_ask_bad(a, "tokens", "tokens is missing: expected an array of token ids");
    NB_TRY(nb_ask_ids(a, "tokens", list, s->info.vocab, &ids, &n_ids));
    if (nb_text_detokenize(s->text, ids, n_ids, false, &text, &n, &err) != NB_OK)
        return nb_ask_bad(a, "tokens", "tokens: %s", err.msg);
    NB_W(w, "{\"prompt\":");
    nb_w_str(w, (nb_str){ text, n });
    NB_W(w, "}");
    nb_free(text);
    return NB_OK;
}

void nb_api_detokenize(nb_http_ex *ex, void *ctx)
{
    const nb_serve *s = ctx;
    nb_ask a = { 0 };
    nb_writer w = { 0 };
    if (nb_open_body(ex, &a) && nb_check_model(s, ex, &a)) {
        if (detokenize(s, &a, &w) == NB_OK)
            nb_reply_writer(ex, &w);
        else
            nb_reply_ask(ex, &a);
    }
    nb_buf_deinit(&w.b);
    nb_ask_deinit(&a);
}

/* tokenizer_config.json, as vLLM. */
void nb_api_tokenizer_info(nb_http_ex *ex, void *ctx)
{
    const nb_serve *s = ctx;
    if (!s->text) {
        nb_reply_error(ex, 404, NULL, "the model has no tokenizer");
        return;
    }
    json_t *doc = s->tokenizer_info ? json_copy(s->tokenizer_info) : json_object();
    if (doc && !json_object_get(doc, "tokenizer_class") &&
        json_object_set_new(doc, "tokenizer_class", json_string("PreTrainedTokenizerFast")) != 0) {
        json_decref(doc);
        doc = NULL;
    }
    nb_reply_json(ex, 200, doc);
}
