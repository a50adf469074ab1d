/* linear_w4.c - what the variants for codes of 4 bits share: linear_w4.h. */
#include "kernel/linear/linear_w4.h"

#include "kernel/linear/packed.h"
#include "num/e2m1.h"

size_t nb_linear_w4_pack_bytes(size_t n_tok, size_t n_col)
{
    return n_tok * nb_w4_stride(n_col) * sizeof(float);
}

void nb_linear_w4_pack(void *xp, const float *x, size_t x_stride, size_t n_tok, size_t n_col,
                       const uint32_t *column, size_t tok0, size_t tok1)
{
    const size_t stride = nb_w4_stride(n_col), end = stride - NB_W4_LANE;
    (void)n_tok;
    for (size_t t = tok0; t < tok1; t++) {
        const float *from = x + t * x_stride;
        float *to = (float *)xp + t * stride;
        for (size_t i = end; i < stride; i++) to[i] = 0;
        for (size_t b = 0; b < end; b += NB_W4_BLOCK)
            for (size_t i = 0; i < NB_W4_LANE; i++)
                for (size_t j = 0; j < 8; j++) {
                    const size_t c = b + 8 * i + j;
                    to[b + NB_W4_LANE * j + i] = c < n_col ? from[column ? column[c] : c] : 0;
                }
    }
}

void nb_w4_table(const nb_weight *w, float table[16])
{
    for (unsigned i = 0; i < 16; i++) {
        const unsigned code = i ^ (w->group.flip & 15u);
        table[i] = w->type == NB_W_FP4 ? nb_e2m1_to_f32((uint8_t)code)
                   : w->group.zero     ? (float)code
                                       : (float)code - 8;
    }
}

void nb_w4_lanes(const nb_weight *w, size_t r, size_t b, size_t n_block, float *scale, float *zero)
{
    const nb_wgroups *g = &w->group;
    const size_t n_group = nb_weight_n_group(w), row = r * n_group;
    float s = 0, z = 0;
    size_t end = 0; /* columns from here on belong to another group */
    for (size_t i = 0; i < n_block * NB_W4_LANE; i++) {
        const size_t c = b * NB_W4_BLOCK + 8 * i;
        if (c >= w->n_col) {
            s = z = 0;
        } else if (c >= end) {
            const size_t k = c / g->size;
            nb_packed_scales(g, row + k, 1, &s);
            s *= g->outer;
            if (g->zero) z = (float)g->zero[row + k];
            end = (k + 1) * g->size;
        }
        scale[i] = s;
        if (g->zero) zero[i] = z;
    }
}
