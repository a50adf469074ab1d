/* gpu_buffers.c - sizes of the largest pass on a GPU, and one allocation for all its buffers: see gpu_buffers.h. */
#include "model/gpu/gpu_buffers.h"

#include <string.h>

enum {
    ALIGN = 256,
    PART_BYTES = 512 << 20,  /* of attention states in one pass, unless one query needs more */
    SCORE_BYTES = 256 << 20, /* of scores at once, in Thrift mode, unless one query needs more */
    WIDE_HEADS = 32          /* from here on half of the context is expanded at once */
};

static size_t round8(size_t n)
{
    return (n + 7) / 8 * 8;
}

/* ---- the widest layer ---- */

/* What a token takes, in the layer that takes most: all heads together. */
typedef struct widths {
    size_t heads, q, o, state, q_lora;
    size_t all_o; /* o of all ranks */
    size_t absorbed, nope, latent, v; /* MLA: absorbed queries; parts of queries; sums; outputs */
    bool mla, two_parts;
} widths;

static widths widths_of(const nb_gpu_rank *f)
{
    widths w = { 0 };
    for (size_t i = 0; i < f->r.whole->n_layer; i++) {
        const nb_attn_dims *d = nb_rank_dims(&f->r, i);
        const nb_attn_config *a = nb_rank_attn(&f->r, i);
        w.heads = nb_most(w.heads, d->n_head);
        w.q = nb_most(w.q, d->n_head * d->d_q);
        w.o = nb_most(w.o, d->n_head * d->d_o);
        w.all_o = nb_most(w.all_o, nb_layer_dims(f->r.whole, i).n_head * d->d_o);
        w.state = nb_most(w.state, d->n_head * d->d_state);
        if (a->kind == NB_ATTN_CSA) w.q_lora = nb_most(w.q_lora, a->q_lora);
        if (!nb_attn_is_latent(a)) continue;
        w.mla = true;
        w.q_lora = nb_most(w.q_lora, a->q_lora);
        w.absorbed = nb_most(w.absorbed, d->n_head * (a->kv_lora + a->d_rope));
        w.nope = nb_most(w.nope, d->n_head * a->d_nope);
        w.latent = nb_most(w.latent, d->n_head * a->kv_lora);
        w.v = nb_most(w.v, d->n_head * a->d_v);
        w.two_parts |= nb_gpu_in_two_parts(&f->r.o.model->layer[i].kv_b, a);
    }
    return w;
}

/* ---- buffers ---- */

enum { MAX_SLOTS = 100 };

typedef struct slots {
    nb_gpu_slot s[MAX_SLOTS];
    size_t n;
} slots;

static void want(slots *l, void *at, size_t n, size_t size)
{
    NB_ASSERT(l->n < MAX_SLOTS);
    l->s[l->n++] = (nb_gpu_slot){ at, (n * size + ALIGN - 1) / ALIGN * ALIGN };
}

/* Whether products of some kind read two parts. */
static bool two_parts(const nb_gpu_rank *f)
{
    return (f->direct && f->acts[NB_CUDA_DIRECT] == NB_ACT_FLOAT) ||
           (f->prompt && f->acts[NB_CUDA_PROMPT] == NB_ACT_FLOAT);
}

/* n rows that enter products: parts, and floats where some product reads these. */
static void want_rows(slots *l, const nb_gpu_rank *f, nb_cuda_rows *r, size_t n, size_t width)
{
    r->stride = round8(width);
    if (f->w.floats) want(l, &r->f, n * r->stride, sizeof(float));
    want(l, &r->hi, n * r->stride, 2);
    if (two_parts(f)) want(l, &r->lo, n * r->stride, 2);
}

static bool has_moe(const nb_model_config *c)
{
    for (size_t i = 0; i < c->n_layer; i++)
        if (nb_layer_has_experts(c, i)) return true;
    return false;
}

/* With experts in host memory the floats are there, and room for their choices behind them.  Routers and indexers read two parts. */
static void want_normalised(slots *l, nb_gpu_rank *f, size_t n)
{
    const size_t choice = f->w.host ? 2 * f->r.whole->top_k : 0;
    f->xn.stride = round8(f->r.whole->hidden);
    if (f->w.floats || f->w.host) want(l, &f->xn.f, n * (f->xn.stride + choice), sizeof(float));
    want(l, &f->xn.hi, n * f->xn.stride, 2);
    if (two_parts(f) || has_moe(f->r.whole) || f->sparse.any) want(l, &f->xn.lo, n * f->xn.stride, 2);
}

/* R rows of a pass; `rows` places of experts. */
static void want_ranks(slots *l, nb_gpu_rank *f, const widths *w, size_t R, size_t rows)
{
    const nb_model_config *c = f->r.whole;
    const nb_rank_part *part = &f->r.part;
    const bool moe = has_moe(c);
    nb_gpu_inputs *x = &f->x[0];
    if (f->ranks.n > 1) want(l, &f->ranks.meeting, 1, sizeof *f->ranks.meeting);
    if (f->r.o.data_parallel && moe) {
        f->ranks.all.max_row[NB_CUDA_DIRECT] = R;
        f->ranks.all.max_row[NB_CUDA_PROMPT] = f->T;
        want_rows(l, f, &f->ranks.all.xn[0], R + nb_gpu_share_rows(&f->r), c->hidden);
        want(l, &f->ranks.all.id, rows, sizeof(uint32_t));
    }
    if (f->ranks.divided) {
        f->ranks.stride = round8(part->n_out);
        want_rows(l, f, &x->heads, R, w->all_o);
        want_rows(l, f, &x->hidden, R, nb_most(c->inter, moe ? c->n_shared * c->moe_inter : 0));
        want(l, &f->ranks.out, R * f->ranks.stride, sizeof(float));
        want(l, &f->ranks.sum, R * f->ranks.stride, sizeof(float));
    }
}

static void want_experts(slots *l, nb_gpu_rank *f, size_t R, size_t rows)
{
    const nb_model_config *c = f->r.whole;
    want_rows(l, f, &f->x[0].e_act, rows, c->moe_inter);
    want(l, &f->e_y, rows * (f->w.apart ? nb_most(c->hidden, nb_gpu_apart_width(c)) : c->hidden), sizeof(float));
    want(l, &f->r_logits, R * nb_n_choice(c), sizeof(float));
    want(l, &f->r_weight, rows, sizeof(float));
    want(l, &f->r_id, rows, sizeof(uint32_t));
    want(l, &f->r_src, rows, sizeof(uint32_t));
    want(l, &f->r_place, rows, sizeof(uint32_t));
    want(l, &f->r_first, nb_n_choice(c) + 1, sizeof(uint32_t));
}

static void want_common(slots *l, nb_gpu_rank *f, const widths *w)
{
    const nb_model_config *c = f->r.whole;
    const nb_rank_part *part = &f->r.part;
    const bool moe = has_moe(c);
    nb_gpu_inputs *x = &f->x[0];
    const size_t R = nb_most(f->prompt ? f->T : 0, f->direct ? f->D + NB_GPU_PAD_ROWS : 0);
    const size_t inter = nb_most(part->inter, moe ? part->shared_inter : 0);
    const size_t rows = moe ? (R + nb_gpu_share_rows(&f->r)) * c->top_k : 0;
    want(l, &f->h, f->h_rows * nb_gpu_h_width(f), sizeof(float));
    want(l, &f->branch, R * c->hidden, sizeof(float));
    want(l, &f->in, R * f->in_width, sizeof(float));
    for (size_t k = 0; k < c->n_attn; k++) {
        const size_t dim = c->attn[k].rope.dim;
        want(l, &f->cos_sin[k], R * dim, sizeof(float));
        if (c->attn[k].q_beta != 0) want(l, &f->q_scale[k], R, sizeof(float));
        want(l, &f->inv_freq[k], dim / 2, sizeof(float));
        want(l, &f->inv_freq_long[k], dim / 2, sizeof(float));
    }
    want(l, &f->gate_up, R * 2 * inter, sizeof(float));
    want_normalised(l, f, nb_most(R, f->logit_rows));
    want_rows(l, f, &x->attn_y, R, w->o);
    want_rows(l, f, &x->act, R, inter);
    want_ranks(l, f, w, R, rows);
    if (w->q_lora) {
        want_rows(l, f, &x->qa, R, w->q_lora);
        want(l, &f->q, R * w->q, sizeof(float));
    }
    if (moe) want_experts(l, f, R, rows);
    want(l, &f->own, f->max_own * NB_PAGE_TOK * f->max_values, sizeof(float));
    want(l, &f->bad, f->r.o.max_tok + f->r.o.max_seq + NB_GPU_PAD_ROWS, sizeof(uint32_t));
    want(l, &f->saturated, 1, sizeof(uint64_t));
    want(l, &f->logits, f->logit_rows * part->n_vocab, sizeof(float));
    want(l, &f->l_row, f->logit_rows, sizeof(uint32_t));
    want(l, &f->l_id, f->logit_rows, sizeof(uint32_t));
    want(l, &f->l_sample, f->logit_rows, sizeof *f->l_sample);
    want(l, &f->l_scratch, f->logit_rows, NB_CUDA_SAMPLE_SCRATCH(part->n_vocab));
}

static void want_thrift(slots *l, nb_gpu_rank *f, const widths *w)
{
    const size_t R = f->D + NB_GPU_PAD_ROWS, nh = w->heads;
    if (!f->thrift) return;
    f->t_stride = f->max_block * NB_PAGE_TOK;
    f->t_rows = nb_most(1, nb_least(R, SCORE_BYTES / (nh * f->t_stride * sizeof(float))));
    f->pick.first_stride = f->max_block + 1;
    f->pick.tok_stride = nb_most(1, nb_thrift_token_cap(f->r.o.thrift.fraction, f->t_stride));
    want(l, &f->pick.n, R, sizeof(uint32_t));
    want(l, &f->pick.first, R * f->pick.first_stride, sizeof(uint32_t));
    want(l, &f->pick.tok, R * f->pick.tok_stride, sizeof(uint32_t));
    want(l, &f->t_score, f->t_rows * nh * f->t_stride, sizeof(float));
    want(l, &f->t_best, f->t_rows * f->t_stride, sizeof(float));
    want(l, &f->t_lse, f->t_rows * nh, sizeof(float));
    want(l, &f->t_count, NB_GPU_COUNTS, sizeof(uint64_t));
}

/* Of the layer's attention over pages, for n rows. */
static size_t scratch_of(const nb_gpu_rank *f, size_t layer, size_t n)
{
    const nb_record r = nb_gpu_attn_record(f, layer);
    return f->attn[layer]->scratch(&r, nb_rank_dims(&f->r, layer)->n_head, n);
}

static void want_direct(slots *l, nb_gpu_rank *f, const widths *w)
{
    const size_t R = f->D + NB_GPU_PAD_ROWS;
    size_t scratch = 0;
    if (!f->direct) return;
    want(l, &f->part_o, f->max_part * w->state, sizeof(float));
    want(l, &f->part_m, f->max_part * w->heads, sizeof(float));
    want(l, &f->part_l, f->max_part * w->heads, sizeof(float));
    if (!w->mla) return;
    want(l, &f->qx, R * w->absorbed, sizeof(float));
    want_rows(l, f, &f->x[0].q_nope, R, w->nope);
    want_rows(l, f, &f->x[0].u, R, w->latent);
    for (size_t i = 0; i < f->r.whole->n_layer; i++)
        if (f->attn[i])
            scratch = nb_most(
                scratch, scratch_of(f, i, R));
    want(l, &f->attn_scratch, scratch, 1);
    if (w->two_parts) want(l, &f->unabsorbed, R * w->v, sizeof(float));
}

static void want_streams(slots *l, nb_gpu_rank *f)
{
    const size_t s = f->r.whole->n_stream, n = nb_most(nb_most(f->prompt ? f->T : 0, f->D + NB_GPU_PAD_ROWS), f->logit_rows);
    if (!s) return;
    want(l, &f->stream_w, n * (s + s * s), sizeof(float));
    want(l, &f->stream_part, n * NB_CUDA_MIX_SLICES(f->r.whole->hidden) * NB_CUDA_MIX_SUMS(s), sizeof(float));
}

static void want_compressed(slots *l, nb_gpu_rank *f)
{
    nb_gpu_slot s[NB_GPU_CSA_SLOTS];
    const size_t rows = nb_most(f->prompt ? f->T : 0, f->D + NB_GPU_PAD_ROWS);
    const size_t n = nb_gpu_csa_slots(f, rows, s);
    for (size_t i = 0; i < n; i++) want(l, s[i].at, s[i].n_bytes, 1);
    if (n) want_rows(l, f, &f->csa.y, rows, f->csa.out_width);
}

static void want_sparse(slots *l, nb_gpu_rank *f)
{
    nb_gpu_slot s[NB_GPU_DSA_SLOTS];
    const size_t n = nb_gpu_dsa_slots(f, nb_most(f->prompt ? f->T : 0, f->D + NB_GPU_PAD_ROWS), s);
    for (size_t i = 0; i < n; i++) want(l, s[i].at, s[i].n_bytes, 1);
}

/* One kind of attention in all layers: nb_rank_can_compute.  Sparse attention has no expanded form. */
static void want_prompt(slots *l, nb_gpu_rank *f)
{
    const nb_attn_config *attn = nb_rank_attn(&f->r, 0);
    const size_t nh = attn->n_head, own = (f->T / NB_PAGE_TOK + 2) * NB_PAGE_TOK;
    const size_t width = round8(nh * (attn->d_nope + attn->d_v));
    if (!f->prompt || f->sparse.any || f->csa.any) return;
    want_rows(l, f, &f->x[0].lat, nb_most(own, f->span_tok), attn->kv_lora);
    f->rope.stride = f->rope_own.stride = round8(attn->d_rope);
    want(l, &f->rope.hi, f->span_tok * f->rope.stride, 2);
    want(l, &f->rope_own.hi, own * f->rope.stride, 2);
    want(l, &f->kv_ctx, f->span_tok * width, 2);
    want(l, &f->kv_own, own * width, 2);
    want(l, &f->pm, f->T * nh, sizeof(float));
    want(l, &f->pl, f->T * nh, sizeof(float));
    want(l, &f->po, f->T * nh * attn->d_v, sizeof(float));
}

/* The buffers as the products of a kind read them. */
static nb_gpu_inputs inputs_of(const nb_gpu_rank *f, nb_cuda_kind kind)
{
    nb_gpu_inputs x = f->x[0];
    nb_cuda_rows *const all[] = { &x.xn,     &x.qa,  &x.q_nope, &x.u,
                                  &x.attn_y, &x.act, &x.e_act,  &x.lat,
                                  &x.heads,  &x.hidden };
    x.xn = f->xn;
    if (!f->ranks.divided) {
        x.heads = x.attn_y;
        x.hidden = x.act;
    }
    for (size_t i = 0; i < NB_COUNT(all) && f->acts[kind] != NB_ACT_FLOAT; i++) all[i]->lo = NULL;
    return x;
}

/* The largest x of a prompt's products, as codes. */
static void want_codes(slots *l, nb_gpu_rank *f, const widths *w)
{
    const nb_model_config *c = f->r.whole;
    const nb_gpu_inputs *x = &f->x[0];
    const size_t places = has_moe(c) ? (f->T + nb_gpu_share_rows(&f->r)) * c->top_k : 0;
    if (!f->prompt || f->acts[NB_CUDA_PROMPT] != NB_ACT_FP8) return;
    size_t width = nb_most(nb_most(nb_most(w->all_o, w->q_lora), f->csa.out_width),
                            nb_most(f->xn.stride, nb_most(x->act.stride, x->hidden.stride)));
    size_t n = (f->T + nb_gpu_share_rows(&f->r)) * nb_div_up(width, 128); /* groups */
    n = nb_most(n, places * nb_div_up(c->moe_inter, 128));
    n = nb_most(n, nb_most((f->T / NB_PAGE_TOK + 2) * NB_PAGE_TOK, f->span_tok) * nb_div_up(x->lat.stride, 128));
    want(l, &f->xq.q, n, 128);
    want(l, &f->xq.s, n, sizeof(float));
}

nb_status nb_gpu_allocate(nb_gpu_rank *f, nb_error *err)
{
    const widths w = widths_of(f);
    slots l = { .n = 0 };
    size_t n_bytes = 0;
    want_common(&l, f, &w);
    want_direct(&l, f, &w);
    want_thrift(&l, f, &w);
    want_sparse(&l, f);
    want_streams(&l, f);
    want_compressed(&l, f);
    want_prompt(&l, f);
    want_codes(&l, f, &w);
    for (size_t i = 0; i < l.n; i++) n_bytes += l.s[i].n_bytes;
    f->work = f->api->alloc(f->g, n_bytes);
    if (!f->work)
        return nb_fail(err, NB_ERR_NOMEM,
                       "the GPU has no memory for a workspace of %zu MiB (a smaller "
                       "--max-num-batched-tokens needs less)",
                       n_bytes >> 20);
    f->work_bytes += n_bytes;
    char *p = f->work;
    for (size_t i = 0; i < l.n; i++) {
        memcpy(l.s[i].at, &p, sizeof p); /* pointers to other types */
        p += l.s[i].n_bytes;
    }
    f->api->fill(f->g, f->work, 0, n_bytes);
    for (size_t k = 2; k-- > 0;) {
        f->x[k] = inputs_of(f, (nb_cuda_kind)k);
        f->ranks.all.xn[k] = f->ranks.all.xn[0];
        if (f->acts[k] != NB_ACT_FLOAT) f->ranks.all.xn[k].lo = NULL;
    }
    return NB_OK;
}

/* ---- sizes ---- */

void nb_gpu_size(nb_gpu_rank *f)
{
    const widths w = widths_of(f);
    size_t states = 1;
    for (size_t i = 0; i < f->r.whole->n_layer; i++) {
        f->max_values = nb_most(f->max_values, nb_rank_dims(&f->r, i)->n_values);
        f->in_width = nb_most(f->in_width, f->w.layer[i].in.width);
    }
    f->max_block = nb_div_up(f->r.o.max_pos, NB_PAGE_TOK);
    f->T = f->csa.any ? nb_least(f->r.o.max_tok, NB_GPU_CSA_TOK) : f->r.o.max_tok;
    f->D = nb_most(f->r.o.max_seq, nb_least(f->T, NB_GPU_DIRECT_TOK));
    f->h_rows = f->r.o.max_tok + NB_GPU_PAD_ROWS + (f->r.o.data_parallel ? f->D : 0); /* a graph has another rank's rows */
    nb_gpu_index_size(f);
    const size_t sparse = nb_gpu_dsa_states(f), compressed = nb_gpu_csa_states(f);
    for (size_t i = 0; i < f->n_set; i++)
        states = nb_most(states, nb_cuda_n_unit(f->set[i].units, f->max_block) + 1);
    if (sparse) states = sparse;
    if (compressed) states = compressed;
    const size_t fit = PART_BYTES / (w.state * sizeof(float));
    f->max_part = nb_most(states, nb_least(fit, (f->D + NB_GPU_PAD_ROWS) * states));
    f->max_own = f->T / NB_PAGE_TOK + 2 * nb_least(f->r.o.max_seq, f->T / 2 + 1) + 2;
    f->span_tok = w.heads > WIDE_HEADS ? NB_GPU_SPAN_TOK / 2 : NB_GPU_SPAN_TOK;
    f->logit_rows = nb_least(f->r.o.max_tok, NB_GPU_LOGIT_ROWS);
    nb_gpu_dsa_size(f);
    nb_gpu_csa_size(f);
}
