/* fields.c - see fields.h.  `nibble serve --help=fields` prints the table. */
#include "serve/fields.h"

#include <stdio.h>

#define CHAT NB_FIELDS_CHAT
#define TEXT NB_FIELDS_COMPLETION
#define OPENAI (NB_FIELDS_CHAT | NB_FIELDS_COMPLETION)
#define CLAUDE NB_FIELDS_MESSAGES
#define RESP NB_FIELDS_RESPONSES
#define ALL (OPENAI | CLAUDE | RESP)

#define OBEYED NB_FIELD_OBEYED
#define HARMLESS NB_FIELD_HARMLESS
#define WARNED NB_FIELD_WARNED
#define REFUSED NB_FIELD_REFUSED

#define NO_STRUCTURE "structured outputs are not supported"
#define NO_TOKEN_LIST "not supported; logit_bias can hold tokens back"
#define ONE_CONTEXT "prompts and answers are computed by one server"
#define NO_MEDIA "the model takes text only"
#define NO_REASONING "reasoning is part of the text of completions"

typedef struct row {
    const char *name;
    unsigned api;
    nb_field_kind kind;
    /* Values, joined by |, that ask for nothing and are accepted: numbers, true, false, words, or
     * the type of an object.  NULL: "", [], {} and false.  null is as absent. */
    const char *fine;
    const char *note;
    bool on_template; /* obeyed where the chat template takes it; `kind` elsewhere */
} row;

/* OBEYED fields are read and checked in parse_request.c, api_*.c and the renderer. */
// clang-format off
static const row rows[] = {
    /* ---- what is asked ---- */
    { "model", ALL, OBEYED, NULL, "a name of --served-model-name; 404 for others", false },
    { "messages", CHAT | CLAUDE, OBEYED, NULL, "text only; a role that the chat template would leave out is refused", false },
    { "system", CLAUDE, OBEYED, NULL, "a string or text blocks", false },
    { "prompt", TEXT, OBEYED, NULL, "a string, strings, token ids, or lists of token ids", false },
    { "stream", ALL, OBEYED, NULL, "", false },
    { "stream_options", OPENAI, OBEYED, NULL, "include_usage, continuous_usage_stats", false },
    { "n", OPENAI, OBEYED, NULL, "1 to --max-n", false },
    { "best_of", TEXT, OBEYED, NULL, "must equal n", false },
    { "echo", TEXT, OBEYED, NULL, "", false },
    { "echo", CHAT, REFUSED, "false", "not supported for chats", false },
    { "suffix", TEXT, REFUSED, NULL, "filling in before a suffix is not supported", false },
    { "prompt_embeds", TEXT, REFUSED, NULL, "embeddings as a prompt are not supported", false },

    /* ---- length and end ---- */
    { "max_tokens", OPENAI | CLAUDE, OBEYED, NULL, "messages: required", false },
    { "max_completion_tokens", CHAT, OBEYED, NULL, "counts more than max_tokens", false },
    { "n_predict", OPENAI, REFUSED, NULL, "an option of llama.cpp; use max_tokens", false },
    { "min_tokens", OPENAI, OBEYED, NULL, "", false },
    { "stop", OPENAI, OBEYED, NULL, "a string, or up to --max-stop of them", false },
    { "stop_sequences", CLAUDE, OBEYED, NULL, "", false },
    { "stop_token_ids", OPENAI, OBEYED, NULL, "", false },
    { "include_stop_str_in_output", OPENAI, OBEYED, NULL, "", false },
    { "ignore_eos", OPENAI, OBEYED, NULL, "", false },
    { "truncate_prompt_tokens", OPENAI, OBEYED, NULL, "keeps the last tokens of a prompt", false },
    { "truncation_side", OPENAI, REFUSED, "left", "a prompt is cut at its beginning", false },
    { "thinking_token_budget", CHAT, OBEYED, NULL, "then the end of the thought is forced", false },
    { "thinking_token_budget", TEXT, REFUSED, NULL, NO_REASONING, false },
    { "repetition_detection", OPENAI, REFUSED, NULL, "not supported; repetition_penalty makes repetitions less likely", false },

    /* ---- sampling ---- */
    { "temperature", ALL, OBEYED, NULL, "", false },
    { "top_p", ALL, OBEYED, NULL, "", false },
    { "top_k", ALL, OBEYED, NULL, "", false },
    { "min_p", OPENAI, OBEYED, NULL, "", false },
    { "presence_penalty", OPENAI, OBEYED, NULL, "-2 to 2", false },
    { "frequency_penalty", OPENAI, OBEYED, NULL, "-2 to 2", false },
    { "repetition_penalty", OPENAI, OBEYED, NULL, "", false },
    { "logit_bias", OPENAI, OBEYED, NULL, "-100 to 100 for a token id", false },
    { "seed", OPENAI, OBEYED, NULL, "the same request with the same seed has the same tokens", false },
    { "use_beam_search", OPENAI, REFUSED, "false", "beam search is not supported", false },
    { "length_penalty", OPENAI, HARMLESS, NULL, "is for beam search", false },
    { "early_stopping", OPENAI, HARMLESS, NULL, "is for beam search", false },
    { "bad_words", OPENAI, REFUSED, NULL, NO_TOKEN_LIST, false },
    { "allowed_token_ids", OPENAI, REFUSED, NULL, NO_TOKEN_LIST, false },
    { "logits_processors", OPENAI, REFUSED, NULL, "not supported", false },
    { "vllm_xargs", OPENAI, REFUSED, NULL, "not supported", false },

    /* ---- what comes back ---- */
    { "logprobs", OPENAI, OBEYED, NULL, "up to --max-logprobs", false },
    { "top_logprobs", CHAT, OBEYED, NULL, "needs logprobs", false },
    { "prompt_logprobs", OPENAI, OBEYED, NULL, "not with stream", false },
    { "logprob_token_ids", OPENAI, REFUSED, NULL, "not supported; logprobs shows the most likely tokens", false },
    { "return_tokens_as_token_ids", OPENAI, OBEYED, NULL, "", false },
    { "return_token_ids", OPENAI, OBEYED, NULL, "", false },
    { "return_token_offsets", OPENAI, REFUSED, "false", "not supported", false },
    { "return_prompt_text", CHAT, REFUSED, "false", "not supported; /v1/chat/completions/render shows the prompt", false },
    { "return_assistant_tokens_mask", CHAT, REFUSED, "false", "not supported", false },
    { "routed_experts_prompt_start", OPENAI, HARMLESS, NULL, "answers do not name experts", false },
    { "skip_special_tokens", OPENAI, REFUSED, "true", "special tokens are left out of the text", false },
    { "spaces_between_special_tokens", OPENAI, HARMLESS, NULL, "special tokens are left out of the text", false },
    { "stream_interval", OPENAI, WARNED, "1", "a chunk of a stream is one token", false },

    /* ---- structured output ---- */
    { "response_format", OPENAI, OBEYED, NULL, "text, json_object, json_schema", false },
    { "structured_outputs", OPENAI, OBEYED, NULL, "one of json, regex, choice, grammar, json_object", false },
    { "guided_json", OPENAI, OBEYED, NULL, "a schema", false },
    { "guided_regex", OPENAI, OBEYED, NULL, "an expression", false },
    { "guided_choice", OPENAI, OBEYED, NULL, "a list of texts", false },
    { "guided_grammar", OPENAI, OBEYED, NULL, "GBNF", false },
    { "guided_decoding_backend", OPENAI, HARMLESS, NULL, NO_STRUCTURE, false },
    { "guided_whitespace_pattern", OPENAI, HARMLESS, NULL, NO_STRUCTURE, false },
    { "structural_tag", OPENAI, REFUSED, NULL, NO_STRUCTURE, false },
    { "json_schema", OPENAI, OBEYED, NULL, "a schema", false },
    { "regex", OPENAI, OBEYED, NULL, "an expression", false },
    { "ebnf", OPENAI, OBEYED, NULL, "GBNF", false },
    { "grammar", OPENAI, OBEYED, NULL, "GBNF", false },
    { "output_config", CLAUDE, OBEYED, NULL, "effort, format", false },
    { "output_format", CLAUDE, OBEYED, NULL, "json_schema", false },

    /* ---- tools ---- */
    { "tools", CHAT | CLAUDE | RESP, OBEYED, NULL, "shown by the chat template, or by a text of the server where it shows none", false },
    { "tool_choice", CHAT | CLAUDE | RESP, OBEYED, NULL, "auto, none, required, or a tool", false },
    { "parallel_tool_calls", CHAT | RESP, OBEYED, NULL, "false ends the answer behind its first call", false },
    { "functions", CHAT, REFUSED, NULL, "not supported; use tools", false },
    { "function_call", CHAT, REFUSED, "none|auto", "not supported; use tools", false },
    { "web_search_options", CHAT, REFUSED, NULL, "the server searches nothing", false },
    { "mcp_servers", CLAUDE, REFUSED, NULL, "the server calls no tools", false },
    { "container", CLAUDE, HARMLESS, NULL, "the server runs no code", false },

    /* ---- the chat template ---- */
    { "add_generation_prompt", CHAT, OBEYED, NULL, "", false },
    { "continue_final_message", CHAT, OBEYED, NULL, "", false },
    { "add_special_tokens", OPENAI, OBEYED, NULL, "", false },
    { "chat_template_kwargs", CHAT | CLAUDE | RESP, WARNED, NULL, "the chat template does not know all its names", true },
    { "documents", CHAT, REFUSED, NULL, "not supported by the model's chat template", true },
    { "reasoning_effort", CHAT, OBEYED, NULL, "none turns thinking off, others turn it on; the chat template sees it", false },
    { "verbosity", CHAT, WARNED, NULL, "the chat template does not know it", false },
    { "include_reasoning", CHAT, OBEYED, NULL, "", false },
    { "thinking", CLAUDE, OBEYED, NULL, "type, budget_tokens", false },
    { "chat_template", CHAT, REFUSED, NULL, "the template is the server's; --chat-template sets it", false },

    /* ---- scheduling and cache ---- */
    { "priority", OPENAI | CLAUDE | RESP, OBEYED, NULL, "with --scheduling-policy priority", false },
    { "cache_salt", OPENAI | CLAUDE | RESP, OBEYED, NULL, "prefixes are shared within one salt only", false },
    { "request_id", OPENAI | CLAUDE | RESP, OBEYED, NULL, "", false },
    { "session_id", OPENAI, HARMLESS, NULL, "the prefix cache needs no sessions", false },
    { "prompt_cache_key", CHAT | RESP, HARMLESS, NULL, "every prefix is cached", false },
    { "prompt_cache_retention", CHAT | RESP, HARMLESS, NULL, "every prefix is cached", false },
    { "prompt_cache_options", CHAT, HARMLESS, NULL, "every prefix is cached", false },
    { "cache_control", CLAUDE, HARMLESS, NULL, "every prefix is cached", false },
    { "cache_prompt", OPENAI, HARMLESS, NULL, "every prefix is cached", false },
    { "kv_transfer_params", OPENAI | CLAUDE, REFUSED, NULL, ONE_CONTEXT, false },
    { "ec_transfer_params", OPENAI | CLAUDE, REFUSED, NULL, ONE_CONTEXT, false },
    { "prediction", CHAT, HARMLESS, NULL, "it could only make an answer faster", false },
    { "service_tier", ALL, HARMLESS, NULL, "there is one tier", false },
    { "context_management", CLAUDE, WARNED, NULL, "the context is as the client sends it", false },

    /* ---- other media ---- */
    { "modalities", CHAT, OBEYED, NULL, "text", false },
    { "audio", CHAT, REFUSED, NULL, NO_MEDIA, false },
    { "media_io_kwargs", CHAT, HARMLESS, NULL, NO_MEDIA, false },
    { "mm_processor_kwargs", CHAT, HARMLESS, NULL, NO_MEDIA, false },

    /* ---- /v1/responses ---- */
    { "input", RESP, OBEYED, NULL, "a string, or items: messages, reasoning, function calls and their outputs", false },
    { "instructions", RESP, OBEYED, NULL, "the system's text", false },
    { "max_output_tokens", RESP, OBEYED, NULL, "", false },
    { "reasoning", RESP, OBEYED, NULL, "effort; summaries are not made", false },
    { "text", RESP, OBEYED, NULL, "format", false },
    { "previous_response_id", RESP, REFUSED, "", "nothing is stored", false },
    { "conversation", RESP, REFUSED, "", "nothing is stored", false },
    { "background", RESP, REFUSED, "false", "answers are not stored", false },
    { "store", RESP, HARMLESS, NULL, "nothing is stored, and the answer says so", false },
    { "include", RESP, HARMLESS, NULL, "reasoning is always there, as text", false },
    { "truncation", RESP, HARMLESS, NULL, "the input is as the client sends it", false },
    { "client_metadata", RESP, HARMLESS, NULL, "", false },
    { "max_tool_calls", RESP, HARMLESS, NULL, "the server calls no tools", false },
    { "top_logprobs", RESP, WARNED, "0", "not shown in responses", false },

    /* ---- for the provider ---- */
    { "user", OPENAI | RESP, HARMLESS, NULL, "", false },
    { "metadata", ALL, HARMLESS, NULL, "nothing is stored", false },
    { "safety_identifier", CHAT | RESP, HARMLESS, NULL, "", false },
    { "store", CHAT, WARNED, NULL, "answers are not stored", false },
    { "moderation", CHAT, WARNED, NULL, "the server does not moderate", false },
    { "inference_geo", CLAUDE, HARMLESS, NULL, "", false },
    { "speed", CLAUDE, HARMLESS, NULL, "", false },
};
// clang-format on
_Static_assert(NB_COUNT(rows) <= 64 * NB_COUNT(((nb_ask *)0)->warned), "a bit for each row");

static bool is_empty(const json_t *v)
{
    return (json_is_string(v) && !json_string_length(v)) ||
           (json_is_array(v) && !json_array_size(v)) || (json_is_object(v) && !json_object_size(v));
}

/* Whether a value is one of those that ask for nothing. */
static bool is_fine(const char *fine, const json_t *v)
{
    char text[32];
    const char *word = json_string_value(json_is_object(v) ? json_object_get(v, "type") : v);
    if (!fine) return is_empty(v) || json_is_false(v);
    if (json_is_number(v)) {
        (void)snprintf(text, sizeof text, "%.10g", json_number_value(v));
        word = text;
    } else if (json_is_boolean(v)) {
        word = json_is_true(v) ? "true" : "false";
    }
    for (const char *p = fine; word && *p;) {
        const size_t n = strcspn(p, "|");
        if (strlen(word) == n && memcmp(word, p, n) == 0) return true;
        p += n + (p[n] == '|');
    }
    return false;
}

static bool mentions(const nb_ask_limits *lim, const char *name)
{
    return !lim->template_mentions || lim->template_mentions(lim->template_ctx, name);
}

/* Whether the chat template takes a field of such a value. */
static bool is_shown(const nb_ask *a, const nb_ask_limits *lim, const char *name, const json_t *v)
{
    const char *key;
    json_t *member;
    if (strcmp(name, "tools") == 0) { /* with tool_choice none they ask for nothing */
        const json_t *choice = nb_ask_get(a, "tool_choice");
        if (choice && is_fine("none", choice)) return true;
    }
    if (strcmp(name, "chat_template_kwargs") != 0) return mentions(lim, name);
    json_object_foreach((json_t *)(uintptr_t)v, key, member) if (!mentions(lim, key)) return false;
    return true;
}

nb_status nb_fields_check(nb_ask *a, unsigned api, const nb_ask_limits *lim)
{
    for (size_t i = 0; i < NB_COUNT(rows); i++) {
        const row *r = &rows[i];
        if (!(r->api & api) || (r->kind != REFUSED && r->kind != WARNED)) continue;
        const json_t *v = nb_ask_get(a, r->name);
        if (!v || is_fine(r->fine, v)) continue;
        if (r->on_template && is_shown(a, lim, r->name, v)) continue;
        if (r->kind == REFUSED) return nb_ask_bad(a, r->name, "%s: %s", r->name, r->note);
        a->warned[i / 64] |= (uint64_t)1 << i % 64;
    }
    return NB_OK;
}

void nb_fields_warning(size_t i, char *line, size_t n)
{
    (void)snprintf(line, n, "the field %s of a request has no effect: %s (logged once)",
                   rows[i].name, rows[i].note);
}

bool nb_serve_field_at(size_t i, nb_serve_field *out)
{
    if (i >= NB_COUNT(rows)) return false;
    const row *r = &rows[i];
    *out = (nb_serve_field){ .name = r->name,
                             .note = r->note,
                             .kind = r->on_template ? OBEYED : r->kind,
                             .unless_shown = r->on_template ? r->kind : OBEYED,
                             .chat = r->api & CHAT,
                             .completions = r->api & TEXT,
                             .messages = r->api & CLAUDE,
                             .responses = r->api & RESP };
    return true;
}
