/* check_cuda_sparse.c - sparse attention on a device: every row of the scores' table, against sums in double over the
 * keys that the host decodes, and pages made of chosen tokens, byte for byte.
 *
 * A case is a step: a long sequence, one with several rows over a page's end, one that sees all its tokens, padding. */
#include "check/check_cuda.h"
#include "num/bf16.h"

enum { N_BLOCK = 5, N_CHUNK = 4, MAX_ROW = 24, MAX_PAGE = 300, SEG = 2 };

typedef struct shape {
    size_t lora, rope, dim, n_head, k, n_page; /* n_page: complete pages of the long sequence */
    bool device;                               /* too slow for the emulation */
    size_t ratio;                              /* scores of compressed rows, k of them; 0: of tokens */
} shape;

static const shape shapes[] = {
    { 32, 8, 32, 3, 20, 2, false, 0 },
    { 64, 16, 64, 12, 70, 4, false, 0 },
    { 96, 16, 64, 17, 130, 6, false, 0 },
    { 32, 16, 128, 5, 64, 5, false, 0 },
    { 32, 8, 128, 64, 100, 3, false, 0 },
    { 24, 8, 40, 2, 200, 5, false, 0 },
    { 512, 64, 128, 8, 129, 4, false, 0 },
    { 512, 64, 128, 64, 2048, 40, true, 0 },
    { 512, 64, 128, 32, 2048, 131, true, 0 },
    { 512, 64, 128, 40, 512, 64, true, 0 },
    { 128, 64, 64, 64, 300, 200, true, 0 },
};

static const shape compressed[] = {
    { 32, 8, 32, 3, 20, 4, false, 4 },   { 64, 16, 64, 12, 30, 7, false, 4 },    { 96, 16, 128, 17, 50, 9, false, 4 },
    { 32, 16, 128, 5, 33, 4, false, 2 }, { 448, 64, 128, 64, 512, 150, true, 4 },
};

typedef struct kase {
    const shape *s;
    nb_record r;
    unsigned char *pool;
    size_t block_bytes, layer_off, n_row, n_block, stride;
    float *rows; /* [N_CHUNK][2][64][n_values] */
    float *dec;  /* [N_BLOCK][64][n_values] */
    float *q, *w;
    nb_cuda_chunk chunk[N_CHUNK];
    uint32_t block[N_CHUNK * MAX_PAGE], row_chunk[MAX_ROW];
} kase;

static float normal(chk *t)
{
    double s = 0;
    for (int i = 0; i < 4; i++) s += chk_unit(t) * 2 - 1;
    return (float)(s * 0.9);
}

static bool make_record(nb_record *r, const shape *s, nb_kv_type type)
{
    const nb_record_opts o = { .type = type,
                               .mode = nb_kv_mode_default(type),
                               .rope = NB_ROPE_INT8,
                               .n_seg = 3,
                               .row_tok = s->ratio,
                               .seg = { { .role = NB_ROLE_LATENT, .dim = s->lora, .n_vec = 1 },
                                        { .role = NB_ROLE_ROPE, .dim = s->rope, .n_vec = 1 },
                                        { .role = NB_ROLE_INDEX, .dim = s->dim, .n_vec = 1 } } };
    return nb_record_init(r, &o, NULL) == NB_OK;
}

static void make_pages(chk *t, kase *k)
{
    const size_t nv = k->r.n_values, n = k->r.n_row * nv;
    k->layer_off = 128;
    k->block_bytes = k->layer_off + k->r.page_bytes + 128;
    k->pool = chk_raw(t, N_BLOCK * k->block_bytes);
    memset(k->pool, 0xff, N_BLOCK * k->block_bytes);
    k->dec = chk_raw(t, (N_BLOCK * n + 1) * sizeof(float));
    uint16_t *h = chk_raw(t, n * sizeof *h);
    float *x = chk_raw(t, n * sizeof *x);
    for (size_t b = 0; b < N_BLOCK; b++) {
        unsigned char *page = k->pool + b * k->block_bytes + k->layer_off;
        for (size_t i = 0; i < n; i++) {
            h[i] = nb_bf16_from_f32(i / nv == 7 && b == 1 ? 0 : normal(t) * (i / nv % 13 == b ? 300.0f : 1.0f));
            x[i] = nb_bf16_to_f32(h[i]);
        }
        if (k->r.type == NB_KV_F32)
            nb_record_store_f32(&k->r, page, x, nv);
        else if (nb_record_encode_page(&k->r, page, h, nv) != NB_OK)
            chk_fail(t, "the specification refuses finite values");
        for (size_t s = 0; s < k->r.n_seg; s++)
            nb_record_decode(&k->r, page, s, 0, k->r.n_row, k->dec + b * n + k->r.seg[s].first, nv);
    }
}

static void make_chunks(chk *t, kase *k)
{
    static const size_t n_tok[N_CHUNK] = { 1, 5, 2, 1 };
    const size_t per_page = k->r.n_row * k->r.n_values, n = k->s->n_page * NB_PAGE_TOK;
    const size_t pos[N_CHUNK] = { n + chk_between(t, 0, 63), n / 2 / NB_PAGE_TOK * NB_PAGE_TOK + 61, n + 5,
                                  k->s->k > 1 ? chk_between(t, 0, k->s->k - 1 < n ? k->s->k - 1 : n) : 0 };
    k->n_row = k->n_block = 0;
    k->rows = chk_raw(t, N_CHUNK * 2 * per_page * sizeof(float));
    for (size_t i = 0; i < N_CHUNK * 2 * per_page; i++) k->rows[i] = nb_bf16_to_f32(nb_bf16_from_f32(normal(t)));
    for (size_t i = 0; i < N_CHUNK; i++) {
        nb_cuda_chunk *c = &k->chunk[i];
        *c = (nb_cuda_chunk){ .tail = k->rows + i * 2 * per_page,
                              .row0 = (uint32_t)k->n_row,
                              .n_tok = (uint32_t)n_tok[i],
                              .pos0 = (uint32_t)pos[i],
                              .block0 = (uint32_t)k->n_block };
        if (i == 1) c->own = c->tail;
        for (size_t j = 0; j < n_tok[i]; j++) k->row_chunk[k->n_row++] = (uint32_t)i;
        if (i == 1) k->row_chunk[k->n_row++] = UINT32_MAX;
        for (size_t p = 0; p < pos[i] / NB_PAGE_TOK + 2; p++) k->block[k->n_block++] = (uint32_t)chk_between(t, 0, N_BLOCK - 1);
    }
    k->row_chunk[k->n_row++] = UINT32_MAX;
}

static bool make_case(chk *t, kase *k, const shape *s, nb_kv_type type)
{
    memset(k, 0, sizeof *k);
    k->s = s;
    if (!make_record(&k->r, s, type)) return false;
    make_pages(t, k);
    make_chunks(t, k);
    k->stride = (s->n_page + 2) * NB_PAGE_TOK;
    const size_t nq = k->n_row * s->n_head * s->dim;
    k->q = chk_raw(t, nq * sizeof *k->q);
    k->w = chk_raw(t, k->n_row * s->n_head * sizeof *k->w);
    for (size_t i = 0; i < nq; i++) k->q[i] = normal(t) * (i % 61 == 3 ? 50.0f : 1.0f);
    for (size_t i = 0; i < k->n_row * s->n_head; i++) k->w[i] = normal(t);
    return true;
}

static size_t position(const kase *k, size_t row)
{
    const nb_cuda_chunk *c = &k->chunk[k->row_chunk[row]];
    return c->pos0 + (row - c->row0);
}

/* Tokens, or compressed rows, that the row sees. */
static size_t seen(const kase *k, size_t row)
{
    return (position(k, row) + 1) / (k->s->ratio ? k->s->ratio : 1);
}

/* One of them as the row sees it. */
static const float *token(const kase *k, size_t row, size_t pos)
{
    const nb_cuda_chunk *c = &k->chunk[k->row_chunk[row]];
    const size_t nv = k->r.n_values, own = position(k, row) / NB_PAGE_TOK, per = k->r.n_row;
    if (pos / per != own) return k->dec + (k->block[c->block0 + pos / per] * per + pos % per) * nv;
    return (c->own ? c->own + (own - c->pos0 / NB_PAGE_TOK) * per * nv : c->tail) + pos % per * nv;
}

/* The case on the device; the second layer's tail. */
static nb_cuda_cache upload(chk *t, const kase *k)
{
    const size_t per_page = k->r.n_row * k->r.n_values;
    nb_cuda_chunk chunk[N_CHUNK];
    float *rows = chk_gpu_in(t, k->rows, N_CHUNK * 2 * per_page * sizeof *rows);
    memcpy(chunk, k->chunk, sizeof chunk);
    for (size_t i = 0; i < N_CHUNK; i++) {
        const size_t at = (size_t)(k->chunk[i].tail - k->rows);
        chunk[i].tail = rows + at - 3; /* tail_off */
        chunk[i].own = k->chunk[i].own ? rows + at : NULL;
    }
    return (nb_cuda_cache){ .pool = chk_gpu_in(t, k->pool, N_BLOCK * k->block_bytes),
                            .block_bytes = k->block_bytes,
                            .layer_off = k->layer_off,
                            .tail_off = 3,
                            .block = chk_gpu_in(t, k->block, k->n_block * sizeof *k->block),
                            .chunk = chk_gpu_in(t, chunk, sizeof chunk),
                            .n_chunk = N_CHUNK,
                            .record = k->r };
}

/* ---- scores ---- */

static size_t score_rows(chk_row *out, size_t max)
{
    size_t n = 0;
    for (const nb_cuda_index_row *r = chk_gpu_api(NULL)->index_score; r->name && n < max; r++)
        if (r->cc <= chk_gpu_info(NULL)->cc) out[n++] = (chk_row){ r->name, "", NB_SPACE_CUDA, 0, r };
    return n;
}

/* q and w of all rows, packed by the operation that packs them, with a rotation by 0. */
static void pack(chk *t, kase *k, nb_cuda_index_score_args *a)
{
    const shape *s = k->s;
    const size_t nq = k->n_row * s->n_head * s->dim, nw = k->n_row * s->n_head;
    const size_t n16 = k->n_row * NB_CUDA_INDEX_HEADS(s->n_head);
    float *cs = chk_raw(t, k->n_row * 2 * sizeof *cs);
    for (size_t i = 0; i < k->n_row; i++) cs[2 * i] = 1, cs[2 * i + 1] = 0;
    const nb_cuda_index_finish_args f = { .q = chk_gpu_inout(t, k->q, nq * sizeof *k->q),
                                          .w = chk_gpu_inout(t, k->w, nw * sizeof *k->w),
                                          .q16 = s->dim % 64 ? NULL : chk_gpu_out(t, n16 * s->dim * 2),
                                          .w16 = s->dim % 64 ? NULL : chk_gpu_out(t, n16 * sizeof(float)),
                                          .cos_sin = chk_gpu_in(t, cs, k->n_row * 2 * sizeof *cs),
                                          .n_tok = k->n_row,
                                          .n_head = s->n_head,
                                          .dim = s->dim,
                                          .d_rope = 2 };
    chk_gpu_call(t, chk_gpu_api(t)->index_finish(chk_gpu(t), &f));
    chk_gpu_get(t, k->q, f.q, nq * sizeof *k->q);
    chk_gpu_get(t, k->w, f.w, nw * sizeof *k->w);
    a->q = f.q, a->w = f.w, a->q16 = f.q16, a->w16 = f.w16;
}

static void check_score(chk *t, const kase *k, const nb_cuda_index_row *v, size_t row, size_t pos, float got)
{
    const shape *s = k->s;
    const float *q = k->q + row * s->n_head * s->dim, *w = k->w + row * s->n_head, *key = token(k, row, pos) + s->lora + s->rope;
    double want = 0, sum = 0, far = 0;
    for (size_t h = 0; h < s->n_head; h++) {
        double dot = 0, mag = 0, top = 0, k_top = 0;
        for (size_t d = 0; d < s->dim; d++) {
            const double x = (double)q[h * s->dim + d], y = (double)key[d];
            dot += x * y;
            mag += fabs(x * y);
            top = fmax(top, fabs(x));
            k_top = fmax(k_top, fabs(y));
        }
        want += (double)w[h] * fmax(dot, 0);
        sum += fabs((double)w[h]) * mag;
        far += fabs((double)w[h]) * top * k_top * (double)s->dim;
    }
    const double most = (0x1p-24 * (double)(s->dim + s->n_head + 8) + (double)v->q_eps) * sum +
                        (v->q_eps != 0 ? 0x1p-36 * far : 0) + 1e-38;
    chk_worst(t, fabs((double)got - want) / most);
    if (!(fabs((double)got - want) <= most))
        chk_fail(t, "row %zu, token %zu: %g instead of %g (at most %g off)", row, pos, (double)got, want, most);
}

static bool scored(const kase *k, size_t row)
{
    return k->row_chunk[row] != UINT32_MAX && seen(k, row) > k->s->k;
}

static void one_score(chk *t, const nb_cuda_index_row *v, kase *k)
{
    const size_t n = k->n_row * k->stride;
    nb_cuda_index_score_args a = { .cache = upload(t, k),
                                   .row_chunk = chk_gpu_in(t, k->row_chunk, k->n_row * sizeof *k->row_chunk),
                                   .score = chk_gpu_out(t, n * sizeof(float)),
                                   .n_row = k->n_row,
                                   .n_head = k->s->n_head,
                                   .dim = k->s->dim,
                                   .k = k->s->k,
                                   .seg = SEG,
                                   .stride = k->stride,
                                   .share = 1,
                                   .ratio = k->s->ratio };
    pack(t, k, &a);
    float *all = chk_raw(t, n * sizeof *all), *one = chk_raw(t, n * sizeof *one);
    chk_gpu_get(t, one, a.score, n * sizeof *one); /* the canary */
    chk_gpu_call(t, v->fn(chk_gpu(t), &a));
    chk_gpu_get(t, all, a.score, n * sizeof *all);
    for (size_t r = 0; r < k->n_row; r++) {
        for (size_t p = 0; scored(k, r) && p < seen(k, r); p++) check_score(t, k, v, r, p, all[r * k->stride + p]);
        if (!scored(k, r)) chk_same_bytes(t, "a row that does not choose", all + r * k->stride, one, k->stride * sizeof *one);
    }
    /* alone; and rows of a chunk together */
    const size_t nq = k->s->n_head * k->s->dim, nh = NB_CUDA_INDEX_HEADS(k->s->n_head);
    for (int turn = 0; turn < 2; turn++) {
        nb_cuda_index_score_args b = a;
        b.row0 = turn ? k->chunk[1].row0 : 0;
        b.n_row = turn ? k->chunk[1].n_tok : 1;
        b.share = turn && !b.ratio ? 4 : 1;
        b.q += b.row0 * nq, b.w += b.row0 * k->s->n_head;
        if (b.q16) b.q16 += b.row0 * nh * k->s->dim, b.w16 += b.row0 * nh;
        b.score = chk_gpu_out(t, b.n_row * k->stride * sizeof(float));
        chk_gpu_call(t, v->fn(chk_gpu(t), &b));
        chk_gpu_get(t, one, b.score, b.n_row * k->stride * sizeof *one);
        for (size_t i = 0; i < b.n_row; i++)
            if (scored(k, b.row0 + i))
                chk_same(t, turn ? "sharing keys" : "alone", all + (b.row0 + i) * k->stride, k->stride, one + i * k->stride,
                         k->stride, 1, seen(k, b.row0 + i));
    }
}

static bool wanted(chk *t, const shape *s)
{
    return !s->device || !chk_gpu_info(t)->emulated;
}

static void test_score(chk *t, const chk_row *row)
{
    static kase k;
    static const nb_kv_type types[] = { NB_KV_NVFP4, NB_KV_F32 };
    const nb_cuda_index_row *v = row->row;
    for (size_t i = 0; i < NB_COUNT(shapes) + NB_COUNT(compressed); i++)
        for (size_t j = 0; j < NB_COUNT(types); j++) {
            const shape *s = i < NB_COUNT(shapes) ? &shapes[i] : &compressed[i - NB_COUNT(shapes)];
            nb_record r;
            if (!wanted(t, s) || !make_record(&r, s, types[j]) || !v->can(&r, SEG, s->n_head)) continue;
            if (chk_case(t, "%s, %zu heads of %zu, %zu pages, top %zu%s", nb_kv_type_name(types[j]), s->n_head, s->dim,
                         s->n_page, s->k, s->ratio ? " of compressed rows" : "") &&
                make_case(t, &k, s, types[j]))
                one_score(t, v, &k);
        }
}

/* ---- pages of chosen tokens ---- */

/* Ascending positions that the row may see: min(n, k) of them. */
static size_t draw_choice(chk *t, const kase *k, size_t row, uint32_t *at)
{
    const size_t n = position(k, row) + 1, want = n < k->s->k ? n : k->s->k;
    size_t m = 0;
    for (size_t p = 0; p < n && m < want; p++)
        if (n - p <= want - m || chk_unit(t) < (double)want / (double)n) at[m++] = (uint32_t)p;
    return m;
}

/* The results of an operation, here. */
typedef struct gathered {
    unsigned char *page;
    float *rest, *own, *part_m;
    nb_cuda_chunk *chunk;
    uint32_t *has, n_item;
    nb_cuda_item *item;
} gathered;

static void check_tokens(chk *t, const kase *k, const nb_cuda_gather_args *a, const gathered *g, size_t i, const uint32_t *at,
                         size_t n, size_t n_old)
{
    const size_t row = a->row0 + i, nv = a->to.n_values;
    const float *rest = g->rest + i * NB_PAGE_TOK * nv, *own = g->own + i * NB_PAGE_TOK * nv;
    float *got = chk_raw(t, nv * sizeof *got);
    for (size_t j = 0; j < n; j++) {
        const float *y = j >= n_old ? own + (j - n_old) * nv : rest + j % NB_PAGE_TOK * nv;
        if (j < n_old / NB_PAGE_TOK * NB_PAGE_TOK) {
            const unsigned char *page = g->page + (i * a->n_page + j / NB_PAGE_TOK) * a->to.page_bytes;
            for (size_t s = 0; s < a->to.n_seg; s++)
                nb_record_decode(&a->to, page, s, j % NB_PAGE_TOK, 1, got + a->to.seg[s].first, nv);
            y = got;
        }
        if (memcmp(token(k, row, at[j]), y, nv * sizeof *y) == 0) continue;
        chk_fail(t, "row %zu: token %zu of %zu (position %u) has other values", row, j, n, at[j]);
        return;
    }
}

static void check_sequences(chk *t, const nb_cuda_gather_args *a, const gathered *g, size_t i, size_t n, size_t n_old,
                            bool there)
{
    const size_t G = a->n_row, nv = a->to.n_values, n_rest = n_old % NB_PAGE_TOK, n_own = n - n_old;
    const nb_cuda_chunk *c = g->chunk + i;
    if (g->has[i] != (there ? i : UINT32_MAX) || g->has[G + i] != (n_rest ? i : UINT32_MAX) ||
        g->has[2 * G + i] != (n_own ? i : UINT32_MAX))
        chk_fail(t, "row %zu: has %u, %u, %u", i, g->has[i], g->has[G + i], g->has[2 * G + i]);
    if (c->block0 != i * a->table_stride || c->row0 != i) chk_fail(t, "row %zu: its pages", i);
    if (n_rest && (c[G].pos0 != n_rest - 1 || c[G].row0 != i || c[G].own || c[G].tail != a->rest + i * NB_PAGE_TOK * nv))
        chk_fail(t, "row %zu: its tokens that fill no page", i);
    if (n_own && (c[2 * G].pos0 != n_own - 1 || c[2 * G].row0 != i || c[2 * G].own ||
                  c[2 * G].tail != a->own + i * NB_PAGE_TOK * nv))
        chk_fail(t, "row %zu: its own page", i);
    for (size_t e = 0; e < (a->n_unit + 2) * a->n_head; e++)
        if (g->part_m[i * (a->n_unit + 2) * a->n_head + e] != -INFINITY) chk_fail(t, "row %zu: a state is not empty", i);
    size_t n_page = n_old / NB_PAGE_TOK, seen = 0;
    for (size_t e = 0; e < g->n_item; e++) {
        const nb_cuda_item *x = &g->item[e];
        if (x->row0 != i) continue;
        const size_t left = n_page - x->unit0 * a->unit_page, want = left < a->unit_page ? left : a->unit_page;
        if (x->chunk != i || x->n_q != 1 || x->n_unit != 1 || x->unit0 * a->unit_page >= n_page || x->n_page != want ||
            x->part0 != i * (a->n_unit + 2) + x->unit0)
            chk_fail(t, "row %zu: unit %u", i, x->unit0);
        seen += x->n_page;
    }
    if (seen != n_page) chk_fail(t, "row %zu: units of %zu pages instead of %zu", i, seen, n_page);
}

static void *got(chk *t, const void *dev, size_t n_bytes)
{
    void *p = chk_raw(t, n_bytes ? n_bytes : 1);
    chk_gpu_get(t, p, dev, n_bytes);
    return p;
}

static void one_gather(chk *t, kase *k, size_t row0, size_t unit_page)
{
    const size_t topk = k->s->k, n = k->n_row - row0, n_page = topk / NB_PAGE_TOK, nh = 3;
    uint32_t *at = chk_raw(t, n * topk * sizeof *at);
    size_t *n_at = chk_raw(t, n * sizeof *n_at);
    memset(at, 0xff, n * topk * sizeof *at);
    for (size_t i = 0; i < n; i++)
        n_at[i] = k->row_chunk[row0 + i] == UINT32_MAX ? 0 : draw_choice(t, k, row0 + i, at + i * topk);
    nb_cuda_gather_args a = { .cache = upload(t, k),
                              .at = chk_gpu_in(t, at, n * topk * sizeof *at),
                              .row_chunk = chk_gpu_in(t, k->row_chunk, k->n_row * sizeof *k->row_chunk),
                              .row0 = row0,
                              .n_row = n,
                              .k = topk,
                              .n_head = nh,
                              .n_page = n_page,
                              .n_unit = (n_page + unit_page - 1) / unit_page,
                              .unit_page = unit_page,
                              .table_stride = 7 * n_page + 3 };
    nb_record_cut(&k->r, 2, &a.to);
    const size_t rows = n * NB_PAGE_TOK * a.to.n_values * sizeof(float), states = n * (a.n_unit + 2) * nh * sizeof(float);
    const size_t items = n * a.n_unit * sizeof(nb_cuda_item);
    a.page = chk_gpu_out(t, n * n_page * a.to.page_bytes);
    a.rest = chk_gpu_out(t, rows);
    a.own = chk_gpu_out(t, rows);
    a.chunk = chk_gpu_out(t, 3 * n * sizeof *a.chunk);
    a.has = chk_gpu_out(t, 3 * n * sizeof *a.has);
    a.item = chk_gpu_out(t, items);
    a.n_item = chk_gpu_out(t, sizeof *a.n_item);
    a.part_m = chk_gpu_out(t, states);
    chk_gpu_call(t, chk_gpu_api(t)->gather(chk_gpu(t), &a));
    const gathered g = { .page = got(t, a.page, n * n_page * a.to.page_bytes),
                         .rest = got(t, a.rest, rows),
                         .own = got(t, a.own, rows),
                         .part_m = got(t, a.part_m, states),
                         .chunk = got(t, a.chunk, 3 * n * sizeof *a.chunk),
                         .has = got(t, a.has, 3 * n * sizeof *a.has),
                         .n_item = *(uint32_t *)got(t, a.n_item, sizeof *a.n_item),
                         .item = got(t, a.item, items) };
    if (g.n_item > n * a.n_unit) {
        chk_fail(t, "%u items", g.n_item);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const bool there = k->row_chunk[row0 + i] != UINT32_MAX;
        const size_t first = there ? position(k, row0 + i) / NB_PAGE_TOK * NB_PAGE_TOK : 0;
        size_t n_old = 0;
        while (n_old < n_at[i] && at[i * topk + n_old] < first) n_old++;
        if (there) check_tokens(t, k, &a, &g, i, at + i * topk, n_at[i], n_old);
        check_sequences(t, &a, &g, i, n_at[i], n_old, there);
    }
}

static void test_gather(chk *t, const chk_row *row)
{
    static kase k;
    static const nb_kv_type types[] = { NB_KV_NVFP4, NB_KV_F32, NB_KV_BF16, NB_KV_FP8, NB_KV_IF4, NB_KV_MXFP4 };
    (void)row;
    for (size_t i = 0; i < NB_COUNT(shapes); i++)
        for (size_t j = 0; j < NB_COUNT(types); j++) {
            const shape *s = &shapes[i];
            nb_record r;
            if (!wanted(t, s) || !make_record(&r, s, types[j]) || !nb_record_can_move(&r, 2)) continue;
            if (chk_case(t, "%s %zu+%zu, %zu pages, top %zu", nb_kv_type_name(types[j]), s->lora, s->rope, s->n_page, s->k) &&
                make_case(t, &k, s, types[j]))
                one_gather(t, &k, j % 2 ? k.chunk[1].row0 : 0, 1 + (i + j) % 3);
        }
}

/* ---- timing: DeepSeek-V3.2 with 131,072 tokens ---- */

typedef struct job {
    const nb_cuda_api *api;
    nb_cuda *g;
    const nb_cuda_index_row *row;
    nb_cuda_index_score_args score;
    nb_cuda_gather_args gather;
} job;

static void call_score(void *ctx)
{
    const job *j = ctx;
    j->row->fn(j->g, &j->score);
}
static void call_gather(void *ctx)
{
    const job *j = ctx;
    j->api->gather(j->g, &j->gather);
}

enum { BENCH_PAGE = 2048, BENCH_ROW = 8, BENCH_POOL = 4 };

/* n rows of one sequence each; four sequences' pages, of random bytes. */
static nb_cuda_cache bench_cache(chk *t, const shape *s, size_t n, uint32_t *row_chunk)
{
    nb_record r;
    nb_cuda_chunk chunk[BENCH_ROW];
    const size_t n_pool = n < BENCH_POOL ? n : BENCH_POOL;
    (void)make_record(&r, s, NB_KV_NVFP4);
    uint32_t *block = chk_raw(t, n * BENCH_PAGE * sizeof *block);
    unsigned char *pool = chk_raw(t, n_pool * BENCH_PAGE * r.page_bytes);
    float *tail = chk_raw(t, NB_PAGE_TOK * r.n_values * sizeof *tail);
    for (size_t i = 0; i < n_pool * BENCH_PAGE * r.page_bytes; i++) pool[i] = (unsigned char)((i * 2654435761u >> 13 & 0x3f) + 0x40);
    for (size_t i = 0; i < NB_PAGE_TOK * r.n_values; i++) tail[i] = normal(t);
    float *dev = chk_gpu_in(t, tail, NB_PAGE_TOK * r.n_values * sizeof *tail);
    for (size_t i = 0; i < n; i++) {
        chunk[i] = (nb_cuda_chunk){ dev, NULL, (uint32_t)i, 1, BENCH_PAGE * NB_PAGE_TOK + 40, (uint32_t)(i * BENCH_PAGE) };
        row_chunk[i] = (uint32_t)i;
        for (size_t p = 0; p < BENCH_PAGE; p++)
            block[i * BENCH_PAGE + p] = (uint32_t)(i % n_pool * BENCH_PAGE + (p * 709 + i) % BENCH_PAGE);
    }
    return (nb_cuda_cache){ .pool = chk_gpu_in(t, pool, n_pool * BENCH_PAGE * r.page_bytes),
                            .block_bytes = r.page_bytes,
                            .block = chk_gpu_in(t, block, n * BENCH_PAGE * sizeof *block),
                            .chunk = chk_gpu_in(t, chunk, n * sizeof *chunk),
                            .n_chunk = n,
                            .record = r };
}

static void bench_score(chk *t, const chk_row *row)
{
    static const struct {
        size_t n_row, n_head;
        bool one; /* rows of one chunk */
    } list[] = { { 1, 64, false }, { 4, 64, false }, { 8, 64, false }, { 1, 32, false }, { 8, 64, true } };
    for (size_t i = 0; i < NB_COUNT(list); i++) {
        const size_t n = list[i].n_row, nh = list[i].n_head, stride = (BENCH_PAGE + 1) * NB_PAGE_TOK;
        const shape s = { 512, 64, 128, nh, 2048, 0, false, 0 };
        uint32_t row_chunk[BENCH_ROW];
        char label[96];
        if (!chk_case(t, "bench %zu", i)) continue;
        job j = { chk_gpu_api(t), chk_gpu(t), row->row, .score = { .cache = bench_cache(t, &s, n, row_chunk) } };
        if (list[i].one) memset(row_chunk, 0, sizeof row_chunk);
        float *q = chk_raw(t, n * nh * 128 * sizeof *q);
        chk_fill(t, q, n * nh * 128, CHK_NORMAL);
        uint16_t *q16 = chk_raw(t, n * nh * 128 * sizeof *q16);
        for (size_t e = 0; e < n * nh * 128; e++) q16[e] = (uint16_t)(0x3000 + (chk_u64(t) & 0x8fff));
        j.score.q = chk_gpu_in(t, q, n * nh * 128 * sizeof *q);
        j.score.w = j.score.w16 = chk_gpu_in(t, q, n * nh * sizeof *q);
        j.score.q16 = chk_gpu_in(t, q16, n * nh * 128 * sizeof *q16);
        j.score.row_chunk = chk_gpu_in(t, row_chunk, n * sizeof *row_chunk);
        j.score.score = chk_gpu_out(t, n * stride * sizeof(float));
        j.score.n_row = n, j.score.n_head = nh, j.score.dim = 128, j.score.k = 2048, j.score.seg = SEG;
        j.score.stride = stride, j.score.share = list[i].one ? 4 : 1;
        (void)snprintf(label, sizeof label, "%zu %s 131,072 tokens, %zu heads", n, list[i].one ? "rows of a sequence of" : "x", nh);
        chk_gpu_time(t, label, 129.0 * 131072 * (double)(list[i].one ? 1 : n),
                     2.0 * 131072 * 128 * (double)(n * nh), call_score, &j);
    }
}

static void bench_gather(chk *t, const chk_row *row)
{
    static const size_t rows[] = { 1, 8 };
    (void)row;
    for (size_t i = 0; i < NB_COUNT(rows); i++) {
        const size_t n = rows[i], k = 2048, n_page = 32, n_unit = 16, nh = 128;
        const shape s = { 512, 64, 128, 64, k, 0, false, 0 };
        uint32_t row_chunk[BENCH_ROW];
        char label[96];
        if (!chk_case(t, "bench %zu", i)) continue;
        job j = { .api = chk_gpu_api(t), .g = chk_gpu(t), .gather = { .cache = bench_cache(t, &s, n, row_chunk) } };
        nb_cuda_gather_args *a = &j.gather;
        uint32_t *at = chk_raw(t, n * k * sizeof *at);
        for (size_t e = 0; e < n * k; e++) at[e] = (uint32_t)(e % k * 64 + chk_between(t, 0, 63));
        nb_record_cut(&a->cache.record, 2, &a->to);
        a->at = chk_gpu_in(t, at, n * k * sizeof *at);
        a->row_chunk = chk_gpu_in(t, row_chunk, n * sizeof *row_chunk);
        a->page = chk_gpu_out(t, n * n_page * a->to.page_bytes);
        a->rest = chk_gpu_out(t, n * NB_PAGE_TOK * a->to.n_values * sizeof(float));
        a->own = chk_gpu_out(t, n * NB_PAGE_TOK * a->to.n_values * sizeof(float));
        a->chunk = chk_gpu_out(t, 3 * n * sizeof *a->chunk);
        a->has = chk_gpu_out(t, 3 * n * sizeof *a->has);
        a->item = chk_gpu_out(t, n * n_unit * sizeof *a->item);
        a->n_item = chk_gpu_out(t, sizeof *a->n_item);
        a->part_m = chk_gpu_out(t, n * (n_unit + 2) * nh * sizeof(float));
        a->n_row = n, a->k = k, a->n_head = nh, a->n_page = n_page, a->n_unit = n_unit, a->unit_page = 2;
        a->table_stride = 192;
        (void)snprintf(label, sizeof label, "%zu x 2,048 of 131,072 tokens, nvfp4", n);
        chk_gpu_time(t, label, 2.0 * (double)(n * n_page * a->to.page_bytes), 0, call_gather, &j);
    }
}

/* ---- planted bugs ---- */

static const nb_cuda_index_row *simt(chk *t)
{
    const nb_cuda_index_row *r = chk_gpu_api(t)->index_score;
    while (strcmp(r->name, "simt") != 0) r++;
    return r;
}
static bool can_all(const nb_record *r, size_t seg, size_t n_head)
{
    return simt(NULL)->can(r, seg, n_head);
}
static void one_head_less(nb_cuda *g, const nb_cuda_index_score_args *a)
{
    nb_cuda_index_score_args b = *a;
    if (a->n_head > 1 && a->n_row == 1) b.n_head--;
    simt(NULL)->fn(g, &b);
}
static void scores_all(nb_cuda *g, const nb_cuda_index_score_args *a)
{
    nb_cuda_index_score_args b = *a;
    b.k = 0;
    simt(NULL)->fn(g, &b);
}
static void latents_as_keys(nb_cuda *g, const nb_cuda_index_score_args *a)
{
    nb_cuda_index_score_args b = *a;
    b.cache.record.seg[SEG].first = 0;
    simt(NULL)->fn(g, &b);
}
static void other_own(nb_cuda *g, const nb_cuda_index_score_args *a)
{
    nb_cuda_index_score_args b = *a;
    if (b.ratio) b.cache.tail_off += b.cache.record.n_values; /* a row further on */
    simt(NULL)->fn(g, &b);
}
#define BUG(what, expect, fn)                                                                      \
    {                                                                                              \
        what, expect, { "broken", "", NB_SPACE_CUDA, 0, &(const nb_cuda_index_row){ "broken", 80, false, 0, can_all, fn } } \
    }
static const chk_broken broken[] = {
    BUG("a row alone loses a head", "alone", one_head_less),
    BUG("scores of rows that see all tokens", "does not choose", scores_all),
    BUG("the rows of the own page read from their start", "instead of", latents_as_keys),
    BUG("compressed rows of the own page, one too far", "instead of", other_own),
    { 0 },
};

const chk_op chk_cuda_index_score = { "cuda_index_score", score_rows, test_score, bench_score, broken };
const chk_op chk_cuda_gather = { "cuda_gather", chk_gpu_row, test_gather, bench_gather, NULL };
