/* check_cuda_embed.c - embed on a device: bits of the host's reference rounded to float, zeros for
 * padding; a token's row does not depend on the others. */
#include "check/check_cuda.h"
#include "kernel/embed/embed.h"

static void one_case(chk *t, nb_wtype type, size_t dim, size_t n_tok, chk_pattern p)
{
    nb_embed_args a = { .n_tok = n_tok, .factor = chk_u64(t) % 2 ? 1.0f : 12.3f };
    a.w = chk_gpu_draw(t, type, chk_between(t, 1, 300), dim, p);
    if (type == NB_W_FP8B && chk_u64(t) % 2) chk_row_scales(t, &a.w);
    a.y_stride = dim + chk_between(t, 0, 5);
    uint32_t *id = chk_raw(t, (n_tok + 1) * sizeof *id);
    for (size_t i = 0; i < n_tok; i++) id[i] = (uint32_t)chk_between(t, 0, a.w.n_row - 1);
    if (n_tok) id[0] = (uint32_t)a.w.n_row - 1;
    a.id = id;
    double *want = chk_f64(t, (n_tok + 1) * dim), *bound = chk_f64(t, (n_tok + 1) * dim);
    nb_embed_ref(&a, want);
    for (size_t i = 0; i < n_tok * dim; i++) want[i] = (double)(float)want[i];
    /* tiled weights have a row's factors multiplied */
    for (size_t i = 0; i < (n_tok + 1) * dim; i++)
        bound[i] = i < n_tok * dim && nb_wtype_is_packed(type) ? 0x1p-22 * fabs(want[i]) : 0;
    if (n_tok > 2) { /* padding */
        id[1] = chk_u64(t) % 2 ? (uint32_t)a.w.n_row : UINT32_MAX;
        memset(want + dim, 0, dim * sizeof *want);
    }

    nb_cuda_embed_args b = { .id = chk_gpu_in(t, id, n_tok * sizeof *id),
                             .w = chk_gpu_weight(t, &a.w, false),
                             .n_tok = n_tok,
                             .y_stride = a.y_stride,
                             .factor = a.factor };
    const size_t n_bytes = chk_rows_bytes(n_tok, dim, a.y_stride, sizeof(float));
    b.y = chk_gpu_out(t, n_bytes);
    chk_gpu_call(t, chk_gpu_api(t)->embed(chk_gpu(t), &b));
    float *y = chk_raw(t, n_bytes);
    chk_gpu_get(t, y, b.y, n_bytes);
    chk_close(t, y, n_tok, dim, a.y_stride, want, bound);
    if (n_tok < 2) return;

    nb_cuda_embed_args last = b; /* the last token alone */
    float *alone = chk_raw(t, dim * sizeof *alone);
    last.id = b.id + n_tok - 1;
    last.n_tok = 1;
    last.y = chk_gpu_out(t, dim * sizeof(float));
    chk_gpu_call(t, chk_gpu_api(t)->embed(chk_gpu(t), &last));
    chk_gpu_get(t, alone, last.y, dim * sizeof(float));
    chk_same(t, "alone", y + (n_tok - 1) * a.y_stride, dim, alone, dim, 1, dim);
}

static void test(chk *t, const chk_row *row)
{
    static const size_t dims[] = { 1, 7, 8, 63, 64, 65, 127, 128, 129, 200, 576 };
    (void)row;
    for (size_t i = 0; i < NB_COUNT(dims); i++)
        for (nb_wtype w = 0; w < NB_W_TYPE_COUNT; w++)
            for (chk_pattern p = 0; p < CHK_PATTERN_COUNT; p += 2)
                if (chk_gpu_type(w, false) < NB_W_TYPE_COUNT &&
                    chk_case(t, "dim=%zu type=%d %s", dims[i], (int)w, chk_pattern_name(p)))
                    one_case(t, w, dims[i], chk_between(t, 1, 5), p);
}

const chk_op chk_cuda_embed = { "cuda_embed", chk_gpu_row, test, NULL, NULL };
