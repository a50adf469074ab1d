/* fuzz_jinja.c - a template and what it is rendered with.
 *
 * Input: template, a zero byte, a chat request as JSON; without a valid request a
 * built-in one is used.  The template is rendered with the request's members as
 * variables and through nb_chat_render in its three ways with tool arguments, and in
 * the style that its probes find, under tight limits.  Whatever comes out, a failure must leave one line and no output,
 * and the same rendering twice must give the same bytes. */
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "text/chat.h"
#include "text/chat_style.h"
#include "text/jinja.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char builtin[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"S\"}, {\"role\": \"user\", \"content\": "
    "[{\"type\": \"text\", \"text\": \"\\u00fc <b>\"}]}, {\"role\": \"assistant\", \"content\": null, "
    "\"tool_calls\": [{\"id\": \"c1\", \"type\": \"function\", \"function\": {\"name\": \"f\", "
    "\"arguments\": \"{\\\"x\\\": [1, 2.5, null]}\"}}]}, {\"role\": \"tool\", \"content\": \"7\"}], "
    "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {}}}], "
    "\"add_generation_prompt\": true}";

static const nb_jinja_limits limits = { .max_steps = 100000, .max_output_bytes = 1 << 18,
                                        .max_value_bytes = 2 << 20, .max_depth = 150,
                                        .now_s = 1785585600 };

/* A failure leaves nothing in the output and one line in the error. */
static void judge(nb_status st, const nb_buf *out, const nb_error *err)
{
    if (st == NB_OK) return;
    if (out->n_bytes || !err->msg[0] || strchr(err->msg, '\n')) abort();
}

static void render_plain(const nb_jinja *t, const json_t *request)
{
    nb_buf a = { 0 }, b = { 0 };
    nb_error err = { 0 };
    const nb_status st = nb_jinja_render(t, request, &limits, &a, &err);
    judge(st, &a, &err);
    if (st == NB_OK && nb_jinja_render(t, request, &limits, &b, &err) == NB_OK &&
        !nb_str_eq(nb_buf_view(&a), nb_buf_view(&b)))
        abort();
    nb_buf_deinit(&a);
    nb_buf_deinit(&b);
}

static void render_chat(const nb_jinja *t, const json_t *request)
{
    static const nb_chat_args ways[] = { NB_CHAT_ARGS_RETRY, NB_CHAT_ARGS_GIVEN,
                                         NB_CHAT_ARGS_OBJECT };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        const nb_chat_input in = { .request = request, .special_tokens = request,
                                   .limits = &limits, .args = ways[i] };
        nb_buf out = { 0 };
        nb_error err = { 0 };
        judge(nb_chat_render(t, &in, &out, &err), &out, &err);
        nb_buf_deinit(&out);
    }
    nb_chat_style style;
    nb_chat_style_find(t, request, &style);
    const nb_chat_input in = { .request = request, .special_tokens = request, .limits = &limits,
                               .refuse_unseen = true, .style = &style };
    nb_buf out = { 0 };
    nb_error err = { 0 };
    judge(nb_chat_render(t, &in, &out, &err), &out, &err);
    nb_buf_deinit(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const uint8_t *zero = n ? memchr(data, 0, n) : NULL;
    const size_t n_source = zero ? (size_t)(zero - data) : n;
    nb_jinja *t = NULL;
    nb_error err = { 0 };
    const nb_str source = { n ? (const char *)data : "", n_source };
    if (nb_jinja_parse(source, &t, &err) != NB_OK) {
        if (t || !err.msg[0] || strchr(err.msg, '\n')) abort();
        return 0;
    }
    json_t *request = NULL;
    if (zero) request = json_loadb((const char *)zero + 1, n - n_source - 1, JSON_ALLOW_NUL, NULL);
    if (!request) request = json_loads(builtin, 0, NULL);
    if (json_is_object(request)) render_plain(t, request);
    if (request) render_chat(t, request);
    json_decref(request);
    nb_jinja_destroy(t);
    return 0;
}
