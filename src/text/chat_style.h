/* chat_style.h - how a chat template takes tools, and what is brought into that form before it is
 * rendered.
 *
 * Templates disagree about what they print and in which form they want it.  A style is found by
 * rendering a few probes once, when the template is loaded. */
#ifndef NB_TEXT_CHAT_STYLE_H
#define NB_TEXT_CHAT_STYLE_H
#include <jansson.h>

#include "base/status.h"
#include "base/str.h"
#include "text/jinja.h"
#include "text/tokenizer.h"

typedef enum nb_chat_form {
    NB_CHAT_FORM_UNKNOWN, /* no probe came out: both are tried */
    NB_CHAT_FORM_STRING,  /* a call's arguments as a string come out byte for byte */
    NB_CHAT_FORM_OBJECT   /* they have to be an object */
} nb_chat_form;

/* How tools are declared where the template prints no declarations: text around a list of them. */
typedef struct nb_chat_tool_text {
    const char *family; /* name of the output's format: "deepseek_v3", "hermes", ... */
    const char *before, *after;
} nb_chat_tool_text;

typedef struct nb_chat_style {
    bool tools, calls;    /* the template prints declarations; calls of the history */
    bool null_content;    /* a message with calls may have null as its content */
    bool system_anywhere; /* also a system message behind the first message is printed */
    bool developer;       /* a role of the template */
    bool kimi_ids;        /* calls are named functions.NAME:IDX */
    nb_chat_form arguments;
    const nb_chat_tool_text *own; /* used where the template prints no declarations */
} nb_chat_style;

/* Inside of what a message spells like a control token.  In the rendered text one of them stands
 * for such a place, two for the character itself: U+FDD0, which is no character of any text. */
#define NB_CHAT_MARK "\xef\xb7\x90"

/* special_tokens: as in nb_chat_input. */
void nb_chat_style_find(const nb_jinja *t, const json_t *special_tokens, nb_chat_style *out);
/* Where the template declares no tools: in the format of a family, if there is a text for it. */
void nb_chat_style_family(nb_chat_style *s, const char *family);
/* Brings messages (an array of objects with roles, changed) into the template's form: roles, contents
 * that are null, calls with their names and ids, both names of reasoning, tools where the template
 * prints none.  tools: the request's (changed), or NULL.  NB_ERR_ARG names the message. */
nb_status nb_chat_style_apply(const nb_chat_style *s, json_t *messages, json_t *tools,
                              nb_error *err);
/* Puts marks into every text of a value that spells a control token; *v may be replaced.  keep_think:
 * <think> and </think> stay, because templates look for them in the assistant's texts. */
nb_status nb_chat_mark(const nb_tokenizer *tok, json_t **v, bool keep_think);
nb_status nb_chat_mark_messages(const nb_tokenizer *tok, json_t *messages);
/* Removes marks from a rendered text; *at: their places (free it), ascending. */
nb_status nb_chat_unmark(nb_buf *text, size_t **at, size_t *n);

/* An object's JSON as Python writes it; NULL: no memory. */
json_t *nb_chat_print(const json_t *value);
/* The arguments of a call in the wanted form, new, or NULL where they already are (or no memory). */
json_t *nb_chat_arguments(nb_chat_form to, const json_t *args);

#endif
