/* test_safetensors.c - headers: what is accepted, and one line for each thing refused. */
#include "load_testing.h"

#include "load/source.h"

static nb_status open_header(const char *header, size_t n_data, nb_source **s, nb_error *e)
{
    static nb_buf bytes; /* outlives the source, which borrows it; freed at the end */
    if (!header) {
        nb_buf_deinit(&bytes);
        return NB_OK;
    }
    st_build(&bytes, header, n_data);
    return nb_source_open_bytes(nb_buf_view(&bytes), "f.safetensors", s, e);
}

static void test_good(void **state)
{
    (void)state;
    nb_source *s = NULL;
    nb_error e;
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[8,20],\"extra\":[1]},"
        "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
        "\"empty\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[20,20]},"
        "\"empty0\":{\"dtype\":\"I64\",\"shape\":[0],\"data_offsets\":[0,0]},"
        "\"scalar\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[20,21]},"
        "\"four\":{\"dtype\":\"F4\",\"shape\":[3,2],\"data_offsets\":[21,24]},"
        "\"six\":{\"dtype\":\"F6_E2M3\",\"shape\":[4],\"data_offsets\":[24,27]},"
        "\"scale\":{\"dtype\":\"F8_E8M0\",\"shape\":[1],\"data_offsets\":[27,28]},"
        "\"u\":{\"dtype\":\"U32\",\"shape\":[1],\"data_offsets\":[28,32]}}   ";
    assert_int_equal(open_header(header, 32, &s, &e), NB_OK);
    assert_int_equal(nb_source_n_tensor(s), 9);
    assert_int_equal(nb_source_bytes(s), 32);
    assert_true(nb_source_has(s, "a"));
    assert_false(nb_source_has(s, "c"));
    assert_false(nb_source_has(s, "__metadata__"));
    assert_string_equal(nb_source_leftover(s, 0), "b");
    assert_string_equal(nb_source_leftover(s, 8), "u");
    assert_null(nb_source_leftover(s, 9));
    nb_tensor t;
    nb_tensor_want w = { .name = "b", .dtypes = 1u << NB_DT_BF16, .n_dim = 2, .dim = { 2, 3 } };
    assert_int_equal(nb_source_take(s, &w, &t, &e), NB_OK);
    assert_int_equal(t.n_bytes, 12);
    assert_int_equal(t.dtype, NB_DT_BF16);
    assert_int_equal(((const unsigned char *)t.data)[0], 8);
    assert_int_equal((uintptr_t)t.data % 2, 0);
    w.dim[1] = 0; /* any */
    assert_int_equal(nb_source_take(s, &w, &t, &e), NB_OK);
    assert_int_equal(t.dim[1], 3);
    assert_string_equal(nb_source_leftover(s, 0), "a");
    w = (nb_tensor_want){ .name = "empty", .dtypes = 1u << NB_DT_F32, .n_dim = 2 };
    assert_int_equal(nb_source_take(s, &w, &t, &e), NB_OK);
    assert_int_equal(t.n_bytes, 0);
    assert_non_null(t.data);
    w = (nb_tensor_want){ .name = "scalar", .dtypes = 1u << NB_DT_U8 };
    assert_int_equal(nb_source_take(s, &w, &t, &e), NB_OK);
    assert_int_equal(((const unsigned char *)t.data)[0], 20);
    nb_source_close(s);
    assert_int_equal(open_header("{}", 0, &s, &e), NB_OK);
    assert_int_equal(nb_source_n_tensor(s), 0);
    assert_null(nb_source_leftover(s, 0));
    nb_source_close(s);
    assert_int_equal(open_header("{\"__metadata__\":null}", 0, &s, &e), NB_OK);
    nb_source_close(s);
    (void)open_header(NULL, 0, NULL, NULL);
}

static void test_take_refused(void **state)
{
    (void)state;
    nb_source *s = NULL;
    nb_error e;
    nb_tensor t = { .n_bytes = 77 };
    assert_int_equal(
        open_header("{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[2,3],\"data_offsets\":[0,6]},"
                    "\"o\":{\"dtype\":\"F8_E5M2FNUZ\",\"shape\":[2],\"data_offsets\":[6,8]}}",
                    8, &s, &e),
        NB_OK);
    nb_tensor_want w = {
        .name = "a", .dtypes = 1u << NB_DT_BF16 | 1u << NB_DT_F32, .n_dim = 2, .dim = { 2, 3 }
    };
    check_line(&e, nb_source_take(s, &w, &t, &e),
               "f.safetensors: tensor 'a': is F8_E4M3 [2, 3], expected F32 or BF16 [2, 3]");
    assert_int_equal(e.status, NB_ERR_FORMAT);
    w.dtypes = 1u << NB_DT_F8_E4M3;
    w.dim[0] = 3;
    w.dim[1] = 0;
    check_line(&e, nb_source_take(s, &w, &t, &e), "is F8_E4M3 [2, 3], expected F8_E4M3 [3, any]");
    w.dim[0] = 2;
    w.n_dim = 1;
    check_line(&e, nb_source_take(s, &w, &t, &e), "expected F8_E4M3 [2]");
    w.name = "o";
    w.dtypes = UINT32_MAX;
    check_line(&e, nb_source_take(s, &w, &t, &e), "'o': is an unusable type [2]");
    w.name = "z\x1b[2J\n";
    check_line(&e, nb_source_take(s, &w, &t, &e), "tensor 'z?[2J?': missing");
    assert_int_equal(e.status, NB_ERR_NOT_FOUND);
    assert_int_equal(t.n_bytes, 77); /* written on success only */
    assert_int_equal(nb_source_take(s, &w, &t, NULL), NB_ERR_NOT_FOUND);
    nb_source_close(s);
    (void)open_header(NULL, 0, NULL, NULL);
}

// clang-format off
#define T(name, dtype, shape, at)                                                          \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" at "}"
static const struct bad_header {
    const char *header;
    size_t n_data;
    const char *line; /* part of the error line */
} bad_headers[] = {
    { "", 0, "does not start with '{'" },
    { "[]", 0, "does not start with '{'" },
    { " {}", 0, "does not start with '{'" },
    { "{", 0, "not valid JSON" },
    { "{}x", 0, "not valid JSON" },
    { "{}{}", 0, "not valid JSON" },
    { "{\"a\xff\":1}", 0, "not valid JSON" },
    { "{\"a\\u0000\":1}", 0, "a string with the character" },
    { "{\"a\":NaN}", 0, "NaN is not JSON" },
    { "{\"a\":[[[[[[[[[[1]]]]]]]]]]}", 0, "nested deeper than the limit of 8" },
    { "{" T("a", "F32", "[1]", "[0,4]") "," T("a", "F32", "[1]", "[0,4]") "}", 4, "duplicate" },
    { "{\"a\":1}", 0, "tensor 'a': is the integer 1, expected an object" },
    { "{\"a\":null}", 0, "tensor 'a': is null" },
    { "{\"__metadata__\":[]}", 0, "__metadata__: the value is not of the expected type" },
    { "{\"__metadata__\":{\"k\":1}}", 0, "__metadata__: k is not of the expected type" },
    { "{\"a\":{\"shape\":[],\"data_offsets\":[0,0]}}", 0, "'a': dtype is missing" },
    { "{\"a\":{\"dtype\":7,\"shape\":[],\"data_offsets\":[0,0]}}", 0, "dtype is the integer 7" },
    { "{" T("a", "bf16", "[1]", "[0,2]") "}", 2, "'a': unknown dtype 'bf16'" },
    { "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "'a': shape is missing" },
    { "{" T("a", "F32", "{}", "[0,4]") "}", 4, "shape is an object, expected an array" },
    { "{" T("a", "F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]") "}", 4, "9 dimensions, expected at most 8" },
    { "{" T("a", "F32", "[-1]", "[0,4]") "}", 4, "dimension 0 is the integer -1" },
    { "{" T("a", "F32", "[1.0]", "[0,4]") "}", 4, "dimension 0 is the number 1" },
    { "{" T("a", "F32", "[\"1\"]", "[0,4]") "}", 4, "dimension 0 is the string \"1\"" },
    { "{" T("a", "F32", "[9223372036854775808]", "[0,4]") "}", 4, "dimension 0 is the number" },
    { "{" T("a", "F32", "[4294967296,4294967296]", "[0,4]") "}", 4,
      "[4294967296, 4294967296] has more bytes than" },
    { "{" T("a", "U8", "[2305843009213693952]", "[0,4]") "}", 4, "more bytes than" },
    { "{" T("a", "F4", "[3]", "[0,1]") "}", 1, "does not fill whole bytes of 4-bit" },
    { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "data_offsets is missing" },
    { "{" T("a", "F32", "[1]", "[0]") "}", 4, "data_offsets is an array of 1" },
    { "{" T("a", "F32", "[1]", "[0,4,8]") "}", 4, "data_offsets is an array of 3" },
    { "{" T("a", "F32", "[1]", "[-4,0]") "}", 4, "data_offsets[0] is the integer -4" },
    { "{" T("a", "F32", "[1]", "[0,4.0]") "}", 4, "data_offsets[1] is the number 4" },
    { "{" T("a", "F32", "[1]", "[0,18446744073709551620]") "}", 4, "data_offsets[1] is the number" },
    { "{" T("a", "F32", "[1]", "[4,0]") "}", 4, "[4, 0] end before they begin" },
    { "{" T("a", "F32", "[2]", "[0,8]") "}", 7, "[0, 8] end after the file's data, which has 7" },
    { "{" T("a", "F32", "[2]", "[0,4]") "}", 4, "F32 [2] has 8 bytes, but data_offsets [0, 4]" },
    { "{" T("a", "F32", "[0]", "[0,4]") "}", 4, "F32 [0] has 0 bytes" },
    { "{" T("a", "F32", "[1]", "[0,4]") "," T("b", "F32", "[1]", "[2,6]") "}", 6,
      "tensor 'b': begins at byte 2 of the data, inside of tensor 'a', which ends at 4" },
    { "{" T("a", "F32", "[1]", "[0,4]") "," T("b", "F32", "[1]", "[0,4]") "}", 4, "inside of" },
    { "{" T("a", "F32", "[1]", "[0,4]") "," T("b", "F32", "[0]", "[2,2]") "}", 4,
      "tensor 'b': begins at byte 2 of the data, inside of tensor 'a'" },
    { "{" T("b", "F32", "[1]", "[8,12]") "," T("a", "F32", "[1]", "[0,4]") "}", 12,
      "tensor 'b': begins at byte 8 of the data, expected 4" },
    { "{" T("a", "F32", "[1]", "[4,8]") "}", 8, "begins at byte 4 of the data, expected 0" },
    { "{" T("a", "F32", "[1]", "[0,4]") "}", 5, "has 5 bytes of data, expected 4" },
    { "{}", 1, "has 1 bytes of data, expected 0" },
    { "{\"e\\u001b[31m\\nx\\u009b\\u202e\":1}", 0, "tensor 'e?[31m?x?" "?': is the integer 1" },
};
// clang-format on

static void test_bad(void **state)
{
    (void)state;
    for (size_t i = 0; i < NB_COUNT(bad_headers); i++) {
        nb_error e = { 0 };
        nb_source *s = NULL;
        const nb_status st = open_header(bad_headers[i].header, bad_headers[i].n_data, &s, &e);
        if (st == NB_OK) fail_msg("accepted: %s", bad_headers[i].header);
        assert_null(s);
        check_line(&e, st, "f.safetensors: ");
        check_line(&e, st, bad_headers[i].line);
        assert_int_equal(open_header(bad_headers[i].header, bad_headers[i].n_data, &s, NULL), st);
    }
    (void)open_header(NULL, 0, NULL, NULL);
}

/* Every prefix of a good file is refused; so is every length field but the right one. */
static void test_truncated(void **state)
{
    (void)state;
    nb_buf b = { 0 };
    nb_error e;
    nb_source *s = NULL;
    st_build(&b, "{" T("a", "F32", "[3]", "[0,12]") "}", 12);
    for (size_t n = 0; n < b.n_bytes; n++) {
        const nb_str part = { b.p, n };
        check_line(&e, nb_source_open_bytes(part, "x", &s, &e), "x: ");
    }
    const char right = b.p[0];
    for (int v = 0; v < 256; v++) {
        b.p[0] = (char)v;
        if (b.p[0] == right) continue;
        check_line(&e, nb_source_open_bytes(nb_buf_view(&b), "x", &s, &e), "x: ");
    }
    b.p[0] = right;
    for (int i = 1; i < 8; i++)
        for (int bit = 0; bit < 8; bit++) {
            b.p[i] = (char)(b.p[i] ^ 1 << bit);
            check_line(&e, nb_source_open_bytes(nb_buf_view(&b), "x", &s, &e), "header length");
            b.p[i] = (char)(b.p[i] ^ 1 << bit);
        }
    assert_int_equal(nb_source_open_bytes(nb_buf_view(&b), "x", &s, &e), NB_OK);
    nb_source_close(s);
    nb_buf_deinit(&b);
}

/* A long name is cut in the line; brackets without end do not recurse. */
static void test_large(void **state)
{
    (void)state;
    nb_buf h = { 0 }, b = { 0 };
    nb_error e;
    nb_source *s = NULL;
    assert_int_equal(nb_buf_add_c(&h, "{\""), NB_OK);
    for (int i = 0; i < 5000; i++) assert_int_equal(nb_buf_add_c(&h, "\xc3\xa9"), NB_OK);
    assert_int_equal(nb_buf_add_c(&h, "\":1}"), NB_OK);
    st_build(&b, h.p, 0);
    check_line(&e, nb_source_open_bytes(nb_buf_view(&b), "x", &s, &e), "...': is the integer 1");
    h.n_bytes = 0;
    assert_int_equal(nb_buf_add_c(&h, "{\"a\":"), NB_OK);
    for (int i = 0; i < 1000000; i++) assert_int_equal(nb_buf_add_ch(&h, '['), NB_OK);
    st_build(&b, h.p, 0);
    check_line(&e, nb_source_open_bytes(nb_buf_view(&b), "x", &s, &e), "nested deeper");
    h.n_bytes = 0;
    assert_int_equal(nb_buf_add_c(&h, "{\"a\":["), NB_OK);
    for (int i = 0; i < 5000000; i++) assert_int_equal(nb_buf_add_c(&h, "0,"), NB_OK);
    st_build(&b, h.p, 0);
    check_line(&e, nb_source_open_bytes(nb_buf_view(&b), "x", &s, &e), "more values than");
    nb_buf_deinit(&h);
    nb_buf_deinit(&b);
}

/* 200,000 tensors, each found again; quadratic behaviour anywhere would show as minutes. */
static void test_many(void **state)
{
    (void)state;
    enum { N = 200000 };
    nb_buf h = { 0 }, b = { 0 };
    nb_error e;
    nb_source *s = NULL;
    assert_int_equal(nb_buf_add_ch(&h, '{'), NB_OK);
    for (int i = 0; i < N; i++) /* in descending order of the data */
        assert_int_equal(nb_buf_printf(&h,
                                       "%s\"model.layers.%d.mlp.experts.%d.weight\":{\"dtype\":"
                                       "\"U8\",\"shape\":[1],\"data_offsets\":[%d,%d]}",
                                       i ? "," : "", i / 256, i % 256, N - 1 - i, N - i),
                         NB_OK);
    assert_int_equal(nb_buf_add_ch(&h, '}'), NB_OK);
    st_build(&b, h.p, N);
    assert_int_equal(nb_source_open_bytes(nb_buf_view(&b), "x", &s, &e), NB_OK);
    assert_int_equal(nb_source_n_tensor(s), N);
    for (int i = 0; i < N; i++) {
        char name[80];
        nb_tensor t;
        if (i % 1000 == 7) continue;
        (void)snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%d.weight", i / 256,
                       i % 256);
        const nb_tensor_want w = {
            .name = name, .dtypes = 1u << NB_DT_U8, .n_dim = 1, .dim = { 1 }
        };
        assert_int_equal(nb_source_take(s, &w, &t, &e), NB_OK);
        assert_int_equal(*(const unsigned char *)t.data, (N - 1 - i) & 0xff);
    }
    size_t left = 0;
    while (nb_source_leftover(s, left)) left++;
    assert_int_equal(left, N / 1000);
    assert_string_equal(nb_source_leftover(s, 1), "model.layers.3.mlp.experts.239.weight");
    nb_source_close(s);
    nb_buf_deinit(&h);
    nb_buf_deinit(&b);
}

/* At every misalignment the taken data is aligned and the same. */
static void test_misaligned(void **state)
{
    (void)state;
    static const char header[] = "{" T("u", "U8", "[3]", "[0,3]") "," T(
        "f", "F32", "[5]", "[3,23]") "," T("d", "F64", "[2]", "[23,39]") "}";
    nb_buf b = { 0 };
    nb_error e;
    st_build(&b, header, 39);
    char *room = malloc(b.n_bytes + 8);
    assert_non_null(room);
    for (size_t shift = 0; shift < 8; shift++) {
        nb_source *s = NULL;
        nb_tensor t, again;
        memcpy(room + shift, b.p, b.n_bytes);
        const nb_str bytes = { room + shift, b.n_bytes };
        assert_int_equal(nb_source_open_bytes(bytes, "x", &s, &e), NB_OK);
        nb_tensor_want w = { .name = "f", .dtypes = 1u << NB_DT_F32, .n_dim = 1, .dim = { 5 } };
        assert_int_equal(nb_source_take(s, &w, &t, &e), NB_OK);
        assert_int_equal((uintptr_t)t.data % 4, 0);
        for (int i = 0; i < 20; i++) assert_int_equal(((const unsigned char *)t.data)[i], 3 + i);
        assert_int_equal(nb_source_take(s, &w, &again, &e), NB_OK);
        assert_ptr_equal(t.data, again.data);
        w = (nb_tensor_want){ .name = "d", .dtypes = 1u << NB_DT_F64, .n_dim = 1 };
        assert_int_equal(nb_source_take(s, &w, &t, &e), NB_OK);
        assert_int_equal((uintptr_t)t.data % 8, 0);
        for (int i = 0; i < 16; i++) assert_int_equal(((const unsigned char *)t.data)[i], 23 + i);
        nb_source_close(s);
    }
    free(room);
    nb_buf_deinit(&b);
}

static void test_dtypes(void **state)
{
    (void)state;
    assert_string_equal(nb_dtype_name(NB_DT_BF16), "BF16");
    assert_string_equal(nb_dtype_name(NB_DT_F8_E4M3), "F8_E4M3");
    assert_non_null(nb_dtype_name(NB_DT_OTHER));
    assert_int_equal(nb_dtype_bytes(NB_DT_OTHER), 0);
    static const size_t want[NB_DT_OTHER] = { 4, 2, 2, 1, 8, 8, 4, 2, 1, 1, 1, 1, 1 };
    for (int t = 0; t < NB_DT_OTHER; t++) assert_int_equal(nb_dtype_bytes((nb_dtype)t), want[t]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),       cmocka_unit_test(test_take_refused),
        cmocka_unit_test(test_bad),        cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_large),      cmocka_unit_test(test_many),
        cmocka_unit_test(test_misaligned), cmocka_unit_test(test_dtypes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
