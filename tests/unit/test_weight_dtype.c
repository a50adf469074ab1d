/* test_weight_dtype.c - --weight-dtype int8: the rule for a row, which matrices become INT8, after
 * folding and hashing, from files and from the generator; bytes, logits, refusals. */
#include "engine_testing.h"

#include <math.h>

#include "engine/engine_internal.h"
#include "kernel/embed/embed.h"
#include "model/fold.h"
#include "model/quantize.h"
#include "nibble/measure.h"
#include "num/fp8_row.h"
#include "num/int8_row.h"

static const char moonlight[] = "tests/parity/v3_moonlight";
enum { MAX_COL = 4096, N_TOK = 70 };

/* ---- the rule ---- */

/* In double, where products and quotients of two floats are exact enough to be rounded once. */
static void check_row(const float *w, size_t n)
{
    int8_t code[64];
    float scale = -1;
    double m = 0;
    for (size_t i = 0; i < n; i++) m = fmax(m, fabs((double)w[i]));
    assert_true(nb_int8_row(w, n, code, &scale));
    const float inv = m < 0x1p-100 ? 0 : (float)(127 / m);
    assert_true(scale == (m < 0x1p-100 ? 0 : (float)(m / 127)));
    for (size_t i = 0; i < n; i++) {
        const double want = nearbyint((double)(float)((double)w[i] * (double)inv));
        if ((double)code[i] != want)
            fail_msg("[%zu] %a of %a: %d, not %g", i, (double)w[i], m, code[i], want);
    }
}

/* A row's largest weight is 448 times its scale; codes are the nearest ones. */
static void test_fp8_rule(void **state)
{
    (void)state;
    static const float w[] = { 2, -1, 0.5f, 0, 2.0f / 448, -2.0f / 448 / 1024, 1.03f };
    static const uint8_t want[] = { 0x7e, 0xf6, 0x6e, 0, 0x38, 0x80, 0x76 };
    uint8_t code[NB_COUNT(w)];
    float scale;
    assert_true(nb_fp8_row(w, NB_COUNT(w), code, &scale));
    assert_true(scale == 2.0f / 448.0f);
    for (size_t i = 0; i < NB_COUNT(w); i++) assert_int_equal(code[i], want[i]);
    assert_true(nb_fp8_row((const float[]){ 0, -0x1p-101f }, 2, code, &scale));
    assert_true(scale == 0 && (code[0] & 0x7f) == 0 && (code[1] & 0x7f) == 0);
    assert_false(nb_fp8_row((const float[]){ 1, INFINITY }, 2, code, &scale));
    assert_false(nb_fp8_row((const float[]){ NAN }, 1, code, &scale));
}

static void test_rule(void **state)
{
    (void)state;
    float w[64];
    for (uint64_t seed = 0; seed < 2000; seed++) {
        const size_t n = 1 + seed % 64;
        const int e = (int)(seed % 240) - 120;
        for (size_t i = 0; i < n; i++)
            w[i] = (float)ldexp(2 * nb_rng_unit(seed, i) - 1, e - (int)(nb_rng_u64(~seed, i) % 9));
        check_row(w, n);
    }
    /* halves, with a scale of 1 */
    for (size_t i = 0; i < 64; i++) w[i] = (float)i - 31.5f;
    w[9] = -127;
    check_row(w, 64);
    int8_t code[64];
    float scale;
    assert_true(nb_int8_row(w, 4, code, &scale));
    assert_true(nb_int8_row((const float[]){ 127, 2.5f, -3.5f, -127 }, 4, code, &scale));
    assert_memory_equal(code, ((const int8_t[]){ 127, 2, -4, -127 }), 4);
    assert_true(scale == 1);
    check_row((const float[]){ 0, -0.0f, 0 }, 3);
    check_row((const float[]){ 0x1p-101f, -0x1p-149f }, 2);
    check_row((const float[]){ 0x1p-100f, -0x1p-149f, 0x1p-101f }, 3);
    check_row((const float[]){ 0x1.fffffep127f, -0x1.fffffep127f, 1, 0x1p126f }, 4);
    static const float bad[] = { NAN, -NAN, INFINITY, -INFINITY };
    for (size_t i = 0; i < NB_COUNT(bad); i++) {
        w[5] = bad[i];
        code[0] = 77;
        assert_false(nb_int8_row(w, 64, code, &scale));
        assert_int_equal(code[0], 77);
        assert_true(scale == 1);
    }
}

/* ---- models ---- */

static nb_engine_options options(const char *model, const char *dtype)
{
    return (nb_engine_options){ .model = in_source(model),
                                .weight_dtype = dtype,
                                .kv_cache_dtype = "f32",
                                .no_text = true,
                                .max_model_len = 128,
                                .n_thread = 2 };
}

typedef struct list {
    nb_weight w[4096];
    char name[4096][96];
    size_t n;
} list;

static nb_status note(void *ctx, const char *name, nb_weight *w)
{
    list *l = ctx;
    assert_true(l->n < NB_COUNT(l->w));
    (void)snprintf(l->name[l->n], sizeof l->name[0], "%s", name);
    l->w[l->n++] = *w;
    return NB_OK;
}

static void row_of(const nb_weight *w, size_t r, float *out)
{
    const uint32_t id = (uint32_t)r;
    nb_embed_c(&(nb_embed_args){
        .y = out, .id = &id, .w = *w, .n_tok = 1, .y_stride = w->n_col, .factor = 1 });
}

/* q is what a becomes; the bytes of both. */
static void check_model(nb_engine *ea, nb_engine *eq)
{
    static list a, q;
    static float row[MAX_COL];
    static int8_t code[MAX_COL];
    a.n = q.n = 0;
    assert_int_equal(nb_model_each_matrix(&ea->model, note, &a), NB_OK);
    assert_int_equal(nb_model_each_matrix(&eq->model, note, &q), NB_OK);
    assert_int_equal(a.n, q.n);
    uint64_t bytes = ea->model.weight_bytes;
    for (size_t i = 0; i < a.n; i++) {
        const nb_weight *w = &a.w[i], *v = &q.w[i];
        if (!ea->model.head_is_embed || i + 1 < a.n) assert_string_equal(a.name[i], q.name[i]);
        assert_int_equal(v->type, NB_W_INT8);
        assert_true(v->n_row == w->n_row && v->n_col == w->n_col && w->n_col <= MAX_COL);
        assert_true((uintptr_t)v->data % 64 == 0 && (uintptr_t)v->scale % 64 == 0);
        for (size_t r = 0; r < w->n_row; r++) {
            float scale;
            row_of(w, r, row);
            assert_true(nb_int8_row(row, w->n_col, code, &scale));
            assert_memory_equal(code, (const int8_t *)v->data + r * w->n_col, w->n_col);
            assert_true(scale == v->scale[r]);
        }
        const size_t code_bytes = (w->n_row * w->n_col + 63) / 64 * 64;
        if (w->data != ea->model.embed.data) bytes -= nb_weight_bytes(w);
        bytes += code_bytes + (w->n_row * 4 + 63) / 64 * 64;
    }
    assert_int_equal(eq->model.weight_bytes, bytes);
    assert_false(eq->model.head_is_embed);
    assert_int_equal(eq->model.embed.type, ea->model.embed.type);
    for (size_t i = 0; i < ea->model.c.n_layer; i++)
        assert_int_equal(eq->model.layer[i].router.type, ea->model.layer[i].router.type);
    char hash_a[NB_MODEL_HASH_CHARS + 1] = "", hash_q[NB_MODEL_HASH_CHARS + 1] = "";
    nb_error err = { 0 };
    if (!ea->kvo.transform) { /* of the original, whatever became of it */
        assert_int_equal(nb_engine_model_hash(ea, hash_a, &err), NB_OK);
        assert_int_equal(nb_engine_model_hash(eq, hash_q, &err), NB_OK);
        assert_string_equal(hash_a, hash_q);
        assert_int_equal(strlen(hash_a), NB_MODEL_HASH_CHARS);
    }
    nb_engine_info info;
    nb_engine_get_info(eq, &info);
    assert_string_equal(info.weights, "INT8");
    assert_int_equal(info.weight_bytes, bytes);
}

static void check_plan(nb_engine_options o)
{
    nb_memory_plan p;
    nb_error err = { 0 };
    nb_engine_info info;
    nb_engine *e = make_engine(&o);
    nb_engine_get_info(e, &info);
    if (nb_engine_plan_memory(&o, &p, &err) != NB_OK) fail_msg("%s", err.msg);
    assert_int_equal(p.weight_bytes, info.weight_bytes);
    nb_engine_destroy(e);
}

static void test_families(void **state)
{
    (void)state;
    static const char *const model[] = { "tests/parity/v3_moonlight",  "tests/parity/v3_fp8",
                                         "tests/parity/v3_f32",        "tests/parity/youtu_f16",
                                         "tests/parity/qwen2",         "tests/parity/v2_lite",
                                         "tests/parity/v3_sharded",    "tests/parity/llama3",
                                         "tests/parity/minicpm3_short" };
    for (size_t i = 0; i < NB_COUNT(model); i++) {
        nb_engine_options oa = options(model[i], NULL), oq = options(model[i], "int8");
        nb_engine *a = make_engine(&oa), *q = make_engine(&oq);
        check_model(a, q);
        nb_engine_destroy(a);
        nb_engine_destroy(q);
        check_plan(oa);
        check_plan(oq);
    }
}

static void test_dummy(void **state)
{
    (void)state;
    nb_engine_options oa = options("tests/parity/v3_fp8/config.json", "auto");
    oa.load_format = "dummy";
    nb_engine_options oq = oa;
    oq.weight_dtype = "int8";
    nb_engine *a = make_engine(&oa), *q = make_engine(&oq);
    check_model(a, q);
    nb_engine_destroy(a);
    nb_engine_destroy(q);
    check_plan(oa);
    check_plan(oq);
    oa.model = oq.model = in_source("tests/parity/qwen2/config.json");
    check_plan(oa);
    check_plan(oq);
}

/* Rows of kv_b as the transform left them, in float32, are what is quantised. */
static void test_after_fold(void **state)
{
    (void)state;
    nb_engine_options oa = options(moonlight, "auto"), oq = options(moonlight, "int8");
    oa.kv_transform = oq.kv_transform = "hadamard";
    nb_engine *a = make_engine(&oa), *q = make_engine(&oq);
    assert_int_equal(a->model.layer[0].kv_b.type, NB_W_F32);
    assert_true(q->model.folded.head == NULL); /* not a second copy */
    check_model(a, q);
    nb_engine_destroy(a);
    nb_engine_destroy(q);
    check_plan(oq);
}

/* ---- results ---- */

static double deviation(const float *x, size_t n)
{
    double s = 0, s2 = 0;
    for (size_t i = 0; i < n; i++) s += (double)x[i], s2 += (double)x[i] * (double)x[i];
    return sqrt(s2 / (double)n - s / (double)n * (s / (double)n));
}

/* Eight bits of random weights: 127 steps to the largest of some hundred normal values are an error
 * of about 0.7 % of a row's norm per matrix, and a handful of layers add them up. */
static void test_logits(void **state)
{
    (void)state;
    static const char *const model[] = { "tests/parity/v3_moonlight", "tests/parity/v2_lite",
                                         "tests/parity/qwen2" };
    static const size_t row[] = { 0, 40, N_TOK - 1 };
    for (size_t i = 0; i < NB_COUNT(model); i++) {
        uint32_t id[N_TOK];
        float *y[5];
        for (size_t k = 0; k < NB_COUNT(y); k++) {
            nb_engine_options o = options(model[i], k ? "int8" : "auto");
            if (k == 2) o.n_thread = 1;
            if (k == 3) o.prefill_chunk = 7;
            if (k == 4) o.cpu_caps = "c"; /* attention and norms round otherwise, linear does not */
            nb_engine *e = make_engine(&o);
            random_ids(id, N_TOK, vocab_of(e), 3);
            y[k] = logits_at(e, id, N_TOK, row, NB_COUNT(row));
            nb_engine_destroy(e);
        }
        nb_engine *e = simple_engine(model[i], "f32");
        const size_t n = NB_COUNT(row) * vocab_of(e);
        nb_engine_destroy(e);
        double worst = 0, other = 0;
        for (size_t k = 0; k < n; k++) {
            worst = fmax(worst, fabs((double)y[1][k] - (double)y[0][k]));
            other = fmax(other, fabs((double)y[4][k] - (double)y[1][k]));
        }
        const double sd = deviation(y[0], n);
        if (!(worst > 0 && worst < 0.15 * sd)) fail_msg("%s: %g of %g", model[i], worst, sd);
        assert_true(other < 0.002 * sd);
        assert_true(same_floats(y[1], y[2], n));
        assert_true(same_floats(y[1], y[3], n));
        for (size_t k = 0; k < NB_COUNT(y); k++) free(y[k]);
    }
}

/* ---- refusals ---- */

static void test_words(void **state)
{
    (void)state;
    static const char *const word[] = { "int4", "INT8", "bf16", "FP8", "", "int8 " };
    for (size_t i = 0; i < NB_COUNT(word); i++) {
        nb_engine_options o = options(moonlight, word[i]);
        nb_engine *e = NULL;
        nb_memory_plan p;
        nb_error err = { 0 };
        assert_int_equal(nb_engine_create(&o, &e, &err), NB_ERR_ARG);
        check_line(&err, NB_ERR_ARG, "expected auto, int8 or fp8");
        err = (nb_error){ 0 };
        assert_int_equal(nb_engine_plan_memory(&o, &p, &err), NB_ERR_ARG);
        check_line(&err, NB_ERR_ARG, "expected auto, int8 or fp8");
    }
}

static void put_nan(const nb_weight *w, size_t at, uint16_t bits)
{
    memcpy((unsigned char *)(uintptr_t)w->data + 2 * at, &bits, 2);
}

static void test_not_finite(void **state)
{
    (void)state;
    static nb_model_config c;
    nb_engine *e = simple_engine(moonlight, "f32");
    c = e->model.c;
    nb_engine_destroy(e);
    nb_buf bytes = { 0 };
    nb_error err = { 0 };
    char path[700];
    (void)snprintf(path, sizeof path, "%s/model.safetensors", in_source(moonlight));
    assert_int_equal(nb_file_read(path, SIZE_MAX / 4, &bytes, &err), NB_OK);
    for (int what = 0; what < 3; what++) {
        nb_buf own = { 0 };
        nb_source *s = NULL;
        nb_model m;
        nb_dev *dev = NULL;
        assert_int_equal(nb_buf_add(&own, bytes.p, bytes.n_bytes), NB_OK);
        assert_int_equal(nb_source_open_bytes(nb_buf_view(&own), "bytes", &s, &err), NB_OK);
        assert_int_equal(nb_model_load(&m, &c, s, &err), NB_OK);
        assert_int_equal(nb_dev_create_host(2, &dev, &err), NB_OK);
        assert_int_equal(m.head.type, NB_W_BF16);
        if (what == 1) put_nan(&m.head, 5 * m.head.n_col + 3, 0xff80); /* -infinity */
        if (what == 2) put_nan(&m.layer[1].expert[2].down, 7, 0x7fc1);
        void *p = nb_dev_alloc(dev, nb_model_int8_bytes(&m));
        const size_t n_bytes = nb_model_int8_bytes(&m);
        const nb_quantize_options o = { .dev = dev, .memory = p, .source = s };
        const nb_status st = nb_model_quantize(&m, &o, &err);
        assert_int_equal(st, what ? NB_ERR_FORMAT : NB_OK);
        if (what == 1) {
            check_line(&err, st, "'lm_head.weight': [5, 3] is -inf");
            check_line(&err, st, "finite");
        }
        if (what == 2)
            check_line(&err, st, "'model.layers.1.mlp.experts.2.down_proj.weight': [0, 7] is");
        nb_dev_free(dev, p, n_bytes);
        nb_dev_destroy(dev);
        nb_model_deinit(&m);
        nb_source_close(s);
        nb_buf_deinit(&own);
    }
    nb_buf_deinit(&bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fp8_rule),
        cmocka_unit_test(test_rule),       cmocka_unit_test(test_families),
        cmocka_unit_test(test_dummy),      cmocka_unit_test(test_after_fold),
        cmocka_unit_test(test_logits),     cmocka_unit_test(test_words),
        cmocka_unit_test(test_not_finite),
    };
    if (!have_file(moonlight)) return SKIP_EXIT;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
