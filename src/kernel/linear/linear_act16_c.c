/* linear_act16_c.c - activations rounded to BF16 once (NB_ACT_BF16), portable: rounded while they are packed, as
 * floats, and multiplied by the row for floats. */
#include "kernel/linear/linear.h"
#include "num/bf16.h"

static size_t stride_of(size_t n_col)
{
    return (n_col + 15) / 16 * 16;
}

size_t nb_linear_act16_pack_bytes_c(size_t n_tok, size_t n_col)
{
    return n_tok * stride_of(n_col) * sizeof(float);
}

void nb_linear_act16_pack_c(void *xp, const float *x, size_t x_stride, size_t n_tok, size_t n_col,
                            const uint32_t *column, size_t tok0, size_t tok1)
{
    (void)column, (void)n_tok;
    for (size_t t = tok0; t < tok1; t++) {
        float *out = (float *)xp + t * stride_of(n_col);
        for (size_t c = 0; c < stride_of(n_col); c++)
            out[c] = c < n_col ? nb_bf16_to_f32(nb_bf16_from_f32(x[t * x_stride + c])) : 0;
    }
}

void nb_linear_bf16_act16_c(const nb_linear_args *a)
{
    nb_linear_args b = *a;
    b.x = a->xp;
    b.x_stride = stride_of(a->w.n_col);
    b.xp = NULL;
    nb_linear_bf16_c(&b);
}
