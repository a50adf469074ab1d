/* config_quant.c - see config_quant.h. */
#include "model/config_quant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/config_quant_rules.h"

enum { MAX_NAME = 1 << 17, MAX_GROUP = 16, MAX_RULE_KEY = 1 << 16, MAX_LAYER = 1024 };

#define AT "quantization_config."
#define HEAD NB_QU_BIT(NB_QU_HEAD)
#define EXPERTS (NB_QU_BIT(NB_QU_EXPERT) | NB_QU_BIT(NB_QU_EXPERT_UP) | NB_QU_BIT(NB_QU_EXPERT_DOWN))

/* What is read, and from where. */
typedef struct reader {
    nb_doc *doc;
    nb_quant *q;
    nb_quant_rules rules;
    nb_error *err;
} reader;

static void show(const char *s, char *out, size_t n_bytes)
{
    size_t n = 0;
    for (; s[n] && n + 1 < n_bytes; n++) out[n] = s[n] > ' ' && s[n] < 0x7f ? s[n] : '?';
    out[n] = 0;
}

/* ---- forms ---- */

static bool same_form(const nb_quant_form *a, const nb_quant_form *b)
{
    return a->bits == b->bits && a->rows == b->rows && a->cols == b->cols &&
           a->scale_bits == b->scale_bits && a->zero_bits == b->zero_bits &&
           a->col_bytes == b->col_bytes && a->fp4 == b->fp4 && a->block == b->block &&
           a->block_bytes == b->block_bytes; /* types of GGUF are not compared */
}

/* 1 + its place; 0: there are too many. */
static unsigned char add_form(nb_quant *q, const nb_quant_form *f)
{
    for (size_t i = 0; i < q->n_form; i++)
        if (same_form(&q->form[i], f)) return (unsigned char)(i + 1);
    if (q->n_form == NB_QUANT_MAX_FORM) {
        q->mixed = true;
        return 0;
    }
    q->form[q->n_form] = *f;
    return (unsigned char)++q->n_form;
}

/* The form of all linear modules of the layers, and of more. */
static void whole(reader *r, const nb_quant_form *f, unsigned more)
{
    nb_quant_rule_class(&r->rules, NB_QU_LINEAR | more, add_form(r->q, f));
}

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

/* ---- modules that stay plain ---- */

static bool is_method(const reader *r, const char *method)
{
    return strcmp(r->q->method, method) == 0;
}

/* Each method has its own idea of a name. */
static nb_status add_plain(reader *r, const char *s)
{
    nb_pattern_kind kind = strpbrk(s, "*?[") ? NB_PATTERN_WILD : NB_PATTERN_PART;
    if (is_method(r, "compressed-tensors")) kind = NB_PATTERN_NAME;
    if (is_method(r, "awq")) kind = NB_PATTERN_SUBSTR;
    if (strncmp(s, "re:", 3) == 0) {
        kind = NB_PATTERN_REGEX;
        s += 3;
    }
    return nb_quant_rule_add(&r->rules, kind, s, 0, NB_QR_PLAIN, r->err);
}

static nb_status add_plain_list(reader *r, const char *path)
{
    const char **s = calloc(MAX_NAME, sizeof *s);
    size_t n = 0;
    if (!s) return nb_fail(r->err, NB_ERR_NOMEM, "out of memory");
    nb_status st = NB_OK;
    if (nb_doc_strs(r->doc, path, s, MAX_NAME, &n))
        for (size_t i = 0; i < n && st == NB_OK; i++) st = add_plain(r, s[i]);
    free((void *)s);
    return st == NB_OK ? nb_doc_check(r->doc, r->err) : st;
}

/* ---- GPTQ, AWQ, AutoRound ---- */

typedef nb_status key_fn(reader *r, const char *path, const char *key, const nb_quant_form *f);

/* Calls fn for every key of the object at path; paths of its members in quotes. */
static nb_status each_key(reader *r, const char *path, const nb_quant_form *f, key_fn *fn)
{
    const char **key = calloc(MAX_RULE_KEY, sizeof *key);
    if (!key) return nb_fail(r->err, NB_ERR_NOMEM, "out of memory");
    const size_t n = nb_doc_keys(r->doc, path, key, MAX_RULE_KEY);
    nb_status st = NB_OK;
    if (n > MAX_RULE_KEY)
        st = nb_fail(r->err, NB_ERR_LIMIT, "%s: %s: more than %d names", nb_doc_name(r->doc), path,
                     MAX_RULE_KEY);
    for (size_t i = 0; i < n && st == NB_OK; i++) {
        char member[NB_DOC_KEY_BYTES + 64];
        if (strlen(key[i]) >= NB_DOC_KEY_BYTES)
            st = nb_fail(r->err, NB_ERR_LIMIT, "%s: %s: a name has more than %d bytes",
                         nb_doc_name(r->doc), path, NB_DOC_KEY_BYTES - 1);
        if (st != NB_OK) break;
        (void)snprintf(member, sizeof member, "%s." NB_DOC_QUOTE "%s" NB_DOC_QUOTE, path, key[i]);
        st = fn(r, member, key[i], f);
    }
    free((void *)key);
    return st == NB_OK ? nb_doc_check(r->doc, r->err) : st;
}

/* f with the bits and group_size of an object; 0 for 16 bits and more. */
static unsigned char changed_form(reader *r, const char *path, const nb_quant_form *f)
{
    char member[NB_DOC_KEY_BYTES + 80];
    nb_quant_form own = *f;
    double bits = (double)f->bits;
    (void)snprintf(member, sizeof member, "%s.bits", path);
    (void)nb_doc_f64(r->doc, member, &bits);
    if (bits >= 16) return 0;
    (void)snprintf(member, sizeof member, "%s.group_size", path);
    if (nb_doc_has(r->doc, member) && !read_group(r->doc, member, &own.cols)) r->q->mixed = true;
    own.bits = in_range(bits, 1, 8) ? (size_t)bits : f->bits;
    if (own.zero_bits) own.zero_bits = own.bits;
    return add_form(r->q, &own);
}

/* GPTQModel: "-:PATTERN" leaves out, "+:PATTERN" or PATTERN changes; the first one that matches. */
static nb_status dynamic_rule(reader *r, const char *path, const char *key, const nb_quant_form *f)
{
    const bool out = strncmp(key, "-:", 2) == 0, change = strncmp(key, "+:", 2) == 0;
    const unsigned char form = out ? 0 : changed_form(r, path, f);
    return nb_quant_rule_add(&r->rules, NB_PATTERN_REGEX, key + (out || change ? 2 : 0), form,
                             NB_QR_PATTERN, r->err);
}

/* AutoRound: names of modules, or expressions that occur in them. */
static nb_status extra_rule(reader *r, const char *path, const char *key, const nb_quant_form *f)
{
    const unsigned char form = changed_form(r, path, f);
    if (strpbrk(key, "*+?[(^$|\\"))
        return nb_quant_rule_add(&r->rules, NB_PATTERN_SEARCH, key, form, NB_QR_PATTERN, r->err);
    return nb_quant_rule_add(&r->rules, NB_PATTERN_NAME, key, form, NB_QR_NAME, r->err);
}

static nb_status read_gptq(reader *r, bool awq)
{
    nb_doc *doc = r->doc;
    nb_quant *q = r->q;
    nb_quant_form f = { .rows = 1, .scale_bits = 16 };
    double bits = 0;
    bool flag = true;
    const char *type = "";
    if (!nb_doc_f64(doc, AT "bits", &bits) && awq) (void)nb_doc_f64(doc, AT "w_bit", &bits);
    const char *group =
        awq && !nb_doc_has(doc, AT "group_size") ? AT "q_group_size" : AT "group_size";
    if (!in_range(bits, 1, 8) || !read_group(doc, group, &f.cols)) return NB_OK;
    f.bits = (size_t)bits;
    if (awq) (void)nb_doc_bool(doc, AT "zero_point", &flag);
    f.zero_bits = flag ? f.bits : 0;
    f.col_bytes = awq ? 0 : 4;
    q->pack = awq ? NB_PACK_AWQ : NB_PACK_GPTQ;
    const char *format = "";
    (void)nb_doc_str(doc, AT "checkpoint_format", &format);
    (void)nb_doc_str(doc, AT "packing_format", &format);
    if (!strcmp(format, "gptq_v2") || !strcmp(format, "auto_round") ||
        !strcmp(format, "auto_round:gptqmodel"))
        q->pack = NB_PACK_GPTQ_V2;
    if (!strcmp(format, "auto_round:auto_awq")) q->pack = NB_PACK_AWQ;
    if (q->pack == NB_PACK_AWQ) f.col_bytes = 0;
    if (!strcmp(format, "auto_round:llm_compressor")) {
        (void)nb_doc_str(doc, AT "data_type", &type);
        f.fp4 = f.bits == 4 && strstr(type, "fp") != NULL;
        f.scale_bits = f.fp4 ? 8 : 16;
        f.zero_bits = f.col_bytes = 0;
    }
    flag = !awq && nb_doc_is_bool(doc, AT "lm_head") && nb_doc_bool(doc, AT "lm_head", &flag) && flag;
    if (is_method(r, "gptq")) NB_TRY(each_key(r, AT "dynamic", &f, dynamic_rule));
    if (is_method(r, "auto-round")) NB_TRY(each_key(r, AT "extra_config", &f, extra_rule));
    whole(r, &f, flag ? HEAD : 0);
    return NB_OK;
}

/* ---- compressed-tensors ---- */

/* A group's targets: classes, names, and "re:" with an expression.  More than one name for a group is rare, more
 * than thousands are not meant. */
static nb_status add_targets(reader *r, const char *path, unsigned char form)
{
    enum { MAX_TARGET = 4096 };
    if (!nb_doc_has(r->doc, path)) {
        nb_quant_rule_class(&r->rules, NB_QU_LINEAR | HEAD, form);
        return NB_OK;
    }
    const char **s = calloc(MAX_TARGET, sizeof *s);
    size_t n = 0;
    if (!s) return nb_fail(r->err, NB_ERR_NOMEM, "out of memory");
    nb_status st = NB_OK;
    if (nb_doc_strs(r->doc, path, s, MAX_TARGET, &n))
        for (size_t i = 0; i < n && st == NB_OK; i++) {
            const bool re = strncmp(s[i], "re:", 3) == 0;
            if (!strcmp(s[i], "Linear"))
                nb_quant_rule_class(&r->rules, NB_QU_LINEAR | HEAD, form);
            else
                st = nb_quant_rule_add(&r->rules, re ? NB_PATTERN_REGEX : NB_PATTERN_NAME,
                                       s[i] + (re ? 3 : 0), form, re ? NB_QR_PATTERN : NB_QR_NAME,
                                       r->err);
        }
    free((void *)s);
    return st;
}

/* block_structure: [128, 128] or "128x128". */
static bool read_block(nb_doc *doc, const char *path, nb_quant_form *f)
{
    uint64_t block[2] = { 0, 0 };
    size_t n = 0;
    const char *text;
    unsigned a = 0, b = 0;
    int end = 0;
    if (nb_doc_is_str(doc, path)) {
        (void)nb_doc_str(doc, path, &text);
        if (sscanf(text, "%5ux%5u%n", &a, &b, &end) == 2 && !text[end]) n = 2;
        block[0] = a;
        block[1] = b;
    } else if (!nb_doc_u64s(doc, path, 65536, block, 2, &n)) {
        return false;
    }
    f->rows = (size_t)block[0];
    f->cols = (size_t)block[1];
    return n == 2 && f->rows && f->cols;
}

/* One entry of config_groups; false: it does not say what it takes. */
static bool read_weights(nb_doc *doc, const char *group, nb_quant_form *f)
{
    char path[2 * NB_DOC_KEY_BYTES];
    const char *strategy = "", *type = "int", *order = "";
    double bits = 0;
    bool symmetric = true;
#define OF(key) ((void)snprintf(path, sizeof path, "%s.weights." key, group), path)
    if (!nb_doc_f64(doc, OF("num_bits"), &bits) || !in_range(bits, 1, 8)) return false;
    (void)nb_doc_str(doc, OF("strategy"), &strategy);
    (void)nb_doc_str(doc, OF("type"), &type);
    (void)nb_doc_bool(doc, OF("symmetric"), &symmetric);
    if (!read_group(doc, OF("group_size"), &f->cols)) return false;
    f->bits = (size_t)bits;
    f->rows = !strcmp(strategy, "tensor") ? 65536 : 1;
    if (!strcmp(strategy, "block") && !read_block(doc, OF("block_structure"), f)) return false;
    /* FP4's groups have scales of 8 bits (E4M3 or E8M0), others those of the model's type */
    f->fp4 = !strcmp(type, "float") && f->bits == 4;
    f->scale_bits = f->fp4 ? 8 : 16;
    f->zero_bits = symmetric ? 0 : f->bits;
    /* an index of groups for each column */
    if (nb_doc_is_str(doc, OF("actorder"))) (void)nb_doc_str(doc, OF("actorder"), &order);
    if (!strcmp(order, "group") || !strcmp(order, "dynamic")) f->col_bytes = 4;
#undef OF
    return true;
}

/* A key of config_groups that is a preset's name, with a list of targets. */
static bool read_preset(const char *name, nb_quant_form *f)
{
    static const struct {
        const char *name;
        nb_quant_form form; /* bits, rows, cols, scale_bits, zero_bits */
    } presets[] = {
        { "W4A16", { 4, 1, 128, 16, 0, 0, false, 0, 0, "" } },
        { "W4A16_ASYM", { 4, 1, 128, 16, 4, 0, false, 0, 0, "" } },
        { "W4A8", { 4, 1, 128, 16, 0, 0, false, 0, 0, "" } },
        { "W4AFP8", { 4, 1, 128, 16, 0, 0, false, 0, 0, "" } },
        { "W8A16", { 8, 1, 0, 16, 0, 0, false, 0, 0, "" } },
        { "W8A8", { 8, 1, 0, 16, 0, 0, false, 0, 0, "" } },
        { "FP8", { 8, 65536, 0, 16, 0, 0, false, 0, 0, "" } },
        { "FP8_DYNAMIC", { 8, 1, 0, 16, 0, 0, false, 0, 0, "" } },
        { "FP8_BLOCK", { 8, 128, 128, 16, 0, 0, false, 0, 0, "" } },
        { "NVFP4", { 4, 1, 16, 8, 0, 0, true, 0, 0, "" } },
        { "NVFP4A16", { 4, 1, 16, 8, 0, 0, true, 0, 0, "" } },
        { "MXFP4", { 4, 1, 32, 8, 0, 0, true, 0, 0, "" } },
        { "MXFP4A16", { 4, 1, 32, 8, 0, 0, true, 0, 0, "" } },
    };
    for (size_t i = 0; i < NB_COUNT(presets); i++)
        if (strcmp(name, presets[i].name) == 0) {
            *f = presets[i].form;
            return true;
        }
    return false;
}

static nb_status group_rule(reader *r, const char *path, const char *name, const nb_quant_form *f)
{
    char targets[2 * NB_DOC_KEY_BYTES];
    nb_quant_form own = *f;
    const bool object = nb_doc_is_object(r->doc, path);
    (void)snprintf(targets, sizeof targets, "%s%s", path, object ? ".targets" : "");
    if (object ? read_weights(r->doc, path, &own) : read_preset(name, &own))
        return add_targets(r, targets, add_form(r->q, &own));
    r->q->mixed |= nb_doc_keys(r->doc, AT "config_groups", NULL, 0) > 1;
    return NB_OK;
}

static nb_status read_groups(reader *r)
{
    const nb_quant_form none = { .rows = 1 };
    if (nb_doc_keys(r->doc, AT "config_groups", NULL, 0) > MAX_GROUP) return NB_OK;
    return each_key(r, AT "config_groups", &none, group_rule);
}

/* ---- ModelOpt ---- */

/* By the name of ModelOpt's algorithm; others are not known. */
static bool read_algo(const char *algo, nb_quant_form *f)
{
    *f = (nb_quant_form){ .bits = 8, .rows = 1, .scale_bits = 32 };
    if (!strcmp(algo, "NVFP4") || !strcmp(algo, "W4A16_NVFP4"))
        *f = (nb_quant_form){ .bits = 4, .rows = 1, .cols = 16, .scale_bits = 8, .fp4 = true };
    else if (!strcmp(algo, "FP8"))
        f->rows = 65536;
    else if (!strncmp(algo, "FP8_PB", 6))
        f->rows = f->cols = 128;
    else
        return !strncmp(algo, "FP8", 3);
    return true;
}

/* quantized_layers: the algorithm of a module. */
static nb_status layer_rule(reader *r, const char *path, const char *key, const nb_quant_form *none)
{
    char member[NB_DOC_KEY_BYTES + 80];
    const char *algo = "";
    nb_quant_form f;
    (void)none;
    (void)snprintf(member, sizeof member, "%s.quant_algo", path);
    (void)nb_doc_str(r->doc, member, &algo);
    if (!read_algo(algo, &f)) return NB_OK;
    const bool wild = strpbrk(key, "*?[") != NULL;
    return nb_quant_rule_add(&r->rules, wild ? NB_PATTERN_WILD : NB_PATTERN_NAME, key,
                             add_form(r->q, &f), wild ? NB_QR_PATTERN : NB_QR_NAME, r->err);
}

static nb_status modelopt_algo(reader *r, const char *algo, const char *layers)
{
    nb_quant_form f;
    if (read_algo(algo, &f)) whole(r, &f, 0);
    r->q->mixed |= !strcmp(algo, "MIXED_PRECISION");
    return each_key(r, layers, NULL, layer_rule);
}

static nb_status read_modelopt(reader *r)
{
    const char *algo = "";
    if (nb_doc_has(r->doc, AT "config_groups")) NB_TRY(read_groups(r));
    (void)nb_doc_str(r->doc, AT "quant_algo", &algo);
    return r->q->n_form ? NB_OK : modelopt_algo(r, algo, AT "quantized_layers");
}

/* ---- others ---- */

/* Made of a GGUF's metadata (load/gguf_config.c): the types of its tensors, and for each module the type in each
 * layer. */
static nb_status read_gguf(reader *r, const nb_quant_model *m, nb_quant_layer *layer)
{
    const size_t n_layer = m->n_layer;
    const char *types[NB_QUANT_MAX_FORM];
    size_t n_type = 0, n = 0;
    r->q->mixed = true;
    (void)nb_doc_strs(r->doc, AT "types", types, NB_COUNT(types), &n_type);
    for (size_t i = 0; i < n_type; i++) {
        nb_quant_form f = { .rows = 1 };
        char name[sizeof f.name];
        if (sscanf(types[i], "%15s %5zu %5zu", name, &f.block, &f.block_bytes) != 3 || !f.block ||
            f.block_bytes > 8 * f.block) /* of a config.json that somebody wrote */
            return nb_fail(r->err, NB_ERR_FORMAT,
                           "%s: quantization_config.types: expected a name, values and bytes of a block",
                           nb_doc_name(r->doc));
        show(name, f.name, sizeof f.name);
        r->q->form[r->q->n_form++] = f;
    }
    uint64_t *of = calloc(MAX_LAYER, sizeof *of);
    if (!of) return nb_fail(r->err, NB_ERR_NOMEM, "out of memory");
    for (int u = 0; u < NB_QU_COUNT; u++) {
        char path[NB_DOC_KEY_BYTES];
        (void)snprintf(path, sizeof path, AT "tensors." NB_DOC_QUOTE "%s" NB_DOC_QUOTE,
                       nb_quant_unit_name((nb_quant_unit)u));
        if (!nb_doc_u64s(r->doc, path, n_type, of, MAX_LAYER, &n)) continue;
        const bool one = u == NB_QU_HEAD || u == NB_QU_EMBED;
        for (size_t i = 0; i < n_layer; i++)
            layer[i].form[u] = (unsigned char)(one ? of[0] : i < n ? of[i] : 0);
    }
    nb_quant_summarise(r->q, m->dense, n_layer, layer);
    free(of);
    return nb_doc_check(r->doc, r->err);
}

/* AMD Quark: one type for all that `exclude` does not name. */
static void read_quark(reader *r)
{
    const char *type = "";
    (void)nb_doc_str(r->doc, AT "global_quant_config.weight.dtype", &type);
    r->q->mixed = true;
    if (!strcmp(type, "fp4"))
        whole(r, &(nb_quant_form){ .bits = 4, .rows = 1, .cols = 32, .scale_bits = 8, .fp4 = true }, 0);
    else if (!strcmp(type, "fp8_e4m3"))
        whole(r, &(nb_quant_form){ .bits = 8, .rows = 65536, .scale_bits = 32 }, 0);
}

static void read_fp8(reader *r, bool rows)
{
    uint64_t block[2] = { 0, 0 };
    size_t n = 0;
    nb_quant_form f = { .bits = 8, .rows = rows ? 1 : 65536, .scale_bits = 32 };
    if (!rows && nb_doc_has(r->doc, AT "weight_block_size")) {
        if (!nb_doc_u64s(r->doc, AT "weight_block_size", 65536, block, 2, &n) || n != 2 ||
            !block[0] || !block[1])
            return;
        f.rows = (size_t)block[0];
        f.cols = (size_t)block[1];
    }
    whole(r, &f, 0);
}

/* ---- together ---- */

static nb_status read_method(reader *r)
{
    if (is_method(r, "gptq") || is_method(r, "auto-round")) return read_gptq(r, false);
    if (is_method(r, "awq")) return read_gptq(r, true);
    if (is_method(r, "compressed-tensors")) return read_groups(r);
    if (is_method(r, "modelopt")) return read_modelopt(r);
    if (is_method(r, "quark")) read_quark(r);
    if (is_method(r, "fp8")) read_fp8(r, false);
    if (is_method(r, "fbgemm_fp8") || is_method(r, "w8a8_fp8") || is_method(r, "w8a8_int8"))
        read_fp8(r, true);
    if (is_method(r, "mxfp4"))
        nb_quant_rule_class(&r->rules, EXPERTS,
                            add_form(r->q, &(nb_quant_form){ .bits = 4, .rows = 1, .cols = 32, .scale_bits = 8,
                                                             .fp4 = true }));
    r->q->mixed |= is_method(r, "w4afp8");
    return NB_OK;
}

nb_status nb_quant_read(nb_doc *doc, const nb_quant_model *m, nb_quant *out, nb_quant_layer *layer,
                        nb_error *err)
{
    static const char *const lists[] = { AT "ignore", AT "modules_to_not_convert",
                                         AT "exclude_modules", AT "exclude", AT "ignored_layers" };
    const char *method = "";
    nb_quant q = { 0 };
    reader r = { .doc = doc, .q = &q, .rules.file = nb_doc_name(doc), .err = err };
    (void)nb_doc_str(doc, AT "quant_method", &method);
    show(method, q.method, sizeof q.method);
    nb_status st = is_method(&r, "gguf") ? read_gguf(&r, m, layer) : read_method(&r);
    if (st == NB_OK) st = nb_doc_check(doc, err);
    if (!is_method(&r, "gguf")) {
        for (size_t i = 0; i < NB_COUNT(lists) && st == NB_OK; i++) st = add_plain_list(&r, lists[i]);
        if (st == NB_OK) st = nb_quant_rules_apply(&r.rules, m, &q, layer, err);
    }
    nb_quant_rules_deinit(&r.rules);
    if (st == NB_OK) *out = q;
    return st;
}

nb_status nb_quant_read_file(nb_doc *doc, const nb_quant_model *m, nb_quant *out,
                             nb_quant_layer *layer, nb_error *err)
{
    const char *algo = "";
    nb_quant q = { .method = "modelopt" };
    reader r = { .doc = doc, .q = &q, .rules.file = nb_doc_name(doc), .err = err };
    *out = (nb_quant){ 0 };
    (void)nb_doc_str(doc, "quantization.quant_algo", &algo);
    NB_TRY(nb_doc_check(doc, err));
    if (!*algo) return NB_OK;
    nb_status st = modelopt_algo(&r, algo, "quantization.quantized_layers");
    if (st == NB_OK) st = add_plain_list(&r, "quantization.exclude_modules");
    if (st == NB_OK) st = nb_quant_rules_apply(&r.rules, m, &q, layer, err);
    nb_quant_rules_deinit(&r.rules);
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
        "compressed-tensors modelopt fbgemm_fp8 quark awq gptq auto-round w4afp8 w8a8_int8 w8a8_fp8 mxfp4 gguf";
    if (!in_words(methods, q->method))
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "%s: quantization_config.quant_method \"%s\" is not supported (expected: fp8 "
                       "%s)",
                       nb_doc_name(doc), q->method, methods);
    if (!strcmp(q->method, "gguf")) return NB_OK; /* each tensor is checked when it is taken */
    NB_TRY(check_fields(doc, q->method, err));
    if (q->n_form == 0 && !q->mixed)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "%s: quantization_config.quant_method \"%s\": does not say how the weights are "
                       "stored (expected: bits, config_groups or quant_algo)",
                       nb_doc_name(doc), q->method);
    for (size_t i = 0; i < q->n_form; i++)
        if (q->form[i].bits != 4 && q->form[i].bits != 8)
            return nb_fail(err, NB_ERR_UNSUPPORTED,
                           "%s: quantization_config: weights of %zu bits are not supported (expected: 4, 8)",
                           nb_doc_name(doc), q->form[i].bits);
    return NB_OK;
}

nb_status nb_quant_check_file(nb_doc *doc, nb_error *err)
{
    return check_fields(doc, "modelopt", err);
}

const nb_quant_form *nb_quant_main(const nb_quant *q)
{
    static const nb_quant_form none;
    size_t n[NB_QUANT_MAX_FORM + 1] = { 0 }, best = 1;
    for (int u = 0; u < NB_QU_COUNT; u++) n[q->of[u]]++;
    for (size_t k = 1; k <= q->n_form; k++)
        if (n[k] > n[best]) best = k;
    /* where there are experts, they are most of the model */
    if (q->of[NB_QU_EXPERT]) best = q->of[NB_QU_EXPERT];
    return q->n_form ? &q->form[best - 1] : &none;
}

nb_quant nb_quant_int4(bool experts)
{
    nb_quant q = { .method = "int4",
                   .form = { { .bits = 4, .rows = 1, .cols = 32, .scale_bits = 16 } },
                   .n_form = 1 };
    for (int u = 0; u < NB_QU_COUNT; u++)
        q.of[u] = (experts ? EXPERTS : NB_QU_LINEAR) >> u & 1;
    return q;
}

uint64_t nb_quant_bytes(const nb_quant_form *f, size_t n_row, size_t n_col)
{
    const uint64_t r = n_row, c = n_col;
    if (f->block) return r * ((c + f->block - 1) / f->block) * f->block_bytes;
    const uint64_t rows = (r + f->rows - 1) / f->rows;
    const uint64_t cols = f->cols ? (c + f->cols - 1) / f->cols : 1;
    const uint64_t words = (c * f->bits + 31) / 32;
    return r * words * 4 + (rows * cols * (f->scale_bits + f->zero_bits) + 7) / 8 + c * f->col_bytes;
}

void nb_quant_set_v4(const bool *dense, size_t n_layer, nb_quant *out, nb_quant_layer *layer)
{
    static const nb_quant_form fp8 = { .bits = 8, .rows = 128, .cols = 128, .scale_bits = 8,
                                       .name = "FP8" };
    static const nb_quant_form fp4 = { .bits = 4, .rows = 1, .cols = 32, .scale_bits = 8,
                                       .fp4 = true, .name = "MXFP4" };
    *out = (nb_quant){ .method = "fp8", .runs = true };
    const unsigned char eight = add_form(out, &fp8), four = add_form(out, &fp4);
    for (size_t i = 0; i < n_layer; i++)
        for (int u = 0; u < NB_QU_COUNT; u++) {
            const unsigned bit = NB_QU_BIT(u);
            layer[i].form[u] = bit & EXPERTS ? four : bit & NB_QU_LINEAR ? eight : 0;
        }
    nb_quant_summarise(out, dense, n_layer, layer);
}
