/* gpu_runs.c - see gpu_runs.h. */
#include "model/gpu/gpu_runs.h"

const nb_weight *nb_gpu_expert_mat(const nb_mlp *expert, size_t i)
{
    return i == NB_GPU_GATE ? &expert->gate : i == NB_GPU_UP ? &expert->up : &expert->down;
}

/* ---- runs ---- */

static void forms_of(const nb_mlp *expert, nb_gpu_form out[NB_GPU_EXPERT_MATS])
{
    for (size_t i = 0; i < NB_GPU_EXPERT_MATS; i++) {
        const nb_weight *const one = nb_gpu_expert_mat(expert, i);
        (void)nb_gpu_form_of(&one, 1, &out[i]);
    }
}

/* Whether an expert of these forms continues the run, whose forms become those of both. */
static bool continues(nb_gpu_run *r, const nb_gpu_form form[NB_GPU_EXPERT_MATS])
{
    nb_gpu_form both[NB_GPU_EXPERT_MATS];
    for (size_t i = 0; i < NB_GPU_EXPERT_MATS; i++) {
        both[i] = r->form[i];
        if (!nb_gpu_form_join(&both[i], &form[i])) return false;
    }
    for (size_t i = 0; i < NB_GPU_EXPERT_MATS; i++) r->form[i] = both[i];
    return true;
}

static nb_status divide(nb_gpu_experts *x, const nb_mlp *expert, const nb_rank_part *part, nb_arena *a,
                        nb_error *err)
{
    nb_gpu_run *run = nb_arena_array(a, part->n_expert, sizeof *run);
    *x = (nb_gpu_experts){ .run = run };
    if (!run && part->n_expert) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < part->n_expert; i++) {
        nb_gpu_form form[NB_GPU_EXPERT_MATS];
        forms_of(&expert[nb_gpu_expert_of(part, i)], form);
        nb_gpu_run *last = x->n_run ? &run[x->n_run - 1] : NULL;
        if (last && continues(last, form)) {
            last->n++;
            continue;
        }
        last = &run[x->n_run++];
        *last = (nb_gpu_run){ .first = i, .n = 1 };
        for (size_t k = 0; k < NB_GPU_EXPERT_MATS; k++) last->form[k] = form[k];
    }
    return NB_OK;
}

/* ---- rows of the table ---- */

static const nb_cuda_experts_row *find(const nb_gpu_row_limits *l, int kind, nb_wtype type, const nb_weight *w)
{
    const nb_cuda_experts_row *r = l->rows;
    for (; r->name; r++)
        if ((int)r->kind == kind && r->cc <= l->cc && (l->codes || !r->codes) && r->can(type, w->n_row, w->n_col))
            return r;
    return NULL;
}

static nb_status choose(nb_gpu_experts *x, nb_gpu_run *r, const nb_mlp *expert, size_t layer,
                        const nb_gpu_row_limits *l, nb_error *err)
{
    r->apart = !nb_gpu_form_pair(&r->form[NB_GPU_GATE], &r->form[NB_GPU_UP]);
    x->apart |= r->apart;
    for (int kind = 0; kind < 2; kind++)
        for (size_t i = 0; i < NB_GPU_EXPERT_MATS && l->use[kind]; i++) {
            const nb_weight *w = nb_gpu_expert_mat(expert, i);
            if (i == NB_GPU_UP && !r->apart) continue;
            const nb_cuda_experts_row *row = r->row[i][kind] = find(l, kind, r->form[i].type, w);
            if (!row)
                return nb_fail(err, NB_ERR_UNSUPPORTED,
                               "model.layers.%zu.mlp.experts: the GPU has no product for %s weights of %zux%zu",
                               layer, nb_wtypes[r->form[i].type].name, w->n_row, w->n_col);
            x->floats |= row->floats;
        }
    return NB_OK;
}

nb_status nb_gpu_runs_init(nb_gpu_experts *x, const nb_mlp *expert, size_t layer, const nb_rank_part *part,
                           const nb_gpu_row_limits *limits, nb_arena *a, nb_error *err)
{
    NB_TRY(divide(x, expert, part, a, err));
    for (size_t i = 0; i < x->n_run; i++)
        NB_TRY(choose(x, &x->run[i], &expert[nb_gpu_expert_of(part, x->run[i].first)], layer, limits, err));
    return NB_OK;
}

/* ---- what they take ---- */

static uint64_t mat_bytes(const nb_gpu_form *f, const nb_weight *w)
{
    size_t bytes[NB_GPU_PLANES];
    uint64_t n = f->shape == NB_GPU_AS_IT_IS ? nb_weight_scale_bytes(w) : 0;
    nb_gpu_plane_bytes(f, w->n_col, bytes);
    for (size_t k = 0; k < NB_GPU_PLANES; k++) n += w->n_row * bytes[k];
    return n;
}

uint64_t nb_gpu_runs_bytes(const nb_gpu_experts *x, const nb_mlp *expert, const nb_rank_part *part)
{
    uint64_t n = 0;
    for (size_t i = 0; i < x->n_run; i++) {
        const nb_gpu_run *r = &x->run[i];
        const nb_mlp *e = &expert[nb_gpu_expert_of(part, r->first)];
        for (size_t k = 0; k < NB_GPU_EXPERT_MATS; k++)
            n += r->n * mat_bytes(&r->form[k], nb_gpu_expert_mat(e, k));
    }
    return n;
}

bool nb_gpu_runs_can_send(const nb_gpu_experts *x)
{
    if (x->n_run != 1 || x->apart) return false;
    for (size_t i = 0; i < NB_GPU_EXPERT_MATS; i++)
        if (x->run->form[i].shape == NB_GPU_FLOATS || x->run->form[i].row_scales) return false;
    return true;
}
