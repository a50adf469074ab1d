/* cpu_meet.c - what several CPU ranks exchange in a layer.
 *
 * Every product is divided by its outputs: a rank computes whole sums, so the bits are those of one rank whatever the
 * kernel.  So the inputs of the products that end attention and feed-forward are gathered, and their outputs, too.  Of
 * routed experts each rank has its own; it gives the other ranks the columns that these add up. */
#include "model/cpu/cpu_context.h"

/* Columns [first[k], first[k + 1]) of each row come from rank k; those of this rank are in `own`, which may be
 * their place in `all` already. */
static bool gather(nb_cpu *f, size_t n_row, float *own, size_t own_stride, const size_t *first,
                   float *all, size_t stride)
{
    nb_comm *c = f->r.o.tensor;
    const size_t me = nb_comm_rank(c);
    nb_comm_block recv[NB_COMM_MAX_RANK];
    const nb_comm_block send = { own, n_row, (first[me + 1] - first[me]) * sizeof *own,
                                 own_stride * sizeof *own };
    for (size_t k = 0; k < nb_comm_n_rank(c); k++)
        recv[k] = (nb_comm_block){ all + first[k], n_row, (first[k + 1] - first[k]) * sizeof *all,
                                   stride * sizeof *all };
    return nb_comm_gather(c, &send, recv, NULL) == NB_OK;
}

void nb_cpu_cuts(const nb_cpu *f, size_t n, size_t first[NB_COMM_MAX_RANK + 1])
{
    const size_t n_rank = nb_rank_n_tensor(&f->r);
    for (size_t k = 0; k < n_rank; k++)
        (void)nb_rank_cut(n, f->r.part.unit, n_rank, k, &first[k]);
    first[n_rank] = n;
}

bool nb_cpu_gather_heads(nb_cpu *f, size_t layer, size_t n_row, float *own, size_t width, float *all)
{
    const size_t n_rank = nb_rank_n_tensor(&f->r),
                 n_head = nb_layer_dims(f->r.whole, layer).n_head,
                 unit = nb_rank_head_unit(&f->r, layer);
    size_t first[NB_COMM_MAX_RANK + 1];
    for (size_t k = 0; k < n_rank; k++) {
        (void)nb_rank_part_of(n_head, unit, n_rank, k, &first[k]);
        first[k] *= width;
    }
    first[n_rank] = n_head * width;
    return gather(f, n_row, own, nb_rank_dims(&f->r, layer)->n_head * width, first, all, first[n_rank]);
}

static bool meet_heads(nb_cpu *f, const nb_pass *p, size_t layer)
{
    return nb_cpu_gather_heads(f, layer, p->n_row, f->attn, nb_rank_dims(&f->r, layer)->d_o, f->whole);
}

/* Columns of f->branch, in place. */
static bool meet_branch(nb_cpu *f, const nb_pass *p, size_t layer)
{
    (void)layer;
    const size_t h = f->r.whole->hidden;
    size_t first[NB_COMM_MAX_RANK + 1];
    nb_cpu_cuts(f, h, first);
    return gather(f, p->n_row, f->branch + f->r.part.out0, h, first, f->branch, h);
}

/* The columns of the experts' outputs that each rank adds up. */
static bool meet_experts(nb_cpu *f)
{
    nb_comm *c = f->r.o.tensor;
    const size_t n_rank = nb_comm_n_rank(c), me = nb_comm_rank(c), h = f->r.whole->hidden;
    const nb_rank_part *part = &f->r.part;
    size_t first[NB_COMM_MAX_RANK + 1];
    nb_comm_block send[NB_COMM_MAX_RANK], recv[NB_COMM_MAX_RANK];
    nb_cpu_cuts(f, h, first);
    for (size_t k = 0; k < n_rank; k++) {
        send[k] = (nb_comm_block){ f->e_y + f->e_rank[me] * h + first[k],
                                   f->e_rank[me + 1] - f->e_rank[me],
                                   (first[k + 1] - first[k]) * sizeof *f->e_y, h * sizeof *f->e_y };
        recv[k] = (nb_comm_block){ f->e_y + f->e_rank[k] * h + part->out0,
                                   f->e_rank[k + 1] - f->e_rank[k], part->n_out * sizeof *f->e_y,
                                   h * sizeof *f->e_y };
    }
    return nb_comm_exchange(c, send, recv, NULL) == NB_OK;
}

static bool meet_hidden(nb_cpu *f, const nb_pass *p, size_t layer)
{
    const nb_model_config *c = f->r.whole;
    const bool dense = c->dense[layer];
    const size_t n = dense ? c->inter : c->n_shared * c->moe_inter;
    const size_t own = dense ? f->r.part.inter : f->r.part.shared_inter;
    size_t first[NB_COMM_MAX_RANK + 1];
    if (nb_layer_has_experts(c, layer) && !f->r.o.data_parallel && !meet_experts(f)) return false;
    if (n == 0) return true;
    nb_cpu_cuts(f, n, first);
    return gather(f, p->n_row, f->gate, own, first, f->whole, n);
}

bool nb_cpu_meet(nb_rank *r, nb_pass *p, size_t layer, nb_meeting at)
{
    static bool (*const meetings[])(nb_cpu *, const nb_pass *, size_t) = {
        [NB_MEET_HEADS] = meet_heads,
        [NB_MEET_OUTPUT] = meet_branch,
        [NB_MEET_HIDDEN] = meet_hidden,
        [NB_MEET_BRANCH] = meet_branch,
    };
    nb_cpu *f = nb_cpu_of(r);
    if (nb_rank_divided(r) && !meetings[at](f, p, layer)) return false;
    if (!r->o.data_parallel || at != NB_MEET_HIDDEN) return true;
    if (nb_layer_has_experts(r->whole, layer)) return nb_cpu_share_experts(f, layer);
    return nb_comm_barrier(r->o.comm, NULL) == NB_OK; /* so that a lost rank is known from a slow one */
}
