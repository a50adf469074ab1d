/* test_source.c - directories, indices with shards, dummy weights, touching. */
#include "load_testing.h"

#include <math.h>

#include "load/source.h"
#include "num/bf16.h"
#include "num/e4m3.h"
#include "num/fp16.h"

#define T(name, dtype, shape, at)                                                                  \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" at "}"
#define HEAD_A "{" T("a", "F32", "[2]", "[0,8]") "," T("x", "U8", "[1]", "[8,9]") "}"
#define HEAD_B "{" T("b", "U8", "[4]", "[0,4]") "," T("a", "F32", "[1]", "[4,8]") "}"
#define INDEX "model.safetensors.index.json"

static void put(const tmp_dir *t, const char *name, const char *header, size_t n_data)
{
    nb_buf b = { 0 };
    st_build(&b, header, n_data);
    tmp_write(t, name, nb_buf_view(&b));
    nb_buf_deinit(&b);
}

static void remove_in(const tmp_dir *t, const char *name)
{
    char full[600];
    (void)snprintf(full, sizeof full, "%s/%s", t->path, name);
    (void)unlink(full);
}

static void test_one_file(void **state)
{
    (void)state;
    tmp_dir t;
    nb_error e;
    nb_source *s = NULL;
    char full[600];
    tmp_open(&t);
    check_line(&e, nb_source_open_dir(t.path, &s, &e), "no weights there; expected model.safetensors, ");
    assert_int_equal(e.status, NB_ERR_NOT_FOUND);
    (void)snprintf(full, sizeof full, "%s/none", t.path);
    check_line(&e, nb_source_open_dir(full, &s, &e), "/none: cannot list: ");
    check_line(&e, nb_source_open_file(full, &s, &e), "/none: cannot open: ");
    check_line(&e, nb_source_open_file(t.path, &s, &e), "is a directory");
    const size_t n_open = n_open_files();
    put(&t, "weights.safetensors", HEAD_A, 9);
    assert_int_equal(nb_source_open_dir(t.path, &s, &e), NB_OK);
    assert_int_equal(nb_source_n_tensor(s), 2);
    assert_int_equal(n_open_files(), n_open); /* mapped, not held open */
    nb_source_close(s);
    put(&t, "second.safetensors", HEAD_B, 8);
    check_line(&e, nb_source_open_dir(t.path, &s, &e), "2 *.safetensors files and no");
    put(&t, "model.safetensors", HEAD_B, 8);
    assert_int_equal(nb_source_open_dir(t.path, &s, &e), NB_OK);
    assert_true(nb_source_has(s, "b"));
    assert_false(nb_source_has(s, "x"));
    nb_source_close(s);
    put(&t, "model.safetensors", HEAD_B, 7);
    check_line(&e, nb_source_open_dir(t.path, &s, &e),
               "/model.safetensors: tensor 'a': data_offsets");
    tmp_write(&t, "model.safetensors", nb_str_c(""));
    check_line(&e, nb_source_open_dir(t.path, &s, &e), "/model.safetensors: has 0 bytes");
    nb_source_close(NULL);
    tmp_close(&t);
}

static void test_index(void **state)
{
    (void)state;
    tmp_dir t;
    nb_error e;
    nb_source *s = NULL;
    nb_tensor x;
    tmp_open(&t);
    put(&t, "m-1.safetensors", HEAD_A, 9);
    put(&t, "m-2.safetensors", HEAD_B, 8);
    tmp_write(&t, INDEX,
              nb_str_c("{\"metadata\":{\"total_size\":1},\"weight_map\":{"
                       "\"b\":\"m-2.safetensors\",\"a\":\"m-1.safetensors\"}}"));
    assert_int_equal(nb_source_open_dir(t.path, &s, &e), NB_OK);
    /* a of the second shard is shadowed; x is not listed, but there is only one */
    assert_int_equal(nb_source_n_tensor(s), 3);
    assert_int_equal(nb_source_bytes(s), 8 + 1 + 4);
    const nb_tensor_want a = { .name = "a", .dtypes = 1u << NB_DT_F32, .n_dim = 1, .dim = { 2 } };
    assert_int_equal(nb_source_take(s, &a, &x, &e), NB_OK);
    assert_int_equal(((const unsigned char *)x.data)[7], 7);
    assert_string_equal(nb_source_leftover(s, 0), "b");
    assert_string_equal(nb_source_leftover(s, 1), "x");
    assert_null(nb_source_leftover(s, 2));
    const nb_tensor_want w = { .name = "b", .dtypes = 1u << NB_DT_F32, .n_dim = 1, .dim = { 4 } };
    check_line(&e, nb_source_take(s, &w, &x, &e),
               "/m-2.safetensors: tensor 'b': is U8 [4], expected F32 [4]");
    const nb_tensor_want no = { .name = "no", .dtypes = 1u << NB_DT_F32, .n_dim = 1, .dim = { 4 } };
    check_line(&e, nb_source_take(s, &no, &x, &e), ": tensor 'no': missing, expected F32 [4]");
    nb_source_close(s);
    tmp_close(&t);
}

static const struct bad_index {
    const char *json, *line;
} bad_indices[] = {
    // clang-format off
    { "", "not valid JSON" },
    { "[]", "weight_map is missing" },
    { "{}", "weight_map is missing" },
    { "{\"weight_map\":[]}", "weight_map is an array of 0, expected an object" },
    { "{\"weight_map\":{\"a\":1}}", "tensor 'a': shard is the integer 1" },
    { "{\"weight_map\":{\"a\":\"\"}}", "tensor 'a': shard '' is not a file name inside" },
    { "{\"weight_map\":{\"a\":\"../m-1.safetensors\"}}", "tensor 'a': shard '../m-1" },
    { "{\"weight_map\":{\"a\":\"/etc/passwd\"}}", "shard '/etc/passwd' is not a file name inside" },
    { "{\"weight_map\":{\"a\":\"sub/../../m\"}}", "is not a file name inside" },
    { "{\"weight_map\":{\"a\":\"..\"}}", "is not a file name inside" },
    { "{\"weight_map\":{\"a\":\".\"}}", "is not a file name inside" },
    { "{\"weight_map\":{\"a\":\"./m-1.safetensors\"}}", "is not a file name inside" },
    { "{\"weight_map\":{\"a\":\"sub/\"}}", "is not a file name inside" },
    { "{\"weight_map\":{\"a\":\"sub//m\"}}", "is not a file name inside" },
    { "{\"weight_map\":{\"a\":\"m-3.safetensors\"}}", "/m-3.safetensors: cannot open" },
    { "{\"weight_map\":{\"a\":\"sub\"}}", "/sub: is a directory" },
    { "{\"weight_map\":{\"a\":\"cut.safetensors\"}}", "/cut.safetensors: tensor 'a': data_offsets" },
    { "{\"weight_map\":{\"b\":\"m-1.safetensors\"}}",
      INDEX ": tensor 'b': expected in shard 'm-1.safetensors', which does not have it" },
    /* b is there, but in another shard than promised */
    { "{\"weight_map\":{\"b\":\"m-1.safetensors\",\"a\":\"m-2.safetensors\"}}",
      "tensor 'b': expected in shard 'm-1.safetensors', which does not have it" },
    { "{\"weight_map\":{\"x\":\"m-1.safetensors\",\"b\":\"m-2.safetensors\"}}",
      "/m-2.safetensors: tensor 'a': is also in /" },
    { "{\"weight_map\":{\"a\":\"m-1.safetensors\",\"a\":\"m-2.safetensors\"}}", "duplicate" },
    { "{\"weight_map\":{\"a\":\"m-1.safetensors\\u0000\"}}", "a string with the character" },
    { "{\"weight_map\":{\"a\":{\"b\":{\"c\":{\"d\":{\"e\":{\"f\":{\"g\":{}}}}}}}}}", "nested deeper" },
    // clang-format on
};

static void test_bad_index(void **state)
{
    (void)state;
    tmp_dir t;
    char sub[600];
    tmp_open(&t);
    put(&t, "m-1.safetensors", HEAD_A, 9);
    put(&t, "m-2.safetensors", HEAD_B, 8);
    put(&t, "cut.safetensors", HEAD_A, 3);
    (void)snprintf(sub, sizeof sub, "%s/sub", t.path);
    assert_int_equal(mkdir(sub, 0700), 0);
    put(&t, "sub/m-4.safetensors", HEAD_A, 9);
    const size_t n_open = n_open_files();
    for (size_t i = 0; i < NB_COUNT(bad_indices); i++) {
        nb_error e = { 0 };
        nb_source *s = NULL;
        tmp_write(&t, INDEX, nb_str_c(bad_indices[i].json));
        const nb_status st = nb_source_open_dir(t.path, &s, &e);
        if (st == NB_OK) fail_msg("accepted: %s", bad_indices[i].json);
        assert_null(s);
        check_line(&e, st, t.path);
        /* the temporary directory begins with a slash in every usual setting */
        if (t.path[0] == '/' || !strstr(bad_indices[i].line, "in /"))
            check_line(&e, st, bad_indices[i].line);
        assert_int_equal(n_open_files(), n_open);
    }
    /* names with folders below are fine */
    nb_error e;
    nb_source *s = NULL;
    tmp_write(&t, INDEX, nb_str_c("{\"weight_map\":{\"a\":\"sub/m-4.safetensors\"}}"));
    assert_int_equal(nb_source_open_dir(t.path, &s, &e), NB_OK);
    nb_source_close(s);
    remove_in(&t, INDEX);
    tmp_close(&t);
}

/* ------------------------------------------------------------------- dummy */

static float value(const nb_tensor *t, size_t i)
{
    switch (t->dtype) {
    case NB_DT_F32: return ((const float *)t->data)[i];
    case NB_DT_BF16: return nb_bf16_to_f32(((const uint16_t *)t->data)[i]);
    case NB_DT_F16: return nb_fp16_to_f32(((const uint16_t *)t->data)[i]);
    default: return nb_e4m3_to_f32(((const uint8_t *)t->data)[i]);
    }
}

static nb_tensor dummy(nb_source *s, const char *name, nb_dtype t, size_t rows, size_t cols,
                       int fill)
{
    nb_tensor x = { 0 };
    nb_error e;
    nb_tensor_want w = {
        .name = name, .dtypes = 1u << t, .n_dim = 2, .dim = { rows, cols }, .dummy_dtype = t
    };
    w.dummy_fill = fill == 0 ? NB_FILL_NORMAL : fill == 1 ? NB_FILL_ONES : NB_FILL_ZEROS;
    if (nb_source_take(s, &w, &x, &e) != NB_OK) fail_msg("%s", e.msg);
    assert_int_equal(x.n_bytes, rows * cols * nb_dtype_bytes(t));
    assert_int_equal(x.n_dim, 2);
    assert_int_equal(x.dim[1], cols);
    assert_int_equal(x.dtype, t);
    return x;
}

static const nb_dtype floats[] = { NB_DT_F32, NB_DT_BF16, NB_DT_F16, NB_DT_F8_E4M3 };

/* Mean, deviation, third and fourth moment, and the share beyond 2 deviations: bounds at
 * five standard errors for n = 2^20 (the codes of E4M3 are coarse: looser). */
static void test_dummy_values(void **state)
{
    (void)state;
    const size_t n = 1 << 20;
    for (size_t k = 0; k < NB_COUNT(floats); k++) {
        nb_source *s = NULL;
        nb_error e;
        assert_int_equal(nb_source_open_dummy(7, 0.02, &s, &e), NB_OK);
        const nb_tensor t = dummy(s, "w.weight", floats[k], 1024, 1024, 0);
        assert_int_equal((uintptr_t)t.data % 64, 0);
        const double unit = floats[k] == NB_DT_F8_E4M3 ? 64 : 0.02;
        double m1 = 0, m2 = 0, m3 = 0, m4 = 0, lag = 0, last = 0;
        size_t far = 0;
        for (size_t i = 0; i < n; i++) {
            const double v = value(&t, i) / unit;
            if (!(fabs(v) < 5)) fail_msg("%s: value %g", nb_dtype_name(floats[k]), v);
            m1 += v;
            m2 += v * v;
            m3 += v * v * v;
            m4 += v * v * v * v;
            lag += v * last;
            last = v;
            far += fabs(v) > 2;
        }
        const double dn = (double)n;
        assert_true(fabs(m1 / dn) < 5e-3);
        assert_true(fabs(m2 / dn - 1) < 0.01);
        assert_true(fabs(m3 / dn) < 0.02);
        assert_true(fabs(m4 / dn - 3) < 0.06);
        assert_true(fabs(lag / dn) < 5e-3);
        assert_true(fabs((double)far / dn - 0.0455) < (floats[k] == NB_DT_F8_E4M3 ? 0.02 : 0.002));
        assert_int_equal(nb_source_n_tensor(s), 1);
        assert_int_equal(nb_source_bytes(s), t.n_bytes);
        assert_true(nb_source_has(s, "anything"));
        assert_null(nb_source_leftover(s, 0));
        nb_source_prefault(s, NULL, NULL, NULL, NULL);
        nb_source_close(s);
    }
}

/* The first values of a tensor, fixed: the same on every machine and compiler. */
static void test_dummy_fixed(void **state)
{
    (void)state;
    nb_source *s = NULL;
    assert_int_equal(nb_source_open_dummy(1, 0.02, &s, NULL), NB_OK);
    uint64_t sum = 0;
    for (size_t k = 0; k < NB_COUNT(floats); k++) {
        const nb_tensor t = dummy(s, "model.layers.0.mlp.gate_proj.weight", floats[k], 300, 301, 0);
        for (size_t i = 0; i < t.n_bytes; i++)
            sum = sum * 1099511628211u + ((const unsigned char *)t.data)[i];
    }
    nb_source_close(s);
    assert_int_equal(sum, UINT64_C(0x5a99a9ae279d8211));
}

/* Values depend on seed and name, not on the order or on what else is taken. */
static void test_dummy_order(void **state)
{
    (void)state;
    for (size_t k = 0; k < NB_COUNT(floats); k++) {
        nb_source *s1 = NULL, *s2 = NULL, *s3 = NULL;
        assert_int_equal(nb_source_open_dummy(5, 0.02, &s1, NULL), NB_OK);
        assert_int_equal(nb_source_open_dummy(5, 0.02, &s2, NULL), NB_OK);
        assert_int_equal(nb_source_open_dummy(6, 0.02, &s3, NULL), NB_OK);
        const nb_tensor a1 = dummy(s1, "a", floats[k], 333, 77, 0);
        const nb_tensor b1 = dummy(s1, "b", floats[k], 999, 1234, 0);
        for (int i = 0; i < 40; i++) {
            char name[20];
            (void)snprintf(name, sizeof name, "n%d", i);
            (void)dummy(s2, name, floats[k], (size_t)i * 100 + 1, 17, 0);
        }
        const nb_tensor b2 = dummy(s2, "b", floats[k], 999, 1234, 0);
        const nb_tensor a2 = dummy(s2, "a", floats[k], 333, 77, 0);
        const nb_tensor a3 = dummy(s3, "a", floats[k], 333, 77, 0);
        assert_memory_equal(a1.data, a2.data, a1.n_bytes);
        assert_memory_equal(b1.data, b2.data, b1.n_bytes);
        assert_true(memcmp(a1.data, b1.data, 1000) != 0);
        assert_true(memcmp(a1.data, a3.data, 1000) != 0);
        nb_source_close(s1);
        nb_source_close(s2);
        nb_source_close(s3);
    }
}

static void test_dummy_fills(void **state)
{
    (void)state;
    nb_source *s = NULL;
    assert_int_equal(nb_source_open_dummy(5, 0.02, &s, NULL), NB_OK);
    for (size_t k = 0; k < NB_COUNT(floats); k++) {
        const nb_tensor one = dummy(s, "norm", floats[k], 1, 513, 1);
        const nb_tensor zero = dummy(s, "bias", floats[k], 1, 513, 2);
        for (size_t i = 0; i < 513; i++) {
            assert_true(value(&one, i) == 1);
            assert_true(value(&zero, i) == 0);
        }
    }
    const nb_tensor ones = dummy(s, "i", NB_DT_I32, 3, 3, 1);
    for (size_t i = 0; i < 9; i++) assert_int_equal(((const int32_t *)ones.data)[i], 1);
    const nb_tensor d = dummy(s, "d", NB_DT_F64, 3, 3, 1);
    for (size_t i = 0; i < 9; i++) assert_true(((const double *)d.data)[i] == 1);
    /* scales: growing views keep the old ones alive */
    nb_tensor sc[3];
    for (size_t k = 0; k < 3; k++)
        sc[k] = dummy(s, "m.weight_scale_inv", NB_DT_F32, (size_t[]){ 4, 400, 300 }[k], 100, 0);
    for (size_t k = 0; k < 3; k++)
        for (size_t i = 0; i < sc[k].n_bytes / 4; i++)
            assert_true(value(&sc[k], i) == (float)(0.02 / 64));
    nb_source_close(s);
}

static void test_dummy_refused(void **state)
{
    (void)state;
    nb_source *s = NULL;
    nb_error e;
    nb_tensor t;
    check_line(&e, nb_source_open_dummy(1, -1, &s, &e), "deviation -1, expected 0 to 10000");
    check_line(&e, nb_source_open_dummy(1, NAN, &s, &e), "dummy weights: deviation ");
    check_line(&e, nb_source_open_dummy(1, INFINITY, &s, &e), "dummy weights: deviation ");
    assert_int_equal(nb_source_open_dummy(1, 0.02, &s, &e), NB_OK);
    nb_tensor_want w = { .name = "w",
                         .dtypes = 1u << NB_DT_BF16,
                         .n_dim = 2,
                         .dim = { 4, 0 },
                         .dummy_dtype = NB_DT_BF16 };
    check_line(&e, nb_source_take(s, &w, &t, &e), "tensor 'w': dimension 1 is open");
    w.dim[1] = SIZE_MAX / 4;
    check_line(&e, nb_source_take(s, &w, &t, &e),
               "tensor 'w': [4, 4611686018427387903] is too large");
    w.dim[0] = 1;
    w.dim[1] = SIZE_MAX / 64;
    check_line(&e, nb_source_take(s, &w, &t, &e), "tensor 'w': out of memory for");
    w.dummy_dtype = NB_DT_F32;
    check_line(&e, nb_source_take(s, &w, &t, &e), "tensor 'w': type F32 is not wanted");
    w.dummy_dtype = NB_DT_I32;
    w.dtypes = UINT32_MAX;
    check_line(&e, nb_source_take(s, &w, &t, &e), "no normal values of type I32");
    w.dummy_dtype = NB_DT_OTHER;
    check_line(&e, nb_source_take(s, &w, &t, &e), "'w': type");
    assert_int_equal(nb_source_n_tensor(s), 0);
    nb_source_close(s);
}

/* ---------------------------------------------------------------- touching */

typedef struct seen {
    uint64_t n_call, first_done, last_done, total;
    bool monotonic;
} seen;

static void on_progress(void *ctx, uint64_t done, uint64_t total, const char *label)
{
    seen *p = ctx;
    assert_non_null(strstr(label, ".safetensors"));
    if (p->n_call == 0) p->first_done = done;
    if (done < p->last_done || (p->n_call && total != p->total)) p->monotonic = false;
    p->last_done = done;
    p->total = total;
    p->n_call++;
}

static void backwards(void *run_ctx, nb_source_task_fn *task, void *ctx, size_t n_task)
{
    *(size_t *)run_ctx += n_task;
    while (n_task-- > 0) task(ctx, n_task, 7);
}

static void test_prefault(void **state)
{
    (void)state;
    tmp_dir t;
    nb_error e;
    nb_source *s = NULL;
    tmp_open(&t);
    put(&t, "m-1.safetensors", HEAD_A, 9);
    put(&t, "m-2.safetensors", "{" T("big", "U8", "[100000]", "[0,100000]") "}", 100000);
    tmp_write(&t, INDEX,
              nb_str_c("{\"weight_map\":{\"a\":\"m-1.safetensors\",\"big\":\"m-2.safetensors\"}}"));
    assert_int_equal(nb_source_open_dir(t.path, &s, &e), NB_OK);
    seen p = { .monotonic = true, .first_done = 99 };
    size_t n_task = 0;
    nb_source_prefault(s, backwards, &n_task, on_progress, &p);
    assert_int_equal(n_task, 2);
    assert_true(p.monotonic);
    assert_int_equal(p.n_call, 3);
    assert_int_equal(p.first_done, 0);
    assert_true(p.total > 100009);
    assert_int_equal(p.last_done, p.total);
    nb_source_prefault(s, NULL, NULL, NULL, NULL);
    nb_source_close(s);
    tmp_close(&t);
}

/* In memory, tensors are what they were in the files, and the files do not matter any more. */
static void test_copy(void **state)
{
    (void)state;
    tmp_dir t;
    nb_error e;
    nb_source *s = NULL;
    char path[600];
    tmp_open(&t);
    put(&t, "m-1.safetensors", HEAD_A, 9);
    put(&t, "m-2.safetensors", "{" T("big", "U8", "[100000]", "[0,100000]") "}", 100000);
    tmp_write(&t, INDEX,
              nb_str_c("{\"weight_map\":{\"a\":\"m-1.safetensors\",\"big\":\"m-2.safetensors\"}}"));
    assert_int_equal(nb_source_open_dir(t.path, &s, &e), NB_OK);
    const size_t n_open = n_open_files();
    seen p = { .monotonic = true, .first_done = 99 };
    assert_int_equal(nb_source_copy(s, on_progress, &p, &e), NB_OK);
    assert_true(p.monotonic && p.total > 100009);
    assert_int_equal(p.last_done, p.total);
    assert_int_equal(n_open_files(), n_open);
    assert_false(nb_source_watch(s));
    const nb_tensor_want want = {
        .name = "big", .dtypes = 1u << NB_DT_U8, .n_dim = 1, .dim = { 100000 }
    };
    nb_tensor x;
    (void)snprintf(path, sizeof path, "%s/m-2.safetensors", t.path);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(nb_source_take(s, &want, &x, &e), NB_OK);
    const unsigned char *b = x.data;
    for (size_t i = 0; i < 100000; i++) assert_int_equal(b[i], i & 0xff);
    nb_source_drop(s, x.data, x.n_bytes); /* only of files */
    assert_int_equal(b[99999], 99999 & 0xff);
    assert_int_equal(nb_source_check(s, NULL, &e), NB_OK);
    nb_source_close(s);
    /* Truncated or replaced between its header and its bytes. */
    put(&t, "m-2.safetensors", "{" T("big", "U8", "[100000]", "[0,100000]") "}", 100000);
    assert_int_equal(nb_source_open_dir(t.path, &s, &e), NB_OK);
    assert_int_equal(truncate(path, 5000), 0);
    check_line(&e, nb_source_copy(s, NULL, NULL, &e), "/m-2.safetensors: ends at byte 5000");
    nb_source_close(s);
    put(&t, "m-2.safetensors", "{" T("big", "U8", "[100000]", "[0,100000]") "}", 100000);
    assert_int_equal(nb_source_open_dir(t.path, &s, &e), NB_OK);
    assert_int_equal(unlink(path), 0);
    put(&t, "m-2.safetensors", "{" T("big", "U8", "[100000]", "[0,100000]") "}", 100000);
    check_line(&e, nb_source_copy(s, NULL, NULL, &e), "/m-2.safetensors: was replaced while");
    nb_source_close(s);
    tmp_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_file),    cmocka_unit_test(test_index),
        cmocka_unit_test(test_bad_index),   cmocka_unit_test(test_dummy_values),
        cmocka_unit_test(test_dummy_fixed), cmocka_unit_test(test_dummy_order),
        cmocka_unit_test(test_dummy_fills), cmocka_unit_test(test_dummy_refused),
        cmocka_unit_test(test_prefault),    cmocka_unit_test(test_copy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
