/* check_attn_prefill.c - expanded attention over packed tiles: tails of every dimension, one to
 * many tiles, causal limits, tokens that nobody may see, and independence of a query from the
 * others. */
#include "check/check.h"
#include "kernel/attn/attn.h"
#include "kernel/attn_prefill/attn_prefill.h"

CHK_ROWS(rows, nb_attn_prefill_variant, nb_attn_prefill_variants, "")

enum { TILE = NB_PREFILL_TILE, TILES = NB_PREFILL_TILES_MAX, MAX_TILE = 16 };

typedef struct shape {
    size_t n_q, n_kv, d1, d2, d_v;
    size_t vis0, vis_step; /* of all n_kv tokens; at least n_kv: all visible */
} shape;

static const shape shapes[] = {
    { 1, 1, 1, 0, 1, 1, 0 }, /* the smallest */
    { 1, 5, 7, 3, 9, 5, 0 },
    { 6, 64, 8, 8, 16, 64, 0 },
    { 7, 63, 15, 1, 17, 63, 0 },
    { 64, 64, 128, 64, 128, 64, 0 }, /* DeepSeek */
    { 64, 64, 128, 64, 128, 1, 1 },  /* its own page */
    { 64, 256, 128, 64, 128, 256, 0 },
    { 64, 256, 64, 64, 64, 193, 1 }, /* the bundled model, last split */
    { 40, 232, 128, 64, 128, 193, 1 },
    { 3, 200, 33, 0, 40, 198, 1 },
    { 63, 127, 24, 8, 31, 65, 1 },
    { 17, 65, 17, 2, 15, 65, 0 },
    { 16, 80, 40, 8, 33, 65, 1 },
    { 33, 97, 16, 16, 48, 64, 1 },
    { 5, 70, 13, 5, 11, 64, 2 },
    { 9, 320, 32, 16, 32, 320, 0 }, /* two calls */
    { 64, 640, 20, 12, 24, 577, 1 },
    { 2, 4, 64, 64, 64, 0, 1 }, /* the first sees nothing */
    { 12, 130, 192, 64, 256, 128, 0 },
};

/* A case: unpacked and packed data, and the arguments of a call over all tiles. */
typedef struct data {
    const nb_attn_prefill_variant *v;
    nb_attn_prefill_args a; /* n_tile: all of them */
    nb_attn_prefill_tile tile[MAX_TILE];
    const void *packed[MAX_TILE];
    const float *q;
    size_t q_stride;
} data;

static void new_state(chk *t, nb_attn_prefill_args *a)
{
    a->o = chk_out_rows(t, a->n_q, a->d.d_v, a->o_stride);
    a->m = chk_out_rows(t, a->n_q, 1, a->ml_stride);
    a->l = chk_out_rows(t, a->n_q, 1, a->ml_stride);
    for (size_t i = 0; i < a->n_q; i++) {
        a->m[i * a->ml_stride] = -INFINITY;
        a->l[i * a->ml_stride] = 0;
    }
}

static void *aligned_raw(chk *t, size_t n_bytes)
{
    if (n_bytes % 64) chk_fail(t, "a size is no multiple of 64: %zu", n_bytes);
    return chk_out(t, n_bytes); /* NaN canaries: nothing may depend on what was there */
}

static const void *pack_queries(chk *t, const data *x, size_t i0, size_t n_q)
{
    void *dst = aligned_raw(t, x->v->q_bytes(&x->a.d));
    chk_call(t, x->v->pack_q(&x->a.d, dst, x->q + i0 * x->q_stride, x->q_stride, n_q));
    return dst;
}

static void pack_tiles(chk *t, data *x)
{
    const size_t n_bytes = x->v->kv_bytes(&x->a.d);
    unsigned char *dst = aligned_raw(t, x->a.n_tile * n_bytes);
    for (size_t j = 0; j < x->a.n_tile; j++) {
        chk_call(t, x->v->pack_kv(&x->a.d, dst + j * n_bytes, &x->tile[j]));
        x->packed[j] = dst + j * n_bytes;
    }
}

static data make_data(chk *t, const nb_attn_prefill_variant *v, const shape *s, chk_pattern pq,
                      chk_pattern pv)
{
    data x = { .v = v, .a = { .d = { s->d1, s->d2, s->d_v }, .n_q = s->n_q } };
    nb_attn_prefill_args *a = &x.a;
    const size_t d = s->d1 + s->d2;
    const size_t s1 = s->d1 + chk_between(t, 0, 9), s2 = s->d2 + chk_between(t, 0, 9);
    const size_t sv = s->d_v + chk_between(t, 0, 9);
    a->n_tile = (s->n_kv + TILE - 1) / TILE;
    const size_t before = (a->n_tile - 1) * TILE;
    a->last_tok = s->n_kv - before;
    a->vis0 = s->vis0 - before;
    a->vis_step = s->vis_step;
    a->scale = 1 / sqrtf((float)d);
    a->o_stride = s->d_v + chk_between(t, 0, 5);
    a->ml_stride = 1 + chk_between(t, 0, 3);
    x.q_stride = d + chk_between(t, 0, 5);
    x.q = chk_in_rows(t, s->n_q, d, x.q_stride, pq);
    const float *k1 = chk_in_rows(t, s->n_kv, s->d1, s1, pq == CHK_LARGE ? CHK_NORMAL : pq);
    const float *k2 = s->d2 ? chk_in_rows(t, s->n_kv, s->d2, s2, CHK_NORMAL) : NULL;
    const float *val = chk_in_rows(t, s->n_kv, s->d_v, sv, pv);
    for (size_t j = 0; j < a->n_tile; j++)
        x.tile[j] = (nb_attn_prefill_tile){
            .k1 = k1 + j * TILE * s1,
            .k2 = k2 ? k2 + j * TILE * s2 : NULL,
            .v = val + j * TILE * sv,
            .k1_stride = s1,
            .k2_stride = s2,
            .v_stride = sv,
            .n_tok = j + 1 < a->n_tile ? TILE : a->last_tok,
        };
    return x;
}

/* Tiles [j0, j1), TILES to a call at most: queries a->q, a state. */
static void run_tiles(chk *t, const data *x, const nb_attn_prefill_args *a, size_t j0, size_t j1)
{
    void *scratch = aligned_raw(t, x->v->scratch(&a->d));
    for (size_t j = j0; j < j1; j += TILES) {
        nb_attn_prefill_args c = *a;
        const bool last = j + TILES >= a->n_tile && j1 == a->n_tile;
        c.n_tile = j1 - j < TILES ? j1 - j : TILES;
        c.tile = x->packed + j;
        c.scratch = scratch;
        if (!last) {
            c.last_tok = c.vis0 = TILE;
            c.vis_step = 0;
        }
        chk_call(t, x->v->fn(&c));
    }
}

typedef struct want {
    double *y, *score_abs, *v_max;
} want;

static want reference(chk *t, const data *x)
{
    const nb_attn_prefill_args *a = &x->a;
    const want w = { chk_f64(t, a->n_q * a->d.d_v), chk_f64(t, a->n_q), chk_f64(t, a->n_q) };
    nb_attn_prefill_ref(a, x->q, x->q_stride, x->tile, w.y, w.score_abs, w.v_max);
    return w;
}

static void compare(chk *t, const data *x, const nb_attn_prefill_args *a, const want *w)
{
    const size_t d = a->d.d1 + a->d.d2, d_v = a->d.d_v, n_tok = a->n_tile * TILE;
    double *bound = chk_f64(t, d_v);
    float *y = chk_raw(t, (d_v + 1) * sizeof *y);
    const double eps = (double)x->v->eps;
    for (size_t i = 0; i < a->n_q; i++) {
        const double sum = w->score_abs[i];
        const double k = 96 + 14 * (double)(a->n_tile + 1) + ((double)d / 4 + 46) * sum;
        const double rel = k * 0x1p-24 + expm1(4 * eps * sum * (1 + eps)) + 3 * eps;
        for (size_t j = 0; j < d_v; j++)
            bound[j] = rel * w->v_max[i] + 0x1p-126 * (double)(n_tok + 1);
        nb_attn_finish(y, a->o + i * a->o_stride, a->l + i * a->ml_stride, 1, d_v);
        chk_close(t, y, 1, d_v, d_v, w->y + i * d_v, bound);
        for (size_t j = d_v; j < a->o_stride && i + 1 < a->n_q; j++)
            if (memcmp(a->o + i * a->o_stride + j, &(uint32_t){ 0x7fa5a5a5 }, 4) != 0)
                chk_fail(t, "wrote into the gap after row %zu of o", i);
    }
}

/* Queries [i0, i1) of the case by themselves must have the same bits. */
static void check_range(chk *t, const data *x, size_t i0, size_t i1, const char *why)
{
    const nb_attn_prefill_args *whole = &x->a;
    nb_attn_prefill_args a = *whole;
    a.n_q = i1 - i0;
    a.vis0 += i0 * a.vis_step;
    a.q = pack_queries(t, x, i0, a.n_q);
    new_state(t, &a);
    run_tiles(t, x, &a, 0, a.n_tile);
    chk_same(t, why, whole->o + i0 * a.o_stride, a.o_stride, a.o, a.o_stride, a.n_q, a.d.d_v);
    chk_same(t, why, whole->l + i0 * a.ml_stride, a.ml_stride, a.l, a.ml_stride, a.n_q, 1);
    chk_same(t, why, whole->m + i0 * a.ml_stride, a.ml_stride, a.m, a.ml_stride, a.n_q, 1);
}

/* Two ranges of tiles apart, joined by nb_attn_merge. */
static void check_merge(chk *t, const data *x, const want *w)
{
    nb_attn_prefill_args lo = x->a, hi = x->a;
    new_state(t, &lo);
    new_state(t, &hi);
    const size_t cut = x->a.n_tile / 2;
    run_tiles(t, x, &lo, 0, cut);
    run_tiles(t, x, &hi, cut, x->a.n_tile);
    for (size_t i = 0; i < lo.n_q; i++)
        nb_attn_merge(lo.o + i * lo.o_stride, lo.m + i * lo.ml_stride, lo.l + i * lo.ml_stride,
                      hi.o + i * hi.o_stride, hi.m + i * hi.ml_stride, hi.l + i * hi.ml_stride, 1,
                      lo.d.d_v);
    compare(t, x, &lo, w);
}

typedef enum special { PLAIN, EQUAL, DOMINANT, BAD_VALUE, BAD_KEY, BAD_QUERY } special;

/* A NaN that few queries may see, or an infinity; a NaN in one query. */
static void plant(const data *x, special what)
{
    const nb_attn_prefill_tile *t = &x->tile[x->a.n_tile - 1];
    const size_t at = t->n_tok - 1;
    if (what == BAD_VALUE) /* every second column: the others of a row are NaN by the reference */
        for (size_t j = 0; j < x->a.d.d_v; j += 2)
            ((float *)(uintptr_t)t->v)[at * t->v_stride + j] = j % 4 ? INFINITY : NAN;
    if (what == BAD_KEY) ((float *)(uintptr_t)t->k1)[at * t->k1_stride] = NAN;
    if (what == BAD_QUERY) ((float *)(uintptr_t)x->q)[x->a.n_q / 2 * x->q_stride] = NAN;
}

static void one_case(chk *t, const nb_attn_prefill_variant *v, const shape *s, chk_pattern pq,
                     chk_pattern pv, special what)
{
    data x = make_data(t, v, s, what == EQUAL ? CHK_ZERO : pq, pv);
    if (what == DOMINANT) x.a.scale *= 1000;
    plant(&x, what);
    const want w = reference(t, &x);
    pack_tiles(t, &x);
    x.a.q = pack_queries(t, &x, 0, s->n_q);
    new_state(t, &x.a);
    run_tiles(t, &x, &x.a, 0, x.a.n_tile);
    compare(t, &x, &x.a, &w);
    const size_t one = chk_between(t, 0, s->n_q - 1), cut = chk_between(t, 0, s->n_q - 1);
    check_range(t, &x, one, one + 1, "for a query alone");
    check_range(t, &x, s->n_q - 1, s->n_q, "for the last query alone");
    check_range(t, &x, cut, s->n_q, "for another split");
    if (cut) check_range(t, &x, 0, cut, "for the first queries");
    if (x.a.n_tile > 1 && what == PLAIN) check_merge(t, &x, &w);
}

static void test(chk *t, const chk_row *row)
{
    const nb_attn_prefill_variant *v = row->row;
    for (size_t i = 0; i < NB_COUNT(shapes); i++) {
        const shape *s = &shapes[i];
        const bool big = s->n_q * s->n_kv * (s->d1 + s->d2 + s->d_v) > 500000;
        for (chk_pattern p = 0; p < CHK_PATTERN_COUNT; p++)
            if ((!big || p % 4 == 0) &&
                chk_case(t, "shape %zu: %zu q %zu kv %zu+%zu/%zu %s", i, s->n_q, s->n_kv, s->d1,
                         s->d2, s->d_v, chk_pattern_name(p)))
                one_case(t, v, s, p, p, PLAIN);
        if (chk_case(t, "shape %zu equal scores", i))
            one_case(t, v, s, CHK_NORMAL, CHK_OUTLIER, EQUAL);
        if (chk_case(t, "shape %zu one dominant", i))
            one_case(t, v, s, CHK_NORMAL, CHK_NORMAL, DOMINANT);
        if (chk_case(t, "shape %zu NaN in the last value", i))
            one_case(t, v, s, CHK_NORMAL, CHK_NORMAL, BAD_VALUE);
        if (chk_case(t, "shape %zu NaN in the last key", i))
            one_case(t, v, s, CHK_NORMAL, CHK_NORMAL, BAD_KEY);
        if (chk_case(t, "shape %zu NaN in a query", i))
            one_case(t, v, s, CHK_NORMAL, CHK_NORMAL, BAD_QUERY);
    }
}

typedef struct job {
    const data *x;
    nb_attn_prefill_args a;
    void *dst;
} job;

static void call(void *ctx)
{
    const job *j = ctx;
    j->x->v->fn(&j->a);
}

static void call_pack_q(void *ctx)
{
    const job *j = ctx;
    j->x->v->pack_q(&j->a.d, j->dst, j->x->q, j->x->q_stride, j->a.n_q);
}

static void call_pack_kv(void *ctx)
{
    const job *j = ctx;
    j->x->v->pack_kv(&j->a.d, j->dst, &j->x->tile[0]);
}

static void bench(chk *t, const chk_row *row)
{
    static const struct {
        const char *label;
        shape s;
    } list[] = {
        { "64 q x 256, 128+64/128", { 64, 256, 128, 64, 128, 256, 0 } },
        { "64 q x 64, 128+64/128", { 64, 64, 128, 64, 128, 64, 0 } },
        { "64 q x 256 causal, 128+64", { 64, 256, 128, 64, 128, 193, 1 } },
        { "64 q x 64 causal, 128+64", { 64, 64, 128, 64, 128, 1, 1 } },
        { "64 q x 256, 64+64/64", { 64, 256, 64, 64, 64, 256, 0 } },
        { "16 q x 256, 128+64/128", { 16, 256, 128, 64, 128, 256, 0 } },
    };
    for (size_t i = 0; i < NB_COUNT(list); i++) {
        const shape *s = &list[i].s;
        double seen = 0;
        chk_case(t, "bench %zu", i);
        t->front = true;
        data x = make_data(t, row->row, s, CHK_NORMAL, CHK_NORMAL);
        pack_tiles(t, &x);
        x.a.q = pack_queries(t, &x, 0, s->n_q);
        new_state(t, &x.a);
        job j = { .x = &x, .a = x.a };
        j.a.tile = x.packed;
        j.a.scratch = aligned_raw(t, x.v->scratch(&x.a.d));
        for (size_t q = 0; q < s->n_q; q++) {
            const size_t vis = s->vis0 + q * s->vis_step;
            seen += (double)(vis < s->n_kv ? vis : s->n_kv);
        }
        const double flops = 2.0 * seen * (double)(s->d1 + s->d2 + s->d_v);
        const double q_bytes = 4.0 * (double)(s->n_q * (s->d1 + s->d2));
        const double kv_bytes = 4.0 * (double)(TILE * (s->d1 + s->d2 + s->d_v));
        chk_time(t, list[i].label, (double)x.a.n_tile * kv_bytes, flops, call, &j);
        if (i) continue;
        j.dst = aligned_raw(t, x.v->q_bytes(&x.a.d));
        chk_time(t, "packing 64 q", q_bytes, 0, call_pack_q, &j);
        j.dst = aligned_raw(t, x.v->kv_bytes(&x.a.d));
        chk_time(t, "packing a tile", kv_bytes, 0, call_pack_kv, &j);
    }
}

/* Planted bugs. */
static void no_mask(const nb_attn_prefill_args *a)
{
    nb_attn_prefill_args b = *a;
    b.vis0 = b.last_tok;
    nb_attn_prefill_c(&b);
}
static void sees_padding(const nb_attn_prefill_args *a)
{
    nb_attn_prefill_args b = *a;
    if (a->vis0 >= a->last_tok) b.vis0 = b.last_tok = TILE;
    nb_attn_prefill_c(&b);
}
static void first_tile_only(const nb_attn_prefill_args *a)
{
    const void *tile[TILES];
    for (size_t j = 0; j < TILES; j++) tile[j] = a->tile[j + 1 < a->n_tile ? 0 : a->n_tile - 1];
    nb_attn_prefill_args b = *a;
    b.tile = tile;
    nb_attn_prefill_c(&b);
}
static void no_rescale(const nb_attn_prefill_args *a)
{
    for (size_t i = 0; i < a->n_q; i++) /* old states as if their maximum were the new one */
        if (a->m[i * a->ml_stride] != -INFINITY) a->m[i * a->ml_stride] += 1;
    nb_attn_prefill_c(a);
}
static void split_dependent(const nb_attn_prefill_args *a)
{
    nb_attn_prefill_c(a);
    if (a->n_q == 1) a->l[0] = nextafterf(a->l[0], 0);
}
static void weight_zero_not_skipped(const nb_attn_prefill_args *a)
{
    const size_t d = a->d.d1 + a->d.d2;
    const float *v = (const float *)a->tile[a->n_tile - 1] + TILE * d;
    nb_attn_prefill_c(a); /* adds 0 * v of the tokens that a query may not see */
    for (size_t i = 0; i < a->n_q; i++)
        for (size_t k = 0; k < a->last_tok; k++)
            for (size_t j = 0; j < a->d.d_v; j++)
                a->o[i * a->o_stride + j] += 0 * v[k * a->d.d_v + j];
}
static void shares_query(const nb_attn_prefill_args *a)
{
    nb_attn_prefill_args b = *a;
    nb_attn_prefill_c(a);
    if (a->n_q < 3) return;
    b.n_q = 1; /* the last query twice */
    b.vis0 += (a->n_q - 1) * a->vis_step;
    b.o += (a->n_q - 1) * a->o_stride;
    b.m += (a->n_q - 1) * a->ml_stride;
    b.l += (a->n_q - 1) * a->ml_stride;
    nb_attn_prefill_c(&b);
}

#define BUG(what, expect, fn)                                                                      \
    {                                                                                              \
        what, expect,                                                                              \
        {                                                                                          \
            "broken", "", NB_SPACE_HOST, 0, &(const nb_attn_prefill_variant)                       \
            {                                                                                      \
                "broken", NB_SPACE_HOST, 0, fn, nb_attn_prefill_pack_q_c,                          \
                    nb_attn_prefill_pack_kv_c, nb_attn_prefill_q_bytes_c,                          \
                    nb_attn_prefill_kv_bytes_c, nb_attn_prefill_scratch_c, 0                       \
            }                                                                                      \
        }                                                                                          \
    }
static const chk_broken broken[] = {
    BUG("mask ignored", "expected", no_mask),
    BUG("tokens after the last seen", "expected", sees_padding),
    BUG("one tile used for all", "expected", first_tile_only),
    BUG("old state not rescaled", "expected", no_rescale),
    BUG("result depends on the split", "other bits", split_dependent),
    BUG("unseen tokens enter with weight 0", "nan", weight_zero_not_skipped),
    BUG("a query computed with another's", "expected", shares_query),
    { 0 },
};

const chk_op chk_attn_prefill = { "attn_prefill", rows, test, bench, broken };
