/* gpu_upload.c - brings matrices to the device, in the forms that its kernels read: see gpu_upload.h. */
#include "model/gpu/gpu_upload.h"

#include <stdlib.h>
#include <string.h>

#include "kernel/embed/embed.h"
#include "model/rank.h"

enum { ALIGN = 256 };

static size_t div_up(size_t a, size_t b)
{
    return (a + b - 1) / b;
}

nb_status nb_up_take(nb_uploader *u, size_t n_bytes, void **out)
{
    nb_gpu_weights *w = u->w;
    const size_t n = div_up(n_bytes, ALIGN) * ALIGN;
    w->used_bytes += n;
    if (n > w->left) {
        const size_t piece = n > NB_UP_PIECE / 4 ? n : NB_UP_PIECE;
        void **grown = realloc(w->chunk, (w->n_chunk + 1) * sizeof *grown);
        if (!grown) return nb_fail(u->err, NB_ERR_NOMEM, "out of memory");
        w->chunk = grown;
        char *p = nb_gpu_api(w->gpu)->alloc(nb_gpu_handle(w->gpu), piece);
        if (!p)
            return nb_fail(u->err, NB_ERR_NOMEM,
                           "the GPU has no memory for the weights: %zu MiB after %llu MiB",
                           piece >> 20, (unsigned long long)(w->n_bytes >> 20));
        w->chunk[w->n_chunk++] = p;
        w->n_bytes += piece;
        if (n == piece) { /* a piece of its own; the one in hand stays */
            *out = p;
            return NB_OK;
        }
        w->at = p;
        w->left = piece;
    }
    *out = w->at;
    w->at += n;
    w->left -= n;
    return NB_OK;
}

void nb_up_put(nb_uploader *u, void *dst, const void *src, size_t n_bytes)
{
    nb_gpu_api(u->w->gpu)->upload(nb_gpu_handle(u->w->gpu), dst, src, n_bytes);
}

nb_status nb_up_vector(nb_uploader *u, const float *x, size_t n, const float **out)
{
    void *p = NULL;
    *out = NULL;
    if (!x || n == 0) return NB_OK;
    NB_TRY(nb_up_take(u, n * sizeof *x, &p));
    nb_up_put(u, p, x, n * sizeof *x);
    *out = p;
    return NB_OK;
}

/* ---- rows of the tables ---- */

static const nb_cuda_linear_row *find_linear(const nb_uploader *u, nb_cuda_kind kind, nb_wtype type,
                                             size_t n_out, size_t n_col, bool two_parts)
{
    const nb_cuda_linear_row *r = nb_gpu_api(u->w->gpu)->linear;
    for (; r->name; r++)
        if (r->kind == kind && r->cc <= u->cc && (u->codes || !r->codes) &&
            r->can(type, n_out, n_col, two_parts))
            return r;
    return NULL;
}

nb_status nb_up_choose(nb_uploader *u, const char *what, nb_gpu_mat *m, size_t n_out, bool two_parts)
{
    m->n_whole = n_out;
    for (int k = 0; k < 2; k++) {
        if (!u->use[k]) continue;
        m->row[k] = find_linear(u, (nb_cuda_kind)k, m->w.type, n_out, m->w.n_col, two_parts);
        if (!m->row[k])
            return nb_fail(u->err, NB_ERR_UNSUPPORTED,
                           "%s: the GPU has no product for %s weights of %zux%zu", what,
                           nb_wtypes[m->w.type].name, n_out, m->w.n_col);
        if (m->w.n_row && !m->row[k]->can(m->w.type, m->w.n_row, m->w.n_col, two_parts))
            return nb_fail(u->err, NB_ERR_UNSUPPORTED,
                           "%s: %s computes %zux%zu, but not the %zu rows of a rank; expected a multiple of 8: use fewer ranks",
                           what, m->row[k]->name, n_out, m->w.n_col, m->w.n_row);
        if (m->row[k]->floats) u->w->floats = true;
    }
    return NB_OK;
}

enum { STAGE_BYTES = 4 << 20 };

/* A plane of the device, and where the next rows of it go. */
typedef struct plane {
    char *host, *dev;
    size_t row_bytes;
} plane;

static void put_plane(nb_uploader *u, plane *p, size_t n_row)
{
    if (p->row_bytes) nb_up_put(u, p->dev, p->host, n_row * p->row_bytes);
    p->dev += n_row * p->row_bytes;
}

/* n matrices of form f, one below the other, made by the host's threads. */
static nb_status stack_made(nb_uploader *u, const nb_weight *const *src, size_t n, const nb_gpu_form *f,
                            nb_weight *out)
{
    const size_t n_col = src[0]->n_col;
    size_t n_row = 0, bytes[NB_GPU_PLANES];
    nb_gpu_plane_bytes(f, n_col, bytes);
    for (size_t i = 0; i < n; i++) n_row += src[i]->n_row;
    plane p[NB_GPU_PLANES];
    void *dev[NB_GPU_PLANES] = { NULL }, *host[NB_GPU_PLANES] = { NULL };
    const size_t step = STAGE_BYTES / bytes[NB_GPU_CODES] + 1;
    nb_arena stage = { 0 };
    nb_status st = NB_OK;
    for (size_t i = 0; i < NB_COUNT(p) && st == NB_OK; i++) {
        p[i] = (plane){ .row_bytes = bytes[i] };
        if (!bytes[i]) continue;
        st = nb_up_take(u, n_row * bytes[i], &dev[i]);
        p[i].dev = dev[i];
        p[i].host = host[i] = nb_arena_array(&stage, step, bytes[i]);
        if (st == NB_OK && !p[i].host) st = nb_fail(u->err, NB_ERR_NOMEM, "out of memory");
    }
    for (size_t i = 0; i < n && st == NB_OK; i++)
        for (size_t r = 0; r < src[i]->n_row; r += step) {
            const size_t m = src[i]->n_row - r < step ? src[i]->n_row - r : step;
            nb_gpu_make_all(u->dev, src[i], f, r, m, host);
            for (size_t k = 0; k < NB_COUNT(p); k++) put_plane(u, &p[k], m);
        }
    nb_arena_deinit(&stage);
    *out = nb_gpu_weight_of(f, n_row, n_col, dev);
    return st;
}

nb_status nb_up_stack(nb_uploader *u, const nb_weight *const *src, size_t n, nb_weight *out)
{
    nb_weight all = *src[0];
    nb_gpu_form f;
    (void)nb_gpu_form_of(src, n, &f);
    if (f.shape != NB_GPU_AS_IT_IS) return stack_made(u, src, n, &f, out);
    size_t n_bytes = 0, n_scale = 0; /* bytes */
    void *data, *scale = NULL;
    all.n_row = 0;
    for (size_t i = 0; i < n; i++) {
        all.n_row += src[i]->n_row;
        n_bytes += nb_weight_data_bytes(src[i]);
        n_scale += nb_weight_scale_bytes(src[i]);
    }
    NB_TRY(nb_up_take(u, n_bytes, &data));
    if (n_scale) NB_TRY(nb_up_take(u, n_scale, &scale));
    char *d = data, *s = scale;
    for (size_t i = 0; i < n; i++) {
        nb_up_put(u, d, src[i]->data, nb_weight_data_bytes(src[i]));
        d += nb_weight_data_bytes(src[i]);
        if (!n_scale) continue;
        nb_up_put(u, s, src[i]->scale, nb_weight_scale_bytes(src[i]));
        s += nb_weight_scale_bytes(src[i]);
    }
    all.data = data;
    all.scale = scale;
    *out = all;
    return NB_OK;
}

/* ---- parts ---- */

nb_status nb_up_view(const nb_uploader *u, const char *what, const nb_weight *w, nb_up_rows r, nb_weight *out)
{
    const bool blocks = w->type == NB_W_FP8B && !w->row_scales;
    if (blocks && r.n && r.first % NB_FP8_BLOCK)
        return nb_fail(u->err, NB_ERR_UNSUPPORTED,
                       "%s: on a GPU the part of a rank must begin with a block of %d rows that have one scale, and "
                       "this one begins at row %zu; fewer ranks may do, or --device cpu",
                       what, NB_FP8_BLOCK, r.first);
    *out = nb_weight_rows(w, r.first, r.n);
    return NB_OK;
}

nb_status nb_up_matrix(nb_uploader *u, const char *what, const nb_weight *src, const float *bias, nb_up_rows r,
                        nb_gpu_mat *out)
{
    nb_weight w;
    const nb_weight *one = &w;
    if (!src->data || r.n == 0) return NB_OK;
    NB_TRY(nb_up_view(u, what, src, r, &w));
    NB_TRY(nb_up_stack(u, &one, 1, &out->w));
    NB_TRY(nb_up_vector(u, bias ? bias + r.first : NULL, r.n, &out->bias));
    return nb_up_choose(u, what, out, src->n_row, true);
}

/* ---- products of the same rows ---- */

static bool can_stack(const nb_weight *const *src, size_t n)
{
    nb_gpu_form f;
    for (size_t i = 0; i < n; i++) {
        if (src[i]->n_col != src[0]->n_col) return false;
        /* block scales begin anew at a matrix's first row */
        if (src[i]->type == NB_W_FP8B && !src[i]->row_scales && i + 1 < n &&
            src[i]->n_row % NB_FP8_BLOCK)
            return false;
    }
    return nb_gpu_form_of(src, n, &f);
}

static nb_status stack_bias(nb_uploader *u, const nb_weight *const *src, const float *const *bias,
                            size_t n, size_t n_row, const float **out)
{
    bool any = false;
    for (size_t i = 0; i < n; i++) any |= bias[i] != NULL;
    if (!any) return NB_OK;
    float *all = calloc(n_row, sizeof *all);
    if (!all) return nb_fail(u->err, NB_ERR_NOMEM, "out of memory");
    for (size_t i = 0, at = 0; i < n; at += src[i++]->n_row)
        if (bias[i]) memcpy(all + at, bias[i], src[i]->n_row * sizeof *all);
    const nb_status st = nb_up_vector(u, all, n_row, out);
    free(all);
    return st;
}

nb_status nb_up_group(nb_uploader *u, const char *what, const nb_weight *const *src,
                       const float *const *bias, const nb_up_rows *r, size_t n, nb_gpu_group *g)
{
    nb_weight part[NB_GPU_JOIN];
    const nb_weight *have[NB_GPU_JOIN];
    const float *b[NB_GPU_JOIN];
    size_t n_whole = 0;
    bool empty = false;
    *g = (nb_gpu_group){ .n = n, .joined = can_stack(src, n) };
    for (size_t i = 0; i < n; i++) {
        NB_TRY(nb_up_view(u, what, src[i], r[i], &part[i]));
        have[i] = &part[i];
        b[i] = bias[i] ? bias[i] + r[i].first : NULL;
        g->at[i] = g->width;
        g->width += r[i].n;
        n_whole += src[i]->n_row;
        empty |= r[i].n == 0;
    }
    if (!g->joined || empty || !can_stack(have, n)) {
        for (size_t i = 0; i < n; i++) {
            NB_TRY(nb_up_matrix(u, what, src[i], bias[i], r[i], &g->m[i]));
            if (g->joined && g->m[i].w.data) NB_TRY(nb_up_choose(u, what, &g->m[i], n_whole, true));
        }
        return NB_OK;
    }
    g->n = 1;
    NB_TRY(nb_up_stack(u, have, n, &g->m[0].w));
    NB_TRY(stack_bias(u, have, b, n, g->width, &g->m[0].bias));
    return nb_up_choose(u, what, &g->m[0], n_whole, true);
}

float *nb_up_values(const nb_weight *w)
{
    float *value = malloc(w->n_row * w->n_col * sizeof *value);
    for (uint32_t r = 0; value && r < w->n_row; r++)
        nb_embed_c(&(nb_embed_args){ .y = value + r * w->n_col,
                                     .id = &r,
                                     .w = *w,
                                     .n_tok = 1,
                                     .y_stride = w->n_col,
                                     .factor = 1.0f });
    return value;
}
