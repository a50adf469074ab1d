/* test_kv_scales.c - what checkpoints say of their KV cache: ModelOpt's files for the type, all
 * spellings of the scales' names, scales that are none; and the engine with such a checkpoint. */
#include "engine_testing.h"

#include <jansson.h>
#include <math.h>

#include "engine/engine_internal.h"
#include "load/kv_scales.h"
#include "num/bf16.h"
#include "num/fp16.h"

/* ---- the type ---- */

static void write_file(const tmp_dir *t, const char *name, const char *text)
{
    tmp_write(t, name, nb_str_c(text));
}

static const struct algo_case {
    const char *own, *config; /* hf_quant_config.json, config.json; NULL: no such file */
    nb_status st;
    nb_kv_algo algo;
    const char *words; /* in the error's line */
} algo_cases[] = {
    { NULL, NULL, NB_OK, NB_KV_ALGO_NONE, NULL },
    { NULL, "{}", NB_OK, NB_KV_ALGO_NONE, NULL },
    { "{}", "{}", NB_OK, NB_KV_ALGO_NONE, NULL },
    { "{\"producer\":{\"name\":\"modelopt\"},\"quantization\":{\"quant_algo\":null,"
      "\"kv_cache_quant_algo\":\"FP8\"}}",
      NULL, NB_OK, NB_KV_ALGO_FP8, NULL },
    { "{\"quantization\":{\"kv_cache_quant_algo\":\"NVFP4\"}}", NULL, NB_OK, NB_KV_ALGO_NVFP4,
      NULL },
    { "{\"quantization\":{\"kv_cache_quant_algo\":null}}", NULL, NB_OK, NB_KV_ALGO_NONE, NULL },
    { "{\"quantization\":{\"quant_algo\":\"FP8_PB_WO\",\"kv_cache_quant_algo\":\"FP8\"}}", NULL,
      NB_OK, NB_KV_ALGO_FP8, NULL },
    { "{\"quantization\":{\"kv_cache_quant_algo\":\"INT8\"}}", NULL, NB_ERR_UNSUPPORTED, 0,
      "INT8" },
    { "{\"quantization\":{\"kv_cache_quant_algo\":\"NVFP4_AFFINE\"}}", NULL, NB_ERR_UNSUPPORTED, 0,
      "NVFP4_AFFINE" },
    { "{\"quantization\":{\"kv_cache_quant_algo\":\"\"}}", NULL, NB_ERR_UNSUPPORTED, 0,
      "kv_cache_quant_algo" },
    { "{\"quantization\":{\"kv_cache_quant_algo\":8}}", NULL, NB_ERR_FORMAT, 0,
      "kv_cache_quant_algo" },
    { "{\"quantization\":[]}", NULL, NB_ERR_FORMAT, 0, "quantization" },
    { "{\"quantization\":{\"quant_algo\":\"NVFP4\",\"kv_cache_quant_algo\":\"FP8\"}}", NULL, NB_OK,
      NB_KV_ALGO_FP8, NULL },
    { "{", NULL, NB_ERR_FORMAT, 0, "hf_quant_config.json" },
    { "[]", NULL, NB_ERR_FORMAT, 0, "hf_quant_config.json" },
    /* config.json */
    { NULL, "{\"quantization_config\":{\"kv_cache_scheme\":\"NVFP4\"}}", NB_OK, NB_KV_ALGO_NVFP4,
      NULL },
    { NULL,
      "{\"quantization_config\":{\"kv_cache_scheme\":{\"dynamic\":false,\"num_bits\":8,\"type\":"
      "\"float\"}}}",
      NB_OK, NB_KV_ALGO_FP8, NULL },
    { NULL, "{\"quantization_config\":{\"kv_cache_scheme\":null}}", NB_OK, NB_KV_ALGO_NONE, NULL },
    { NULL,
      "{\"text_config\":{\"quantization_config\":{\"kv_cache_scheme\":{\"num_bits\":8,\"type\":"
      "\"float\"}}}}",
      NB_OK, NB_KV_ALGO_FP8, NULL },
    { NULL,
      "{\"text_config\":{\"quantization_config\":{\"kv_cache_scheme\":\"NVFP4\"}},"
      "\"quantization_config\":{\"kv_cache_scheme\":null}}",
      NB_OK, NB_KV_ALGO_NVFP4, NULL },
    { NULL, "{\"text_config\":{},\"quantization_config\":{\"kv_cache_scheme\":\"NVFP4\"}}", NB_OK,
      NB_KV_ALGO_NVFP4, NULL },
    { NULL, "{\"text_config\":{\"quantization_config\":{\"kv_cache_scheme\":\"INT8\"}}}",
      NB_ERR_UNSUPPORTED, 0, "INT8" },
    { NULL, "{\"quantization_config\":null}", NB_OK, NB_KV_ALGO_NONE, NULL },
    { NULL, "{\"quantization_config\":{\"kv_cache_scheme\":{\"num_bits\":8,\"type\":\"int\"}}}",
      NB_ERR_UNSUPPORTED, 0, "int with 8 bits" },
    { NULL, "{\"quantization_config\":{\"kv_cache_scheme\":{\"num_bits\":4}}}", NB_ERR_UNSUPPORTED,
      0, "4 bits" },
    { NULL, "{\"quantization_config\":{\"kv_cache_scheme\":{}}}", NB_ERR_UNSUPPORTED, 0,
      "kv_cache_scheme" },
    { NULL, "{\"quantization_config\":{\"kv_cache_scheme\":{\"num_bits\":\"8\"}}}", NB_ERR_FORMAT,
      0, "num_bits" },
    { NULL, "{\"quantization_config\":{\"kv_cache_scheme\":{\"num_bits\":8,\"type\":3}}}",
      NB_ERR_FORMAT, 0, "type" },
    { NULL, "{\"quantization_config\":{\"kv_cache_scheme\":5}}", NB_ERR_FORMAT, 0,
      "kv_cache_scheme" },
    { NULL, "{\"quantization_config\":{\"kv_cache_scheme\":\"INT8\"}}", NB_ERR_UNSUPPORTED, 0,
      "INT8" },
    /* both: the file of its own decides */
    { "{\"quantization\":{\"kv_cache_quant_algo\":\"NVFP4\"}}",
      "{\"quantization_config\":{\"kv_cache_scheme\":\"FP8\"}}", NB_OK, NB_KV_ALGO_NVFP4, NULL },
    { "{\"quantization\":{}}", "{\"quantization_config\":{\"kv_cache_scheme\":\"FP8\"}}", NB_OK,
      NB_KV_ALGO_FP8, NULL },
};

static void test_algo(void **state)
{
    (void)state;
    for (size_t i = 0; i < NB_COUNT(algo_cases); i++) {
        const struct algo_case *c = &algo_cases[i];
        tmp_dir t;
        nb_kv_algo algo = (nb_kv_algo)99;
        nb_error err = { 0 };
        tmp_open(&t);
        if (c->own) write_file(&t, "hf_quant_config.json", c->own);
        if (c->config) write_file(&t, "config.json", c->config);
        const nb_status st = nb_kv_algo_read(t.path, &algo, &err);
        if (st != c->st || (st == NB_OK && algo != c->algo))
            fail_msg("%s %s: status %d, type %d: %s", c->own ? c->own : "-",
                     c->config ? c->config : "-", st, (int)algo, err.msg);
        if (st != NB_OK) {
            check_line(&err, st, c->words);
            assert_int_equal(algo, 99);
            assert_non_null(strstr(err.msg, t.path));
            assert_int_equal(nb_kv_algo_read(t.path, &algo, NULL), st);
        }
        tmp_close(&t);
    }
}

/* ---- the scales ---- */

typedef struct entry {
    const char *name, *dtype, *shape; /* "F32", "[1]" */
    double value;                     /* of its first element; the others are 1 */
} entry;

static void put_value(nb_buf *b, const char *dtype, double x)
{
    const float f = (float)x;
    uint16_t h = !strcmp(dtype, "BF16") ? nb_bf16_from_f32(f) : nb_fp16_from_f32(f);
    if (!strcmp(dtype, "F32"))
        assert_int_equal(nb_buf_add(b, &f, sizeof f), NB_OK);
    else if (!strcmp(dtype, "F64"))
        assert_int_equal(nb_buf_add(b, &x, sizeof x), NB_OK);
    else
        assert_int_equal(nb_buf_add(b, &h, sizeof h), NB_OK);
}

static size_t n_elements(const char *shape)
{
    size_t n = 1;
    for (const char *p = shape; *p; p++)
        if (*p >= '0' && *p <= '9') {
            n *= (size_t)strtoul(p, NULL, 10);
            while (p[1] >= '0' && p[1] <= '9') p++;
        }
    return n;
}

/* A safetensors file of these, and of `more` bytes of header and data behind them. */
static void build(nb_buf *out, const entry *e, size_t n)
{
    nb_buf head = { 0 }, data = { 0 };
    assert_int_equal(nb_buf_add_c(&head, "{"), NB_OK);
    for (size_t i = 0; i < n; i++) {
        const size_t from = data.n_bytes, n_el = n_elements(e[i].shape);
        for (size_t k = 0; k < n_el; k++) put_value(&data, e[i].dtype, k ? 1 : e[i].value);
        assert_int_equal(nb_buf_printf(&head,
                                       "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,"
                                       "\"data_offsets\":[%zu,%zu]}",
                                       i ? "," : "", e[i].name, e[i].dtype, e[i].shape, from,
                                       data.n_bytes),
                         NB_OK);
    }
    assert_int_equal(nb_buf_add_c(&head, "}"), NB_OK);
    out->n_bytes = 0;
    for (int i = 0; i < 8; i++)
        assert_int_equal(nb_buf_add_ch(out, (char)((uint64_t)head.n_bytes >> 8 * i & 0xff)), NB_OK);
    assert_int_equal(nb_buf_add_str(out, nb_buf_view(&head)), NB_OK);
    assert_int_equal(nb_buf_add_str(out, nb_buf_view(&data)), NB_OK);
    nb_buf_deinit(&head);
    nb_buf_deinit(&data);
}

static nb_status read_scales(const entry *e, size_t n, size_t n_layer, nb_kv_scale *out,
                             size_t *n_found, nb_error *err)
{
    nb_buf b = { 0 };
    nb_source *s = NULL;
    build(&b, e, n);
    if (nb_source_open_bytes(nb_buf_view(&b), "bytes", &s, err) != NB_OK) fail_msg("%s", err->msg);
    const nb_status st = nb_kv_scales_read(s, n_layer, out, n_found, err);
    nb_source_close(s);
    nb_buf_deinit(&b);
    return st;
}

static void test_names(void **state)
{
    (void)state;
    static const struct {
        const char *k, *v; /* below layer 1; v NULL: one name for both */
    } names[] = {
        { "self_attn.k_proj.k_scale", "self_attn.v_proj.v_scale" },
        { "self_attn.qkv_proj.k_scale", "self_attn.qkv_proj.v_scale" },
        { "self_attn.attn.k_scale", "self_attn.attn.v_scale" },
        { "self_attn.mla_attn.mla_attn.k_scale", "self_attn.mla_attn.mla_attn.v_scale" },
        { "self_attn.k_scale", "self_attn.v_scale" },
        { "self_attn.k_cache.scale", "self_attn.v_cache.scale" },
        { "mixer.k_proj.k_scale", "mixer.v_proj.v_scale" },
        { "self_attn.kv_scale", NULL },
        { "self_attn.attn.kv_scale", NULL },
    };
    static const char *const shapes[] = { "[]", "[1]", "[1,1]" };
    static const char *const types[] = { "F32", "BF16", "F16" };
    for (size_t i = 0; i < NB_COUNT(names) * 9; i++) {
        char k[96], v[96];
        nb_kv_scale s[3];
        nb_error err = { 0 };
        size_t n_found = 0;
        const bool both = names[i / 9].v == NULL;
        (void)snprintf(k, sizeof k, "model.layers.1.%s", names[i / 9].k);
        (void)snprintf(v, sizeof v, "model.layers.1.%s", both ? "zero_point" : names[i / 9].v);
        const entry e[] = { { "model.layers.1.self_attn.k_proj.weight", "F32", "[2,2]", 1 },
                            { k, types[i % 3], shapes[i / 3 % 3], 0.5 },
                            { v, types[i % 3], shapes[i / 3 % 3], 0.25 } };
        if (read_scales(e, 3, 3, s, &n_found, &err) != NB_OK) fail_msg("%s: %s", k, err.msg);
        assert_int_equal(n_found, 1);
        assert_true(s[0].k == 0 && s[0].v == 0 && s[2].k == 0 && s[2].v == 0);
        assert_true(s[1].k == 0.5f && s[1].v == (both ? 0.5f : 0.25f));
    }
}

static void test_precedence(void **state)
{
    (void)state;
    const entry e[] = { { "model.layers.0.self_attn.kv_scale", "F32", "[]", 3 },
                        { "model.layers.0.self_attn.k_proj.k_scale", "F32", "[]", 2 },
                        { "model.layers.0.self_attn.attn.k_scale", "F32", "[]", 7 },
                        { "model.layers.10.self_attn.k_scale", "F32", "[]", 5 } };
    nb_kv_scale s[11];
    nb_error err = { 0 };
    size_t n_found = 0;
    assert_int_equal(read_scales(e, 4, 11, s, &n_found, &err), NB_OK);
    assert_int_equal(n_found, 2);
    assert_true(s[0].k == 2 && s[0].v == 3 && s[10].k == 5 && s[10].v == 0 && s[1].k == 0);
    assert_int_equal(read_scales(e, 4, 1, s, &n_found, &err), NB_OK);
    assert_int_equal(n_found, 1);
    assert_int_equal(read_scales(e, 0, 2, s, &n_found, &err), NB_OK);
    assert_int_equal(n_found, 0);
}

static void test_bad_scales(void **state)
{
    (void)state;
    static const entry bad[] = {
        { "model.layers.0.self_attn.k_proj.k_scale", "F32", "[]", 0 },
        { "model.layers.0.self_attn.k_proj.k_scale", "F32", "[1]", -1 },
        { "model.layers.0.self_attn.v_proj.v_scale", "F32", "[1]", NAN },
        { "model.layers.0.self_attn.v_proj.v_scale", "BF16", "[1]", NAN },
        { "model.layers.0.self_attn.kv_scale", "F16", "[1]", INFINITY },
        { "model.layers.0.self_attn.kv_scale", "F16", "[1]", 1e-12 }, /* 0 in F16 */
        { "model.layers.0.self_attn.k_scale", "F32", "[2]", 1 },
        { "model.layers.0.self_attn.k_scale", "F32", "[0]", 1 },
        { "model.layers.0.self_attn.k_scale", "F32", "[1,2]", 1 },
        { "model.layers.0.self_attn.k_scale", "F64", "[]", 1 },
    };
    for (size_t i = 0; i < NB_COUNT(bad); i++) {
        nb_kv_scale s[1];
        nb_error err = { 0 };
        size_t n_found = 77;
        const nb_status st = read_scales(&bad[i], 1, 1, s, &n_found, &err);
        check_line(&err, st, bad[i].name);
        assert_int_equal(st, NB_ERR_FORMAT);
        assert_int_equal(n_found, 77);
    }
}

/* ---- in the engine ---- */

static char *slurp(const char *path, size_t *n)
{
    nb_buf b = { 0 };
    nb_error err;
    if (nb_file_read(path, 1 << 28, &b, &err) != NB_OK) fail_msg("%s", err.msg);
    *n = b.n_bytes;
    return b.p;
}

/* A copy of a model of tests/parity with a quantization_config and scales: its weights in one file,
 * the scales in another, and an index that names both. */
static void make_checkpoint(tmp_dir *t, const char *from, const char *quant, const entry *e,
                            size_t n)
{
    char path[700];
    size_t n_bytes = 0;
    json_error_t je;
    nb_buf b = { 0 };
    tmp_open(t);
    (void)snprintf(path, sizeof path, "%s/config.json", in_source(from));
    json_t *c = json_load_file(path, 0, &je), *map = json_object(), *index = NULL;
    assert_non_null(c);
    if (quant)
        assert_int_equal(
            json_object_set_new(c, "quantization_config", json_loads(quant, JSON_DECODE_ANY, &je)),
            0);
    char *text = json_dumps(c, 0);
    write_file(t, "config.json", text);
    free(text);
    json_decref(c);
    (void)snprintf(path, sizeof path, "%s/model.safetensors", in_source(from));
    char *weights = slurp(path, &n_bytes);
    tmp_write(t, "a.safetensors", (nb_str){ weights, n_bytes });
    uint64_t head = 0;
    memcpy(&head, weights, 8);
    json_t *names = json_loadb(weights + 8, (size_t)head, 0, &je);
    const char *key;
    json_t *v;
    json_object_foreach(names, key, v) if (strcmp(key, "__metadata__") != 0)
        assert_int_equal(json_object_set_new(map, key, json_string("a.safetensors")), 0);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(json_object_set_new(map, e[i].name, json_string("b.safetensors")), 0);
    build(&b, e, n);
    tmp_write(t, "b.safetensors", nb_buf_view(&b));
    index = json_pack("{so}", "weight_map", map);
    text = json_dumps(index, 0);
    write_file(t, "model.safetensors.index.json", text);
    free(text);
    free(weights);
    json_decref(names);
    json_decref(index);
    nb_buf_deinit(&b);
}

static const char nvfp4_cache[] =
    "{\"quant_method\":\"modelopt\",\"quant_algo\":null,\"kv_cache_scheme\":\"NVFP4\"}";
static const char fp8_cache[] =
    "{\"quant_method\":\"modelopt\",\"kv_cache_scheme\":{\"dynamic\":false,\"num_bits\":8,"
    "\"type\":\"float\"}}";

static nb_engine *open_model(const tmp_dir *t, nb_engine_options o)
{
    o.model = t->path;
    o.no_text = true;
    o.n_thread = 1;
    o.max_model_len = 128;
    return make_engine(&o);
}

static void refused(const tmp_dir *t, nb_engine_options o, nb_status want, const char *words)
{
    nb_engine *e = NULL;
    nb_error err = { 0 };
    o.model = t->path;
    o.no_text = true;
    const nb_status st = nb_engine_create(&o, &e, &err);
    if (st != want) fail_msg("status %d, expected %d with '%s': %s", st, want, words, err.msg);
    check_line(&err, st, words);
}

static void generates(nb_engine *e)
{
    static gen g;
    uint32_t id[70];
    const nb_sampling s = greedy(4);
    random_ids(id, 70, vocab_of(e), 1);
    run_gen(e, id, 70, &s, &g);
    gen_reset(&g);
}

static void check_scales(const tmp_dir *t, nb_engine_options o, const char *dtype,
                         const nb_kv_scale *want, const char *warning)
{
    nb_engine_info info;
    nb_engine *e = open_model(t, o);
    nb_engine_get_info(e, &info);
    assert_string_equal(info.kv_dtype, dtype);
    if (!want != !e->kvo.scale) fail_msg("%s: scales %s", dtype, want ? "missing" : "unwanted");
    for (size_t i = 0; want && i < e->model.c.n_layer; i++)
        if (e->kvo.scale[i].k != want[i].k || e->kvo.scale[i].v != want[i].v)
            fail_msg("layer %zu: %g %g", i, (double)e->kvo.scale[i].k, (double)e->kvo.scale[i].v);
    if (warning && !strstr(info.warnings, warning))
        fail_msg("no '%s' in '%s'", warning, info.warnings);
    if (!warning) assert_null(strstr(info.warnings, "scale"));
    generates(e);
    nb_engine_destroy(e);
}

#define K(i) "model.layers." #i ".self_attn.k_proj.k_scale"
#define V(i) "model.layers." #i ".self_attn.v_proj.v_scale"

static void test_engine_mla(void **state)
{
    (void)state;
    static const entry e[] = { { K(0), "F32", "[]", 0.02 },
                               { V(0), "F32", "[]", 0.01 },
                               { K(1), "F32", "[1]", 0.02 },
                               { V(1), "BF16", "[]", 0.03125 },
                               { K(2), "F32", "[]", 0.5 } };
    static const nb_kv_scale want[] = { { 0.02f, 0.02f }, { 0.03125f, 0.03125f }, { 0.5f, 0.5f } };
    tmp_dir t;
    const nb_engine_options none = { 0 };
    make_checkpoint(&t, "tests/parity/v3", fp8_cache, e, NB_COUNT(e));
    check_scales(&t, none, "fp8", want, NULL);
    check_scales(&t, (nb_engine_options){ .kv_scales = "checkpoint" }, "fp8", want, NULL);
    check_scales(&t, (nb_engine_options){ .kv_scales = "dynamic" }, "fp8", NULL, NULL);
    check_scales(&t, (nb_engine_options){ .kv_cache_dtype = "bf16" }, "bf16", NULL, NULL);
    check_scales(&t, (nb_engine_options){ .kv_cache_dtype = "nvfp4" }, "nvfp4", NULL, NULL);
    refused(&t, (nb_engine_options){ .kv_cache_dtype = "nvfp4", .kv_scales = "checkpoint" },
            NB_ERR_ARG, "--kv-cache-dtype fp8");
    refused(&t, (nb_engine_options){ .kv_scales = "static" }, NB_ERR_ARG, "static");
    tmp_close(&t);
    make_checkpoint(&t, "tests/parity/v3", nvfp4_cache, e, NB_COUNT(e));
    check_scales(&t, none, "nvfp4", want, NULL);
    check_scales(&t, (nb_engine_options){ .kv_cache_dtype = "fp8" }, "fp8", NULL, NULL);
    tmp_close(&t);
    make_checkpoint(&t, "tests/parity/v3", fp8_cache, e, 2); /* layers 1 and 2 without */
    static const nb_kv_scale first[3] = { { 0.02f, 0.02f } };
    check_scales(&t, none, "fp8", first, "layer 1");
    refused(&t, (nb_engine_options){ .kv_scales = "checkpoint" }, NB_ERR_NOT_FOUND, "layer 1");
    tmp_close(&t);
    make_checkpoint(&t, "tests/parity/v3", NULL, e, NB_COUNT(e)); /* old: no type named, FP8 */
    check_scales(&t, none, "bf16", NULL, NULL);
    check_scales(&t, (nb_engine_options){ .kv_cache_dtype = "fp8" }, "fp8", want, NULL);
    tmp_close(&t);
}

/* A scale that is far too small cuts values off, and the engine says how many. */
static void test_saturation(void **state)
{
    (void)state;
    static const entry tiny[] = { { K(0), "F32", "[]", 1e-6 },
                                  { K(1), "F32", "[]", 1 },
                                  { K(2), "F32", "[]", 1 } };
    static const entry fit[] = { { K(0), "F32", "[]", 1 },
                                 { K(1), "F32", "[]", 1 },
                                 { K(2), "F32", "[]", 1 } };
    const entry *const of[] = { tiny, fit };
    for (size_t i = 0; i < NB_COUNT(of); i++) {
        tmp_dir t;
        nb_engine_stats s;
        make_checkpoint(&t, "tests/parity/v3", fp8_cache, of[i], 3);
        nb_engine *e = open_model(&t, (nb_engine_options){ 0 });
        generates(e);
        nb_engine_get_stats(e, &s);
        if (i == 0)
            assert_true(s.n_saturated > 1000); /* nearly all of the page in layer 0 */
        else
            assert_int_equal(s.n_saturated, 0);
        nb_engine_destroy(e);
        tmp_close(&t);
    }
}

static void test_engine_odd(void **state)
{
    (void)state;
    static const entry ones[] = { { K(0), "F32", "[]", 1 },
                                  { K(1), "F32", "[]", 1 },
                                  { K(2), "F32", "[]", 0.5 } };
    static const entry zero[] = { { K(1), "F32", "[]", 0 } };
    static const nb_kv_scale want[] = { { 1, 1 }, { 1, 1 }, { 0.5f, 0.5f } };
    tmp_dir t;
    make_checkpoint(&t, "tests/parity/v3", nvfp4_cache, ones, 3);
    check_scales(&t, (nb_engine_options){ 0 }, "nvfp4", want, "exactly 1");
    tmp_close(&t);
    make_checkpoint(&t, "tests/parity/v3", fp8_cache, ones, 3); /* what FP8 exports at least */
    check_scales(&t, (nb_engine_options){ 0 }, "fp8", want, NULL);
    tmp_close(&t);
    make_checkpoint(&t, "tests/parity/v3", fp8_cache, zero, 1);
    refused(&t, (nb_engine_options){ 0 }, NB_ERR_FORMAT, "k_proj.k_scale");
    check_scales(&t, (nb_engine_options){ .kv_scales = "dynamic" }, "fp8", NULL, NULL);
    tmp_close(&t);
    make_checkpoint(&t, "tests/parity/v3", fp8_cache, zero, 0); /* DeepSeek's: a type, no scales */
    check_scales(&t, (nb_engine_options){ 0 }, "fp8", NULL, NULL);
    refused(&t, (nb_engine_options){ .kv_scales = "checkpoint" }, NB_ERR_NOT_FOUND, "layer 0");
    tmp_close(&t);
    make_checkpoint(&t, "tests/parity/v3",
                    "{\"quant_method\":\"modelopt\",\"kv_cache_scheme\":\"INT8\"}", zero, 0);
    refused(&t, (nb_engine_options){ 0 }, NB_ERR_UNSUPPORTED, "INT8");
    check_scales(&t, (nb_engine_options){ .kv_scales = "dynamic" }, "bf16", NULL, NULL);
    write_file(&t, "hf_quant_config.json",
               "{\"quantization\":{\"quant_algo\":\"W4A8_AWQ\",\"kv_cache_quant_algo\":\"FP8\"}}");
    refused(&t, (nb_engine_options){ 0 }, NB_ERR_UNSUPPORTED, "W4A8_AWQ");
    write_file(&t, "hf_quant_config.json", "{\"quantization\":{\"kv_cache_quant_algo\":\"FP8\"}}");
    refused(&t, (nb_engine_options){ .kv_scales = "checkpoint", .load_format = "dummy" },
            NB_ERR_ARG, "dummy");
    tmp_close(&t);
}

static void test_engine_gqa(void **state)
{
    (void)state;
    static const entry e[] = { { K(0), "F32", "[]", 0.02 }, { V(0), "F32", "[]", 0.01 },
                               { K(1), "F32", "[]", 0.02 }, { V(1), "F32", "[]", 0.04 },
                               { K(2), "F32", "[]", 0.5 },  { V(2), "F32", "[]", 0.25 } };
    static const nb_kv_scale want[] = { { 0.02f, 0.01f }, { 0.02f, 0.04f }, { 0.5f, 0.25f } };
    tmp_dir t;
    make_checkpoint(&t, "tests/parity/llama3", fp8_cache, e, NB_COUNT(e));
    check_scales(&t, (nb_engine_options){ .kv_scales = "checkpoint" }, "fp8", want, NULL);
    tmp_close(&t);
    make_checkpoint(&t, "tests/parity/llama3", nvfp4_cache, e, 5); /* the last value's is missing */
    refused(&t, (nb_engine_options){ .kv_scales = "checkpoint" }, NB_ERR_NOT_FOUND, "layer 2");
    tmp_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_algo),       cmocka_unit_test(test_names),
        cmocka_unit_test(test_precedence), cmocka_unit_test(test_bad_scales),
        cmocka_unit_test(test_engine_mla), cmocka_unit_test(test_saturation),
        cmocka_unit_test(test_engine_odd),
        cmocka_unit_test(test_engine_gqa),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
