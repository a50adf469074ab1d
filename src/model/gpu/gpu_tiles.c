/* gpu_tiles.c - see gpu_tiles.h. */
#include "model/gpu/gpu_tiles.h"

#include <string.h>

#include "kernel/linear/packed.h"

enum { TASK_VALUES = 1 << 16 };

/* Types that a GPU holds in another order. */
static bool is_tiled(const nb_weight *w)
{
    return nb_wtype_is_packed(w->type) || w->type == NB_W_INT8;
}

static nb_gpu_form one(const nb_weight *w)
{
    nb_gpu_form f = { .type = w->type, .row_scales = w->row_scales };
    if (!is_tiled(w)) return f;
    f.shape = nb_tiled_of(w, &f.tile) ? NB_GPU_FLOATS : NB_GPU_TILES;
    f.type = f.shape == NB_GPU_TILES ? f.tile.type : NB_W_F32;
    return f;
}

bool nb_gpu_form_join(nb_gpu_form *a, const nb_gpu_form *b)
{
    if (a->shape != b->shape || a->type != b->type || a->row_scales != b->row_scales) return false;
    return a->shape != NB_GPU_TILES || nb_tiled_join(&a->tile, &b->tile);
}

bool nb_gpu_form_of(const nb_weight *const *src, size_t n, nb_gpu_form *out)
{
    *out = one(src[0]);
    for (size_t i = 1; i < n; i++) {
        const nb_gpu_form f = one(src[i]);
        if (!nb_gpu_form_join(out, &f)) return false;
    }
    return true;
}

bool nb_gpu_form_pair(const nb_gpu_form *a, const nb_gpu_form *b)
{
    const nb_stype s = a->tile.scale_type, t = b->tile.scale_type;
    if (a->shape != b->shape || a->type != b->type || a->row_scales != b->row_scales) return false;
    if (a->shape != NB_GPU_TILES || !a->tile.groups || !b->tile.groups)
        return a->shape != NB_GPU_TILES || a->tile.groups == b->tile.groups;
    return nb_stype_is_k(s) == nb_stype_is_k(t) && (s >= NB_S_K16) == (t >= NB_S_K16);
}

void nb_gpu_plane_bytes(const nb_gpu_form *f, size_t n_col, size_t out[NB_GPU_PLANES])
{
    const bool tiles = f->shape == NB_GPU_TILES;
    out[NB_GPU_CODES] = tiles ? nb_tiled_code_bytes(&f->tile, n_col) : n_col * nb_wtype_bytes(f->type);
    out[NB_GPU_SCALES] = tiles ? nb_tiled_scale_bytes(&f->tile, n_col) : 0;
    out[NB_GPU_ZEROS] = tiles ? nb_tiled_zero_bytes(&f->tile, n_col) : 0;
    out[NB_GPU_ROW] = tiles ? sizeof(float) : 0;
}

void nb_gpu_make_rows(const nb_weight *w, const nb_gpu_form *f, size_t r, size_t n,
                      void *const plane[NB_GPU_PLANES])
{
    if (f->shape == NB_GPU_TILES) {
        const nb_tiled_rows rows = { plane[NB_GPU_CODES], plane[NB_GPU_ZEROS], plane[NB_GPU_SCALES],
                                     plane[NB_GPU_ROW] };
        nb_tiled_make(w, &f->tile, r, n, &rows);
        return;
    }
    for (size_t i = 0; i < n; i++)
        nb_packed_values(w, r + i, 0, w->n_col, (float *)plane[NB_GPU_CODES] + i * w->n_col);
}

typedef struct make_job {
    const nb_weight *w;
    const nb_gpu_form *f;
    void *const *plane;
    size_t r, n, step, bytes[NB_GPU_PLANES];
} make_job;

static void make_task(void *ctx, size_t task, size_t worker)
{
    (void)worker;
    const make_job *j = ctx;
    const size_t at = task * j->step, n = j->n - at < j->step ? j->n - at : j->step;
    void *plane[NB_GPU_PLANES];
    for (size_t k = 0; k < NB_GPU_PLANES; k++)
        plane[k] = j->plane[k] ? (char *)j->plane[k] + at * j->bytes[k] : NULL;
    nb_gpu_make_rows(j->w, j->f, j->r + at, n, plane);
}

void nb_gpu_make_all(nb_dev *dev, const nb_weight *w, const nb_gpu_form *f, size_t r, size_t n,
                     void *const plane[NB_GPU_PLANES])
{
    make_job j = { .w = w, .f = f, .plane = plane, .r = r, .n = n };
    j.step = TASK_VALUES / w->n_col + 1;
    nb_gpu_plane_bytes(f, w->n_col, j.bytes);
    nb_dev_run(dev, make_task, &j, (n + j.step - 1) / j.step);
}

nb_weight nb_gpu_weight_of(const nb_gpu_form *f, size_t n_row, size_t n_col,
                           void *const plane[NB_GPU_PLANES])
{
    nb_weight w = { .data = plane[NB_GPU_CODES],
                    .scale = plane[NB_GPU_ROW],
                    .n_row = n_row,
                    .n_col = n_col,
                    .type = f->type,
                    .row_scales = f->row_scales };
    if (f->shape != NB_GPU_TILES) return w;
    w.group.scale = plane[NB_GPU_SCALES];
    w.group.zero = plane[NB_GPU_ZEROS];
    w.group.scale_type = f->tile.scale_type;
    return w;
}
