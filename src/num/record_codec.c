/* record_codec.c - filling a page and reading it back: the normative encoder, around the formats' own code.
 *
 * Everything is decided in a normalised domain: a vector's values are divided by
 * a power of two (its outer scale), which moves exponents and rounds nothing.
 * Values that underflow a float there are smaller than any threshold, so it does
 * not matter what becomes of them.  Codes come from comparing |x| with products
 * of a scale (<= 4 significant bits) and a midpoint (<= 3 bits), which are exact;
 * no division takes part (but for a fixed scale, where a correctly rounded quotient takes the
 * place of the power of two).  The only rounded operations are the squares and sums
 * of the candidates' errors, taken in element order in single precision (built
 * with -ffp-contract=off: a fused multiply-add would change them).
 *
 * Why decoding is exact: a magnitude of E2M1 or 0..7 has at most 3 significant
 * bits, an E4M3 scale 4, their product 7, an INT8 code 7, and a power of two adds none.  So each
 * product below is exact (in BF16 too) unless it leaves the float range.  That
 * happens upwards only, when the encoder rounded up a value within a fifth of the
 * largest BF16: such values are read as the largest BF16, never as infinity.
 * Downwards the smallest value, 2^-135, is a subnormal float (these occur in
 * tokens whose largest magnitude is under 2^-106).
 * The exceptions: int4, where q * s is exact and the sum with the minimum rounds once, and fixed
 * scales, which are any float, so that the last product rounds once.
 *
 * Every byte decodes to something: scale bytes that stand for NaN give NaN, and
 * nb_record_check_page finds them. */
#include <string.h>

#include "num/num_internal.h"

static bool all_finite(const nb_record *r, const uint16_t *x, size_t x_stride)
{
    unsigned bad = 0;
    for (size_t t = 0; t < r->n_row;
         t++) /* the carry into bit 15 marks an exponent of all ones */
        for (size_t i = 0; i < r->n_values; i++) bad |= (x[t * x_stride + i] & NB_BF16_MAG) + 0x80u;
    return (bad & 0x8000u) == 0;
}

/* Where the block scales of vector v of token t begin. */
static size_t scale_place(const nb_record_seg *g, size_t t, size_t v)
{
    const nb_seg_trait *f = nb_seg_traits[g->fmt];
    return g->scale_off + (f->group_tok ? t / f->group_tok : t) * g->scale_stride +
           v * nb_num_bytes(f->scale, g->n_group);
}

static void encode_vecs(const nb_record *r, const nb_record_seg *g, uint8_t *page,
                        const uint16_t *x, size_t x_stride)
{
    const size_t vec_bytes = nb_seg_code_bytes(g);
    for (size_t t = 0; t < r->n_row; t++)
        for (size_t v = 0; v < g->n_vec; v++)
            nb_seg_traits[g->fmt]->encode_vec(&(nb_enc_vec){
                .g = g,
                .mode = r->mode,
                .x = x + t * x_stride + v * g->dim,
                .first = v * g->dim,
                .codes = page + g->code_off + t * g->code_stride + v * vec_bytes,
                .scale = page + scale_place(g, t, v),
                .outer = page + g->outer_off + t * g->outer_stride + v,
            });
}

static void encode_side(const nb_record *r, const nb_record_seg *g, uint8_t *page,
                        const uint16_t *x, size_t stride)
{
    for (size_t t = 0; t < r->n_row; t++)
        for (size_t k = 0; k < g->n_outlier; k++)
            nb_le16_put(page + g->side_off + t * g->side_stride + 2 * k,
                        x[t * stride + g->outlier[k]]);
}

uint64_t nb_record_count_saturated(const nb_record *r, const uint16_t *x, size_t x_stride)
{
    uint64_t n_sat = 0;
    for (size_t s = 0; s < r->n_seg; s++) {
        const nb_record_seg *g = &r->seg[s];
        if (g->fixed_scale == 0) continue;
        const float top = nb_seg_traits[g->fmt]->fixed_top;
        for (size_t t = 0; t < r->n_row; t++) {
            size_t next = 0;
            for (size_t i = 0; i < nb_seg_values(g); i++) {
                const float a = nb_bf16_to_f32(x[t * x_stride + g->first + i] & NB_BF16_MAG);
                if (next < g->n_outlier && i == g->outlier[next])
                    next++;
                else
                    n_sat += a / g->fixed_scale > top;
            }
        }
    }
    return n_sat;
}

nb_status nb_record_encode_page(const nb_record *r, void *page, const uint16_t *x, size_t x_stride)
{
    if (!all_finite(r, x, x_stride)) return NB_ERR_NONFINITE;
    memset(page, 0, r->page_bytes);
    for (size_t s = 0; s < r->n_seg; s++) {
        const nb_record_seg *g = &r->seg[s];
        const nb_seg_trait *f = nb_seg_traits[g->fmt];
        encode_side(r, g, page, x + g->first, x_stride);
        if (f->encode_seg)
            f->encode_seg(g, page, x + g->first, x_stride);
        else
            encode_vecs(r, g, page, x + g->first, x_stride);
    }
    return NB_OK;
}

void nb_record_store_f32(const nb_record *r, void *page, const float *x, size_t x_stride)
{
    memset(page, 0, r->page_bytes);
    for (size_t s = 0; s < r->n_seg; s++) {
        const nb_record_seg *g = &r->seg[s];
        for (size_t t = 0; t < r->n_row; t++) {
            uint8_t *codes = (uint8_t *)page + g->code_off + t * g->code_stride;
            for (size_t i = 0; i < nb_seg_values(g); i++)
                nb_le32_put(codes + 4 * i, nb_f32_bits(x[t * x_stride + g->first + i]));
        }
    }
}

/* The outlier channels of a token stand beside the codes. */
static void decode_side(const nb_record_seg *g, const uint8_t *page, size_t t, float *out)
{
    const uint8_t *side = page + g->side_off + t * g->side_stride;
    for (size_t k = 0; k < g->n_outlier; k++)
        out[g->outlier[k]] = nb_bf16_to_f32(nb_le16_get(side + 2 * k));
}

void nb_record_decode(const nb_record *r, const void *page, size_t s, size_t tok0, size_t n_tok,
                      float *out, size_t out_stride)
{
    const nb_record_seg *g = &r->seg[s];
    const size_t vec_bytes = nb_seg_code_bytes(g);
    const uint8_t *p = page;
    for (size_t t = tok0; t < tok0 + n_tok; t++, out += out_stride) {
        for (size_t v = 0; v < g->n_vec; v++)
            nb_seg_traits[g->fmt]->decode_vec(
                &(nb_dec_vec){
                    .g = g,
                    .codes = p + g->code_off + t * g->code_stride + v * vec_bytes,
                    .scale = p + scale_place(g, t, v),
                    .outer = g->outer_stride ? p[g->outer_off + t * g->outer_stride + v] : 0,
                },
                out + v * g->dim);
        decode_side(g, p, t, out);
    }
}

bool nb_record_can_move(const nb_record *r, size_t n_seg)
{
    for (size_t s = 0; s < n_seg; s++)
        if (nb_seg_traits[r->seg[s].fmt]->group_tok) return false;
    return !nb_kv_traits[r->type]->in_rows;
}

void nb_record_move(const nb_record *r, size_t n_seg, void *dst, size_t dst_tok, const void *src,
                    size_t src_tok)
{
    uint8_t *to = dst;
    const uint8_t *from = src;
    for (size_t s = 0; s < n_seg; s++) {
        const nb_record_seg *g = &r->seg[s];
        const struct {
            size_t off, stride;
        } plane[] = { { g->code_off, g->code_stride },
                      { g->scale_off, g->scale_stride },
                      { g->outer_off, g->outer_stride },
                      { g->side_off, g->side_stride } };
        for (size_t k = 0; k < NB_COUNT(plane); k++)
            memcpy(to + plane[k].off + dst_tok * plane[k].stride,
                   from + plane[k].off + src_tok * plane[k].stride, plane[k].stride);
    }
}
