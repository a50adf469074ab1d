/* gguf_values.c - values of a GGUF's metadata, checked for their kind. */
#include <math.h>

#include "base/utf8.h"
#include "load/gguf.h"
#include "load/load_internal.h"

static const char *const type_names[NB_GGUF_TYPES] = {
    "u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "list", "u64", "i64", "f64",
};

static nb_status wrong(const nb_gguf *g, const nb_gguf_kv *kv, const char *want, nb_error *err)
{
    return nb_fail(err, NB_ERR_FORMAT, "%s: metadata '%s' is %s%s, expected %s",
                   nb_show_path(nb_gguf_name(g)).s, nb_show(kv->key).s,
                   kv->is_array ? "a list of " : "", type_names[kv->type], want);
}

/* The key's value; *kv is NULL where it is absent and may be. */
static nb_status get(const nb_gguf *g, const char *key, bool *found, const nb_gguf_kv **kv,
                     nb_error *err)
{
    *kv = nb_gguf_find(g, key);
    if (found) *found = *kv != NULL;
    if (*kv || found) return NB_OK;
    return nb_fail(err, NB_ERR_FORMAT, "%s: metadata '%s' is missing",
                   nb_show_path(nb_gguf_name(g)).s, key);
}

static uint64_t load(const unsigned char *p, size_t n_bytes)
{
    uint64_t v = 0;
    for (size_t i = 0; i < n_bytes; i++) v |= (uint64_t)p[i] << (8 * i);
    return v;
}

static int64_t load_signed(const unsigned char *p, size_t n_bytes)
{
    const uint64_t v = load(p, n_bytes), sign = (uint64_t)1 << (8 * n_bytes - 1);
    return (int64_t)((v ^ sign) - sign);
}

double nb_gguf_item(const nb_gguf_kv *kv, uint64_t i)
{
    float f;
    double d;
    const uint32_t w = kv->type == NB_GGUF_F32 ? (uint32_t)load(kv->p + 4 * i, 4) : 0;
    const uint64_t w8 = kv->type == NB_GGUF_F64 ? load(kv->p + 8 * i, 8) : 0;
    switch (kv->type) {
    case NB_GGUF_BOOL:
    case NB_GGUF_U8: return kv->p[i];
    case NB_GGUF_U16: return (double)load(kv->p + 2 * i, 2);
    case NB_GGUF_U32: return (double)load(kv->p + 4 * i, 4);
    case NB_GGUF_U64: return (double)load(kv->p + 8 * i, 8);
    case NB_GGUF_I8: return (double)load_signed(kv->p + i, 1);
    case NB_GGUF_I16: return (double)load_signed(kv->p + 2 * i, 2);
    case NB_GGUF_I32: return (double)load_signed(kv->p + 4 * i, 4);
    case NB_GGUF_I64: return (double)load_signed(kv->p + 8 * i, 8);
    case NB_GGUF_F32: memcpy(&f, &w, sizeof f); return f;
    case NB_GGUF_F64: memcpy(&d, &w8, sizeof d); return d;
    default: return NAN;
    }
}

/* A number, or a list of equal numbers. */
static nb_status number(const nb_gguf *g, const nb_gguf_kv *kv, const char *want, double *out,
                        nb_error *err)
{
    if (kv->type == NB_GGUF_STRING || kv->type == NB_GGUF_BOOL || kv->n == 0)
        return wrong(g, kv, want, err);
    *out = nb_gguf_item(kv, 0);
    for (uint64_t i = 1; i < kv->n; i++)
        if (nb_gguf_item(kv, i) != *out)
            return nb_fail(err, NB_ERR_UNSUPPORTED,
                           "%s: metadata '%s': one value per layer is not supported",
                           nb_show_path(nb_gguf_name(g)).s, nb_show(kv->key).s);
    return NB_OK;
}

nb_status nb_gguf_u64(const nb_gguf *g, const char *key, uint64_t *out, bool *found, nb_error *err)
{
    const nb_gguf_kv *kv;
    double v = 0;
    NB_TRY(get(g, key, found, &kv, err));
    if (!kv) return NB_OK;
    NB_TRY(number(g, kv, "an integer", &v, err));
    if (kv->type == NB_GGUF_F32 || kv->type == NB_GGUF_F64) return wrong(g, kv, "an integer", err);
    if (v < 0 || v >= 9007199254740992.0)
        return nb_fail(err, NB_ERR_RANGE,
                       "%s: metadata '%s' is %g, expected an integer from 0 to 2^53",
                       nb_show_path(nb_gguf_name(g)).s, key, v);
    *out = (uint64_t)v;
    return NB_OK;
}

nb_status nb_gguf_f64(const nb_gguf *g, const char *key, double *out, bool *found, nb_error *err)
{
    const nb_gguf_kv *kv;
    NB_TRY(get(g, key, found, &kv, err));
    if (!kv) return NB_OK;
    NB_TRY(number(g, kv, "a number", out, err));
    if (isfinite(*out)) return NB_OK;
    return nb_fail(err, NB_ERR_RANGE, "%s: metadata '%s' is not finite",
                   nb_show_path(nb_gguf_name(g)).s, key);
}

nb_status nb_gguf_bool(const nb_gguf *g, const char *key, bool *out, bool *found, nb_error *err)
{
    const nb_gguf_kv *kv;
    NB_TRY(get(g, key, found, &kv, err));
    if (!kv) return NB_OK;
    if (kv->type != NB_GGUF_BOOL || kv->is_array) return wrong(g, kv, "a bool", err);
    *out = kv->p[0] != 0;
    return NB_OK;
}

nb_str nb_gguf_next_str(const nb_gguf_kv *kv, size_t *at)
{
    const nb_str s = { (const char *)kv->p + *at + 8, (size_t)load(kv->p + *at, 8) };
    *at += 8 + s.n_bytes;
    return s;
}

nb_status nb_gguf_str(const nb_gguf *g, const char *key, nb_str *out, bool *found, nb_error *err)
{
    const nb_gguf_kv *kv;
    size_t at = 0;
    NB_TRY(get(g, key, found, &kv, err));
    if (!kv) return NB_OK;
    if (kv->type != NB_GGUF_STRING || kv->is_array) return wrong(g, kv, "a string", err);
    *out = nb_gguf_next_str(kv, &at);
    if (nb_utf8_valid(*out) && !memchr(out->p, 0, out->n_bytes)) return NB_OK;
    return nb_fail(err, NB_ERR_FORMAT, "%s: metadata '%s' is not UTF-8 without zeros",
                   nb_show_path(nb_gguf_name(g)).s, key);
}

nb_status nb_gguf_list(const nb_gguf *g, const char *key, bool strings, const nb_gguf_kv **out,
                       nb_error *err)
{
    *out = nb_gguf_find(g, key);
    if (!*out) return NB_OK;
    if ((*out)->is_array && strings == ((*out)->type == NB_GGUF_STRING)) return NB_OK;
    return wrong(g, *out, strings ? "a list of strings" : "a list of numbers", err);
}
