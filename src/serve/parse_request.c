/* parse_request.c - see parse_request.h. */
#include "serve/parse_request.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "serve/fields.h"
#include "serve/json_size.h"

enum { STOP_BYTES_MAX = 4096, STOP_IDS_MAX = 4096, SALT_BYTES_MAX = 1024, MAX_TOP = 20 };
/* Of bodies: 2.5 million token ids, 100,000 messages. */
enum { MAX_TREE_BYTES = 192 << 20, MAX_CONTAINERS = 100000, SURELY_FINE_BYTES = 256 << 10 };

/* A list of small blocks: requests wait by the thousand, an arena's chunk each would be much. */
typedef struct nb_ask_block {
    struct nb_ask_block *next;
    max_align_t data[];
} nb_ask_block;

void nb_ask_forget(nb_ask *a)
{
    json_decref(a->doc);
    a->doc = NULL;
}

void nb_ask_deinit(nb_ask *a)
{
    nb_ask_forget(a);
    for (nb_ask_block *b = a->mem, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    a->mem = NULL;
    nb_grammar_unref(a->grammar);
    a->grammar = NULL;
}

void *nb_ask_alloc(nb_ask *a, size_t n, size_t item_bytes)
{
    nb_ask_block *b = NULL;
    if (n <= (SIZE_MAX - sizeof *b) / item_bytes) b = calloc(1, sizeof *b + n * item_bytes);
    if (!b) {
        a->param = NULL;
        (void)nb_fail(&a->err, NB_ERR_NOMEM, "out of memory");
        return NULL;
    }
    b->next = a->mem;
    a->mem = b;
    return b->data;
}

static const char *copy_string(nb_ask *a, const json_t *s)
{
    char *p = nb_ask_alloc(a, json_string_length(s) + 1, 1);
    if (p) memcpy(p, json_string_value(s), json_string_length(s));
    return p;
}

nb_status nb_ask_bad(nb_ask *a, const char *param, const char *fmt, ...)
{
    char line[512];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    a->param = param;
    return nb_fail(&a->err, NB_ERR_ARG, "%s", line);
}

static nb_status no_memory(nb_ask *a)
{
    a->param = NULL;
    return nb_fail(&a->err, NB_ERR_NOMEM, "out of memory");
}

/* A body of a few megabytes can be a tree of gigabytes. */
static nb_status check_size(nb_ask *a, nb_str body)
{
    if (body.n_bytes <= SURELY_FINE_BYTES) return NB_OK;
    const nb_json_size size = nb_json_measure(body);
    if (size.n_container > MAX_CONTAINERS)
        return nb_ask_bad(a, NULL, "the body has %zu objects and arrays: expected at most %d",
                          size.n_container, MAX_CONTAINERS);
    if (size.tree_bytes > MAX_TREE_BYTES)
        return nb_ask_bad(a, NULL,
                          "the values of the body take about %zu MiB of memory: expected at most "
                          "%d MiB",
                          size.tree_bytes >> 20, MAX_TREE_BYTES >> 20);
    return NB_OK;
}

nb_status nb_ask_open(nb_ask *a, nb_str body)
{
    json_error_t je;
    a->prompt_logprobs = -1;
    if (!body.n_bytes) return nb_ask_bad(a, NULL, "the request has no body: expected JSON");
    NB_TRY(check_size(a, body));
    a->doc = json_loadb(body.p, body.n_bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &je);
    if (!a->doc && json_error_code(&je) == json_error_out_of_memory) return no_memory(a);
    if (!a->doc)
        return nb_ask_bad(a, NULL, "the body is not valid JSON, line %d, column %d: %s", je.line,
                          je.column, je.text);
    if (!json_is_object(a->doc)) return nb_ask_bad(a, NULL, "the body must be a JSON object");
    return NB_OK;
}

/* ---- pieces ---- */

const json_t *nb_ask_get(const nb_ask *a, const char *name)
{
    const json_t *v = json_object_get(a->doc, name);
    return json_is_null(v) ? NULL : v;
}

nb_status nb_ask_bool(nb_ask *a, const char *name, bool *out)
{
    const json_t *v = nb_ask_get(a, name);
    if (!v) return NB_OK;
    if (!json_is_boolean(v)) return nb_ask_bad(a, name, "%s: expected true or false", name);
    *out = json_is_true(v);
    return NB_OK;
}

/* Integers, and reals that are whole: clients in JavaScript and Lua send 5.0. */
static bool whole(const json_t *v, int64_t *out)
{
    if (json_is_integer(v)) {
        *out = json_integer_value(v);
        return true;
    }
    const double d = json_is_real(v) ? json_real_value(v) : 0.5;
    if (d != floor(d) || fabs(d) > 0x1p53) return false;
    *out = (int64_t)d;
    return true;
}

nb_status nb_ask_int(nb_ask *a, const char *name, int64_t lo, int64_t hi, int64_t *out, bool *found)
{
    const json_t *v = nb_ask_get(a, name);
    int64_t x;
    if (found) *found = v != NULL;
    if (!v) return NB_OK;
    if (!whole(v, &x)) return nb_ask_bad(a, name, "%s: expected an integer", name);
    if (x < lo || x > hi)
        return nb_ask_bad(a, name, "%s is %lld: expected %lld..%lld", name, (long long)x,
                          (long long)lo, (long long)hi);
    *out = x;
    return NB_OK;
}

nb_status nb_ask_real(nb_ask *a, const char *name, double lo, double hi, double *out)
{
    const json_t *v = nb_ask_get(a, name);
    if (!v) return NB_OK;
    if (!json_is_number(v)) return nb_ask_bad(a, name, "%s: expected a number", name);
    const double x = json_number_value(v);
    if (!(x >= lo && x <= hi))
        return nb_ask_bad(a, name, "%s is %g: expected a number in [%g, %g]", name, x, lo, hi);
    *out = x;
    return NB_OK;
}

static bool has_zero_byte(const json_t *s)
{
    return strlen(json_string_value(s)) != json_string_length(s);
}

nb_status nb_ask_string(nb_ask *a, const char *name, const char **out)
{
    const json_t *v = nb_ask_get(a, name);
    if (!v) return NB_OK;
    if (!json_is_string(v) || has_zero_byte(v))
        return nb_ask_bad(a, name, "%s: expected a string (without zero bytes)", name);
    const char *copy = copy_string(a, v);
    if (!copy) return NB_ERR_NOMEM;
    *out = copy;
    return NB_OK;
}

nb_status nb_ask_read_ids(nb_ask *a, const char *name, const json_t *list, size_t vocab,
                          uint32_t *ids)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *x = json_array_get(list, i);
        if (!json_is_integer(x))
            return nb_ask_bad(a, name, "%s: item %zu is not a token id", name, i);
        const json_int_t id = json_integer_value(x);
        if (id < 0 || (uint64_t)id >= vocab)
            return nb_ask_bad(a, name, "%s: token id %lld is out of vocabulary: expected 0..%zu",
                              name, (long long)id, vocab - 1);
        ids[i] = (uint32_t)id;
    }
    return NB_OK;
}

nb_status nb_ask_ids(nb_ask *a, const char *name, const json_t *list, size_t vocab, uint32_t **ids,
                     size_t *n)
{
    if (!json_is_array(list))
        return nb_ask_bad(a, name, "%s: expected an array of token ids", name);
    uint32_t *v = nb_ask_alloc(a, json_array_size(list), sizeof *v);
    if (!v) return NB_ERR_NOMEM;
    NB_TRY(nb_ask_read_ids(a, name, list, vocab, v));
    *ids = v;
    *n = json_array_size(list);
    return NB_OK;
}

static nb_status stop_string(nb_ask *a, const char *name, const json_t *v, const char **out)
{
    if (!json_is_string(v))
        return nb_ask_bad(a, name, "%s: expected a string or an array of strings", name);
    const size_t n = json_string_length(v);
    if (n == 0) return nb_ask_bad(a, name, "%s: an empty string cannot stop anything", name);
    if (n > STOP_BYTES_MAX)
        return nb_ask_bad(a, name, "%s: a string of %zu bytes, at most %d are accepted", name, n,
                          STOP_BYTES_MAX);
    if (has_zero_byte(v)) return nb_ask_bad(a, name, "%s: a string with a zero byte", name);
    *out = copy_string(a, v);
    return *out ? NB_OK : NB_ERR_NOMEM;
}

nb_status nb_ask_stop(nb_ask *a, const char *name, size_t max_stop)
{
    const json_t *v = nb_ask_get(a, name);
    if (!v) return NB_OK;
    const size_t n = json_is_array(v) ? json_array_size(v) : 1;
    if (n > max_stop)
        return nb_ask_bad(a, name, "%s: %zu strings, at most %zu are accepted", name, n, max_stop);
    const char **s = nb_ask_alloc(a, n, sizeof *s);
    if (!s) return NB_ERR_NOMEM;
    for (size_t i = 0; i < n; i++)
        NB_TRY(stop_string(a, name, json_is_array(v) ? json_array_get(v, i) : v, &s[i]));
    a->sampling.stop = s;
    a->sampling.n_stop = n;
    return NB_OK;
}

/* ---- formats ---- */

static nb_status read_response_format(nb_ask *a)
{
    const json_t *f = nb_ask_get(a, "response_format");
    if (!f) return NB_OK;
    const char *type = json_string_value(json_object_get(f, "type"));
    if (!type)
        return nb_ask_bad(a, "response_format", "response_format: expected an object with a type");
    if (strcmp(type, "text") == 0 || strcmp(type, "json_object") == 0) return NB_OK;
    if (strcmp(type, "json_schema") == 0 && !json_is_object(json_object_get(f, "json_schema")))
        return nb_ask_bad(a, "response_format",
                          "response_format: type json_schema needs a json_schema");
    if (strcmp(type, "json_schema") == 0) return NB_OK;
    return nb_ask_bad(a, "response_format",
                      "response_format: type \"%.40s\": expected text, json_object or json_schema",
                      type);
}

static nb_status read_modalities(nb_ask *a)
{
    const json_t *m = nb_ask_get(a, "modalities");
    if (m && !json_is_array(m)) return nb_ask_bad(a, "modalities", "modalities: expected an array");
    for (size_t i = 0; i < json_array_size(m); i++) {
        const char *s = json_string_value(json_array_get(m, i));
        if (!s || strcmp(s, "text") != 0)
            return nb_ask_bad(a, "modalities", "modalities: only text is supported");
    }
    return NB_OK;
}

/* ---- sampling ---- */

static nb_status read_penalties(nb_ask *a)
{
    nb_sampling *s = &a->sampling;
    NB_TRY(nb_ask_real(a, "temperature", 0, 1e6, &s->temperature));
    NB_TRY(nb_ask_real(a, "top_p", 0, 1, &s->top_p));
    if (s->top_p <= 0) return nb_ask_bad(a, "top_p", "top_p is 0: expected a number in (0, 1]");
    NB_TRY(nb_ask_real(a, "min_p", 0, 1, &s->min_p));
    NB_TRY(nb_ask_real(a, "presence_penalty", -2, 2, &s->presence_penalty));
    NB_TRY(nb_ask_real(a, "frequency_penalty", -2, 2, &s->frequency_penalty));
    NB_TRY(nb_ask_real(a, "repetition_penalty", 1e-6, 1e6, &s->repetition_penalty));
    int64_t k = 0, seed = 0;
    bool found;
    NB_TRY(nb_ask_int(a, "top_k", -1, INT32_MAX, &k, &found));
    if (found) s->top_k = k > 0 ? (size_t)k : 0;
    NB_TRY(nb_ask_int(a, "seed", INT64_MIN, INT64_MAX, &seed, &found));
    a->has_seed = found && seed != -1; /* as vLLM: -1 is none */
    if (a->has_seed) s->seed = (uint64_t)seed;
    return NB_OK;
}

static nb_status bias_of(nb_ask *a, const char *key, const json_t *v, size_t vocab,
                         nb_logit_bias *out)
{
    char *end = NULL;
    const unsigned long long id = strtoull(key, &end, 10);
    /* one key for each id: a name with zeros before it is none */
    if (key[0] < '0' || key[0] > '9' || *end || (key[0] == '0' && key[1]))
        return nb_ask_bad(a, "logit_bias", "logit_bias: \"%.40s\" is not a token id", key);
    if (id >= vocab)
        return nb_ask_bad(a, "logit_bias",
                          "logit_bias: token id %llu is out of vocabulary: expected 0..%zu", id,
                          vocab - 1);
    const double x = json_number_value(v);
    if (!json_is_number(v) || !(x >= -100 && x <= 100))
        return nb_ask_bad(a, "logit_bias",
                          "logit_bias of token %llu: expected a number in [-100, 100]", id);
    *out = (nb_logit_bias){ (uint32_t)id, (float)x };
    return NB_OK;
}

static nb_status read_bias(nb_ask *a, size_t vocab)
{
    const json_t *o = nb_ask_get(a, "logit_bias");
    if (!o) return NB_OK;
    if (!json_is_object(o))
        return nb_ask_bad(a, "logit_bias", "logit_bias: expected an object of token ids");
    nb_logit_bias *b = nb_ask_alloc(a, json_object_size(o), sizeof *b);
    if (!b) return NB_ERR_NOMEM;
    const char *key;
    json_t *v;
    size_t n = 0;
    json_object_foreach((json_t *)(uintptr_t)o, key, v) NB_TRY(bias_of(a, key, v, vocab, &b[n++]));
    a->sampling.logit_bias = b;
    a->sampling.n_logit_bias = n;
    return NB_OK;
}

static nb_status read_stops(nb_ask *a, const nb_ask_limits *lim)
{
    NB_TRY(nb_ask_stop(a, "stop", lim->max_stop));
    const json_t *ids = nb_ask_get(a, "stop_token_ids");
    if (ids) {
        uint32_t *v = NULL;
        if (json_array_size(ids) > STOP_IDS_MAX)
            return nb_ask_bad(a, "stop_token_ids", "stop_token_ids: at most %d are accepted",
                              STOP_IDS_MAX);
        NB_TRY(nb_ask_ids(a, "stop_token_ids", ids, lim->vocab, &v, &a->sampling.n_stop_id));
        a->sampling.stop_id = v;
    }
    NB_TRY(nb_ask_bool(a, "include_stop_str_in_output", &a->include_stop));
    return nb_ask_bool(a, "ignore_eos", &a->sampling.ignore_eos);
}

static nb_status read_lengths(nb_ask *a, nb_ask_kind kind, const nb_ask_limits *lim)
{
    const int64_t least = kind == NB_ASK_COMPLETION ? 0 : 1;
    int64_t v = 0;
    bool found = false;
    const char *name = "max_completion_tokens";
    if (kind == NB_ASK_CHAT) NB_TRY(nb_ask_int(a, name, least, INT32_MAX, &v, &found));
    if (!found) {
        name = "max_tokens";
        NB_TRY(nb_ask_int(a, name, least, INT32_MAX, &v, &found));
    }
    a->has_max_tokens = found;
    a->sampling.max_tokens = (size_t)v;
    if (found && v == 0 && !a->echo)
        return nb_ask_bad(a, name, "%s is 0: expected at least 1 (0 only with echo)", name);
    int64_t least_tokens = 0;
    NB_TRY(nb_ask_int(a, "min_tokens", 0, (int64_t)lim->max_model_len, &least_tokens, NULL));
    a->sampling.min_tokens = (size_t)least_tokens;
    if (found && least_tokens > v)
        return nb_ask_bad(a, "min_tokens", "min_tokens is %lld: expected 0..%lld (%s)",
                          (long long)least_tokens, (long long)v, name);
    int64_t cut = 0;
    NB_TRY(nb_ask_int(a, "truncate_prompt_tokens", -1, INT32_MAX, &cut, &found));
    if (found && cut == 0)
        return nb_ask_bad(a, "truncate_prompt_tokens",
                          "truncate_prompt_tokens is 0: expected -1 or at least 1");
    if (found) a->truncate = cut < 0 ? lim->max_model_len : (size_t)cut;
    return NB_OK;
}

/* ---- log-probabilities ---- */

static size_t most_logprobs(const nb_ask_limits *lim)
{
    return lim->max_logprobs < MAX_TOP ? lim->max_logprobs : MAX_TOP;
}

static nb_status read_logprobs_chat(nb_ask *a, const nb_ask_limits *lim)
{
    int64_t top = 0;
    bool found;
    NB_TRY(nb_ask_bool(a, "logprobs", &a->logprobs));
    NB_TRY(nb_ask_int(a, "top_logprobs", 0, (int64_t)most_logprobs(lim), &top, &found));
    if (found && top > 0 && !a->logprobs)
        return nb_ask_bad(a, "top_logprobs", "top_logprobs needs logprobs to be true");
    a->sampling.n_logprobs = a->logprobs ? (int)top : -1;
    return NB_OK;
}

static nb_status read_logprobs_completion(nb_ask *a, const nb_ask_limits *lim)
{
    const json_t *v = nb_ask_get(a, "logprobs");
    int64_t k = 0;
    if (json_is_false(v)) return NB_OK; /* vLLM's bench client sends it */
    if (json_is_true(v)) {
        k = 1; /* as Python's int(True) */
        a->logprobs = true;
    } else {
        NB_TRY(nb_ask_int(a, "logprobs", 0, (int64_t)most_logprobs(lim), &k, &a->logprobs));
    }
    a->sampling.n_logprobs = a->logprobs ? (int)k : -1;
    return NB_OK;
}

static nb_status read_logprobs(nb_ask *a, nb_ask_kind kind, const nb_ask_limits *lim)
{
    int64_t k = 0;
    bool found;
    a->sampling.n_logprobs = -1;
    NB_TRY(kind == NB_ASK_CHAT ? read_logprobs_chat(a, lim) : read_logprobs_completion(a, lim));
    NB_TRY(nb_ask_int(a, "prompt_logprobs", 0, (int64_t)most_logprobs(lim), &k, &found));
    if (found) a->prompt_logprobs = (int)k;
    if (found && a->stream)
        return nb_ask_bad(a, "prompt_logprobs", "prompt_logprobs are not available with stream");
    a->tokens_as_ids = lim->tokens_as_ids;
    return nb_ask_bool(a, "return_tokens_as_token_ids", &a->tokens_as_ids);
}

/* ---- the rest ---- */

static nb_status read_stream(nb_ask *a, const nb_ask_limits *lim)
{
    NB_TRY(nb_ask_bool(a, "stream", &a->stream));
    a->include_usage = a->stream && lim->force_usage;
    const json_t *o = nb_ask_get(a, "stream_options");
    if (!o) return NB_OK;
    if (!json_is_object(o))
        return nb_ask_bad(a, "stream_options", "stream_options: expected an object");
    if (!a->stream)
        return nb_ask_bad(a, "stream_options", "stream_options can only be set with stream");
    static const char *const names[2] = { "include_usage", "continuous_usage_stats" };
    bool *const out[2] = { &a->include_usage, &a->continuous_usage };
    for (size_t i = 0; i < 2; i++) {
        const json_t *v = json_object_get(o, names[i]);
        if (!v || json_is_null(v)) continue;
        if (!json_is_boolean(v))
            return nb_ask_bad(a, "stream_options", "stream_options.%s: expected true or false",
                              names[i]);
        *out[i] = json_is_true(v) || (i == 0 && lim->force_usage);
    }
    a->continuous_usage = a->continuous_usage && a->include_usage; /* as vLLM */
    return NB_OK;
}

static nb_status read_choices(nb_ask *a, nb_ask_kind kind, const nb_ask_limits *lim)
{
    int64_t n = 1, best = 1;
    bool found;
    NB_TRY(nb_ask_int(a, "n", 1, (int64_t)lim->max_n, &n, NULL));
    a->n = (size_t)n;
    if (kind != NB_ASK_COMPLETION) return NB_OK;
    NB_TRY(nb_ask_int(a, "best_of", 1, INT32_MAX, &best, &found));
    if (found && best != n)
        return nb_ask_bad(a, "best_of", "best_of: only the value of n is supported");
    return NB_OK;
}

static bool is_visible(const char *s)
{
    size_t n = 0;
    for (; s[n]; n++)
        if (s[n] < 0x21 || s[n] > 0x7e || s[n] == '"' || s[n] == '\\') return false;
    return n >= 1 && n <= 128;
}

nb_status nb_ask_identity(nb_ask *a, const nb_ask_limits *lim)
{
    NB_TRY(nb_ask_string(a, "cache_salt", &a->cache_salt));
    if (a->cache_salt && (!*a->cache_salt || strlen(a->cache_salt) > SALT_BYTES_MAX))
        return nb_ask_bad(a, "cache_salt", "cache_salt: expected a string of 1..%d bytes",
                          SALT_BYTES_MAX);
    NB_TRY(nb_ask_string(a, "request_id", &a->request_id));
    if (a->request_id && !is_visible(a->request_id))
        return nb_ask_bad(a, "request_id", "request_id: expected 1..128 visible ASCII characters");
    int64_t p = 0;
    NB_TRY(nb_ask_int(a, "priority", INT32_MIN, INT32_MAX, &p, NULL));
    if (p && !lim->priority)
        return nb_ask_bad(a, "priority",
                          "priority is %lld: the server schedules first come, first served "
                          "(--scheduling-policy priority)",
                          (long long)p);
    a->priority = (int32_t)p;
    return NB_OK;
}

nb_status nb_ask_read(nb_ask *a, nb_ask_kind kind, const nb_ask_limits *lim)
{
    a->sampling = lim->sampling;
    a->n = 1;
    a->add_special = kind == NB_ASK_COMPLETION;
    NB_TRY(nb_fields_check(a, kind == NB_ASK_CHAT ? NB_FIELDS_CHAT : NB_FIELDS_COMPLETION, lim));
    if (kind == NB_ASK_CHAT) {
        NB_TRY(nb_ask_read_chat(a));
        NB_TRY(read_modalities(a));
    } else {
        NB_TRY(nb_ask_bool(a, "echo", &a->echo));
    }
    NB_TRY(read_response_format(a));
    NB_TRY(read_stream(a, lim));
    NB_TRY(read_choices(a, kind, lim));
    NB_TRY(read_penalties(a));
    NB_TRY(read_bias(a, lim->vocab));
    NB_TRY(read_stops(a, lim));
    NB_TRY(read_lengths(a, kind, lim));
    NB_TRY(read_logprobs(a, kind, lim));
    NB_TRY(nb_ask_bool(a, "return_token_ids", &a->return_token_ids));
    NB_TRY(nb_ask_bool(a, "add_special_tokens", &a->add_special));
    return nb_ask_identity(a, lim);
}
