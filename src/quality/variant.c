/* variant.c - words of the command line to options of an engine: one table of keys.
 *
 * What the engine itself would refuse later (a transform without a calibration, a residual plane
 * of a record that has none) it refuses with its own line; here only the word is checked. */
#include "quality/variant.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "num/record.h"

enum { MAX_VARIANTS = 32, MAX_WORD_BYTES = 4096, NUMBER_BYTES = 64 };
static const double DEFAULT_TAU = 0.001; /* of --kv-thrift-tau */

typedef enum key_type {
    KEY_CHOICE,    /* one of choices */
    KEY_TRANSFORM, /* none, or a sum of choices, each once */
    KEY_LAYERS,    /* 0+2+5-7 */
    KEY_PATH,      /* none: not the base's either */
    KEY_COUNT,     /* 0..hi */
    KEY_SHARE      /* above 0, at most 1 */
} key_type;

typedef struct key {
    const char *name;
    key_type type;
    size_t offset;
    const char *choices; /* or what the error line says that it takes */
    size_t hi;
} key;

#define AT(field) offsetof(nb_engine_options, field)
static const key keys[] = {
    { "mode", KEY_CHOICE, AT(kv_cache_mode), "basic|4over6|search", 0 },
    { "rope", KEY_CHOICE, AT(kv_rope_dtype), "fp8|bf16|int8", 0 },
    { "transform", KEY_TRANSFORM, AT(kv_transform), "center|equalize|hadamard", 0 },
    { "calibration", KEY_PATH, AT(kv_calibration), "a file, or none", 0 },
    { "outliers", KEY_COUNT, AT(kv_outliers), NULL, 64 },
    { "sinks", KEY_COUNT, AT(kv_sinks), NULL, 64 },
    { "skip", KEY_LAYERS, AT(kv_skip_layers), "layers such as 0+2+5-7", 0 },
    { "scales", KEY_CHOICE, AT(kv_scales), "auto|checkpoint|dynamic", 0 },
    { "thrift", KEY_CHOICE, AT(kv_thrift), "off|token|block-mean|quest|block-prob", 0 },
    { "tau", KEY_SHARE, AT(kv_thrift_tau), NULL, 0 },
    { "fraction", KEY_SHARE, AT(kv_thrift_fraction), NULL, 0 },
    { "pool", KEY_SHARE, AT(kv_thrift_pool), NULL, 0 },
    { "weights", KEY_CHOICE, AT(weight_dtype), "auto|int8|fp8", 0 },
    { "acts", KEY_CHOICE, AT(activation_dtype), "auto|float|bf16|int16|int8|fp8", 0 },
    { "mla", KEY_CHOICE, AT(mla), "auto|absorbed|expanded", 0 },
};
_Static_assert(NB_COUNT(keys) <= 32, "the set of keys seen is 32 bits");
static const char KEY_NAMES[] = "mode, rope, transform, calibration, outliers, sinks, skip, "
                                "scales, thrift, tau, fraction, pool, weights, acts, mla";

/* What precedes the first c, or all; *rest is what follows it. */
static nb_str cut(nb_str s, char c, nb_str *rest)
{
    const char *p = s.n_bytes ? memchr(s.p, c, s.n_bytes) : NULL;
    const size_t n = p ? (size_t)(p - s.p) : s.n_bytes;
    *rest = p ? (nb_str){ p + 1, s.n_bytes - n - 1 } : (nb_str){ s.p + s.n_bytes, 0 };
    return (nb_str){ s.p, n };
}

/* Whether v is one of "a|b|c"; *bit is its place. */
static bool is_choice(nb_str v, const char *choices, unsigned *bit)
{
    nb_str rest = nb_str_c(choices);
    for (*bit = 0; rest.n_bytes; ++*bit) {
        const nb_str one = cut(rest, '|', &rest);
        if (nb_str_eq(one, v)) return true;
    }
    return false;
}

/* ---- values --------------------------------------------------------------- */

static bool is_transform(nb_str v, const char *choices)
{
    unsigned seen = 0, bit;
    if (nb_str_eqc(v, "none")) return true;
    if (v.n_bytes == 0 || v.p[v.n_bytes - 1] == '+') return false;
    while (v.n_bytes) {
        const nb_str one = cut(v, '+', &v);
        if (!is_choice(one, choices, &bit) || (seen & 1u << bit)) return false;
        seen |= 1u << bit;
    }
    return true;
}

/* Numbers and ranges joined by +, to the list with commas that the engine takes. */
static bool to_layers(nb_str v, char *out)
{
    bool digit = false, range = false;
    for (size_t i = 0; i < v.n_bytes; i++) {
        const char c = v.p[i];
        out[i] = c == '+' ? ',' : c;
        if (c >= '0' && c <= '9') {
            digit = true;
            continue;
        }
        if (!digit || (c != '+' && (c != '-' || range))) return false;
        range = c == '-';
        digit = false;
    }
    return digit;
}

static bool to_count(nb_str v, size_t hi, size_t *out)
{
    size_t n = 0;
    for (size_t i = 0; i < v.n_bytes; i++) {
        if (v.p[i] < '0' || v.p[i] > '9') return false;
        n = n * 10 + (size_t)(v.p[i] - '0');
        if (n > hi) return false;
    }
    *out = n;
    return v.n_bytes > 0;
}

/* Digits, a point, an exponent: neither spaces nor names nor hexadecimals. */
static bool to_share(nb_str v, double *out)
{
    char text[NUMBER_BYTES];
    if (v.n_bytes == 0 || v.n_bytes >= sizeof text) return false;
    for (size_t i = 0; i < v.n_bytes; i++)
        if (!memchr("0123456789.eE+-", v.p[i], 15)) return false;
    memcpy(text, v.p, v.n_bytes);
    text[v.n_bytes] = 0;
    char *end;
    const double x = strtod(text, &end);
    if (*end || end == text || !(x > 0 && x <= 1)) return false;
    *out = x;
    return true;
}

static nb_status refuse(const char *word, const key *k, nb_str v, nb_error *err)
{
    const int n = v.n_bytes < 100 ? (int)v.n_bytes : 100;
    if (k->type == KEY_COUNT)
        return nb_fail(err, NB_ERR_RANGE, "%.200s: %s is %.*s: expected a number in 0..%zu", word,
                       k->name, n, v.p, k->hi);
    if (k->type == KEY_SHARE)
        return nb_fail(err, NB_ERR_RANGE,
                       "%.200s: %s is %.*s: expected a number above 0, at most 1", word, k->name, n,
                       v.p);
    if (k->type == KEY_TRANSFORM)
        return nb_fail(err, NB_ERR_ARG,
                       "%.200s: %s is %.*s: expected none, or center, equalize, hadamard joined "
                       "by +, each once",
                       word, k->name, n, v.p);
    return nb_fail(err, NB_ERR_ARG, "%.200s: %s is %.*s: expected %s", word, k->name, n, v.p,
                   k->choices);
}

static nb_status set(const char *word, const key *k, nb_str v, nb_arena *arena,
                     nb_engine_options *o, nb_error *err)
{
    void *field = (char *)o + k->offset;
    unsigned bit;
    bool ok = v.n_bytes > 0;
    if (k->type == KEY_COUNT) {
        if (to_count(v, k->hi, field)) return NB_OK;
        return refuse(word, k, v, err);
    }
    if (k->type == KEY_SHARE) {
        if (to_share(v, field)) return NB_OK;
        return refuse(word, k, v, err);
    }
    char *copy = nb_arena_strdup(arena, v);
    if (!copy) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    if (k->type == KEY_CHOICE) ok = is_choice(v, k->choices, &bit);
    if (k->type == KEY_TRANSFORM) ok = is_transform(v, k->choices);
    if (k->type == KEY_LAYERS) ok = to_layers(v, copy);
    if (!ok) return refuse(word, k, v, err);
    const char *value = k->type == KEY_PATH && strcmp(copy, "none") == 0 ? NULL : copy;
    memcpy(field, &value, sizeof value);
    return NB_OK;
}

/* ---- words ---------------------------------------------------------------- */

static nb_status set_dtype(const char *word, nb_str v, nb_engine_options *o, nb_error *err)
{
    char name[32] = "";
    nb_kv_type type;
    if (v.n_bytes == 0)
        return nb_fail(err, NB_ERR_ARG, "\"%.200s\": a format is missing: expected one of auto%s",
                       word, NB_KV_LIST);
    if (v.n_bytes < sizeof name) memcpy(name, v.p, v.n_bytes);
    if (strcmp(name, "auto") == 0) {
        o->kv_cache_dtype = "auto";
        return NB_OK;
    }
    if (nb_kv_type_parse(name, &type) != NB_OK)
        return nb_fail(err, NB_ERR_ARG, "%.*s: unknown format: expected one of auto%s",
                       v.n_bytes < 100 ? (int)v.n_bytes : 100, v.p, NB_KV_LIST);
    o->kv_cache_dtype = nb_kv_type_name(type);
    return NB_OK;
}

static nb_status set_part(const char *word, nb_str part, unsigned *seen, nb_arena *arena,
                          nb_engine_options *o, nb_error *err)
{
    nb_str value;
    const nb_str name = cut(part, '=', &value);
    const int n = name.n_bytes < 100 ? (int)name.n_bytes : 100;
    for (size_t i = 0; i < NB_COUNT(keys); i++) {
        if (!nb_str_eqc(name, keys[i].name)) continue;
        if (name.n_bytes == part.n_bytes)
            return nb_fail(err, NB_ERR_ARG, "%.200s: %s has no value: expected %s=VALUE", word,
                           keys[i].name, keys[i].name);
        if (*seen & 1u << i)
            return nb_fail(err, NB_ERR_ARG, "%.200s: %s is given twice", word, keys[i].name);
        *seen |= 1u << i;
        return set(word, &keys[i], value, arena, o, err);
    }
    return nb_fail(err, NB_ERR_ARG, "%.200s: unknown key \"%.*s\": expected one of %s", word, n,
                   name.p, KEY_NAMES);
}

static nb_status parse(nb_str word, const nb_engine_options *base, nb_arena *arena, nb_variant *out,
                       nb_error *err)
{
    if (word.n_bytes > MAX_WORD_BYTES)
        return nb_fail(err, NB_ERR_LIMIT, "a format of %zu bytes, at most %d are accepted",
                       word.n_bytes, MAX_WORD_BYTES);
    nb_variant v = { .name = nb_arena_strdup(arena, word), .options = *base };
    if (!v.name) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    nb_str rest;
    NB_TRY(set_dtype(v.name, cut(word, ':', &rest), &v.options, err));
    if (word.n_bytes && word.p[word.n_bytes - 1] == ':')
        return nb_fail(err, NB_ERR_ARG, "%.200s: ends with \":\": expected KEY=VALUE after it",
                       v.name);
    unsigned seen = 0;
    while (rest.n_bytes) {
        const nb_str part = cut(rest, ':', &rest);
        NB_TRY(set_part(v.name, part, &seen, arena, &v.options, err));
    }
    *out = v;
    return NB_OK;
}

nb_status nb_variant_parse(const char *word, const nb_engine_options *base, nb_arena *arena,
                           nb_variant *out, nb_error *err)
{
    return parse(nb_str_c(word), base, arena, out, err);
}

nb_status nb_variant_list(const char *words, const nb_engine_options *base, nb_arena *arena,
                          nb_variant **out, size_t *n, nb_error *err)
{
    nb_variant *list = nb_arena_array(arena, MAX_VARIANTS, sizeof *list);
    if (!list) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    nb_str rest = nb_str_c(words);
    size_t count = 0;
    for (bool more = true; more;) {
        const nb_str word = cut(rest, ',', &rest);
        more = word.p + word.n_bytes < words + strlen(words);
        if (count == MAX_VARIANTS)
            return nb_fail(err, NB_ERR_LIMIT, "more than %d formats in the list", MAX_VARIANTS);
        NB_TRY(parse(word, base, arena, &list[count], err));
        for (size_t i = 0; i < count; i++)
            if (strcmp(list[i].name, list[count].name) == 0)
                return nb_fail(err, NB_ERR_ARG, "%.200s is in the list of formats twice",
                               list[i].name);
        count++;
    }
    *out = list;
    *n = count;
    return NB_OK;
}

/* ---- and back --------------------------------------------------------------- */

/* The shortest decimal that reads back as x. */
static nb_status add_number(double x, nb_buf *to)
{
    char text[NUMBER_BYTES];
    for (int digits = 1; digits <= 17; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, x);
        if (strtod(text, NULL) == x) break;
    }
    return nb_buf_add_c(to, text);
}

static nb_status add_key(const key *k, const nb_engine_options *o, nb_buf *to)
{
    const void *field = (const char *)o + k->offset;
    if (k->type == KEY_COUNT) {
        size_t n;
        memcpy(&n, field, sizeof n);
        return n ? nb_buf_printf(to, ":%s=%zu", k->name, n) : NB_OK;
    }
    if (k->type == KEY_SHARE) {
        double x;
        memcpy(&x, field, sizeof x);
        /* 0 is the default; of tau its value is said besides, by the command line. */
        if (!(x > 0) || (k->offset == AT(kv_thrift_tau) && x == DEFAULT_TAU)) return NB_OK;
        NB_TRY(nb_buf_printf(to, ":%s=", k->name));
        return add_number(x, to);
    }
    const char *v;
    memcpy(&v, field, sizeof v);
    if (!v || !*v) return NB_OK;
    if (k->type == KEY_CHOICE && (strcmp(v, "off") == 0 || strcmp(v, "auto") == 0)) return NB_OK;
    NB_TRY(nb_buf_printf(to, ":%s=", k->name));
    if (k->type != KEY_LAYERS) return nb_buf_add_c(to, v);
    for (; *v; v++) NB_TRY(nb_buf_add_ch(to, *v == ',' ? '+' : *v));
    return NB_OK;
}

nb_status nb_variant_word(const nb_engine_options *o, nb_buf *to)
{
    NB_TRY(nb_buf_add_c(to, o->kv_cache_dtype ? o->kv_cache_dtype : "auto"));
    for (size_t i = 0; i < NB_COUNT(keys); i++) NB_TRY(add_key(&keys[i], o, to));
    return NB_OK;
}
