/* check_cuda_csa_rows.c - rows of compressed attention on a device: vectors that are turned; rows made of several tokens,
 * in steps of several sizes, and their pages; the window's rows that a sequence keeps.  References in double. */
#include "check/check_cuda_csa.h"
#include "num/bf16.h"

enum { PAGE = NB_PAGE_TOK, OVERLAP = 4, RING = 8 };

static float normal(chk *t)
{
    double s = 0;
    for (int i = 0; i < 4; i++) s += chk_unit(t) * 2 - 1;
    return (float)(s * 0.9);
}

float *chk_csa_normals(chk *t, size_t n, bool round)
{
    float *x = chk_raw(t, (n + 1) * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = round ? nb_bf16_to_f32(nb_bf16_from_f32(normal(t))) : normal(t);
    return x;
}

void chk_csa_turn(double *x, size_t dim, size_t d, const double *cs, bool interleaved, bool back)
{
    double *p = x + dim - d;
    for (size_t j = 0; j < d / 2; j++) {
        const size_t a = interleaved ? 2 * j : j, b = interleaved ? a + 1 : a + d / 2;
        const double u = p[a], v = p[b], c = cs[j], s = back ? -cs[d / 2 + j] : cs[d / 2 + j];
        p[a] = u * c - v * s;
        p[b] = v * c + u * s;
    }
}

bool chk_csa_record(nb_record *r, nb_kv_type type, size_t ratio, size_t dim, size_t rope, size_t keys)
{
    const nb_record_opts o = { .type = type,
                               .mode = nb_kv_mode_default(type),
                               .rope = NB_ROPE_INT8,
                               .n_seg = keys ? 3 : 2,
                               .row_tok = ratio,
                               .seg = { { .role = NB_ROLE_LATENT, .dim = dim - rope, .n_vec = 1 },
                                        { .role = NB_ROLE_ROPE, .dim = rope, .n_vec = 1 },
                                        { .role = NB_ROLE_INDEX, .dim = keys, .n_vec = 1 } } };
    return nb_record_init(r, &o, NULL) == NB_OK;
}

static void norm_ref(double *x, const float *w, size_t n, double eps)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += x[i] * x[i];
    for (size_t i = 0; i < n; i++) x[i] = x[i] / sqrt(sum / (double)n + eps) * (w ? (double)w[i] : 1);
}

static void near(chk *t, const char *what, size_t row, const float *got, const double *want, size_t n, double eps)
{
    double top = 1e-30;
    for (size_t i = 0; i < n; i++) top = fmax(top, fabs(want[i]));
    for (size_t i = 0; i < n; i++) {
        const double off = fabs((double)got[i] - want[i]) / top;
        chk_worst(t, off / eps);
        if (off <= eps) continue;
        chk_fail(t, "%s %zu, value %zu: %g instead of %g", what, row, i, (double)got[i], want[i]);
        return;
    }
}

/* ---- vectors ---- */

static void one_turn(chk *t, size_t n_tok, size_t n_vec, size_t dim, size_t d, bool gain, bool round)
{
    const size_t stride = n_vec * dim + 2 * chk_between(t, 0, 3), n = n_tok * stride;
    float *x = chk_csa_normals(t, n, false), *w = chk_csa_normals(t, dim, false), *cs = chk_csa_normals(t, n_tok * d, false);
    double *want = chk_f64(t, dim), *angle = chk_f64(t, d);
    uint32_t *chunk = chk_raw(t, n_tok * sizeof *chunk), *bad = chk_raw(t, n_tok * sizeof *bad);
    for (size_t i = 0; i < n_tok; i++) chunk[i] = i % 3 == 2 ? UINT32_MAX : (uint32_t)i, bad[i] = 0;
    if (n_tok > 1) x[stride + dim - 1] = INFINITY;
    const nb_cuda_csa_turn_args a = { .x = chk_gpu_inout(t, x, n * sizeof *x),
                                      .w = gain ? chk_gpu_in(t, w, dim * sizeof *w) : NULL,
                                      .cos_sin = chk_gpu_in(t, cs, n_tok * d * sizeof *cs),
                                      .row_chunk = chk_gpu_in(t, chunk, n_tok * sizeof *chunk),
                                      .bad = chk_gpu_inout(t, bad, n_tok * sizeof *bad),
                                      .n_tok = n_tok,
                                      .n_vec = n_vec,
                                      .dim = dim,
                                      .d_rope = d,
                                      .x_stride = stride,
                                      .eps = 1e-5f,
                                      .interleaved = n_vec % 2 != 0,
                                      .round = round };
    chk_gpu_call(t, chk_gpu_api(t)->csa_turn(chk_gpu(t), &a));
    float *got = chk_raw(t, n * sizeof *got);
    chk_gpu_get(t, got, a.x, n * sizeof *got);
    chk_gpu_get(t, bad, a.bad, n_tok * sizeof *bad);
    for (size_t i = 0; i < n_tok; i++) {
        const bool inf = n_tok > 1 && i == 1;
        if (bad[i] != inf) chk_fail(t, "token %zu is %sbad", i, inf ? "not " : "");
        for (size_t v = 0; v < n_vec && !inf; v++) {
            for (size_t k = 0; k < dim; k++) want[k] = (double)x[i * stride + v * dim + k];
            for (size_t k = 0; k < d; k++) angle[k] = (double)cs[i * d + k];
            norm_ref(want, gain ? w : NULL, dim, (double)a.eps);
            chk_csa_turn(want, dim, d, angle, a.interleaved, false);
            near(t, "vector of token", i, got + i * stride + v * dim, want, dim, round ? 0x1p-8 : 0x1p-19);
        }
        for (size_t k = n_vec * dim; k < stride; k++)
            if (got[i * stride + k] != x[i * stride + k]) chk_fail(t, "wrote between rows");
    }
}

static void test_turn(chk *t, const chk_row *row)
{
    static const size_t dims[][2] = { { 32, 8 }, { 40, 2 }, { 512, 64 }, { 130, 66 } };
    (void)row;
    for (size_t i = 0; i < NB_COUNT(dims); i++)
        for (unsigned k = 0; k < 4; k++)
            if (chk_case(t, "dim=%zu d=%zu %u", dims[i][0], dims[i][1], k))
                one_turn(t, 1 + 3 * (k % 2), k < 2 ? 1 : 6, dims[i][0], dims[i][1], k % 2 == 0, k == 3);
}

/* ---- rows ---- */

typedef struct rows_case {
    size_t ratio, dim, rope, keys, n_tok; /* keys 0: no indexer */
} rows_case;

typedef struct rows {
    const rows_case *c;
    nb_record r;
    size_t width, wide_keys, stride, n_state, tail_floats, max_page;
    float *kv, *ape[2], *norm[2], *freq;
    uint32_t *block;
} rows;

/* Row w of a compressor in double. */
static void pool_ref(const rows *x, bool key, size_t w, double *out)
{
    const rows_case *c = x->c;
    const size_t dim = key ? c->keys : c->dim, width = key ? x->wide_keys : x->width, at = key ? 2 * x->width : 0;
    const bool overlap = c->ratio == OVERLAP;
    const size_t n = overlap ? RING : c->ratio, last = (w + 1) * c->ratio - 1;
    double cs[1024];
    for (size_t i = 0; i < dim; i++) {
        double m = -INFINITY, l = 0, o = 0;
        for (int pass = 0; pass < 2; pass++)
            for (size_t back = 0; back < n && back <= last; back++) {
                const size_t pos = last - back, ch = i + (overlap && back < OVERLAP ? dim : 0);
                const float *kv = x->kv + pos * x->stride + at;
                const double g = (double)kv[width + ch] + (double)x->ape[key][pos % c->ratio * width + ch];
                if (pass == 0) m = fmax(m, g);
                if (pass == 1) l += exp(g - m), o += exp(g - m) * (double)kv[ch];
            }
        out[i] = o / l;
    }
    norm_ref(out, x->norm[key], dim, 1e-5);
    for (size_t j = 0; j < c->rope / 2; j++) {
        const double angle = (double)(x->freq[j] * (float)(w * c->ratio));
        cs[j] = cos(angle), cs[c->rope / 2 + j] = sin(angle);
    }
    chk_csa_turn(out, dim, c->rope, cs, true, false);
}

/* The whole sequence in steps; all rows as they were made, to out [n_tok / ratio][n_values]. */
static void in_steps(chk *t, const rows *x, size_t step, float *out)
{
    const rows_case *c = x->c;
    const size_t nv = x->r.n_values, per = x->r.n_row * nv, block_bytes = x->r.page_bytes + 128;
    float *tail = chk_csa_normals(t, x->tail_floats, false), *host = chk_raw(t, x->max_page * per * sizeof *host);
    unsigned char *pool = chk_raw(t, x->max_page * block_bytes), *want = chk_raw(t, x->r.page_bytes);
    uint16_t *half = chk_raw(t, per * sizeof *half);
    uint32_t bad[2] = { 0, 0 };
    uint64_t none = 0;
    memset(pool, 0xee, x->max_page * block_bytes);
    float *dev_tail = chk_gpu_inout(t, tail, x->tail_floats * sizeof *tail);
    float *own = chk_gpu_out(t, x->max_page * per * sizeof *own);
    unsigned char *dev_pool = chk_gpu_inout(t, pool, x->max_page * block_bytes);
    const float *kv = chk_gpu_in(t, x->kv, c->n_tok * x->stride * sizeof *x->kv);
    nb_cuda_csa_append_args a = { .cache = { .pool = dev_pool,
                                             .block_bytes = block_bytes,
                                             .layer_off = 128,
                                             .tail_off = 5,
                                             .block = chk_gpu_in(t, x->block, x->max_page * sizeof *x->block),
                                             .n_chunk = 2,
                                             .record = x->r },
                                  .inv_freq = chk_gpu_in(t, x->freq, c->rope / 2 * sizeof *x->freq),
                                  .rope_factor = 1,
                                  .bad = chk_gpu_inout(t, bad, sizeof bad),
                                  .n_saturated = chk_gpu_inout(t, &none, sizeof none),
                                  .ratio = c->ratio,
                                  .d_rope = c->rope,
                                  .stride = x->stride,
                                  .eps = 1e-5f,
                                  .interleaved = true };
    for (size_t k = 0; k < (c->keys ? 2 : 1); k++)
        a.pool[k] = (nb_cuda_csa_pool){ .kv = kv + (k ? 2 * x->width : 0),
                                        .gate = kv + (k ? 2 * x->width + x->wide_keys : x->width),
                                        .ape = chk_gpu_in(t, x->ape[k], c->ratio * (k ? x->wide_keys : x->width) * sizeof(float)),
                                        .norm = chk_gpu_in(t, x->norm[k], (k ? c->keys : c->dim) * sizeof(float)),
                                        .dim = k ? c->keys : c->dim,
                                        .width = k ? x->wide_keys : x->width,
                                        .first = k ? c->dim : 0,
                                        .state_off = 5 + per + (k ? 2 * RING * x->width : 0) };
    for (size_t pos = 0, n; pos < c->n_tok; pos += n) {
        n = c->n_tok - pos < step ? c->n_tok - pos : step;
        const size_t page0 = pos / PAGE, n_page = (pos + n + PAGE - 1) / PAGE - page0;
        const bool one = n_page == 1;
        const nb_cuda_chunk chunk[2] = { { 0 },
                                         { .tail = dev_tail,
                                           .own = one ? NULL : own,
                                           .row0 = (uint32_t)pos,
                                           .n_tok = (uint32_t)n,
                                           .pos0 = (uint32_t)pos } };
        a.cache.chunk = chk_gpu_in(t, chunk, sizeof chunk);
        a.max_chunk_tok = n;
        chk_gpu_call(t, chk_gpu_api(t)->csa_append(chk_gpu(t), &a));
        chk_gpu_get(t, host, one ? dev_tail + 5 : own, n_page * per * sizeof *host);
        chk_gpu_get(t, pool, dev_pool, x->max_page * block_bytes);
        for (size_t w = pos / c->ratio; (w + 1) * c->ratio <= pos + n; w++) {
            const size_t last = (w + 1) * c->ratio - 1;
            memcpy(out + w * nv, host + (last / PAGE - page0) * per + last % PAGE / c->ratio * nv, nv * sizeof *out);
        }
        for (size_t p = page0; (p + 1) * PAGE <= pos + n; p++) {
            const float *made = host + (p - page0) * per;
            for (size_t i = 0; i < per; i++) half[i] = nb_bf16_from_f32(made[i]);
            if ((p + 1) * PAGE % c->ratio)
                memset(want, 0, x->r.page_bytes);
            else if (x->r.type == NB_KV_F32)
                nb_record_store_f32(&x->r, want, made, nv);
            else if (nb_record_encode_page(&x->r, want, half, nv) != NB_OK)
                chk_fail(t, "page %zu: rows that cannot be stored", p);
            chk_same_bytes(t, "a page", want, pool + x->block[p] * block_bytes + 128, x->r.page_bytes);
        }
    }
    chk_gpu_get(t, bad, a.bad, sizeof bad);
    if (bad[0] || bad[1]) chk_fail(t, "finite rows are bad");
}

static void one_rows(chk *t, const rows_case *c, nb_kv_type type)
{
    rows x = { .c = c };
    if (!chk_csa_record(&x.r, type, c->ratio, c->dim, c->rope, c->keys)) return;
    const size_t many = c->ratio == OVERLAP ? 2 : 1, nv = x.r.n_values, n_row = c->n_tok / c->ratio;
    x.width = many * c->dim;
    x.wide_keys = many * c->keys;
    x.stride = 2 * (x.width + x.wide_keys) + 1;
    x.max_page = c->n_tok / PAGE + 2;
    x.tail_floats = 5 + x.r.n_row * nv + 2 * RING * (x.width + x.wide_keys) + 3 * x.width;
    x.kv = chk_csa_normals(t, c->n_tok * x.stride, false);
    for (size_t k = 0; k < 2; k++) {
        x.ape[k] = chk_csa_normals(t, c->ratio * (k ? x.wide_keys : x.width), false);
        x.norm[k] = chk_csa_normals(t, k ? c->keys : c->dim, false);
    }
    x.freq = chk_csa_normals(t, c->rope / 2, false);
    x.block = chk_raw(t, x.max_page * sizeof *x.block);
    for (size_t p = 0; p < x.max_page; p++) x.block[p] = (uint32_t)(x.max_page - 1 - p);
    float *all = chk_raw(t, (n_row * nv + 1) * sizeof *all), *some = chk_raw(t, (n_row * nv + 1) * sizeof *some);
    in_steps(t, &x, c->n_tok, all);
    double *want = chk_f64(t, nv);
    for (size_t w = 0; w < n_row; w++) {
        pool_ref(&x, false, w, want);
        near(t, "row", w, all + w * nv, want, c->dim, type == NB_KV_F32 ? 0x1p-15 : 0x1p-8);
        if (!c->keys) continue;
        pool_ref(&x, true, w, want);
        near(t, "key", w, all + w * nv + c->dim, want, c->keys, type == NB_KV_F32 ? 0x1p-15 : 0x1p-8);
    }
    static const size_t steps[] = { 1, 7, 65, 130 };
    for (size_t s = 0; s < NB_COUNT(steps); s++) {
        in_steps(t, &x, steps[s], some);
        chk_same_bytes(t, "rows of other steps", all, some, n_row * nv * sizeof *all);
    }
}

static void test_rows(chk *t, const chk_row *row)
{
    static const rows_case cases[] = {
        { 4, 32, 8, 32, 150 }, { 4, 160, 64, 64, 140 }, { 128, 32, 8, 0, 300 }, { 4, 40, 16, 0, 70 }, { 128, 512, 64, 0, 260 },
    };
    static const nb_kv_type types[] = { NB_KV_F32, NB_KV_BF16, NB_KV_FP8, NB_KV_NVFP4 };
    (void)row;
    for (size_t i = 0; i < NB_COUNT(cases); i++)
        for (size_t k = 0; k < NB_COUNT(types); k++)
            if (chk_case(t, "rows of %zu tokens, %zu + %zu values, %s", cases[i].ratio, cases[i].dim, cases[i].keys,
                         nb_kv_type_name(types[k])))
                one_rows(t, &cases[i], types[k]);
}

/* ---- the window's rows ---- */

enum { KEEP_CHUNK = 4 };

/* Four chunks, one without tokens; afterwards place p of a window's ring has the last token whose position is p mod
 * window: of the step, or what was there. */
static void one_keep(chk *t, size_t window, size_t dim, size_t state_off)
{
    const size_t n_tok[KEEP_CHUNK] = { 1, 0, window / 2 + 1, 2 * window + 3 }, stride = dim + chk_between(t, 0, 3);
    const size_t n_tail = state_off + window * dim + 9;
    nb_cuda_chunk chunk[KEEP_CHUNK];
    float *tail[KEEP_CHUNK], *want = chk_raw(t, n_tail * sizeof *want), *got = chk_raw(t, n_tail * sizeof *got);
    size_t n_row = 0, most = 0;
    for (size_t i = 0; i < KEEP_CHUNK; i++) {
        tail[i] = chk_csa_normals(t, n_tail, false);
        chunk[i] = (nb_cuda_chunk){ .tail = chk_gpu_inout(t, tail[i], n_tail * sizeof *tail[i]),
                                    .row0 = (uint32_t)n_row,
                                    .n_tok = (uint32_t)n_tok[i],
                                    .pos0 = (uint32_t)chk_between(t, 0, 3 * window) };
        n_row += n_tok[i];
        if (n_tok[i] > most) most = n_tok[i];
    }
    float *kv = chk_csa_normals(t, n_row * stride, true);
    const nb_cuda_csa_keep_args a = { .chunk = chk_gpu_in(t, chunk, sizeof chunk),
                                      .kv = chk_gpu_in(t, kv, n_row * stride * sizeof *kv),
                                      .n_chunk = KEEP_CHUNK,
                                      .kv_stride = stride,
                                      .dim = dim,
                                      .window = window,
                                      .state_off = state_off,
                                      .max_chunk_tok = most };
    chk_gpu_call(t, chk_gpu_api(t)->csa_keep(chk_gpu(t), &a));
    for (size_t i = 0; i < KEEP_CHUNK; i++) {
        memcpy(want, tail[i], n_tail * sizeof *want);
        for (size_t j = 0; j < n_tok[i]; j++) /* later tokens stay */
            memcpy(want + state_off + (chunk[i].pos0 + j) % window * dim, kv + (chunk[i].row0 + j) * stride,
                   dim * sizeof *want);
        chk_gpu_get(t, got, chunk[i].tail, n_tail * sizeof *got);
        chk_same_bytes(t, "a window's rows", want, got, n_tail * sizeof *want);
    }
}

static void test_keep(chk *t, const chk_row *row)
{
    static const size_t shapes[][3] = { { 128, 32, 0 }, { 100, 48, 7 }, { 1, 8, 3 }, { 64, 512, 8 }, { 33, 129, 5 } };
    (void)row;
    for (size_t i = 0; i < NB_COUNT(shapes); i++)
        if (chk_case(t, "a window of %zu rows of %zu", shapes[i][0], shapes[i][1]))
            one_keep(t, shapes[i][0], shapes[i][1], shapes[i][2]);
}

/* ---- planted bugs ---- */

static void other_pairs(nb_cuda *g, const nb_cuda_csa_turn_args *a)
{
    nb_cuda_csa_turn_args b = *a;
    b.interleaved = !a->interleaved;
    chk_gpu_api(NULL)->csa_turn(g, &b);
}
static void no_bad(nb_cuda *g, const nb_cuda_csa_turn_args *a)
{
    nb_cuda_csa_turn_args b = *a;
    b.bad = NULL;
    chk_gpu_api(NULL)->csa_turn(g, &b);
}
static void other_eps(nb_cuda *g, const nb_cuda_csa_append_args *a)
{
    nb_cuda_csa_append_args b = *a;
    b.eps = 1;
    chk_gpu_api(NULL)->csa_append(g, &b);
}
static void state_lost(nb_cuda *g, const nb_cuda_csa_append_args *a)
{
    nb_cuda_csa_append_args b = *a;
    if (a->max_chunk_tok == 65) b.pool[0].state_off += a->pool[0].width; /* the last, shorter step looks elsewhere */
    chk_gpu_api(NULL)->csa_append(g, &b);
}
static void other_page(nb_cuda *g, const nb_cuda_csa_append_args *a)
{
    nb_cuda_csa_append_args b = *a;
    b.cache.layer_off -= 64;
    chk_gpu_api(NULL)->csa_append(g, &b);
}
static void last_token_only(nb_cuda *g, const nb_cuda_csa_keep_args *a)
{
    nb_cuda_csa_keep_args b = *a;
    b.max_chunk_tok = 1;
    chk_gpu_api(NULL)->csa_keep(g, &b);
}
static void smaller_window(nb_cuda *g, const nb_cuda_csa_keep_args *a)
{
    nb_cuda_csa_keep_args b = *a;
    if (b.window > 1) b.window--;
    chk_gpu_api(NULL)->csa_keep(g, &b);
}

#define PLANT(op, fn)                                                                              \
    static void plant_##fn(nb_cuda_api *api)                                                       \
    {                                                                                              \
        api->op = fn;                                                                              \
    }
PLANT(csa_turn, other_pairs)
PLANT(csa_turn, no_bad)
PLANT(csa_append, other_eps)
PLANT(csa_append, state_lost)
PLANT(csa_append, other_page)
PLANT(csa_keep, last_token_only)
PLANT(csa_keep, smaller_window)
static const chk_broken broken_turn[] = {
    CHK_GPU_BUG("other pairs are turned", "vector of token", plant_other_pairs),
    CHK_GPU_BUG("a value that is not finite", "is not bad", plant_no_bad),
    { 0 },
};
static const chk_broken broken_rows[] = {
    CHK_GPU_BUG("rows are normalised with another epsilon", "row 0", plant_other_eps),
    CHK_GPU_BUG("a step's state is lost", "other steps", plant_state_lost),
    CHK_GPU_BUG("a page is written beside its place", "a page", plant_other_page),
    { 0 },
};
static const chk_broken broken_keep[] = {
    CHK_GPU_BUG("only the last token is kept", "window's rows", plant_last_token_only),
    CHK_GPU_BUG("the window is a token too short", "window's rows", plant_smaller_window),
    { 0 },
};

const chk_op chk_cuda_csa_turn = { "cuda_csa_turn", chk_gpu_row, test_turn, NULL, broken_turn };
const chk_op chk_cuda_csa_append = { "cuda_csa_append", chk_gpu_row, test_rows, NULL, broken_rows };
const chk_op chk_cuda_csa_keep = { "cuda_csa_keep", chk_gpu_row, test_keep, NULL, broken_keep };
