/* test_capture.c - nb_engine_capture: attention recomputed in double from what it delivers, put
 * through the layer's output projection, against transformers' values (tests/parity).
 *
 * A wrong query, key, scale, angle, position, head or value weight moves these by far more than
 * the bound.  Then: the same bits for every size of chunk, nothing left behind in the engine, and
 * what is refused. */
#include "engine_testing.h"

#include <math.h>

#include "base/hash.h"
#include "engine/engine_internal.h"
#include "model/fold.h"
#include "nibble/measure.h"

enum { MAX_ROW = 16 };

typedef struct vectors {
    nb_source *src;
    uint32_t tok[512];
    size_t pos[MAX_ROW], n_tok, n_row;
} vectors;

static nb_tensor take(const vectors *v, const char *name, nb_dtype type, size_t n_dim)
{
    nb_tensor t;
    nb_error e;
    const nb_tensor_want w = { .name = name, .dtypes = 1u << type, .n_dim = n_dim };
    if (nb_source_take(v->src, &w, &t, &e) != NB_OK) fail_msg("%s", e.msg);
    return t;
}

static void load_vectors(const char *model, vectors *v)
{
    char path[700];
    nb_error e;
    (void)snprintf(path, sizeof path, "%s/expected.safetensors", in_source(model));
    if (nb_source_open_file(path, &v->src, &e) != NB_OK) fail_msg("%s", e.msg);
    const nb_tensor tok = take(v, "tokens", NB_DT_I32, 1), row = take(v, "rows", NB_DT_I32, 1);
    v->n_tok = tok.dim[0];
    v->n_row = row.dim[0];
    assert_true(v->n_tok <= NB_COUNT(v->tok) && v->n_row <= MAX_ROW);
    for (size_t i = 0; i < v->n_tok; i++) v->tok[i] = (uint32_t)((const int32_t *)tok.data)[i];
    for (size_t i = 0; i < v->n_row; i++) v->pos[i] = (size_t)((const int32_t *)row.data)[i];
}

/* ---- attention in double, from the capture alone ---- */

static double dot(const float *a, const float *b, size_t n)
{
    double s = 0;
    for (size_t i = 0; i < n; i++) s += (double)a[i] * (double)b[i];
    return s;
}

/* Output of head h for query i: [d_v]; p: [n_tok] of scratch. */
static void attend(const nb_capture_layer *l, size_t i, size_t h, double *p, double *out)
{
    const size_t group = l->n_head / l->n_kv_head, n = l->pos[i] + 1, k_w = l->n_vec[0] * l->dim[0];
    const float *q = l->q + (i * l->n_head + h) * l->d_q;
    double max = -INFINITY, sum = 0;
    for (size_t t = 0; t < n; t++) {
        const float *row = l->kv + t * l->n_values;
        p[t] = l->is_mla ? dot(q, row, l->d_q) : dot(q, row + h / group * l->dim[0], l->dim[0]);
        p[t] *= (double)l->scale;
        max = fmax(max, p[t]);
    }
    for (size_t t = 0; t < n; t++) sum += p[t] = exp(p[t] - max);
    for (size_t d = 0; d < l->d_v; d++) {
        out[d] = 0;
        for (size_t t = 0; t < n; t++) {
            const float *row = l->kv + t * l->n_values;
            const double v = l->is_mla ? dot(l->w_uv + (h * l->d_v + d) * l->dim[0], row, l->dim[0])
                                       : (double)row[k_w + h / group * l->d_v + d];
            out[d] += p[t] / sum * v;
        }
    }
}

typedef struct check {
    const nb_engine *e;
    const vectors *v;
    size_t n_layer;
    double worst;
} check;

static int check_layer(void *ctx, const nb_capture_layer *l)
{
    check *c = ctx;
    char name[64];
    const nb_layer *w = &c->e->model.layer[l->layer];
    const size_t hidden = w->o.n_row, o_w = l->n_head * l->d_v;
    assert_int_equal(l->layer, c->n_layer++);
    assert_int_equal(w->o.n_col, o_w);
    assert_int_equal(l->n_tok, c->v->n_tok);
    assert_int_equal(l->n_q, c->v->n_row);
    assert_int_equal(l->n_values, l->n_vec[0] * l->dim[0] + l->n_vec[1] * l->dim[1]);
    (void)snprintf(name, sizeof name, "layers.%zu.attn_out", l->layer);
    const nb_tensor want = take(c->v, name, NB_DT_F32, 2);
    double *p = malloc(l->n_tok * sizeof *p), *o = malloc(l->d_v * sizeof *o);
    float *x = malloc(o_w * sizeof *x);
    double *y = malloc(hidden * sizeof *y), *s = malloc(hidden * sizeof *s);
    assert_true(p && o && x && y && s);
    for (size_t i = 0; i < l->n_q; i++) {
        assert_int_equal(l->pos[i], c->v->pos[i]);
        for (size_t h = 0; h < l->n_head; h++) {
            attend(l, i, h, p, o);
            for (size_t d = 0; d < l->d_v; d++) x[h * l->d_v + d] = (float)o[d];
        }
        nb_linear_ref(
            &(nb_linear_args){
                .x = x, .w = w->o, .bias = w->o_b, .n_tok = 1, .row_end = hidden, .x_stride = o_w },
            y, s);
        double big = 1e-9, diff = 0;
        const float *r = (const float *)want.data + i * hidden;
        for (size_t d = 0; d < hidden; d++) {
            big = fmax(big, fabs((double)r[d]));
            diff = fmax(diff, fabs(y[d] - (double)r[d]));
        }
        if (!(diff <= 1e-5 * big))
            fail_msg("layer %zu, position %zu: off by %g of %g", l->layer, l->pos[i], diff, big);
        c->worst = fmax(c->worst, diff / big);
    }
    free(p);
    free(o);
    free(x);
    free(y);
    free(s);
    return 0;
}

static void test_against_reference(void **state)
{
    (void)state;
    static const char *const models[] = {
        "tests/parity/v3_geom",        "tests/parity/v2_lite",    "tests/parity/v3_fp8",
        "tests/parity/v3_halfrope",    "tests/parity/v3_bias",    "tests/parity/minicpm3_long",
        "tests/parity/minicpm3_short", "tests/parity/youtu_f16",  "tests/parity/v3_f32",
        "tests/parity/glm4_moe_lite",  "tests/parity/llama3",     "tests/parity/qwen2",
        "tests/parity/qwen3",          "tests/parity/llama_bias",
    };
    for (size_t i = 0; i < NB_COUNT(models); i++) {
        vectors v;
        nb_error err = { 0 };
        load_vectors(models[i], &v);
        nb_engine *e = simple_engine(models[i], "f32");
        check c = { .e = e, .v = &v };
        if (nb_engine_capture(e, v.tok, v.n_tok, v.pos, v.n_row, check_layer, &c, &err) != NB_OK)
            fail_msg("%s: %s", models[i], err.msg);
        assert_int_equal(c.n_layer, e->model.c.n_layer);
        print_message("%-32s worst %.2g\n", models[i], c.worst);
        nb_engine_destroy(e);
        nb_source_close(v.src);
    }
}

/* ---- the same bits however it is cut; the engine is as it was ---- */

typedef struct copy {
    uint64_t sum; /* of all bits */
    size_t n_layer, n_q;
} copy;

static int add_layer(void *ctx, const nb_capture_layer *l)
{
    copy *c = ctx;
    const size_t n_kv = l->n_tok * l->n_values, n_q = l->n_q * l->n_head * l->d_q;
    c->sum = nb_mix64(c->sum ^ nb_hash_bytes(l->kv, n_kv * sizeof *l->kv, 1));
    if (l->n_q) c->sum = nb_mix64(c->sum ^ nb_hash_bytes(l->q, n_q * sizeof *l->q, 2));
    c->n_layer++;
    c->n_q = l->n_q;
    return 0;
}

static copy capture(nb_engine *e, const uint32_t *id, size_t n, const size_t *pos, size_t n_pos)
{
    copy c = { 0 };
    nb_error err = { 0 };
    if (nb_engine_capture(e, id, n, pos, n_pos, add_layer, &c, &err) != NB_OK)
        fail_msg("%s", err.msg);
    return c;
}

static void test_same_bits(void **state)
{
    (void)state;
    static const char *const types[] = { "bf16", "nvfp4" };
    static const size_t pos[] = { 0, 5, 63, 64, 130, 199 };
    uint32_t id[200];
    for (size_t k = 0; k < 2; k++) {
        uint64_t first = 0;
        static const size_t chunks[] = { 512, 64, 37 };
        for (size_t i = 0; i < NB_COUNT(chunks); i++) {
            nb_engine *e = make_engine(&(nb_engine_options){ .model = in_source("tests/parity/v3"),
                                                             .kv_cache_dtype = types[k],
                                                             .no_text = true,
                                                             .n_thread = 1 + i,
                                                             .kv_sinks = 4,
                                                             .prefill_chunk = chunks[i] });
            random_ids(id, 200, vocab_of(e), 7);
            const size_t row = 199;
            float *before = logits_at(e, id, 200, &row, 1);
            const copy c = capture(e, id, 200, pos, NB_COUNT(pos));
            assert_int_equal(c.n_q, NB_COUNT(pos));
            if (i == 0) first = c.sum;
            assert_true(c.sum == first);
            assert_true(capture(e, id, 200, pos, NB_COUNT(pos)).sum == first);
            assert_int_equal(capture(e, id, 200, NULL, 0).n_q, 0);
            /* pages that the first request left are found again, and are as they were */
            float *after = logits_at(e, id, 200, &row, 1);
            assert_true(same_floats(before, after, vocab_of(e)));
            free(before);
            free(after);
            nb_engine_destroy(e);
        }
    }
}

/* ---- what is refused ---- */

static int stop_at_1(void *ctx, const nb_capture_layer *l)
{
    (void)ctx;
    return l->layer == 1;
}

typedef struct inner {
    nb_engine *e;
    nb_status st;
} inner;

static int from_callback(void *ctx, const nb_token_event *ev)
{
    inner *in = ctx;
    (void)ev;
    const uint32_t id[2] = { 1, 2 };
    nb_error err;
    in->st = nb_engine_capture(in->e, id, 2, NULL, 0, stop_at_1, NULL, &err);
    return 0;
}

static void test_refused(void **state)
{
    (void)state;
    nb_engine *e = simple_engine("tests/parity/v3", "bf16");
    uint32_t id[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
    static const size_t twice[] = { 3, 3 }, beyond[] = { 8 }, down[] = { 4, 2 };
    nb_error err;
    copy c;
    assert_int_equal(nb_engine_capture(e, id, 8, twice, 2, add_layer, &c, &err), NB_ERR_RANGE);
    check_line(&err, NB_ERR_RANGE, "ascending");
    assert_int_equal(nb_engine_capture(e, id, 8, beyond, 1, add_layer, &c, &err), NB_ERR_RANGE);
    assert_int_equal(nb_engine_capture(e, id, 8, down, 2, add_layer, &c, &err), NB_ERR_RANGE);
    assert_int_equal(nb_engine_capture(e, id, 8, NULL, 2, add_layer, &c, &err), NB_ERR_ARG);
    assert_int_equal(nb_engine_capture(e, id, 0, NULL, 0, add_layer, &c, &err), NB_ERR_ARG);
    assert_int_equal(nb_engine_capture(e, id, 8, NULL, 0, NULL, NULL, &err), NB_ERR_ARG);
    assert_int_equal(nb_engine_capture(e, id, 8, NULL, 0, stop_at_1, NULL, &err), NB_ERR_CANCELLED);
    check_line(&err, NB_ERR_CANCELLED, "caller");
    id[3] = (uint32_t)vocab_of(e);
    assert_int_equal(nb_engine_capture(e, id, 8, NULL, 0, add_layer, &c, &err), NB_ERR_RANGE);
    id[3] = 4;
    const nb_sampling s = greedy(1);
    inner in = { .e = e };
    const nb_request rq = {
        .prompt = id, .n_prompt = 8, .sampling = s, .on_token = from_callback, .on_token_ctx = &in
    };
    nb_result r = { 0 };
    assert_int_equal(nb_generate(e, &rq, &r, &err), NB_OK);
    assert_int_equal(in.st, NB_ERR_ARG);
    nb_result_deinit(&r);
    nb_engine_destroy(e);
}

/* Many heads at many positions: more than the copies may take.  The weights are made up. */
static void test_limit(void **state)
{
    (void)state;
    enum { N = 40000 };
    static const char *const was[] = { "\"num_attention_heads\": 2", "\"num_key_value_heads\": 2" };
    static const char *const is[] = { "\"num_attention_heads\": 128",
                                      "\"num_key_value_heads\": 128" };
    char path[] = "/tmp/nibble-capture-XXXXXX";
    nb_buf in = { 0 }, out = { 0 };
    nb_error err = { 0 };
    nb_engine *e = NULL;
    copy c;
    uint32_t *id = calloc(N, sizeof *id);
    size_t *pos = calloc(N, sizeof *pos);
    assert_true(id && pos);
    for (size_t i = 0; i < N; i++) pos[i] = i;
    assert_int_equal(
        nb_file_read(in_source("tests/parity/v3_geom/config.json"), 1 << 20, &in, &err), NB_OK);
    for (size_t i = 0; i < NB_COUNT(was); i++) {
        const char *at = strstr(in.p, was[i]);
        assert_non_null(at);
        out.n_bytes = 0;
        assert_int_equal(nb_buf_add(&out, in.p, (size_t)(at - in.p)), NB_OK);
        assert_int_equal(nb_buf_add_c(&out, is[i]), NB_OK);
        assert_int_equal(nb_buf_add_c(&out, at + strlen(was[i])), NB_OK);
        in.n_bytes = 0;
        assert_int_equal(nb_buf_add(&in, out.p, out.n_bytes), NB_OK);
    }
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(nb_file_write(path, in.p, in.n_bytes, &err), NB_OK);
    const nb_engine_options o = { .model = path,
                                  .load_format = "dummy",
                                  .kv_cache_dtype = "bf16",
                                  .no_text = true,
                                  .max_num_seqs = 1,
                                  .prefill_chunk = 64,
                                  .n_thread = 1 };
    if (nb_engine_create(&o, &e, &err) != NB_OK) fail_msg("%s", err.msg);
    assert_int_equal(nb_engine_capture(e, id, N, pos, N, add_layer, &c, &err), NB_ERR_LIMIT);
    check_line(&err, NB_ERR_LIMIT, "4 GiB");
    nb_engine_destroy(e);
    (void)unlink(path);
    nb_buf_deinit(&in);
    nb_buf_deinit(&out);
    free(id);
    free(pos);
}

static void test_hash(void **state)
{
    (void)state;
    char a[NB_MODEL_HASH_CHARS + 1], b[NB_MODEL_HASH_CHARS + 1], want[65];
    nb_error err;
    nb_engine *e = simple_engine("tests/parity/v3", "bf16");
    assert_int_equal(nb_engine_model_hash(e, a, &err), NB_OK);
    assert_int_equal(nb_model_hash(&e->model, want, &err), NB_OK);
    assert_string_equal(a, want);
    assert_int_equal(strlen(a), NB_MODEL_HASH_CHARS);
    nb_engine_destroy(e);
    e = simple_engine("tests/parity/v3_bias", "nvfp4");
    assert_int_equal(nb_engine_model_hash(e, b, &err), NB_OK);
    assert_string_not_equal(a, b);
    assert_int_equal(nb_engine_model_hash(NULL, b, &err), NB_ERR_ARG);
    nb_engine_destroy(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_reference),
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_hash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
