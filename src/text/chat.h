/* chat.h - an OpenAI-style chat request rendered to the model's prompt text, with
 * the variables that transformers' apply_chat_template passes to a template:
 * messages, tools, documents (null when absent), add_generation_prompt, the
 * special tokens' texts and the members of chat_template_kwargs.
 *
 * Messages are passed as they came (unknown members included), with these rules:
 *  - content that is a list of parts stays a list if the template loops over
 *    content (nb_jinja_iterates_content), else its text parts are joined with a
 *    newline, as vLLM does for templates of its "string" content format;
 *    parts that are not text are refused by name;
 *  - content null or absent stays so;
 *  - tool_calls[].function.arguments: see nb_chat_args.
 * Source: transformers 4.5x tokenization_utils_base.apply_chat_template, the
 * OpenAI chat completions request. */
#ifndef NB_TEXT_CHAT_H
#define NB_TEXT_CHAT_H
#include <jansson.h>

#include "base/status.h"
#include "base/str.h"
#include "text/jinja.h"
#include "text/tokenizer.h"

/* OpenAI clients send a call's arguments as a string of JSON; some templates
 * expect that, others an object. */
typedef enum nb_chat_args {
    /* As given; if that rendering fails, once more with the arguments in the
     * other form.  Equals transformers wherever transformers succeeds. */
    NB_CHAT_ARGS_RETRY = 0,
    /* As given, only: exactly transformers. */
    NB_CHAT_ARGS_GIVEN,
    /* For serving: as objects; if that fails, or the template printed a container
     * as Python's repr, as strings of JSON.  Avoids the doubly quoted arguments
     * that templates with `arguments | tojson` make of strings. */
    NB_CHAT_ARGS_OBJECT,
} nb_chat_args;

typedef struct nb_chat_input {
    /* Borrowed, not modified: messages (required), tools, documents,
     * chat_template_kwargs (an object), add_generation_prompt (default true,
     * false with continue_final_message), continue_final_message,
     * reasoning_effort; other members are ignored. */
    const json_t *request;
    /* Borrowed, may be NULL: an object with bos_token, eos_token, unk_token,
     * pad_token, sep_token, cls_token, mask_token: a string, an object with a
     * string "content", or null; other members are ignored, so a whole
     * tokenizer_config.json or special_tokens_map.json fits. */
    const json_t *special_tokens;
    const nb_jinja_limits *limits; /* NULL = defaults; holds the time */
    nb_chat_args args;
    /* Refuse what the template would leave out in silence: a message whose role it does not
     * mention and whose text is not in the prompt, and tool calls that it does not mention.
     * transformers does not. */
    bool refuse_unseen;
    /* For serving, may be NULL: brings messages and tools into the template's form. */
    const struct nb_chat_style *style;
    /* For serving, may be NULL: what messages, tools and documents spell like a control token gets a
     * mark (NB_CHAT_MARK in chat_style.h) in the rendered text, to be removed by nb_chat_unmark. */
    const nb_tokenizer *tokenizer;
} nb_chat_input;

/* Appends the prompt to *out; on failure *out is as before.  NB_ERR_ARG: the
 * request is wrong (the message names the member); else as nb_jinja_render.
 * Thread rule: as nb_jinja_render. */
nb_status nb_chat_render(const nb_jinja *tmpl, const nb_chat_input *in, nb_buf *out,
                         nb_error *err);

/* The template text in a tokenizer_config.json object: "chat_template" as a
 * string, or as a list of {"name","template"} of which `name` (NULL = "default")
 * is taken.  The view lives as long as config.  NB_ERR_NOT_FOUND when absent. */
nb_status nb_chat_template_text(const json_t *config, const char *name, nb_str *out,
                                nb_error *err);

/* The template of DeepSeek V4, whose files have an encoder in its place (template_v4.c); borrowed for good. */
nb_str nb_chat_template_v4(void);

#endif
