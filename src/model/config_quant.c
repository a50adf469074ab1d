/* config_quant.c - see config_quant.h.
 *
 * Lists of what is not quantised hold names, names with '*', and regular expressions.  They are read for the
 * words by which checkpoints name their matrices, and for the number of a layer; a matrix counts as quantised
 * unless it is named without a layer, or in more than half of the layers that have it. */
#include "model/config_quant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NAME = 1 << 16, MAX_GROUP = 8, MAX_LAYER = 1024 };

#define UNIT(u) (1u << (u))
#define ATTENTION (UNIT(NB_QU_O + 1) - 1)
#define FEED_FORWARD (UNIT(NB_QU_DENSE) | UNIT(NB_QU_SHARED) | UNIT(NB_QU_EXPERT))
#define LINEAR (ATTENTION | FEED_FORWARD)

/* ---- names ---- */

/* The parts that a name or pattern is about; 0: none of those counted here. */
static unsigned units_of(const char *s)
{
    static const struct {
        const char *word;
        unsigned units;
    } words[] = {
        { "q_a_proj", UNIT(NB_QU_Q_A) },
        { "q_b_proj", UNIT(NB_QU_Q_B) },
        { "kv_a_proj", UNIT(NB_QU_KV_A) },
        { "kv_b_proj", UNIT(NB_QU_KV_B) },
        { "q_proj", UNIT(NB_QU_Q) },
        { "k_proj", UNIT(NB_QU_K) },
        { "v_proj", UNIT(NB_QU_V) },
        { "o_proj", UNIT(NB_QU_O) },
        { "attn", ATTENTION },
        { "attention", ATTENTION },
        { "shared_expert", UNIT(NB_QU_SHARED) },
        { "experts", UNIT(NB_QU_EXPERT) },
        { "lm_head", UNIT(NB_QU_HEAD) },
    };
    for (size_t i = 0; i < NB_COUNT(words); i++)
        if (strstr(s, words[i].word)) return words[i].units;
    const char *mlp = strstr(s, "mlp");
    if (!mlp) return 0;
    if (strstr(mlp, "_proj")) return UNIT(NB_QU_DENSE);
    /* all of it, if nothing but '*', '.' and '$' follows; else the router, which never counts */
    return mlp[3 + strspn(mlp + 3, ".*$")] ? 0 : FEED_FORWARD;
}

/* The layer that a name has, or -1; of "layers.4*" none is meant alone. */
static long layer_of(const char *s)
{
    const char *p = strstr(s, "layers");
    if (!p) return -1;
    p += 6;
    while (*p == '\\' || *p == '.') p++;
    const size_t n = strspn(p, "0123456789");
    if (n == 0 || n > 6 || p[n] == '*') return -1;
    return strtol(p, NULL, 10);
}

typedef struct names {
    unsigned all;                                          /* units named without a layer */
    unsigned char layer[MAX_LAYER][(NB_QU_COUNT + 7) / 8]; /* bits of units */
} names;

static void add_name(names *x, const char *s)
{
    const long layer = layer_of(s);
    unsigned units = units_of(s);
    if (layer < 0) {
        x->all |= units;
        return;
    }
    if (layer >= MAX_LAYER) return;
    if (units == 0 && !strstr(s, "mlp") && !strstr(s, "proj") && !strstr(s, "norm"))
        units = LINEAR; /* a whole layer */
    for (int u = 0; u < NB_QU_COUNT; u++)
        if (units & UNIT(u)) x->layer[layer][u / 8] |= (unsigned char)(1u << (u % 8));
}

static nb_status add_list(nb_doc *doc, const char *path, names *x, nb_error *err)
{
    const char **s = calloc(MAX_NAME, sizeof *s);
    size_t n = 0;
    if (!s) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    if (nb_doc_strs(doc, path, s, MAX_NAME, &n))
        for (size_t i = 0; i < n; i++) add_name(x, s[i]);
    free((void *)s);
    return nb_doc_check(doc, err);
}

/* Takes the units that are named out of q->units. */
static void leave_out(nb_quant *q, const names *x, const bool *dense, size_t n_layer)
{
    q->units &= ~x->all;
    for (int u = 0; u < NB_QU_COUNT; u++) {
        size_t n = 0, of = 0;
        for (size_t i = 0; i < n_layer && i < MAX_LAYER; i++) {
            if ((u == NB_QU_DENSE && !dense[i]) ||
                ((u == NB_QU_SHARED || u == NB_QU_EXPERT) && dense[i]))
                continue;
            of++;
            n += x->layer[i][u / 8] >> (u % 8) & 1;
        }
        if (n == 0 || !(q->units & UNIT(u))) continue;
        if (2 * n > of) q->units &= ~UNIT(u);
        if (n < of) q->partly |= UNIT(u);
    }
}

/* ---- methods ---- */

static bool in_range(double x, double lo, double hi)
{
    return x >= lo && x <= hi && x == (double)(size_t)x;
}

/* Columns of a group: absent, null, 0 or -1 is the whole row. */
static bool read_group(nb_doc *doc, const char *path, size_t *out)
{
    double x = 0;
    (void)nb_doc_f64(doc, path, &x);
    if (x == -1) x = 0;
    if (!in_range(x, 0, 65536)) return false;
    *out = (size_t)x;
    return true;
}

#define AT "quantization_config."

static void read_gptq(nb_doc *doc, nb_quant *q, bool awq)
{
    double bits = 0;
    bool flag = true;
    if (!nb_doc_f64(doc, AT "bits", &bits) && awq) (void)nb_doc_f64(doc, AT "w_bit", &bits);
    const char *group =
        awq && !nb_doc_has(doc, AT "group_size") ? AT "q_group_size" : AT "group_size";
    if (!in_range(bits, 1, 8) || !read_group(doc, group, &q->cols)) return;
    q->bits = (size_t)bits;
    q->scale_bits = 16;
    if (awq) (void)nb_doc_bool(doc, AT "zero_point", &flag);
    q->zero_bits = flag ? q->bits : 0;
    q->col_bytes = awq ? 0 : 4;
    q->pack = awq ? NB_PACK_AWQ : NB_PACK_GPTQ;
    const char *format = "";
    (void)nb_doc_str(doc, AT "checkpoint_format", &format);
    (void)nb_doc_str(doc, AT "packing_format", &format);
    if (!strcmp(format, "gptq_v2") || !strcmp(format, "auto_round") ||
        !strcmp(format, "auto_round:gptqmodel"))
        q->pack = NB_PACK_GPTQ_V2;
    if (!strcmp(format, "auto_round:auto_awq")) q->pack = NB_PACK_AWQ;
    if (!awq && nb_doc_is_bool(doc, AT "lm_head") && nb_doc_bool(doc, AT "lm_head", &flag) && flag)
        q->units |= UNIT(NB_QU_HEAD);
}

/* What a group's targets are, of the parts that are known. */
static unsigned targets_of(nb_doc *doc, const char *path)
{
    const char *s[64];
    size_t n = 0;
    unsigned units = 0;
    if (!nb_doc_has(doc, path)) return LINEAR | UNIT(NB_QU_HEAD);
    if (!nb_doc_strs(doc, path, s, NB_COUNT(s), &n)) return 0;
    for (size_t i = 0; i < n; i++)
        units |= !strcmp(s[i], "Linear") ? LINEAR | UNIT(NB_QU_HEAD) : units_of(s[i]);
    return units;
}

/* One entry of config_groups; false: it does not say what it takes. */
static bool read_weights(nb_doc *doc, const char *name, nb_quant *q)
{
    char path[224];
    const char *strategy = "", *type = "int";
    double bits = 0;
    bool symmetric = true;
    uint64_t block[2] = { 0, 0 };
    size_t n = 0;
    if (strlen(name) > 100 || strchr(name, '.')) return false;
#define OF(key) ((void)snprintf(path, sizeof path, AT "config_groups.%s." key, name), path)
    if (!nb_doc_f64(doc, OF("weights.num_bits"), &bits) || !in_range(bits, 1, 8)) return false;
    (void)nb_doc_str(doc, OF("weights.strategy"), &strategy);
    (void)nb_doc_str(doc, OF("weights.type"), &type);
    (void)nb_doc_bool(doc, OF("weights.symmetric"), &symmetric);
    if (!read_group(doc, OF("weights.group_size"), &q->cols)) return false;
    const bool is_block = !strcmp(strategy, "block");
    if (is_block && (!nb_doc_u64s(doc, OF("weights.block_structure"), 65536, block, 2, &n) ||
                     n != 2 || !block[0] || !block[1]))
        return false;
    q->bits = (size_t)bits;
    q->rows = is_block ? (size_t)block[0] : !strcmp(strategy, "tensor") ? 65536 : 1;
    if (is_block) q->cols = (size_t)block[1];
    /* FP4's groups have scales of 8 bits (E4M3 or E8M0), others those of the model's type */
    q->fp4 = !strcmp(type, "float") && q->bits == 4;
    q->scale_bits = q->fp4 ? 8 : 16;
    q->zero_bits = symmetric ? 0 : q->bits;
    q->units = targets_of(doc, OF("targets"));
#undef OF
    return true;
}

/* A key of config_groups that is a preset's name, with a list of targets. */
static bool read_preset(nb_doc *doc, const char *name, nb_quant *q)
{
    static const struct {
        const char *name;
        unsigned char bits, rows_all, scale_bits, zero_bits;
        bool fp4;
        size_t cols;
    } presets[] = {
        { "W4A16", 4, 0, 16, 0, false, 128 },   { "W4A16_ASYM", 4, 0, 16, 4, false, 128 },
        { "W4A8", 4, 0, 16, 0, false, 128 },    { "W4AFP8", 4, 0, 16, 0, false, 128 },
        { "W8A16", 8, 0, 16, 0, false, 0 },     { "W8A8", 8, 0, 16, 0, false, 0 },
        { "FP8", 8, 1, 16, 0, false, 0 },       { "FP8_DYNAMIC", 8, 0, 16, 0, false, 0 },
        { "FP8_BLOCK", 8, 0, 16, 0, false, 128 }, { "NVFP4", 4, 0, 8, 0, true, 16 },
        { "NVFP4A16", 4, 0, 8, 0, true, 16 },   { "MXFP4", 4, 0, 8, 0, true, 32 },
        { "MXFP4A16", 4, 0, 8, 0, true, 32 },
    };
    char path[224];
    for (size_t i = 0; i < NB_COUNT(presets); i++) {
        if (strcmp(name, presets[i].name) != 0) continue;
        (void)snprintf(path, sizeof path, AT "config_groups.%s", name);
        if (nb_doc_is_object(doc, path)) return false;
        q->bits = presets[i].bits;
        q->rows = presets[i].rows_all ? 65536 : !strcmp(name, "FP8_BLOCK") ? 128 : 1;
        q->cols = presets[i].cols;
        q->scale_bits = presets[i].scale_bits;
        q->zero_bits = presets[i].zero_bits;
        q->fp4 = presets[i].fp4;
        q->units = targets_of(doc, path);
        return true;
    }
    return false;
}

static void read_groups(nb_doc *doc, nb_quant *q)
{
    const char *name[MAX_GROUP];
    const size_t n = nb_doc_keys(doc, AT "config_groups", name, MAX_GROUP);
    nb_quant sum = *q;
    if (n == 0 || n > MAX_GROUP) return;
    for (size_t i = 0; i < n; i++) {
        nb_quant one = *q;
        if (!read_preset(doc, name[i], &one) && !read_weights(doc, name[i], &one)) return;
        if (i > 0) { /* several are one where they take the same bytes */
            const unsigned units = one.units | sum.units;
            one.units = sum.units;
            if (memcmp(&one, &sum, sizeof one) != 0) {
                q->mixed = true;
                return;
            }
            one.units = units;
        }
        sum = one;
    }
    *q = sum;
}

/* By the name of ModelOpt's algorithm; others and mixtures: not known. */
static void read_algo(const char *algo, nb_quant *q)
{
    const bool fp4 = !strcmp(algo, "NVFP4") || !strcmp(algo, "W4A16_NVFP4");
    if (fp4) {
        q->bits = 4;
        q->fp4 = true;
        q->cols = 16;
        q->scale_bits = 8;
    } else if (!strncmp(algo, "FP8", 3)) {
        q->bits = 8;
        q->scale_bits = 32;
        q->rows = !strcmp(algo, "FP8") ? 65536 : !strcmp(algo, "FP8_PB_WO") ? 128 : 1;
        if (q->rows == 128) q->cols = 128;
    }
    q->mixed |= !strcmp(algo, "MIXED_PRECISION");
}

static void read_modelopt(nb_doc *doc, nb_quant *q)
{
    const char *algo = "";
    if (nb_doc_has(doc, AT "config_groups")) read_groups(doc, q);
    (void)nb_doc_str(doc, AT "quant_algo", &algo);
    if (q->bits == 0) read_algo(algo, q);
}

/* AMD Quark: MXFP4 everywhere but in `exclude`. */
/* Made of a GGUF's metadata (load/gguf_config.c): its types differ from tensor to tensor, and these are their
 * average: whole bits, and the rest for each 256 values. */
static void read_gguf(nb_doc *doc, nb_quant *q)
{
    q->mixed = true;
    (void)nb_doc_size(doc, AT "bits", 1, 16, &q->bits);
    (void)nb_doc_size(doc, AT "bits_per_256", 0, 4096, &q->scale_bits);
    q->cols = 256;
}

static void read_quark(nb_doc *doc, nb_quant *q)
{
    const char *type = "";
    (void)nb_doc_str(doc, AT "global_quant_config.weight.dtype", &type);
    q->mixed = true;
    if (strcmp(type, "fp4") != 0) return;
    q->bits = 4;
    q->fp4 = true;
    q->cols = 32;
    q->scale_bits = 8;
}

static void read_fp8(nb_doc *doc, nb_quant *q, bool fbgemm)
{
    uint64_t block[2] = { 0, 0 };
    size_t n = 0;
    q->bits = 8;
    q->scale_bits = 32;
    if (fbgemm || !nb_doc_has(doc, AT "weight_block_size")) {
        q->rows = fbgemm ? 1 : 65536; /* a row, or the whole */
        return;
    }
    if (nb_doc_u64s(doc, AT "weight_block_size", 65536, block, 2, &n) && n == 2 && block[0] &&
        block[1]) {
        q->rows = (size_t)block[0];
        q->cols = (size_t)block[1];
    } else {
        q->bits = 0;
    }
}

/* ---- together ---- */

static void show(const char *s, char *out, size_t n_bytes)
{
    size_t n = 0;
    for (; s[n] && n + 1 < n_bytes; n++) out[n] = s[n] > ' ' && s[n] < 0x7f ? s[n] : '?';
    out[n] = 0;
}

/* GPTQModel's rules: "-:PATTERN" leaves out; any other changes bits, and they are then not known. */
static void read_dynamic(nb_doc *doc, nb_quant *q, names *x)
{
    const char *key[256];
    const size_t n = nb_doc_keys(doc, AT "dynamic", key, NB_COUNT(key));
    if (n > NB_COUNT(key)) q->bits = 0;
    for (size_t i = 0; i < n && i < NB_COUNT(key); i++) {
        if (strncmp(key[i], "-:", 2) == 0)
            add_name(x, key[i]);
        else
            q->bits = 0, q->mixed = true;
    }
}

nb_status nb_quant_read(nb_doc *doc, const bool *dense, size_t n_layer, nb_quant *out,
                        nb_error *err)
{
    static const char *const lists[] = { AT "ignore", AT "modules_to_not_convert",
                                         AT "exclude_modules", AT "exclude" };
    const char *method = "";
    nb_quant q;
    memset(&q, 0, sizeof q); /* compared as bytes */
    q.rows = 1;
    q.units = LINEAR;
    (void)nb_doc_str(doc, AT "quant_method", &method);
    show(method, q.method, sizeof q.method);
    const bool round = !strcmp(method, "auto-round");
    if (!strcmp(method, "gptq") || !strcmp(method, "awq") || round)
        read_gptq(doc, &q, !strcmp(method, "awq"));
    else if (!strcmp(method, "compressed-tensors"))
        read_groups(doc, &q);
    else if (!strcmp(method, "modelopt"))
        read_modelopt(doc, &q);
    else if (!strcmp(method, "quark"))
        read_quark(doc, &q);
    else if (!strcmp(method, "gguf"))
        read_gguf(doc, &q);
    else if (!strcmp(method, "fp8") || !strcmp(method, "fbgemm_fp8"))
        read_fp8(doc, &q, !strcmp(method, "fbgemm_fp8"));
    NB_TRY(nb_doc_check(doc, err));
    names *x = calloc(1, sizeof *x);
    if (!x) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    nb_status st = NB_OK;
    for (size_t i = 0; i < NB_COUNT(lists) && st == NB_OK; i++)
        st = add_list(doc, lists[i], x, err);
    if (!strcmp(method, "gptq")) read_dynamic(doc, &q, x);
    if (round && nb_doc_has(doc, AT "extra_config")) q.bits = 0, q.mixed = true;
    q.mixed |= !strcmp(method, "w4afp8");
    leave_out(&q, x, dense, n_layer);
    free(x);
    if (st == NB_OK) *out = q;
    return st;
}

nb_status nb_quant_read_file(nb_doc *doc, const bool *dense, size_t n_layer, nb_quant *out,
                             nb_error *err)
{
    const char *algo = "";
    nb_quant q;
    memset(&q, 0, sizeof q);
    *out = q;
    (void)nb_doc_str(doc, "quantization.quant_algo", &algo);
    NB_TRY(nb_doc_check(doc, err));
    if (!*algo) return NB_OK;
    q.rows = 1;
    q.units = LINEAR;
    (void)snprintf(q.method, sizeof q.method, "modelopt");
    read_algo(algo, &q);
    names *x = calloc(1, sizeof *x);
    if (!x) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    const nb_status st = add_list(doc, "quantization.exclude_modules", x, err);
    leave_out(&q, x, dense, n_layer);
    free(x);
    if (st == NB_OK) *out = q;
    return st;
}

/* ---- what nibble runs ---- */

typedef struct accepted {
    const char *method, *path, *values; /* values: separated by spaces; absent is accepted */
} accepted;
static const accepted fields[] = {
    { "compressed-tensors", AT "format",
      "pack-quantized float-quantized int-quantized naive-quantized nvfp4-pack-quantized "
      "mxfp4-pack-quantized mixed-precision dense" },
    { "compressed-tensors", AT "sparsity_config.format", "dense" },
    { "modelopt", AT "quant_algo",
      "FP8 FP8_PER_CHANNEL_PER_TOKEN FP8_PB_WO NVFP4 W4A16_NVFP4 MIXED_PRECISION" },
    { "modelopt", "quantization.quant_algo",
      "FP8 FP8_PB_REAL FP8_PER_CHANNEL_PER_TOKEN FP8_PB_WO NVFP4 W4A16_NVFP4 MIXED_PRECISION" },
    { "awq", AT "version", "gemm GEMM" },
    { "gptq", AT "checkpoint_format", "gptq gptq_v2" },
    { "auto-round", AT "packing_format",
      "auto_round auto_round:auto_gptq auto_round:gptqmodel auto_round:auto_awq "
      "auto_round:llm_compressor" },
};

static bool in_words(const char *words, const char *v)
{
    const size_t n = strlen(v);
    for (const char *p = words; (p = strstr(p, v)) != NULL && n; p += n)
        if ((p == words || p[-1] == ' ') && (p[n] == ' ' || p[n] == 0)) return true;
    return false;
}

static nb_status check_fields(nb_doc *doc, const char *method, nb_error *err)
{
    char found[64];
    for (size_t i = 0; i < NB_COUNT(fields); i++) {
        const accepted *a = &fields[i];
        const char *v = "";
        if (strcmp(method, a->method) != 0 || !nb_doc_has(doc, a->path)) continue;
        (void)nb_doc_str(doc, a->path, &v);
        NB_TRY(nb_doc_check(doc, err));
        if (in_words(a->values, v)) continue;
        show(v, found, sizeof found);
        return nb_fail(err, NB_ERR_UNSUPPORTED, "%s: %s: \"%s\" is not supported (expected: %s)",
                       nb_doc_name(doc), a->path, found, a->values);
    }
    return NB_OK;
}

nb_status nb_quant_check(nb_doc *doc, const nb_quant *q, nb_error *err)
{
    static const char methods[] =
        "compressed-tensors modelopt fbgemm_fp8 quark awq gptq auto-round w4afp8 gguf";
    if (!in_words(methods, q->method))
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "%s: quantization_config.quant_method \"%s\" is not supported (expected: fp8 "
                       "%s)",
                       nb_doc_name(doc), q->method, methods);
    if (!strcmp(q->method, "gguf")) return NB_OK; /* each tensor is checked when it is taken */
    NB_TRY(check_fields(doc, q->method, err));
    if (q->bits == 0 && !q->mixed)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "%s: quantization_config.quant_method \"%s\": does not say how the weights are "
                       "stored (expected: bits, config_groups or quant_algo)",
                       nb_doc_name(doc), q->method);
    if (q->bits == 0 || q->bits == 8 || (q->bits == 4 && strcmp(q->method, "fbgemm_fp8") != 0))
        return NB_OK;
    return nb_fail(err, NB_ERR_UNSUPPORTED,
                   "%s: quantization_config: weights of %zu bits are not supported (expected: 4, 8)",
                   nb_doc_name(doc), q->bits);
}

nb_status nb_quant_check_file(nb_doc *doc, nb_error *err)
{
    return check_fields(doc, "modelopt", err);
}

bool nb_quant_has(const nb_quant *q, const char *module)
{
    return q->method[0] && (q->units & units_of(module)) != 0;
}

nb_quant nb_quant_int4(bool experts)
{
    return (nb_quant){ .method = "int4",
                       .bits = 4,
                       .rows = 1,
                       .cols = 32,
                       .scale_bits = 16,
                       .units = experts ? UNIT(NB_QU_EXPERT) : LINEAR };
}

uint64_t nb_quant_bytes(const nb_quant *q, size_t n_row, size_t n_col)
{
    const uint64_t r = n_row, c = n_col;
    const uint64_t rows = (r + q->rows - 1) / q->rows;
    const uint64_t cols = q->cols ? (c + q->cols - 1) / q->cols : 1;
    const uint64_t words = (c * q->bits + 31) / 32;
    return r * words * 4 + (rows * cols * (q->scale_bits + q->zero_bits) + 7) / 8 +
           c * q->col_bytes;
}
