/* gpu_weights.c - uploads a model's weights layer by layer: see gpu_weights.h. */
#include "model/gpu/gpu_weights.h"

#include <stdlib.h>
#include <string.h>

#include "model/attn_csa.h"
#include "model/backend.h"
#include "model/gpu/gpu_upload.h"

/* ---- experts ---- */

/* Matrix k of a run's experts, one below the other. */
static nb_status stack_run(nb_uploader *u, const nb_mlp *expert, nb_gpu_run *r, size_t k)
{
    const nb_weight **src = calloc(r->n, sizeof *src);
    if (!src) return nb_fail(u->err, NB_ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < r->n; i++)
        src[i] = nb_gpu_expert_mat(&expert[nb_gpu_expert_of(u->part, r->first + i)], k);
    const nb_status st = nb_up_stack(u, src, r->n, &r->w[k]);
    free(src);
    return st;
}

static nb_status upload_experts(nb_uploader *u, const nb_layer *l, nb_gpu_layer *g)
{
    g->host = false;
    for (size_t i = 0; i < g->expert.n_run; i++)
        for (size_t k = 0; k < NB_GPU_EXPERT_MATS; k++)
            NB_TRY(stack_run(u, l->expert, &g->expert.run[i], k));
    return NB_OK;
}

static nb_status experts(nb_uploader *u, size_t layer, nb_gpu_layer *g)
{
    nb_gpu_experts *e = &g->expert;
    nb_gpu_weights *w = u->w;
    const nb_layer *l = &u->m->layer[layer];
    const nb_gpu_row_limits limits = { nb_gpu_api(w->gpu)->experts, u->cc, { u->use[0], u->use[1] }, u->codes };
    NB_TRY(nb_gpu_runs_init(e, l->expert, layer, u->part, &limits, &w->arena, u->err));
    w->floats |= e->floats;
    w->apart |= e->apart;
    if (g->host)
        w->upload &= nb_gpu_runs_can_send(e);
    else
        NB_TRY(upload_experts(u, l, g));
    NB_TRY(nb_up_matrix(u, "mlp.gate", &l->router, NULL, nb_up_all(&l->router), &g->router));
    return nb_up_vector(u, l->router_b, nb_n_choice(&u->m->c), &g->router_b);
}

/* ---- layers ---- */

static nb_status upload_gqa(nb_uploader *u, const nb_attn_config *attn, size_t head0, const nb_layer *l,
                            nb_gpu_layer *g)
{
    const nb_up_rows part[] = { nb_up_heads(attn, head0, attn->head_dim), nb_up_all(&l->k), nb_up_all(&l->v) };
    const nb_weight *const src[] = { &l->q, &l->k, &l->v };
    const float *const bias[] = { l->q_b_bias, l->k_b, l->v_b };
    NB_TRY(nb_up_vector(u, l->q_norm, attn->head_dim, &g->q_norm));
    NB_TRY(nb_up_vector(u, l->k_norm, attn->head_dim, &g->k_norm));
    return nb_up_group(u, "q_proj, k_proj, v_proj", src, bias, part, 3, &g->in);
}

/* Latent attention, and the keys of an indexer (NULL: none). */
static nb_status upload_latent(nb_uploader *u, const nb_attn_config *attn, size_t head0, const nb_layer *l,
                               const nb_weight *index_k, nb_gpu_layer *g)
{
    const nb_up_rows q = nb_up_heads(attn, head0, attn->d_nope + attn->d_rope);
    const nb_up_rows part[] = { attn->q_lora ? nb_up_all(&l->q_a) : q, nb_up_all(&l->kv_a),
                          index_k ? nb_up_all(index_k) : (nb_up_rows){ 0, 0 } };
    const nb_weight *const src[] = { attn->q_lora ? &l->q_a : &l->q, &l->kv_a, index_k };
    const float *const bias[] = { attn->q_lora ? l->q_a_b : NULL, l->kv_a_b, NULL };
    NB_TRY(nb_up_group(u, index_k ? "q_a_proj, kv_a_proj, indexer.wk" : "q_proj, kv_a_proj", src, bias, part,
                 index_k ? 3 : 2, &g->in));
    NB_TRY(nb_up_vector(u, l->q_a_norm, attn->q_lora, &g->q_a_norm));
    NB_TRY(nb_up_vector(u, l->kv_a_norm, attn->kv_lora, &g->kv_a_norm));
    NB_TRY(nb_up_vector(u, l->kv_mean, attn->kv_lora, &g->mean));
    NB_TRY(nb_up_vector(u, l->rope_k, attn->d_rope, &g->rope_k));
    NB_TRY(nb_up_vector(u, l->rope_q, attn->d_rope, &g->rope_q));
    if (attn->q_lora) NB_TRY(nb_up_matrix(u, "q_b_proj", &l->q_b, NULL, q, &g->q_b));
    return nb_up_kv_b(u, attn, head0, l, g);
}

static nb_status upload_mla(nb_uploader *u, const nb_attn_config *attn, size_t head0, const nb_layer *l,
                            nb_gpu_layer *g)
{
    return upload_latent(u, attn, head0, l, NULL, g);
}

/* Every rank has the whole indexer. */
static nb_status upload_dsa(nb_uploader *u, const nb_attn_config *attn, size_t head0, const nb_layer *l,
                            nb_gpu_layer *g)
{
    NB_TRY(upload_latent(u, attn, head0, l, attn->index_shared ? NULL : &l->index_k, g));
    if (attn->index_shared) return NB_OK;
    NB_TRY(nb_up_vector(u, l->index_norm, attn->index_dim, &g->index_norm));
    NB_TRY(nb_up_vector(u, l->index_norm_b, attn->index_dim, &g->index_norm_b));
    NB_TRY(nb_up_matrix(u, "indexer.wq_b", &l->index_q, NULL, nb_up_all(&l->index_q), &g->index_q));
    return nb_up_matrix(u, "indexer.weights_proj", &l->index_w, NULL, nb_up_all(&l->index_w), &g->index_w);
}

static nb_status upload_csa(nb_uploader *u, const nb_attn_config *a, size_t head0, const nb_layer *l, nb_gpu_layer *g)
{
    const nb_weight *const in[] = { &l->q_a, &l->kv_a };
    const nb_weight *const comp[] = { &l->comp.kv, &l->comp.gate, &l->idx_comp.kv, &l->idx_comp.gate };
    const float *const none[NB_GPU_JOIN] = { NULL };
    const nb_up_rows in_rows[] = { nb_up_all(in[0]), nb_up_all(in[1]) };
    const nb_up_rows comp_rows[] = { nb_up_all(comp[0]), nb_up_all(comp[1]), nb_up_all(comp[2]), nb_up_all(comp[3]) };
    const size_t keys = nb_csa_width(a, a->index_dim);
    (void)head0; /* one rank */
    NB_TRY(nb_up_group(u, "q_a_proj, kv_proj", in, none, in_rows, 2, &g->in));
    NB_TRY(nb_up_vector(u, l->q_a_norm, a->q_lora, &g->q_a_norm));
    NB_TRY(nb_up_vector(u, l->kv_a_norm, a->head_dim, &g->kv_a_norm));
    NB_TRY(nb_up_vector(u, l->sink, a->n_head, &g->sink));
    NB_TRY(nb_up_matrix(u, "q_b_proj", &l->q_b, NULL, nb_up_all(&l->q_b), &g->q_b));
    NB_TRY(nb_up_matrix(u, "o_a_proj", &l->o_a, NULL, nb_up_all(&l->o_a), &g->o_a));
    NB_TRY(nb_up_choose(u, "o_a_proj", &g->o_a, a->o_lora, true)); /* a product for each group */
    if (!a->ratio) return NB_OK;
    NB_TRY(nb_up_group(u, "compressor", comp, none, comp_rows, a->index_topk ? 4 : 2, &g->comp));
    NB_TRY(nb_up_vector(u, l->comp.ape, a->ratio * nb_csa_width(a, a->head_dim), &g->ape[0]));
    NB_TRY(nb_up_vector(u, l->comp.norm, a->head_dim, &g->comp_norm[0]));
    if (!a->index_topk) return NB_OK;
    NB_TRY(nb_up_vector(u, l->idx_comp.ape, a->ratio * keys, &g->ape[1]));
    NB_TRY(nb_up_vector(u, l->idx_comp.norm, a->index_dim, &g->comp_norm[1]));
    NB_TRY(nb_up_matrix(u, "indexer.q_b_proj", &l->idx_q, NULL, nb_up_all(&l->idx_q), &g->index_q));
    return nb_up_matrix(u, "indexer.scorer.weights_proj", &l->idx_w, NULL, nb_up_all(&l->idx_w), &g->index_w);
}

static nb_status attention(nb_uploader *u, size_t i)
{
    typedef nb_status upload_fn(nb_uploader *, const nb_attn_config *, size_t, const nb_layer *,
                                nb_gpu_layer *);
    static upload_fn *const kinds[NB_ATTN_KINDS] = {
        [NB_ATTN_MLA] = upload_mla, [NB_ATTN_GQA] = upload_gqa, [NB_ATTN_DSA] = upload_dsa, [NB_ATTN_CSA] = upload_csa
    };
    const size_t which = u->m->c.attn_of[i];
    const nb_attn_config *attn = &u->part->attn[which];
    return kinds[attn->kind](u, attn, u->part->head0[which], &u->m->layer[i], &u->w->layer[i]);
}

/* Of n_scale scales. */
static nb_status streams(nb_uploader *u, const nb_mix *m, size_t n_scale, nb_gpu_mix *g)
{
    if (!m->fn.data) return NB_OK;
    float *fn = nb_up_values(&m->fn);
    if (!fn) return nb_fail(u->err, NB_ERR_NOMEM, "out of memory");
    const nb_status st = nb_up_vector(u, fn, m->fn.n_row * m->fn.n_col, &g->fn);
    free(fn);
    NB_TRY(st);
    NB_TRY(nb_up_vector(u, m->base, m->fn.n_row, &g->base));
    return nb_up_vector(u, m->scale, n_scale, &g->scale);
}

/* Streams, and experts by token. */
static nb_status mixed(nb_uploader *u, const nb_layer *l, nb_gpu_layer *g)
{
    const nb_model_config *c = &u->m->c;
    for (size_t k = 0; k < NB_COUNT(g->mix); k++) NB_TRY(streams(u, &l->mix[k], 3, &g->mix[k]));
    if (!l->hash) return NB_OK;
    void *p;
    NB_TRY(nb_up_take(u, c->n_vocab * c->top_k * sizeof *l->hash, &p));
    nb_up_put(u, p, l->hash, c->n_vocab * c->top_k * sizeof *l->hash);
    g->hash = p;
    return NB_OK;
}

static nb_status layer(nb_uploader *u, size_t i)
{
    const nb_model_config *c = &u->m->c;
    const nb_layer *l = &u->m->layer[i];
    nb_gpu_layer *g = &u->w->layer[i];
    NB_TRY(nb_up_vector(u, l->in_norm, c->hidden, &g->in_norm));
    NB_TRY(nb_up_vector(u, l->post_norm, c->hidden, &g->post_norm));
    if (l->branch_norm) NB_TRY(nb_up_vector(u, l->branch_norm, c->hidden, &g->branch_norm));
    NB_TRY(attention(u, i));
    NB_TRY(mixed(u, l, g));
    const nb_rank_part *p = u->part;
    const nb_up_rows out = { p->out0, p->n_out };
    NB_TRY(nb_up_matrix(u, "o_proj", &l->o, l->o_b, out, &g->o));
    if (l->mlp.gate.data) {
        const nb_up_rows inter = c->dense[i] ? (nb_up_rows){ p->inter0, p->inter }
                                       : (nb_up_rows){ p->shared0, p->shared_inter };
        const nb_up_rows part[] = { inter, inter };
        const nb_weight *const src[] = { &l->mlp.gate, &l->mlp.up };
        const float *const bias[] = { l->mlp.gate_b, l->mlp.up_b };
        NB_TRY(nb_up_group(u, "gate_proj, up_proj", src, bias, part, 2, &g->gate_up));
        NB_TRY(nb_up_matrix(u, "down_proj", &l->mlp.down, l->mlp.down_b, out, &g->down));
    }
    return nb_layer_has_experts(c, i) ? experts(u, i, g) : NB_OK;
}

/* ---- places ---- */

static void mark_host(nb_gpu_weights *w, const nb_model_config *c, const nb_expert_place *place)
{
    const size_t n_host = place->fit ? SIZE_MAX : place->n_host;
    for (size_t i = 0, n = 0; i < c->n_layer && n < n_host; i++) {
        if (!nb_layer_has_experts(c, i)) continue;
        w->layer[i].host = w->host = true;
        n++;
    }
}

static nb_status upload_all(nb_uploader *u)
{
    const nb_model *m = u->m;
    nb_gpu_weights *w = u->w;
    for (size_t i = 0; i < m->c.n_layer; i++) NB_TRY(layer(u, i));
    /* every logit is of the direct kind: whether its token was a prompt's must not matter */
    u->use[NB_CUDA_DIRECT] = true;
    u->use[NB_CUDA_PROMPT] = false;
    const nb_up_rows vocab = { u->part->vocab0, u->part->n_vocab };
    NB_TRY(nb_up_matrix(u, "lm_head", &m->head, NULL, vocab, &w->head));
    const nb_weight *const embed = &m->embed;
    if (m->head_is_embed && vocab.n == m->head.n_row)
        w->embed.w = w->head.w;
    else
        NB_TRY(nb_up_stack(u, &embed, 1, &w->embed.w));
    NB_TRY(nb_up_vector(u, m->final_norm, m->c.hidden, &w->final_norm));
    NB_TRY(streams(u, &m->mix, 1, &w->mix));
    return nb_gpu_api(w->gpu)->sync(nb_gpu_handle(w->gpu), u->err);
}

nb_status nb_gpu_weights_init(nb_gpu_weights *w, const nb_model *m, const nb_rank_part *part,
                              nb_gpu *gpu, nb_dev *dev, bool direct, bool expanded, bool codes,
                              const nb_expert_place *place, nb_error *err)
{
    nb_cuda_info info;
    *w = (nb_gpu_weights){ .gpu = gpu, .dev = dev, .part = part, .upload = expanded };
    nb_gpu_api(gpu)->get_info(nb_gpu_handle(gpu), &info);
    nb_uploader u = { w, m, part, dev, err, info.cc, { direct, expanded }, codes };
    w->layer = nb_arena_array(&w->arena, m->c.n_layer, sizeof *w->layer);
    nb_status st = w->layer ? NB_OK : nb_fail(err, NB_ERR_NOMEM, "out of memory");
    if (st == NB_OK) mark_host(w, &m->c, place);
    if (st == NB_OK) st = upload_all(&u);
    if (st != NB_OK) nb_gpu_weights_deinit(w);
    return st;
}

/* ---- experts that fit ---- */

uint64_t nb_gpu_expert_bytes(const nb_model *m, size_t layer)
{
    uint64_t n = 0;
    for (size_t e = 0; e < m->c.n_expert; e++) {
        const nb_mlp *x = &m->layer[layer].expert[e];
        const nb_weight *const w[] = { &x->gate, &x->up, &x->down };
        for (size_t i = 0; i < NB_COUNT(w); i++) n += nb_weight_bytes(w[i]);
    }
    return n;
}

/* The same on the device. */
static uint64_t device_bytes(const nb_gpu_weights *w, const nb_model *m, size_t layer)
{
    return nb_gpu_runs_bytes(&w->layer[layer].expert, m->layer[layer].expert, w->part);
}

/* Bytes that the device has beside leave_bytes, and beside what is lost at the ends of pieces. */
static uint64_t room(const nb_gpu_weights *w, uint64_t leave_bytes)
{
    nb_cuda_info info;
    nb_gpu_api(w->gpu)->get_info(nb_gpu_handle(w->gpu), &info);
    const uint64_t keep =
        leave_bytes > UINT64_MAX - 3 * NB_UP_PIECE ? UINT64_MAX : leave_bytes + 3 * NB_UP_PIECE;
    return info.free_bytes > keep ? info.free_bytes - keep : 0;
}

nb_status nb_gpu_weights_fit(nb_gpu_weights *w, const nb_model *m, uint64_t leave_bytes, bool all,
                             nb_error *err)
{
    uint64_t need = 0;
    nb_uploader u = { .w = w, .m = m, .part = w->part, .dev = w->dev, .err = err };
    for (size_t i = 0; i < m->c.n_layer; i++) {
        if (w->layer[i].host) need += device_bytes(w, m, i);
    }
    if (all && need > room(w, leave_bytes)) return NB_OK;
    for (size_t i = m->c.n_layer; i-- > 0;) {
        if (!w->layer[i].host) continue;
        if (!all && device_bytes(w, m, i) > room(w, leave_bytes)) break;
        NB_TRY(upload_experts(&u, &m->layer[i], &w->layer[i]));
        NB_TRY(nb_gpu_api(w->gpu)->sync(nb_gpu_handle(w->gpu), err));
    }
    w->host = false;
    for (size_t i = 0; i < m->c.n_layer; i++) w->host |= w->layer[i].host;
    return NB_OK;
}

void nb_gpu_weights_deinit(nb_gpu_weights *w)
{
    for (size_t i = 0; i < w->n_chunk; i++)
        nb_gpu_api(w->gpu)->free(nb_gpu_handle(w->gpu), w->chunk[i]);
    free(w->chunk);
    nb_arena_deinit(&w->arena);
    *w = (nb_gpu_weights){ 0 };
}
