/* cpu_csa.c - compressed attention on the CPU (attn_csa.c has the formulas).
 *
 * project leaves queries, rows of the window, kv and gate of the compressors; append makes compressed rows of them and
 * encodes full pages; attend gathers the rows of each query, the compressed ones in the order of their positions and
 * then the window, in tiles of 64.  Inside its own page a query reads rows as they were made, rounded to BF16 (f32
 * records round nothing), earlier ones decoded; rows of the window are never encoded.  So what a query reads, and the
 * order of its sums, depend on its position alone.
 *
 * What crosses steps is in the open page (attn_csa.h): it belongs to the sequence's slot. */
#include <math.h>
#include <string.h>

#include "model/attn_csa.h"
#include "model/cpu/cpu.h"
#include "model/cpu/cpu_state.h"
#include "num/bf16.h"

enum { MAX_ROPE = 2 * NB_MAX_ROPE_PAIR };

/* One chunk in one layer. */
typedef struct csa {
    nb_cpu_attn s;
    nb_csa_state at; /* places in the state */
    float *state;
    size_t n_row;      /* values of a row, in f->kv and in pages */
    size_t row_floats; /* of a page's rows in s.own */
} csa;

static csa csa_of(const nb_cpu_attn *s)
{
    csa x = { .s = *s };
    x.at = nb_csa_state_of(s->attn);
    x.state = nb_cpu_state(s->f, s->c, s->layer);
    x.n_row = nb_csa_values(x.s.attn);
    x.row_floats = nb_cpu_record(&x.s)->n_row * x.n_row;
    return x;
}

/* Rotates the last values of one row as position pos does; back: the other way. */
static void rotate_row(const nb_cpu *f, const nb_attn_config *a, size_t pos, bool back, float *row,
                       size_t n_head, size_t dim)
{
    float table[MAX_ROPE];
    nb_cpu_rotary_row(&a->rope, false, pos, table);
    for (size_t j = a->d_rope / 2; back && j < a->d_rope; j++) table[j] = -table[j];
    f->r.plan.rope->fn(&(nb_rope_args){ .x = row + dim - a->d_rope,
                                        .cos_sin = table,
                                        .n_tok = 1,
                                        .n_head = n_head,
                                        .dim = a->d_rope,
                                        .tok_stride = n_head * dim,
                                        .head_stride = dim,
                                        .interleaved = a->rope.interleaved });
}

/* ---- project ---- */

typedef struct project_ctx {
    nb_cpu *f;
    const nb_pass *p;
    const nb_layer *l;
    const nb_attn_config *a;
    size_t layer, n_values, width, keys;
} project_ctx;

/* Position of token t of the pass. */
static size_t pos_of(const nb_cpu *f, const nb_pass *p, size_t t)
{
    size_t i = 0;
    while (i + 1 < p->n_chunk && f->place[i + 1].tok0 <= t) i++;
    return p->chunk[i].pos0 + t - f->place[i].tok0;
}

static void add_ape(float *gate, const float *ape, size_t n)
{
    for (size_t i = 0; i < n; i++) gate[i] += ape[i];
}

static void finish_rows(void *ctx, size_t t0, size_t t1)
{
    const project_ctx *x = ctx;
    nb_cpu *f = x->f;
    const nb_attn_config *a = x->a;
    const size_t n = t1 - t0, hd = a->head_dim, nv = x->n_values;
    float *qa = f->qa + t0 * a->q_lora, *kv = f->kv + t0 * nv;
    nb_cpu_norm(f, x->l->q_a_norm, a->eps_lora, qa, a->q_lora, qa, a->q_lora, n, a->q_lora);
    nb_cpu_norm(f, x->l->kv_a_norm, a->eps_lora, kv, nv, kv, nv, n, hd);
    nb_cpu_rope(f, x->layer, f->kv + hd - a->d_rope, t0, t1, 1, nv, hd);
    for (size_t t = t0; a->ratio && t < t1; t++) {
        const size_t j = pos_of(f, x->p, t) % a->ratio;
        add_ape(f->csa.comp + (2 * t + 1) * x->width, x->l->comp.ape + j * x->width, x->width);
        if (a->index_topk)
            add_ape(f->csa.icomp + (2 * t + 1) * x->keys, x->l->idx_comp.ape + j * x->keys,
                    x->keys);
    }
}

static void finish_queries(void *ctx, size_t t0, size_t t1)
{
    const project_ctx *x = ctx;
    nb_cpu *f = x->f;
    const nb_attn_config *a = x->a;
    const size_t hd = a->head_dim, w = a->n_head * hd, iw = a->index_head * a->index_dim;
    for (size_t t = t0; t < t1; t++)
        nb_cpu_norm(f, f->csa.ones, f->r.whole->eps, f->q + t * w, hd, f->q + t * w, hd, a->n_head,
                    hd);
    nb_cpu_rope(f, x->layer, f->q + hd - a->d_rope, t0, t1, a->n_head, w, hd);
    if (!a->index_topk) return;
    const float scale = (float)(1 / sqrt((double)iw));
    nb_cpu_rope(f, x->layer, f->index.q + a->index_dim - a->d_rope, t0, t1, a->index_head, iw,
                a->index_dim);
    for (size_t i = t0 * a->index_head; i < t1 * a->index_head; i++) f->index.w[i] *= scale;
}

static void project(nb_rank *r, nb_pass *p, size_t layer)
{
    nb_cpu *f = nb_cpu_of(r);
    const nb_layer *l = &r->o.model->layer[layer];
    const nb_attn_config *a = nb_rank_attn(r, layer);
    const size_t h = r->whole->hidden, n = p->n_row, w = a->n_head * a->head_dim;
    project_ctx x = { f,
                      p,
                      l,
                      a,
                      layer,
                      nb_csa_values(a),
                      nb_csa_width(a, a->head_dim),
                      nb_csa_width(a, a->index_dim) };
    nb_job job[7];
    size_t k = 0;
    job[k++] = nb_cpu_job(f, &l->q_a, NULL, f->xn, h, f->qa, a->q_lora, n);
    job[k++] = nb_cpu_job(f, &l->kv_a, NULL, f->xn, h, f->kv, x.n_values, n);
    if (a->ratio) {
        float *to = f->csa.comp;
        job[k++] = nb_cpu_job(f, &l->comp.kv, NULL, f->xn, h, to, 2 * x.width, n);
        job[k++] = nb_cpu_job(f, &l->comp.gate, NULL, f->xn, h, to + x.width, 2 * x.width, n);
    }
    if (a->index_topk) {
        float *to = f->csa.icomp;
        job[k++] = nb_cpu_job(f, &l->idx_comp.kv, NULL, f->xn, h, to, 2 * x.keys, n);
        job[k++] = nb_cpu_job(f, &l->idx_comp.gate, NULL, f->xn, h, to + x.keys, 2 * x.keys, n);
        job[k] = nb_cpu_job(f, &l->idx_w, NULL, f->xn, h, f->index.w, a->index_head, n);
        job[k++].v = f->r.plan.linear_float[l->idx_w.type];
    }
    nb_cpu_run_jobs(f, job, k);
    nb_cpu_tokens(f, finish_rows, &x, n);
    k = 0;
    job[k++] = nb_cpu_job(f, &l->q_b, NULL, f->qa, a->q_lora, f->q, w, n);
    if (a->index_topk)
        job[k++] = nb_cpu_job(f, &l->idx_q, NULL, f->qa, a->q_lora, f->index.q,
                              a->index_head * a->index_dim, n);
    nb_cpu_run_jobs(f, job, k);
    nb_cpu_tokens(f, finish_queries, &x, n);
}

/* ---- append ---- */

/* Rounds to BF16, but for f32 records; false: a value is not finite. */
static bool round_row(const nb_record *r, float *x, size_t n)
{
    bool finite = true;
    for (size_t i = 0; i < n; i++) {
        const float v = r->type == NB_KV_F32 ? x[i] : nb_bf16_to_f32(nb_bf16_from_f32(x[i]));
        finite &= isfinite(v) != 0;
        x[i] = v;
    }
    return finite;
}

/* What a compressor reads: kv and gate [2][width] of the chunk's tokens, and the state before. */
typedef struct compressor {
    const csa *x;
    const float *in; /* of the chunk's first token */
    float *state;
    const float *norm;
    size_t width, dim;
} compressor;

/* kv and gate of a token: of the chunk, or of those before it. */
static const float *token(const compressor *c, size_t pos)
{
    const size_t pos0 = c->x->s.c->pos0;
    return pos >= pos0 ? c->in + (pos - pos0) * 2 * c->width
                       : c->state + pos % (2 * NB_CSA_OVERLAP) * 2 * c->width;
}

/* The row of the window of four tokens that ends at pos: first halves of the four before, second halves of its own. */
static void pool_overlap(const compressor *c, size_t pos, float *row)
{
    const float *in[2 * NB_CSA_OVERLAP];
    size_t n = 0;
    for (size_t k = 2 * NB_CSA_OVERLAP; k-- > 0;)
        if (pos >= k) in[n++] = token(c, pos - k) + (k < NB_CSA_OVERLAP ? c->dim : 0);
    for (size_t i = 0; i < c->dim; i++) {
        float m = -INFINITY, l = 0, o = 0;
        for (size_t k = 0; k < n; k++) m = fmaxf(m, in[k][c->width + i]);
        for (size_t k = 0; k < n; k++) {
            const float e = expf(in[k][c->width + i] - m);
            l += e;
            o += e * in[k][i];
        }
        row[i] = o / l;
    }
}

/* Adds a token to the sums of its window; the first begins them. */
static void pool_add(const compressor *c, size_t pos, size_t ratio)
{
    const float *in = token(c, pos);
    float *m = c->state, *l = m + c->dim, *o = l + c->dim;
    const bool first = pos % ratio == 0;
    for (size_t i = 0; i < c->dim; i++) {
        const float v = in[i], g = in[c->width + i];
        if (first || g > m[i]) {
            const float s = first ? 0 : expf(m[i] - g);
            l[i] = first ? 1 : l[i] * s + 1;
            o[i] = first ? v : o[i] * s + v;
            m[i] = g;
        } else {
            const float e = expf(g - m[i]);
            l[i] += e;
            o[i] += e * v;
        }
    }
}

/* The row of the window that ends at pos, normalised, rotated, rounded; false: not finite. */
static bool make_row(const compressor *c, size_t pos, float *row)
{
    const nb_cpu_attn *s = &c->x->s;
    const size_t ratio = s->attn->ratio;
    if (ratio == NB_CSA_OVERLAP)
        pool_overlap(c, pos, row);
    else
        for (size_t i = 0; i < c->dim; i++)
            row[i] = c->state[2 * c->dim + i] / c->state[c->dim + i];
    nb_cpu_norm(s->f, c->norm, s->attn->eps_lora, row, c->dim, row, c->dim, 1, c->dim);
    rotate_row(s->f, s->attn, pos + 1 - ratio, false, row, 1, c->dim);
    return round_row(nb_cpu_record(s), row, c->dim);
}

/* The last tokens of the chunk go to the state of an overlapping compressor. */
static void keep_tokens(const compressor *c)
{
    const nb_chunk *ch = c->x->s.c;
    const size_t n = ch->n_tok < 2 * NB_CSA_OVERLAP ? ch->n_tok : 2 * NB_CSA_OVERLAP;
    for (size_t k = 0; k < n; k++) {
        const size_t pos = ch->pos0 + ch->n_tok - n + k;
        memcpy(c->state + pos % (2 * NB_CSA_OVERLAP) * 2 * c->width, token(c, pos),
               2 * c->width * sizeof *c->state);
    }
}

static bool encode_page(const csa *x, size_t page, const float *rows, uint16_t *half)
{
    const nb_record *r = nb_cpu_record(&x->s);
    unsigned char *to = nb_cpu_page_of(&x->s, page);
    if (r->type == NB_KV_F32) {
        nb_record_store_f32(r, to, rows, r->n_values);
        return true;
    }
    for (size_t k = 0; k < r->n_row * r->n_values; k++) half[k] = nb_bf16_from_f32(rows[k]);
    return x->s.f->r.plan.kv_codec->encode(r, to, half, r->n_values) == NB_OK;
}

/* Where the row that ends at pos is made. */
static float *row_at(const csa *x, size_t pos)
{
    const size_t page = pos / NB_PAGE_TOK - x->s.p0;
    return x->s.own + page * x->row_floats + pos % NB_PAGE_TOK / x->s.attn->ratio * x->n_row;
}

/* A page whose last token is there.  One that no row ends in is zeros. */
static bool close_page(const csa *x, size_t page, uint16_t *half)
{
    const nb_record *r = nb_cpu_record(&x->s);
    if (r->page_bytes == 0) return true;
    if ((page + 1) * NB_PAGE_TOK % x->s.attn->ratio) {
        memset(nb_cpu_page_of(&x->s, page), 0, r->page_bytes);
        return true;
    }
    return encode_page(x, page, x->s.own + (page - x->s.p0) * x->row_floats, half);
}

typedef struct append_ctx {
    nb_cpu *f;
    const nb_pass *p;
    size_t layer;
} append_ctx;

static void append_chunk(void *ctx, size_t i, size_t worker)
{
    const append_ctx *a = ctx;
    nb_cpu *f = a->f;
    if (f->chunk_bad[i]) return;
    const nb_cpu_attn chunk = nb_cpu_attn_of(f, a->p, i, a->layer);
    const csa x = csa_of(&chunk);
    const nb_cpu_attn *s = &x.s;
    const nb_attn_config *attn = s->attn;
    const size_t nv = x.n_row, hd = attn->head_dim, ratio = attn->ratio;
    const size_t width = nb_csa_width(attn, hd), keys = nb_csa_width(attn, attn->index_dim);
    uint16_t *half = (uint16_t *)(void *)(f->w_page + worker * NB_PAGE_TOK * f->max_values);
    const compressor c = {
        &x, f->csa.comp + s->t0 * 2 * width, x.state + x.at.comp, s->l->comp.norm, width, hd
    };
    const compressor ic = { &x,
                            f->csa.icomp + s->t0 * 2 * keys,
                            x.state + x.at.idx_comp,
                            s->l->idx_comp.norm,
                            keys,
                            attn->index_dim };
    bool ok = true;
    if (s->own != s->tail && ratio) /* rows of the open page */
        memcpy(s->own, s->tail, s->in0 / ratio * nv * sizeof *s->own);
    for (size_t t = 0; t < s->c->n_tok && ok; t++) {
        const size_t pos = s->c->pos0 + t;
        ok = round_row(nb_cpu_record(s), f->kv + (s->t0 + t) * nv, hd);
        if (ratio > NB_CSA_OVERLAP) pool_add(&c, pos, ratio);
        if (ratio && (pos + 1) % ratio == 0) {
            float *row = row_at(&x, pos);
            ok = ok && make_row(&c, pos, row);
            if (attn->index_topk) ok = ok && make_row(&ic, pos, row + hd);
        }
        if ((pos + 1) % NB_PAGE_TOK == 0) ok = ok && close_page(&x, pos / NB_PAGE_TOK, half);
    }
    if (ratio == NB_CSA_OVERLAP) keep_tokens(&c);
    if (attn->index_topk) keep_tokens(&ic);
    f->csa.bad[i] = !ok;
}

static void append(nb_rank *r, nb_pass *p, size_t layer)
{
    nb_cpu *f = nb_cpu_of(r);
    append_ctx x = { f, p, layer };
    memset(f->csa.bad, 0, p->n_chunk);
    nb_dev_run(r->o.dev, append_chunk, &x, p->n_chunk);
    for (size_t i = 0; i < p->n_chunk; i++) {
        const nb_chunk *c = &p->chunk[i];
        if (!f->csa.bad[i]) continue;
        if (f->n_bad++ == 0)
            (void)nb_fail(
                f->err, NB_ERR_NONFINITE,
                "layer %zu: a value to be stored in the KV cache (positions %zu to %zu) is not finite",
                layer, c->pos0, c->pos0 + c->n_tok - 1);
        f->chunk_bad[i] = 1;
    }
}

/* ---- attend ---- */

/* Segment seg of compressed rows [w, w + n) as a query in page `page` reads them, decoded or as they were made:
 * out [n][stride]. */
static void read_rows(const csa *x, size_t page, size_t w, size_t n, size_t seg, float *out, size_t stride)
{
    const nb_record *r = nb_cpu_record(&x->s);
    const nb_record_seg *g = &r->seg[seg];
    for (size_t i = 0, m; i < n; i += m) {
        const size_t last = (w + i + 1) * x->s.attn->ratio - 1, in = last / NB_PAGE_TOK;
        const size_t row = last % NB_PAGE_TOK / x->s.attn->ratio;
        m = 1;
        if (in >= page) {
            memcpy(out + i * stride, row_at(x, last) + g->first, g->dim * sizeof *out);
            continue;
        }
        m = n - i < r->n_row - row ? n - i : r->n_row - row;
        x->s.f->r.plan.kv_codec->decode(r, nb_cpu_page_of(&x->s, in), seg, row, m, out + i * stride,
                                        stride);
    }
}

static const float *keys_of(const nb_cpu_attn *s, size_t page, size_t k0, size_t n, size_t worker, size_t *stride)
{
    const csa x = csa_of(s);
    float *rows = s->f->w_page + worker * NB_PAGE_TOK * s->f->max_values;
    *stride = s->attn->index_dim;
    read_rows(&x, page, k0, n, NB_INDEX_SEG, rows, *stride);
    return rows;
}

/* Row of the window at pos: of this chunk, or of the tokens before. */
static const float *window_row(const csa *x, size_t pos)
{
    const nb_cpu_attn *s = &x->s;
    return pos >= s->c->pos0 ? s->f->kv + (s->t0 + pos - s->c->pos0) * x->n_row
                             : x->state + pos % s->attn->window * s->attn->head_dim;
}

/* Some queries against their rows, heads divided into blocks. */
typedef struct attend_ctx {
    const csa *x;
    size_t chunk, n_block, block; /* blocks of so many heads */
} attend_ctx;

/* A head's sink: weight without a value. */
static void add_sink(float sink, float *o, float *m, float *l, size_t n)
{
    if (sink > *m) {
        const float s = expf(*m - sink);
        for (size_t i = 0; i < n; i++) o[i] *= s;
        *l = *l * s + 1;
        *m = sink;
    } else {
        *l += expf(sink - *m);
    }
}

static void attend_query(void *ctx, size_t task, size_t worker)
{
    const attend_ctx *y = ctx;
    const csa *x = y->x;
    const nb_cpu_attn *s = &x->s;
    nb_cpu *f = s->f;
    const nb_attn_config *a = s->attn;
    const size_t tok = task / y->n_block, pos = s->c->pos0 + tok;
    const size_t hd = a->head_dim, nh = a->n_head, h0 = task % y->n_block * y->block;
    const size_t h1 = h0 + y->block < nh ? h0 + y->block : nh;
    const nb_index_row at_row = { y->chunk, tok, s->t0 + tok };
    const size_t n_all = a->ratio ? nb_index_n_key(a, pos) : 0;
    const uint32_t *pick = a->index_topk && n_all > a->index_topk ? nb_index_chosen(f, a, &at_row) : NULL;
    const size_t n_comp = pick ? a->index_topk : n_all;
    const size_t n_win = pos + 1 < a->window ? pos + 1 : a->window, n_row = n_comp + n_win;
    float *q = f->q + (s->t0 + tok) * nh * hd;
    float *rows = f->csa.w_row + worker * NB_ATTN_TILE * f->csa.max_dim;
    float *o = f->csa.w_state + worker * f->csa.max_state, *m = o + nh * hd, *l = m + nh;
    nb_cpu_reset(m + h0, l + h0, h1 - h0);
    nb_attn_args args = { .o = o,
                          .m = m,
                          .l = l,
                          .q = q,
                          .k1 = rows,
                          .k2 = rows,
                          .v = rows,
                          .n_q = 1,
                          .head_begin = h0,
                          .head_end = h1,
                          .group = nh,
                          .d1 = hd,
                          .d_v = hd,
                          .q_q_stride = nh * hd,
                          .o_q_stride = nh * hd,
                          .ml_q_stride = nh,
                          .k1_stride = hd,
                          .v_stride = hd,
                          .scale = a->softmax_scale };
    for (size_t k0 = 0; k0 < n_row; k0 += NB_ATTN_TILE) {
        const size_t n = n_row - k0 < NB_ATTN_TILE ? n_row - k0 : NB_ATTN_TILE;
        for (size_t k = 0; k < n; k++) {
            const size_t at = k0 + k;
            float *row = rows + k * hd;
            if (at >= n_comp) {
                memcpy(row, window_row(x, pos + 1 - n_win + at - n_comp), hd * sizeof *row);
                continue;
            }
            const size_t w = pick ? pick[at] : at;
            read_rows(x, pos / NB_PAGE_TOK, w, 1, 0, row, hd);
            read_rows(x, pos / NB_PAGE_TOK, w, 1, 1, row + hd - a->d_rope, hd);
        }
        args.n_kv = args.vis0 = n;
        f->r.plan.attn->fn(&args);
    }
    for (size_t h = h0; h < h1; h++) add_sink(s->l->sink[h], o + h * hd, m + h, l + h, hd);
    nb_attn_finish(q + h0 * hd, o + h0 * hd, l + h0, h1 - h0, hd);
    rotate_row(f, a, pos, true, q + h0 * hd, h1 - h0, hd);
}

/* The open page and the window after the chunk. */
static void keep_state(const csa *x)
{
    const nb_cpu_attn *s = &x->s;
    const nb_attn_config *a = s->attn;
    const nb_chunk *c = s->c;
    const size_t n = c->n_tok < a->window ? c->n_tok : a->window, hd = a->head_dim;
    for (size_t pos = c->pos0 + c->n_tok - n; pos < c->pos0 + c->n_tok; pos++)
        memcpy(x->state + pos % a->window * hd, s->f->kv + (s->t0 + pos - c->pos0) * x->n_row,
               hd * sizeof *s->tail);
    if (s->own != s->tail && a->ratio)
        memcpy(s->tail, s->own + s->n_end / NB_PAGE_TOK * x->row_floats,
               s->n_end % NB_PAGE_TOK / a->ratio * x->n_row * sizeof *s->tail);
}

static void attend_chunk(nb_cpu *f, const nb_pass *p, size_t i, size_t layer)
{
    const nb_cpu_attn s = nb_cpu_attn_of(f, p, i, layer);
    const csa x = csa_of(&s);
    const size_t nw = nb_dev_n_worker(f->r.o.dev), nh = s.attn->n_head, n = s.c->n_tok;
    /* heads are divided where there are fewer queries than workers: each head's sums stay as they are */
    const size_t want = n < nw ? (nw + n - 1) / n : 1;
    attend_ctx y = { .x = &x, .chunk = i, .block = (nh + want - 1) / want };
    y.n_block = (nh + y.block - 1) / y.block;
    nb_dev_run(f->r.o.dev, attend_query, &y, n * y.n_block);
    keep_state(&x);
}

/* The groups' products: f->attn from the heads' outputs, which are in f->q. */
static void group_outputs(nb_cpu *f, const nb_pass *p, size_t layer)
{
    const nb_layer *l = &f->r.o.model->layer[layer];
    const nb_attn_config *a = nb_rank_attn(&f->r, layer);
    const size_t w = a->n_head * a->head_dim, part = w / a->o_group;
    for (size_t g = 0; g < a->o_group; g++) {
        nb_job j = nb_cpu_job(f, &l->o_a, NULL, f->q + g * part, w, f->attn + g * a->o_lora,
                              a->o_group * a->o_lora, p->n_row);
        f->job[g] = nb_cpu_rows(j, g * a->o_lora, a->o_lora);
    }
    nb_cpu_run_jobs(f, f->job, a->o_group);
}

static void attend(nb_rank *r, nb_pass *p, size_t layer)
{
    nb_cpu *f = nb_cpu_of(r);
    if (nb_rank_attn(r, layer)->index_topk) nb_index_choose(f, p, layer, keys_of);
    for (size_t i = 0; i < p->n_chunk; i++)
        if (!f->chunk_bad[i]) attend_chunk(f, p, i, layer);
    for (size_t i = 0; f->n_bad && i < p->n_chunk;
         i++) { /* goes on as zeros, so that all stays finite */
        const size_t w = nb_rank_attn(r, layer)->n_head * nb_rank_attn(r, layer)->head_dim;
        if (!f->chunk_bad[i]) continue;
        memset(f->q + f->place[i].tok0 * w, 0, p->chunk[i].n_tok * w * sizeof *f->q);
        nb_cpu_blank(f, p, i);
    }
    group_outputs(f, p, layer);
}

const nb_cpu_kind nb_cpu_kind_csa = { .ops = { project, append, attend } };
