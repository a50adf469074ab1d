/* rope_balance.c - rope keys of about one size in all pairs, so that one scale per token fits them.
 *
 * A cached rope key in 8-bit integers has one step for its 64 values: pairs that are much smaller
 * than the largest lose their bits, although the queries may weigh them as much.  The two values
 * of a pair are rotated into each other, so a factor per pair commutes with the rotation:
 *   q . k = sum over pairs of (q_p / d_p) . (d_p k_p)
 * With d a power of two the products' bits do not change in float, so that a bf16 or f32 cache
 * gives the same results as without.  The error of a score is the step, which is at least
 * max_p d_p |k_p| / 127, times |q_p / d_p| over all pairs: least where d_p |k_p| is the same for
 * all p (Cauchy-Schwarz).
 *
 * All pairs are brought to a size of about 1.  |k_p| is taken from the weights alone, so that it
 * is the same with any text, with and without a calibration: the norm's output has a mean square
 * of 1, so a row's root mean square is about the length of (weights x gamma).  What a calibration
 * measures (load/kv_calib.h) is measured after this.  docs/decisions/017. */
#include <math.h>

#include "kernel/embed/embed.h"
#include "model/model.h"

enum { MAX_LOG2 = 12 };

/* sum over columns of (W[row][c] gamma[c])^2, and the bias's square. */
static double row_power(const nb_model_config *c, const nb_layer *l, size_t row, float *scratch)
{
    const uint32_t id = (uint32_t)row;
    double sum = 0;
    nb_embed_c(&(nb_embed_args){
        .y = scratch, .id = &id, .n_tok = 1, .y_stride = c->hidden, .factor = 1.0f, .w = l->kv_a });
    for (size_t i = 0; i < c->hidden; i++) {
        const double w = (double)scratch[i] * (double)l->in_norm[i];
        sum += w * w;
    }
    if (l->kv_a_b) sum += (double)l->kv_a_b[row] * (double)l->kv_a_b[row];
    return sum;
}

/* log2(sqrt(x)) of x > 0 to the nearest integer, from the bits, so that no library's logarithm
 * decides: with x = m 2^e and m in [1/2, 1), sqrt(x) is sqrt(m) 2^(e/2) in [.707, 1) 2^(e/2) for
 * even e, and sqrt(2 m) 2^((e-1)/2) in [1, 1.414) 2^((e-1)/2) for odd. */
static int half_log2(double x)
{
    int e;
    (void)frexp(x, &e);
    return (e - (e & 1)) / 2;
}

nb_status nb_rope_balance(nb_model *m, size_t layer, nb_error *err)
{
    const nb_model_config *c = &m->c;
    const nb_attn_config *attn = nb_layer_attn(c, layer);
    nb_layer *l = &m->layer[layer];
    const size_t half = attn->d_rope / 2, step = attn->rope.interleaved ? 1 : half;
    float *k = nb_arena_array(&m->arena, 2 * attn->d_rope, sizeof *k), *q = k + attn->d_rope;
    float *scratch = nb_arena_array(&m->arena, c->hidden, sizeof *scratch);
    bool any = false;
    if (!k || !scratch) return nb_fail(err, NB_ERR_NOMEM, "out of memory for layer %zu", layer);
    for (size_t p = 0; p < half; p++) {
        const size_t at = attn->rope.interleaved ? 2 * p : p, row = attn->kv_lora + at;
        const double power = row_power(c, l, row, scratch) + row_power(c, l, row + step, scratch);
        int e = power > 0 && isfinite(power) ? -half_log2(power) : 0;
        e = e > MAX_LOG2 ? MAX_LOG2 : e < -MAX_LOG2 ? -MAX_LOG2 : e;
        k[at] = k[at + step] = ldexpf(1, e);
        q[at] = q[at + step] = ldexpf(1, -e);
        any |= e != 0;
    }
    if (!any) return NB_OK;
    l->rope_k = k;
    l->rope_q = q;
    return NB_OK;
}
