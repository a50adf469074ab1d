/* parse_request.h - what a request asks for: the fields that the endpoints share.
 *
 * Everything is optional: absent and null are the same, unknown fields are ignored, and a wrong
 * type or range is refused with the field's name in `param`.  fields.h says which fields are known
 * and not supported.
 * Names, ranges and defaults: OpenAI's API and vLLM's additions to it. */
#ifndef NB_SERVE_PARSE_REQUEST_H
#define NB_SERVE_PARSE_REQUEST_H
#include <jansson.h>

#include "base/str.h"
#include "nibble/nibble.h"

/* What a server allows and fills in. */
typedef struct nb_ask_limits {
    nb_sampling sampling; /* defaults; max_tokens is not looked at */
    size_t vocab, max_model_len;
    size_t max_logprobs, max_n, max_stop;
    bool priority; /* priorities mean something */
    bool force_usage, tokens_as_ids;
    /* Whether the chat template mentions a word; NULL: every one. */
    bool (*template_mentions)(const void *ctx, const char *word);
    const void *template_ctx;
} nb_ask_limits;

/* Whom a refusal comes from: which fields an endpoint knows. */
typedef enum nb_ask_kind { NB_ASK_CHAT, NB_ASK_COMPLETION } nb_ask_kind;

typedef enum nb_tool_choice {
    NB_TOOLS_AUTO,
    NB_TOOLS_NONE,
    NB_TOOLS_REQUIRED,
    NB_TOOLS_NAMED
} nb_tool_choice;
typedef enum nb_thinking { NB_THINKING_DEFAULT, NB_THINKING_ON, NB_THINKING_OFF } nb_thinking;

typedef struct nb_ask {
    struct nb_ask_block *mem; /* strings and arrays of the fields below */
    json_t *doc;              /* the body, an object; NULL after nb_ask_forget */
    nb_sampling sampling;     /* max_tokens: see has_max_tokens         */
    bool has_max_tokens, has_seed;
    bool stream, include_usage, continuous_usage;
    size_t n;            /* choices of each prompt */
    bool logprobs;       /* wanted: sampling.n_logprobs >= 0 */
    int prompt_logprobs; /* -1: none */
    bool token_strs;     /* of /tokenize */
    bool echo, return_token_ids, tokens_as_ids, include_stop;
    bool add_special;                    /* tokenizer's own special tokens around a prompt */
    size_t truncate;                     /* 0, or the last so many tokens of a prompt      */
    const char *cache_salt, *request_id; /* or NULL */
    int32_t priority;
    /* chats */
    nb_tool_choice tool_choice;
    const char *tool_name;    /* NB_TOOLS_NAMED */
    bool one_call;            /* the answer ends after its first call */
    nb_thinking thinking;     /* the template's switch */
    const char *effort;       /* reasoning_effort, or NULL */
    bool has_thinking_budget; /* most tokens of a thought */
    size_t thinking_budget;
    bool hide_reasoning;  /* it is not shown */
    const nb_tool *tools; /* [n_tools], of the chat */
    size_t n_tools, n_history_calls;
    struct { /* /v1/responses: members that the answer repeats, as JSON */
        const char *instructions, *tools, *tool_choice, *text, *metadata;
    } same;
    nb_grammar *grammar;  /* what the answer has to satisfy, or NULL; nb_ask_deinit gives it back */
    size_t skipped_tools; /* tools that only their vendor's servers could run */
    uint64_t warned[4]; /* bits by row of fields.c: given, and ignored */
    /* why it was refused */
    const char *param; /* a field, or NULL */
    nb_error err;
} nb_ask;

void nb_ask_deinit(nb_ask *a);
/* Parses the body; an object is expected. */
nb_status nb_ask_open(nb_ask *a, nb_str body);
/* Gives back the parsed body, which is large when the prompt is: nothing else points into it. */
void nb_ask_forget(nb_ask *a);
/* n * item_bytes zeroed, until nb_ask_deinit; NULL: no memory (a->err says so). */
void *nb_ask_alloc(nb_ask *a, size_t n, size_t item_bytes);
/* Reads the fields of generation. */
nb_status nb_ask_read(nb_ask *a, nb_ask_kind kind, const nb_ask_limits *lim);

/* Pieces for the fields of one endpoint.  Those that find nothing leave *out as it is. */
const json_t *nb_ask_get(const nb_ask *a, const char *name); /* NULL: absent or null */
nb_status nb_ask_bad(nb_ask *a, const char *param, const char *fmt, ...) NB_PRINTF(3, 4);
nb_status nb_ask_bool(nb_ask *a, const char *name, bool *out);
/* An integer in [lo, hi]; *found may be NULL. */
nb_status nb_ask_int(nb_ask *a, const char *name, int64_t lo, int64_t hi, int64_t *out,
                     bool *found);
nb_status nb_ask_real(nb_ask *a, const char *name, double lo, double hi, double *out);
/* A string without zero bytes; memory of a. */
nb_status nb_ask_string(nb_ask *a, const char *name, const char **out);
/* The ids of an array, each below vocab; ids[json_array_size(list)]. name: for messages. */
nb_status nb_ask_read_ids(nb_ask *a, const char *name, const json_t *list, size_t vocab,
                          uint32_t *ids);
/* The same, with memory of a. */
nb_status nb_ask_ids(nb_ask *a, const char *name, const json_t *list, size_t vocab, uint32_t **ids,
                     size_t *n);
/* tools, tool_choice, thinking, effort, budget: ask_chat.c. */
nb_status nb_ask_read_chat(nb_ask *a);     /* OpenAI's chats */
nb_status nb_ask_read_messages(nb_ask *a); /* Anthropic's    */
nb_status nb_ask_read_responses(nb_ask *a);
/* cache_salt, request_id, priority. */
nb_status nb_ask_identity(nb_ask *a, const nb_ask_limits *lim);
/* Stop strings: one, or a list; `name` is stop or stop_sequences. */
nb_status nb_ask_stop(nb_ask *a, const char *name, size_t max_stop);

#endif
