/* rank.c - see rank.h: what all backends share. */
#include "base/hash.h"
#include "model/backend.h"

static const nb_backend *backend_of(const nb_rank_options *o)
{
    return o->device && o->device->gpu ? &nb_backend_cuda : &nb_backend_cpu;
}

/* Every rank needs a head.  With KV heads its heads are whole groups, or a part of one. */
static bool divides_heads(const nb_attn_config *a, size_t n_rank)
{
    if (a->n_kv_head == 0) return n_rank <= a->n_head;
    return a->n_head % n_rank == 0 && (a->n_kv_head % n_rank == 0 || n_rank % a->n_kv_head == 0);
}

nb_status nb_rank_can_divide(const nb_model_config *c, size_t n_rank, nb_error *err)
{
    if (n_rank > 1 && nb_attn_has_state(c))
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "%s: layers that keep a state per request run on one rank only", c->family);
    for (size_t k = 0; k < c->n_attn; k++) {
        const nb_attn_config *a = &c->attn[k];
        if (n_rank > 1 && !nb_attention_of(a->kind)->divides)
            return nb_fail(err, NB_ERR_UNSUPPORTED, "%s attention is computed by one rank only",
                           nb_attention_of(a->kind)->name);
        if (divides_heads(a, n_rank)) continue;
        if (a->n_kv_head)
            return nb_fail(
                err, NB_ERR_UNSUPPORTED,
                "%zu heads in %zu groups cannot be divided among %zu ranks so that each has "
                "whole groups or a part of one",
                a->n_head, a->n_kv_head, n_rank);
        return nb_fail(err, NB_ERR_UNSUPPORTED, "the model has %zu heads, fewer than %zu ranks",
                       a->n_head, n_rank);
    }
    return NB_OK;
}

nb_status nb_rank_can_divide_context(const nb_model_config *c, nb_error *err)
{
    for (size_t k = 0; k < c->n_attn; k++)
        if (c->attn[k].kind != NB_ATTN_MLA)
            return nb_fail(err, NB_ERR_UNSUPPORTED, "ranks divide the context of latent attention only, and %s has %s attention",
                           c->family, nb_attention_of(c->attn[k].kind)->name);
    return NB_OK;
}

static bool has_blocks(const nb_weight *w)
{
    return w->type == NB_W_FP8B && !w->row_scales;
}

/* A device's copy of some rows begins with a block of scales. */
static size_t unit_of(const nb_rank *r)
{
    const nb_model *m = r->o.model;
    bool blocks = has_blocks(&m->head);
    if (!r->o.device || !r->o.device->kind->own_memory) return NB_RANK_UNIT;
    for (size_t i = 0; i < m->c.n_layer; i++)
        blocks |= has_blocks(&m->layer[i].o) || has_blocks(&m->layer[i].mlp.gate) ||
                  has_blocks(&m->layer[i].mlp.down);
    return blocks ? NB_FP8_BLOCK : NB_RANK_UNIT;
}

static size_t gcd(size_t a, size_t b)
{
    while (b) {
        const size_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* A device's copy of the rows of some heads begins with a block of scales, in each matrix that is cut by heads:
 * DeepSeek-V3's queries have 192 rows per head, so its heads are cut at multiples of 2. */
static size_t head_unit_of(const nb_rank *r, size_t which)
{
    const nb_attn_config *a = &r->whole->attn[which];
    size_t unit = 1;
    if (!r->o.device || !r->o.device->kind->own_memory) return unit;
    for (size_t i = 0; i < r->whole->n_layer; i++) {
        const nb_layer *l = &r->o.model->layer[i];
        const nb_weight *const w[] = { &l->q, &l->q_b, &l->kv_b };
        if (r->whole->attn_of[i] != which) continue;
        for (size_t k = 0; k < NB_COUNT(w); k++) {
            if (!w[k]->data || !has_blocks(w[k])) continue;
            const size_t n = NB_FP8_BLOCK / gcd(NB_FP8_BLOCK, w[k]->n_row / a->n_head);
            unit = n > unit ? n : unit; /* both are powers of two */
        }
    }
    return unit;
}

static nb_status take_heads(nb_rank *r, size_t k, size_t n, size_t me, nb_error *err)
{
    nb_rank_part *p = &r->part;
    const size_t n_head = r->whole->attn[k].n_head, unit = n > 1 ? head_unit_of(r, k) : 1;
    const bool in_groups = r->whole->attn[k].n_kv_head != 0; /* equal parts */
    if (n_head / unit < n || (in_groups && n_head / n % unit))
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "on a GPU a rank begins with whole blocks of %d rows of FP8, so with a multiple of %zu heads; "
                       "%zu heads are too few for %zu ranks (fewer ranks may do, or --device cpu)",
                       NB_FP8_BLOCK, unit, n_head, n);
    p->attn[k] = r->whole->attn[k];
    p->head_unit[k] = unit;
    p->attn[k].n_head = nb_rank_part_of(n_head, unit, n, me, &p->head0[k]);
    return NB_OK;
}

/* The whole model, or this rank's part of it: experts among all ranks, the rest among those of its tokens.  Experts are dealt out in turn: those that a router's groups hold are
 * neighbours, and so not all on one rank. */
static nb_status take_part(nb_rank *r, nb_error *err)
{
    const nb_model_config *c = r->whole;
    nb_rank_part *p = &r->part;
    const size_t n_all = r->o.comm ? nb_comm_n_rank(r->o.comm) : 1, n = nb_rank_n_tensor(r);
    const size_t e0 = r->o.comm ? nb_comm_rank(r->o.comm) : 0, me = nb_rank_tensor_of(r);
    NB_TRY(nb_rank_can_divide(c, n, err));
    *p = (nb_rank_part){ .n_layer = c->n_layer,
                         .expert0 = e0,
                         .expert_step = n_all,
                         .n_expert = (c->n_expert + n_all - 1 - e0) / n_all };
    p->unit = unit_of(r);
    p->inter = nb_rank_cut(c->inter, p->unit, n, me, &p->inter0);
    p->shared_inter = nb_rank_cut(c->n_shared * c->moe_inter, p->unit, n, me, &p->shared0);
    p->n_out = nb_rank_cut(c->hidden, p->unit, n, me, &p->out0);
    p->n_vocab = nb_rank_cut(c->n_vocab, p->unit, n, me, &p->vocab0);
    p->dims = nb_arena_array(&r->arena, c->n_layer, sizeof *p->dims);
    if (!p->dims) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    for (size_t k = 0; k < c->n_attn; k++) NB_TRY(take_heads(r, k, n, me, err));
    for (size_t i = 0; i < c->n_layer; i++) {
        const nb_attn_config *a = nb_rank_attn(r, i);
        p->dims[i] = nb_attention_of(a->kind)->dims(a);
    }
    return NB_OK;
}

static nb_status can_divide_context(const nb_backend *b, const nb_rank_options *o, nb_error *err)
{
    if (b != &nb_backend_cpu)
        return nb_fail(err, NB_ERR_UNSUPPORTED, "ranks of the %s backend do not divide a context", b->name);
    if (o->n_sink)
        return nb_fail(err, NB_ERR_UNSUPPORTED, "rows of --kv-sinks are kept whole, which ranks that divide a context are not");
    return nb_rank_can_divide_context(&o->model->c, err);
}

nb_status nb_rank_init(nb_rank *r, const nb_backend *b, const nb_rank_options *o, nb_error *err)
{
    r->backend = b;
    r->o = *o;
    r->whole = &o->model->c;
    if (!r->o.max_seq) r->o.max_seq = o->max_tok;
    nb_plan_init(&r->plan, o->caps, &o->acts);
    if (o->comm && !b->meet)
        return nb_fail(err, NB_ERR_UNSUPPORTED, "the %s backend computes on one rank only",
                       b->name);
    for (size_t i = 0; o->data_parallel && i < r->whole->n_layer; i++)
        if (nb_layer_ends_shortcut(r->whole, i))
            return nb_fail(err, NB_ERR_UNSUPPORTED,
                           "%s: data-parallel ranks do not compute experts that are added a layer later",
                           r->whole->family);
    if (o->comm && o->thrift.kind != NB_THRIFT_OFF)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "Thrift mode chooses tokens with all heads, which %zu ranks "
                       "do not have",
                       nb_comm_n_rank(o->comm));
    if (o->divide_context) NB_TRY(can_divide_context(b, o, err));
    for (size_t i = 0; i < r->whole->n_layer; i++)
        if (!b->attn[nb_layer_attn(r->whole, i)->kind])
            return nb_fail(err, NB_ERR_UNSUPPORTED, "layer %zu: the %s backend has no %s attention",
                           i, b->name, nb_layer_attention(r->whole, i)->name);
    return take_part(r, err);
}

void nb_rank_deinit(nb_rank *r)
{
    nb_arena_deinit(&r->arena);
}

const float *nb_rank_norm(const nb_rank *r, size_t layer, nb_norm_at at)
{
    const nb_layer *l = &r->o.model->layer[layer];
    if (at == NB_NORM_AT_BEGIN) return l->in_norm;
    if (at == NB_NORM_AT_ATTENTION) return l->post_norm;
    return layer + 1 == r->whole->n_layer ? NULL : l[1].in_norm;
}

nb_status nb_rank_create(const nb_rank_options *o, nb_rank **out, nb_error *err)
{
    return backend_of(o)->create(o, out, err);
}

nb_status nb_rank_connect(nb_rank *const *all, size_t n, nb_error *err)
{
    for (size_t k = 0; n > 1 && k < n; k++)
        if (all[k]->backend->connect) NB_TRY(all[k]->backend->connect(all[k], all, err));
    return NB_OK;
}

void nb_rank_destroy(nb_rank *r)
{
    if (r) r->backend->destroy(r);
}

nb_kv_pool nb_rank_set_pool(nb_rank *r, const nb_kv_pool *pool)
{
    const nb_kv_pool before = r->pool;
    r->pool = *pool;
    return before;
}

/* What a step is told to do. */
static uint64_t hash_of(const nb_chunk *chunk, size_t n_chunk)
{
    uint64_t h = n_chunk;
    for (size_t i = 0; i < n_chunk; i++) {
        const nb_chunk *c = &chunk[i];
        const uint64_t v[] = { c->slot,
                               c->n_tok,
                               c->pos0,
                               c->n_block,
                               (uint64_t)c->rope_long | (uint64_t)c->absorbed << 1 |
                                   (uint64_t)c->thrift << 2 | (uint64_t)c->upload << 3,
                               c->load,
                               c->save };
        h = nb_hash_bytes(v, sizeof v, h);
        h = nb_hash_bytes(c->tok, c->n_tok * sizeof *c->tok, h);
        h = nb_hash_bytes(c->block, c->n_block * sizeof *c->block, h);
    }
    return h;
}

/* With several ranks a failure of this one is told to the others, and one of theirs ends this step, too. */
static nb_status told(nb_rank *r, nb_status st, nb_error *err)
{
    nb_comm *c = r->o.comm;
    if (!c || st == NB_ERR_FAILED) return st;
    if (st != NB_OK && st != NB_ERR_NONFINITE)
        nb_comm_fail(c, nb_comm_rank(c), err && err->msg[0] ? err->msg : nb_status_text(st));
    const nb_status all = nb_comm_check(c, NULL);
    return all == NB_OK ? st : nb_comm_check(c, err);
}

nb_status nb_rank_step(nb_rank *r, const nb_chunk *chunk, size_t n_chunk, unsigned char *bad,
                       nb_error *err)
{
    if (r->o.comm)
        NB_TRY(nb_comm_agree(r->o.comm, hash_of(chunk, n_chunk), "decisions of a step", err));
    if (r->plant_rows) n_chunk--; /* rows of the graph are those of another step */
    return told(r, r->backend->step(r, chunk, n_chunk, bad, err), err);
}

nb_status nb_rank_step_share(nb_rank *r, const nb_chunk *chunk, const size_t *first, unsigned char *bad,
                             nb_error *err)
{
    nb_comm *c = r->o.comm;
    const size_t n = nb_rank_n_group(r), me = nb_rank_group(r);
    const uint64_t cut = nb_hash_bytes(first, (n + 1) * sizeof *first, 0);
    NB_ASSERT(r->o.data_parallel);
    NB_TRY(nb_comm_agree(c, cut ^ hash_of(chunk, first[n]), "decisions of a step", err));
    for (size_t k = 0; k < n; k++) {
        r->share[k].chunk = chunk + first[k];
        r->share[k].n_chunk = first[k + 1] - first[k];
        if (r->plant_rows && k == me && r->share[k].n_chunk) r->share[k].n_chunk--;
        r->share[k].n_row = 0;
        for (size_t i = 0; i < r->share[k].n_chunk; i++) r->share[k].n_row += r->share[k].chunk[i].n_tok;
    }
    return told(r, r->backend->step(r, r->share[me].chunk, r->share[me].n_chunk,
                                    bad && nb_rank_tensor_of(r) == 0 ? bad + first[me] : NULL, err),
                err);
}

void nb_rank_plant_rows(nb_rank *r)
{
    r->plant_rows = true;
}

/* Rank 0 gets the columns of the others. */
static nb_status collect(nb_rank *r, size_t n, float *logits, nb_error *err)
{
    nb_comm *c = r->o.comm;
    const size_t n_rank = nb_comm_n_rank(c), me = nb_comm_rank(c), n_vocab = r->whole->n_vocab;
    nb_comm_block send[NB_COMM_MAX_RANK] = { 0 }, recv[NB_COMM_MAX_RANK] = { 0 };
    for (size_t k = 0; k < n_rank; k++) {
        size_t first;
        const size_t w = nb_rank_cut(n_vocab, r->part.unit, n_rank, k, &first);
        const nb_comm_block b = { logits + first, n, w * sizeof *logits, n_vocab * sizeof *logits };
        if (me == 0) recv[k] = b;
        if (k == me) send[0] = b;
    }
    return nb_comm_exchange(c, send, recv, err);
}

void nb_rank_plant_split(nb_rank *r)
{
    r->plant_split = true;
}

nb_status nb_rank_logits(nb_rank *r, const size_t *tok, size_t n, float *logits, nb_error *err)
{
    const nb_status st = told(r, r->backend->logits(r, tok, n, logits, err), err);
    const bool apart = r->o.comm && !nb_comm_shares_memory(r->o.comm);
    return st == NB_OK && apart ? collect(r, n, logits, err) : st;
}

bool nb_rank_can_sample(const nb_rank *r)
{
    return r->backend->sample && !nb_rank_divided(r); /* else ranks have parts of the logits */
}

nb_status nb_rank_sample(nb_rank *r, const size_t *tok, const nb_cuda_sample_row *row, size_t n,
                         uint32_t *id, nb_error *err)
{
    NB_ASSERT(r->backend->sample);
    return told(r, r->backend->sample(r, tok, row, n, id, err), err);
}

size_t nb_rank_bytes(const nb_rank *r)
{
    return r->backend->bytes(r);
}

uint64_t nb_rank_weight_bytes(const nb_rank *r)
{
    return r->backend->weight_bytes(r);
}

void *nb_rank_workspace(nb_rank *r, size_t *n_bytes)
{
    *n_bytes = 0;
    return r->backend->workspace ? r->backend->workspace(r, n_bytes) : NULL;
}

void nb_rank_describe(const nb_rank *r, char *buf, size_t n_bytes)
{
    r->backend->describe(r, buf, n_bytes);
}

const nb_plan *nb_rank_plan(const nb_rank *r)
{
    return &r->plan;
}

void nb_rank_set_trace(nb_rank *r, nb_trace_fn *trace, void *ctx)
{
    r->trace = trace;
    r->trace_ctx = ctx;
}

void nb_rank_set_observer(nb_rank *r, nb_observe_fn *observe, void *ctx)
{
    r->observe = observe;
    r->observe_ctx = ctx;
}

nb_rank_counts nb_rank_count(const nb_rank *r)
{
    return r->backend->count(r);
}

size_t nb_rank_host_layers(const nb_rank *r, uint64_t *n_bytes)
{
    *n_bytes = 0;
    return r->backend->host_layers ? r->backend->host_layers(r, n_bytes) : 0;
}

size_t nb_rank_upload_tok(const nb_rank *r)
{
    return r->backend->upload_tok ? r->backend->upload_tok(r) : 0;
}
