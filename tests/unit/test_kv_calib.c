/* test_kv_calib.c - the calibration file: what is written reads back equal, what is wrong is
 * refused with one line that names the field, and outlier channels by their size. */
#include "load_testing.h"

#include <math.h>

#include "base/rng.h"
#include "load/kv_calib.h"

enum { N = 8, PAIRS = 2, LAYERS = 2 };

static float random_float(uint64_t *i, bool negative)
{
    const uint32_t bits = (uint32_t)nb_rng_u64(5, (*i)++);
    float f;
    memcpy(&f, &bits, sizeof f);
    if (!isfinite(f)) f = 1.0f;
    return negative ? f : fabsf(f);
}

static float *floats(nb_kv_calib *c, size_t n, bool negative, uint64_t *i)
{
    float *x = nb_arena_array(&c->arena, n, sizeof *x);
    assert_non_null(x);
    for (size_t k = 0; k < n; k++) x[k] = random_float(i, negative);
    return x;
}

static void make(nb_kv_calib *c, bool mla)
{
    uint64_t at = 0;
    *c = (nb_kv_calib){ .is_mla = mla, .n_layer = LAYERS, .n_tok = 12345 };
    memset(c->model_hash, 'a', 64);
    c->model_hash[3] = '7';
    strcpy(c->family, "deepseek_v3");
    c->target_bits = 4.92;
    c->mean_bits = 1.0 / 3;
    c->layer = nb_arena_array(&c->arena, LAYERS, sizeof *c->layer);
    assert_non_null(c->layer);
    for (size_t i = 0; i < LAYERS; i++) {
        nb_kv_calib_layer *l = &c->layer[i];
        *l = (nb_kv_calib_layer){ .n_values = N, .token_amax = 3.1f, .error = 0.1, .bits = 4.9 };
        l->plain_error = 1e-17 + 0.2;
        l->mean = floats(c, N, true, &at);
        l->sd = floats(c, N, false, &at);
        l->amax = floats(c, N, false, &at);
        strcpy(l->kv_dtype, i ? "nvfp4" : "");
        strcpy(l->kv_mode, i ? "search" : "");
        l->n_outlier = i ? 4 : 0;
        if (!mla) continue;
        l->n_pair = PAIRS;
        l->pair_max = floats(c, PAIRS, false, &at);
        l->pair_mean = floats(c, PAIRS, false, &at);
        int8_t *s = nb_arena_array(&c->arena, N, sizeof *s);
        uint16_t *p = nb_arena_array(&c->arena, N, sizeof *p);
        assert_true(s && p);
        for (size_t k = 0; k < N; k++) {
            s[k] = (int8_t)((int)k - 4 + (int)i);
            p[k] = (uint16_t)((k * 3 + i) % N);
        }
        l->scale_log2 = s;
        l->perm = p;
        l->hadamard = i ? 8 : 4;
        l->use_center = i == 0;
        l->rope = i ? NB_ROPE_INT8 : NB_ROPE_BF16;
        l->n_rope_outlier = 2 * i;
        l->rope_outlier[0] = 1;
        for (size_t k = 0; k < NB_ROPE_WAYS; k++) l->rope_error[k] = 0.1 / (double)(k + i + 1);
        l->rope_outlier[1] = 2 * PAIRS - 1;
        l->use_equalize = true;
        l->use_hadamard = i == 1;
    }
}

static void same_floats(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (a[i] != b[i]) fail_msg("%zu: %.9g != %.9g", i, (double)a[i], (double)b[i]);
}

static void same(const nb_kv_calib *a, const nb_kv_calib *b)
{
    assert_string_equal(a->model_hash, b->model_hash);
    assert_string_equal(a->family, b->family);
    assert_int_equal(a->is_mla, b->is_mla);
    assert_int_equal(a->n_layer, b->n_layer);
    assert_true(a->n_tok == b->n_tok && a->target_bits == b->target_bits);
    assert_true(a->mean_bits == b->mean_bits);
    for (size_t i = 0; i < a->n_layer; i++) {
        const nb_kv_calib_layer *x = &a->layer[i], *y = &b->layer[i];
        assert_int_equal(x->n_values, y->n_values);
        same_floats(x->mean, y->mean, N);
        same_floats(x->sd, y->sd, N);
        same_floats(x->amax, y->amax, N);
        assert_true(x->token_amax == y->token_amax && x->error == y->error);
        assert_true(x->plain_error == y->plain_error && x->bits == y->bits);
        assert_string_equal(x->kv_dtype, y->kv_dtype);
        assert_string_equal(x->kv_mode, y->kv_mode);
        assert_int_equal(x->n_outlier, y->n_outlier);
        assert_int_equal(x->rope, y->rope);
        assert_int_equal(x->n_rope_outlier, y->n_rope_outlier);
        for (size_t k = 0; k < x->n_rope_outlier; k++)
            assert_int_equal(x->rope_outlier[k], y->rope_outlier[k]);
        assert_int_equal(x->use_center, y->use_center);
        assert_int_equal(x->use_equalize, y->use_equalize);
        assert_int_equal(x->use_hadamard, y->use_hadamard);
        assert_int_equal(x->n_pair, y->n_pair);
        assert_int_equal(x->hadamard, y->hadamard);
        if (!a->is_mla) {
            assert_null(y->perm);
            continue;
        }
        for (size_t k = 0; k < NB_ROPE_WAYS; k++) assert_true(x->rope_error[k] == y->rope_error[k]);
        same_floats(x->pair_max, y->pair_max, PAIRS);
        same_floats(x->pair_mean, y->pair_mean, PAIRS);
        assert_memory_equal(x->scale_log2, y->scale_log2, N);
        assert_memory_equal(x->perm, y->perm, N * sizeof *x->perm);
    }
}

static char dir[] = "/tmp/nibble-calib-XXXXXX";
static char path[64], tmp_path[80];

static int set_up(void **state)
{
    (void)state;
    if (!mkdtemp(dir)) return -1;
    (void)snprintf(path, sizeof path, "%s/c.json", dir);
    (void)snprintf(tmp_path, sizeof tmp_path, "%s.tmp", path);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(dir);
}

static void test_round_trip(void **state)
{
    (void)state;
    for (int mla = 0; mla < 2; mla++) {
        nb_kv_calib a, b;
        nb_error e = { 0 };
        make(&a, mla);
        if (nb_kv_calib_write(&a, path, &e) != NB_OK) fail_msg("%s", e.msg);
        assert_int_not_equal(access(tmp_path, F_OK), 0); /* nothing left beside it */
        if (nb_kv_calib_read(path, &b, &e) != NB_OK) fail_msg("%s", e.msg);
        same(&a, &b);
        nb_kv_calib_deinit(&b);
        nb_kv_calib_deinit(&a);
    }
}

static void test_writing_fails(void **state)
{
    (void)state;
    nb_kv_calib a;
    nb_error e;
    make(&a, true);
    assert_true(nb_kv_calib_write(&a, "/nonexistent/x/c.json", &e) < 0);
    check_line(&e, e.status, "nonexistent");
    assert_true(nb_kv_calib_write(&a, dir, &e) < 0);
    check_line(&e, e.status, dir);
    /* what could not be loaded is not written, and the file that was there stays */
    assert_int_equal(nb_kv_calib_write(&a, path, &e), NB_OK);
    float nan_mean[N] = { NAN };
    a.layer[1].mean = nan_mean;
    assert_true(nb_kv_calib_write(&a, path, &e) < 0);
    nb_kv_calib b;
    assert_int_equal(nb_kv_calib_read(path, &b, &e), NB_OK);
    nb_kv_calib_deinit(&b);
    nb_kv_calib_deinit(&a);
}

/* The text of a good file; freed with nb_buf_deinit. */
static nb_buf good(bool mla)
{
    nb_kv_calib a;
    nb_buf b = { 0 };
    nb_error e = { 0 };
    make(&a, mla);
    if (nb_kv_calib_write(&a, path, &e) != NB_OK) fail_msg("%s", e.msg);
    if (nb_file_read(path, 1 << 20, &b, &e) != NB_OK) fail_msg("%s", e.msg);
    nb_kv_calib_deinit(&a);
    return b;
}

/* The k-th place of `from` replaced by `to`. */
static void edit(nb_buf *out, nb_str in, const char *from, int k, const char *to)
{
    const char *p = in.p;
    for (; (p = strstr(p, from)) && k > 0; k--) p += strlen(from);
    if (!p) fail_msg("no %s in the file", from);
    out->n_bytes = 0;
    assert_int_equal(nb_buf_add(out, in.p, (size_t)(p - in.p)), NB_OK);
    assert_int_equal(nb_buf_add_c(out, to), NB_OK);
    assert_int_equal(nb_buf_add_c(out, p + strlen(from)), NB_OK);
}

typedef struct bad {
    const char *from;
    int k;
    const char *to, *line; /* line: part of the message */
} bad;

static const bad mla_bad[] = {
    { "\"nibble-kv-calibration\"", 0, "\"other\"", "format: found the string" },
    { "\"format\"", 0, "\"farmat\"", "format: found nothing" },
    { "\"version\": 1", 0, "\"version\": 2", "version: found the integer 2" },
    { "\"version\": 1", 0, "\"version\": 1.0", "version: found the number 1" },
    { "\"model_hash\": \"a", 0, "\"model_hash\": \"A", "64 hexadecimal digits" },
    { "\"model_hash\": \"a", 0, "\"model_hash\": \"", "64 hexadecimal digits" },
    { "\"deepseek_v3\"", 0, "\"deep\\u0000seek\"", "c.json: " },
    { "\"deepseek_v3\"", 0, "\"a long name of more than thirty-one\"", "family: found" },
    { "\"mla\"", 0, "\"mha\"", "\"mla\" or \"gqa\"" },
    { "\"mla\"", 0, "\"gqa\"", "layers[0].pair_max is no field" },
    { "\"n_tok\": 12345", 0, "\"n_tok\": 0", "n_tok: found the integer 0" },
    { "\"n_tok\": 12345", 0, "\"n_tok\": -4", "n_tok: found the integer -4" },
    { "\"target_bits\": 4.9", 0, "\"target_bits\": -4.9", "target_bits: found the number -4.9" },
    { "\"target_bits\": 4.9", 0, "\"target_bits\": 499", "target_bits: found" },
    { "\"n_layer\": 2", 0, "\"n_layer\": 3", "layers: found an array of 2" },
    { "\"n_layer\": 2", 0, "\"n_layer\": 100000", "n_layer: found the integer 100000" },
    { "\"n_layer\": 2", 0, "\"n_layer\": 2, \"more\": 1", "more is no field of a version 1" },
    { "\"n_values\": 8", 1, "\"n_values\": 9", "layers[1].mean: found an array of 8" },
    { "\"n_values\": 8", 1, "\"n_values\": 0", "layers[1].n_values: found the integer 0" },
    { "\"n_values\": 8", 1, "\"n_values\": 8, \"x\": {}", "layers[1].x is no field" },
    { "\"mean\": [", 1, "\"mean\": [0,", "layers[1].mean: found an array of 9" },
    { "\"mean\": [", 1, "\"mean\": 4, \"q\": [", "is no field" },
    { "\"sd\": [", 1, "\"sd\": [-", "layers[1].sd[0]: found" },
    { "\"amax\": [", 0, "\"amax\": [\"1\",", "layers[0].amax: found an array of 9" },
    { "\"token_amax\": 3", 0, "\"token_amax\": 1e39, \"r\": 3", "is no field" },
    { "\"token_amax\": 3.0999999", 0, "\"token_amax\": 3e39", "layers[0].token_amax: found" },
    { "\"error\": 0.1", 0, "\"error\": -0.1", "layers[0].error: found" },
    { "\"error\": 0.1", 0, "\"error\": true, \"e\": 0.1", "is no field" },
    { "\"scale_log2\": [-4", 0, "\"scale_log2\": [-7", "layers[0].scale_log2[0]: found" },
    { "\"scale_log2\": [-4", 0, "\"scale_log2\": [-4.0", "layers[0].scale_log2[0]: found" },
    { "\"perm\": [0,3", 0, "\"perm\": [3,3", "layers[0].perm[1]: found the integer 3" },
    { "\"perm\": [0,3", 0, "\"perm\": [8,3", "layers[0].perm[0]: found the integer 8" },
    { "\"perm\": [0,3", 0, "\"perm\": [-1,3", "layers[0].perm[0]: found the integer -1" },
    { "\"pair_mean\": [", 0, "\"pair_mean\": [1,", "layers[0].pair_mean: found an array of 3" },
    { "\"hadamard_block\": 4", 0, "\"hadamard_block\": 6", "layers[0].hadamard_block: found" },
    { "\"hadamard_block\": 8", 0, "\"hadamard_block\": 16", "layers[1].hadamard_block: found" },
    { "\"hadamard_block\": 8", 0, "\"hadamard_block\": 0",
      "layers[1].chosen.hadamard: found true" },
    { "\"center\": true", 0, "\"center\": 1", "layers[0].chosen.center: found the integer 1" },
    { "\"center\": true", 0, "\"centre\": true", "layers[0].chosen.centre is no field" },
    { "\"chosen\": {", 0, "\"chosen\": 1, \"c\": {", "is no field" },
    { "\"kv_dtype\": \"nvfp4\"", 0, "\"kv_dtype\": \"nvfp5\"", "layers[1].chosen.kv_dtype: found" },
    { "\"kv_mode\": \"search\"", 0, "\"kv_mode\": \"best\"", "layers[1].chosen.kv_mode: found" },
    { "\"n_outlier\": 4", 0, "\"n_outlier\": 9",
      "layers[1].chosen.n_outlier: found the integer 9" },
    { "\"n_outlier\": 4", 0, "\"n_outlier\": 65", "layers[1].chosen.n_outlier: found" },
    { "\"fp8_4_pairs\": ", 1, "\"fp8_5_pairs\": ", "layers[1].rope_error.fp8_5_pairs is no field" },
    { "\"rope_error\": {", 0, "\"rope_error\": {\"x\": 1,", "layers[0].rope_error.x is no field" },
    { "\"rope_error\": {\"fp8\": ", 0, "\"rope_error\": {\"fp8\": -", "rope_error.fp8: found" },
    { "\"rope\": \"int8\"", 0, "\"rope\": \"int9\"", "layers[1].chosen.rope: found" },
    { "\"rope_outliers\": []", 0, "\"rope_outliers\": 3", "layers[0].chosen.rope_outliers: found" },
    { "\"rope_outliers\": []", 0, "\"rope_outliers\": [-1]", "rope_outliers[0]: found" },
    { "\"rope_outliers\": []", 0, "\"rope_outliers\": [0.5]", "rope_outliers[0]: found" },
    { "\"rope_outliers\": []", 0, "\"rope_outliers\": [1,1]", "rope_outliers[1]: found" },
    { "\"rope_outliers\": []", 0, "\"rope_outliers\": [99]", "rope_outliers[0]: found" },
    { "]}\n", 0, "]}\n{}", "not valid JSON" },
    { "\"n_values\": 8", 0, "\"n_values\": 8, \"n_values\": 8", "not valid JSON" },
    { "\"sd\": [", 0, "\"sd\": [NaN,", "NaN is not JSON" },
    { "\"sd\": [", 0, "\"sd\": [[[[[[[1]]]]]],", "nested deeper" },
};

static const bad gqa_bad[] = {
    { "\"gqa\"", 0, "\"mla\"", "layers[0].pair_max: found nothing" },
    { "\"center\": false", 0, "\"center\": true", "layers[0].chosen.center: found true" },
    { "\"equalize\": false", 1, "\"equalize\": true", "layers[1].chosen.equalize: found true" },
    { "\"hadamard\": false", 0, "\"hadamard\": true", "layers[0].chosen.hadamard: found true" },
    { "\"kv_mode\"", 0, "\"rope\": \"fp8\", \"kv_mode\"", "layers[0].chosen.rope is no field" },
    { "\"n_values\": 8", 0, "\"n_values\": 8, \"perm\": []", "layers[0].perm is no field" },
};

static void refuse(nb_str file, const bad *b, size_t n_bad)
{
    nb_buf text = { 0 };
    for (size_t i = 0; i < n_bad; i++) {
        nb_kv_calib c = { .n_layer = 77 };
        nb_error e = { 0 };
        edit(&text, file, b[i].from, b[i].k, b[i].to);
        const nb_status st = nb_kv_calib_parse(text.p, text.n_bytes, "dir/c.json", &c, &e);
        if (st == NB_OK) fail_msg("accepted: %s -> %s", b[i].from, b[i].to);
        check_line(&e, st, "c.json: ");
        if (!strstr(e.msg, b[i].line)) fail_msg("'%s' not in: %s", b[i].line, e.msg);
        assert_int_equal(c.n_layer, 77); /* out is not touched */
    }
    nb_buf_deinit(&text);
}

static void test_refused(void **state)
{
    (void)state;
    nb_buf mla = good(true), gqa = good(false);
    refuse(nb_buf_view(&mla), mla_bad, NB_COUNT(mla_bad));
    refuse(nb_buf_view(&gqa), gqa_bad, NB_COUNT(gqa_bad));
    nb_kv_calib c;
    nb_error e;
    for (size_t n = 0; n + 1 < mla.n_bytes; n += 7) { /* cut short anywhere */
        assert_true(nb_kv_calib_parse(mla.p, n, "c.json", &c, &e) < 0);
        check_line(&e, e.status, "c.json");
    }
    static const char *const odd[] = { "[]", "1", "null", "{}", "\"x\"", "{\"layers\":[{}]}" };
    for (size_t i = 0; i < NB_COUNT(odd); i++) {
        assert_int_equal(nb_kv_calib_parse(odd[i], strlen(odd[i]), "c.json", &c, &e),
                         NB_ERR_FORMAT);
        check_line(&e, NB_ERR_FORMAT, "c.json");
    }
    assert_true(nb_kv_calib_read("/nonexistent.json", &c, &e) < 0);
    check_line(&e, e.status, "nonexistent.json");
    nb_buf_deinit(&mla);
    nb_buf_deinit(&gqa);
}

static void test_outliers(void **state)
{
    (void)state;
    static const float mean[N] = { 0, 9, 0, 0, -5, 0, 0, 0 };
    static const float sd[N] = { 1, 1, 4, 1, 1, 6, 1, 3 };
    static const float amax[N] = { 1, 1, 1, 1, 1, 1, 1, 1 };
    static const int8_t scale[N] = { 3, 0, -2, 0, 0, -3, 0, 0 };
    static const uint16_t perm[N] = { 7, 6, 5, 4, 3, 2, 1, 0 };
    const nb_kv_calib_layer l = {
        .n_values = N, .mean = mean, .sd = sd, .amax = amax, .scale_log2 = scale, .perm = perm
    };
    uint16_t out[N] = { 0 };
    nb_kv_calib_outliers(&l, false, false, 3, out); /* 9.06, 6, 5.1 */
    assert_int_equal(out[0], 1);
    assert_int_equal(out[1], 4);
    assert_int_equal(out[2], 5);
    nb_kv_calib_outliers(&l, true, false, 2, out); /* 6, 4 */
    assert_int_equal(out[0], 2);
    assert_int_equal(out[1], 5);
    nb_kv_calib_outliers(&l, true, true, 2, out); /* channel 0: 8, channel 7: 3, at 7 and 0 */
    assert_int_equal(out[0], 0);
    assert_int_equal(out[1], 7);
    nb_kv_calib_outliers(&l, false, true, 2, out); /* channels 1: 9.06, 0: 8, at 6 and 7 */
    assert_int_equal(out[0], 6);
    assert_int_equal(out[1], 7);
    static const float zero[N] = { 0 };
    const nb_kv_calib_layer ties = { .n_values = N, .mean = zero, .sd = amax, .amax = amax };
    nb_kv_calib_outliers(&ties, false, false, 3, out); /* of equals the first */
    for (uint16_t i = 0; i < 3; i++) assert_int_equal(out[i], i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_writing_fails),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_outliers),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
