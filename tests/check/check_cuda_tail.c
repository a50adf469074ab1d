/* check_cuda_tail.c - mla_tail alone, each of its forms: the state of the page that a query is in, against sums
 * in double, for 1 to 64 visible tokens, 1 to 4 queries and more of a chunk, tails and own pages.
 *
 * Then the promises: alone, with fewer heads, beside, and with NaN in another query a head's state keeps its
 * bits, in the form for many heads however many share a block; states of other units are not touched; and what
 * the rule chooses is one of the forms, for any number of rows the same. */
#include "check/check_cuda.h"
#include "num/bf16.h"

enum { MAX_CHUNK = 20, MAX_ROW = 96, LAYERS = 2, SAMPLE = 150 };

typedef struct form {
    nb_cuda_tail tail;
    nb_kv_type type;
} form;

/* n_tok queries a chunk, the first of them with `in` tokens before it in its page. */
typedef struct shape {
    size_t d1, d2, n_head, n_chunk, n_tok, in0, step;
    bool device; /* too slow for the emulation */
} shape;

static const shape shapes[] = {
    { 32, 8, 16, 16, 4, 0, 4, false },    { 32, 8, 128, 3, 2, 0, 21, false },
    { 16, 4, 8, 4, 1, 0, 21, false },     { 40, 8, 17, 3, 2, 14, 16, false },
    { 31, 17, 24, 3, 3, 30, 1, false },   { 16, 16, 32, 5, 1, 15, 16, false },
    { 64, 16, 33, 1, 70, 5, 40, false },  { 24, 6, 40, 4, 3, 31, 0, false },
    { 256, 32, 48, 3, 2, 46, 7, false },  { 8, 2, 63, 3, 4, 60, 1, false },
    { 48, 16, 65, 2, 3, 31, 31, false },  { 96, 64, 100, 2, 1, 63, 1, false },
    { 512, 64, 16, 3, 3, 0, 31, false },  { 512, 64, 64, 5, 1, 0, 21, false },
    { 512, 64, 20, 2, 2, 15, 47, false }, { 512, 64, 128, 4, 1, 31, 11, false },
    { 512, 64, 128, 1, 2, 62, 0, false }, { 512, 64, 8, 16, 4, 0, 4, true },
    { 512, 64, 32, 16, 4, 0, 4, true },   { 512, 64, 64, 16, 4, 0, 4, true },
    { 512, 64, 128, 16, 4, 0, 4, true },  { 512, 64, 96, 1, 70, 3, 0, true },
    { 512, 64, 1, 16, 4, 0, 4, true },
};

typedef struct kase {
    const shape *s;
    nb_record r;
    size_t n_value, n_row, n_chunk, q_head, q_stride, rows_n;
    nb_cuda_chunk chunk[MAX_CHUNK]; /* pointers: of the host */
    uint32_t row_chunk[MAX_ROW];
    float *rows, *q; /* of all chunks; [n_row][q_stride] */
    float scale;
} kase;

static float normal(chk *t)
{
    double s = 0;
    for (int i = 0; i < 4; i++) s += chk_unit(t) * 2 - 1;
    return (float)(s * 0.9);
}

/* Rows of a chunk's pages; those that no query sees are NaN. */
static void make_rows(chk *t, const kase *k, float *x, size_t old, size_t end, size_t n_page)
{
    for (size_t j = 0; j < n_page * NB_PAGE_TOK; j++)
        for (size_t v = 0; v < k->n_value; v++) {
            const bool there = j >= old * NB_PAGE_TOK && j - old * NB_PAGE_TOK < end;
            const float f = (v % 61 == 7 ? 6.0f : 1.0f) * (there ? normal(t) : NAN);
            const float b = nb_bf16_to_f32(nb_bf16_from_f32(f));
            x[j * k->n_value + v] = k->r.type == NB_KV_F32 || !there ? f : b;
        }
}

static void make_case(chk *t, kase *k, const shape *s, nb_kv_type type)
{
    memset(k, 0, sizeof *k);
    nb_record_opts o = { .type = type, .rope = NB_ROPE_INT8, NB_SEGS_MLA(s->d1, s->d2) };
    if (nb_record_init(&k->r, &o, NULL) != NB_OK) chk_fail(t, "no record");
    k->s = s;
    k->n_value = s->d1 + s->d2;
    k->n_chunk = s->n_chunk;
    const size_t per_page = NB_PAGE_TOK * k->n_value;
    size_t n_page[MAX_CHUNK], n = 0;
    for (size_t i = 0; i < s->n_chunk; i++) {
        const size_t in = (s->in0 + i * s->step) % NB_PAGE_TOK;
        n_page[i] = (in + s->n_tok + NB_PAGE_TOK - 1) / NB_PAGE_TOK;
        k->chunk[i] =
            (nb_cuda_chunk){ .row0 = (uint32_t)k->n_row,
                             .n_tok = (uint32_t)s->n_tok,
                             .pos0 = (uint32_t)(chk_between(t, 0, 9) * NB_PAGE_TOK + in) };
        for (size_t j = 0; j < s->n_tok && k->n_row < MAX_ROW - 2; j++)
            k->row_chunk[k->n_row++] = (uint32_t)i;
        n += n_page[i] > 1 ? n_page[i] : LAYERS;
        if (i == 0) k->row_chunk[k->n_row++] = UINT32_MAX; /* padding */
    }
    k->rows_n = n * per_page;
    float *at = k->rows = chk_raw(t, k->rows_n * sizeof(float));
    for (size_t i = 0; i < s->n_chunk; i++) {
        nb_cuda_chunk *c = &k->chunk[i];
        const bool own = n_page[i] > 1;
        if (own)
            c->own = at;
        else
            c->tail = at;
        make_rows(t, k, at, own ? 0 : LAYERS - 1, c->pos0 % NB_PAGE_TOK + c->n_tok,
                  own ? n_page[i] : LAYERS);
        at += (own ? n_page[i] : LAYERS) * per_page;
    }
    k->q_head = k->n_value + (chk_u64(t) % 2 ? k->n_value % 2 : 5);
    k->q_stride = s->n_head * k->q_head + chk_between(t, 0, 2);
    if (s->d1 == 512) k->q_head = k->n_value, k->q_stride = s->n_head * k->q_head;
    k->q = chk_raw(t, k->n_row * k->q_stride * sizeof *k->q);
    for (size_t i = 0; i < k->n_row * k->q_stride; i++) k->q[i] = normal(t);
    k->scale = (float)((chk_u64(t) % 4 ? 1.0 : 4.0) / sqrt((double)k->n_value));
}

/* ---- a run ---- */

typedef struct state {
    float *o, *m, *l; /* [n_row][2][n_head], the first of each pair untouched */
} state;

/* Of the first n_head heads of the first n_row rows. */
static state run(chk *t, const kase *k, nb_cuda_tail tail, size_t n_row, size_t n_head, bool beside)
{
    nb_cuda_chunk chunk[MAX_CHUNK];
    uint32_t first[MAX_ROW + 1];
    const size_t n = 2 * n_row * n_head, n_o = n * k->s->d1;
    float *rows = chk_gpu_in(t, k->rows, k->rows_n * sizeof(float));
    for (size_t i = 0; i < k->n_chunk; i++) {
        chunk[i] = k->chunk[i];
        if (chunk[i].own) chunk[i].own = rows + (k->chunk[i].own - k->rows);
        if (chunk[i].tail) chunk[i].tail = rows + (k->chunk[i].tail - k->rows);
    }
    for (size_t i = 0; i <= n_row; i++) first[i] = (uint32_t)(2 * i);
    const nb_cuda_mla_args a = {
        .cache = { .tail_off = (LAYERS - 1) * NB_PAGE_TOK * k->n_value,
                   .chunk = chk_gpu_in(t, chunk, k->n_chunk * sizeof *chunk),
                   .n_chunk = k->n_chunk,
                   .record = k->r },
        .q = chk_gpu_in(t, k->q, k->n_row * k->q_stride * sizeof(float)),
        .part_o = chk_gpu_out(t, n_o * sizeof(float)),
        .part_m = chk_gpu_out(t, n * sizeof(float)),
        .part_l = chk_gpu_out(t, n * sizeof(float)),
        .part_first = chk_gpu_in(t, first, (n_row + 1) * sizeof *first),
        .row_chunk = chk_gpu_in(t, k->row_chunk, n_row * sizeof *k->row_chunk),
        .n_row = n_row,
        .n_head = n_head,
        .lora = k->s->d1,
        .d_rope = k->s->d2,
        .q_stride = k->q_stride,
        .q_head = k->q_head,
        .scale = k->scale,
        .beside = beside,
        .tail = tail,
    };
    chk_gpu_call(t, chk_gpu_api(t)->mla_tail(chk_gpu(t), &a));
    state y = { chk_raw(t, n_o * 4), chk_raw(t, n * 4), chk_raw(t, n * 4) };
    chk_gpu_get(t, y.o, a.part_o, n_o * sizeof(float));
    chk_gpu_get(t, y.m, a.part_m, n * sizeof(float));
    chk_gpu_get(t, y.l, a.part_l, n * sizeof(float));
    return y;
}

/* ---- what is compared ---- */

static const float *own_page(const kase *k, size_t row, size_t *n_vis)
{
    const nb_cuda_chunk *c = &k->chunk[k->row_chunk[row]];
    const size_t pos = c->pos0 + (row - c->row0), per_page = NB_PAGE_TOK * k->n_value;
    *n_vis = pos % NB_PAGE_TOK + 1;
    if (!c->own) return c->tail + (LAYERS - 1) * per_page;
    return c->own + (pos / NB_PAGE_TOK - c->pos0 / NB_PAGE_TOK) * per_page;
}

/* o / l in the norm, l and m each by itself; a product is off by 2^-16 of it, m by what that makes of the
 * scores, and whatever a score is off by the weights are. */
static void compare_one(chk *t, const kase *k, state y, size_t row, size_t head)
{
    const size_t at = (2 * row + 1) * k->s->n_head + head, d1 = k->s->d1;
    const float *q = k->q + row * k->q_stride + head * k->q_head;
    double s[NB_PAGE_TOK], top = -INFINITY, off = 0, sum = 0, err = 0, norm = 0;
    size_t n_vis;
    const float *x = own_page(k, row, &n_vis);
    for (size_t i = 0; i < n_vis; i++) {
        double squares = 0;
        s[i] = 0;
        for (size_t v = 0; v < k->n_value; v++) {
            const double p = (double)q[v] * (double)x[i * k->n_value + v];
            s[i] += p;
            squares += p * p;
        }
        s[i] *= (double)k->scale * 1.4426950408889634;
        off = fmax(off, sqrt(squares) * (double)k->scale * 0x1p-16);
        top = fmax(top, s[i]);
    }
    for (size_t i = 0; i < n_vis; i++) sum += exp2(s[i] - top);
    for (size_t j = 0; j < d1; j++) {
        double want = 0;
        for (size_t i = 0; i < n_vis; i++) want += exp2(s[i] - top) * (double)x[i * k->n_value + j];
        const double e = (double)y.o[at * d1 + j] / (double)y.l[at] - want / sum;
        err += e * e;
        norm += want / sum * want / sum;
    }
    const double bound = 2e-5 + 2 * off;
    const double part =
        fmax(sqrt(err / norm), fmax(fabs((double)y.m[at] - top), fabs((double)y.l[at] / sum - 1))) /
        bound;
    chk_worst(t, part);
    if (!(part <= 1))
        chk_fail(t, "row %zu head %zu, %zu tokens: off by %.3g of the bound %.3g (m %g, not %g)",
                 row, head, n_vis, part, bound, (double)y.m[at], top);
}

static void compare(chk *t, const kase *k, state y)
{
    const size_t nh = k->s->n_head, some = k->n_row * nh / SAMPLE + 1;
    for (size_t row = 0; row < k->n_row; row++)
        for (size_t h = 0; h < nh; h++) {
            const uint32_t canary = 0x7fa5a5a5;
            const bool there = k->row_chunk[row] != UINT32_MAX;
            for (size_t part = 0; part < (there ? 1 : 2); part++) {
                const size_t at = (2 * row + part) * nh + h;
                if (memcmp(&y.m[at], &canary, 4) || memcmp(&y.l[at], &canary, 4) ||
                    memcmp(&y.o[at * k->s->d1], &canary, 4))
                    chk_fail(t, "row %zu head %zu: another state was written", row, h);
            }
            if (there && chk_u64(t) % some == 0) compare_one(t, k, y, row, h);
        }
}

/* The same bits in the first n_row rows and nb heads; b has nb heads.  All but (not_row, not_head). */
static void same(chk *t, const char *why, const kase *k, state a, state b, size_t n_row, size_t nb,
                 size_t not_row, size_t not_head)
{
    const size_t nh = k->s->n_head, d1 = k->s->d1;
    for (size_t row = 0; row < n_row; row++)
        for (size_t h = 0; h < nb; h++) {
            const size_t x = (2 * row + 1) * nh + h, y = (2 * row + 1) * nb + h;
            if (row == not_row && h == not_head) continue;
            if (memcmp(&a.m[x], &b.m[y], 4) || memcmp(&a.l[x], &b.l[y], 4) ||
                memcmp(a.o + x * d1, b.o + y * d1, d1 * 4)) {
                chk_fail(t, "%s: other bits in row %zu head %zu", why, row, h);
                return;
            }
        }
}

static bool equal(const kase *k, state a, state b)
{
    const size_t n = 2 * k->n_row * k->s->n_head;
    return !memcmp(a.m, b.m, n * 4) && !memcmp(a.l, b.l, n * 4) &&
           !memcmp(a.o, b.o, n * k->s->d1 * 4);
}

static void check_nan(chk *t, const kase *k, nb_cuda_tail tail, state y)
{
    kase bad = *k;
    const size_t n = k->n_row * k->q_stride, d1 = k->s->d1, nh = k->s->n_head;
    const size_t row = k->chunk[k->n_chunk - 1].row0, head = chk_between(t, 0, nh - 1);
    bad.q = chk_raw(t, n * sizeof *bad.q);
    memcpy(bad.q, k->q, n * sizeof *bad.q);
    bad.q[row * k->q_stride + head * k->q_head + chk_between(t, 0, k->n_value - 1)] = NAN;
    const state z = run(t, &bad, tail, k->n_row, nh, false);
    same(t, "NaN in another query", k, y, z, k->n_row, nh, row, head);
    const size_t at = (2 * row + 1) * nh + head;
    for (size_t j = 0; j < d1; j++)
        if (!isnan(z.o[at * d1 + j]) || !isnan(z.l[at]) || z.m[at] == -INFINITY) {
            chk_fail(t, "a NaN in a query is lost");
            return;
        }
}

static void one_case(chk *t, const kase *k, nb_cuda_tail tail)
{
    const size_t nh = k->s->n_head, n_row = k->n_row, few = k->chunk[0].n_tok;
    const state y = run(t, k, tail, n_row, nh, true);
    compare(t, k, y);
    same(t, "the first chunk alone", k, y, run(t, k, tail, few, nh, false), few, nh, SIZE_MAX, 0);
    const size_t less = chk_between(t, 1, nh);
    same(t, "fewer heads", k, y, run(t, k, tail, n_row, less, false), n_row, less, SIZE_MAX, 0);
    check_nan(t, k, tail, y);
    if (tail != NB_CUDA_TAIL_MANY) return;
    const state rule = run(t, k, NB_CUDA_TAIL_RULE, n_row, nh, false);
    const state other = run(t, k, NB_CUDA_TAIL_FEW, n_row, nh, false);
    if (!equal(k, rule, y) && !equal(k, rule, other)) chk_fail(t, "the rule is a third form");
    same(t, "the rule for one row", k, rule, run(t, k, NB_CUDA_TAIL_RULE, 1, nh, false), 1, nh,
         SIZE_MAX, 0);
}

static size_t rows(chk_row *out, size_t max)
{
    static const form forms[] = {
        { NB_CUDA_TAIL_FEW, NB_KV_BF16 },   { NB_CUDA_TAIL_FEW, NB_KV_F32 },
        { NB_CUDA_TAIL_MANY, NB_KV_BF16 },  { NB_CUDA_TAIL_MANY, NB_KV_F32 },
        { NB_CUDA_TAIL_MANY, NB_KV_NVFP4 },
    };
    size_t n = 0;
    for (; n < NB_COUNT(forms) && n < max; n++)
        out[n] = (chk_row){ forms[n].tail == NB_CUDA_TAIL_FEW ? "few" : "many",
                            nb_kv_type_name(forms[n].type), NB_SPACE_CUDA, 0, &forms[n] };
    return n;
}

static void test(chk *t, const chk_row *row)
{
    const form *f = row->row;
    for (size_t i = 0; i < NB_COUNT(shapes); i++) {
        const shape *s = &shapes[i];
        const bool large = s->d1 * s->n_head > 8192, main = f->type == NB_KV_BF16;
        if (chk_gpu_info(t)->emulated && (s->device || (!main && (large || i % 3 == 1)))) continue;
        if (chk_case(t, "shape %zu: %zu+%zu, %zu heads, %zu chunks of %zu", i, s->d1, s->d2,
                     s->n_head, s->n_chunk, s->n_tok)) {
            kase k;
            make_case(t, &k, s, f->type);
            one_case(t, &k, f->tail);
        }
    }
}

const chk_op chk_cuda_mla_tail = { "cuda_mla_tail", rows, test, NULL, NULL };
