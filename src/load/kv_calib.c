/* kv_calib.c - the calibration file, read strictly and written so that it reads back equal.
 *
 * Every field is required where it has a meaning and refused where it has none, so that a file of
 * a later version cannot be half understood.  The limits come first: sizes before the tree is
 * built (nb_json_parse), counts before anything is allocated for them. */
#include "load/kv_calib.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "load/load_internal.h"
#include "num/record.h"
#include "os/file.h"

enum { MAX_LAYER = 1024, MAX_VALUES = 65536, MAX_PAIR = 32768, MAX_BITS = 64 };
#define MAX_FILE_BYTES ((size_t)64 << 20)
#define CALIB_LIMITS ((nb_json_limits){ MAX_FILE_BYTES, 8, 4194304 })
static const char format_name[] = "nibble-kv-calibration";

const nb_rope_way nb_rope_ways[NB_ROPE_WAYS] = {
    { "fp8", NB_ROPE_FP8, 0 },
    { "int8", NB_ROPE_INT8, 0 },
    { "bf16", NB_ROPE_BF16, 0 },
    { "fp8_4_pairs", NB_ROPE_FP8, NB_ROPE_PAIRS },
    { "int8_4_pairs", NB_ROPE_INT8, NB_ROPE_PAIRS },
};

/* ---------------------------------------------------------------------- reading */

/* One object of the file; where: "" or "layers[3]." in front of its fields' names. */
typedef struct reader {
    const char *name;
    const json_t *o;
    char where[48];
    nb_arena *arena;
    nb_error *err;
} reader;

static nb_status wrong(const reader *r, const char *field, const json_t *found,
                       const char *expected)
{
    return nb_fail(r->err, NB_ERR_FORMAT, "%s: %s%s: found %s, expected %s",
                   nb_show_path(r->name).s, r->where, field,
                   found ? nb_json_describe(found).s : "nothing", expected);
}

static nb_status no_memory(const reader *r)
{
    return nb_fail(r->err, NB_ERR_NOMEM, "%s: out of memory", nb_show_path(r->name).s);
}

/* No other fields than these. */
static nb_status check_keys(const reader *r, const char *const *known, size_t n_known)
{
    const char *key;
    const json_t *v;
    json_object_foreach((json_t *)r->o, key, v)
    {
        size_t i = 0;
        while (i < n_known && strcmp(key, known[i]) != 0) i++;
        if (i == n_known)
            return nb_fail(
                r->err, NB_ERR_FORMAT, "%s: %s%s is no field of a version %d calibration file",
                nb_show_path(r->name).s, r->where, nb_show_c(key).s, NB_KV_CALIB_VERSION);
    }
    return NB_OK;
}

static nb_status read_u64(const reader *r, const char *field, uint64_t lo, uint64_t hi,
                          uint64_t *out)
{
    const json_t *v = json_object_get(r->o, field);
    const json_int_t n = json_is_integer(v) ? json_integer_value(v) : -1;
    if (n < 0 || (uint64_t)n < lo || (uint64_t)n > hi) {
        char want[80];
        (void)snprintf(want, sizeof want, "an integer from %llu to %llu", (unsigned long long)lo,
                       (unsigned long long)hi);
        return wrong(r, field, v, want);
    }
    *out = (uint64_t)n;
    return NB_OK;
}

static nb_status read_size(const reader *r, const char *field, size_t lo, size_t hi, size_t *out)
{
    uint64_t v = 0;
    NB_TRY(read_u64(r, field, lo, hi, &v));
    *out = (size_t)v;
    return NB_OK;
}

static nb_status read_bool(const reader *r, const char *field, bool *out)
{
    const json_t *v = json_object_get(r->o, field);
    if (!json_is_boolean(v)) return wrong(r, field, v, "true or false");
    *out = json_is_true(v);
    return NB_OK;
}

static nb_status read_f64(const reader *r, const char *field, double hi, double *out)
{
    const json_t *v = json_object_get(r->o, field);
    const double x = json_is_number(v) ? json_number_value(v) : NAN;
    if (!(x >= 0 && x <= hi)) {
        char want[64];
        (void)snprintf(want, sizeof want, "a number from 0 to %g", hi);
        return wrong(r, field, v, want);
    }
    *out = x;
    return NB_OK;
}

/* A word of printable ASCII, at most cap - 1 characters. */
static nb_status read_word(const reader *r, const char *field, size_t cap, char *out)
{
    const json_t *v = json_object_get(r->o, field);
    const char *s = json_string_value(v);
    size_t n = 0;
    while (s && s[n] > 0x20 && s[n] < 0x7f) n++;
    if (!s || n >= cap || n != json_string_length(v)) {
        char want[64];
        (void)snprintf(want, sizeof want, "a word of at most %zu characters", cap - 1);
        return wrong(r, field, v, want);
    }
    memcpy(out, s, n + 1);
    return NB_OK;
}

static nb_status wrong_item(const reader *r, const char *field, size_t i, const json_t *v,
                            const char *expected)
{
    char at[80];
    (void)snprintf(at, sizeof at, "%s[%zu]", field, i);
    return wrong(r, at, v, expected);
}

static nb_status read_array(const reader *r, const char *field, size_t n, const json_t **out)
{
    const json_t *v = json_object_get(r->o, field);
    if (!json_is_array(v) || json_array_size(v) != n) {
        char want[64];
        (void)snprintf(want, sizeof want, "an array of %zu numbers", n);
        return wrong(r, field, v, want);
    }
    *out = v;
    return NB_OK;
}

/* lo: -FLT_MAX, or 0 for sizes. */
static nb_status read_floats(const reader *r, const char *field, size_t n, double lo,
                             const float **out)
{
    const json_t *a = NULL;
    NB_TRY(read_array(r, field, n, &a));
    float *x = nb_arena_array(r->arena, n, sizeof *x);
    if (!x) return no_memory(r);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(a, i);
        const double d = json_is_number(v) ? json_number_value(v) : NAN;
        if (!(d >= lo && d <= FLT_MAX))
            return wrong_item(r, field, i, v,
                              lo < 0 ? "a finite number of single precision"
                                     : "a finite number of single precision, not negative");
        x[i] = (float)d;
    }
    *out = x;
    return NB_OK;
}

static nb_status read_scales(const reader *r, size_t n, const int8_t **out)
{
    const json_t *a = NULL;
    NB_TRY(read_array(r, "scale_log2", n, &a));
    int8_t *x = nb_arena_array(r->arena, n, sizeof *x);
    if (!x) return no_memory(r);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(a, i);
        const json_int_t k = json_is_integer(v) ? json_integer_value(v) : 127;
        if (k < -NB_KV_SCALE_LOG2_MAX || k > NB_KV_SCALE_LOG2_MAX)
            return wrong_item(r, "scale_log2", i, v, "an integer from -6 to 6");
        x[i] = (int8_t)k;
    }
    *out = x;
    return NB_OK;
}

static nb_status read_perm(const reader *r, size_t n, const uint16_t **out)
{
    const json_t *a = NULL;
    NB_TRY(read_array(r, "perm", n, &a));
    uint16_t *x = nb_arena_array(r->arena, n, sizeof *x);
    bool *seen = nb_arena_array(r->arena, n, sizeof *seen); /* zeroed */
    if (!x || !seen) return no_memory(r);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(a, i);
        const json_int_t k = json_is_integer(v) ? json_integer_value(v) : -1;
        if (k < 0 || (size_t)k >= n || seen[k])
            return wrong_item(r, "perm", i, v, "a permutation: each channel's number once");
        seen[k] = true;
        x[i] = (uint16_t)k;
    }
    *out = x;
    return NB_OK;
}

static nb_status read_object(const reader *r, const json_t *v, const char *where, reader *out)
{
    *out = *r;
    out->o = v;
    (void)snprintf(out->where, sizeof out->where, "%.*s", (int)sizeof out->where - 1, where);
    if (json_is_object(v)) return NB_OK;
    out->where[strlen(out->where) - 1] = 0; /* without the point: the object itself is wrong */
    return wrong(out, "", v, "an object");
}

static nb_status check_record(const reader *r, const nb_kv_calib_layer *l)
{
    nb_kv_type t;
    nb_kv_mode m;
    if (l->kv_dtype[0] && nb_kv_type_parse(l->kv_dtype, &t) != NB_OK)
        return wrong(r, "kv_dtype", json_object_get(r->o, "kv_dtype"),
                     "a type of --kv-cache-dtype, or \"\"");
    if (l->kv_mode[0] && nb_kv_mode_parse(l->kv_mode, &m) != NB_OK)
        return wrong(r, "kv_mode", json_object_get(r->o, "kv_mode"),
                     "basic, 4over6, search, or \"\"");
    if (l->n_outlier > l->n_values)
        return wrong(r, "n_outlier", json_object_get(r->o, "n_outlier"),
                     "not more than the layer has values");
    return NB_OK;
}

static nb_status read_rope(const reader *r, nb_kv_calib_layer *l)
{
    char word[8];
    NB_TRY(read_word(r, "rope", sizeof word, word));
    if (nb_rope_fmt_parse(word, &l->rope) != NB_OK)
        return wrong(r, "rope", json_object_get(r->o, "rope"), "\"fp8\", \"bf16\" or \"int8\"");
    const json_t *a = json_object_get(r->o, "rope_outliers");
    const size_t n = json_array_size(a);
    if (!json_is_array(a) || n > NB_MAX_OUTLIER)
        return wrong(r, "rope_outliers", a, "an array of at most 64 numbers");
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(a, i);
        const json_int_t k = json_is_integer(v) ? json_integer_value(v) : -1;
        if (k < 0 || (size_t)k >= 2 * l->n_pair || (i > 0 && k <= l->rope_outlier[i - 1]))
            return wrong_item(r, "rope_outliers", i, v,
                              "ascending places among the rope key's values");
        l->rope_outlier[i] = (uint16_t)k;
    }
    l->n_rope_outlier = n;
    return NB_OK;
}

static nb_status read_chosen(const reader *layer, bool is_mla, nb_kv_calib_layer *l)
{
    /* The last two exist for latents only. */
    static const char *const keys[] = { "center",  "equalize",  "hadamard", "kv_dtype",
                                        "kv_mode", "n_outlier", "rope",     "rope_outliers" };
    char where[64];
    reader r;
    (void)snprintf(where, sizeof where, "%schosen.", layer->where);
    NB_TRY(read_object(layer, json_object_get(layer->o, "chosen"), where, &r));
    NB_TRY(check_keys(&r, keys, is_mla ? NB_COUNT(keys) : NB_COUNT(keys) - 2));
    NB_TRY(read_bool(&r, "center", &l->use_center));
    NB_TRY(read_bool(&r, "equalize", &l->use_equalize));
    NB_TRY(read_bool(&r, "hadamard", &l->use_hadamard));
    NB_TRY(read_word(&r, "kv_dtype", sizeof l->kv_dtype, l->kv_dtype));
    NB_TRY(read_word(&r, "kv_mode", sizeof l->kv_mode, l->kv_mode));
    NB_TRY(read_size(&r, "n_outlier", 0, NB_MAX_OUTLIER, &l->n_outlier));
    NB_TRY(check_record(&r, l));
    if (is_mla) NB_TRY(read_rope(&r, l));
    const bool on[] = { l->use_center, l->use_equalize, l->use_hadamard };
    static const char *const name[] = { "center", "equalize", "hadamard" };
    for (size_t i = 0; i < NB_COUNT(on) && !is_mla; i++)
        if (on[i])
            return wrong(&r, name[i], json_object_get(r.o, name[i]),
                         "false: it is for latents (attention \"mla\") only");
    if (l->use_hadamard && l->hadamard == 0)
        return wrong(&r, "hadamard", json_object_get(r.o, "hadamard"),
                     "false where hadamard_block is 0");
    return NB_OK;
}

static nb_status read_rope_error(const reader *layer, double out[NB_ROPE_WAYS])
{
    const char *keys[NB_ROPE_WAYS];
    char where[64];
    reader r;
    for (size_t i = 0; i < NB_ROPE_WAYS; i++) keys[i] = nb_rope_ways[i].name;
    (void)snprintf(where, sizeof where, "%srope_error.", layer->where);
    NB_TRY(read_object(layer, json_object_get(layer->o, "rope_error"), where, &r));
    NB_TRY(check_keys(&r, keys, NB_ROPE_WAYS));
    for (size_t i = 0; i < NB_ROPE_WAYS; i++) NB_TRY(read_f64(&r, keys[i], DBL_MAX, &out[i]));
    return NB_OK;
}

static nb_status read_layer(const reader *file, size_t i, bool is_mla, nb_kv_calib_layer *l)
{
    /* The last six exist for latents only. */
    static const char *const keys[] = { "n_values",   "mean",           "sd",        "amax",
                                        "token_amax", "chosen",         "error",     "plain_error",
                                        "bits",       "pair_max",       "pair_mean", "scale_log2",
                                        "perm",       "hadamard_block", "rope_error" };
    char where[48];
    reader r;
    (void)snprintf(where, sizeof where, "layers[%zu].", i);
    NB_TRY(read_object(file, json_array_get(json_object_get(file->o, "layers"), i), where, &r));
    NB_TRY(check_keys(&r, keys, is_mla ? NB_COUNT(keys) : NB_COUNT(keys) - 6));
    NB_TRY(read_size(&r, "n_values", 1, MAX_VALUES, &l->n_values));
    NB_TRY(read_floats(&r, "mean", l->n_values, -FLT_MAX, &l->mean));
    NB_TRY(read_floats(&r, "sd", l->n_values, 0, &l->sd));
    NB_TRY(read_floats(&r, "amax", l->n_values, 0, &l->amax));
    double amax = 0;
    NB_TRY(read_f64(&r, "token_amax", FLT_MAX, &amax));
    l->token_amax = (float)amax;
    if (is_mla) {
        const json_t *pairs = json_object_get(r.o, "pair_max");
        l->n_pair = json_array_size(pairs);
        if (l->n_pair < 1 || l->n_pair > MAX_PAIR)
            return wrong(&r, "pair_max", pairs, "an array of 1 to 32768 numbers");
        NB_TRY(read_floats(&r, "pair_max", l->n_pair, 0, &l->pair_max));
        NB_TRY(read_floats(&r, "pair_mean", l->n_pair, 0, &l->pair_mean));
        NB_TRY(read_scales(&r, l->n_values, &l->scale_log2));
        NB_TRY(read_perm(&r, l->n_values, &l->perm));
        NB_TRY(read_size(&r, "hadamard_block", 0, MAX_VALUES, &l->hadamard));
        const size_t b = l->hadamard;
        if (b && ((b & (b - 1)) || l->n_values % b))
            return wrong(&r, "hadamard_block", json_object_get(r.o, "hadamard_block"),
                         "0 or a power of two that divides n_values");
        NB_TRY(read_rope_error(&r, l->rope_error));
    }
    NB_TRY(read_f64(&r, "error", DBL_MAX, &l->error));
    NB_TRY(read_f64(&r, "plain_error", DBL_MAX, &l->plain_error));
    NB_TRY(read_f64(&r, "bits", MAX_BITS, &l->bits));
    return read_chosen(&r, is_mla, l);
}

static nb_status read_hash(const reader *r, char out[65])
{
    const json_t *v = json_object_get(r->o, "model_hash");
    const char *s = json_string_value(v);
    const size_t n = json_string_length(v);
    if (!s || n != 64 || strspn(s, "0123456789abcdef") != n)
        return wrong(r, "model_hash", v, "64 hexadecimal digits, lower case");
    memcpy(out, s, 65);
    return NB_OK;
}

static nb_status read_head(const reader *r)
{
    const json_t *f = json_object_get(r->o, "format");
    if (!json_is_string(f) || strcmp(json_string_value(f), format_name) != 0)
        return wrong(r, "format", f, "\"nibble-kv-calibration\"");
    const json_t *v = json_object_get(r->o, "version");
    if (!json_is_integer(v) || json_integer_value(v) != NB_KV_CALIB_VERSION)
        return wrong(r, "version", v, "1, the version that this program reads");
    return NB_OK;
}

static nb_status read_file(const reader *r, nb_kv_calib *c)
{
    static const char *const keys[] = { "format",    "version", "model_hash", "family",
                                        "attention", "n_tok",   "layers",     "target_bits",
                                        "mean_bits", "n_layer" };
    if (!json_is_object(r->o)) return wrong(r, "the file", r->o, "an object");
    NB_TRY(read_head(r));
    NB_TRY(check_keys(r, keys, NB_COUNT(keys)));
    NB_TRY(read_hash(r, c->model_hash));
    NB_TRY(read_word(r, "family", sizeof c->family, c->family));
    char attn[16];
    NB_TRY(read_word(r, "attention", sizeof attn, attn));
    c->is_mla = strcmp(attn, "mla") == 0;
    if (!c->is_mla && strcmp(attn, "gqa") != 0)
        return wrong(r, "attention", json_object_get(r->o, "attention"), "\"mla\" or \"gqa\"");
    NB_TRY(read_u64(r, "n_tok", 1, (uint64_t)1 << 53, &c->n_tok));
    NB_TRY(read_f64(r, "target_bits", MAX_BITS, &c->target_bits));
    NB_TRY(read_f64(r, "mean_bits", MAX_BITS, &c->mean_bits));
    NB_TRY(read_size(r, "n_layer", 1, MAX_LAYER, &c->n_layer));
    const json_t *layers = json_object_get(r->o, "layers");
    if (!json_is_array(layers) || json_array_size(layers) != c->n_layer)
        return wrong(r, "layers", layers, "an array of n_layer objects");
    c->layer = nb_arena_array(r->arena, c->n_layer, sizeof *c->layer);
    if (!c->layer) return no_memory(r);
    for (size_t i = 0; i < c->n_layer; i++) NB_TRY(read_layer(r, i, c->is_mla, &c->layer[i]));
    return NB_OK;
}

nb_status nb_kv_calib_parse(const char *json, size_t n_bytes, const char *name, nb_kv_calib *out,
                            nb_error *err)
{
    json_t *root = NULL;
    nb_kv_calib c = { 0 };
    NB_TRY(nb_json_parse((nb_str){ json, n_bytes }, name, &CALIB_LIMITS, &root, err));
    const reader r = { .name = name, .o = root, .arena = &c.arena, .err = err };
    const nb_status st = read_file(&r, &c);
    json_decref(root);
    if (st == NB_OK)
        *out = c;
    else
        nb_arena_deinit(&c.arena);
    return st;
}

nb_status nb_kv_calib_read(const char *path, nb_kv_calib *out, nb_error *err)
{
    nb_buf b = { 0 };
    nb_status st = nb_file_read(path, MAX_FILE_BYTES, &b, err);
    if (st == NB_OK) st = nb_kv_calib_parse(nb_buf_view(&b).p, b.n_bytes, path, out, err);
    nb_buf_deinit(&b);
    return st;
}

void nb_kv_calib_deinit(nb_kv_calib *c)
{
    nb_arena_deinit(&c->arena);
    *c = (nb_kv_calib){ 0 };
}

/* ---------------------------------------------------------------------- writing */

/* 9 digits name a float, 17 a double; -0 would be read as the integer 0 either way. */
static nb_status put_floats(nb_buf *b, const char *key, const float *x, size_t n)
{
    NB_TRY(nb_buf_printf(b, ",\n   \"%s\": [", key));
    for (size_t i = 0; i < n; i++) NB_TRY(nb_buf_printf(b, i ? ",%.9g" : "%.9g", (double)x[i]));
    return nb_buf_add_ch(b, ']');
}

static nb_status put_ints(nb_buf *b, const char *key, const int8_t *x, const uint16_t *y, size_t n)
{
    NB_TRY(nb_buf_printf(b, ",\n   \"%s\": [", key));
    for (size_t i = 0; i < n; i++)
        NB_TRY(nb_buf_printf(b, i ? ",%d" : "%d", x ? (int)x[i] : (int)y[i]));
    return nb_buf_add_ch(b, ']');
}

static const char *yes(bool b)
{
    return b ? "true" : "false";
}

static nb_status put_layer(nb_buf *b, const nb_kv_calib_layer *l, bool is_mla)
{
    NB_TRY(nb_buf_printf(b, "  {\"n_values\": %zu, \"token_amax\": %.9g, ", l->n_values,
                         (double)l->token_amax));
    NB_TRY(nb_buf_printf(b, "\"error\": %.17g, \"plain_error\": %.17g, \"bits\": %.17g,\n",
                         l->error, l->plain_error, l->bits));
    NB_TRY(nb_buf_printf(b,
                         "   \"chosen\": {\"center\": %s, \"equalize\": %s, \"hadamard\": %s, "
                         "\"kv_dtype\": \"%s\", \"kv_mode\": \"%s\", \"n_outlier\": %zu",
                         yes(l->use_center), yes(l->use_equalize), yes(l->use_hadamard),
                         l->kv_dtype, l->kv_mode, l->n_outlier));
    if (is_mla) {
        NB_TRY(nb_buf_printf(b, ", \"rope\": \"%s\"", nb_rope_fmt_name(l->rope)));
        NB_TRY(put_ints(b, "rope_outliers", NULL, l->rope_outlier, l->n_rope_outlier));
    }
    NB_TRY(nb_buf_add_ch(b, '}'));
    NB_TRY(put_floats(b, "mean", l->mean, l->n_values));
    NB_TRY(put_floats(b, "sd", l->sd, l->n_values));
    NB_TRY(put_floats(b, "amax", l->amax, l->n_values));
    if (is_mla) {
        NB_TRY(put_floats(b, "pair_max", l->pair_max, l->n_pair));
        NB_TRY(put_floats(b, "pair_mean", l->pair_mean, l->n_pair));
        NB_TRY(put_ints(b, "scale_log2", l->scale_log2, NULL, l->n_values));
        NB_TRY(put_ints(b, "perm", NULL, l->perm, l->n_values));
        NB_TRY(
            nb_buf_printf(b, ",\n   \"hadamard_block\": %zu,\n   \"rope_error\": {", l->hadamard));
        for (size_t i = 0; i < NB_ROPE_WAYS; i++)
            NB_TRY(nb_buf_printf(b, "%s\"%s\": %.17g", i ? ", " : "", nb_rope_ways[i].name,
                                 l->rope_error[i]));
        NB_TRY(nb_buf_add_ch(b, '}'));
    }
    return nb_buf_add_c(b, "}");
}

static nb_status put_file(nb_buf *b, const nb_kv_calib *c)
{
    NB_TRY(nb_buf_printf(b, "{\"format\": \"%s\", \"version\": %d,\n \"model_hash\": \"%s\",\n",
                         format_name, NB_KV_CALIB_VERSION, c->model_hash));
    NB_TRY(nb_buf_printf(b,
                         " \"family\": \"%s\", \"attention\": \"%s\", \"n_layer\": %zu, "
                         "\"n_tok\": %llu, \"target_bits\": %.17g, \"mean_bits\": %.17g,\n"
                         " \"layers\": [\n",
                         c->family, c->is_mla ? "mla" : "gqa", c->n_layer,
                         (unsigned long long)c->n_tok, c->target_bits, c->mean_bits));
    for (size_t i = 0; i < c->n_layer; i++) {
        NB_TRY(put_layer(b, &c->layer[i], c->is_mla));
        NB_TRY(nb_buf_add_c(b, i + 1 < c->n_layer ? ",\n" : "\n"));
    }
    return nb_buf_add_c(b, " ]}\n");
}

nb_status nb_kv_calib_write(const nb_kv_calib *c, const char *path, nb_error *err)
{
    nb_buf b = { .limit_bytes = MAX_FILE_BYTES };
    nb_kv_calib back = { 0 };
    nb_status st = put_file(&b, c);
    if (st != NB_OK) {
        st = nb_fail(err, st, "%s: %s", nb_show_path(path).s,
                     st == NB_ERR_LIMIT ? "the calibration would take more than 64 MiB"
                                        : "out of memory");
    } else {
        /* What would be refused when it is loaded is not written in the first place. */
        st = nb_kv_calib_parse(b.p, b.n_bytes, path, &back, err);
        if (st == NB_OK) {
            nb_kv_calib_deinit(&back);
            st = nb_file_replace(path, b.p, b.n_bytes, err);
        }
    }
    nb_buf_deinit(&b);
    return st;
}

/* ---------------------------------------------------------------------- outliers */

void nb_kv_calib_outliers(const nb_kv_calib_layer *l, bool center, bool equalize, size_t n,
                          uint16_t *out)
{
    const bool move = equalize && l->perm && l->scale_log2;
    double best[NB_MAX_OUTLIER];
    size_t have = 0;
    if (n > NB_MAX_OUTLIER) n = NB_MAX_OUTLIER;
    for (size_t i = 0; i < l->n_values && n > 0; i++) {
        const size_t c = move ? l->perm[i] : i;
        const double sd = l->sd[c], mean = center ? 0 : l->mean[c];
        const double ms = (sd * sd + mean * mean) * (move ? ldexp(1, 2 * l->scale_log2[c]) : 1);
        if (have == n && ms <= best[n - 1]) continue; /* of equals the first stays */
        size_t at = have < n ? have++ : n - 1;
        for (; at > 0 && best[at - 1] < ms; at--) {
            best[at] = best[at - 1];
            out[at] = out[at - 1];
        }
        best[at] = ms;
        out[at] = (uint16_t)i;
    }
    for (size_t i = 1; i < have; i++) { /* by place */
        const uint16_t v = out[i];
        size_t k = i;
        for (; k > 0 && out[k - 1] > v; k--) out[k] = out[k - 1];
        out[k] = v;
    }
}
