/* fold.c - transforms of the latent, folded into a layer's weights.  See fold.h.
 *
 * With T = H P D and c = mean + T^-1 c':
 *
 *   norm     gamma'[i] = 2^k[p(i)] gamma[p(i)], p = perm, k = scale_log2: the norm gives P D c, since
 *            the root mean square does not depend on the order
 *   W_DKV    row i becomes row p(i), as does its bias; the rows of the rope key stay
 *   new rows - P D mean (nb_layer.kv_mean has P and D in it already), then H: nb_fold_rows
 *   kv_b     W'[r] = H (W[r][p(i)] 2^-k[p(i)])_i: H is its own inverse and transpose
 *   o_proj   b' = b + W_O [W_UV,h mean]_h: the weights of attention sum to 1, so each head's output
 *            lacks W_UV,h mean whatever it attended to.  Scores lack q~ . mean, the same for all
 *            tokens.  The linear adds b' before the block's factor (MiniCPM3) multiplies both.
 *
 * Rounding: none by P and D in BF16, F16 and F32 (a matrix whose 16-bit values would leave
 * their range becomes F32).  FP8 with block scales cannot hold a permuted or scaled matrix: each
 * value, code times scale, is rounded once to BF16 (relative error up to 2^-9, where the code times
 * scale has more than 8 significant bits); with H it goes to F32 straight.  H is computed in double
 * and rounded once to F32.  Packed types (packed.h) and halves (kv_b.h) go to F32, which holds their values.  The constant of
 * o_proj is summed in double from the weights as loaded.
 * What remains is that sums run over permuted channels, in another order. */
#include "model/fold.h"

#include <math.h>
#include <string.h>

#include "kernel/embed/embed.h"
#include "load/kv_calib.h"
#include "model/attention.h"
#include "model/kv_b.h"
#include "num/bf16.h"
#include "num/fp16.h"

typedef struct folder {
    nb_model *m;
    nb_layer *l;
    const nb_fold *f;
    size_t layer;
    nb_weight kv_b; /* the layer's; of halves in the scratch */
    nb_arena scratch;
    float *row;   /* [max(n_col of kv_a, kv_b, o)] */
    double *wide; /* [max(kv_lora, n_head * d_v)] */
    nb_error *err;
} folder;

static size_t from(const nb_fold *f, size_t i)
{
    return f->perm ? f->perm[i] : i;
}

/* 2^(sign * k) of channel c */
static float scale_of(const nb_fold *f, size_t c, int sign)
{
    return f->scale_log2 ? nb_f32_pow2(sign * f->scale_log2[c]) : 1.0f;
}

static nb_status no_memory(const folder *x)
{
    return nb_fail(x->err, NB_ERR_NOMEM, "layer %zu: out of memory for folded weights", x->layer);
}

/* Row r as floats: exact but for FP8, whose product with its scale is rounded once. */
static void read_row(const nb_weight *w, size_t r, float *out)
{
    const uint32_t id = (uint32_t)r;
    nb_embed_c(&(nb_embed_args){
        .y = out, .id = &id, .w = *w, .n_tok = 1, .y_stride = w->n_col, .factor = 1.0f });
}

/* Writes x as element i; false if that is not exact. */
static bool put(void *data, nb_wtype type, size_t i, float x)
{
    uint16_t h;
    if (type == NB_W_F32) {
        memcpy((float *)data + i, &x, sizeof x);
        return true;
    }
    h = type == NB_W_BF16 ? nb_bf16_from_f32(x) : nb_fp16_from_f32(x);
    memcpy((uint16_t *)data + i, &h, sizeof h);
    return isnan(x) || (type == NB_W_BF16 ? nb_bf16_to_f32(h) : nb_fp16_to_f32(h)) == x;
}

/* The type of a folded matrix: scales of blocks or groups cannot follow their columns. */
static nb_wtype unpacked(nb_wtype t)
{
    return t == NB_W_FP8B ? NB_W_BF16 : nb_wtype_is_packed(t) ? NB_W_F32 : t;
}

static void *new_matrix(folder *x, const nb_weight *shape, nb_wtype type, nb_weight *out)
{
    void *data =
        shape->n_row > SIZE_MAX / shape->n_col
            ? NULL
            : nb_arena_array(&x->m->folded, shape->n_row * shape->n_col, nb_wtype_bytes(type));
    *out = (nb_weight){ .data = data, .n_row = shape->n_row, .n_col = shape->n_col, .type = type };
    return data;
}

/* ---- the parts ---- */

static nb_status fold_kv_a(folder *x, nb_weight *w, const float **bias)
{
    const nb_weight *old = &x->l->kv_a;
    const size_t n = nb_layer_attn(&x->m->c, x->layer)->kv_lora, n_col = old->n_col;
    if (!x->f->perm) return NB_OK;
    const nb_wtype type = unpacked(old->type);
    char *data = new_matrix(x, old, type, w);
    if (!data) return no_memory(x);
    const size_t row_bytes = n_col * nb_wtype_bytes(type);
    for (size_t i = 0; i < old->n_row; i++) {
        const size_t r = i < n ? from(x->f, i) : i;
        if (type == old->type) {
            memcpy(data + i * row_bytes, (const char *)old->data + r * row_bytes, row_bytes);
        } else {
            read_row(old, r, x->row);
            for (size_t k = 0; k < n_col; k++) (void)put(data + i * row_bytes, type, k, x->row[k]);
        }
    }
    if (!x->l->kv_a_b) return NB_OK;
    float *b = nb_arena_array(&x->m->arena, old->n_row, sizeof *b);
    if (!b) return no_memory(x);
    for (size_t i = 0; i < old->n_row; i++) b[i] = x->l->kv_a_b[i < n ? from(x->f, i) : i];
    *bias = b;
    return NB_OK;
}

static void hadamard_f64(double *x, size_t n, size_t block)
{
    const double s = 1 / sqrt((double)block);
    for (size_t b = 0; b < n; b += block)
        for (size_t h = 1; h < block; h *= 2)
            for (size_t i = b; i < b + block; i += 2 * h)
                for (size_t j = i; j < i + h; j++) {
                    const double u = x[j], v = x[j + h];
                    x[j] = u + v;
                    x[j + h] = u - v;
                }
    for (size_t i = 0; i < n; i++) x[i] *= s;
}

typedef struct rounding {
    bool exact, finite; /* finite: where the values were */
} rounding;

static rounding kv_b_rows(folder *x, void *data, nb_wtype type)
{
    const nb_weight *old = &x->kv_b;
    const nb_fold *f = x->f;
    const size_t n = old->n_col;
    rounding q = { true, true };
    for (size_t r = 0; r < old->n_row; r++) {
        bool was_finite = true;
        read_row(old, r, x->row);
        for (size_t i = 0; i < n; i++) {
            const size_t c = from(f, i);
            was_finite &= isfinite(x->row[c]) != 0;
            x->wide[i] = (double)x->row[c] * (double)scale_of(f, c, -1);
        }
        if (f->hadamard) hadamard_f64(x->wide, n, f->hadamard);
        for (size_t i = 0; i < n; i++) {
            const float y = (float)x->wide[i];
            q.exact &= put(data, type, r * n + i, y);
            q.finite &= isfinite(y) || !was_finite;
        }
    }
    return q;
}

static nb_status fold_kv_b(folder *x, nb_weight *w)
{
    const nb_weight *old = &x->kv_b;
    if (!x->f->perm && !x->f->scale_log2 && !x->f->hadamard) return NB_OK;
    const bool fp8 = old->type == NB_W_FP8B;
    const nb_wtype type = x->f->hadamard ? NB_W_F32 : unpacked(old->type);
    void *data = new_matrix(x, old, type, w);
    if (!data) return no_memory(x);
    rounding q = kv_b_rows(x, data, type);
    if (!q.exact && !fp8) {
        data = new_matrix(x, old, NB_W_F32, w);
        if (!data) return no_memory(x);
        q = kv_b_rows(x, data, NB_W_F32);
    }
    if (!q.finite)
        return nb_fail(x->err, NB_ERR_RANGE,
                       "layer %zu: values of kv_b_proj are too large for float32 when scaled",
                       x->layer);
    return NB_OK;
}

static nb_status fold_norm(folder *x, const float **gamma, const float **mean)
{
    const size_t n = nb_layer_attn(&x->m->c, x->layer)->kv_lora;
    float *g = nb_arena_array(&x->m->arena, n, sizeof *g);
    float *m = x->f->mean ? nb_arena_array(&x->m->arena, n, sizeof *m) : NULL;
    if (!g || (x->f->mean && !m)) return no_memory(x);
    bool finite = true;
    for (size_t i = 0; i < n; i++) {
        const size_t c = from(x->f, i);
        g[i] = x->l->kv_a_norm[c] * scale_of(x->f, c, 1);
        finite &= isfinite(g[i]) || !isfinite(x->l->kv_a_norm[c]);
        if (!m) continue;
        m[i] = x->f->mean[c] * scale_of(x->f, c, 1);
        finite &= isfinite(m[i]) != 0;
    }
    if (!finite)
        return nb_fail(x->err, NB_ERR_RANGE,
                       "layer %zu: scaled weights of the latent's norm or "
                       "its mean are not finite",
                       x->layer);
    *gamma = g;
    *mean = m;
    return NB_OK;
}

/* b + W_O [W_UV,h mean]_h */
static nb_status fold_output(folder *x, const float **bias)
{
    const nb_model_config *c = &x->m->c;
    const nb_attn_config *attn = nb_layer_attn(c, x->layer);
    const size_t n_v = attn->n_head * attn->d_v;
    if (!x->f->mean) return NB_OK;
    float *b = nb_arena_array(&x->m->arena, c->hidden, sizeof *b);
    double *u = x->wide;
    if (!b) return no_memory(x);
    for (size_t k = 0; k < n_v; k++) {
        read_row(&x->kv_b,
                 k / attn->d_v * (attn->d_nope + attn->d_v) + attn->d_nope + k % attn->d_v, x->row);
        u[k] = 0;
        for (size_t i = 0; i < attn->kv_lora; i++)
            u[k] += (double)x->row[i] * (double)x->f->mean[i];
    }
    for (size_t j = 0; j < c->hidden; j++) {
        double sum = x->l->o_b ? (double)x->l->o_b[j] : 0;
        read_row(&x->l->o, j, x->row);
        for (size_t k = 0; k < n_v; k++) sum += (double)x->row[k] * u[k];
        b[j] = (float)sum;
        if (!isfinite(b[j]))
            return nb_fail(x->err, NB_ERR_RANGE,
                           "layer %zu: the constant that centering adds to o_proj is not finite",
                           x->layer);
    }
    *bias = b;
    return NB_OK;
}

/* ---- a layer ---- */

static nb_status check(folder *x)
{
    const nb_fold *f = x->f;
    const nb_attn_config *attn = nb_layer_attn(&x->m->c, x->layer);
    const size_t n = attn->kv_lora;
    if (!nb_attn_is_latent(attn))
        return nb_fail(x->err, NB_ERR_UNSUPPORTED, "transforms of the KV cache need MLA");
    if (x->l->kv_mean || x->l->kv_hadamard)
        return nb_fail(x->err, NB_ERR_INTERNAL, "layer %zu: is already transformed", x->layer);
    if (f->hadamard && ((f->hadamard & (f->hadamard - 1)) != 0 || n % f->hadamard != 0))
        return nb_fail(x->err, NB_ERR_ARG,
                       "layer %zu: a Hadamard block of %zu for a latent of %zu values: expected a "
                       "power of two that divides it",
                       x->layer, f->hadamard, n);
    unsigned char *seen = nb_arena_alloc(&x->scratch, n);
    if (!seen) return no_memory(x);
    for (size_t i = 0; i < n; i++) {
        if (f->perm && (f->perm[i] >= n || seen[f->perm[i]]++))
            return nb_fail(x->err, NB_ERR_ARG, "layer %zu: perm[%zu] is %u: not a permutation",
                           x->layer, i, f->perm[i]);
        if (f->scale_log2 &&
            (f->scale_log2[i] > NB_KV_SCALE_LOG2_MAX || f->scale_log2[i] < -NB_KV_SCALE_LOG2_MAX))
            return nb_fail(x->err, NB_ERR_ARG, "layer %zu: scale_log2[%zu] is %d: beyond +-%d",
                           x->layer, i, f->scale_log2[i], NB_KV_SCALE_LOG2_MAX);
    }
    return NB_OK;
}

static nb_status fold(folder *x)
{
    const nb_model_config *c = &x->m->c;
    const nb_attn_config *attn = nb_layer_attn(c, x->layer);
    nb_layer y = *x->l;
    NB_TRY(check(x));
    const size_t n_v = attn->n_head * attn->d_v;
    size_t n = c->hidden > n_v ? c->hidden : n_v;
    n = n > attn->kv_lora ? n : attn->kv_lora;
    x->row = nb_arena_array(&x->scratch, n, sizeof *x->row);
    x->wide = nb_arena_array(&x->scratch, n, sizeof *x->wide);
    if (!x->row || !x->wide) return no_memory(x);
    x->kv_b = x->l->kv_b;
    if (nb_kv_b_in_halves(x->l)) NB_TRY(nb_kv_b_joined(x->l, attn, &x->scratch, &x->kv_b, x->err));
    NB_TRY(fold_output(x, &y.o_b));
    NB_TRY(fold_norm(x, &y.kv_a_norm, &y.kv_mean));
    NB_TRY(fold_kv_a(x, &y.kv_a, &y.kv_a_b));
    NB_TRY(fold_kv_b(x, &y.kv_b));
    y.kv_hadamard = x->f->hadamard;
    uint64_t bytes = x->m->weight_bytes;
    bytes += nb_weight_bytes(&y.kv_a) + nb_weight_bytes(&y.kv_b);
    bytes -= nb_weight_bytes(&x->l->kv_a) + nb_weight_bytes(&x->l->kv_b);
    if (nb_kv_b_in_halves(&y) && y.kv_b.data) { /* there is a new one */
        bytes -= nb_weight_bytes(&y.absorb_k) + nb_weight_bytes(&y.absorb_v);
        y.absorb_k = y.absorb_v = (nb_weight){ 0 };
    }
    if (y.o_b && !x->l->o_b) bytes += c->hidden * sizeof *y.o_b;
    if (y.kv_mean) bytes += attn->kv_lora * sizeof *y.kv_mean;
    x->m->weight_bytes = bytes;
    *x->l = y;
    return NB_OK;
}

nb_status nb_fold_layer(nb_model *m, size_t layer, const nb_fold *f, nb_error *err)
{
    folder x = { .m = m, .l = &m->layer[layer], .f = f, .layer = layer, .err = err };
    const nb_status st = fold(&x);
    nb_arena_deinit(&x.scratch);
    return st;
}

/* ---- at run time ---- */

void nb_fold_rows(const nb_layer *l, size_t kv_lora, float *kv, size_t n_tok, size_t stride)
{
    if (!l->kv_mean && !l->kv_hadamard) return;
    for (size_t t = 0; t < n_tok; t++) {
        float *x = kv + t * stride;
        for (size_t i = 0; l->kv_mean && i < kv_lora; i++) x[i] -= l->kv_mean[i];
        if (l->kv_hadamard) nb_hadamard(x, kv_lora, l->kv_hadamard);
    }
}
