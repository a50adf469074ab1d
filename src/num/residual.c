/* residual.c - 4 more bits per value beside a page of nvfp4 or if4: the normative code.
 *
 * A cell is cut at lo + j * width / 16, j = 1..15.  These cuts have at most 8 significant bits and
 * a block scale 4, so that scale * cut is exact and one comparison decides; four of them, by
 * halving, find the part.  The middle of a part has at most 9 bits: with the scale 13, and the
 * outer power of two adds none, so that a refined value is exact in float (with a fixed scale the
 * last product rounds once).
 *
 * A value so small that its normalised magnitude underflows lies in the cell around 0, where only
 * its sign counts: it is taken as the smallest normal number of that sign. */
#include "num/residual.h"

#include <string.h>

#include "num/e4m3.h"
#include "num/int4.h"
#include "num/num_internal.h"
#include "num/residual_cells.h"

bool nb_residual_possible(const nb_record *r)
{
    return r->seg[0].fmt == NB_SEG_NVFP4 || r->seg[0].fmt == NB_SEG_IF4;
}

size_t nb_residual_row_bytes(const nb_record *r)
{
    return r->seg[0].n_vec * ((r->seg[0].dim + 1) / 2);
}

size_t nb_residual_page_bytes(const nb_record *r)
{
    return NB_PAGE_TOK * nb_residual_row_bytes(r);
}

/* Where a vector's parts of the page are. */
typedef struct place {
    const uint8_t *codes, *sf;
    uint8_t outer;
} place;

static place find(const nb_record_seg *g, const uint8_t *page, size_t t, size_t v)
{
    return (place){
        page + g->code_off + t * g->code_stride + v * nb_seg_code_bytes(g),
        page + g->scale_off + t * g->scale_stride + v * g->n_group,
        page[g->outer_off + t * g->outer_stride + v],
    };
}

/* The part of the cell that b lies in; i: its magnitude index, s: the block scale. */
static uint8_t part(const nb_record_seg *g, const nb_cells *c, unsigned i, float s, uint16_t b,
                    uint8_t outer)
{
    unsigned r = 0;
    float y = nb_seg_mag(g, b, outer);
    if (y == 0 && (b & NB_BF16_MAG) != 0) y = FLT_MIN;
    if (i == 0 && b & 0x8000) y = -y;
    for (unsigned half = 8; half > 0; half /= 2)
        if (y >= s * (c->lo[i] + (float)(r + half) * c->step[i])) r += half;
    return (uint8_t)r;
}

static void encode_vec(const nb_record *r, const uint8_t *page, size_t t, size_t v,
                       const uint16_t *x, uint8_t *row)
{
    const nb_record_seg *g = &r->seg[0];
    const place p = find(g, page, t, v);
    size_t next = 0; /* outlier */
    if (p.outer == 0) return;
    while (next < g->n_outlier && g->outlier[next] < v * g->dim) next++;
    for (size_t e = 0; e < g->dim; e++) {
        const uint8_t sf = p.sf[e / NB_GROUP_NV];
        const bool is_outlier = next < g->n_outlier && g->outlier[next] == v * g->dim + e;
        next += is_outlier;
        if (is_outlier || (sf & 0x7f) == 0) continue;
        nb_nibble_or(row, e,
                     part(g, nb_cells_of(r, sf), nb_nibble_get(p.codes, e) & 7,
                          nb_e4m3_value[sf & 0x7f], x[e], p.outer));
    }
}

void nb_residual_encode(const nb_record *r, const void *page, const uint16_t *x, size_t x_stride,
                        void *plane)
{
    const nb_record_seg *g = &r->seg[0];
    const size_t row_bytes = nb_residual_row_bytes(r), vec_bytes = (g->dim + 1) / 2;
    memset(plane, 0, nb_residual_page_bytes(r));
    for (size_t t = 0; t < NB_PAGE_TOK; t++)
        for (size_t v = 0; v < g->n_vec; v++)
            encode_vec(r, page, t, v, x + t * x_stride + v * g->dim,
                       (uint8_t *)plane + t * row_bytes + v * vec_bytes);
}

static void decode_vec(const nb_record *r, const uint8_t *page, size_t t, size_t v,
                       const uint8_t *row, float *out)
{
    const nb_record_seg *g = &r->seg[0];
    const place p = find(g, page, t, v);
    const float o = nb_seg_factor(g, p.outer);
    for (size_t e = 0; e < g->dim; e++) {
        const uint8_t sf = p.sf[e / NB_GROUP_NV];
        const nb_cells *c = nb_cells_of(r, sf);
        const unsigned nib = nb_nibble_get(p.codes, e), i = nib & 7;
        float mid = c->mid[i] + (float)nb_nibble_get(row, e) * c->step[i];
        if (i != 0 && nib & 8) mid = -mid;
        out[e] =
            p.outer == 0 || (sf & 0x7f) == 0 ? 0 : nb_seg_clip(mid * nb_e4m3_value[sf & 0x7f] * o);
    }
}

void nb_residual_decode(const nb_record *r, const void *page, size_t tok, const void *row,
                        float *out)
{
    const nb_record_seg *g = &r->seg[0];
    const uint8_t *side = (const uint8_t *)page + g->side_off + tok * g->side_stride;
    for (size_t v = 0; v < g->n_vec; v++)
        decode_vec(r, page, tok, v, (const uint8_t *)row + v * ((g->dim + 1) / 2),
                   out + v * g->dim);
    for (size_t k = 0; k < g->n_outlier; k++)
        out[g->outlier[k]] = nb_bf16_to_f32(nb_le16_get(side + 2 * k));
}
