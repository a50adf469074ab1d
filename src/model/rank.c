/* rank.c - see rank.h: what all backends share. */
#include "model/backend.h"

static const nb_backend *backend_of(const nb_rank_options *o)
{
    return o->device && o->device->gpu ? &nb_backend_cuda : &nb_backend_cpu;
}

/* One rank computes the whole model. */
static nb_status take_part(nb_rank *r, nb_error *err)
{
    const nb_model_config *c = r->whole;
    nb_rank_part *p = &r->part;
    *p = (nb_rank_part){ .n_layer = c->n_layer,
                         .n_expert = c->n_expert,
                         .inter = c->inter,
                         .shared_inter = c->n_shared * c->moe_inter,
                         .n_vocab = c->n_vocab };
    p->dims = nb_arena_array(&r->arena, c->n_layer, sizeof *p->dims);
    if (!p->dims) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    for (size_t k = 0; k < c->n_attn; k++) p->attn[k] = c->attn[k];
    for (size_t i = 0; i < c->n_layer; i++) {
        const nb_attn_config *a = nb_rank_attn(r, i);
        p->dims[i] = nb_attention_of(a->kind)->dims(a);
    }
    return NB_OK;
}

nb_status nb_rank_init(nb_rank *r, const nb_backend *b, const nb_rank_options *o, nb_error *err)
{
    r->backend = b;
    r->o = *o;
    r->whole = &o->model->c;
    if (!r->o.max_seq) r->o.max_seq = o->max_tok;
    nb_plan_init(&r->plan, o->caps, &o->acts);
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

nb_status nb_rank_step(nb_rank *r, const nb_chunk *chunk, size_t n_chunk, unsigned char *bad,
                       nb_error *err)
{
    return r->backend->step(r, chunk, n_chunk, bad, err);
}

nb_status nb_rank_logits(nb_rank *r, const size_t *tok, size_t n, float *logits, nb_error *err)
{
    return r->backend->logits(r, tok, n, logits, err);
}

bool nb_rank_can_sample(const nb_rank *r)
{
    return r->backend->sample != NULL;
}

nb_status nb_rank_sample(nb_rank *r, const size_t *tok, const nb_cuda_sample_row *row, size_t n,
                         uint32_t *id, nb_error *err)
{
    NB_ASSERT(r->backend->sample);
    return r->backend->sample(r, tok, row, n, id, err);
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
