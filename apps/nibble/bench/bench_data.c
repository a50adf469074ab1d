/* bench_data.c - see bench_data.h. */
#include "bench_data.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../cli.h"

enum { FILE_MAX_BYTES = 1 << 30, TRACE_MAX_HASH = 1 << 20 };
/* sharegpt: what vLLM's bench leaves out. */
enum { SHAREGPT_MIN = 4, SHAREGPT_MAX_PROMPT = 1024, SHAREGPT_MAX_TOTAL = 2048 };

/* ---- random numbers ------------------------------------------------------- */

/* The finaliser of SplitMix64 (Steele, Lea, Flood 2014): number `index` of stream `key`. */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}
static uint64_t draw(uint64_t seed, uint64_t key, uint64_t index)
{
    return mix(mix(mix(seed) ^ key) ^ index);
}
static double draw_unit(uint64_t seed, uint64_t key, uint64_t index)
{
    return ((double)(draw(seed, key, index) >> 11) + 0.5) * 0x1p-53; /* in (0, 1) */
}

/* Streams beside those of prompts, whose keys are small numbers and the trace's hash ids. */
enum { KEY_LENGTH = 1, KEY_ORDER = 2, KEY_GAP = 3, KEY_PREFIX = 4, KEY_AGAIN = 5, KEY_PROMPT = 6 };
static uint64_t key_of(unsigned kind, uint64_t i)
{
    return mix(((uint64_t)kind << 56) ^ i);
}

void bench_prompt_ids(const bench_set *s, const bench_item *it, uint32_t *out)
{
    uint64_t stream = 0;
    for (size_t j = 0; j < it->n_prompt; j++) {
        uint64_t index = j;
        if (it->hash) {
            index = j % s->chunk;
            if (index == 0) stream = mix(mix(s->seed) ^ key_of(KEY_PROMPT, it->hash[j / s->chunk]));
        } else if (j == 0 || j == it->n_prefix) {
            stream = mix(mix(s->seed) ^ (j < it->n_prefix ? it->prefix_key : it->key));
        }
        const size_t k = (size_t)(mix(stream ^ index) % s->n_pool);
        out[j] = s->pool ? s->pool[k] : (uint32_t)k;
    }
}

/* ---- lengths and order ---------------------------------------------------- */

static bool ratio(const json_t *v, double *out)
{
    if (!json_is_number(v)) return false;
    *out = json_number_value(v);
    return *out >= 0 && *out < 1;
}

/* R, or {"input": R, "output": R}. */
static bool parse_ratios(const char *text, double *in, double *out)
{
    json_t *j = json_loads(text, JSON_DECODE_ANY, NULL);
    bool ok;
    *in = *out = 0;
    if (json_is_object(j)) {
        const json_t *a = json_object_get(j, "input"), *b = json_object_get(j, "output");
        ok = (!a || ratio(a, in)) && (!b || ratio(b, out));
    } else {
        ok = ratio(j, in);
        *out = *in;
    }
    json_decref(j);
    return ok;
}

/* Uniform in [len (1 - r), len (1 + r)]. */
static size_t vary(const bench_set *s, size_t len, double r, uint64_t index)
{
    const double lo = floor((double)len * (1 - r)), hi = ceil((double)len * (1 + r));
    return (size_t)(lo + floor(draw_unit(s->seed, key_of(KEY_LENGTH, 0), index) * (hi - lo + 1)));
}

static void shuffle(bench_item *items, size_t n, uint64_t seed)
{
    for (size_t i = n; i > 1; i--) {
        const size_t k = (size_t)(draw(seed, key_of(KEY_ORDER, 0), i) % i);
        const bench_item t = items[k];
        items[k] = items[i - 1];
        items[i - 1] = t;
    }
}

/* ---- made-up data sets ---------------------------------------------------- */

static int make_room(bench_set *s, size_t n, size_t n_warm)
{
    s->items = calloc(n + n_warm, sizeof *s->items);
    if (!s->items) return cli_failed("no memory for %zu requests", n);
    s->n = n;
    s->n_warm = n_warm;
    return CLI_OK;
}

static int make_random(const bench_opts *o, bench_set *s)
{
    double in, out;
    if (!parse_ratios(o->random_range_ratio, &in, &out))
        return cli_usage("--random-range-ratio %s: expected a number in [0, 1), or "
                         "{\"input\": R, \"output\": R}",
                         o->random_range_ratio);
    const int code = make_room(s, o->num_prompts, o->num_warmups);
    if (code != CLI_OK) return code;
    for (size_t i = 0; i < s->n + s->n_warm; i++) {
        const size_t len = vary(s, o->random_input_len, in, 2 * i);
        const size_t answer = vary(s, o->random_output_len, out, 2 * i + 1);
        s->items[i] = (bench_item){ .n_prompt = o->random_prefix_len + len,
                                    .max_tokens = answer ? answer : 1,
                                    .n_prefix = o->random_prefix_len,
                                    .prefix_key = key_of(KEY_PREFIX, 0),
                                    .key = key_of(KEY_PROMPT, i) };
        if (s->items[i].n_prompt == 0) s->items[i].n_prompt = 1;
    }
    return CLI_OK;
}

static int make_prefixes(const bench_opts *o, bench_set *s)
{
    const size_t each = o->num_prompts / o->num_prefixes;
    if (each == 0)
        return cli_usage("--num-prompts %zu: fewer than --prefix-repetition-num-prefixes %zu",
                         o->num_prompts, o->num_prefixes);
    if (o->prefix_len + o->suffix_len == 0)
        return cli_usage("--prefix-repetition-prefix-len and -suffix-len are both 0");
    const int code = make_room(s, each * o->num_prefixes, o->num_warmups);
    if (code != CLI_OK) return code;
    for (size_t i = 0; i < s->n + s->n_warm; i++)
        s->items[i] = (bench_item){
            .n_prompt = o->prefix_len + o->suffix_len,
            .max_tokens = o->prefix_output_len,
            .n_prefix = o->prefix_len,
            /* warm-ups have a prefix of their own: the cache stays cold */
            .prefix_key = key_of(KEY_PREFIX, i < s->n ? i / each : o->num_prefixes),
            .key = key_of(KEY_PROMPT, i),
        };
    if (!o->disable_shuffle) shuffle(s->items, s->n, s->seed);
    return CLI_OK;
}

/* ---- files ---------------------------------------------------------------- */

/* items[n] is free, or room for more is made. */
static bench_item *new_item(bench_set *s, size_t *cap)
{
    if (s->n == *cap) {
        const size_t want = *cap ? 2 * *cap : 256;
        bench_item *p = realloc(s->items, want * sizeof *p);
        if (!p) return NULL;
        s->items = p;
        *cap = want;
    }
    s->items[s->n] = (bench_item){ 0 };
    return &s->items[s->n];
}

static int take_text(bench_item *it, const json_t *v)
{
    it->text_bytes = json_string_length(v);
    it->text = malloc(it->text_bytes + 1);
    if (!it->text) return cli_failed("no memory for the prompts");
    memcpy(it->text, json_string_value(v), it->text_bytes + 1);
    return CLI_OK;
}

/* A count >= lo of an object; false: absent or not one. */
static bool count_at(const json_t *j, const char *key, json_int_t lo, size_t *out)
{
    const json_t *v = json_object_get(j, key);
    if (!json_is_integer(v) || json_integer_value(v) < lo ||
        json_integer_value(v) > (json_int_t)1 << 40)
        return false;
    *out = (size_t)json_integer_value(v);
    return true;
}

static int custom_line(const bench_opts *o, const json_t *j, size_t line, bench_item *it)
{
    const json_t *prompt = json_object_get(j, "prompt");
    if (!json_is_string(prompt))
        return cli_failed("%s: line %zu: \"prompt\" is not a string", o->dataset_path, line);
    it->max_tokens = (size_t)(o->custom_output_len > 0 ? o->custom_output_len : 1);
    if (o->custom_output_len == -1 && !count_at(j, "output_tokens", 1, &it->max_tokens))
        return cli_failed("%s: line %zu: \"output_tokens\" is not a count >= 1 "
                          "(--custom-output-len sets one for all)",
                          o->dataset_path, line);
    return take_text(it, prompt);
}

static int trace_line(const bench_opts *o, const json_t *j, size_t line, bench_item *it)
{
    const json_t *at = json_object_get(j, o->trace_timestamp);
    const json_t *hashes = json_object_get(j, o->trace_hashes);
    const size_t n_hash = json_array_size(hashes);
    if (!json_is_number(at) || !(json_number_value(at) >= 0))
        return cli_failed("%s: line %zu: \"%s\" is not a number >= 0", o->dataset_path, line,
                          o->trace_timestamp);
    if (!count_at(j, o->trace_input, 1, &it->n_prompt))
        return cli_failed("%s: line %zu: \"%s\" is not a count >= 1", o->dataset_path, line,
                          o->trace_input);
    if (!count_at(j, o->trace_output, 1, &it->max_tokens))
        return cli_failed("%s: line %zu: \"%s\" is not a count >= 1", o->dataset_path, line,
                          o->trace_output);
    if (n_hash == 0 || n_hash > TRACE_MAX_HASH)
        return cli_failed("%s: line %zu: \"%s\" is not an array of 1 to %d ids", o->dataset_path,
                          line, o->trace_hashes, (int)TRACE_MAX_HASH);
    it->at_s = json_number_value(at) * o->trace_multiplier;
    if (it->n_prompt > n_hash * o->trace_chunk) it->n_prompt = n_hash * o->trace_chunk;
    it->hash = malloc(n_hash * sizeof *it->hash);
    if (!it->hash) return cli_failed("no memory for the trace");
    for (size_t i = 0; i < n_hash; i++) {
        const json_t *v = json_array_get(hashes, i);
        if (!json_is_integer(v))
            return cli_failed("%s: line %zu: \"%s\" holds something that is not an integer",
                              o->dataset_path, line, o->trace_hashes);
        it->hash[i] = (uint64_t)json_integer_value(v);
    }
    return CLI_OK;
}

/* A JSON object a line; a trace is read as far as it is needed. */
static int read_lines(const bench_opts *o, const char *data, size_t n_bytes, bool trace,
                      bench_set *s)
{
    size_t cap = 0, line = 0;
    for (size_t at = 0; at < n_bytes;) {
        const char *end = memchr(data + at, '\n', n_bytes - at);
        const size_t n = end ? (size_t)(end - (data + at)) : n_bytes - at;
        const char *p = data + at;
        at += n + 1;
        line++;
        if (strspn(p, " \t\r") >= n) continue;
        if (trace && s->n == o->num_prompts) break;
        json_error_t e;
        json_t *j = json_loadb(p, n, 0, &e);
        bench_item *it = j ? new_item(s, &cap) : NULL;
        int code = CLI_OK;
        if (!j)
            code = cli_failed("%s: line %zu: %s", o->dataset_path, line, e.text);
        else if (!it)
            code = cli_failed("no memory for the requests");
        else
            s->n++; /* what it holds is freed with the set, also after an error */
        if (code == CLI_OK) code = trace ? trace_line(o, j, line, it) : custom_line(o, j, line, it);
        json_decref(j);
        if (code != CLI_OK) return code;
    }
    return CLI_OK;
}

/* Tokens of a text, or CLI_FAILED. */
static int count_tokens(const bench_tok *tok, const json_t *v, size_t *n)
{
    uint32_t *ids = NULL;
    const int code = tok->encode(tok->ctx, json_string_value(v), json_string_length(v), &ids, n);
    free(ids);
    return code;
}

/* One conversation: its first message and the length of the answer. *it stays empty when the
 * conversation is not used. */
static int sharegpt_entry(const bench_opts *o, const bench_tok *tok, const json_t *entry,
                          bench_item *it)
{
    const json_t *turns = json_object_get(entry, "conversations");
    const json_t *prompt = json_object_get(json_array_get(turns, 0), "value");
    const json_t *answer = json_object_get(json_array_get(turns, 1), "value");
    size_t n_answer = (size_t)(o->sharegpt_output_len > 0 ? o->sharegpt_output_len : 0),
           n_prompt = 0;
    if (!json_is_string(prompt) || !json_is_string(answer)) return CLI_OK;
    int code = count_tokens(tok, prompt, &n_prompt);
    if (code == CLI_OK && n_answer == 0) {
        code = count_tokens(tok, answer, &n_answer);
        if (n_answer < SHAREGPT_MIN) return code;
    }
    if (code != CLI_OK || n_prompt < SHAREGPT_MIN || n_prompt > SHAREGPT_MAX_PROMPT ||
        n_prompt + n_answer > SHAREGPT_MAX_TOTAL)
        return code;
    it->n_prompt = n_prompt;
    it->max_tokens = n_answer;
    return take_text(it, prompt);
}

static int read_sharegpt(const bench_opts *o, const bench_tok *tok, const char *data,
                         size_t n_bytes, bench_set *s)
{
    size_t cap = 0;
    json_error_t e;
    json_t *j = json_loadb(data, n_bytes, 0, &e);
    const size_t n = json_array_size(j);
    int code = CLI_OK;
    if (!tok->encode) code = cli_failed("sharegpt needs a tokenizer");
    if (!json_is_array(j))
        code = cli_failed("%s: %s (expected an array of conversations)", o->dataset_path,
                          j ? "not an array" : e.text);
    /* Tokenising costs: the order is drawn first, and only as many are read as are needed. */
    for (size_t i = 0; code == CLI_OK && i < n && s->n < o->num_prompts; i++) {
        bench_item *it = new_item(s, &cap);
        const uint64_t step = draw(s->seed, key_of(KEY_ORDER, 1), 0) % n;
        const size_t at = o->disable_shuffle ? i : (size_t)((i + step) % n);
        code = it ? sharegpt_entry(o, tok, json_array_get(j, at), it)
                  : cli_failed("no memory for the requests");
        if (it && it->text) s->n++;
    }
    json_decref(j);
    return code;
}

/* Some requests twice when there are too few; none beyond num_prompts. */
static int fit(const bench_opts *o, bool again, bench_set *s)
{
    const size_t have = s->n;
    if (have == 0) return cli_failed("%s: no requests in it", o->dataset_path);
    for (size_t i = o->num_prompts; i < have; i++) {
        free(s->items[i].text);
        free(s->items[i].hash);
    }
    if (have >= o->num_prompts) s->n = o->num_prompts;
    const size_t n = again && have < o->num_prompts ? o->num_prompts : s->n;
    bench_item *p = realloc(s->items, (n + o->num_warmups) * sizeof *p);
    if (!p) return cli_failed("no memory for %zu requests", n);
    s->items = p;
    for (size_t i = s->n; i < n + o->num_warmups; i++) {
        const size_t from = i < n ? (size_t)(draw(s->seed, key_of(KEY_AGAIN, 0), i) % have) : i % n;
        p[i] = p[from];
        if (!p[i].text) { /* of a trace: a warm-up, which needs no chain of hashes */
            p[i].hash = NULL;
            p[i].key = key_of(KEY_PROMPT, i);
        } else {
            p[i].text = malloc(p[i].text_bytes + 1);
            if (!p[i].text) return cli_failed("no memory for %zu requests", n);
            memcpy(p[i].text, p[from].text, p[i].text_bytes + 1);
        }
        if (i < n)
            s->n++;
        else
            s->n_warm++;
    }
    return CLI_OK;
}

static int load_file(const bench_opts *o, const bench_tok *tok, bench_set *s)
{
    char *data = NULL;
    size_t n_bytes = 0;
    const bool trace = strcmp(o->dataset_name, "timed_trace") == 0;
    if (!o->dataset_path)
        return cli_usage("--dataset-name %s needs --dataset-path", o->dataset_name);
    int code = cli_read_file(o->dataset_path, FILE_MAX_BYTES, &data, &n_bytes);
    if (code != CLI_OK) return code;
    if (strcmp(o->dataset_name, "sharegpt") == 0) {
        code = read_sharegpt(o, tok, data, n_bytes, s);
    } else {
        code = read_lines(o, data, n_bytes, trace, s);
        if (code == CLI_OK && !trace && !o->disable_shuffle) shuffle(s->items, s->n, s->seed);
    }
    free(data);
    return code == CLI_OK ? fit(o, !trace && !o->no_oversample, s) : code;
}

int bench_set_load(const bench_opts *o, const bench_tok *tok, bench_set *s)
{
    int code;
    s->seed = o->seed;
    s->chunk = o->trace_chunk;
    if (strcmp(o->dataset_name, "random") == 0)
        code = make_random(o, s);
    else if (strcmp(o->dataset_name, "prefix_repetition") == 0)
        code = make_prefixes(o, s);
    else
        code = load_file(o, tok, s);
    for (size_t i = 0; code == CLI_OK && i < s->n + s->n_warm; i++)
        if (s->items[i].n_prompt > s->max_prompt) s->max_prompt = s->items[i].n_prompt;
    return code;
}

void bench_set_deinit(bench_set *s)
{
    for (size_t i = 0; s->items && i < s->n + s->n_warm; i++) {
        free(s->items[i].text);
        free(s->items[i].hash);
    }
    free(s->items);
    free(s->pool);
    *s = (bench_set){ 0 };
}

/* ---- arrivals ------------------------------------------------------------- */

bool bench_parse_rate(const char *text, double *out)
{
    char *end;
    if (strcmp(text, "inf") == 0) {
        *out = INFINITY;
        return true;
    }
    if (!*text || strspn(text, "0123456789.eE+-") != strlen(text)) return false;
    *out = strtod(text, &end);
    return !*end && isfinite(*out) && *out > 0;
}

/* A standard normal number (Box and Muller). */
static double normal(uint64_t seed, uint64_t *index)
{
    const double u = draw_unit(seed, key_of(KEY_GAP, 0), (*index)++);
    const double v = draw_unit(seed, key_of(KEY_GAP, 0), (*index)++);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

/* Gamma with mean `shape` (Marsaglia and Tsang 2000; below 1 by the power of a uniform number). */
static double gamma_number(double shape, uint64_t seed, uint64_t *index)
{
    double scale = 1;
    if (shape < 1) {
        scale = pow(draw_unit(seed, key_of(KEY_GAP, 0), (*index)++), 1 / shape);
        shape += 1;
    }
    const double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        const double x = normal(seed, index), t = 1 + c * x;
        if (t <= 0) continue;
        const double v = t * t * t, u = draw_unit(seed, key_of(KEY_GAP, 0), (*index)++);
        if (log(u) < 0.5 * x * x + d - d * v + d * log(v)) return scale * d * v;
    }
}

static double rate_at(const bench_opts *o, double rate, size_t i, size_t n)
{
    const double part = n > 1 ? (double)i / (double)(n - 1) : 0;
    if (!o->ramp_up) return rate;
    if (strcmp(o->ramp_up, "linear") == 0)
        return o->ramp_start + (o->ramp_end - o->ramp_start) * part;
    return o->ramp_start * pow(o->ramp_end / o->ramp_start, part);
}

double *bench_arrivals(const bench_opts *o, const bench_set *s, double rate, double burstiness)
{
    double *at = calloc(s->n ? s->n : 1, sizeof *at), sum = 0;
    uint64_t index = 0;
    if (!at) return NULL;
    for (size_t i = 0; i < s->n; i++) {
        double r = rate_at(o, rate, i, s->n);
        if (o->self_timed) {
            at[i] = s->items[i].at_s;
            continue;
        }
        if (r <= 0) r = 0.1; /* a linear ramp may begin at 0 */
        if (isfinite(r))
            sum += isfinite(burstiness)
                       ? gamma_number(burstiness, s->seed, &index) / (r * burstiness)
                       : 1 / r;
        at[i] = sum;
    }
    /* As vLLM does: all requests are sent in exactly n / rate seconds. */
    const double want = (double)s->n / rate;
    if (!o->self_timed && !o->ramp_up && isfinite(rate) && sum > 0)
        for (size_t i = 0; i < s->n; i++) at[i] *= want / sum;
    return at;
}
