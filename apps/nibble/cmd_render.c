/* cmd_render.c - `nibble render`: messages through the chat template.
 *
 * The body goes to the template as it is written: reading and writing it again would
 * lose the difference between 1e5 and 100000.0.  A bare array is put into a body; only
 * with --no-generation-prompt is an object parsed and written anew. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "json_out.h"
#include "options/opts.h"

enum { BODY_MAX_BYTES = 64 << 20 };

static char *wrap(const char *data, size_t n_bytes, bool generation_prompt, size_t *n_out)
{
    static const char head[] = "{\"messages\":";
    const char *tail = generation_prompt ? "}" : ",\"add_generation_prompt\":false}";
    const size_t h = sizeof head - 1, t = strlen(tail);
    char *p = malloc(h + n_bytes + t + 1);
    if (!p) return NULL;
    memcpy(p, head, h);
    memcpy(p + h, data, n_bytes);
    memcpy(p + h + n_bytes, tail, t + 1);
    *n_out = h + n_bytes + t;
    return p;
}

static int make_body(const opts *o, char **data, size_t *n_bytes)
{
    json_error_t e;
    json_t *j = json_loadb(*data, *n_bytes, 0, &e);
    int code = CLI_OK;
    char *body = *data;
    if (!j)
        return cli_failed("%s: line %d: %s (expected a chat request body in JSON)", o->messages,
                          e.line, e.text);
    if (json_is_array(j)) {
        body = wrap(*data, *n_bytes, o->generation_prompt, n_bytes);
    } else if (!json_is_object(j)) {
        code = cli_failed("%s: expected a chat request body or an array of messages", o->messages);
    } else if (!o->generation_prompt) {
        body = json_object_set_new(j, "add_generation_prompt", json_false()) == 0
                   ? json_dumps(j, JSON_COMPACT)
                   : NULL;
        if (body) *n_bytes = strlen(body);
    }
    json_decref(j);
    if (!body) return cli_failed("out of memory");
    if (body != *data) free(*data);
    *data = body;
    return code;
}

static int render(const opts *o, const nb_text *t, const char *body, size_t n_bytes)
{
    nb_error err = { 0 };
    char *text = NULL;
    uint32_t *ids = NULL;
    size_t text_bytes = 0, n_ids = 0;
    const nb_status st = nb_text_render(t, body, n_bytes, &text, &text_bytes, &ids, &n_ids, &err);
    if (st != NB_OK) return cli_status(st, &err);
    if (o->json) {
        (void)fputs("{\"text\":", stdout);
        jout_str(stdout, text, text_bytes);
        (void)fputs(",\"tokens\":", stdout);
        jout_ids(stdout, ids, n_ids);
        (void)fputs("}\n", stdout);
    } else {
        (void)fwrite(text, 1, text_bytes, stdout);
        if (isatty(STDOUT_FILENO)) (void)fputc('\n', stdout);
    }
    nb_free(text);
    nb_free(ids);
    return CLI_OK;
}

int cmd_render(const opts *o)
{
    if (!o->messages) return cli_usage("render: --messages FILE is missing");
    nb_error err = { 0 };
    nb_text *t = NULL;
    char *data = NULL;
    size_t n_bytes = 0;
    int code = cli_read_file(o->messages, BODY_MAX_BYTES, &data, &n_bytes);
    if (code != CLI_OK) return code;
    code = make_body(o, &data, &n_bytes);
    if (code == CLI_OK) {
        const nb_status st = nb_text_create(o->path, o->chat_template, &t, &err);
        code = st == NB_OK ? render(o, t, data, n_bytes) : cli_status(st, &err);
    }
    nb_text_destroy(t);
    free(data);
    return code;
}
