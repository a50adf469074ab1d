/* api_text.c - GET /v1/models, POST /tokenize and /detokenize, GET /tokenizer_info. */
#include "serve/chat_map.h"
#include "serve/fields.h"
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

/* One route for each name, so the name is there. */
void nb_api_model(nb_http_ex *ex, void *ctx)
{
    const nb_str path = nb_http_path(ex);
    const nb_serve *s = ctx;
    for (size_t i = 0; i < s->o.n_served_name; i++)
        if (nb_str_eqc((nb_str){ path.p + NB_MODEL_PATH_BYTES, path.n_bytes - NB_MODEL_PATH_BYTES },
                       s->o.served_name[i])) {
            nb_reply_json(ex, 200, card(s, s->o.served_name[i]));
            return;
        }
    nb_reply_error(ex, 404, "model", "The model does not exist.");
}

/* ---- /tokenize ---- */

/* A text as it is, or a chat through its template. */
static nb_status tokenize_prepare(nb_job *j)
{
    nb_ask *a = &j->ask;
    const json_t *prompt = nb_ask_get(a, "prompt");
    nb_error err = { 0 };
    if (!j->s->text) return nb_ask_bad(a, NULL, "the model has no tokenizer");
    a->n = 1;
    a->add_special = prompt != NULL;
    NB_TRY(nb_ask_bool(a, "add_special_tokens", &a->add_special));
    NB_TRY(nb_ask_bool(a, "return_token_strs", &a->token_strs));
    if (!prompt) {
        if (!nb_ask_get(a, "messages"))
            return nb_ask_bad(a, "prompt", "expected a prompt or messages");
        NB_TRY(nb_fields_check(a, NB_FIELDS_CHAT, &j->s->lim));
        NB_TRY(nb_ask_read_chat(a));
        return nb_job_chat(j, nb_map_chat);
    }
    NB_TRY(nb_job_prompts(j, 1));
    nb_prompt *p = &j->prompt[0];
    if (!json_is_string(prompt)) return nb_ask_bad(a, "prompt", "prompt: expected a string");
    const unsigned flags = NB_TEXT_PARSE_SPECIAL | (a->add_special ? NB_TEXT_ADD_SPECIAL : 0);
    if (nb_text_tokenize(j->s->text, json_string_value(prompt), json_string_length(prompt), flags,
                         &p->ids, &p->n_ids, &err) != NB_OK)
        return nb_ask_bad(a, "prompt", "prompt: %s", err.msg);
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

static void tokenize_answer(nb_job *j)
{
    nb_writer *w = &j->out;
    const nb_prompt *p = &j->prompt[0];
    NB_W(w, "{\"count\":");
    nb_w_uint(w, p->n_ids);
    NB_W(w, ",\"max_model_len\":");
    nb_w_uint(w, j->s->info.max_model_len);
    NB_W(w, ",\"tokens\":");
    nb_w_ids(w, p->ids, p->n_ids);
    NB_W(w, ",\"token_strs\":");
    if (j->ask.token_strs)
        write_token_strs(w, j->s, p);
    else
        NB_W(w, "null");
    NB_W(w, "}");
}

void nb_api_tokenize(nb_http_ex *ex, void *ctx)
{
    static const nb_api api = { .path = "/tokenize",
                                .id_prefix = "tokn-",
                                .kind = NB_ASK_CHAT,
                                .prepare = tokenize_prepare,
                                .answer = tokenize_answer };
    nb_job_start(ctx, ex, &api);
}

/* ---- /detokenize ---- */

static nb_status detokenize_prepare(nb_job *j)
{
    nb_ask *a = &j->ask;
    const json_t *list = nb_ask_get(a, "tokens");
    char *text = NULL;
    size_t n = 0;
    nb_error err = { 0 };
    if (!j->s->text) return nb_ask_bad(a, NULL, "the model has no tokenizer");
    if (!list) return nb_ask_bad(a, "tokens", "tokens is missing: expected an array of token ids");
    a->n = 1;
    NB_TRY(nb_job_prompts(j, 1));
    nb_prompt *p = &j->prompt[0];
    NB_TRY(nb_ask_ids(a, "tokens", list, j->s->info.vocab, &p->ids, &p->n_ids));
    if (nb_text_detokenize(j->s->text, p->ids, p->n_ids, false, &text, &n, &err) != NB_OK)
        return nb_ask_bad(a, "tokens", "tokens: %s", err.msg);
    p->text = (nb_str){ text, n };
    p->text_owned = true;
    return NB_OK;
}

static void detokenize_answer(nb_job *j)
{
    NB_W(&j->out, "{\"prompt\":");
    nb_w_str(&j->out, j->prompt[0].text);
    NB_W(&j->out, "}");
}

void nb_api_detokenize(nb_http_ex *ex, void *ctx)
{
    static const nb_api api = { .path = "/detokenize",
                                .id_prefix = "detokn-",
                                .kind = NB_ASK_CHAT,
                                .prepare = detokenize_prepare,
                                .answer = detokenize_answer };
    nb_job_start(ctx, ex, &api);
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
