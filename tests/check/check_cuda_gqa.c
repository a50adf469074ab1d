/* check_cuda_gqa.c - attention of grouped heads on a device, over pages that the host encoded in every
 * record, against sums in double over the values that the host decodes.
 *
 * A case is a step: chunks of several sequences with tails or own pages, one of them padding, a row of
 * padding.  Rows that are not written yet are NaN.  Then the promises: queries grouped otherwise,
 * a sequence alone, NaN in a later row or in another sequence change no bit. */
#include "check/check_cuda.h"
#include "kernel/cuda/api/nb_cuda_items.h"
#include "num/bf16.h"
#include "num/traits.h"

enum { MAX_CHUNK = 6, MAX_ROW = 384, N_BLOCK = 7, MAX_ITEM = 2048, LAYERS = 2, SAMPLE = 60 };

typedef struct shape {
    size_t dim, n_head, n_kv, max_page, n_chunk, max_tok;
    bool device; /* too slow for the emulation */
} shape;

static const shape shapes[] = {
    { 32, 4, 2, 9, 4, 3, false },    { 64, 3, 3, 3, 3, 5, false },   { 8, 2, 1, 17, 3, 2, false },
    { 128, 8, 2, 2, 3, 4, false },   { 40, 6, 1, 3, 3, 70, false },  { 256, 2, 1, 2, 2, 2, false },
    { 16, 20, 1, 2, 3, 4, false },   { 80, 5, 5, 2, 2, 2, false },   { 12, 4, 2, 3, 3, 3, false },
    { 128, 32, 8, 40, 5, 4, true },  { 64, 14, 2, 33, 5, 90, true }, { 128, 40, 1, 20, 4, 4, true },
    { 256, 16, 8, 20, 4, 20, true }, { 96, 32, 32, 20, 4, 3, true },
};

typedef struct kase {
    nb_record r;
    const shape *s;
    float scale;
    size_t n_chunk, n_row, n_value, n_block, rows_n, block_bytes, layer_off, q_stride;
    nb_cuda_chunk chunk[MAX_CHUNK]; /* pointers: of the host */
    uint32_t *block, row_chunk[MAX_ROW];
    unsigned char *pool;
    float *dec, *rows, *q; /* dec: [N_BLOCK][64][n_value] */
    size_t n_whole, head0; /* as in nb_cuda_gqa_args */
    float factor;          /* of keys and values */
} kase;

/* Beside plain records: a case of some shapes and types. */
enum { OUTLIERS = 1, FIXED = 2, LARGE = 3 };

static float value(chk *t)
{
    return (float)(chk_unit(t) + chk_unit(t) + chk_unit(t) - 1.5) * (chk_u64(t) % 50 ? 1.0f : 5.0f);
}

static bool make_record(chk *t, kase *k, nb_kv_type type, unsigned extra)
{
    static uint16_t places[2][4];
    const shape *s = k->s;
    nb_record_opts o = { .type = type, NB_SEGS_KV(s->dim, s->dim, s->n_kv) };
    if (nb_kv_traits[type]->modes) o.mode = (nb_kv_mode)chk_between(t, 0, 2);
    for (size_t i = 0; i < 2 && extra == OUTLIERS; i++) {
        places[i][0] = (uint16_t)chk_between(t, 0, s->dim * s->n_kv - 1);
        o.seg[i].outlier = places[i];
        o.seg[i].n_outlier = 1;
    }
    for (size_t i = 0; i < 2 && extra == FIXED; i++) o.seg[i].fixed_scale = 0.0123f;
    return nb_record_init(&k->r, &o, NULL) == NB_OK && chk_gpu_api(t)->can_cache(&k->r);
}

static void make_pages(chk *t, kase *k)
{
    const nb_record *r = &k->r;
    const size_t n = k->n_value, half = n / 2;
    k->layer_off = r->page_bytes + 128;
    k->block_bytes = k->layer_off + r->page_bytes + 256;
    k->pool = chk_raw(t, N_BLOCK * k->block_bytes);
    memset(k->pool, 0xff, N_BLOCK * k->block_bytes);
    k->dec = chk_raw(t, N_BLOCK * NB_PAGE_TOK * n * sizeof(float));
    float *x = chk_raw(t, NB_PAGE_TOK * n * sizeof *x);
    uint16_t *h = chk_raw(t, NB_PAGE_TOK * n * sizeof *h);
    for (size_t b = 0; b < N_BLOCK; b++) {
        unsigned char *page = k->pool + b * k->block_bytes + k->layer_off;
        for (size_t i = 0; i < NB_PAGE_TOK * n; i++) {
            x[i] = value(t) * k->factor;
            h[i] = nb_bf16_from_f32(x[i]);
        }
        if (r->type == NB_KV_F32)
            nb_record_store_f32(r, page, x, n);
        else if (nb_record_encode_page(r, page, h, n) != NB_OK)
            chk_fail(t, "the specification refuses finite values");
        float *dec = k->dec + b * NB_PAGE_TOK * n;
        nb_record_decode(r, page, 0, 0, NB_PAGE_TOK, dec, n);
        nb_record_decode(r, page, 1, 0, NB_PAGE_TOK, dec + half, n);
    }
}

static void make_chunks(chk *t, kase *k)
{
    const shape *s = k->s;
    const size_t nv = k->n_value, per_page = NB_PAGE_TOK * nv;
    k->n_chunk = s->n_chunk;
    k->rows_n = 0;
    for (size_t i = 0; i < k->n_chunk; i++) {
        const size_t page = i == 0 ? s->max_page : i == 1 ? 0 : chk_between(t, 0, s->max_page);
        const size_t n_tok = i == 0                         ? s->max_tok
                             : i == k->n_chunk - 1 && i > 1 ? 0
                                                            : chk_between(t, 1, s->max_tok);
        const size_t in = chk_between(t, 0, 63);
        k->chunk[i] = (nb_cuda_chunk){ .row0 = (uint32_t)k->n_row,
                                       .n_tok = (uint32_t)n_tok,
                                       .pos0 = (uint32_t)(page * NB_PAGE_TOK + in),
                                       .block0 = (uint32_t)k->n_block };
        for (size_t j = 0; j < n_tok; j++) k->row_chunk[k->n_row++] = (uint32_t)i;
        const size_t n_page = (in + n_tok + NB_PAGE_TOK - 1) / NB_PAGE_TOK;
        k->n_block += page + n_page;
        k->rows_n += n_page > 1 ? n_page : LAYERS;
    }
    k->row_chunk[k->n_row++] = UINT32_MAX;
    k->block = chk_raw(t, (k->n_block + 1) * sizeof *k->block);
    for (size_t i = 0; i < k->n_block; i++) k->block[i] = (uint32_t)chk_between(t, 0, N_BLOCK - 2);
    k->rows_n *= per_page;
    k->rows = chk_raw(t, k->rows_n * sizeof(float));
    for (size_t i = 0; i < k->rows_n; i++) k->rows[i] = NAN;
    float *at = k->rows;
    for (size_t i = 0; i < k->n_chunk; i++) {
        nb_cuda_chunk *c = &k->chunk[i];
        const size_t end = c->pos0 % NB_PAGE_TOK + c->n_tok;
        const size_t n_page = (end + NB_PAGE_TOK - 1) / NB_PAGE_TOK;
        float *first = n_page > 1 ? at : at + (LAYERS - 1) * per_page;
        if (n_page > 1)
            c->own = at;
        else
            c->tail = at;
        for (size_t j = 0; j < end * nv; j++)
            first[j] =
                k->factor * (k->r.type == NB_KV_F32 ? value(t) : nb_bf16_to_f32(nb_bf16_from_f32(value(t))));
        at += (n_page > 1 ? n_page : LAYERS) * per_page;
    }
}

static bool make_case(chk *t, kase *k, const shape *s, nb_kv_type type, unsigned extra)
{
    memset(k, 0, sizeof *k);
    k->s = s;
    k->factor = extra == LARGE ? 0x1p107f : 1;
    if (!make_record(t, k, type, extra)) return false;
    k->n_value = 2 * s->n_kv * s->dim;
    make_pages(t, k);
    make_chunks(t, k);
    k->q_stride = s->n_head * s->dim + chk_between(t, 0, 5);
    k->q = chk_raw(t, k->n_row * k->q_stride * sizeof *k->q);
    for (size_t i = 0; i < k->n_row * k->q_stride; i++) k->q[i] = value(t);
    k->scale = (float)((chk_u64(t) % 3 ? 1.0 : 3.0) / sqrt((double)s->dim)) / k->factor;
    return true;
}

/* ---- reference ---- */

static size_t position(const kase *k, size_t row)
{
    const nb_cuda_chunk *c = &k->chunk[k->row_chunk[row]];
    return c->pos0 + (row - c->row0);
}

/* Keys and values of the token at pos, as the query at row sees it. */
static const float *token(const kase *k, size_t row, size_t pos)
{
    const nb_cuda_chunk *c = &k->chunk[k->row_chunk[row]];
    const size_t page = pos / NB_PAGE_TOK, in = pos % NB_PAGE_TOK * k->n_value;
    const size_t per_page = NB_PAGE_TOK * k->n_value;
    if (page < position(k, row) / NB_PAGE_TOK)
        return k->dec + k->block[c->block0 + page] * per_page + in;
    if (!c->own) return c->tail + (LAYERS - 1) * per_page + in;
    return c->own + (page - c->pos0 / NB_PAGE_TOK) * per_page + in;
}

/* y [dim]; the bound of every element: attn_prefill.h with eps = 2^-16. */
static double reference(const kase *k, size_t row, size_t head, double *y, double *s)
{
    const size_t pos = position(k, row), dim = k->s->dim;
    const size_t kv = head / (k->s->n_head / k->s->n_kv) * dim;
    const float *q = k->q + row * k->q_stride + head * dim;
    double top = -INFINITY, sum = 0, a = 0, v_max = 0;
    for (size_t i = 0; i <= pos; i++) {
        const float *x = token(k, row, i) + kv;
        double abs = 0;
        s[i] = 0;
        for (size_t j = 0; j < dim; j++) {
            s[i] += (double)q[j] * (double)x[j] * (double)k->scale;
            abs += fabs((double)q[j] * (double)x[j] * (double)k->scale);
        }
        top = fmax(top, s[i]);
        a = fmax(a, abs);
    }
    for (size_t j = 0; j < dim; j++) y[j] = 0;
    for (size_t i = 0; i <= pos; i++) {
        const float *x = token(k, row, i) + k->n_value / 2 + kv;
        const double p = exp(s[i] - top);
        sum += p;
        for (size_t j = 0; j < dim; j++) {
            y[j] += p * (double)x[j];
            v_max = fmax(v_max, fabs((double)x[j]));
        }
    }
    for (size_t j = 0; j < dim; j++) y[j] /= sum;
    const double eps = 0x1p-16, tiles = (double)(pos / NB_PAGE_TOK + 2);
    return ((96 + 14 * tiles + ((double)dim / 4 + 46) * a) * 0x1p-24 +
            expm1(4 * eps * a * (1 + eps)) + 3 * eps) *
           v_max;
}

/* ---- a run ---- */

static size_t make_groups(chk *t, const kase *k, bool random, uint32_t only, nb_cuda_group *g)
{
    size_t n = 0;
    for (uint32_t i = 0; i < k->n_chunk; i++) {
        const nb_cuda_chunk *c = &k->chunk[i];
        if (only != UINT32_MAX && only != i) continue;
        for (uint32_t done = 0; done < c->n_tok;) {
            const uint32_t pos = c->pos0 + done, room = NB_PAGE_TOK - pos % NB_PAGE_TOK;
            uint32_t nq = random ? (uint32_t)chk_between(t, 1, NB_CUDA_QUERY_MAX) : 1;
            if (nq > room) nq = room;
            if (nq > c->n_tok - done) nq = c->n_tok - done;
            g[n++] = (nb_cuda_group){ i, c->row0 + done, nq, pos / NB_PAGE_TOK };
            done += nq;
        }
    }
    return n;
}

static nb_cuda_rows run(chk *t, const kase *k, bool random, uint32_t only)
{
    static nb_cuda_item item[MAX_ITEM];
    const shape *s = k->s;
    nb_cuda_group group[MAX_ROW];
    uint32_t part_first[MAX_ROW + 1] = { 0 }, row_chunk[MAX_ROW];
    for (size_t i = 0; i < k->n_row; i++) {
        row_chunk[i] = only == UINT32_MAX || k->row_chunk[i] == only ? k->row_chunk[i] : UINT32_MAX;
        size_t n = 0;
        if (row_chunk[i] != UINT32_MAX)
            n = nb_cuda_n_unit(NB_CUDA_GQA_UNITS, position(k, i) / NB_PAGE_TOK) + 1;
        part_first[i + 1] = part_first[i] + (uint32_t)n;
    }
    const size_t n_state = part_first[k->n_row] * s->n_head;
    const uint32_t n_item = (uint32_t)nb_cuda_items(group, make_groups(t, k, random, only, group),
                                                    NB_CUDA_GQA_UNITS, 1, 1, false, part_first, item);
    nb_cuda_chunk chunk[MAX_CHUNK];
    float *rows = chk_gpu_in(t, k->rows, k->rows_n * sizeof(float));
    for (size_t i = 0; i < k->n_chunk; i++) {
        chunk[i] = k->chunk[i];
        if (chunk[i].own) chunk[i].own = rows + (k->chunk[i].own - k->rows);
        if (chunk[i].tail) chunk[i].tail = rows + (k->chunk[i].tail - k->rows);
    }
    nb_cuda_gqa_args a = {
        .cache = { .pool = chk_gpu_in(t, k->pool, N_BLOCK * k->block_bytes),
                   .block_bytes = k->block_bytes,
                   .layer_off = k->layer_off,
                   .tail_off = (LAYERS - 1) * NB_PAGE_TOK * k->n_value,
                   .block = chk_gpu_in(t, k->block, (k->n_block + 1) * sizeof *k->block),
                   .chunk = chk_gpu_in(t, chunk, k->n_chunk * sizeof *chunk),
                   .n_chunk = k->n_chunk,
                   .record = k->r },
        .q = chk_gpu_in(t, k->q, k->n_row * k->q_stride * sizeof(float)),
        .y = chk_gpu_out_rows(t, k->n_row, (s->n_head * s->dim + 15) / 8 * 8, 2),
        .part_o = chk_gpu_out(t, n_state * s->dim * sizeof(float)),
        .part_m = chk_gpu_out(t, n_state * sizeof(float)),
        .part_l = chk_gpu_out(t, n_state * sizeof(float)),
        .part_first = chk_gpu_in(t, part_first, (k->n_row + 1) * sizeof *part_first),
        .row_chunk = chk_gpu_in(t, row_chunk, k->n_row * sizeof *row_chunk),
        .item = chk_gpu_in(t, item, (n_item + 1) * sizeof *item),
        .n_item = chk_gpu_in(t, &n_item, sizeof n_item),
        .n_row = k->n_row,
        .n_head = s->n_head,
        .n_kv_head = s->n_kv,
        .n_whole = k->n_whole,
        .head0 = k->head0,
        .head_dim = s->dim,
        .q_stride = k->q_stride,
        .max_item = n_item + (random ? chk_between(t, 0, 9) : 0),
        .scale = k->scale,
    };
    chk_gpu_call(t, chk_gpu_api(t)->gqa(chk_gpu(t), &a));
    return chk_gpu_get_rows(t, &a.y, k->n_row);
}

/* ---- what is compared ---- */

static void compare(chk *t, const kase *k, const nb_cuda_rows *y)
{
    const size_t dim = k->s->dim, some = k->n_row * k->s->n_head / SAMPLE + 1;
    double *want = chk_f64(t, dim), *bound = chk_f64(t, dim);
    double *s = chk_f64(t, (k->s->max_page + 4) * NB_PAGE_TOK + k->s->max_tok);
    chk_gpu_parts(t, y, k->n_row, k->s->n_head * dim);
    for (size_t row = 0; row < k->n_row; row++)
        for (size_t h = 0; h < k->s->n_head && k->row_chunk[row] != UINT32_MAX; h++) {
            if (chk_u64(t) % some != 0) continue;
            const double b = reference(k, row, h, want, s);
            for (size_t j = 0; j < dim; j++) bound[j] = b;
            chk_close(t, y->f + row * y->stride + h * dim, 1, dim, dim, want, bound);
        }
}

/* The same bits in the rows [r0, r1). */
static void same(chk *t, const char *why, const kase *k, const nb_cuda_rows *a,
                 const nb_cuda_rows *b, size_t r0, size_t r1)
{
    chk_same(t, why, a->f + r0 * a->stride, a->stride, b->f + r0 * b->stride, b->stride, r1 - r0,
             k->s->n_head * k->s->dim);
}

/* A part of the heads alone, as on one of several devices: their bits.  Whole groups, or some heads of one. */
static void check_part(chk *t, const kase *k, const nb_cuda_rows *y)
{
    const shape *s = k->s;
    const size_t group = s->n_head / s->n_kv, dim = s->dim;
    shape some = *s;
    kase part = *k;
    if (s->n_head < 2) return;
    if (chk_u64(t) % 2 && group > 1) {
        some.n_head = chk_between(t, 1, group - 1);
        part.head0 = chk_between(t, 0, s->n_kv - 1) * group + chk_between(t, 0, group - some.n_head);
    } else {
        some.n_head = chk_between(t, 1, s->n_kv) * group;
        part.head0 = chk_between(t, 0, (s->n_head - some.n_head) / group) * group;
    }
    part.n_whole = s->n_head;
    part.s = &some;
    part.q = chk_raw(t, k->n_row * k->q_stride * sizeof *part.q);
    memset(part.q, 0xff, k->n_row * k->q_stride * sizeof *part.q);
    for (size_t i = 0; i < k->n_row; i++)
        memcpy(part.q + i * k->q_stride, k->q + i * k->q_stride + part.head0 * dim,
               some.n_head * dim * sizeof *part.q);
    const nb_cuda_rows z = run(t, &part, true, UINT32_MAX);
    for (size_t i = 0; i < k->n_row; i++)
        if (k->row_chunk[i] != UINT32_MAX)
            chk_same(t, "a part of the heads", y->f + i * y->stride + part.head0 * dim, 0, z.f + i * z.stride, 0,
                     1, some.n_head * dim);
}

static void check_nan(chk *t, const kase *k, const nb_cuda_rows *y)
{
    kase bad = *k;
    const nb_cuda_chunk *c = &k->chunk[0];
    const size_t row = c->row0 + c->n_tok - 1;
    const size_t n = k->n_row * k->q_stride, r1 = c->row0 + c->n_tok;
    float *x = k->rows + (token(k, row, position(k, row)) - k->rows); /* its own row */
    const float old = x[k->n_value - 1];
    x[k->n_value - 1] = NAN;
    const nb_cuda_rows z = run(t, k, true, UINT32_MAX);
    x[k->n_value - 1] = old;
    same(t, "NaN in a later row", k, y, &z, 0, row);
    same(t, "NaN in another sequence", k, y, &z, r1, k->n_row - 1);
    if (!isnan(z.f[row * z.stride + k->s->n_head * k->s->dim - 1])) chk_fail(t, "a NaN is lost");
    bad.q = chk_raw(t, n * sizeof *bad.q);
    memcpy(bad.q, k->q, n * sizeof *bad.q);
    bad.q[row * k->q_stride] = NAN;
    const nb_cuda_rows w = run(t, &bad, true, UINT32_MAX);
    same(t, "NaN in a query", k, y, &w, 0, row);
    same(t, "NaN in a query of another sequence", k, y, &w, r1, k->n_row - 1);
    if (!isnan(w.f[row * w.stride])) chk_fail(t, "a NaN in a query is lost");
}

static void one_case(chk *t, const kase *k)
{
    const nb_cuda_rows y = run(t, k, false, UINT32_MAX), z = run(t, k, true, UINT32_MAX);
    compare(t, k, &y);
    same(t, "queries grouped", k, &y, &z, 0, k->n_row - 1);
    const nb_cuda_rows w = run(t, k, false, 0);
    same(t, "alone", k, &y, &w, 0, k->chunk[0].n_tok);
    check_part(t, k, &y);
    check_nan(t, k, &y);
}

static void test(chk *t, const chk_row *row)
{
    const bool emulated = chk_gpu_info(t)->emulated;
    (void)row;
    for (size_t i = 0; i < NB_COUNT(shapes); i++)
        for (nb_kv_type type = 0; type < NB_KV_TYPE_COUNT; type++)
            for (unsigned extra = 0; extra <= LARGE; extra++) {
                kase k;
                const bool large = type == NB_KV_IF4 && (shapes[i].dim == 64 || shapes[i].dim == 128);
                if (emulated && shapes[i].device) continue;
                if (extra == LARGE && !large) continue;
                if (extra != LARGE && extra != (i + type) % 3 && (emulated || shapes[i].device)) continue;
                if (extra != LARGE && emulated && (i + type) % 2) continue;
                if (chk_case(t, "dim %zu, %zu heads of %zu, to %zu pages, %s%s", shapes[i].dim,
                             shapes[i].n_head, shapes[i].n_kv, shapes[i].max_page,
                             nb_kv_type_name(type),
                             (const char *[]){ "", ", outliers", ", fixed", ", large" }[extra]) &&
                    make_case(t, &k, &shapes[i], type, extra))
                    one_case(t, &k);
            }
}

/* ---- times ---- */

static void bench_gqa(void *ctx)
{
    void **x = ctx;
    ((const nb_cuda_api *)x[0])->gqa(x[1], x[2]);
}

/* One token each for n_seq sequences of n_page pages, pages shared by nobody. */
static void bench_case(chk *t, nb_kv_type type, size_t n_seq, size_t n_page)
{
    enum { DIM = 128, HEADS = 32, KV = 8, SEQ = 64 };
    static nb_cuda_item item[SEQ * 64];
    static const shape s = { DIM, HEADS, KV, 0, 0, 0, false };
    kase k = { .s = &s };
    if (!make_record(t, &k, type, 0)) return;
    k.n_value = 2 * DIM * KV;
    make_pages(t, &k);
    nb_cuda_chunk chunk[SEQ];
    nb_cuda_group group[SEQ];
    uint32_t part_first[SEQ + 1] = { 0 }, row_chunk[SEQ];
    const size_t n_block = n_seq * n_page, page = k.block_bytes - k.layer_off;
    unsigned char *pool = chk_raw(t, n_block * page);
    uint32_t *block = chk_raw(t, n_block * sizeof *block);
    for (size_t i = 0; i < n_block; i++) {
        block[i] = (uint32_t)(i * 7919 % n_block);
        memcpy(pool + i * page, k.pool + i % (N_BLOCK - 1) * k.block_bytes + k.layer_off, page);
    }
    const size_t n_tail = NB_PAGE_TOK * k.n_value * sizeof(float);
    float *tail = chk_raw(t, n_tail);
    memset(tail, 0, n_tail);
    for (uint32_t i = 0; i < n_seq; i++) {
        chunk[i] = (nb_cuda_chunk){ .tail = chk_gpu_in(t, tail, i < 8 ? n_tail : 0),
                                    .row0 = i,
                                    .n_tok = 1,
                                    .pos0 = (uint32_t)(n_page * NB_PAGE_TOK + 31),
                                    .block0 = (uint32_t)(i * n_page) };
        if (i >= 8) chunk[i].tail = chunk[i % 8].tail;
        group[i] = (nb_cuda_group){ i, i, 1, (uint32_t)n_page };
        row_chunk[i] = i;
        part_first[i + 1] = part_first[i] + (uint32_t)nb_cuda_n_unit(NB_CUDA_GQA_UNITS, n_page) + 1;
    }
    const uint32_t n_item =
        (uint32_t)nb_cuda_items(group, n_seq, NB_CUDA_GQA_UNITS, 1, 1, false, part_first, item);
    const size_t n_state = part_first[n_seq] * (size_t)HEADS, n_q = n_seq * HEADS * DIM;
    float *q = chk_raw(t, n_q * sizeof *q);
    chk_fill(t, q, n_q, CHK_NORMAL);
    nb_cuda_gqa_args a = {
        .cache = { .pool = chk_gpu_in(t, pool, n_block * page),
                   .block_bytes = page,
                   .block = chk_gpu_in(t, block, n_block * sizeof *block),
                   .chunk = chk_gpu_in(t, chunk, n_seq * sizeof *chunk),
                   .n_chunk = n_seq,
                   .record = k.r },
        .q = chk_gpu_in(t, q, n_q * sizeof *q),
        .y = chk_gpu_out_rows(t, n_seq, HEADS * DIM, 2),
        .part_o = chk_gpu_out(t, n_state * DIM * sizeof(float)),
        .part_m = chk_gpu_out(t, n_state * sizeof(float)),
        .part_l = chk_gpu_out(t, n_state * sizeof(float)),
        .part_first = chk_gpu_in(t, part_first, (n_seq + 1) * sizeof *part_first),
        .row_chunk = chk_gpu_in(t, row_chunk, n_seq * sizeof *row_chunk),
        .item = chk_gpu_in(t, item, n_item * sizeof *item),
        .n_item = chk_gpu_in(t, &n_item, sizeof n_item),
        .n_row = n_seq,
        .n_head = HEADS,
        .n_kv_head = KV,
        .head_dim = DIM,
        .q_stride = HEADS * DIM,
        .max_item = n_item,
        .scale = 0.1f,
    };
    char label[64];
    snprintf(label, sizeof label, "%s %zu of %zu tokens", nb_kv_type_name(type), n_seq,
             n_page * NB_PAGE_TOK);
    const nb_cuda_api *api = chk_gpu_api(t);
    void *x[3] = { NULL, chk_gpu(t), &a };
    memcpy(x, &api, sizeof api);
    chk_gpu_time(t, label, (double)(n_block * k.r.page_bytes), 0, bench_gqa, x);
}

static void bench(chk *t, const chk_row *row)
{
    static const nb_kv_type types[] = { NB_KV_BF16, NB_KV_FP8, NB_KV_NVFP4, NB_KV_IF4,
                                        NB_KV_MXFP4 };
    static const size_t seqs[][2] = { { 64, 32 }, { 16, 128 }, { 1, 512 } };
    (void)row;
    for (size_t i = 0; i < NB_COUNT(types) && !chk_gpu_info(t)->emulated; i++)
        for (size_t j = 0; j < NB_COUNT(seqs); j++)
            if (chk_case(t, "%s %zu", nb_kv_type_name(types[i]), j))
                bench_case(t, types[i], seqs[j][0], seqs[j][1]);
}

const chk_op chk_cuda_gqa = { "cuda_gqa", chk_gpu_row, test, bench, NULL };
