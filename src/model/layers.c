/* layers.c - the walk over the layers, written once for all devices. */
#include "model/backend.h"

static void trace(nb_rank *r, nb_pass *p, const char *what, size_t layer)
{
    if (r->trace) r->backend->trace(r, p, what, layer);
}

/* False: another rank has failed, and what was to come is missing. */
static bool meet(nb_rank *r, nb_pass *p, size_t layer, nb_meeting at)
{
    if (!r->o.comm || (!nb_rank_divided(r) && at != NB_MEET_HIDDEN)) return true;
    return r->backend->meet(r, p, layer, at);
}

static bool run_layer(nb_rank *r, nb_pass *p, size_t i)
{
    const nb_backend *b = r->backend;
    const nb_attn_ops *a = b->attn[nb_rank_attn(r, i)->kind];
    a->project(r, p, i);
    trace(r, p, "q", i);
    trace(r, p, "kv", i);
    a->append(r, p, i);
    a->attend(r, p, i);
    if (!meet(r, p, i, NB_MEET_HEADS)) return false;
    b->output(r, p, i);
    if (!meet(r, p, i, NB_MEET_OUTPUT)) return false;
    trace(r, p, "attn_out", i);
    b->add_norm(r, p, i, NB_NORM_AT_ATTENTION);
    b->feed_forward(r, p, i);
    if (!meet(r, p, i, NB_MEET_HIDDEN)) return false;
    b->combine(r, p, i);
    if (!meet(r, p, i, NB_MEET_BRANCH)) return false;
    if (r->o.model->layer[i].branch_norm) b->branch_norm(r, p, i);
    trace(r, p, "mlp_out", i);
    b->add_norm(r, p, i, NB_NORM_AT_FEED_FORWARD);
    trace(r, p, "out", i);
    return true;
}

void nb_layers_idle(nb_rank *r, nb_pass *p)
{
    for (size_t i = 0; i < r->whole->n_layer; i++)
        if (!meet(r, p, i, NB_MEET_HIDDEN)) return;
}

void nb_layers_run(nb_rank *r, nb_pass *p)
{
    const nb_rank_part *part = &r->part;
    r->backend->begin(r, p);
    trace(r, p, "embed", SIZE_MAX);
    r->backend->add_norm(r, p, part->layer0, NB_NORM_AT_BEGIN);
    for (size_t i = part->layer0; i < part->layer0 + part->n_layer; i++)
        if (!run_layer(r, p, i)) return;
}
