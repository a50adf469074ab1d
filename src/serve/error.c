/* error.c - error answers: OpenAI's object, or Anthropic's under /v1/messages. */
#include <stdarg.h>
#include <stdio.h>

#include "serve/job.h"

typedef struct status_row {
    int status;
    const char *openai, *anthropic;
} status_row;

/* vLLM's names, and the phrase of the status where it has none. */
static const status_row statuses[] = {
    { 400, "BadRequestError", "invalid_request_error" },
    { 401, "Unauthorized", "authentication_error" },
    { 403, "Forbidden", "permission_error" },
    { 404, "NotFoundError", "not_found_error" },
    { 405, "Method Not Allowed", "invalid_request_error" },
    { 408, "Request Timeout", "timeout_error" },
    { 413, "Request Entity Too Large", "request_too_large" },
    { 415, "Unsupported Media Type", "invalid_request_error" },
    { 422, "UnprocessableEntityError", "invalid_request_error" },
    { 429, "Too Many Requests", "rate_limit_error" },
    { 431, "Request Header Fields Too Large", "invalid_request_error" },
    { 500, "InternalServerError", "api_error" },
    { 501, "NotImplementedError", "api_error" },
    { 503, "Service Unavailable", "overloaded_error" },
    { 504, "Gateway Timeout", "timeout_error" },
};

static const status_row *row_of(int status)
{
    static const status_row client = { 0, "BadRequestError", "invalid_request_error" };
    static const status_row server = { 0, "InternalServerError", "api_error" };
    for (size_t i = 0; i < NB_COUNT(statuses); i++)
        if (statuses[i].status == status) return &statuses[i];
    return status < 500 ? &client : &server;
}

int nb_http_status_of(nb_status st)
{
    switch (st) {
    case NB_OK: return 200;
    case NB_ERR_FORMAT:
    case NB_ERR_UNSUPPORTED:
    case NB_ERR_ARG:
    case NB_ERR_RANGE:
    case NB_ERR_LIMIT: return 400;
    case NB_ERR_NOT_FOUND: return 404;
    case NB_ERR_FAILED:
    case NB_ERR_CAPACITY: return 503;
    case NB_ERR_NOMEM:
    case NB_ERR_IO:
    case NB_ERR_NONFINITE:
    case NB_ERR_CANCELLED:
    case NB_ERR_INTERNAL: break;
    }
    return 500;
}

void nb_w_error(nb_writer *w, int status, const char *param, const char *message)
{
    NB_W(w, "{\"error\":{\"message\":");
    nb_w_str(w, nb_str_c(message));
    NB_W(w, ",\"type\":");
    nb_w_str(w, nb_str_c(row_of(status)->openai));
    NB_W(w, ",\"param\":");
    if (param)
        nb_w_str(w, nb_str_c(param));
    else
        NB_W(w, "null");
    NB_W(w, ",\"code\":");
    nb_w_uint(w, (uint64_t)status);
    NB_W(w, "}}");
}

void nb_w_error_anthropic(nb_writer *w, int status, const char *message)
{
    NB_W(w, "{\"type\":\"error\",\"error\":{\"type\":");
    nb_w_str(w, nb_str_c(row_of(status)->anthropic));
    NB_W(w, ",\"message\":");
    nb_w_str(w, nb_str_c(message));
    NB_W(w, "}}");
}

static bool is_anthropic(const nb_http_ex *ex)
{
    static const char prefix[] = "/v1/messages";
    const nb_str p = ex ? nb_http_path(ex) : (nb_str){ 0 };
    return p.p && p.n_bytes >= sizeof prefix - 1 && memcmp(p.p, prefix, sizeof prefix - 1) == 0;
}

static void write_error(nb_writer *w, const nb_http_ex *ex, int status, const char *param,
                        const char *message)
{
    if (is_anthropic(ex))
        nb_w_error_anthropic(w, status, message);
    else
        nb_w_error(w, status, param, message);
}

void nb_error_body(void *ctx, const nb_http_ex *ex, int status, const char *message, nb_buf *body)
{
    (void)ctx;
    nb_writer w = { 0 };
    write_error(&w, ex, status, NULL, message);
    if (w.st == NB_OK) (void)nb_buf_add_str(body, nb_buf_view(&w.b));
    nb_buf_deinit(&w.b);
}

void nb_reply_error(nb_http_ex *ex, int status, const char *param, const char *fmt, ...)
{
    char line[NB_ERROR_MSG_BYTES];
    nb_writer w = { 0 };
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    if (status == 503) (void)nb_http_add_header(ex, "Retry-After", "1");
    nb_http_set_note(ex, line);
    write_error(&w, ex, status, param, line);
    nb_http_reply(ex, status, "application/json",
                  w.st == NB_OK ? nb_buf_view(&w.b) : nb_str_c("{}"));
    nb_buf_deinit(&w.b);
}

void nb_reply_json(nb_http_ex *ex, int status, json_t *doc)
{
    char *text = doc ? json_dumps(doc, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(doc);
    if (text)
        nb_http_reply(ex, status, "application/json", nb_str_c(text));
    else
        nb_reply_error(ex, 500, NULL, "out of memory");
    nb_free(text);
}
