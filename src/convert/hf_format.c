/* hf_format.c - see hf_format.h.  Layouts: compressed_tensors/compressors of compressed-tensors, DeepSeek-V3's own FP8
 * blocks, and modelopt/torch/export of NVIDIA's Model Optimizer; the same as src/model/weight_form.c reads.  The scale of the
 * whole NVFP4 matrix divides in compressed-tensors and multiplies in ModelOpt. */
#include "convert/hf_format.h"

#include <math.h>
#include <string.h>

#include "num/bf16.h"
#include "num/weight_encode.h"

enum { FP8_BLOCK = 128 };
static const float E4M3_TOP = 448;

static nb_hf_tensor tensor(const char *suffix, const char *dtype, size_t align, size_t rows,
                           size_t cols)
{
    nb_hf_tensor t = { .suffix = suffix,
                       .dtype = dtype,
                       .n_dim = cols ? 2 : 1,
                       .dim = { rows, cols },
                       .align = align };
    t.bytes = rows * (cols ? cols : 1) * align;
    return t;
}

/* ---- int4 ---- */

static void int4_describe(const nb_hf_format *f, size_t rows, size_t cols,
                          nb_hf_tensor out[NB_HF_MAX_OUT])
{
    out[0] = tensor(".weight_packed", "I32", 4, rows, cols / 8);
    out[1] = tensor(".weight_scale", "BF16", 2, rows, cols / f->group);
    out[2] = tensor(".weight_shape", "I64", 8, 2, 0);
}

static void put64(uint8_t *p, uint64_t v)
{
    for (int i = 0; i < 8; i++) p[i] = (uint8_t)(v >> 8 * i);
}

static void int4_strip(const nb_hf_format *f, const float *x, const float *w, size_t r, size_t n,
                       size_t rows, size_t cols, float outer, uint8_t *const out[NB_HF_MAX_OUT])
{
    (void)outer;
    uint16_t *scale = (uint16_t *)out[1] + r * (cols / f->group);
    for (size_t i = 0; i < n; i++, x += cols, scale += cols / f->group)
        nb_encode_int4(x, w, cols, f->group, out[0] + (r + i) * (cols / 2), scale);
    if (r + n < rows) return;
    put64(out[2], rows);
    put64(out[2] + 8, cols);
}

static json_t *compressed(const char *format, json_t *ignore, json_t *weights, json_t *activations)
{
    return json_pack("{s:s, s:s, s:s, s:o, s:{s:{s:[s], s:o, s:o, s:n}}, s:n}", "quant_method",
                     "compressed-tensors", "format", format, "quantization_status", "compressed",
                     "ignore", ignore, "config_groups", "group_0", "targets", "Linear", "weights",
                     weights, "input_activations", activations, "output_activations",
                     "kv_cache_scheme");
}

/* Of weights and, with fp8, of activations. */
static json_t *scheme(int bits, const char *type, const char *strategy, size_t group, bool dynamic)
{
    json_t *o =
        json_pack("{s:i, s:s, s:b, s:s, s:b, s:n}", "num_bits", bits, "type", type, "symmetric", 1,
                  "strategy", strategy, "dynamic", (int)dynamic, "actorder");
    if (o)
        (void)json_object_set_new(o, "group_size",
                                  group ? json_integer((json_int_t)group) : json_null());
    return o;
}

static json_t *int4_config(const nb_hf_format *f, json_t *ignore)
{
    return compressed("pack-quantized", ignore, scheme(4, "int", "group", f->group, false),
                      json_null());
}

/* ---- nvfp4, mxfp4 ---- */

static void nvfp4_describe(const nb_hf_format *f, size_t rows, size_t cols,
                           nb_hf_tensor out[NB_HF_MAX_OUT])
{
    out[0] = tensor(".weight_packed", "U8", 1, rows, cols / 2);
    out[1] = tensor(".weight_scale", "F8_E4M3", 1, rows, cols / f->group);
    out[2] = tensor(".weight_global_scale", "F32", 4, 1, 0);
}

static void nvfp4_strip(const nb_hf_format *f, const float *x, const float *w, size_t r, size_t n,
                        size_t rows, size_t cols, float outer, uint8_t *const out[NB_HF_MAX_OUT])
{
    const float divisor = 1 / outer;
    for (size_t i = r; i < r + n; i++, x += cols)
        nb_encode_nvfp4(x, w, cols, 1 / divisor, out[0] + i * (cols / 2),
                        out[1] + i * (cols / f->group));
    if (r + n == rows) memcpy(out[2], &divisor, sizeof divisor);
}

static json_t *nvfp4_config(const nb_hf_format *f, json_t *ignore)
{
    return compressed("nvfp4-pack-quantized", ignore,
                      scheme(4, "float", "tensor_group", f->group, false), json_null());
}

static void mxfp4_describe(const nb_hf_format *f, size_t rows, size_t cols,
                           nb_hf_tensor out[NB_HF_MAX_OUT])
{
    out[0] = tensor(".weight_packed", "U8", 1, rows, cols / 2);
    out[1] = tensor(".weight_scale", "U8", 1, rows, cols / f->group);
}

static void mxfp4_strip(const nb_hf_format *f, const float *x, const float *w, size_t r, size_t n,
                        size_t rows, size_t cols, float outer, uint8_t *const out[NB_HF_MAX_OUT])
{
    (void)outer;
    (void)rows;
    for (size_t i = r; i < r + n; i++, x += cols)
        nb_encode_mxfp4(x, w, cols, out[0] + i * (cols / 2), out[1] + i * (cols / f->group));
}

static json_t *mxfp4_config(const nb_hf_format *f, json_t *ignore)
{
    json_t *w = scheme(4, "float", "group", f->group, false);
    if (w) (void)json_object_set_new(w, "scale_dtype", json_string("torch.uint8"));
    return compressed("mxfp4-pack-quantized", ignore, w, json_null());
}

/* ---- fp8 ---- */

static void fp8_describe(const nb_hf_format *f, size_t rows, size_t cols,
                         nb_hf_tensor out[NB_HF_MAX_OUT])
{
    (void)f;
    out[0] = tensor(".weight", "F8_E4M3", 1, rows, cols);
    out[1] = tensor(".weight_scale", "F32", 4, rows, 1);
}

static float fp8_scale(const float *x, size_t n, size_t rows, size_t stride)
{
    float a = 0;
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < n; i++) a = fmaxf(a, fabsf(x[r * stride + i]));
    const float s = a / E4M3_TOP;
    return s > 0 ? s : 1;
}

static void fp8_strip(const nb_hf_format *f, const float *x, const float *w, size_t r, size_t n,
                      size_t rows, size_t cols, float outer, uint8_t *const out[NB_HF_MAX_OUT])
{
    (void)w;
    (void)f;
    (void)rows;
    (void)outer;
    for (size_t i = r; i < r + n; i++, x += cols) {
        const float s = fp8_scale(x, cols, 1, 0);
        nb_encode_fp8(x, cols, s, out[0] + i * cols);
        memcpy(out[1] + i * sizeof s, &s, sizeof s);
    }
}

static json_t *fp8_config(const nb_hf_format *f, json_t *ignore)
{
    (void)f;
    return compressed("float-quantized", ignore, scheme(8, "float", "channel", 0, false),
                      scheme(8, "float", "token", 0, true));
}

static void block_describe(const nb_hf_format *f, size_t rows, size_t cols,
                           nb_hf_tensor out[NB_HF_MAX_OUT])
{
    (void)f;
    out[0] = tensor(".weight", "F8_E4M3", 1, rows, cols);
    out[1] = tensor(".weight_scale_inv", "F32", 4, (rows + FP8_BLOCK - 1) / FP8_BLOCK,
                    (cols + FP8_BLOCK - 1) / FP8_BLOCK);
}

static void block_strip(const nb_hf_format *f, const float *x, const float *w, size_t r, size_t n,
                        size_t rows, size_t cols, float outer, uint8_t *const out[NB_HF_MAX_OUT])
{
    (void)w;
    (void)f;
    (void)rows;
    (void)outer;
    const size_t per = (cols + FP8_BLOCK - 1) / FP8_BLOCK;
    for (size_t c = 0; c < cols; c += FP8_BLOCK) {
        const size_t m = cols - c < FP8_BLOCK ? cols - c : FP8_BLOCK;
        const float s = fp8_scale(x + c, m, n, cols);
        for (size_t i = 0; i < n; i++)
            nb_encode_fp8(x + i * cols + c, m, s, out[0] + (r + i) * cols + c);
        memcpy(out[1] + (r / FP8_BLOCK * per + c / FP8_BLOCK) * sizeof s, &s, sizeof s);
    }
}

static json_t *block_config(const nb_hf_format *f, json_t *ignore)
{
    (void)f;
    return json_pack("{s:s, s:s, s:s, s:[i,i], s:o}", "quant_method", "fp8", "activation_scheme",
                     "dynamic", "fmt", "e4m3", "weight_block_size", FP8_BLOCK, FP8_BLOCK,
                     "modules_to_not_convert", ignore);
}

/* ---- ModelOpt ----
 *
 * Scales of activations need a text, so both algorithms are ones that have none in the file. */

static void mo_nvfp4_describe(const nb_hf_format *f, size_t rows, size_t cols,
                              nb_hf_tensor out[NB_HF_MAX_OUT])
{
    out[0] = tensor(".weight", "U8", 1, rows, cols / 2);
    out[1] = tensor(".weight_scale", "F8_E4M3", 1, rows, cols / f->group);
    out[2] = tensor(".weight_scale_2", "F32", 4, 1, 0);
    out[2].n_dim = 0;
}

static void mo_nvfp4_strip(const nb_hf_format *f, const float *x, const float *w, size_t r,
                           size_t n, size_t rows, size_t cols, float outer,
                           uint8_t *const out[NB_HF_MAX_OUT])
{
    for (size_t i = r; i < r + n; i++, x += cols)
        nb_encode_nvfp4(x, w, cols, outer, out[0] + i * (cols / 2), out[1] + i * (cols / f->group));
    if (r + n == rows) memcpy(out[2], &outer, sizeof outer);
}

static void mo_fp8_describe(const nb_hf_format *f, size_t rows, size_t cols,
                            nb_hf_tensor out[NB_HF_MAX_OUT])
{
    (void)f;
    out[0] = tensor(".weight", "F8_E4M3", 1, rows, cols);
    out[1] = tensor(".weight_scale", "F32", 4, rows, 0);
}

static const char *mo_algo(const nb_hf_format *f)
{
    return f->outer ? "W4A16_NVFP4" : "FP8_PER_CHANNEL_PER_TOKEN";
}

static json_t *mo_config(const nb_hf_format *f, json_t *ignore)
{
    return json_pack("{s:s, s:s, s:o, s:{s:s}}", "quant_method", "modelopt", "quant_algo",
                     mo_algo(f), "ignore", ignore, "producer", "name", "nibble");
}

static json_t *mo_file(const nb_hf_format *f, json_t *ignore)
{
    json_t *q = json_pack("{s:s, s:n, s:o}", "quant_algo", mo_algo(f), "kv_cache_quant_algo",
                          "exclude_modules", ignore);
    if (q && f->outer)
        (void)json_object_set_new(q, "group_size", json_integer((json_int_t)f->group));
    return json_pack("{s:{s:s}, s:o}", "producer", "name", "nibble", "quantization", q);
}

/* ---- bf16 ---- */

static void bf16_describe(const nb_hf_format *f, size_t rows, size_t cols,
                          nb_hf_tensor out[NB_HF_MAX_OUT])
{
    (void)f;
    out[0] = tensor(".weight", "BF16", 2, rows, cols);
}

static void bf16_strip(const nb_hf_format *f, const float *x, const float *w, size_t r, size_t n,
                       size_t rows, size_t cols, float outer, uint8_t *const out[NB_HF_MAX_OUT])
{
    (void)w;
    (void)f;
    (void)rows;
    (void)outer;
    uint16_t *to = (uint16_t *)out[0] + r * cols;
    for (size_t i = 0; i < n * cols; i++) to[i] = nb_bf16_from_f32(x[i]);
}

// clang-format off
static const char regex[] = "re:.*mlp[.]gate$", wild[] = "*mlp.gate", word[] = "mlp.gate";
static const nb_hf_format rows[] = {
    { "int4-g32",        32, 3, false, true,  regex, int4_describe,     int4_strip,     int4_config,  NULL },
    { "int4-g128",      128, 3, false, true,  regex, int4_describe,     int4_strip,     int4_config,  NULL },
    { "nvfp4",           16, 3, true,  true,  regex, nvfp4_describe,    nvfp4_strip,    nvfp4_config, NULL },
    { "mxfp4",           32, 2, false, true,  regex, mxfp4_describe,    mxfp4_strip,    mxfp4_config, NULL },
    { "fp8",              1, 2, false, false, regex, fp8_describe,      fp8_strip,      fp8_config,   NULL },
    { "fp8-block",        1, 2, false, false, word,  block_describe,    block_strip,    block_config, NULL },
    { "modelopt-nvfp4",  16, 3, true,  true,  wild,  mo_nvfp4_describe, mo_nvfp4_strip, mo_config,    mo_file },
    { "modelopt-fp8",     1, 2, false, false, wild,  mo_fp8_describe,   fp8_strip,      mo_config,    mo_file },
    { "bf16",             1, 1, false, false, regex, bf16_describe,     bf16_strip,     NULL,         NULL },
};
// clang-format on

const nb_hf_format *nb_hf_format_of(const char *name)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, name) == 0) return &rows[i];
    return NULL;
}
