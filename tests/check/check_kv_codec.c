/* check_kv_codec.c - KV page codecs: the bytes of nb_record_encode_page and the
 * values of nb_record_decode, exactly, for every record type, mode and shape. */
#include "check/check.h"
#include "kernel/kv_codec/kv_codec.h"
#include "num/bf16.h"
#include "num/traits.h"

CHK_ROWS(rows, nb_kv_codec_variant, nb_kv_codec_variants, "")

typedef struct shape {
    bool is_mla;
    nb_rope_fmt rope;
    size_t dim[2], n_vec[2], row_tok;
} shape;

static const shape shapes[] = {
    { true, NB_ROPE_FP8, { 512, 64 }, { 1, 1 }, 0 },
    { true, NB_ROPE_BF16, { 512, 64 }, { 1, 1 }, 0 },
    { true, NB_ROPE_FP8, { 256, 32 }, { 1, 1 }, 0 },
    { true, NB_ROPE_FP8, { 40, 6 }, { 1, 1 }, 0 },
    { true, NB_ROPE_FP8, { 1, 2 }, { 1, 1 }, 0 },
    { true, NB_ROPE_FP8, { 31, 17 }, { 1, 1 }, 0 },
    { false, NB_ROPE_FP8, { 128, 128 }, { 2, 2 }, 0 },
    { false, NB_ROPE_FP8, { 33, 33 }, { 3, 3 }, 0 },
    { true, NB_ROPE_INT8, { 64, 64 }, { 1, 1 }, 0 },
    { true, NB_ROPE_INT8, { 31, 300 }, { 1, 1 }, 0 },
    /* compressed attention: 16 rows, one row */
    { true, NB_ROPE_INT8, { 448, 64 }, { 1, 1 }, 4 },
    { true, NB_ROPE_FP8, { 24, 8 }, { 1, 1 }, 128 },
};

typedef struct page {
    nb_record r;
    const uint16_t *x; /* [64][stride] */
    size_t stride;
    unsigned char *bytes; /* as the specification encodes it */
} page;

/* What a record may have besides: outlier channels, scales of a checkpoint. */
enum { PLAIN, OUTLIERS, FIXED, BOTH, N_EXTRA };
static const char *const extra_name[] = { "", " outliers", " fixed", " outliers fixed" };

/* Some places of n values, ascending. */
static size_t some_places(chk *t, size_t n, uint16_t *out)
{
    size_t k = 0;
    for (size_t at = chk_between(t, 0, 3); at < n && k < NB_MAX_OUTLIER;
         at += chk_between(t, 1, n / 7 + 1))
        out[k++] = (uint16_t)at;
    return k;
}

static bool make_page(chk *t, page *p, const shape *s, nb_kv_type type, nb_kv_mode mode,
                      chk_pattern pat, unsigned extra)
{
    uint16_t places[2][NB_MAX_OUTLIER];
    nb_record_opts o = { .type = type, .mode = mode, .rope = s->rope, .row_tok = s->row_tok };
    chk_segs(&o, s->is_mla, s->dim, s->n_vec);
    for (size_t k = 0; k < 2 && extra & OUTLIERS; k++) {
        o.seg[k].outlier = places[k];
        o.seg[k].n_outlier = some_places(t, s->dim[k] * s->n_vec[k], places[k]);
    }
    if (extra & FIXED && nb_record_init(&p->r, &o, NULL) == NB_OK)
        for (size_t k = 0; k < 2; k++)
            if (p->r.seg[k].fmt == NB_SEG_E4M3 || p->r.seg[k].fmt == NB_SEG_NVFP4)
                o.seg[k].fixed_scale = (float)(1e-4 + chk_unit(t) * 0.004);
    if (nb_record_init(&p->r, &o, NULL) != NB_OK) return false; /* a shape the type cannot hold */
    p->stride = p->r.n_values + chk_between(t, 0, 5);
    uint16_t *x = chk_in(t, chk_rows_bytes(p->r.n_row, p->r.n_values, p->stride, 2));
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < p->r.n_row; i++) {
            float row[512];
            uint16_t *to = x + i * p->stride + p->r.seg[k].first;
            chk_fill(t, row, nb_seg_values(&p->r.seg[k]), pat);
            for (size_t j = 0; j < nb_seg_values(&p->r.seg[k]); j++)
                to[j] = nb_bf16_from_f32(row[j]);
        }
    p->x = x;
    const bool front = t->front;
    t->front = true; /* pages are aligned */
    p->bytes = chk_in(t, p->r.page_bytes);
    t->front = front;
    if (nb_record_encode_page(&p->r, p->bytes, p->x, p->stride) == NB_OK) return true;
    chk_fail(t, "the specification refuses finite values");
    return false;
}

static void check_decode(chk *t, nb_kv_decode_fn *fn, const page *p)
{
    for (size_t s = 0; s < p->r.n_seg; s++) {
        const size_t n = p->r.seg[s].dim * p->r.seg[s].n_vec, n_row = p->r.n_row;
        for (int k = 0; k < 5; k++) {
            const size_t tok0 = k ? chk_between(t, 0, n_row) : 0;
            const size_t n_tok = k ? chk_between(t, 0, n_row - tok0) : n_row;
            const size_t stride = n + (k % 2 ? chk_between(t, 0, 5) : 0);
            float *got = chk_out_rows(t, n_tok, n, stride);
            float *want = chk_raw(t, chk_rows_bytes(n_tok, n, stride, sizeof *want));
            if (n_tok) memcpy(want, got, chk_rows_bytes(n_tok, n, stride, sizeof *want));
            nb_record_decode(&p->r, p->bytes, s, tok0, n_tok, want, stride);
            chk_call(t, fn(&p->r, p->bytes, s, tok0, n_tok, got, stride));
            chk_same_bytes(t, "decoded values", got, want,
                           chk_rows_bytes(n_tok, n, stride, sizeof *want));
        }
    }
}

static void check_encode(chk *t, nb_kv_encode_fn *fn, const page *p)
{
    const bool front = t->front;
    t->front = true;
    unsigned char *got = chk_out(t, p->r.page_bytes), *old = chk_raw(t, p->r.page_bytes);
    t->front = front;
    memcpy(old, got, p->r.page_bytes);
    uint16_t *x = (uint16_t *)(uintptr_t)p->x; /* one NaN: refused, page untouched */
    const size_t n = p->r.n_values;
    const size_t at = chk_between(t, 0, p->r.n_row - 1) * p->stride + chk_between(t, 0, n - 1);
    const uint16_t keep = x[at];
    nb_status st = NB_OK;
    x[at] = chk_u64(t) % 2 ? 0x7fc0 : 0xff80;
    chk_call(t, (void)(st = fn(&p->r, got, p->x, p->stride)));
    if (st != NB_ERR_NONFINITE) chk_fail(t, "a non-finite value gave status %d", (int)st);
    chk_same_bytes(t, "page after a refusal", got, old, p->r.page_bytes);
    x[at] = keep;
    chk_call(t, (void)(st = fn(&p->r, got, p->x, p->stride)));
    if (st != NB_OK) chk_fail(t, "finite values gave status %d", (int)st);
    chk_same_bytes(t, "encoded page", got, p->bytes, p->r.page_bytes);
}

static void one_case(chk *t, const nb_kv_codec_variant *v, const shape *s, nb_kv_type type,
                     nb_kv_mode mode, chk_pattern pat, unsigned extra)
{
    page p = { 0 };
    if (!make_page(t, &p, s, type, mode, pat, extra)) return;
    check_decode(t, v->decode, &p);
    if (v->encode) check_encode(t, v->encode, &p);
}

/* Every pattern for small shapes; for others, and beside outliers or fixed scales, every fourth. */
static void one_shape(chk *t, const nb_kv_codec_variant *v, size_t i, nb_kv_type type,
                      nb_kv_mode mode)
{
    for (unsigned extra = 0; extra < N_EXTRA; extra++)
        for (chk_pattern p = extra; p < CHK_PATTERN_COUNT; p += i < 2 || extra ? 4 : 1)
            if (chk_case(t, "shape %zu %s mode %d%s %s", i, nb_kv_type_name(type), (int)mode,
                         extra_name[extra], chk_pattern_name(p)))
                one_case(t, v, &shapes[i], type, mode, p, extra);
}

static nb_kv_mode last_mode(nb_kv_type type)
{
    return nb_kv_traits[type]->modes ? NB_KV_SEARCH : NB_KV_BASIC;
}

static void test(chk *t, const chk_row *row)
{
    for (size_t i = 0; i < NB_COUNT(shapes); i++)
        for (nb_kv_type type = 0; type < NB_KV_TYPE_COUNT; type++)
            for (nb_kv_mode m = NB_KV_BASIC; m <= last_mode(type); m++)
                one_shape(t, row->row, i, type, m);
}

typedef struct job {
    const nb_kv_codec_variant *v;
    page p;
    float *out;
    unsigned char *bytes;
} job;

static void decode_call(void *ctx)
{
    const job *j = ctx;
    j->v->decode(&j->p.r, j->p.bytes, 0, 0, NB_PAGE_TOK, j->out, j->p.r.seg[0].dim);
}

static void encode_call(void *ctx)
{
    const job *j = ctx;
    (void)j->v->encode(&j->p.r, j->bytes, j->p.x, j->p.stride);
}

static void bench_one(chk *t, const chk_row *row, nb_kv_type type, nb_kv_mode mode, unsigned extra)
{
    static const char *const mode_name[] = { "basic", "4over6", "search" };
    char label[96];
    job j = { .v = row->row };
    const char *m = last_mode(type) == NB_KV_SEARCH ? mode_name[mode] : "";
    chk_case(t, "bench");
    if (!make_page(t, &j.p, &shapes[0], type, mode, CHK_NORMAL, extra)) return;
    j.out = chk_out_rows(t, NB_PAGE_TOK, 512, 512);
    j.bytes = chk_out(t, j.p.r.page_bytes);
    if (mode == NB_KV_BASIC) { /* reading does not know modes */
        snprintf(label, sizeof label, "decode 64 x 512 %s%s", nb_kv_type_name(type),
                 extra_name[extra]);
        chk_time(t, label, (double)NB_PAGE_TOK * 512 * 4, 0, decode_call, &j);
    }
    if (!j.v->encode) return;
    snprintf(label, sizeof label, "encode 64 x 576 %s %s%s", nb_kv_type_name(type), m,
             extra_name[extra]);
    chk_time(t, label, (double)NB_PAGE_TOK * 576 * 2, 0, encode_call, &j);
}

static void bench(chk *t, const chk_row *row)
{
    for (nb_kv_type type = 0; type < NB_KV_TYPE_COUNT; type++)
        for (nb_kv_mode m = NB_KV_BASIC; m <= last_mode(type); m++)
            bench_one(t, row, type, m, PLAIN);
    bench_one(t, row, NB_KV_NVFP4, NB_KV_4OVER6, OUTLIERS);
    bench_one(t, row, NB_KV_NVFP4, NB_KV_4OVER6, FIXED);
}

/* Planted bugs. */
static void one_value_off(const nb_record *r, const void *pg, size_t s, size_t tok0, size_t n_tok,
                          float *out, size_t stride)
{
    nb_record_decode(r, pg, s, tok0, n_tok, out, stride);
    if (n_tok > 1) out[stride + r->seg[s].dim - 1] = nextafterf(out[stride], 1e9f);
}
static void from_token_0(const nb_record *r, const void *pg, size_t s, size_t tok0, size_t n_tok,
                         float *out, size_t stride)
{
    (void)tok0;
    nb_record_decode(r, pg, s, 0, n_tok, out, stride);
}
static void forgets_outliers(const nb_record *r, const void *pg, size_t s, size_t tok0,
                             size_t n_tok, float *out, size_t stride)
{
    nb_record_decode(r, pg, s, tok0, n_tok, out, stride);
    for (size_t i = 0; i < n_tok && r->seg[s].n_outlier; i++)
        out[i * stride + r->seg[s].outlier[0]] = 0;
}
static nb_status scales_see_outliers(const nb_record *r, void *pg, const uint16_t *x, size_t stride)
{
    nb_record plain = *r;
    const nb_status st = nb_record_encode_page(r, pg, x, stride);
    plain.seg[0].n_outlier = plain.seg[1].n_outlier = 0;
    if (st == NB_OK && r->seg[0].n_outlier && plain.seg[0].side_off)
        (void)nb_record_encode_page(&plain, pg, x, stride);
    return st;
}
static nb_status stores_nan(const nb_record *r, void *pg, const uint16_t *x, size_t stride)
{
    const nb_status st = nb_record_encode_page(r, pg, x, stride);
    if (st != NB_OK) memset(pg, 0, r->page_bytes);
    return st;
}

#define BUG(what, expect, enc, dec)                                                                \
    {                                                                                              \
        what, expect,                                                                              \
        {                                                                                          \
            "broken", "", NB_SPACE_HOST, 0, &(const nb_kv_codec_variant)                           \
            {                                                                                      \
                "broken", NB_SPACE_HOST, 0, enc, dec                                               \
            }                                                                                      \
        }                                                                                          \
    }
static const chk_broken broken[] = {
    BUG("one decoded value off", "decoded values", NULL, one_value_off),
    BUG("first token ignored", "decoded values", NULL, from_token_0),
    BUG("outliers read as zero", "outliers", NULL, forgets_outliers),
    BUG("scales see the outliers", "encoded page", scales_see_outliers, nb_record_decode),
    BUG("page touched by a refused encode", "refusal", stores_nan, nb_record_decode),
    { 0 },
};

const chk_op chk_kv_codec = { "kv_codec", rows, test, bench, broken };
