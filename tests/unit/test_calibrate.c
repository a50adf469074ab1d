/* test_calibrate.c - calibration: statistics, the measurement of a candidate against the plainest
 * way to do it, the choices, and the whole on models of this repository. */
#include "engine_testing.h"

#include <math.h>

#include "calibrate/calibrate_internal.h"
#include "num/bf16.h"

enum { N0 = 32, ROPE = 8, NV = N0 + ROPE, TOK = 200, HEADS = 3, DV = 6, NQ = 5 };

typedef struct made {
    nb_capture_layer l;
    float kv[TOK * NV], q[NQ * HEADS * NV], uv[HEADS * DV * N0];
    size_t pos[NQ];
} made;

static double normal(uint64_t *i)
{
    const double u = nb_rng_unit(3, (*i)++), v = nb_rng_unit(3, (*i)++);
    return sqrt(-2 * log(1 - u)) * cos(6.283185307179586 * v);
}

/* Channels of very different sizes, some far from zero. */
static void make(made *m)
{
    uint64_t r = 0;
    static const size_t pos[NQ] = { 3, 70, 128, 191, 199 };
    for (size_t t = 0; t < TOK; t++)
        for (size_t c = 0; c < NV; c++) {
            const double sd = c < N0 ? exp(1.2 * sin(7.0 * (double)c)) : 1;
            const double mean = c % 11 == 5 ? 6 * sd : 0;
            m->kv[t * NV + c] = (float)(mean + sd * normal(&r));
        }
    for (size_t i = 0; i < NQ * HEADS * NV; i++) m->q[i] = (float)normal(&r);
    for (size_t i = 0; i < HEADS * DV * N0; i++) m->uv[i] = (float)normal(&r);
    memcpy(m->pos, pos, sizeof pos);
    m->l = (nb_capture_layer){ .n_layer = 1,
                               .is_mla = true,
                               .n_tok = TOK,
                               .n_q = NQ,
                               .n_head = HEADS,
                               .n_kv_head = 1,
                               .dim = { N0, ROPE },
                               .n_vec = { 1, 1 },
                               .n_values = NV,
                               .d_q = NV,
                               .d_v = DV,
                               .scale = 0.1f,
                               .rope_interleaved = true,
                               .kv = m->kv,
                               .pos = m->pos,
                               .q = m->q,
                               .w_uv = m->uv };
}

static void finish(const made *m, nb_arena *a, calib_stats *s, calib_layer_stats *out)
{
    *s = (calib_stats){ 0 };
    *out = (calib_layer_stats){ 0 };
    nb_capture_layer part = m->l; /* in two parts */
    part.n_tok = 77;
    assert_int_equal(nb_calib_stats_add(s, &part, a), NB_OK);
    part.n_tok = TOK - 77;
    part.kv += 77 * NV;
    part.n_q = 0;
    assert_int_equal(nb_calib_stats_add(s, &part, a), NB_OK);
    assert_int_equal(nb_calib_stats_finish(s, true, a, out), NB_OK);
}

/* The largest pairs of the rope key, in both arrangements. */
static void check_pairs(made *m, calib_stats *s, calib_layer_stats *y)
{
    uint16_t out[NB_MAX_OUTLIER];
    const size_t n_pair = ROPE / 2;
    for (size_t j = 1; j < n_pair; j++)
        assert_true(s->pair_sq[y->pair[j - 1]] >= s->pair_sq[y->pair[j]]);
    double sum = 0;
    for (size_t t = 0; t < TOK; t++)
        for (size_t k = 0; k < 2; k++) {
            const double v = (double)m->kv[t * NV + N0 + 2 * y->pair[0] + k];
            sum += v * v;
        }
    assert_true(fabs(s->pair_sq[y->pair[0]] - sum) < 1e-5 * sum);
    const uint16_t kept[] = { y->pair[0], y->pair[1], y->pair[2], y->pair[3] };
    y->pair[0] = 2;
    y->pair[1] = 0;
    assert_int_equal(nb_calib_rope_outliers(s, y, 2, out), 4);
    assert_true(out[0] == 0 && out[1] == 1 && out[2] == 4 && out[3] == 5);
    s->interleaved = false;
    assert_int_equal(nb_calib_rope_outliers(s, y, 2, out), 4);
    assert_true(out[0] == 0 && out[1] == 2 && out[2] == 4 && out[3] == 6);
    assert_int_equal(nb_calib_rope_outliers(s, y, 0, out), 0);
    memcpy(y->pair, kept, sizeof kept);
    assert_int_equal(nb_calib_rope_outliers(s, y, 99, out), ROPE); /* no more than there are */
    s->interleaved = true;
}

static void test_statistics(void **state)
{
    (void)state;
    static made m;
    nb_arena a = { 0 };
    calib_stats s;
    calib_layer_stats y;
    make(&m);
    finish(&m, &a, &s, &y);
    float token_amax = 0;
    for (size_t c = 0; c < N0; c++) {
        double mean = 0, var = 0;
        float amax = 0;
        for (size_t t = 0; t < TOK; t++) mean += (double)m.kv[t * NV + c] / TOK;
        for (size_t t = 0; t < TOK; t++) {
            var += pow((double)m.kv[t * NV + c] - mean, 2) / TOK;
            amax = fmaxf(amax, fabsf(m.kv[t * NV + c]));
        }
        assert_true(fabs((double)y.mean[c] - mean) < 1e-6 * (1 + fabs(mean)));
        assert_true(fabs((double)y.sd[c] - sqrt(var)) < 1e-5 * sqrt(var));
        assert_true(s.amax[c] == amax);
        token_amax = fmaxf(token_amax, amax);
    }
    assert_true(s.token_amax == token_amax);
    for (size_t j = 0; j < ROPE / 2; j++) {
        double sum = 0;
        for (size_t t = 0; t < TOK; t++)
            sum += hypot((double)m.kv[t * NV + N0 + 2 * j], (double)m.kv[t * NV + N0 + 2 * j + 1]);
        assert_true(fabs((double)y.pair_mean[j] - sum / TOK) < 1e-5);
    }
    check_pairs(&m, &s, &y);
    assert_int_equal(y.hadamard, 32);
    for (size_t k = 0; k < CALIB_SCALINGS; k++) {
        bool seen[N0] = { false };
        for (size_t i = 0; i < N0; i++) {
            assert_false(seen[y.perm[k][i]]);
            seen[y.perm[k][i]] = true;
            if (!i) continue; /* sorted by what is left of the deviation */
            const size_t c = y.perm[k][i], b = y.perm[k][i - 1];
            assert_true(ldexp((double)y.sd[b], y.scale_log2[k][b]) >=
                        ldexp((double)y.sd[c], y.scale_log2[k][c]));
        }
    }
    /* 1 / sd makes all deviations alike, within the rounding of the exponent */
    const size_t most = y.perm[CALIB_BY_SD][0], least = y.perm[CALIB_BY_SD][N0 - 1];
    assert_true(ldexp((double)y.sd[most], y.scale_log2[CALIB_BY_SD][most]) <=
                2.01 * ldexp((double)y.sd[least], y.scale_log2[CALIB_BY_SD][least]));
    for (size_t c = 0; c < N0; c++) assert_int_equal(y.scale_log2[CALIB_BY_ORDER][c], 0);
    nb_arena_deinit(&a);
}

/* ---- one candidate, the plain way: rows back in the model's own domain, attention in double ---- */

static void hadamard(double *x, size_t n)
{
    double y[N0];
    for (size_t i = 0; i < n; i++) {
        y[i] = 0;
        for (size_t k = 0; k < n; k++) {
            int sign = 0;
            for (size_t b = i & k; b; b &= b - 1) sign ^= 1;
            y[i] += (sign ? -x[k] : x[k]) / sqrt((double)n);
        }
    }
    memcpy(x, y, n * sizeof *x);
}

static void there(const calib_layer_stats *s, calib_transform t, const float *x, float *y)
{
    double v[N0];
    for (size_t i = 0; i < N0; i++) {
        const size_t c = t.parts & CALIB_EQUALIZE ? s->perm[t.scaling][i] : i;
        v[i] = (double)x[c] - (t.parts & CALIB_CENTER ? (double)s->mean[c] : 0);
        if (t.parts & CALIB_EQUALIZE) v[i] = ldexp(v[i], s->scale_log2[t.scaling][c]);
    }
    if (t.parts & CALIB_HADAMARD) hadamard(v, N0);
    for (size_t i = 0; i < N0; i++) y[i] = (float)v[i];
    memcpy(y + N0, x + N0, ROPE * sizeof *y);
}

static void back(const calib_layer_stats *s, calib_transform t, const float *y, double *x)
{
    double v[N0];
    for (size_t i = 0; i < N0; i++) v[i] = (double)y[i];
    if (t.parts & CALIB_HADAMARD) hadamard(v, N0);
    for (size_t i = 0; i < N0; i++) {
        const size_t c = t.parts & CALIB_EQUALIZE ? s->perm[t.scaling][i] : i;
        x[c] = t.parts & CALIB_EQUALIZE ? ldexp(v[i], -s->scale_log2[t.scaling][c]) : v[i];
        if (t.parts & CALIB_CENTER) x[c] += (double)s->mean[c];
    }
    for (size_t i = N0; i < NV; i++) x[i] = (double)y[i];
}

/* Outputs of head h at query i from rows [TOK][NV]. */
static void attend(const made *m, const double *rows, size_t i, size_t h, double *out)
{
    const size_t n = m->pos[i] + 1;
    double p[TOK], max = -INFINITY, sum = 0;
    for (size_t t = 0; t < n; t++) {
        p[t] = 0;
        for (size_t c = 0; c < NV; c++)
            p[t] += 0.1f * (double)m->q[(i * HEADS + h) * NV + c] * rows[t * NV + c];
        max = fmax(max, p[t]);
    }
    for (size_t t = 0; t < n; t++) sum += p[t] = exp(p[t] - max);
    for (size_t d = 0; d < DV; d++) {
        out[d] = 0;
        for (size_t t = 0; t < n; t++)
            for (size_t c = 0; c < N0; c++)
                out[d] += p[t] / sum * (double)m->uv[(h * DV + d) * N0 + c] * rows[t * NV + c];
    }
}

static void plainly(const made *m, const calib_layer_stats *s, const calib_candidate *k,
                    double *err_sq, double *ref_sq)
{
    static float y[TOK * NV];
    static uint16_t half[TOK * NV];
    static double exact[TOK * NV], mine[NQ][TOK * NV];
    unsigned char *page = malloc(k->layout.page_bytes);
    float *dec = malloc(TOK * NV * sizeof *dec);
    assert_true(page && dec);
    for (size_t t = 0; t < TOK; t++) there(s, k->t, m->kv + t * NV, y + t * NV);
    for (size_t i = 0; i < TOK * NV; i++) {
        exact[i] = (double)m->kv[i];
        half[i] = nb_bf16_from_f32(y[i]);
        y[i] = nb_bf16_to_f32(half[i]);
    }
    for (size_t p = 0; p < TOK / NB_PAGE_TOK; p++) {
        assert_int_equal(nb_record_encode_page(&k->layout, page, half + p * 64 * NV, NV), NB_OK);
        nb_record_decode(&k->layout, page, 0, 0, 64, dec + p * 64 * NV, NV);
        nb_record_decode(&k->layout, page, 1, 0, 64, dec + p * 64 * NV + N0, NV);
    }
    for (size_t i = 0; i < NQ; i++)
        for (size_t t = 0; t <= m->pos[i]; t++)
            back(s, k->t, (t / 64 < m->pos[i] / 64 ? dec : y) + t * NV, mine[i] + t * NV);
    for (size_t h = 0; h < HEADS; h++) {
        err_sq[h] = ref_sq[h] = 0;
        for (size_t i = 0; i < NQ; i++) {
            double a[DV], b[DV];
            attend(m, exact, i, h, a);
            attend(m, mine[i], i, h, b);
            for (size_t d = 0; d < DV; d++) {
                ref_sq[h] += a[d] * a[d];
                err_sq[h] += (a[d] - b[d]) * (a[d] - b[d]);
            }
        }
    }
    free(page);
    free(dec);
}

static void test_measure(void **state)
{
    (void)state;
    static const nb_calib_record records[] = { { NB_KV_BF16, NB_KV_BASIC, NB_ROPE_FP8, 0, 0 },
                                               { NB_KV_FP8, NB_KV_BASIC, NB_ROPE_BF16, 0, 0 },
                                               { NB_KV_NVFP4, NB_KV_4OVER6, NB_ROPE_INT8, 0, 0 },
                                               { NB_KV_IF4, NB_KV_SEARCH, NB_ROPE_BF16, 0, 0 } };
    static made m;
    static calib_candidate c[64];
    nb_arena a = { 0 };
    calib_stats s;
    calib_layer_stats y;
    calib_bench b;
    size_t n = 0;
    double ref[HEADS] = { 0 }, want_err[HEADS], want_ref[HEADS];
    nb_error err = { 0 };
    make(&m);
    finish(&m, &a, &s, &y);
    for (unsigned parts = 0; parts < 8; parts++)
        for (size_t r = 0; r < NB_COUNT(records); r++) {
            const nb_record_opts o = { .type = records[r].type,
                                       .mode = records[r].mode,
                                       .rope = records[r].rope,
                                       NB_SEGS_MLA(N0, ROPE) };
            c[n] = (calib_candidate){ .t = { parts, (calib_scaling)(r % CALIB_SCALINGS) } };
            assert_int_equal(nb_record_init(&c[n].layout, &o, NULL), NB_OK);
            c[n].loss = nb_arena_array(&a, NQ + 2, sizeof(double));
            c[n++].err_sq = nb_arena_array(&a, HEADS, sizeof(double));
        }
    nb_calib_bench_init(&b);
    if (nb_calib_measure(&b, &m.l, &y, c, n, 2, ref, &err) != NB_OK) fail_msg("%s", err.msg);
    nb_calib_bench_deinit(&b);
    for (size_t i = 0; i < n; i++) {
        double loss = 0;
        plainly(&m, &y, &c[i], want_err, want_ref);
        for (size_t h = 0; h < HEADS; h++) {
            assert_true(fabs(ref[h] - want_ref[h]) < 1e-5 * want_ref[h]);
            if (fabs(c[i].err_sq[h] - want_err[h]) > 2e-3 * want_err[h] + 1e-9 * want_ref[h])
                fail_msg("parts %u, candidate %zu, head %zu: %g, expected %g", c[i].t.parts, i, h,
                         c[i].err_sq[h], want_err[h]);
            loss += want_err[h] / want_ref[h] / HEADS;
        }
        nb_calib_summarise(&c[i], 1, NQ + 2, ref, HEADS);
        assert_true(c[i].loss[0] == 0 && c[i].loss[1] == 0); /* another window's */
        assert_true(fabs(c[i].mean_loss * (NQ + 2) - loss * NQ) < 3e-3 * loss * NQ + 1e-9);
    }
    nb_arena_deinit(&a);
}

/* ---- choices ---- */

static void test_choose_transform(void **state)
{
    (void)state;
    enum { N = 64 };
    double none[N], better[N], lucky[N];
    uint64_t r = 1000;
    for (size_t i = 0; i < N; i++) {
        none[i] = 1 + 0.3 * normal(&r);
        better[i] = 0.9 * none[i] + 0.02 * normal(&r);
        lucky[i] = i % 2 ? none[i] + 0.01 : none[i] - 0.5; /* good only where it was picked */
    }
    calib_candidate c[2] = { { .loss = none }, { .loss = better } };
    size_t k = 9;
    assert_int_equal(nb_calib_choose_transform(c, 2, N, 1, &k, NULL), NB_OK);
    assert_int_equal(k, 1);
    c[1].loss = lucky;
    assert_int_equal(nb_calib_choose_transform(c, 2, N, 1, &k, NULL), NB_OK);
    assert_int_equal(k, 0);
    c[1].loss = none; /* no difference at all */
    assert_int_equal(nb_calib_choose_transform(c, 2, N, 1, &k, NULL), NB_OK);
    assert_int_equal(k, 0);
    assert_int_equal(nb_calib_choose_transform(c, 1, N, 1, &k, NULL), NB_OK);
    assert_int_equal(k, 0);
}

static void test_choose_records(void **state)
{
    (void)state;
    const calib_candidate c[] = {
        { .bits = 16, .mean_loss = 0, .error = 0 },    { .bits = 8, .mean_loss = 1, .error = .01 },
        { .bits = 5, .mean_loss = 10, .error = .03 },  { .bits = 5, .mean_loss = 8, .error = .02 },
        { .bits = 16, .mean_loss = 0, .error = 0 },    { .bits = 8, .mean_loss = 20, .error = .04 },
        { .bits = 5, .mean_loss = 100, .error = .10 }, { .bits = 6, .mean_loss = 30, .error = .06 },
    };
    const size_t n[] = { 4, 4 };
    size_t pick[2];
    nb_error err;
    assert_int_equal(nb_calib_choose_bits(c, n, 4, 2, 5, pick, &err), NB_OK);
    assert_int_equal(pick[0], 3); /* of equally small ones the better */
    assert_int_equal(pick[1], 2);
    assert_int_equal(nb_calib_choose_bits(c, n, 4, 2, 5.5, pick, &err), NB_OK);
    assert_int_equal(pick[0], 3);
    assert_int_equal(pick[1], 3); /* one bit more wins 70 */
    assert_int_equal(nb_calib_choose_bits(c, n, 4, 2, 6.5, pick, &err), NB_OK);
    assert_int_equal(pick[0], 3);
    assert_int_equal(pick[1], 1);
    assert_int_equal(nb_calib_choose_bits(c, n, 4, 2, 16, pick, &err), NB_OK);
    assert_int_equal(pick[0], 0);
    assert_int_equal(pick[1], 0);
    assert_int_equal(nb_calib_choose_bits(c, n, 4, 2, 4.9, pick, &err), NB_ERR_RANGE);
    check_line(&err, NB_ERR_RANGE, "5.000 bits");
    assert_int_equal(nb_calib_choose_error(c, 4, 0.025), 3);
    assert_int_equal(nb_calib_choose_error(c, 4, 0.03), 3); /* 2 is as small, and worse */
    assert_int_equal(nb_calib_choose_error(c, 4, 0.015), 1);
    assert_int_equal(nb_calib_choose_error(c + 5, 3, 0.001), 0); /* none keeps it */
}

/* ---- the whole ---- */

typedef struct text {
    uint32_t ids[6 * 192];
    size_t begin[7];
} text;

static nb_status run(const char *model, double target_bits, const char *candidates,
                     nb_kv_calib *out, nb_error *err)
{
    static text t;
    nb_engine *e = simple_engine(model, "bf16");
    random_ids(t.ids, NB_COUNT(t.ids), vocab_of(e), 5);
    for (size_t i = 0; i < NB_COUNT(t.begin); i++) t.begin[i] = i * 192;
    const nb_calibrate_options o = {
        .ids = t.ids,
        .begin = t.begin,
        .n_window = 6,
        .held_out = 0.4,
        .n_query = 8,
        .seed = 1,
        .candidates = candidates,
        .record = { .type = NB_KV_NVFP4, .mode = NB_KV_4OVER6 },
        .target_bits = target_bits,
    };
    *err = (nb_error){ 0 };
    const nb_status st = nb_calibrate(e, &o, out, err);
    nb_engine_destroy(e);
    return st;
}

static void test_models(void **state)
{
    (void)state;
    static const char *const models[] = { "tests/parity/v3_geom", "tests/parity/llama3" };
    for (size_t i = 0; i < NB_COUNT(models); i++) {
        nb_kv_calib a, b;
        nb_error err;
        if (run(models[i], 0, NULL, &a, &err) != NB_OK) fail_msg("%s", err.msg);
        assert_int_equal(a.is_mla, i == 0);
        assert_int_equal(a.n_tok, 4 * 192);
        for (size_t k = 0; k < a.n_layer; k++) {
            assert_string_equal(a.layer[k].kv_dtype, "nvfp4");
            assert_true(a.layer[k].error > 0.001 && a.layer[k].error < 0.2);
            assert_true(a.layer[k].error <= 1.02 * a.layer[k].plain_error);
        }
        /* more bits, less error; the same input, the same result */
        nb_kv_calib c[2];
        double e5 = 0, e8 = 0;
        for (int k = 0; k < 2; k++)
            if (run(models[i], 8.5, "none", &c[k], &err) != NB_OK) fail_msg("%s", err.msg);
        if (run(models[i], 5.2, "none", &b, &err) != NB_OK) fail_msg("%s", err.msg);
        assert_true(b.mean_bits <= 5.2 && c[0].mean_bits <= 8.5 && c[0].mean_bits > 5.2);
        for (size_t k = 0; k < a.n_layer; k++) {
            e5 += b.layer[k].error;
            e8 += c[0].layer[k].error;
            assert_true(c[0].layer[k].error == c[1].layer[k].error);
            assert_string_equal(c[0].layer[k].kv_dtype, c[1].layer[k].kv_dtype);
        }
        assert_true(e8 < e5);
        nb_kv_calib_deinit(&a);
        nb_kv_calib_deinit(&b);
        nb_kv_calib_deinit(&c[0]);
        nb_kv_calib_deinit(&c[1]);
    }
}

static void test_refused(void **state)
{
    (void)state;
    nb_kv_calib c;
    nb_error err;
    static const char *const bad[] = {
        "", "centre", "none+center", "center+center", "center,", "+"
    };
    for (size_t i = 0; i < NB_COUNT(bad); i++) {
        assert_int_equal(run("tests/parity/v3_geom", 0, bad[i], &c, &err), NB_ERR_ARG);
        check_line(&err, NB_ERR_ARG, "--candidates");
    }
    assert_int_equal(run("tests/parity/v3_geom", 4.0, "none", &c, &err), NB_ERR_RANGE);
    check_line(&err, NB_ERR_RANGE, "--target-bits");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_statistics),       cmocka_unit_test(test_measure),
        cmocka_unit_test(test_choose_transform), cmocka_unit_test(test_choose_records),
        cmocka_unit_test(test_models),           cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
