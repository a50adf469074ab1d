/* check_cuda_mla.c - absorbed attention on a device: every row of the table over pages that the host
 * encoded, then mla_tail and mla_combine, against sums in double over the values that the host decodes.
 *
 * A case is a step: chunks of several sequences with tails or own pages, a chunk and rows of padding,
 * lengths of 0 pages and up, queries grouped into items at random.  Pages are few and stand at many
 * places, so that the reference needs each score once.  Then the promises: other groups, folded units,
 * other sequences beside it and NaN elsewhere change no bit. */
#include "check/check_cuda.h"
#include "kernel/cuda/api/nb_cuda_items.h"
#include "num/bf16.h"
#include "num/traits.h"

enum { MAX_CHUNK = 8, MAX_ROW = 256, N_BLOCK = 9, MAX_ITEM = 4096, LAYERS = 2, SAMPLE = 200 };

typedef struct shape {
    size_t d1, d2, n_head, max_page, n_chunk;
    size_t max_tok; /* of a chunk; over 4: absorbed prompts */
    bool device;    /* too slow for the emulation */
} shape;

static const shape shapes[] = {
    { 32, 8, 4, 33, 4, 3, false },    { 128, 64, 16, 17, 2, 1, false },
    { 64, 16, 17, 5, 3, 70, false },  { 16, 4, 1, 18, 3, 4, false },
    { 31, 17, 5, 4, 3, 4, false },    { 512, 64, 16, 3, 2, 4, false },
    { 256, 32, 40, 2, 2, 2, false },  { 512, 64, 128, 2, 1, 1, false },
    { 40, 8, 33, 3, 2, 4, false },    { 128, 8, 2, 340, 2, 1, false },
    { 512, 64, 5, 13, 2, 4, false },  { 512, 64, 16, 40, 8, 4, true },
    { 512, 64, 8, 40, 8, 4, true },   { 512, 64, 64, 150, 4, 2, true },
    { 512, 64, 128, 40, 4, 2, true }, { 512, 64, 20, 40, 4, 3, true },
    { 256, 32, 40, 40, 6, 4, true },  { 512, 64, 128, 3, 3, 20, true },
    { 512, 64, 1, 40, 4, 4, true },   { 512, 64, 32, 20, 6, 1, true },
    { 512, 64, 16, 270, 6, 1, true }, { 512, 64, 16, 540, 2, 1, true },
};

typedef struct kase {
    nb_record r;
    const shape *s;
    float scale;
    size_t n_chunk, n_row, n_value;
    nb_cuda_chunk chunk[MAX_CHUNK]; /* pointers: of the host */
    uint32_t *block;
    size_t n_block_ref;
    unsigned char *pool;
    size_t block_bytes, layer_off;
    float *dec;  /* [N_BLOCK][64][n_value] */
    float *rows; /* of all chunks; tail or own point into it */
    size_t rows_n;
    float *q; /* [n_row][n_head][q_head] */
    size_t n_whole; /* heads that these are a part of; 0: these */
    size_t q_head, q_stride;
    uint32_t row_chunk[MAX_ROW];
} kase;

static float normal(chk *t)
{
    double s = 0;
    for (int i = 0; i < 4; i++) s += chk_unit(t) * 2 - 1;
    return (float)(s * 0.9);
}

static bool make_record(chk *t, nb_record *r, const shape *s, nb_kv_type type, unsigned extra)
{
    uint16_t places[2][NB_MAX_OUTLIER];
    nb_record_opts o = { .type = type, NB_SEGS_MLA(s->d1, s->d2) };
    o.rope = extra & 4 ? (nb_rope_fmt)chk_between(t, 0, 2) : NB_ROPE_INT8; /* the default */
    if (extra & 4 && nb_kv_traits[type]->modes) o.mode = (nb_kv_mode)chk_between(t, 0, 2);
    for (size_t k = 0; k < 2 && extra & 1; k++) {
        size_t n = 0;
        for (size_t at = chk_between(t, 0, 3); at < o.seg[k].dim && n < NB_MAX_OUTLIER;
             at += chk_between(t, 1, o.seg[k].dim / 7 + 1))
            places[k][n++] = (uint16_t)at;
        o.seg[k].outlier = places[k];
        o.seg[k].n_outlier = n;
    }
    if (extra & 2 && nb_record_init(r, &o, NULL) == NB_OK)
        for (size_t k = 0; k < 2; k++)
            if (r->seg[k].fmt == NB_SEG_E4M3 || r->seg[k].fmt == NB_SEG_NVFP4)
                o.seg[k].fixed_scale = (float)(0.002 + chk_unit(t) * 0.004);
    return nb_record_init(r, &o, NULL) == NB_OK;
}

/* Values of a token: some tokens and some channels are large. */
static void make_values(chk *t, float *x, size_t n)
{
    const float f = chk_u64(t) % 16 == 0 ? 3.0f : 1.0f;
    for (size_t i = 0; i < n; i++)
        x[i] = nb_bf16_to_f32(nb_bf16_from_f32(f * normal(t) * (i % 61 == 7 ? 6.0f : 1.0f)));
}

static void make_pages(chk *t, kase *k)
{
    const nb_record *r = &k->r;
    const size_t d1 = k->s->d1, n = k->n_value;
    k->layer_off = r->page_bytes + 128;
    k->block_bytes = k->layer_off + r->page_bytes + 256;
    k->pool = chk_raw(t, N_BLOCK * k->block_bytes);
    memset(k->pool, 0xff, N_BLOCK * k->block_bytes);
    k->dec = chk_raw(t, N_BLOCK * NB_PAGE_TOK * n * sizeof(float));
    float *x = chk_raw(t, NB_PAGE_TOK * n * sizeof *x);
    uint16_t *h = chk_raw(t, NB_PAGE_TOK * n * sizeof *h);
    for (size_t b = 0; b < N_BLOCK; b++) {
        unsigned char *page = k->pool + b * k->block_bytes + k->layer_off;
        for (size_t i = 0; i < NB_PAGE_TOK; i++) make_values(t, x + i * n, n);
        for (size_t i = 0; i < NB_PAGE_TOK * n; i++) h[i] = nb_bf16_from_f32(x[i]);
        if (r->type == NB_KV_F32) {
            for (size_t i = 0; i < NB_PAGE_TOK * n; i++) x[i] *= 1.0f + 0.001f * (float)(i % 7);
            nb_record_store_f32(r, page, x, n);
        } else if (nb_record_encode_page(r, page, h, n) != NB_OK) {
            chk_fail(t, "the specification refuses finite values");
        }
        float *dec = k->dec + b * NB_PAGE_TOK * n;
        nb_record_decode(r, page, 0, 0, NB_PAGE_TOK, dec, n);
        nb_record_decode(r, page, 1, 0, NB_PAGE_TOK, dec + d1, n);
    }
}

/* Chunks: positions, blocks, rows of the step and those of the own pages. */
static void make_chunks(chk *t, kase *k)
{
    const shape *s = k->s;
    const size_t nv = k->n_value, per_page = NB_PAGE_TOK * nv;
    size_t n_block = 0, n_rows = 0;
    k->n_chunk = s->n_chunk;
    k->n_row = 0;
    for (size_t i = 0; i < k->n_chunk; i++) {
        const size_t page = i == 0 ? s->max_page : i == 1 ? 0 : chk_between(t, 0, s->max_page);
        size_t in = chk_between(t, 0, 63), n_tok = chk_between(t, 1, s->max_tok);
        if (i == 0) n_tok = s->max_tok;
        if (i == k->n_chunk - 1 && i > 1) n_tok = 0; /* padding */
        if (i == 0 && s->max_tok == 1) in = 63;
        const size_t n_page = (in + n_tok + NB_PAGE_TOK - 1) / NB_PAGE_TOK;
        k->chunk[i] = (nb_cuda_chunk){ .row0 = (uint32_t)k->n_row,
                                       .n_tok = (uint32_t)n_tok,
                                       .pos0 = (uint32_t)(page * NB_PAGE_TOK + in),
                                       .block0 = (uint32_t)n_block };
        for (size_t j = 0; j < n_tok; j++) k->row_chunk[k->n_row++] = (uint32_t)i;
        n_block += page + n_page;
        n_rows += n_page > 1 ? n_page : LAYERS;
    }
    for (size_t j = 0; j < 2; j++) k->row_chunk[k->n_row++] = UINT32_MAX;
    k->n_block_ref = n_block;
    k->block = chk_raw(t, (n_block + 1) * sizeof *k->block);
    for (size_t i = 0; i < n_block; i++) k->block[i] = (uint32_t)chk_between(t, 0, N_BLOCK - 2);
    k->rows_n = n_rows * per_page;
    k->rows = chk_raw(t, k->rows_n * sizeof(float));
    float *at = k->rows;
    for (size_t i = 0; i < k->n_chunk; i++) {
        nb_cuda_chunk *c = &k->chunk[i];
        const size_t end = c->pos0 % NB_PAGE_TOK + c->n_tok;
        const size_t n_page = (end + NB_PAGE_TOK - 1) / NB_PAGE_TOK;
        if (n_page > 1)
            c->own = at;
        else
            c->tail = at;
        const size_t n = n_page > 1 ? n_page : LAYERS, old = n_page > 1 ? 0 : LAYERS - 1;
        for (size_t j = 0; j < n * NB_PAGE_TOK; j++) { /* rows that are not written yet: NaN */
            float *x = at + j * nv;
            for (size_t v = 0; v < nv; v++) x[v] = NAN;
            if (j >= old * NB_PAGE_TOK && j - old * NB_PAGE_TOK < end) make_values(t, x, nv);
        }
        at += n * per_page;
    }
}

static void make_queries(chk *t, kase *k)
{
    const shape *s = k->s;
    k->q_head = (k->n_value + 7) / 8 * 8;
    k->q_stride = s->n_head * k->q_head + 8;
    k->q = chk_raw(t, k->n_row * k->q_stride * sizeof *k->q);
    for (size_t i = 0; i < k->n_row * k->q_stride; i++) k->q[i] = normal(t);
    k->scale = (float)((chk_u64(t) % 4 ? 1.0 : 4.0) / sqrt((double)k->n_value));
}

static bool make_case(chk *t, kase *k, const shape *s, nb_kv_type type, unsigned extra)
{
    memset(k, 0, sizeof *k);
    k->s = s;
    if (!make_record(t, &k->r, s, type, extra)) return false;
    k->n_value = s->d1 + s->d2;
    make_pages(t, k);
    make_chunks(t, k);
    make_queries(t, k);
    return true;
}

/* ---- reference ---- */

static size_t position(const kase *k, size_t row)
{
    const nb_cuda_chunk *c = &k->chunk[k->row_chunk[row]];
    return c->pos0 + (row - c->row0);
}

static const float *own_page(const kase *k, size_t row)
{
    const nb_cuda_chunk *c = &k->chunk[k->row_chunk[row]];
    const size_t per_page = NB_PAGE_TOK * k->n_value;
    if (!c->own) return c->tail + (LAYERS - 1) * per_page;
    return c->own + (position(k, row) / NB_PAGE_TOK - c->pos0 / NB_PAGE_TOK) * per_page;
}

/* What a row rounds a query's values to, at most: FP16, and BF16 in wgmma_many for BF16 pages. */
static double query_rounding(const nb_cuda_mla_row *v, const kase *k)
{
    return k->r.seg[0].fmt == NB_SEG_BF16 && strcmp(v->name, "wgmma_many") == 0 ? 0x1p-8 : 0x1p-11;
}

/* A score, and what it may be off by (root mean square) where each product is by up to `rounding` of it, evenly. */
static double score(const kase *k, const float *q, const float *x, double rounding, double *noise)
{
    double s = 0, squares = 0;
    for (size_t i = 0; i < k->n_value; i++) {
        const double p = (double)q[i] * (double)x[i];
        s += p;
        squares += p * p;
    }
    *noise = sqrt(squares / 3) * (double)k->scale * rounding;
    return s * (double)k->scale;
}

/* Tokens that occur `times` times; max first, sums then.  noise: what y may be off by because scores are: with p the
 * weights and d the largest error of a score, y moves by at most d * sum p |x - y| (norms over values). */
static void reference(const kase *k, size_t row, size_t head, double rounding, double *y, double *noise)
{
    const size_t pos = position(k, row), n_own = pos % NB_PAGE_TOK + 1;
    const float *q = k->q + row * k->q_stride + head * k->q_head, *own = own_page(k, row);
    const nb_cuda_chunk *c = &k->chunk[k->row_chunk[row]];
    size_t times[N_BLOCK + 1] = { 0 };
    double s[N_BLOCK + 1][NB_PAGE_TOK], top = -INFINITY, sum = 0, far = 0, worst = 0;
    for (size_t p = 0; p < pos / NB_PAGE_TOK; p++) times[k->block[c->block0 + p]]++;
    times[N_BLOCK] = 1;
    for (size_t b = 0; b <= N_BLOCK; b++)
        for (size_t i = 0; times[b] && i < (b < N_BLOCK ? NB_PAGE_TOK : n_own); i++) {
            const float *x = b < N_BLOCK ? k->dec + b * NB_PAGE_TOK * k->n_value : own;
            double off;
            s[b][i] = score(k, q, x + i * k->n_value, rounding, &off);
            top = fmax(top, s[b][i]);
            worst = fmax(worst, off);
        }
    for (size_t j = 0; j < k->s->d1; j++) y[j] = 0;
    for (size_t b = 0; b <= N_BLOCK; b++)
        for (size_t i = 0; times[b] && i < (b < N_BLOCK ? NB_PAGE_TOK : n_own); i++) {
            const float *x = b < N_BLOCK ? k->dec + b * NB_PAGE_TOK * k->n_value : own;
            s[b][i] = exp(s[b][i] - top) * (double)times[b];
            sum += s[b][i];
            for (size_t j = 0; j < k->s->d1; j++) y[j] += s[b][i] * (double)x[i * k->n_value + j];
        }
    for (size_t j = 0; j < k->s->d1; j++) y[j] /= sum;
    for (size_t b = 0; b <= N_BLOCK; b++)
        for (size_t i = 0; times[b] && i < (b < N_BLOCK ? NB_PAGE_TOK : n_own); i++) {
            const float *x = b < N_BLOCK ? k->dec + b * NB_PAGE_TOK * k->n_value : own;
            double square = 0;
            for (size_t j = 0; j < k->s->d1; j++) {
                const double off = (double)x[i * k->n_value + j] - y[j];
                square += off * off;
            }
            far += s[b][i] / sum * sqrt(square);
        }
    *noise = worst * far;
}

/* ---- a run ---- */

typedef struct cut { /* how queries and units become items */
    size_t most_q;
    bool fold, random;
} cut;

/* Groups of the chunks that `only` allows (UINT32_MAX: all). */
static size_t make_groups(chk *t, const kase *k, const cut *how, uint32_t only, nb_cuda_group *g)
{
    size_t n = 0;
    for (uint32_t i = 0; i < k->n_chunk; i++) {
        const nb_cuda_chunk *c = &k->chunk[i];
        if (only != UINT32_MAX && only != i) continue;
        for (uint32_t done = 0; done < c->n_tok;) {
            const uint32_t pos = c->pos0 + done, room = NB_PAGE_TOK - pos % NB_PAGE_TOK;
            uint32_t nq = (uint32_t)(how->random ? chk_between(t, 1, how->most_q) : how->most_q);
            if (nq > room) nq = room;
            if (nq > c->n_tok - done) nq = c->n_tok - done;
            g[n++] = (nb_cuda_group){ i, c->row0 + done, nq, pos / NB_PAGE_TOK };
            done += nq;
        }
    }
    return n;
}

typedef struct result {
    float *f;
    uint16_t *hi, *lo;
} result;

static result run(chk *t, const nb_cuda_mla_row *v, const kase *k, const cut *how, uint32_t only)
{
    static nb_cuda_item item[MAX_ITEM];
    const shape *s = k->s;
    nb_cuda_group group[MAX_ROW];
    uint32_t part_first[MAX_ROW + 1] = { 0 }, row_chunk[MAX_ROW];
    for (size_t i = 0; i < k->n_row; i++) {
        row_chunk[i] = only == UINT32_MAX || k->row_chunk[i] == only ? k->row_chunk[i] : UINT32_MAX;
        size_t n = 0;
        if (row_chunk[i] != UINT32_MAX)
            n = nb_cuda_n_unit(v->units, position(k, i) / NB_PAGE_TOK) + 1;
        part_first[i + 1] = part_first[i] + (uint32_t)n;
    }
    const size_t n_part = part_first[k->n_row], n_state = n_part * s->n_head;
    const size_t n_group = make_groups(t, k, how, only, group);
    const uint32_t n_item =
        (uint32_t)nb_cuda_items(group, n_group, v->units, how->random ? chk_between(t, 1, 8) : 1,
                                s->n_head, how->fold, part_first, item);
    nb_cuda_chunk chunk[MAX_CHUNK];
    float *rows = chk_gpu_in(t, k->rows, k->rows_n * sizeof(float));
    for (size_t i = 0; i < k->n_chunk; i++) {
        chunk[i] = k->chunk[i];
        if (chunk[i].own) chunk[i].own = rows + (k->chunk[i].own - k->rows);
        if (chunk[i].tail) chunk[i].tail = rows + (k->chunk[i].tail - k->rows);
    }
    const size_t y_stride = (s->n_head * s->d1 + 7) / 8 * 8 + 8, n_y = k->n_row * y_stride;
    nb_cuda_mla_args a = {
        .cache = { .pool = chk_gpu_in(t, k->pool, N_BLOCK * k->block_bytes),
                   .block_bytes = k->block_bytes,
                   .layer_off = k->layer_off,
                   .tail_off = (LAYERS - 1) * NB_PAGE_TOK * k->n_value,
                   .block = chk_gpu_in(t, k->block, (k->n_block_ref + 1) * sizeof *k->block),
                   .chunk = chk_gpu_in(t, chunk, k->n_chunk * sizeof *chunk),
                   .n_chunk = k->n_chunk,
                   .record = k->r },
        .q = chk_gpu_in(t, k->q, k->n_row * k->q_stride * sizeof(float)),
        .y = { .f = chk_gpu_out(t, n_y * sizeof(float)),
               .hi = chk_gpu_out(t, n_y * sizeof(uint16_t)),
               .lo = chk_gpu_out(t, n_y * sizeof(uint16_t)),
               .stride = y_stride },
        .part_o = chk_gpu_out(t, n_state * s->d1 * sizeof(float)),
        .part_m = chk_gpu_out(t, n_state * sizeof(float)),
        .part_l = chk_gpu_out(t, n_state * sizeof(float)),
        .part_first = chk_gpu_in(t, part_first, (k->n_row + 1) * sizeof *part_first),
        .row_chunk = chk_gpu_in(t, row_chunk, k->n_row * sizeof *row_chunk),
        .item = chk_gpu_in(t, item, (n_item + 1) * sizeof *item),
        .n_item = chk_gpu_in(t, &n_item, sizeof n_item),
        .scratch = chk_gpu_out(t, v->scratch(&k->r, s->n_head, k->n_row)),
        .n_row = k->n_row,
        .n_head = s->n_head,
        .n_whole = k->n_whole,
        .lora = s->d1,
        .d_rope = s->d2,
        .q_stride = k->q_stride,
        .q_head = k->q_head,
        .max_item = n_item + (how->random ? chk_between(t, 0, 9) : 0),
        .units = v->units,
        .scale = k->scale,
        .beside = n_item > 0 && how->random,
    };
    const nb_cuda_api *api = chk_gpu_api(t);
    nb_cuda *g = chk_gpu(t);
    chk_gpu_call(t, (v->fn(g, &a), api->mla_tail(g, &a), api->mla_combine(g, &a)));
    result y = { chk_raw(t, n_y * sizeof(float)), chk_raw(t, n_y * 2), chk_raw(t, n_y * 2) };
    chk_gpu_get(t, y.f, a.y.f, n_y * sizeof(float));
    chk_gpu_get(t, y.hi, a.y.hi, n_y * 2);
    chk_gpu_get(t, y.lo, a.y.lo, n_y * 2);
    return y;
}

/* ---- what is compared ---- */

static bool skipped(const kase *k, size_t row, uint32_t only)
{
    return k->row_chunk[row] == UINT32_MAX || (only != UINT32_MAX && k->row_chunk[row] != only);
}

static size_t y_stride_of(const kase *k)
{
    return (k->s->n_head * k->s->d1 + 7) / 8 * 8 + 8;
}

/* Error of each (row, head) in the norm over its values: the row's, and four times the reference's noise (large scores
 * need a finer query).  The parts are those of the floats. */
static void compare(chk *t, const nb_cuda_mla_row *v, const kase *k, result y)
{
    const size_t d1 = k->s->d1, stride = y_stride_of(k);
    double *want = chk_f64(t, d1);
    const size_t some = k->n_row * k->s->n_head / SAMPLE + 1; /* one of so many is computed */
    for (size_t row = 0; row < k->n_row; row++) {
        for (size_t h = 0; h < k->s->n_head && !skipped(k, row, UINT32_MAX); h++) {
            if (chk_u64(t) % some != 0) continue;
            const size_t at = row * stride + h * d1;
            double err = 0, norm = 0, noise;
            reference(k, row, h, query_rounding(v, k), want, &noise);
            for (size_t j = 0; j < d1; j++) {
                const double f = (double)y.f[at + j], e = f - want[j];
                const uint16_t hi = nb_bf16_from_f32(y.f[at + j]);
                const uint16_t lo = nb_bf16_from_f32(y.f[at + j] - nb_bf16_to_f32(hi));
                err += e * e;
                norm += want[j] * want[j];
                if (hi != y.hi[at + j] || lo != y.lo[at + j])
                    chk_fail(t, "row %zu head %zu: parts are not those of %g", row, h, f);
            }
            const double bound = (double)v->error * sqrt(norm) + 4 * noise + 0x1p-100, part = sqrt(err) / bound;
            chk_worst(t, part);
            if (!(part <= 1))
                chk_fail(t, "row %zu head %zu position %zu: error %.3g, at most %.3g",
                         row, h, position(k, row), sqrt(err), bound);
        }
    }
}

/* The same bits in all rows of the chunk (UINT32_MAX: all) and all heads but (not_row, not_head). */
static void same(chk *t, const char *why, const kase *k, result a, result b, uint32_t only,
                 size_t not_row, size_t not_head)
{
    const size_t d1 = k->s->d1, stride = y_stride_of(k);
    for (size_t row = 0; row < k->n_row; row++)
        for (size_t h = 0; h < k->s->n_head; h++) {
            if (skipped(k, row, only) || (row == not_row && h == not_head)) continue;
            if (memcmp(a.f + row * stride + h * d1, b.f + row * stride + h * d1,
                       d1 * sizeof(float)) != 0) {
                chk_fail(t, "%s: other bits in row %zu head %zu (position %zu)", why, row, h,
                         position(k, row));
                return;
            }
        }
}

/* At once: NaN in a query of chunk 1, and a page of 0xff (a NaN in every format with NaN) at the first
 * place of chunk 0 alone. */
static void check_nan(chk *t, const nb_cuda_mla_row *v, const kase *k, result y)
{
    kase bad = *k;
    const size_t row = k->chunk[1].row0, head = chk_between(t, 0, k->s->n_head - 1);
    const size_t n = k->n_row * k->q_stride, stride = y_stride_of(k), d1 = k->s->d1;
    bad.q = chk_raw(t, n * sizeof *bad.q);
    memcpy(bad.q, k->q, n * sizeof *bad.q);
    bad.q[row * k->q_stride + head * k->q_head + chk_between(t, 0, k->n_value - 1)] = NAN;
    bad.block = chk_raw(t, (k->n_block_ref + 1) * sizeof *bad.block);
    memcpy(bad.block, k->block, (k->n_block_ref + 1) * sizeof *bad.block);
    bad.block[k->chunk[0].block0] = N_BLOCK - 1;
    bad.pool = chk_raw(t, N_BLOCK * k->block_bytes);
    memcpy(bad.pool, k->pool, N_BLOCK * k->block_bytes);
    memset(bad.pool + (N_BLOCK - 1) * k->block_bytes + k->layer_off, 0xff, k->r.page_bytes);
    const result z = run(t, v, &bad, &(cut){ NB_CUDA_QUERY_MAX, true, false }, UINT32_MAX);
    for (uint32_t c = 1; c < k->n_chunk; c++)
        same(t, "NaN in another query or sequence", k, y, z, c, row, head);
    for (size_t j = 0; j < d1; j++)
        if (!isnan(z.f[row * stride + head * d1 + j])) {
            chk_fail(t, "a NaN in a query is lost");
            return;
        }
    const nb_seg_fmt f = k->r.seg[0].fmt;
    const bool is_nan = f == NB_SEG_BF16 || f == NB_SEG_F32;
    for (size_t j = 0; is_nan && j < k->s->n_head * d1; j++)
        if (!isnan(z.f[k->chunk[0].row0 * stride + j])) {
            chk_fail(t, "a page of NaN leaves a number in its query");
            return;
        }
}

/* A step of the first row only, the longest: it may be cut and joined in another way (in the emulation: where it has
 * more than 32 states). */
static void check_single(chk *t, const nb_cuda_mla_row *v, const kase *k, result y)
{
    kase one = *k;
    nb_cuda_chunk *c = &one.chunk[0];
    if (chk_gpu_info(t)->emulated && k->s->max_page < 300) return;
    one.n_chunk = one.n_row = 1;
    one.row_chunk[0] = 0;
    c->n_tok = 1;
    const result z = run(t, v, &one, &(cut){ 1, true, true }, UINT32_MAX);
    if (memcmp(y.f, z.f, k->s->n_head * k->s->d1 * sizeof(float)) != 0)
        chk_fail(t, "other bits in the first row where it is the only one of the step");
    const size_t n = k->s->n_head * k->s->d1;
    one.q = chk_raw(t, k->q_stride * sizeof *one.q);
    memcpy(one.q, k->q, k->q_stride * sizeof *one.q);
    one.q[0] = NAN; /* of the first head */
    const result bad = run(t, v, &one, &(cut){ 1, true, true }, UINT32_MAX);
    for (size_t j = 0; j < n; j++)
        if (j < k->s->d1 ? !isnan(bad.f[j]) : memcmp(&y.f[j], &bad.f[j], sizeof(float)) != 0) {
            chk_fail(t, "the only row, a NaN in its first head: value %zu is wrong", j);
            return;
        }
}

/* Some of the heads alone, as on one of several devices: the same bits. */
static void check_slice(chk *t, const nb_cuda_mla_row *v, const kase *k, result y)
{
    const size_t all = k->s->n_head, stride = y_stride_of(k);
    const bool eights = !v->can(&k->r, all - 1) && all % 8 == 0; /* takes multiples of 8 heads */
    if (!v->slices || all < 2 || (eights && all < 16)) return;
    shape some = *k->s;
    kase part = *k;
    some.n_head = eights ? 8 * chk_between(t, 1, all / 8 - 1) : chk_between(t, 1, all - 1);
    const size_t h0 = chk_between(t, 0, all - some.n_head), n = some.n_head * some.d1;
    if (!v->can(&k->r, some.n_head)) {
        chk_fail(t, "takes %zu heads, but not %zu of them", all, some.n_head);
        return;
    }
    part.s = &some;
    part.n_whole = all;
    float *q = chk_raw(t, k->n_row * k->q_stride * sizeof *q);
    memset(q, 0xff, k->n_row * k->q_stride * sizeof *q);
    for (size_t i = 0; i < k->n_row; i++)
        memcpy(q + i * k->q_stride, k->q + i * k->q_stride + h0 * k->q_head,
               some.n_head * k->q_head * sizeof *q);
    part.q = q;
    const result z = run(t, v, &part, &(cut){ 1, true, true }, UINT32_MAX);
    for (size_t i = 0; i < k->n_row; i++)
        if (!skipped(k, i, UINT32_MAX) &&
            memcmp(y.f + i * stride + h0 * some.d1, z.f + i * y_stride_of(&part),
                   n * sizeof(float)) != 0) {
            chk_fail(t, "other bits in row %zu where only heads %zu to %zu are computed", i, h0,
                     h0 + some.n_head - 1);
            return;
        }
}

static void one_case(chk *t, const nb_cuda_mla_row *v, const kase *k)
{
    const cut plain = { 1, false, false }, fold = { NB_CUDA_QUERY_MAX, true, true };
    const result y = run(t, v, k, &plain, UINT32_MAX);
    compare(t, v, k, y);
    same(t, "units folded, queries grouped", k, y, run(t, v, k, &fold, UINT32_MAX), UINT32_MAX,
         SIZE_MAX, 0);
    same(t, "alone", k, y, run(t, v, k, &plain, 0), 0, SIZE_MAX, 0);
    check_single(t, v, k, y);
    check_slice(t, v, k, y);
    check_nan(t, v, k, y);
}

static size_t rows(chk_row *out, size_t max)
{
    static const shape usual = { .d1 = 512, .d2 = 64 };
    size_t n = 0;
    for (const nb_cuda_mla_row *v = chk_gpu_api(NULL)->mla; v->name; v++)
        for (nb_kv_type type = 0; type < NB_KV_TYPE_COUNT && n < max; type++) {
            nb_record r;
            bool can = false;
            if (v->cc > chk_gpu_info(NULL)->cc) continue;
            if (make_record(NULL, &r, &usual, type, 0))
                for (size_t i = 0; i < NB_COUNT(shapes); i++) can |= v->can(&r, shapes[i].n_head);
            if (can) out[n++] = (chk_row){ v->name, nb_kv_type_name(type), NB_SPACE_CUDA, 0, v };
        }
    return n;
}

static void test(chk *t, const chk_row *row)
{
    const nb_cuda_mla_row *v = row->row;
    const bool emulated = chk_gpu_info(t)->emulated, any = strcmp(v->name, "mma") == 0;
    nb_kv_type type = NB_KV_BF16;
    if (nb_kv_type_parse(row->sub, &type) != NB_OK) chk_fail(t, "no record type %s", row->sub);
    for (size_t i = 0; i < NB_COUNT(shapes); i++) {
        const shape *s = &shapes[i];
        if (s->device && emulated) continue;
        const bool large = s->d1 * s->n_head > 2048;
        for (unsigned extra = 0; extra < 8; extra++) {
            kase k;
            /* On a device all extras where it is cheap, else the default and one other; emulated: in turn,
             * where a row takes all shapes. */
            if ((large || emulated) && extra != 0 && extra != 1 + (i + type) % 7) continue;
            if (emulated && any && ((i + type) % (large ? 4 : 2) != extra % 2 || (large && extra)))
                continue;
            if (chk_case(t, "shape %zu: %zu+%zu, %zu heads, %zu chunks to %zu pages%s%s%s", i,
                         s->d1, s->d2, s->n_head, s->n_chunk, s->max_page,
                         extra & 1 ? ", outliers" : "", extra & 2 ? ", fixed" : "",
                         extra & 4 ? ", rope" : "") &&
                make_case(t, &k, s, type, extra) && v->can(&k.r, s->n_head))
                one_case(t, v, &k);
        }
    }
}

const chk_op chk_cuda_mla = { "cuda_mla", rows, test, NULL, NULL };
