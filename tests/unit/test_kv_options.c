/* test_kv_options.c - --kv-calibration and --kv-transform in the engine: what they come to, that
 * the transformed model answers as the plain one, and every refusal's line. */
#include "engine_testing.h"

#include <math.h>

#include "engine/engine_internal.h"
#include "model/fold.h"

static const char tiny[] = "tests/parity/v3_moonlight", gqa[] = "tests/parity/llama3";
enum { N_TOK = 70, MAX_VALUES = 512, MAX_PAIRS = 64 };

/* ---- calibration files ---- */

typedef struct calib {
    nb_kv_calib c;
    nb_kv_calib_layer layer[8];
    float mean[MAX_VALUES], sd[MAX_VALUES], amax[MAX_VALUES], pair[MAX_PAIRS];
    int8_t scale_log2[MAX_VALUES];
    uint16_t perm[MAX_VALUES];
} calib;

/* Made up, of the model's shape and with its hash. */
static void make_calib(calib *k, const char *model)
{
    nb_engine *e = simple_engine(model, "f32");
    const nb_model_config *c = &e->model.c;
    const bool mla = c->attn[0].kind == NB_ATTN_MLA;
    const size_t n = mla ? c->attn[0].kv_lora : c->attn[0].n_kv_head * c->attn[0].head_dim;
    nb_error err = { 0 };
    *k = (calib){ 0 };
    k->c = (nb_kv_calib){
        .is_mla = mla, .n_layer = c->n_layer, .n_tok = 1, .layer = k->layer, .mean_bits = 4
    };
    (void)snprintf(k->c.family, sizeof k->c.family, "%s", c->family);
    if (nb_model_hash(&e->model, k->c.model_hash, &err) != NB_OK) fail_msg("%s", err.msg);
    assert_true(n <= MAX_VALUES && c->n_layer <= 8 && c->attn[0].d_rope / 2 <= MAX_PAIRS);
    for (size_t i = 0; i < n; i++) {
        k->mean[i] = (float)((double)(nb_rng_u64(5, i) % 1000) / 500 - 1);
        k->sd[i] = k->amax[i] = 1;
        k->scale_log2[i] = (int8_t)((int)(i % 3) - 1);
        k->perm[i] = (uint16_t)((i + 5) % n);
    }
    for (size_t i = 0; i < c->n_layer; i++)
        k->layer[i] = (nb_kv_calib_layer){ .n_values = n,
                                           .mean = k->mean,
                                           .sd = k->sd,
                                           .amax = k->amax,
                                           .token_amax = 1,
                                           .n_pair = mla ? c->attn[0].d_rope / 2 : 0,
                                           .pair_max = mla ? k->pair : NULL,
                                           .pair_mean = mla ? k->pair : NULL,
                                           .scale_log2 = mla ? k->scale_log2 : NULL,
                                           .perm = mla ? k->perm : NULL,
                                           .hadamard = mla ? 16 : 0,
                                           .bits = 4 };
    nb_engine_destroy(e);
}

static void write_calib(const tmp_dir *t, const calib *k, char path[600])
{
    nb_error err = { 0 };
    (void)snprintf(path, 600, "%s/calib.json", t->path);
    if (nb_kv_calib_write(&k->c, path, &err) != NB_OK) fail_msg("%s", err.msg);
}

static nb_engine_options options(const char *model, const char *path, const char *transform)
{
    return (nb_engine_options){ .model = in_source(model),
                                .kv_calibration = path,
                                .kv_transform = transform,
                                .kv_cache_dtype = "f32",
                                .no_text = true,
                                .max_model_len = 128,
                                .n_thread = 1 };
}

static void refused(nb_engine_options o, nb_status want, const char *words)
{
    nb_engine *e = NULL;
    nb_error err = { 0 };
    const size_t n_open = n_open_files();
    const nb_status st = nb_engine_create(&o, &e, &err);
    if (st != want) fail_msg("status %d, expected %d with '%s': %s", st, want, words, err.msg);
    check_line(&err, st, words);
    assert_null(e);
    assert_int_equal(n_open_files(), n_open);
}

/* ---- what they come to ---- */

static float *run_logits(const nb_engine_options *o, size_t *n_vocab, const char *transform)
{
    uint32_t id[N_TOK];
    static const size_t row[] = { 3, 64, N_TOK - 1 };
    nb_engine_info info;
    nb_engine *e = make_engine(o);
    nb_engine_get_info(e, &info);
    if (strcmp(info.kv_transform, transform) != 0)
        fail_msg("transform is %s, expected %s", info.kv_transform, transform);
    *n_vocab = info.vocab;
    random_ids(id, N_TOK, info.vocab, 8);
    float *x = logits_at(e, id, N_TOK, row, 3);
    nb_engine_destroy(e);
    return x;
}

static void same_logits(const nb_engine_options *o, const float *plain, const char *transform,
                        bool same_bits)
{
    size_t n_vocab = 0;
    double big = 0, diff = 0;
    float *x = run_logits(o, &n_vocab, transform);
    for (size_t i = 0; i < 3 * n_vocab; i++) {
        big = fmax(big, fabs((double)plain[i]));
        diff = fmax(diff, fabs((double)plain[i] - (double)x[i]));
    }
    if (!(diff <= 1e-5 * big)) fail_msg("%s: off by %.3g of %.3g", transform, diff, big);
    assert_int_equal(same_floats(x, plain, 3 * n_vocab), same_bits);
    free(x);
}

static void test_transforms(void **state)
{
    (void)state;
    static calib k;
    tmp_dir t;
    char path[600];
    size_t n_vocab = 0;
    tmp_open(&t);
    make_calib(&k, tiny);
    write_calib(&t, &k, path);
    nb_engine_options o = options(tiny, NULL, NULL);
    float *plain = run_logits(&o, &n_vocab, "none");
    static const char *const names[] = {
        "center",          "equalize",          "center+equalize",
        "center+hadamard", "equalize+hadamard", "center+equalize+hadamard"
    };
    for (size_t i = 0; i < NB_COUNT(names); i++) {
        o = options(tiny, path, names[i]);
        same_logits(&o, plain, names[i], false);
    }
    o = options(tiny, NULL, "hadamard");
    same_logits(&o, plain, "hadamard", false);
    o = options(tiny, path, "hadamard+center"); /* any order */
    same_logits(&o, plain, "center+hadamard", false);
    o = options(tiny, NULL, "none");
    same_logits(&o, plain, "none", true);
    o = options(tiny, path, "none"); /* the file is read, its choice is not taken */
    same_logits(&o, plain, "none", true);
    o = options(tiny, path, NULL); /* the file's choice: nothing */
    same_logits(&o, plain, "none", true);
    k.layer[0].use_center = k.layer[2].use_hadamard = true;
    write_calib(&t, &k, path);
    same_logits(&o, plain, "per layer", false);
    o.kv_transform = "";
    same_logits(&o, plain, "per layer", false);
    o.kv_transform = "none";
    same_logits(&o, plain, "none", true);
    for (size_t i = 0; i < 8; i++) k.layer[i].use_center = k.layer[i].use_equalize = true;
    k.layer[2].use_hadamard = false;
    write_calib(&t, &k, path);
    o.kv_transform = NULL;
    same_logits(&o, plain, "center+equalize", false);
    free(plain);
    tmp_close(&t);
}

static void layout_of(const nb_engine_options *o, nb_kv_type type, nb_seg_fmt rope, size_t n_out)
{
    nb_engine *e = make_engine(o);
    const nb_record_seg *g = &e->pages.record[0].seg[1];
    assert_int_equal(e->pages.record[0].type, type);
    assert_int_equal(g->fmt, rope);
    assert_int_equal(g->n_outlier, n_out);
    for (size_t i = 0; i < n_out; i++) assert_int_equal(g->outlier[i], 4 * i + 1);
    nb_engine_info info;
    nb_engine_get_info(e, &info);
    assert_int_equal(strstr(info.kv_layout, "rope int8 64x") != NULL, rope == NB_SEG_INT8);
    assert_int_equal(strstr(info.kv_layout, "rope outliers 64x4") != NULL, n_out != 0);
    nb_engine_destroy(e);
}

/* The rope key's format and its values in BF16, from a file and over it. */
static void test_rope(void **state)
{
    (void)state;
    static calib k;
    tmp_dir t;
    char path[600];
    tmp_open(&t);
    make_calib(&k, tiny);
    nb_engine_options o = options(tiny, NULL, NULL);
    o.kv_cache_dtype = "nvfp4";
    layout_of(&o, NB_KV_NVFP4, NB_SEG_INT8, 0);
    o.kv_rope_dtype = "fp8";
    layout_of(&o, NB_KV_NVFP4, NB_SEG_E4M3, 0);
    o.kv_rope_dtype = "int8";
    layout_of(&o, NB_KV_NVFP4, NB_SEG_INT8, 0);
    o.kv_cache_dtype = "fp8";
    layout_of(&o, NB_KV_FP8, NB_SEG_INT8, 0);
    o.kv_cache_dtype = "bf16";
    layout_of(&o, NB_KV_BF16, NB_SEG_BF16, 0);
    for (size_t i = 0; i < k.c.n_layer; i++) {
        k.layer[i].rope = NB_ROPE_INT8;
        k.layer[i].n_rope_outlier = 2;
        k.layer[i].rope_outlier[0] = 1;
        k.layer[i].rope_outlier[1] = 5;
        (void)snprintf(k.layer[i].kv_dtype, sizeof k.layer[i].kv_dtype, "mxfp4");
    }
    write_calib(&t, &k, path);
    o = options(tiny, path, NULL);
    o.kv_cache_dtype = "auto";
    layout_of(&o, NB_KV_MXFP4, NB_SEG_INT8, 2);
    o.kv_rope_dtype = "fp8";
    layout_of(&o, NB_KV_MXFP4, NB_SEG_E4M3, 2);
    o.kv_rope_dtype = "bf16"; /* has no use for outliers */
    layout_of(&o, NB_KV_MXFP4, NB_SEG_BF16, 0);
    o.kv_rope_dtype = NULL;
    o.kv_cache_dtype = "nvfp4"; /* a named type takes outliers of the file, not its formats */
    layout_of(&o, NB_KV_NVFP4, NB_SEG_INT8, 2);
    o.kv_cache_dtype = "bf16";
    layout_of(&o, NB_KV_BF16, NB_SEG_BF16, 0);
    tmp_close(&t);
}

/* Weights are counted as they are then. */
static void test_bytes(void **state)
{
    (void)state;
    nb_engine_info a, b;
    nb_engine_options o = options(tiny, NULL, NULL);
    nb_engine *e = make_engine(&o);
    nb_engine_get_info(e, &a);
    const nb_weight w = e->model.layer[0].kv_b;
    nb_engine_destroy(e);
    o.kv_transform = "hadamard";
    e = make_engine(&o);
    nb_engine_get_info(e, &b);
    assert_int_equal(e->model.layer[0].kv_hadamard, 32); /* all 32 values */
    assert_int_equal(b.weight_bytes, a.weight_bytes + a.n_layer * w.n_row * w.n_col * 2);
    nb_engine_destroy(e);
}

/* A calibration is for the weights as they are in the files. */
static void test_int8(void **state)
{
    (void)state;
    static calib k;
    char path[600];
    tmp_dir t;
    tmp_open(&t);
    make_calib(&k, tiny);
    write_calib(&t, &k, path);
    nb_engine_options o = options(tiny, path, "center+equalize+hadamard");
    o.weight_dtype = "int8";
    nb_engine *e = make_engine(&o);
    assert_int_equal(e->model.layer[0].kv_b.type, NB_W_INT8);
    assert_int_equal(e->model.layer[0].kv_a.type, NB_W_INT8);
    assert_non_null(e->model.layer[0].kv_mean);
    nb_engine_destroy(e);
    tmp_close(&t);
}

/* ---- refusals ---- */

static void test_refused_words(void **state)
{
    (void)state;
    static const char *const words[] = {
        "rotate",      "center+",       "+center", "Center", "center,equalize",
        "none+center", "hadamard+none", "+",       " none"
    };
    for (size_t i = 0; i < NB_COUNT(words); i++)
        refused(options(tiny, NULL, words[i]), NB_ERR_ARG, "center, equalize and hadamard");
    refused(options(tiny, NULL, "center"), NB_ERR_ARG, "--kv-calibration FILE is missing");
    refused(options(tiny, NULL, "equalize+hadamard"), NB_ERR_ARG, "--kv-calibration");
    refused(options(gqa, NULL, "hadamard"), NB_ERR_UNSUPPORTED, "needs MLA");
    refused(options(gqa, NULL, "center"), NB_ERR_UNSUPPORTED, "needs MLA");
    refused(options("tests/parity/v3", NULL, "hadamard"), NB_ERR_UNSUPPORTED,
            "40 values are no multiple of 16");
    refused(options(tiny, "/nowhere/calib.json", NULL), NB_ERR_NOT_FOUND, "/nowhere/calib.json");
}

static void test_refused_calibration(void **state)
{
    (void)state;
    static calib k;
    tmp_dir t;
    char path[600], words[200];
    tmp_open(&t);
    make_calib(&k, tiny);
    write_calib(&t, &k, path);
    refused(options(gqa, path, NULL), NB_ERR_FORMAT, "with MLA");
    refused(options("tests/parity/v3", path, NULL), NB_ERR_FORMAT, "32 values");
    refused(options("tests/parity/v3_geom", path, NULL), NB_ERR_FORMAT, "3 layers");
    /* the same shape, other weights: both hashes and the file are named */
    (void)snprintf(words, sizeof words, "hash %.12s, this one's is ", k.c.model_hash);
    refused(options("tests/parity/v3_f32", path, NULL), NB_ERR_FORMAT, words);
    refused(options("tests/parity/v3_f32", path, "hadamard"), NB_ERR_FORMAT, path);
    refused(options("tests/parity/v3_f32", path, "none"), NB_ERR_FORMAT, "another model");
    nb_engine_options o = options(tiny, path, "hadamard");
    o.kv_cache_dtype = "nvfp4";
    o.kv_outliers = 2;
    refused(o, NB_ERR_ARG, "--kv-outliers 2");
    k.layer[1].n_outlier = 3;
    write_calib(&t, &k, path);
    o.kv_outliers = 0;
    refused(o, NB_ERR_ARG, "3 outlier channels of layer 1");
    o = options(tiny, path, NULL);
    o.kv_scales = "checkpoint";
    o.kv_cache_dtype = NULL;
    refused(o, NB_ERR_ARG, "calibration file chooses the records");
    make_calib(&k, gqa);
    write_calib(&t, &k, path);
    refused(options(tiny, path, NULL), NB_ERR_FORMAT, "without MLA");
    o = options(gqa, path, NULL);
    nb_engine_destroy(make_engine(&o));
    k.layer[1].n_values--;
    write_calib(&t, &k, path);
    refused(options(gqa, path, NULL), NB_ERR_FORMAT, "layer 1 has");
    tmp_close(&t);
}

/* A scale of the checkpoint was measured on the latent as it is. */
static void test_refused_scales(void **state)
{
    (void)state;
    nb_error err = { 0 };
    nb_buf file = { 0 };
    nb_source *s = NULL;
    const char *head = "{\"model.layers.0.self_attn.k_scale\":"
                       "{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}";
    char fixed[256];
    (void)snprintf(fixed, sizeof fixed, "%s", head);
    memcpy(strstr(fixed, "\"U8\",\"shape\":[4]"), "\"F32\",\"shape\":[]", 16);
    st_build(&file, fixed, 4);
    memcpy(file.p + file.n_bytes - 4, &(float){ 0.5f }, 4);
    if (nb_source_open_bytes(nb_buf_view(&file), "bytes", &s, &err) != NB_OK)
        fail_msg("%s", err.msg);
    nb_engine *e = calloc(1, sizeof *e);
    assert_non_null(e);
    e->source = s;
    assert_int_equal(nb_model_config_read_path(in_source(tiny), &e->model.c, &err), NB_OK);
    nb_engine_options o = options(tiny, NULL, "hadamard");
    o.kv_cache_dtype = "fp8";
    check_line(&err, nb_engine_read_kv(e, &o, &err), "--kv-scales dynamic");
    nb_engine_kv_deinit(&e->kvo);
    o.kv_scales = "dynamic";
    assert_int_equal(nb_engine_read_kv(e, &o, &err), NB_OK);
    assert_null(e->kvo.scale);
    nb_engine_kv_deinit(&e->kvo);
    o.kv_scales = NULL;
    o.kv_cache_dtype = "int4"; /* which has no use for them */
    assert_int_equal(nb_engine_read_kv(e, &o, &err), NB_OK);
    nb_engine_kv_deinit(&e->kvo);
    o.kv_cache_dtype = "fp8";
    o.kv_transform = "none";
    assert_int_equal(nb_engine_read_kv(e, &o, &err), NB_OK);
    assert_true(e->kvo.scale && e->kvo.scale[0].k == 0.5f && e->kvo.scale[1].k == 0);
    nb_engine_kv_deinit(&e->kvo);
    assert_true(e->kvo.transform == NULL && e->kvo.scale == NULL);
    nb_engine_kv_deinit(&e->kvo); /* again, of nothing */
    nb_source_close(s);
    nb_buf_deinit(&file);
    free(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transforms),     cmocka_unit_test(test_rope),
        cmocka_unit_test(test_bytes),          cmocka_unit_test(test_int8),
        cmocka_unit_test(test_refused_words),  cmocka_unit_test(test_refused_calibration),
        cmocka_unit_test(test_refused_scales),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
