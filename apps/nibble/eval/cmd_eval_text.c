/* cmd_eval_text.c - the text of a measurement as windows of token ids.
 *
 * A language model is trained on texts that begin with its beginning-of-text token, and attention
 * collects there; so every window of a text begins with it, not only the first.  Ids from a file
 * are measured as they are: whoever brings them knows what they are. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "cmd_eval.h"

enum { TEXT_MAX_BYTES = 1 << 30, IDS_MAX_BYTES = 256 << 20, BYTES_PER_TOKEN = 16 };

void eval_windows_deinit(eval_windows *w)
{
    free(w->ids);
    free(w->begin);
    free(w->skip);
    *w = (eval_windows){ 0 };
}

/* What it takes to cut windows. */
typedef struct cutter {
    size_t max;     /* ids that the model takes                          */
    size_t context; /* of a window, with the beginning-of-text token     */
    size_t stride;  /* ids of the text from one window to the next       */
    size_t n_tok;   /* ids in all, those of overlaps counted once        */
    int64_t bos;
    uint32_t *ids; /* of the text, from `begin` on not used yet; may be NULL */
    size_t n_ids;
} cutter;

static bool reserve(eval_windows *w, size_t n_window, size_t n_ids)
{
    w->ids = malloc((n_ids ? n_ids : 1) * sizeof *w->ids);
    w->begin = calloc(n_window + 1, sizeof *w->begin);
    w->skip = calloc(n_window + 1, sizeof *w->skip);
    return w->ids && w->begin && w->skip;
}

static void end_window(eval_windows *w, size_t skip)
{
    w->skip[w->n++] = skip;
    const size_t n = w->n_tok - w->begin[w->n - 1];
    w->begin[w->n] = w->n_tok;
    if (n > w->context) w->context = n;
}

/* One window: ids[at, at + n) after the beginning-of-text token; false when it is too short. */
static bool add_window(const cutter *c, eval_windows *w, size_t at, size_t n, size_t skip)
{
    const size_t n_bos = c->bos >= 0;
    if (n_bos + n < 2 || n_bos + n <= skip) return false;
    if (n_bos) w->ids[w->n_tok++] = (uint32_t)c->bos;
    memcpy(w->ids + w->n_tok, c->ids + at, n * sizeof *w->ids);
    w->n_tok += n;
    end_window(w, skip);
    return true;
}

static int cut(const cutter *c, eval_windows *w)
{
    const size_t n_bos = c->bos >= 0, body = c->context - n_bos;
    const size_t stride = c->stride ? c->stride : body;
    const size_t overlap = stride < body ? body - stride : 0;
    const size_t n_max = c->n_ids / stride + 1;
    if (n_max > SIZE_MAX / 64 / c->context || !reserve(w, n_max, n_max * c->context))
        return cli_failed("out of memory for %zu windows of %zu tokens", n_max, c->context);
    size_t left = c->n_tok;
    for (size_t at = 0; at < c->n_ids && left; at += stride) {
        const size_t skip = w->n && overlap ? n_bos + overlap : 0;
        size_t n = c->n_ids - at < body ? c->n_ids - at : body;
        if (n_bos + n > skip + left) n = skip + left - n_bos;
        if (!add_window(c, w, at, n, skip)) break;
        left -= n_bos + n - skip < left ? n_bos + n - skip : left;
        if (at + n >= c->n_ids) break;
    }
    w->bos = c->bos;
    if (w->n) return CLI_OK;
    if (c->n_ids + n_bos >= 2)
        return cli_failed("--n-tokens %zu: a window takes at least 2 tokens", c->n_tok);
    return cli_failed("the text has %zu tokens: expected at least 2", c->n_ids);
}

/* ---- a text ------------------------------------------------------------------- */

/* The token that the tokenizer puts before a text, or -1. */
static int find_bos(const nb_text *t, int64_t *bos, nb_error *err)
{
    uint32_t *with = NULL, *without = NULL;
    size_t n_with = 0, n_without = 0;
    *bos = -1;
    nb_status st = nb_text_tokenize(t, "a", 1, NB_TEXT_ADD_SPECIAL, &with, &n_with, err);
    if (st == NB_OK) st = nb_text_tokenize(t, "a", 1, 0, &without, &n_without, err);
    if (st == NB_OK && n_with > n_without && n_without && with[1] == without[0] &&
        with[0] != without[0])
        *bos = with[0];
    nb_free(with);
    nb_free(without);
    return st == NB_OK ? CLI_OK : cli_status(st, err);
}

/* Not more of the text than is needed: twice as much until the tokens are enough. */
static int tokenize(const nb_text *t, const char *data, size_t n_bytes, cutter *c)
{
    nb_error err = { 0 };
    size_t want =
        c->n_tok < SIZE_MAX / (2 * BYTES_PER_TOKEN) ? c->n_tok * BYTES_PER_TOKEN : SIZE_MAX;
    for (;;) {
        size_t n = want < n_bytes ? want : n_bytes;
        while (n < n_bytes && ((unsigned char)data[n] & 0xc0) == 0x80) n++; /* whole characters */
        const nb_status st = nb_text_tokenize(t, data, n, 0, &c->ids, &c->n_ids, &err);
        if (st != NB_OK) return cli_status(st, &err);
        if (c->n_ids > c->n_tok || n == n_bytes) return CLI_OK;
        nb_free(c->ids);
        c->ids = NULL;
        want *= 2;
    }
}

static int windows_of_text(const opts *o, cutter *c, eval_windows *w)
{
    nb_error err = { 0 };
    nb_text *t = NULL;
    char *data = NULL;
    size_t n_bytes = 0;
    int code = cli_read_file(o->eval.text, TEXT_MAX_BYTES, &data, &n_bytes);
    if (code == CLI_OK) {
        const nb_status st = nb_text_create(o->path, o->chat_template, &t, &err);
        if (st != NB_OK) code = cli_status(st, &err);
    }
    if (code == CLI_OK) code = find_bos(t, &c->bos, &err);
    if (code == CLI_OK) code = tokenize(t, data, n_bytes, c);
    if (code == CLI_OK) code = cut(c, w);
    nb_free(c->ids);
    nb_text_destroy(t);
    free(data);
    return code;
}

/* ---- ids ---------------------------------------------------------------------- */

static int bad_id(const char *path)
{
    return cli_failed("%s: expected a JSON array of token ids (integers in 0..%u), or an array of "
                      "such arrays, one for each window",
                      path, (unsigned)UINT32_MAX);
}

static int add_ids(const char *path, const json_t *list, size_t n, uint32_t *to)
{
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        const json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;
        if (id < 0 || id > UINT32_MAX) return bad_id(path);
        to[i] = (uint32_t)id;
    }
    return CLI_OK;
}

/* Windows that the file says. */
static int windows_of_arrays(const char *path, const json_t *j, const cutter *c, eval_windows *w)
{
    const size_t n = json_array_size(j);
    size_t n_ids = 0, i;
    const json_t *one;
    json_array_foreach(j, i, one) n_ids += json_array_size(one);
    if (!reserve(w, n, n_ids)) return cli_failed("%s: out of memory", path);
    for (i = 0; i < n; i++) {
        one = json_array_get(j, i);
        size_t n_one = json_array_size(one);
        if (!json_is_array(one)) return bad_id(path);
        if (n_one > c->max)
            return cli_failed("%s: window %zu has %zu tokens, the context holds %zu", path, i,
                              n_one, c->max);
        if (n_one < 2)
            return cli_failed("%s: window %zu has %zu tokens: expected at least 2", path, i, n_one);
        if (n_one > c->n_tok - w->n_tok) n_one = c->n_tok - w->n_tok;
        if (n_one < 2) break;
        const int code = add_ids(path, one, n_one, w->ids + w->n_tok);
        if (code != CLI_OK) return code;
        w->n_tok += n_one;
        end_window(w, 0);
    }
    w->bos = -1;
    if (w->n == 0) return cli_failed("--n-tokens %zu: a window takes at least 2 tokens", c->n_tok);
    return CLI_OK;
}

static int windows_of_json(const opts *o, const char *path, const json_t *j, cutter *c,
                           eval_windows *w)
{
    if (!json_is_array(j) || json_array_size(j) == 0) return bad_id(path);
    if (json_is_array(json_array_get(j, 0))) {
        if (o->eval.context || o->eval.stride)
            return cli_usage("%s says its windows itself: --context and --stride do not apply",
                             path);
        return windows_of_arrays(path, j, c, w);
    }
    c->n_ids = json_array_size(j);
    c->ids = malloc(c->n_ids * sizeof *c->ids);
    if (!c->ids) return cli_failed("%s: out of memory", path);
    int code = add_ids(path, j, c->n_ids, c->ids);
    if (code == CLI_OK) code = cut(c, w);
    free(c->ids);
    return code;
}

static int windows_of_ids(const opts *o, cutter *c, eval_windows *w)
{
    const char *path = o->eval.tokens;
    char *data = NULL;
    size_t n_bytes = 0;
    int code = cli_read_file(path, IDS_MAX_BYTES, &data, &n_bytes);
    if (code != CLI_OK) return code;
    json_error_t e;
    json_t *j = json_loadb(data, n_bytes, 0, &e);
    free(data);
    c->bos = -1;
    code = j ? windows_of_json(o, path, j, c, w)
             : cli_failed("%s: line %d: %s (expected a JSON array)", path, e.line, e.text);
    json_decref(j);
    return code;
}

/* ---- both ----------------------------------------------------------------------- */

static int model_context(const opts *o, size_t *n)
{
    nb_error err = { 0 };
    nb_memory_plan plan;
    nb_engine_options eo = opts_engine(o);
    eo.kv_outliers = 0; /* calibrate chooses them; elsewhere the engine checks them */
    const nb_status st = nb_engine_plan_memory(&eo, &plan, &err);
    if (st != NB_OK) return cli_status(st, &err);
    *n = plan.max_model_len;
    if (o->max_model_len && o->max_model_len < *n) *n = o->max_model_len;
    return CLI_OK;
}

int eval_read_windows(const opts *o, size_t default_tok, eval_windows *out)
{
    const eval_opts *v = &o->eval;
    *out = (eval_windows){ .bos = -1 };
    if (!v->text == !v->tokens) return cli_usage("expected either --text FILE or --tokens FILE");
    size_t max = 0;
    int code = model_context(o, &max);
    if (code != CLI_OK) return code;
    if (v->context > max)
        return cli_usage("--context %zu: the model takes 2 to %zu tokens", v->context, max);
    cutter c = { .max = max,
                 .context = v->context ? v->context : EVAL_CONTEXT_DEFAULT,
                 .stride = v->stride,
                 .n_tok = v->n_tok ? v->n_tok : default_tok };
    if (c.context > max) c.context = max;
    if (c.stride > c.context)
        return cli_usage("--stride %zu: expected at most the window's %zu tokens", c.stride,
                         c.context);
    code = v->text ? windows_of_text(o, &c, out) : windows_of_ids(o, &c, out);
    if (code != CLI_OK) eval_windows_deinit(out);
    return code;
}
