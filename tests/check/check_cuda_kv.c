/* check_cuda_kv.c - the cache on a GPU: kv_append writes the bytes of nb_record_encode_page (and of
 * nb_residual_encode), kv_decode reads the values of nb_record_decode, exactly; rows of tails and
 * own, the mark of values that are not finite, the count of saturated ones; nothing else is touched.
 *
 * A case is a step of some chunks in the middle of their sequences.  Every buffer has an image of what it
 * must hold afterwards, made by the host's code; whole buffers are compared. */
#include <stdlib.h>

#include "check/check_cuda.h"
#include "num/bf16.h"
#include "num/residual.h"
#include "num/traits.h"

typedef struct shape {
    bool is_mla;
    nb_rope_fmt rope;
    size_t dim[2], n_vec[2];
} shape;

static const shape shapes[] = {
    { true, NB_ROPE_INT8, { 512, 64 }, { 1, 1 } }, { false, NB_ROPE_FP8, { 128, 128 }, { 8, 8 } },
    { true, NB_ROPE_FP8, { 448, 32 }, { 1, 1 } },  { true, NB_ROPE_BF16, { 40, 6 }, { 1, 1 } },
    { true, NB_ROPE_FP8, { 1, 2 }, { 1, 1 } },     { true, NB_ROPE_INT8, { 31, 17 }, { 1, 1 } },
    { false, NB_ROPE_FP8, { 33, 33 }, { 3, 3 } },  { true, NB_ROPE_FP8, { 1029, 300 }, { 1, 1 } },
    { false, NB_ROPE_FP8, { 16, 48 }, { 2, 1 } },  { true, NB_ROPE_BF16, { 256, 3 }, { 1, 1 } },
};

/* What a record may have besides. */
enum { PLAIN, OUTLIERS, FIXED, BOTH, N_EXTRA };
static const char *const extra_name[] = { "", " outliers", " fixed", " outliers fixed" };
/* How long the chunks of a step are: a row or a few; a prompt among others. */
enum { ONE, FEW, MANY, N_LENGTH };
static const char *const length_name[] = { "one", "few", "many" };
enum { MAX_CHUNK = 300, USUAL_CHUNK = 7, SLACK = 64, OLD_SATURATED = 17 };

/* A buffer of the device: as it is given and as it must be afterwards. */
typedef struct image {
    unsigned char *before, *after, *dev;
    size_t n_bytes;
} image;

typedef struct world {
    nb_record r;
    size_t n, n_chunk, kv_stride, block_bytes, layer_off, plane_bytes, plane_off, tail_off;
    nb_cuda_chunk chunk[MAX_CHUNK]; /* with host addresses: offsets of the images */
    size_t own_at[MAX_CHUNK], tail_at[MAX_CHUNK];
    bool has_own[MAX_CHUNK];
    uint32_t *block;
    image pool, tail, own, plane;
    float *kv;
    uint32_t bad[MAX_CHUNK];
    uint64_t n_sat;
    size_t max_tok;
} world;

static size_t some_places(chk *t, size_t n, uint16_t *out)
{
    size_t k = 0;
    for (size_t at = chk_between(t, 0, 3); at < n && k < NB_MAX_OUTLIER;
         at += chk_between(t, 1, n / 7 + 1))
        out[k++] = (uint16_t)at;
    return k;
}

static bool make_record(chk *t, nb_record *r, const shape *s, nb_kv_type type, nb_kv_mode mode,
                        unsigned extra)
{
    uint16_t places[2][NB_MAX_OUTLIER];
    nb_record_opts o = { .type = type, .mode = mode, .rope = s->rope };
    chk_segs(&o, s->is_mla, s->dim, s->n_vec);
    for (size_t k = 0; k < 2 && extra & OUTLIERS; k++) {
        o.seg[k].outlier = places[k];
        o.seg[k].n_outlier = some_places(t, s->dim[k] * s->n_vec[k], places[k]);
    }
    if (extra & FIXED && nb_record_init(r, &o, NULL) == NB_OK)
        for (size_t k = 0; k < 2; k++)
            if (r->seg[k].fmt == NB_SEG_E4M3 || r->seg[k].fmt == NB_SEG_NVFP4)
                o.seg[k].fixed_scale = (float)(1e-4 + chk_unit(t) * 0.002);
    return nb_record_init(r, &o, NULL) == NB_OK && chk_gpu_api(t)->can_cache(r);
}

static void image_init(chk *t, image *x, size_t n_bytes)
{
    x->n_bytes = n_bytes;
    x->before = chk_raw(t, n_bytes);
    x->after = chk_raw(t, n_bytes);
    memset(x->before, 0xa7, n_bytes);
}

static bool rounds(const world *w)
{
    return w->r.type != NB_KV_F32;
}

static void round_row(const world *w, const float *in, float *out)
{
    for (size_t i = 0; i < w->n; i++)
        out[i] = rounds(w) ? nb_bf16_to_f32(nb_bf16_from_f32(in[i])) : in[i];
}

static bool row_finite(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i])) return false;
    return true;
}

/* Lengths and positions of the chunks; 0 among them is padding. */
static void place_chunks(chk *t, world *w, unsigned length)
{
    size_t block = 0, row = 0, tail = 0, own = 0;
    for (size_t i = 0; i < w->n_chunk; i++) {
        nb_cuda_chunk *c = &w->chunk[i];
        const size_t in0 = i % 3 == 0 ? 63 : chk_between(t, 0, 63);
        c->n_tok = length == ONE ? 1 : (uint32_t)chk_between(t, 1, length == FEW ? 8 : 30);
        if (length == MANY && i == 1) c->n_tok = (uint32_t)chk_between(t, 60, 200);
        if (length == MANY && i == 2) c->n_tok = (uint32_t)(64 - in0);
        if (i == 3) c->n_tok = 0;
        c->pos0 = (uint32_t)(64 * chk_between(t, 0, 2) + in0);
        c->row0 = (uint32_t)row;
        c->block0 = (uint32_t)block;
        const size_t n_page = (in0 + c->n_tok + 63) / 64;
        block += c->pos0 / 64 + n_page;
        row += c->n_tok + chk_between(t, 0, 1);
        w->max_tok = c->n_tok > w->max_tok ? c->n_tok : w->max_tok;
        w->tail_at[i] = tail;
        tail += 2 * 64 * w->n;
        w->has_own[i] = n_page > 1;
        w->own_at[i] = own;
        if (n_page > 1) own += n_page * 64 * w->n;
    }
    w->tail_off = 64 * w->n;
    w->block = chk_raw(t, (block + 1) * sizeof *w->block);
    for (size_t i = 0; i < block; i++) w->block[i] = (uint32_t)(block - 1 - i);
    image_init(t, &w->pool, block * w->block_bytes + SLACK);
    image_init(t, &w->tail, tail * sizeof(float) + SLACK);
    image_init(t, &w->own, own * sizeof(float) + SLACK);
    image_init(t, &w->plane, block * w->plane_bytes + SLACK);
    w->kv = chk_raw(t, (row + 1) * w->kv_stride * sizeof *w->kv);
}

static void fill_values(chk *t, world *w, chk_pattern pat, bool hostile)
{
    for (size_t i = 0; i < w->n_chunk; i++) {
        const nb_cuda_chunk *c = &w->chunk[i];
        float *tail = (float *)w->tail.before + w->tail_at[i] + w->tail_off;
        for (size_t k = 0; k < c->pos0 % 64; k++) {
            chk_fill(t, tail + k * w->n, w->n, pat);
            round_row(w, tail + k * w->n, tail + k * w->n);
        }
        for (size_t k = 0; k < c->n_tok; k++)
            chk_fill(t, w->kv + (c->row0 + k) * w->kv_stride, w->n, pat);
        if (!hostile || i % 2 || c->n_tok == 0) continue;
        static const float evil[] = { NAN, INFINITY, -INFINITY, 3.4e38f };
        w->kv[(c->row0 + chk_between(t, 0, c->n_tok - 1)) * w->kv_stride +
              chk_between(t, 0, w->n - 1)] = evil[chk_between(t, 0, rounds(w) ? 3 : 2)];
    }
}

static void make_world(chk *t, world *w, unsigned length, chk_pattern pat, bool hostile)
{
    w->n = w->r.n_values;
    w->n_chunk = USUAL_CHUNK;
    if (length == ONE && chk_u64(t) % 2) w->n_chunk = chk_between(t, 1, USUAL_CHUNK);
    if (length == ONE && w->n < 100 && !chk_gpu_info(t)->emulated) /* more than blocks */
        w->n_chunk = chk_between(t, 40, MAX_CHUNK);
    w->kv_stride = w->n + chk_between(t, 0, 1) * chk_between(t, 0, 9);
    w->layer_off = 128 * chk_between(t, 0, 2);
    w->block_bytes = w->layer_off + w->r.page_bytes + 128 * chk_between(t, 0, 1);
    w->plane_off = 8 * chk_between(t, 0, 2);
    w->plane_bytes = 0;
    if (nb_residual_possible(&w->r))
        w->plane_bytes = w->plane_off + nb_residual_page_bytes(&w->r) + 8 * chk_between(t, 0, 1);
    place_chunks(t, w, length);
    fill_values(t, w, pat, hostile);
}

/* ---- what must come out ---- */

static void encode_page(world *w, size_t i, size_t k, const float *rows)
{
    const size_t n = w->n;
    const nb_cuda_chunk *c = &w->chunk[i];
    const size_t b = w->block[c->block0 + c->pos0 / 64 + k];
    unsigned char *page = w->pool.after + b * w->block_bytes + w->layer_off;
    if (!rounds(w)) {
        nb_record_store_f32(&w->r, page, rows, n);
        return;
    }
    uint16_t *half = malloc(64 * n * sizeof *half);
    if (!half) abort();
    for (size_t j = 0; j < 64 * n; j++) half[j] = nb_bf16_from_f32(rows[j]);
    if (nb_record_encode_page(&w->r, page, half, n) != NB_OK) abort();
    w->n_sat += nb_record_count_saturated(&w->r, half, n);
    if (w->plane_bytes)
        nb_residual_encode(&w->r, page, half, n,
                           w->plane.after + b * w->plane_bytes + w->plane_off);
    free(half);
}

/* A chunk as model/cpu/cpu_append.c stores it. */
static void expect_chunk(world *w, size_t i)
{
    const nb_cuda_chunk *c = &w->chunk[i];
    const size_t n = w->n, in0 = c->pos0 % 64, end = in0 + c->n_tok;
    float *tail = (float *)w->tail.after + w->tail_at[i] + w->tail_off;
    float *own = w->has_own[i] ? (float *)w->own.after + w->own_at[i] : tail;
    bool ok = true;
    if (c->n_tok == 0) return;
    if (own != tail) memcpy(own, tail, in0 * n * sizeof *own);
    for (size_t k = 0; k < c->n_tok; k++) {
        round_row(w, w->kv + (c->row0 + k) * w->kv_stride, own + (in0 + k) * n);
        ok &= row_finite(own + (in0 + k) * n, n);
    }
    for (size_t k = 0; ok && (k + 1) * 64 <= end; k++) encode_page(w, i, k, own + k * 64 * n);
    if (own != tail) memcpy(tail, own + end / 64 * 64 * n, end % 64 * n * sizeof *tail);
    if (!ok) w->bad[i] = 1;
}

static void expect(world *w)
{
    image *const all[] = { &w->pool, &w->tail, &w->own, &w->plane };
    for (size_t k = 0; k < NB_COUNT(all); k++)
        memcpy(all[k]->after, all[k]->before, all[k]->n_bytes);
    for (size_t i = 0; i < w->n_chunk; i++) expect_chunk(w, i);
}

/* ---- running ---- */

static nb_cuda_cache cache_of(chk *t, const world *w)
{
    nb_cuda_chunk *c = chk_raw(t, w->n_chunk * sizeof *c);
    size_t n_block = 0;
    for (size_t i = 0; i < w->n_chunk; i++) {
        const nb_cuda_chunk *x = &w->chunk[i];
        c[i] = *x;
        c[i].tail = (float *)w->tail.dev + w->tail_at[i];
        c[i].own = w->has_own[i] ? (float *)w->own.dev + w->own_at[i] : NULL;
        n_block = x->block0 + (x->pos0 + x->n_tok + 63) / 64;
    }
    return (nb_cuda_cache){
        .pool = w->pool.dev,
        .block_bytes = w->block_bytes,
        .layer_off = w->layer_off,
        .tail_off = w->tail_off,
        .block = chk_gpu_in(t, w->block, n_block * sizeof *w->block),
        .chunk = chk_gpu_in(t, c, w->n_chunk * sizeof *c),
        .n_chunk = w->n_chunk,
        .record = w->r,
    };
}

/* The same bits, but that any NaN may stand for another. */
static void same_floats(chk *t, const char *what, const image *x)
{
    float *got = chk_raw(t, x->n_bytes);
    chk_gpu_get(t, got, x->dev, x->n_bytes);
    const float *want = (const float *)x->after;
    for (size_t i = 0; i < x->n_bytes / sizeof *got; i++)
        if (memcmp(&got[i], &want[i], sizeof *got) != 0 && !(isnan(got[i]) && isnan(want[i]))) {
            chk_fail(t, "%s: element %zu is %g, not %g", what, i, (double)got[i], (double)want[i]);
            return;
        }
}

static void same_image(chk *t, const char *what, const image *x)
{
    unsigned char *got = chk_raw(t, x->n_bytes);
    chk_gpu_get(t, got, x->dev, x->n_bytes);
    chk_same_bytes(t, what, got, x->after, x->n_bytes);
}

/* Uploads the images. */
static nb_cuda_kv_append_args append_args(chk *t, world *w)
{
    static const uint32_t no_bad[MAX_CHUNK];
    static const uint64_t n_sat = OLD_SATURATED;
    image *const all[] = { &w->pool, &w->tail, &w->own, &w->plane };
    size_t n_row = 1;
    for (size_t k = 0; k < NB_COUNT(all); k++)
        all[k]->dev = chk_gpu_inout(t, all[k]->before, all[k]->n_bytes);
    for (size_t i = 0; i < w->n_chunk; i++) n_row = w->chunk[i].row0 + w->chunk[i].n_tok;
    return (nb_cuda_kv_append_args){
        .cache = cache_of(t, w),
        .kv = chk_gpu_in(t, w->kv, n_row * w->kv_stride * sizeof *w->kv),
        .kv_stride = w->kv_stride,
        .max_chunk_tok = w->max_tok + chk_between(t, 0, 3),
        .bad = chk_gpu_inout(t, no_bad, w->n_chunk * sizeof *no_bad),
        .n_saturated = chk_gpu_inout(t, &n_sat, sizeof n_sat),
        .plane = w->plane_bytes ? w->plane.dev : NULL,
        .plane_block_bytes = w->plane_bytes,
        .plane_layer_off = w->plane_off,
    };
}

static void append(chk *t, world *w)
{
    const nb_cuda_kv_append_args a = append_args(t, w);
    uint32_t bad[MAX_CHUNK];
    uint64_t n_sat;
    chk_gpu_call(t, chk_gpu_api(t)->kv_append(chk_gpu(t), &a));
    same_image(t, "pages", &w->pool);
    same_floats(t, "tails", &w->tail);
    same_floats(t, "own rows", &w->own);
    same_image(t, "residual planes", &w->plane);
    chk_gpu_get(t, bad, a.bad, w->n_chunk * sizeof *bad);
    chk_gpu_get(t, &n_sat, a.n_saturated, sizeof n_sat);
    chk_same_bytes(t, "marks of bad chunks", bad, w->bad, w->n_chunk * sizeof *bad);
    if (n_sat != OLD_SATURATED + w->n_sat)
        chk_fail(t, "%llu saturated values, not %llu", (unsigned long long)n_sat - OLD_SATURATED,
                 (unsigned long long)w->n_sat);
}

/* ---- reading ---- */

/* y against want [n_row][n]: floats exactly, hi and lo to 2^-17, hi alone exactly where it must be; but
 * BF16 has coarser steps than float below 2^-126. */
static void same_forms(chk *t, const nb_cuda_rows *y, size_t n_row, size_t n, const float *want,
                       bool hi_exact)
{
    const nb_cuda_rows got = chk_gpu_get_rows(t, y, n_row);
    for (size_t i = 0; i < n_row; i++)
        for (size_t k = 0; k < n; k++) {
            const size_t at = i * y->stride + k;
            const float v = want[i * n + k], h = nb_bf16_to_f32(got.hi[at]);
            const float rest = nb_bf16_to_f32(got.lo[at]);
            const bool near = fabsf(v - (h + rest)) <= ldexpf(fabsf(v), -17) + 0x1p-133f;
            const bool exact = hi_exact && fabsf(v) >= 0x1p-126f;
            if (memcmp(&got.f[at], &v, sizeof v) != 0 || !(exact ? h == v && rest == 0 : near)) {
                chk_fail(t, "decoded values: row %zu, value %zu is %g = %g + %g, not %g", i, k,
                         (double)got.f[at], (double)h, (double)rest, (double)v);
                return;
            }
        }
}

/* Values of segment s in the pages of chunk i as `after` has them, or of its own rows. */
static const float *expect_values(chk *t, const world *w, size_t i, size_t s, size_t n_page,
                                  bool own)
{
    const nb_cuda_chunk *c = &w->chunk[i];
    const nb_record_seg *x = &w->r.seg[s];
    const size_t n = x->dim * x->n_vec, end = c->pos0 % 64 + c->n_tok;
    const float *rows = w->has_own[i] ? (const float *)w->own.after + w->own_at[i]
                                      : (const float *)w->tail.after + w->tail_at[i] + w->tail_off;
    float *want = chk_raw(t, n_page * 64 * n * sizeof *want);
    memset(want, 0, n_page * 64 * n * sizeof *want);
    if (s == 1) rows += w->r.seg[0].dim * w->r.seg[0].n_vec;
    for (size_t k = 0; own && k < end; k++) memcpy(want + k * n, rows + k * w->n, n * sizeof *want);
    for (size_t k = 0; !own && k < n_page; k++) {
        const size_t b = w->block[c->block0 + c->pos0 / 64 + k];
        nb_record_decode(&w->r, w->pool.after + b * w->block_bytes + w->layer_off, s, 0, 64,
                         want + k * 64 * n, n);
    }
    return want;
}

static void decode(chk *t, const world *w, size_t i, bool own)
{
    const nb_cuda_chunk *c = &w->chunk[i];
    const size_t end = c->pos0 % 64 + c->n_tok, n_page = own ? (end + 63) / 64 : end / 64;
    if (n_page == 0 || c->n_tok == 0 || w->bad[i]) return;
    nb_cuda_kv_decode_args a = { .cache = cache_of(t, w),
                                 .chunk = i,
                                 .page0 = own ? 0 : c->pos0 / 64,
                                 .n_page = n_page,
                                 .own = own };
    for (size_t s = 0; s < 2; s++) {
        const size_t n = w->r.seg[s].dim * w->r.seg[s].n_vec;
        a.y[s] = chk_gpu_out_rows(t, n_page * 64, (n + 7) / 8 * 8 + 8 * chk_between(t, 0, 1), 2);
    }
    chk_gpu_call(t, chk_gpu_api(t)->kv_decode(chk_gpu(t), &a));
    for (size_t s = 0; s < 2; s++) {
        const nb_record_seg *x = &w->r.seg[s];
        const bool parts = x->fmt == NB_SEG_INT4_CH || x->fmt == NB_SEG_INT4_TOK ||
                           x->fmt == NB_SEG_F32 || x->fixed_scale != 0;
        same_forms(t, &a.y[s], n_page * 64, x->dim * x->n_vec,
                   expect_values(t, w, i, s, n_page, own), !parts);
    }
}

static void one_case(chk *t, const shape *s, nb_kv_type type, nb_kv_mode mode, unsigned extra,
                     unsigned length, chk_pattern pat, bool hostile)
{
    static world w;
    w = (world){ 0 };
    if (!make_record(t, &w.r, s, type, mode, extra)) return;
    make_world(t, &w, length, pat, hostile);
    expect(&w);
    append(t, &w);
    for (size_t i = 0; i < 2 && i < w.n_chunk; i++) {
        decode(t, &w, i, false);
        decode(t, &w, i, true);
    }
}

static nb_kv_mode last_mode(nb_kv_type type)
{
    return nb_kv_traits[type]->modes ? NB_KV_SEARCH : NB_KV_BASIC;
}

/* Extras and lengths of steps; patterns and hostile values go round.  Emulated: some of all. */
static void one_record(chk *t, size_t i, nb_kv_type type, nb_kv_mode mode, size_t *n)
{
    const size_t every = chk_gpu_info(t)->emulated ? 7 : 1;
    for (unsigned k = 0; k < N_EXTRA * N_LENGTH; k++, ++*n) {
        const unsigned extra = k / N_LENGTH, length = k % N_LENGTH;
        const size_t turn = *n + (size_t)t->seed;
        const chk_pattern p = (chk_pattern)(turn / every % CHK_PATTERN_COUNT);
        const bool hostile = turn / every % 4 == 3;
        if (turn % every == 0 &&
            chk_case(t, "shape %zu %s mode %d%s %s %s%s", i, nb_kv_type_name(type), (int)mode,
                     extra_name[extra], length_name[length], chk_pattern_name(p),
                     hostile ? " hostile" : ""))
            one_case(t, &shapes[i], type, mode, extra, length, p, hostile);
    }
}

static void test(chk *t, const chk_row *row)
{
    size_t n = 0;
    (void)row;
    for (size_t i = 0; i < NB_COUNT(shapes); i++)
        for (nb_kv_type type = 0; type < NB_KV_TYPE_COUNT; type++)
            for (nb_kv_mode m = NB_KV_BASIC; m <= last_mode(type); m++)
                one_record(t, i, type, m, &n);
}

/* ---- times ---- */

typedef struct job {
    const nb_cuda_api *api;
    nb_cuda *g;
    nb_cuda_kv_append_args append;
    nb_cuda_kv_decode_args decode;
} job;

static void append_call(void *ctx)
{
    const job *j = ctx;
    j->api->kv_append(j->g, &j->append);
}

static void decode_call(void *ctx)
{
    const job *j = ctx;
    j->api->kv_decode(j->g, &j->decode);
}

/* n_chunk chunks of n_tok tokens from place in0 of a page on. */
static bool make_job(chk *t, job *j, const nb_record *r, size_t n_chunk, size_t n_tok, size_t in0)
{
    const size_t n = r->n_values, n_page = (in0 + n_tok + 63) / 64, n_row = n_chunk * n_tok;
    float *x = chk_raw(t, (n_row > 64 ? n_row : 64) * n * sizeof *x);
    nb_cuda_chunk *c = chk_raw(t, n_chunk * sizeof *c);
    uint32_t *block = chk_raw(t, n_chunk * n_page * sizeof *block);
    chk_fill(t, x, (n_row > 64 ? n_row : 64) * n, CHK_NORMAL);
    float *tail = chk_gpu_out(t, n_chunk * 64 * n * sizeof *tail);
    float *own = chk_gpu_out(t, n_chunk * n_page * 64 * n * sizeof *own);
    for (size_t i = 0; i < n_chunk; i++)
        c[i] = (nb_cuda_chunk){ .tail = tail + i * 64 * n,
                                .own = n_page > 1 ? own + i * n_page * 64 * n : NULL,
                                .row0 = (uint32_t)(i * n_tok),
                                .n_tok = (uint32_t)n_tok,
                                .pos0 = (uint32_t)in0,
                                .block0 = (uint32_t)(i * n_page) };
    for (size_t i = 0; i < n_chunk * n_page; i++) block[i] = (uint32_t)i;
    uint32_t *bad = chk_raw(t, n_chunk * sizeof *bad);
    memset(bad, 0, n_chunk * sizeof *bad);
    j->api = chk_gpu_api(t);
    j->g = chk_gpu(t);
    j->append = (nb_cuda_kv_append_args){
        .cache = { .pool = chk_gpu_out(t, n_chunk * n_page * r->page_bytes),
                   .block_bytes = r->page_bytes,
                   .block = chk_gpu_in(t, block, n_chunk * n_page * sizeof *block),
                   .chunk = chk_gpu_in(t, c, n_chunk * sizeof *c),
                   .n_chunk = n_chunk,
                   .record = *r },
        .kv = chk_gpu_in(t, x, n_row * n * sizeof *x),
        .kv_stride = n,
        .max_chunk_tok = n_tok,
        .bad = chk_gpu_inout(t, bad, n_chunk * sizeof *bad),
    };
    /* old rows are values, not canaries */
    j->api->copy(j->g, tail, j->append.kv, (n_row < 64 ? n_row : 64) * n * sizeof *x);
    j->decode = (nb_cuda_kv_decode_args){ .cache = j->append.cache, .n_page = n_page };
    for (size_t s = 0; s < 2; s++)
        j->decode.y[s] = (nb_cuda_rows){
            .hi = chk_gpu_out(t, n_page * 64 * r->seg[s].dim * r->seg[s].n_vec * 2),
            .stride = r->seg[s].dim * r->seg[s].n_vec,
        };
    return true;
}

static void bench_record(chk *t, nb_kv_type type, nb_kv_mode mode)
{
    static const size_t step[][3] = {
        { 1, 1, 5 }, { 64, 1, 5 }, { 1, 1, 63 }, { 64, 1, 63 }, { 1, 8192, 0 }
    };
    nb_record r;
    char label[96];
    if (!make_record(t, &r, &shapes[0], type, mode, PLAIN)) return;
    for (size_t k = 0; k < NB_COUNT(step); k++) {
        const size_t n_chunk = step[k][0], n_tok = step[k][1], in0 = step[k][2];
        job j;
        if (chk_gpu_info(t)->emulated && n_tok > 1) continue;
        if (!chk_case(t, "bench") || !make_job(t, &j, &r, n_chunk, n_tok, in0)) continue;
        const double row_bytes = (double)(n_chunk * n_tok * r.n_values) * 2 * sizeof(float);
        snprintf(label, sizeof label, "append %zu x %zu at %zu %s %d", n_chunk, n_tok, in0,
                 nb_kv_type_name(type), (int)mode);
        chk_gpu_time(t, label, row_bytes, 0, append_call, &j);
        if (n_tok == 1) continue;
        snprintf(label, sizeof label, "decode %zu %s", n_tok, nb_kv_type_name(type));
        chk_gpu_time(t, label,
                     (double)n_tok * (nb_record_bytes_per_tok(&r) + 2 * (double)r.n_values), 0,
                     decode_call, &j);
    }
}

static void bench(chk *t, const chk_row *row)
{
    (void)row;
    for (nb_kv_type type = 0; type < NB_KV_TYPE_COUNT; type++)
        bench_record(t, type, nb_kv_mode_default(type));
    bench_record(t, NB_KV_NVFP4, NB_KV_SEARCH);
}

const chk_op chk_cuda_kv = { "cuda_kv", chk_gpu_row, test, bench, NULL };
