/* test_fold.c - transforms of the latent folded into the weights (model/fold.h): the model stays
 * the same function in every family, weight type and form; the Hadamard transform; what cannot be
 * exact; the model's hash.  Options and refusals are in test_kv_options.c. */
#include "engine_testing.h"

#include <float.h>
#include <math.h>

#include "engine/engine_internal.h"
#include "kernel/embed/embed.h"
#include "model/fold.h"
#include "num/bf16.h"
#include "num/e4m3.h"

#include "num/fp16.h"

enum { USE_MEAN = 1, USE_D = 2, USE_P = 4, USE_H = 8, ALL = 15, MAX_DIM = 512 };
enum { N_PROMPT = 75, N_ROW = 6, N_GREEDY = 12 };

static double gauss(uint64_t seed, uint64_t i) /* nearly normal, deviation 1 */
{
    double s = 0;
    for (uint64_t k = 0; k < 12; k++)
        s += (double)(nb_rng_u64(seed, 12 * i + k) >> 11) * 0x1p-53 - 0.5;
    return s;
}

static size_t block_of(size_t n)
{
    size_t b = 512;
    while (n % b) b /= 2;
    return b;
}

/* A transform of n channels: means of the size of the values, any order, all of D's range; but
 * under H, which spreads the rounding of large channels over small ones, D between 1/2 and 2. */
typedef struct random_fold {
    float mean[MAX_DIM];
    int8_t k[MAX_DIM];
    uint16_t perm[MAX_DIM];
    nb_fold f;
} random_fold;

static void make_fold(random_fold *r, size_t n, const float *gamma, unsigned use, uint64_t seed)
{
    const unsigned d = use & USE_H ? 1 : NB_KV_SCALE_LOG2_MAX;
    assert_true(n <= MAX_DIM);
    for (size_t i = 0; i < n; i++) {
        r->mean[i] = (float)gauss(seed, i) * gamma[i];
        r->k[i] = (int8_t)((int)(nb_rng_u64(seed + 1, i) % (2 * d + 1)) - (int)d);
        r->perm[i] = (uint16_t)i;
    }
    for (size_t i = n - 1; i > 0; i--) {
        const size_t j = nb_rng_u64(seed + 2, i) % (i + 1);
        const uint16_t t = r->perm[i];
        r->perm[i] = r->perm[j];
        r->perm[j] = t;
    }
    r->f = (nb_fold){ .mean = use & USE_MEAN ? r->mean : NULL,
                      .scale_log2 = use & USE_D ? r->k : NULL,
                      .perm = use & USE_P ? r->perm : NULL,
                      .hadamard = use & USE_H ? block_of(n) : 0 };
}

/* ---- the Hadamard transform ---- */

static void test_hadamard(void **state)
{
    (void)state;
    static float x[512], y[512];
    double worst = 0;
    for (size_t block = 1; block <= 512; block *= 2) {
        for (size_t i = 0; i < 512; i++) x[i] = y[i] = (float)gauss(7, i);
        nb_hadamard(y, 512, block);
        for (size_t i = 0; i < 512; i++) {
            const size_t b = i / block * block;
            double want = 0;
            for (size_t j = 0; j < block; j++) {
                size_t both = (i - b) & j, odd = 0;
                for (; both; both &= both - 1) odd ^= 1;
                want += odd ? -(double)x[b + j] : (double)x[b + j];
            }
            want /= sqrt((double)block);
            worst = fmax(worst, fabs(want - (double)y[i]));
        }
        nb_hadamard(y, 512, block); /* its own inverse */
        for (size_t i = 0; i < 512; i++) worst = fmax(worst, fabs((double)x[i] - (double)y[i]));
    }
    print_message("hadamard: worst error %.2g\n", worst);
    assert_true(worst < 2e-6);
}

static void test_rows(void **state)
{
    (void)state;
    float mean[8], kv[3][11], want[3][11];
    nb_layer l = { 0 };
    for (size_t i = 0; i < 8; i++) mean[i] = (float)i / 4;
    for (size_t i = 0; i < 33; i++) (&kv[0][0])[i] = (&want[0][0])[i] = (float)gauss(3, i);
    nb_fold_rows(&l, 8, kv[0], 3, 11);
    assert_true(same_floats(kv[0], want[0], 33));
    l.kv_mean = mean;
    l.kv_hadamard = 4;
    for (size_t t = 0; t < 3; t++) {
        for (size_t i = 0; i < 8; i++) want[t][i] -= mean[i];
        nb_hadamard(want[t], 8, 4);
    }
    nb_fold_rows(&l, 8, kv[0], 3, 11); /* the 3 values after the latent stay */
    assert_true(same_floats(kv[0], want[0], 33));
}

/* ---- the same function ---- */

/* Combinations, as bits 1 << use: all of them, each part and all together, and fewer; under
 * AddressSanitizer, which finds the same in one, everything at once. */
#if defined(__SANITIZE_ADDRESS__)
enum { EVERY = 1 << ALL, EACH = 1 << ALL, A_FEW = 0 };
#else
enum {
    EVERY = 0xfffe,
    EACH = 1 << USE_MEAN | 1 << USE_D | 1 << USE_P | 1 << USE_H | 1 << ALL,
    A_FEW = 1 << USE_MEAN | 1 << (USE_D | USE_P) | 1 << USE_H | 1 << ALL
};
#endif

static const struct model_case {
    const char *dir;
    bool fp8; /* P, D and H round the weights */
} model_cases[] = {
    { "v2_lite", false },    { "v2_group", false },      { "v3", false },
    { "v3_bias", false },    { "v3_f32", false },        { "v3_fp8", true },
    { "v3_geom", false },    { "v3_halfrope", false },   { "v3_moonlight", false },
    { "v3_sharded", false }, { "kimi_k2", false },       { "glm4_moe_lite", false },
    { "glm4_types", false }, { "minicpm3_long", false }, { "minicpm3_short", false },
    { "youtu", false },      { "youtu_f16", false },
};

static nb_engine *folded_engine(const char *model, const char *kv, const char *mla, unsigned use)
{
    static random_fold r;
    nb_engine *e = make_engine(&(nb_engine_options){ .model = in_source(model),
                                                     .kv_cache_dtype = kv,
                                                     .mla = mla,
                                                     .no_text = true,
                                                     .max_model_len = 128,
                                                     .prefill_chunk = 32,
                                                     .n_thread = 1 });
    nb_error err = { 0 };
    for (size_t i = 0; use && i < e->model.c.n_layer; i++) {
        make_fold(&r, e->model.c.attn[0].kv_lora, e->model.layer[i].kv_a_norm, use, 100 * i + use);
        if (nb_fold_layer(&e->model, i, &r.f, &err) != NB_OK) fail_msg("%s", err.msg);
    }
    return e;
}

typedef struct outcome {
    float *logits; /* [N_ROW][n_vocab] */
    uint32_t greedy[N_GREEDY];
    size_t n_vocab;
} outcome;

static void run_model(const char *model, const char *kv, const char *mla, unsigned use,
                      const uint32_t *id, outcome *o)
{
    static const size_t row[N_ROW] = { 0, 1, 31, 63, 64, N_PROMPT - 1 };
    static gen g;
    nb_engine *e = folded_engine(model, kv, mla, use);
    const nb_sampling s = greedy(N_GREEDY);
    o->n_vocab = vocab_of(e);
    o->logits = logits_at(e, id, N_PROMPT, row, N_ROW);
    run_gen(e, id, N_PROMPT, &s, &g);
    assert_int_equal(g.n_seen, N_GREEDY);
    memcpy(o->greedy, g.seen, sizeof o->greedy);
    gen_reset(&g);
    nb_engine_destroy(e);
}

typedef struct agreement {
    double diff, kl; /* largest logit difference over the largest logit; largest KL */
    bool greedy;
} agreement;

static double kl_of(const float *p, const float *q, size_t n)
{
    double mp = -INFINITY, mq = -INFINITY, sp = 0, sq = 0, kl = 0;
    for (size_t i = 0; i < n; i++) {
        mp = fmax(mp, (double)p[i]);
        mq = fmax(mq, (double)q[i]);
    }
    for (size_t i = 0; i < n; i++) {
        sp += exp((double)p[i] - mp);
        sq += exp((double)q[i] - mq);
    }
    for (size_t i = 0; i < n; i++) {
        const double lp = (double)p[i] - mp - log(sp), lq = (double)q[i] - mq - log(sq);
        kl += exp(lp) * (lp - lq);
    }
    return kl;
}

static agreement compare(const outcome *a, const outcome *b)
{
    double big = 0, diff = 0, kl = 0;
    for (size_t r = 0; r < N_ROW; r++)
        kl = fmax(kl, kl_of(a->logits + r * a->n_vocab, b->logits + r * a->n_vocab, a->n_vocab));
    for (size_t i = 0; i < N_ROW * a->n_vocab; i++) {
        big = fmax(big, fabs((double)a->logits[i]));
        const double d = fabs((double)a->logits[i] - (double)b->logits[i]);
        diff = d <= diff ? diff : d; /* NaN counts as larger */
    }
    return (agreement){ diff / big, kl, !memcmp(a->greedy, b->greedy, sizeof a->greedy) };
}

/* f32 cache: float noise, every combination; tokens are the same.  D alone changes no bit.
 * worst[use]: largest difference, [0]: where weights are rounded to BF16. */
static void same_function(const char *model, bool fp8, uint64_t seed, unsigned uses,
                          double worst[16])
{
    static const char *const form[] = { "absorbed", "expanded" };
    uint32_t id[N_PROMPT];
    outcome plain[2], folded;
    nb_engine *e = simple_engine(model, "f32");
    random_ids(id, N_PROMPT, vocab_of(e), seed);
    nb_engine_destroy(e);
    for (size_t i = 0; i < 2; i++) run_model(model, "f32", form[i], 0, id, &plain[i]);
    for (unsigned use = 1; use <= ALL; use++) {
        if (!(uses >> use & 1)) continue;
        const size_t i = (use + seed) % 2;
        const bool rounds = fp8 && use & (USE_D | USE_P | USE_H);
        run_model(model, "f32", form[i], use, id, &folded);
        const agreement a = compare(&plain[i], &folded);
        double *w = &worst[rounds ? 0 : use];
        *w = fmax(*w, a.diff);
        const double max_diff = rounds ? 1e-2 : use == USE_D ? 0 : 1e-5;
        if (!(a.diff <= max_diff) || !(a.kl <= (rounds ? 1e-4 : 1e-9)) || (!rounds && !a.greedy))
            fail_msg("%s, %s, transform %u: logits differ by %.3g, KL %.3g, greedy tokens %s",
                     model, form[i], use, a.diff, a.kl, a.greedy ? "equal" : "differ");
        free(folded.logits);
    }
    free(plain[0].logits);
    free(plain[1].logits);
}

static void test_families(void **state)
{
    (void)state;
    double worst[16] = { 0 };
    for (size_t i = 0; i < NB_COUNT(model_cases); i++) {
        char dir[64];
        (void)snprintf(dir, sizeof dir, "tests/parity/%s", model_cases[i].dir);
        same_function(dir, model_cases[i].fp8, i, i % 4 == 1 ? EVERY : EACH, worst);
    }
    for (unsigned use = 1; use <= ALL; use++)
        print_message("%s%s%s%s: %.2g\n", use & USE_MEAN ? "mean " : "", use & USE_D ? "D " : "",
                      use & USE_P ? "P " : "", use & USE_H ? "H " : "", worst[use]);
    print_message("weights of fp8 rounded to bf16: %.2g\n", worst[0]);
}

static void test_bundled(void **state)
{
    (void)state;
    double worst[16] = { 0 };
    const size_t few = A_FEW; /* none under a sanitizer */
    if (!few || !have_file("models/nibble-tiny/config.json")) skip();
    same_function("models/nibble-tiny", false, 5, A_FEW, worst);
    print_message("mean %.2g, D P %.2g, H %.2g, all %.2g\n", worst[USE_MEAN], worst[USE_D | USE_P],
                  worst[USE_H], worst[ALL]);
}

/* BF16 cache: P and D commute with rounding.  With the others other values are rounded: noise
 * like that of rounding itself (means as large as the values make those larger). */
static void bf16_noise(const char *model, uint64_t seed, unsigned uses)
{
    uint32_t id[N_PROMPT];
    outcome exact, plain, folded;
    nb_engine *e = simple_engine(model, "f32");
    random_ids(id, N_PROMPT, vocab_of(e), seed);
    nb_engine_destroy(e);
    run_model(model, "f32", "auto", 0, id, &exact);
    run_model(model, "bf16", "auto", 0, id, &plain);
    const agreement noise = compare(&exact, &plain);
    for (unsigned use = 1; use <= ALL; use++) {
        if (!(uses >> use & 1)) continue;
        run_model(model, "bf16", "auto", use, id, &folded);
        const agreement a = compare(&exact, &folded), b = compare(&plain, &folded);
        print_message("%s, transform %u: %.2g, KL %.2g from f32 (without: %.2g, KL %.2g)\n", model,
                      use, a.diff, a.kl, noise.diff, noise.kl);
        if (!(a.diff <= 4 * noise.diff) || !(a.kl <= 16 * noise.kl))
            fail_msg("%s, transform %u: %.3g, KL %.3g", model, use, a.diff, a.kl);
        if (!(use & (USE_MEAN | USE_H)) && !(b.diff <= (use == USE_D ? 0 : 1e-3)))
            fail_msg("%s, transform %u: %.3g from the BF16 cache without", model, use, b.diff);
        free(folded.logits);
    }
    free(exact.logits);
    free(plain.logits);
}

static void test_bf16_noise(void **state)
{
    (void)state;
    bf16_noise("tests/parity/v3", 40, EVERY);
    bf16_noise("tests/parity/minicpm3_short", 41, EACH);
    bf16_noise("tests/parity/v2_lite", 42, EACH);
    const size_t few = A_FEW; /* none under a sanitizer */
    if (few && have_file("models/nibble-tiny/config.json"))
        bf16_noise("models/nibble-tiny", 43, A_FEW);
}

/* ---- weights to the bit ---- */

enum { LORA = 8, ROPE = 2, HEADS = 2, NOPE = 3, VALUE = 5, HIDDEN = 6 };
enum {
    N_A = (LORA + ROPE) * HIDDEN,
    N_B = HEADS * (NOPE + VALUE) * LORA,
    N_O = HIDDEN * HEADS * VALUE
};

/* A layer made by hand; kv_a, kv_b and o of one type. */
typedef struct small {
    nb_model m;
    nb_layer l;
    uint16_t a16[N_A], b16[N_B], o16[N_O];
    float a32[N_A], b32[N_B], o32[N_O], gamma[LORA], kv_a_b[LORA + ROPE], o_b[HIDDEN], scale[1];
    uint8_t a8[N_A], b8[N_B], o8[N_O];
} small;

static void set(uint8_t *x8, uint16_t *x16, float *x32, size_t n, nb_wtype type, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        const float x = (float)gauss(seed, i);
        x32[i] = x;
        x16[i] = type == NB_W_F16 ? nb_fp16_from_f32(x) : nb_bf16_from_f32(x);
        x8[i] = nb_e4m3_from_f32(x);
    }
}

static nb_weight matrix(const small *s, nb_wtype type, const uint8_t *x8, const uint16_t *x16,
                        const float *x32, size_t n_row, size_t n_col)
{
    const void *data = type == NB_W_F32    ? (const void *)x32
                       : type == NB_W_FP8B ? (const void *)x8
                                           : (const void *)x16;
    return (nb_weight){ .data = data,
                        .scale = type == NB_W_FP8B ? s->scale : NULL,
                        .n_row = n_row,
                        .n_col = n_col,
                        .type = type };
}

static void make_small(small *s, nb_wtype type, uint64_t seed)
{
    *s = (small){ 0 };
    set(s->a8, s->a16, s->a32, N_A, type, seed);
    set(s->b8, s->b16, s->b32, N_B, type, seed + 1);
    set(s->o8, s->o16, s->o32, N_O, type, seed + 2);
    for (size_t i = 0; i < LORA; i++) s->gamma[i] = (float)gauss(seed + 3, i);
    for (size_t i = 0; i < LORA + ROPE; i++) s->kv_a_b[i] = (float)i;
    for (size_t i = 0; i < HIDDEN; i++) s->o_b[i] = (float)i;
    s->scale[0] = 0.3f;
    s->m.c = (nb_model_config){ .hidden = HIDDEN,
                                .n_layer = 1,
                                .n_attn = 1,
                                .attn = { { .kind = NB_ATTN_MLA,
                                            .n_head = HEADS,
                                            .kv_lora = LORA,
                                            .d_rope = ROPE,
                                            .d_nope = NOPE,
                                            .d_v = VALUE } } };
    s->l.kv_a = matrix(s, type, s->a8, s->a16, s->a32, LORA + ROPE, HIDDEN);
    s->l.kv_b = matrix(s, type, s->b8, s->b16, s->b32, HEADS * (NOPE + VALUE), LORA);
    s->l.o = matrix(s, type, s->o8, s->o16, s->o32, HIDDEN, HEADS * VALUE);
    s->l.kv_a_norm = s->gamma;
    s->l.kv_a_b = s->kv_a_b;
    s->l.o_b = s->o_b;
    s->m.layer = &s->l;
    s->m.weight_bytes = 1000;
}

static float at(const nb_weight *w, size_t r, size_t c)
{
    float row[64];
    const uint32_t id = (uint32_t)r;
    nb_embed_c(&(nb_embed_args){
        .y = row, .id = &id, .w = *w, .n_tok = 1, .y_stride = w->n_col, .factor = 1 });
    return row[c];
}

static void check_small(nb_wtype type, unsigned use, nb_wtype want_a, nb_wtype want_b)
{
    static random_fold r;
    static small s, old;
    nb_error err = { 0 };
    make_small(&s, type, 11);
    make_small(&old, type, 11);
    make_fold(&r, LORA, s.gamma, use, 77);
    assert_int_equal(nb_fold_layer(&s.m, 0, &r.f, &err), NB_OK);
    assert_int_equal(s.l.kv_a.type, want_a);
    assert_int_equal(s.l.kv_b.type, want_b);
    const bool round_a = type == NB_W_FP8B && want_a == NB_W_BF16;
    const bool round_b = type == NB_W_FP8B && want_b == NB_W_BF16;
    for (size_t i = 0; i < LORA + ROPE; i++) {
        const size_t p = i < LORA && use & USE_P ? r.perm[i] : i;
        assert_true(s.l.kv_a_b[i] == old.kv_a_b[p]);
        for (size_t k = 0; k < HIDDEN; k++) {
            const float w = at(&old.l.kv_a, p, k);
            assert_true(at(&s.l.kv_a, i, k) == (round_a ? nb_bf16_to_f32(nb_bf16_from_f32(w)) : w));
        }
    }
    for (size_t i = 0; i < LORA; i++) {
        const size_t p = use & USE_P ? r.perm[i] : i;
        const float d = use & USE_D ? ldexpf(1, r.k[p]) : 1;
        assert_true(s.l.kv_a_norm[i] == d * old.gamma[p]);
        if (use & USE_MEAN) assert_true(s.l.kv_mean[i] == d * r.mean[p]);
        for (size_t k = 0; k < HEADS * (NOPE + VALUE) && !(use & USE_H); k++) {
            const float w = at(&old.l.kv_b, k, p) / d;
            assert_true(at(&s.l.kv_b, k, i) == (round_b ? nb_bf16_to_f32(nb_bf16_from_f32(w)) : w));
        }
    }
    for (size_t j = 0; j < HIDDEN; j++) {
        double b = (double)old.o_b[j];
        for (size_t k = 0; k < HEADS * VALUE && use & USE_MEAN; k++)
            for (size_t i = 0; i < LORA; i++)
                b += (double)at(&old.l.o, j, k) * (double)r.mean[i] *
                     (double)at(&old.l.kv_b, k / VALUE * (NOPE + VALUE) + NOPE + k % VALUE, i);
        assert_true(fabs((double)s.l.o_b[j] - b) <= 1e-6 * fmax(1, fabs(b)));
    }
    /* bytes: what changed its type, and the mean */
    static const uint64_t width[] = { 4, 2, 2, 1 };
    uint64_t bytes = 1000 + (use & USE_MEAN ? LORA * 4 : 0);
    bytes += N_A * width[want_a] + N_B * width[want_b] - (N_A + N_B) * width[type];
    if (type == NB_W_FP8B) bytes -= (want_a != type ? 4u : 0u) + (want_b != type ? 4u : 0u);
    assert_int_equal(s.m.weight_bytes, bytes);
    nb_arena_deinit(&s.m.arena);
    nb_arena_deinit(&s.m.folded);
}

static void test_weights(void **state)
{
    (void)state;
    for (nb_wtype t = NB_W_F32; t <= NB_W_F16; t++) {
        for (unsigned use = 0; use < USE_H; use++) check_small(t, use, t, t);
        check_small(t, USE_H, t, NB_W_F32);
        check_small(t, ALL, t, NB_W_F32);
    }
    check_small(NB_W_FP8B, 0, NB_W_FP8B, NB_W_FP8B);
    check_small(NB_W_FP8B, USE_MEAN, NB_W_FP8B, NB_W_FP8B);
    check_small(NB_W_FP8B, USE_D, NB_W_FP8B, NB_W_BF16);
    check_small(NB_W_FP8B, USE_P, NB_W_BF16, NB_W_BF16);
    check_small(NB_W_FP8B, USE_H, NB_W_FP8B, NB_W_F32);
    check_small(NB_W_FP8B, ALL, NB_W_BF16, NB_W_F32);
}

/* A value that would leave its type's range takes its matrix to float32, where it is exact. */
static void test_out_of_range(void **state)
{
    (void)state;
    static const struct {
        nb_wtype type, want;
        uint16_t code;
        int8_t k;
    } cases[] = {
        { NB_W_F16, NB_W_F32, 0x7bff, -1 }, /* 65504 * 2 */
        { NB_W_F16, NB_W_F32, 0x0001, 1 },  /* the smallest, halved */
        { NB_W_F16, NB_W_F32, 0x0401, 1 },  /* a bit falls below the subnormal step */
        { NB_W_F16, NB_W_F16, 0x0400, 1 },  /* none falls */
        { NB_W_F16, NB_W_F16, 0x3c01, 6 },

        { NB_W_BF16, NB_W_F32, 0x0001, 1 },
        { NB_W_BF16, NB_W_BF16, 0x3f81, -6 },
        { NB_W_BF16, NB_W_BF16, 0x8000, 3 },
        { NB_W_BF16, NB_W_BF16, 0x7fc0, 3 }, /* a NaN stays one */
    };
    static small s;
    nb_error err = { 0 };
    for (size_t i = 0; i < NB_COUNT(cases); i++) {
        int8_t k[LORA] = { 0 };
        make_small(&s, cases[i].type, 3);
        k[5] = cases[i].k;
        for (size_t r = 0; r < HEADS * (NOPE + VALUE); r++) s.b16[r * LORA + 5] = 0;
        s.b16[3 * LORA + 5] = cases[i].code;
        const float x = at(&s.l.kv_b, 3, 5);
        assert_int_equal(nb_fold_layer(&s.m, 0, &(nb_fold){ .scale_log2 = k }, &err), NB_OK);
        if (s.l.kv_b.type != cases[i].want) fail_msg("case %zu: type %d", i, s.l.kv_b.type);
        const float y = at(&s.l.kv_b, 3, 5);
        assert_true(isnan(x) ? isnan(y) : isinf(y) ? isinf(x) : y == ldexpf(x, -cases[i].k));
        nb_arena_deinit(&s.m.arena);
        nb_arena_deinit(&s.m.folded);
    }
}

static void test_refuses(void **state)
{
    (void)state;
    static small s;
    uint16_t perm[LORA] = { 0, 1, 2, 3, 4, 5, 6, 6 };
    int8_t k[LORA] = { 0, 7 };
    float mean[LORA] = { 0 };
    nb_error err = { 0 };
    make_small(&s, NB_W_BF16, 1);
    const nb_layer before = s.l;
    check_line(&err, (nb_fold_layer(&s.m, 0, &(nb_fold){ .perm = perm }, &err)), "permutation");
    perm[7] = LORA;
    check_line(&err, (nb_fold_layer(&s.m, 0, &(nb_fold){ .perm = perm }, &err)), "perm[7] is 8");
    check_line(&err, (nb_fold_layer(&s.m, 0, &(nb_fold){ .scale_log2 = k }, &err)),
               "scale_log2[1] is 7");
    k[1] = -7;
    check_line(&err, (nb_fold_layer(&s.m, 0, &(nb_fold){ .scale_log2 = k }, &err)),
               "scale_log2[1] is -7");
    check_line(&err, (nb_fold_layer(&s.m, 0, &(nb_fold){ .hadamard = 6 }, &err)), "6");
    check_line(&err, (nb_fold_layer(&s.m, 0, &(nb_fold){ .hadamard = 16 }, &err)), "16");
    k[1] = -1;
    s.b16[1] = 0x7f7f; /* the largest BF16, doubled: no float32 */
    check_line(&err, (nb_fold_layer(&s.m, 0, &(nb_fold){ .scale_log2 = k }, &err)), "kv_b_proj");
    s.b16[1] = 0;
    mean[2] = INFINITY;
    check_line(&err, (nb_fold_layer(&s.m, 0, &(nb_fold){ .mean = mean }, &err)), "not finite");
    mean[2] = FLT_MAX;
    k[1] = 0;
    k[2] = 1;
    check_line(&err, (nb_fold_layer(&s.m, 0, &(nb_fold){ .mean = mean, .scale_log2 = k }, &err)),
               "not finite");
    assert_memory_equal(&s.l, &before, sizeof before); /* nothing was changed */
    s.m.c.attn[0].kind = NB_ATTN_GQA;
    check_line(&err, (nb_fold_layer(&s.m, 0, &(nb_fold){ .hadamard = 8 }, &err)), "MLA");
    s.m.c.attn[0].kind = NB_ATTN_MLA;
    assert_int_equal(nb_fold_layer(&s.m, 0, &(nb_fold){ .hadamard = 8 }, &err), NB_OK);
    check_line(&err, (nb_fold_layer(&s.m, 0, &(nb_fold){ .hadamard = 8 }, &err)), "already");
    nb_arena_deinit(&s.m.arena);
    nb_arena_deinit(&s.m.folded);
}

/* ---- the hash ---- */

static void hash_of(const nb_model *m, char hex[65])
{
    nb_error err = { 0 };
    if (nb_model_hash(m, hex, &err) != NB_OK) fail_msg("%s", err.msg);
    assert_int_equal(strlen(hex), 64);
    assert_int_equal(strspn(hex, "0123456789abcdef"), 64);
}

/* One flipped bit of a weight; what: its offset in nb_layer. */
static void flip(nb_model *m, size_t layer, size_t what, size_t byte)
{
    char plain[65], other[65];
    nb_weight *w = (nb_weight *)(void *)((char *)&m->layer[layer] + what);
    const nb_weight old = *w;
    const size_t n = w->n_row * w->n_col * nb_wtype_bytes(w->type);
    unsigned char *copy = malloc(n);
    assert_non_null(copy);
    assert_true(byte < n);
    memcpy(copy, w->data, n);
    hash_of(m, plain);
    w->data = copy;
    hash_of(m, other);
    assert_string_equal(plain, other);
    copy[byte] ^= 1;
    hash_of(m, other);
    assert_string_not_equal(plain, other);
    *w = old;
    free(copy);
}

static void test_hash(void **state)
{
    (void)state;
    char first[65], again[65];
    nb_engine *e = simple_engine("tests/parity/v3", "f32"), *f;
    hash_of(&e->model, first);
    /* calibration files hold it: a new way of hashing is a new version of them */
    assert_string_equal(first, "8a1a30221bbdfb32803cddd16f1daf7e7d8f0c3b4f4754f1ace73327e4c11b7b");
    flip(&e->model, 0, offsetof(nb_layer, kv_a), 0);
    flip(&e->model, 2, offsetof(nb_layer, kv_a), (40 + 16) * 96 * 2 - 1);
    flip(&e->model, 1, offsetof(nb_layer, kv_b), 1234);
    flip(&e->model, 1, offsetof(nb_layer, o), 0); /* sampled */
    nb_model_config *c = &e->model.c;
    size_t *const dims[] = { &c->n_vocab, &c->top_k, &c->attn[0].q_lora, &c->max_pos };
    for (size_t i = 0; i < NB_COUNT(dims); i++) {
        const size_t old = *dims[i];
        *dims[i] = old - 1;
        hash_of(&e->model, again);
        assert_int_equal(strcmp(first, again) != 0, i < 3); /* a limit is no part of the model */
        *dims[i] = old;
    }
    c->attn[0].eps_lora *= 2;
    hash_of(&e->model, again);
    assert_string_not_equal(first, again);
    nb_engine_destroy(e);
    f = simple_engine("tests/parity/v3", "bf16");
    hash_of(&f->model, again);
    assert_string_equal(first, again);
    nb_engine_destroy(f);
    f = simple_engine("tests/parity/llama3", "bf16");
    hash_of(&f->model, again);
    assert_string_not_equal(first, again);
    flip(&f->model, 1, offsetof(nb_layer, k), 17);
    flip(&f->model, 2, offsetof(nb_layer, v), 99);
    nb_engine_destroy(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hadamard),   cmocka_unit_test(test_rows),
        cmocka_unit_test(test_weights),    cmocka_unit_test(test_out_of_range),
        cmocka_unit_test(test_refuses),    cmocka_unit_test(test_hash),
        cmocka_unit_test(test_families),   cmocka_unit_test(test_bundled),
        cmocka_unit_test(test_bf16_noise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
