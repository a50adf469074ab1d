/* kv_scales.c - see kv_scales.h.
 *
 * The type: TensorRT Model Optimizer writes hf_quant_config.json (quantization.kv_cache_quant_algo,
 * a name) and mirrors it in config.json (quantization_config.kv_cache_scheme: the name, or for FP8
 * an object with num_bits and type).  The file of its own decides where both are there.
 *
 * The scales: multipliers of dequantisation (FP8: amax / 448, NVFP4: amax / 2688).  The names are
 * those that checkpoints have carried and vLLM's loader maps (weight_utils.py); the first of the
 * table that is there counts.  Zero points and biases are not read: the types that have them are
 * refused. */
#include "load/kv_scales.h"

#include <math.h>
#include <stdio.h>

#include "load/doc.h"
#include "load/load_internal.h"
#include "load/optional.h"
#include "num/bf16.h"
#include "num/fp16.h"
#include "os/file.h"

enum { MAX_FILE_BYTES = 16 << 20 }; /* as any document's: doc.h */

/* ---- the type ---- */

static nb_status unknown_type(const char *file, const char *field, const char *what, nb_error *err)
{
    return nb_fail(err, NB_ERR_UNSUPPORTED,
                   "%s: %s: a KV cache of type %s is not supported (expected: FP8, NVFP4)",
                   nb_show_path(file).s, field, nb_show_c(what).s);
}

static nb_status by_name(const char *file, const char *field, const char *name, nb_kv_algo *out,
                         nb_error *err)
{
    if (!strcmp(name, "FP8") || !strcmp(name, "fp8"))
        *out = NB_KV_ALGO_FP8;
    else if (!strcmp(name, "NVFP4") || !strcmp(name, "nvfp4"))
        *out = NB_KV_ALGO_NVFP4;
    else
        return unknown_type(file, field, name, err);
    return NB_OK;
}

/* {"dynamic": false, "num_bits": 8, "type": "float"} */
static nb_status by_scheme(nb_doc *d, const char *file, nb_kv_algo *out, nb_error *err)
{
    static const char field[] = "quantization_config.kv_cache_scheme";
    uint64_t bits = 0;
    const char *type = "float", *name = NULL;
    if (!nb_doc_is_object(d, field)) {
        (void)nb_doc_str(d, field, &name);
        NB_TRY(nb_doc_check(d, err));
        return by_name(file, field, name, out, err);
    }
    (void)nb_doc_u64(d, "quantization_config.kv_cache_scheme.num_bits", 1, 64, &bits);
    (void)nb_doc_str(d, "quantization_config.kv_cache_scheme.type", &type);
    NB_TRY(nb_doc_check(d, err));
    if (bits == 8 && !strcmp(type, "float")) {
        *out = NB_KV_ALGO_FP8;
        return NB_OK;
    }
    char what[200];
    (void)snprintf(what, sizeof what, "%s with %u bits", nb_show_c(type).s, (unsigned)bits);
    return unknown_type(file, field, what, err);
}

static nb_status of_own_file(nb_doc *d, const char *file, nb_kv_algo *out, nb_error *err)
{
    static const char field[] = "quantization.kv_cache_quant_algo";
    const char *name;
    if (nb_doc_str(d, field, &name)) return by_name(file, field, name, out, err);
    return nb_doc_check(d, err);
}

static nb_status of_config(nb_doc *d, const char *file, nb_kv_algo *out, nb_error *err)
{
    /* as the configuration itself (model/config.c): of a part of another model its own counts first */
    if (nb_doc_is_object(d, "text_config.quantization_config")) nb_doc_at(d, "text_config");
    /* a quantization_config that is no object is for the model's configuration to refuse */
    if (!nb_doc_is_object(d, "quantization_config")) return NB_OK;
    if (!nb_doc_has(d, "quantization_config.kv_cache_scheme")) return NB_OK;
    return by_scheme(d, file, out, err);
}

nb_status nb_kv_algo_parse(nb_str json, const char *name, bool is_config, nb_kv_algo *out,
                           nb_error *err)
{
    nb_doc *d = NULL;
    nb_kv_algo algo = NB_KV_ALGO_NONE;
    NB_TRY(nb_doc_parse(json, name, &d, err));
    const nb_status st =
        is_config ? of_config(d, name, &algo, err) : of_own_file(d, name, &algo, err);
    nb_doc_destroy(d);
    if (st == NB_OK) *out = algo;
    return st;
}

/* A file that is not there names no type. */
static nb_status read_file(const char *dir, const char *name, bool is_config, nb_kv_algo *out,
                           nb_error *err)
{
    nb_buf path = { 0 }, text = { 0 };
    bool found;
    nb_status st = nb_optional_find(dir, name, &path, &found, err);
    if (st == NB_OK && found) st = nb_file_read(path.p, MAX_FILE_BYTES, &text, err);
    if (st == NB_OK && found)
        st = nb_kv_algo_parse(nb_buf_view(&text), path.p, is_config, out, err);
    nb_buf_deinit(&path);
    nb_buf_deinit(&text);
    return st;
}

nb_status nb_kv_algo_read(const char *dir, nb_kv_algo *out, nb_error *err)
{
    nb_kv_algo algo = NB_KV_ALGO_NONE;
    NB_TRY(read_file(dir, "hf_quant_config.json", false, &algo, err));
    if (algo == NB_KV_ALGO_NONE) NB_TRY(read_file(dir, "config.json", true, &algo, err));
    *out = algo;
    return NB_OK;
}

/* ---- the scales ---- */

enum { OF_K = 1, OF_V = 2 };
static const struct scale_name {
    const char *name; /* below model.layers.N */
    int of;
} scale_names[] = {
    { "self_attn.k_proj.k_scale", OF_K },
    { "self_attn.v_proj.v_scale", OF_V },
    { "self_attn.qkv_proj.k_scale", OF_K },
    { "self_attn.qkv_proj.v_scale", OF_V },
    { "self_attn.mla_attn.mla_attn.k_scale", OF_K },
    { "self_attn.mla_attn.mla_attn.v_scale", OF_V },
    { "self_attn.mla_attn.k_scale", OF_K },
    { "self_attn.mla_attn.v_scale", OF_V },
    { "self_attn.attn.k_scale", OF_K },
    { "self_attn.attn.v_scale", OF_V },
    { "self_attn.k_scale", OF_K },
    { "self_attn.v_scale", OF_V },
    { "self_attn.k_cache.scale", OF_K },
    { "self_attn.v_cache.scale", OF_V },
    { "mixer.k_proj.k_scale", OF_K },
    { "mixer.v_proj.v_scale", OF_V },
    { "self_attn.attn.kv_scale", OF_K | OF_V },
    { "self_attn.kv_scale", OF_K | OF_V },
};

/* One element of any rank: what `take` calls a shape has its rank fixed, so the usual ranks are
 * tried; the line is that of the first. */
static nb_status take_one(nb_source *s, const char *name, nb_tensor *t, nb_error *err)
{
    nb_tensor_want want = { .name = name,
                            .dtypes = 1u << NB_DT_F32 | 1u << NB_DT_BF16 | 1u << NB_DT_F16 };
    for (size_t i = 0; i < NB_TENSOR_MAX_DIM; i++) want.dim[i] = 1;
    const nb_status st = nb_source_take(s, &want, t, err);
    if (st == NB_OK || st == NB_ERR_NOMEM) return st;
    for (want.n_dim = 1; want.n_dim < 4; want.n_dim++)
        if (nb_source_take(s, &want, t, NULL) == NB_OK) return NB_OK;
    return st;
}

static nb_status read_scale(nb_source *s, const char *name, float *out, nb_error *err)
{
    nb_tensor t;
    uint16_t half;
    float x;
    NB_TRY(take_one(s, name, &t, err));
    if (t.dtype == NB_DT_F32) {
        memcpy(&x, t.data, sizeof x);
    } else {
        memcpy(&half, t.data, sizeof half);
        x = t.dtype == NB_DT_BF16 ? nb_bf16_to_f32(half) : nb_fp16_to_f32(half);
    }
    if (!isfinite(x) || !(x > 0))
        return nb_fail(err, NB_ERR_FORMAT,
                       "tensor '%s': a scale of %g, expected a finite one above 0 (--kv-scales "
                       "dynamic does without)",
                       nb_show_c(name).s, (double)x);
    *out = x;
    return NB_OK;
}

static nb_status read_layer(nb_source *s, size_t layer, nb_kv_scale *out, nb_error *err)
{
    for (size_t i = 0; i < NB_COUNT(scale_names); i++) {
        const struct scale_name *n = &scale_names[i];
        const bool want_k = n->of & OF_K && out->k == 0, want_v = n->of & OF_V && out->v == 0;
        char name[96];
        float x = 0;
        if (!want_k && !want_v) continue;
        (void)snprintf(name, sizeof name, "model.layers.%zu.%s", layer, n->name);
        if (!nb_source_has(s, name)) continue;
        NB_TRY(read_scale(s, name, &x, err));
        if (want_k) out->k = x;
        if (want_v) out->v = x;
    }
    return NB_OK;
}

nb_status nb_kv_scales_read(nb_source *s, size_t n_layer, nb_kv_scale *out, size_t *n_found,
                            nb_error *err)
{
    size_t n = 0;
    for (size_t i = 0; i < n_layer; i++) {
        out[i] = (nb_kv_scale){ 0 };
        NB_TRY(read_layer(s, i, &out[i], err));
        n += out[i].k > 0 || out[i].v > 0;
    }
    *n_found = n;
    return NB_OK;
}
