/* weights.c - the tensors of a model, as tables: name, where it goes, its shape,
 * and when it exists.  Names are those of Hugging Face checkpoints. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "kernel/embed/embed.h"
#include "model/attention.h"
#include "model/weight_form.h"

enum { NAME_BYTES = 192 };

#define AT(member) offsetof(nb_layer, member)
/* What every layer has beside its attention (attention.h). */
static const nb_tensor_row norm_rows[] = {
    { "input_layernorm.weight", AT(in_norm), nb_dim_hidden, NULL, NULL, true },
    { "post_attention_layernorm.weight", AT(post_norm), nb_dim_hidden, NULL, NULL, true },
};

/* What a layer of several residual streams has. */
#define MIX_ROWS(name, member)                                                                     \
    { name ".fn", AT(member.fn), mix_rows, mix_cols, NULL, NB_T_F32 | NB_T_KEEP },           \
        { name ".base", AT(member.base), mix_rows, NULL, NULL, NB_T_F32 },                      \
    {                                                                                              \
        name ".scale", AT(member.scale), mix_scales, NULL, NULL, NB_T_ONES | NB_T_F32         \
    }
static size_t mix_rows(const nb_model_config *c, const nb_attn_config *a)
{
    (void)a;
    return (2 + c->n_stream) * c->n_stream;
}
static size_t mix_cols(const nb_model_config *c, const nb_attn_config *a)
{
    (void)a;
    return c->n_stream * c->hidden;
}
static size_t mix_scales(const nb_model_config *c, const nb_attn_config *a)
{
    (void)c;
    (void)a;
    return 3;
}
static const nb_tensor_row stream_rows[] = { MIX_ROWS("attn_hc", mix[0]), MIX_ROWS("ffn_hc", mix[1]) };

static const char k_b[] = "self_attn.k_b_proj.weight", v_b[] = "self_attn.v_b_proj.weight";

typedef struct loader {
    nb_model *m;
    nb_source *s; /* NULL: shapes only */
    nb_error *err;
    unsigned char *power; /* [n_power]: dummy scales */
    size_t n_power;
} loader;

static const nb_moe_names usual = { "mlp", "gate_proj", "up_proj", "down_proj" };

static const nb_moe_names *moe_names(const nb_model_config *c)
{
    return c->moe_names ? c->moe_names : &usual;
}

/* The published name of a layer's tensor or module, but the experts'.  In a pair, what stands before the first point has
 * the number of the layer in it. */
static void name_of(const nb_model_config *c, size_t layer, const char *rest, char out[NAME_BYTES])
{
    const int n = (int)strcspn(rest, ".");
    if (!c->paired)
        (void)snprintf(out, NAME_BYTES, "model.layers.%zu.%s", layer, rest);
    else
        (void)snprintf(out, NAME_BYTES, "model.layers.%zu.%.*s.%zu%s", layer / 2, n, rest, layer % 2,
                       rest + n);
}

/* In the block of experts. */
static void moe_name(const nb_model_config *c, size_t layer, const char *rest, char out[NAME_BYTES])
{
    (void)snprintf(out, NAME_BYTES, "model.layers.%zu.%s.%s", c->paired ? layer / 2 : layer,
                   moe_names(c)->block, rest);
}

static void expert_name(const nb_model_config *c, size_t layer, size_t expert, char out[NAME_BYTES])
{
    char rest[32];
    (void)snprintf(rest, sizeof rest, "experts.%zu", expert);
    moe_name(c, layer, rest, out);
}

static nb_wtype wtype_of(nb_dtype t)
{
    if (t >= NB_DT_Q8_0 && t < NB_DT_OTHER) return NB_W_Q8_0 + (nb_wtype)(t - NB_DT_Q8_0);
    return t == NB_DT_F32       ? NB_W_F32
           : t == NB_DT_F16     ? NB_W_F16
           : t == NB_DT_F8_E4M3 ? NB_W_FP8B
                                : NB_W_BF16;
}

static nb_dtype config_dtype(const nb_model_config *c)
{
    return c->dtype[0] == 'b' ? NB_DT_BF16 : c->dtype[5] == '1' ? NB_DT_F16 : NB_DT_F32;
}

/* Blocks of GGUF. */
#define ANY_BLOCK (1u << NB_DT_Q8_0)
enum { ANY_FLOAT = 1u << NB_DT_F32 | 1u << NB_DT_BF16 | 1u << NB_DT_F16 };

/* From the source, or only what it would say. */
static nb_status take(loader *l, const nb_tensor_want *want, nb_tensor *out)
{
    if (l->s) return nb_source_take(l->s, want, out, l->err);
    *out = (nb_tensor){ .dtype = want->dummy_dtype, .n_dim = want->n_dim };
    out->n_bytes = nb_dtype_bytes(out->dtype);
    for (size_t i = 0; i < want->n_dim; i++) out->n_bytes *= out->dim[i] = want->dim[i];
    return NB_OK;
}

/* E8M0 scales of a dummy matrix, all the same: one plane serves every matrix of its size. */
static nb_status dummy_powers(loader *l, nb_weight *out)
{
    enum { SCALE = 121 }; /* 2^-6 */
    const size_t n = out->n_row * nb_weight_n_group(out);
    l->m->weight_bytes += n;
    out->group.scale_type = NB_S_E8M0;
    out->group.outer = 1;
    if (!l->s) return NB_OK;
    if (n > l->n_power) {
        unsigned char *p = nb_arena_array(&l->m->arena, n, 1);
        if (!p) return nb_fail(l->err, NB_ERR_NOMEM, "out of memory for dummy scales");
        memset(p, SCALE, n);
        l->power = p;
        l->n_power = n;
    }
    out->group.scale = l->power;
    return NB_OK;
}

/* Whether a dummy matrix has FP8 codes and a scale for each block of 128 x 128. */
static bool dummy_blocks(const loader *l, const char *name)
{
    const nb_model_config *c = &l->m->c;
    char module[NAME_BYTES];
    if (l->s && !nb_source_has(l->s, "*")) return false;
    (void)snprintf(module, sizeof module, "%.*s", (int)(strlen(name) - strlen(".weight")), name);
    const nb_quant_form *q = nb_quant_of(&c->quant, c->quant_of, c->n_layer, module);
    return q && q->bits == 8 && q->rows == NB_FP8_BLOCK && q->cols == NB_FP8_BLOCK;
}

/* Random codes in the layout of a form: INT4 or FP4 with scales that give weights of about the usual size. */
static nb_status take_packed_dummy(loader *l, const nb_quant_form *q, const char *name, size_t rows,
                                   size_t cols, nb_weight *out)
{
    char scale_name[NAME_BYTES + 16];
    nb_tensor t;
    *out = (nb_weight){ .n_row = rows, .n_col = cols };
    out->type = q->fp4 ? NB_W_FP4 : q->bits == 4 ? NB_W_INT4 : NB_W_BYTE;
    const nb_tensor_want want = { .name = name,
                                  .dtypes = 1u << NB_DT_U8,
                                  .n_dim = 2,
                                  .dim = { rows, nb_wtype_row_bytes(out->type, cols) },
                                  .dummy_dtype = NB_DT_U8,
                                  .dummy_fill = NB_FILL_CODES };
    NB_TRY(take(l, &want, &t));
    l->m->weight_bytes += t.n_bytes;
    out->data = t.data;
    out->group.size = q->cols ? q->cols : cols;
    if (q->fp4 && q->cols != 16) return dummy_powers(l, out);
    const bool e4m3 = q->fp4;
    (void)snprintf(scale_name, sizeof scale_name, "%s_scale", name);
    const nb_dtype type = e4m3 ? NB_DT_F8_E4M3 : NB_DT_BF16;
    const nb_tensor_want sw = { .name = scale_name,
                                .dtypes = 1u << type,
                                .n_dim = 2,
                                .dim = { rows, nb_weight_n_group(out) },
                                .dummy_dtype = type,
                                .dummy_fill = NB_FILL_NORMAL };
    NB_TRY(take(l, &sw, &t));
    l->m->weight_bytes += t.n_bytes;
    out->group.scale = t.data;
    out->group.scale_type = e4m3 ? NB_S_E4M3 : NB_S_BF16;
    out->group.outer = e4m3 ? (float)(l->m->c.init_range / 256) : q->bits == 8 ? 0x1p-6f : 0.25f;
    return NB_OK;
}

/* A quantised matrix; *found: it is one. */
static nb_status take_quantised(loader *l, const char *name, size_t rows, size_t cols,
                                nb_weight *out, bool *found)
{
    const nb_model_config *c = &l->m->c;
    const bool dummy = !l->s || nb_source_has(l->s, "*");
    char module[NAME_BYTES];
    (void)snprintf(module, sizeof module, "%.*s", (int)(strlen(name) - strlen(".weight")), name);
    *found = false;
    if (dummy) {
        const nb_quant_form *q = nb_quant_of(&c->quant, c->quant_of, c->n_layer, module);
        *found = q && (q->bits == 4 || q->bits == 8);
        return *found ? take_packed_dummy(l, q, name, rows, cols, out) : NB_OK;
    }
    *found = nb_form_is_quantised(l->s, module);
    if (!*found) return NB_OK;
    if (!c->fp8 && !c->quant.method[0])
        return nb_fail(l->err, NB_ERR_FORMAT,
                       "tensor '%s': is quantised, but config.json has no quantization_config", name);
    nb_form f = { l->s, &l->m->arena, &c->quant, module, rows, cols, l->err };
    NB_TRY(nb_form_take(&f, out));
    l->m->weight_bytes += nb_weight_bytes(out);
    return NB_OK;
}

/* NVFP4 of a GGUF: one more scale beside the tensor, in some files. */
static nb_status take_outer(loader *l, const char *name, nb_weight *out)
{
    char scale[NAME_BYTES + 16];
    nb_tensor t;
    out->group.outer = 1;
    (void)snprintf(scale, sizeof scale, "%s_outer", name);
    if (!l->s || !nb_source_has(l->s, scale)) return NB_OK;
    const nb_tensor_want want = {
        .name = scale, .dtypes = 1u << NB_DT_F32, .n_dim = 1, .dim = { 1 }
    };
    NB_TRY(nb_source_take(l->s, &want, &t, l->err));
    out->group.outer = *(const float *)t.data;
    if (isfinite(out->group.outer)) return NB_OK;
    return nb_fail(l->err, NB_ERR_FORMAT, "tensor '%s': %g, expected a finite scale", scale,
                   (double)out->group.outer);
}

/* type: what checkpoints have it in. */
static nb_status take_matrix_of(loader *l, const char *name, size_t rows, size_t cols, bool may_fp8,
                                nb_dtype type, nb_weight *out)
{
    bool found = false;
    const bool blocks = may_fp8 && dummy_blocks(l, name);
    if (may_fp8 && !blocks) NB_TRY(take_quantised(l, name, rows, cols, out, &found));
    if (found) return NB_OK;
    const bool fp8 = may_fp8 && (l->m->c.fp8 || blocks);
    const nb_tensor_want want = {
        .name = name,
        .dtypes = ANY_FLOAT | ANY_BLOCK | (fp8 ? 1u << NB_DT_F8_E4M3 : 0),
        .n_dim = 2,
        .dim = { rows, cols },
        .dummy_dtype = fp8 ? NB_DT_F8_E4M3 : type,
        .dummy_fill = NB_FILL_NORMAL,
    };
    nb_tensor t;
    NB_TRY(take(l, &want, &t));
    *out = (nb_weight){ .data = t.data, .n_row = rows, .n_col = cols, .type = wtype_of(t.dtype) };
    l->m->weight_bytes += t.n_bytes;
    if (out->type == NB_W_GGUF_NVFP4) return take_outer(l, name, out);
    if (out->type != NB_W_FP8B) return NB_OK;
    char scale_name[NAME_BYTES + 16];
    (void)snprintf(scale_name, sizeof scale_name, "%s_scale_inv", name);
    const nb_tensor_want sw = {
        .name = scale_name,
        .dtypes = 1u << NB_DT_F32,
        .n_dim = 2,
        .dim = { (rows + NB_FP8_BLOCK - 1) / NB_FP8_BLOCK,
                 (cols + NB_FP8_BLOCK - 1) / NB_FP8_BLOCK },
        .dummy_dtype = NB_DT_F32,
        .dummy_fill = NB_FILL_NORMAL,
    };
    NB_TRY(take(l, &sw, &t));
    out->scale = t.data;
    l->m->weight_bytes += t.n_bytes;
    return NB_OK;
}

static nb_status take_matrix(loader *l, const char *name, size_t rows, size_t cols, bool may_fp8,
                             nb_weight *out)
{
    return take_matrix_of(l, name, rows, cols, may_fp8, config_dtype(&l->m->c), out);
}

/* type: what checkpoints have it in; any float is read. */
static nb_status take_elements(loader *l, const char *name, size_t n, bool ones, nb_dtype type,
                               bool any_shape, const float **out)
{
    const nb_tensor_want want = {
        .name = name,
        .dtypes = ANY_FLOAT,
        .n_dim = 1,
        .dim = { n },
        .any_shape = any_shape,
        .dummy_dtype = type,
        .dummy_fill = ones ? NB_FILL_ONES : NB_FILL_ZEROS,
    };
    nb_tensor t;
    NB_TRY(take(l, &want, &t));
    l->m->weight_bytes += t.n_bytes;
    *out = NULL;
    if (!l->s) return NB_OK;
    float *v = nb_arena_array(&l->m->arena, n, sizeof *v);
    if (!v) return nb_fail(l->err, NB_ERR_NOMEM, "out of memory for %s", name);
    const uint32_t row = 0;
    nb_embed_c(&(nb_embed_args){
        .y = v,
        .id = &row,
        .n_tok = 1,
        .y_stride = n,
        .factor = 1.0f,
        .w = { .data = t.data, .n_row = 1, .n_col = n, .type = wtype_of(t.dtype) } });
    *out = v;
    return NB_OK;
}

static nb_status take_vector(loader *l, const char *name, size_t n, bool ones, nb_dtype type,
                             const float **out)
{
    return take_elements(l, name, n, ones, type, false, out);
}

/* Of an expert, with the names of its matrices. */
static nb_status take_expert(loader *l, const char *prefix, size_t inter, const nb_moe_names *n,
                             nb_mlp *out)
{
    const size_t h = l->m->c.hidden;
    char name[NAME_BYTES];
    (void)snprintf(name, sizeof name, "%s.%s.weight", prefix, n->gate);
    NB_TRY(take_matrix(l, name, inter, h, true, &out->gate));
    (void)snprintf(name, sizeof name, "%s.%s.weight", prefix, n->up);
    NB_TRY(take_matrix(l, name, inter, h, true, &out->up));
    (void)snprintf(name, sizeof name, "%s.%s.weight", prefix, n->down);
    return take_matrix(l, name, h, inter, true, &out->down);
}

static nb_status take_mlp(loader *l, const char *prefix, size_t inter, bool bias, nb_mlp *out)
{
    const size_t h = l->m->c.hidden;
    const nb_dtype type = config_dtype(&l->m->c);
    char name[NAME_BYTES];
    NB_TRY(take_expert(l, prefix, inter, &usual, out));
    if (!bias) return NB_OK;
    (void)snprintf(name, sizeof name, "%s.gate_proj.bias", prefix);
    NB_TRY(take_vector(l, name, inter, false, type, &out->gate_b));
    (void)snprintf(name, sizeof name, "%s.up_proj.bias", prefix);
    NB_TRY(take_vector(l, name, inter, false, type, &out->up_b));
    (void)snprintf(name, sizeof name, "%s.down_proj.bias", prefix);
    return take_vector(l, name, h, false, type, &out->down_b);
}

/* All experts of a layer in two tensors. */
static nb_status take_stacked(loader *l, const char *experts, nb_mlp *expert)
{
    const nb_model_config *c = &l->m->c;
    const size_t h = c->hidden, inter = c->moe_inter, n = c->n_expert;
    nb_form f = { l->s, &l->m->arena, &c->quant, experts, inter, h, l->err };
    for (size_t j = 0; j < n; j++) {
        nb_weight *const w[] = { &expert[j].gate, &expert[j].up, &expert[j].down };
        static const char *const part[] = { "gate", "up", "down" };
        for (size_t k = 0; k < NB_COUNT(w); k++) {
            f.rows = k == 2 ? h : inter;
            f.cols = k == 2 ? inter : h;
            NB_TRY(nb_form_take_stacked(&f, j, n, part[k], w[k]));
            l->m->weight_bytes += nb_weight_bytes(w[k]);
        }
    }
    return NB_OK;
}

/* The experts of every token. */
static nb_status take_hash(loader *l, size_t i, nb_layer *y)
{
    const nb_model_config *c = &l->m->c;
    const size_t n = c->n_vocab * c->top_k;
    const nb_dtype type = NB_DT_I64;
    char name[NAME_BYTES];
    nb_tensor t;
    (void)snprintf(name, sizeof name, "model.layers.%zu.mlp.gate.tid2eid", i);
    const nb_tensor_want want = { .name = name,
                                  .dtypes = 1u << NB_DT_I64 | 1u << NB_DT_I32,
                                  .n_dim = 2,
                                  .dim = { c->n_vocab, c->top_k },
                                  .dummy_dtype = type,
                                  .dummy_fill = NB_FILL_ZEROS };
    const bool dummy = l->s && nb_source_has(l->s, "*");
    if (!dummy) NB_TRY(take(l, &want, &t));
    l->m->weight_bytes += dummy ? n * nb_dtype_bytes(type) : t.n_bytes;
    if (!l->s) return NB_OK;
    uint16_t *hash = nb_arena_array(&l->m->arena, n, sizeof *hash);
    if (!hash) return nb_fail(l->err, NB_ERR_NOMEM, "out of memory for %s", name);
    for (size_t k = 0; k < n; k++) {
        /* without a file: neighbours, another first one for each token */
        const int64_t id = dummy ? (int64_t)((k / c->top_k * 7919 + k % c->top_k) % c->n_expert)
                           : t.dtype == NB_DT_I64 ? ((const int64_t *)t.data)[k]
                                                  : ((const int32_t *)t.data)[k];
        if (id < 0 || (uint64_t)id >= c->n_expert)
            return nb_fail(l->err, NB_ERR_FORMAT,
                           "tensor '%s': [%zu, %zu] is %lld, expected an expert 0 to %zu", name,
                           k / c->top_k, k % c->top_k, (long long)id, c->n_expert - 1);
        hash[k] = (uint16_t)id;
    }
    y->hash = hash;
    return NB_OK;
}

static nb_status take_moe(loader *l, size_t i, nb_layer *y)
{
    const nb_model_config *c = &l->m->c;
    const nb_moe_names *names = moe_names(c);
    const size_t n = nb_n_choice(c);
    char name[NAME_BYTES];
    moe_name(c, i, c->paired ? "router.classifier.weight" : "gate.weight", name);
    NB_TRY(take_matrix(l, name, n, c->hidden, false, &y->router));
    if (nb_layer_is_hashed(c, i)) NB_TRY(take_hash(l, i, y));
    if (c->router_bias && !nb_layer_is_hashed(c, i)) {
        moe_name(c, i, c->paired ? "router.e_score_correction_bias" : "gate.e_score_correction_bias", name);
        NB_TRY(take_vector(l, name, n, false, NB_DT_F32, &y->router_b));
    }
    y->expert = nb_arena_array(&l->m->arena, c->n_expert, sizeof *y->expert);
    if (!y->expert) return nb_fail(l->err, NB_ERR_NOMEM, "out of memory for layer %zu", i);
    moe_name(c, i, "experts", name);
    const bool stacked = l->s && !nb_source_has(l->s, "*") && nb_form_is_stacked(l->s, name);
    if (stacked) NB_TRY(take_stacked(l, name, y->expert));
    for (size_t j = 0; j < c->n_expert && !stacked; j++) {
        expert_name(c, i, j, name);
        NB_TRY(take_expert(l, name, c->moe_inter, names, &y->expert[j]));
    }
    if (c->n_shared == 0) return NB_OK;
    moe_name(c, i, "shared_experts", name);
    return take_mlp(l, name, c->n_shared * c->moe_inter, c->mlp_bias, &y->mlp);
}

static nb_status take_row(loader *l, const nb_tensor_row *r, size_t layer)
{
    const nb_model_config *c = &l->m->c;
    const nb_attn_config *a = nb_layer_attn(c, layer);
    char name[NAME_BYTES];
    if (r->when && !r->when(a)) return NB_OK;
    name_of(c, layer, r->name, name);
    void *at = (char *)&l->m->layer[layer] + r->off;
    const bool may_fp8 = !(r->flags & NB_T_KEEP) || (l->s && !nb_source_has(l->s, "*"));
    const nb_dtype type = r->flags & NB_T_F32 ? NB_DT_F32 : config_dtype(c);
    if (r->cols)
        return take_matrix_of(l, name, r->rows(c, a), r->cols(c, a), may_fp8, type, at);
    const float *v;
    NB_TRY(take_elements(l, name, r->rows(c, a), r->flags & NB_T_ONES, type,
                         r->flags & NB_T_ANY_SHAPE, &v));
    memcpy(at, &v, sizeof v);
    return NB_OK;
}

/* kv_b in halves, if the file has it so: see nb_layer.absorb_k. */
static nb_status take_halves(loader *l, size_t i, nb_layer *y)
{
    const nb_attn_config *a = nb_layer_attn(&l->m->c, i);
    char k[NAME_BYTES], v[NAME_BYTES];
    name_of(&l->m->c, i, k_b, k);
    name_of(&l->m->c, i, v_b, v);
    if (!nb_attn_is_latent(a) || !l->s || nb_source_has(l->s, "*") || !nb_source_has(l->s, k) ||
        !nb_source_has(l->s, v))
        return NB_OK;
    NB_TRY(take_matrix(l, k, a->n_head * a->kv_lora, a->d_nope, false, &y->absorb_k));
    return take_matrix(l, v, a->n_head * a->d_v, a->kv_lora, false, &y->absorb_v);
}

static nb_status take_layer(loader *l, size_t i)
{
    const nb_model_config *c = &l->m->c;
    const nb_attention *a = nb_layer_attention(c, i);
    nb_layer *y = &l->m->layer[i];
    char name[NAME_BYTES];
    for (size_t k = 0; k < NB_COUNT(norm_rows); k++) NB_TRY(take_row(l, &norm_rows[k], i));
    for (size_t k = 0; c->n_stream && k < NB_COUNT(stream_rows); k++)
        NB_TRY(take_row(l, &stream_rows[k], i));
    NB_TRY(take_halves(l, i, y));
    for (size_t k = 0; k < a->n_tensor; k++)
        if (!y->absorb_k.data || a->tensor[k].off != AT(kv_b)) NB_TRY(take_row(l, &a->tensor[k], i));
    if (c->branch_norm && !c->dense[i]) {
        name_of(c, i, "post_mlp_layernorm.weight", name);
        NB_TRY(take_vector(l, name, c->hidden, true, config_dtype(c), &y->branch_norm));
    }
    if (nb_layer_has_experts(c, i)) NB_TRY(take_moe(l, i, y));
    if (!c->dense[i]) return NB_OK;
    name_of(c, i, c->paired ? "mlps" : "mlp", name);
    return take_mlp(l, name, c->inter, c->mlp_bias, &y->mlp);
}

static nb_status take_last_mix(loader *l)
{
    nb_model *m = l->m;
    const size_t s = m->c.n_stream;
    const float *fn;
    NB_TRY(take_elements(l, "model.hc_head.hc_fn", s * s * m->c.hidden, false, NB_DT_F32, true, &fn));
    m->mix.fn = (nb_weight){ .data = fn, .n_row = s, .n_col = s * m->c.hidden, .type = NB_W_F32 };
    NB_TRY(take_vector(l, "model.hc_head.hc_base", s, false, NB_DT_F32, &m->mix.base));
    return take_vector(l, "model.hc_head.hc_scale", 1, true, NB_DT_F32, &m->mix.scale);
}

static nb_status take_all(loader *l, bool dummy)
{
    nb_model *m = l->m;
    const nb_model_config *c = &m->c;
    NB_TRY(take_matrix(l, "model.embed_tokens.weight", c->n_vocab, c->hidden, false, &m->embed));
    NB_TRY(take_vector(l, "model.norm.weight", c->hidden, true, config_dtype(c), &m->final_norm));
    if (c->n_stream) NB_TRY(take_last_mix(l));
    for (size_t i = 0; i < c->n_layer; i++) NB_TRY(take_layer(l, i));
    m->wtype = m->layer[0].o.type;
    /* A tied model that ships its own lm_head uses it, as transformers does. */
    const bool own = !dummy && (nb_source_has(l->s, "lm_head.weight") ||
                                nb_form_is_quantised(l->s, "lm_head"));
    if (c->tied && !own) {
        m->head = m->embed;
        m->head_is_embed = true;
        return NB_OK;
    }
    bool found;
    NB_TRY(take_quantised(l, "lm_head.weight", c->n_vocab, c->hidden, &m->head, &found));
    return found ? NB_OK
                 : take_matrix(l, "lm_head.weight", c->n_vocab, c->hidden, false, &m->head);
}

/* A model that is a part of another has its name before its tensors'. */
static void find_prefix(nb_source *s)
{
    static const struct {
        const char *prefix, *embed;
    } rows[] = { { "language_model.", "language_model.model.embed_tokens.weight" },
                 { "model.language_model.", "model.language_model.embed_tokens.weight" } };
    if (nb_source_has(s, "model.embed_tokens.weight")) return;
    if (nb_source_has(s, "embed.weight") && nb_source_has(s, "layers.0.attn_norm.weight")) {
        nb_source_set_names(s, nb_names_v4);
        return;
    }
    for (size_t i = 0; i < NB_COUNT(rows); i++)
        if (nb_source_has(s, rows[i].embed)) {
            nb_source_set_prefix(s, rows[i].prefix);
            return;
        }
}

static nb_status load(nb_model *m, const nb_model_config *c, nb_source *s, nb_error *err)
{
    *m = (nb_model){ .c = *c };
    loader l = { .m = m, .s = s, .err = err };
    if (s) find_prefix(s);
    m->layer = nb_arena_array(&m->arena, c->n_layer, sizeof *m->layer);
    if (!m->layer) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    return take_all(&l, !s || nb_source_has(s, "*")); /* only the generator has every tensor */
}

nb_status nb_model_shapes(nb_model *m, const nb_model_config *c, nb_error *err)
{
    const nb_status st = load(m, c, NULL, err);
    if (st != NB_OK) nb_model_deinit(m);
    return st;
}

nb_status nb_model_load(nb_model *m, const nb_model_config *c, nb_source *s, nb_error *err)
{
    nb_status st = load(m, c, s, err);
    for (size_t i = 0; st == NB_OK && i < c->n_layer; i++) {
        const nb_attention *a = nb_layer_attention(c, i);
        if (a->loaded) st = a->loaded(m, i, err);
    }
    if (st != NB_OK) nb_model_deinit(m);
    return st;
}

void nb_model_deinit(nb_model *m)
{
    nb_arena_deinit(&m->arena);
    nb_arena_deinit(&m->folded);
    *m = (nb_model){ 0 };
}

size_t nb_model_dtype_bytes(const nb_model_config *c)
{
    return nb_dtype_bytes(config_dtype(c));
}

/* ---- walking ---- */

static nb_status each_of_mlp(nb_mlp *p, const char *prefix, const nb_moe_names *n, nb_matrix_fn *fn,
                             void *ctx)
{
    nb_weight *const w[] = { &p->gate, &p->up, &p->down };
    const char *const part[] = { n->gate, n->up, n->down };
    char name[NAME_BYTES + 32];
    for (size_t i = 0; i < NB_COUNT(w); i++) {
        if (w[i]->n_row == 0) continue;
        (void)snprintf(name, sizeof name, "%s.%s.weight", prefix, part[i]);
        NB_TRY(fn(ctx, name, w[i]));
    }
    return NB_OK;
}

static nb_status each_of_layer(nb_model *m, size_t i, nb_matrix_fn *fn, void *ctx)
{
    const nb_attn_config *a = nb_layer_attn(&m->c, i);
    const nb_attention *kind = nb_attention_of(a->kind);
    nb_layer *y = &m->layer[i];
    const nb_moe_names *n = moe_names(&m->c);
    char name[NAME_BYTES];
    for (size_t k = 0; k < kind->n_tensor; k++) {
        const nb_tensor_row *r = &kind->tensor[k];
        if (!r->cols || r->flags & NB_T_KEEP || (r->when && !r->when(a))) continue;
        name_of(&m->c, i, r->name, name);
        if (r->off != AT(kv_b) || !y->absorb_k.data) {
            NB_TRY(fn(ctx, name, (nb_weight *)(void *)((char *)y + r->off)));
            continue;
        }
        name_of(&m->c, i, k_b, name);
        NB_TRY(fn(ctx, name, &y->absorb_k));
        name_of(&m->c, i, v_b, name);
        NB_TRY(fn(ctx, name, &y->absorb_v));
    }
    for (size_t j = 0; y->expert && j < m->c.n_expert; j++) {
        expert_name(&m->c, i, j, name);
        NB_TRY(each_of_mlp(&y->expert[j], name, n, fn, ctx));
    }
    if (y->expert && !m->c.dense[i])
        moe_name(&m->c, i, "shared_experts", name);
    else
        name_of(&m->c, i, m->c.paired ? "mlps" : "mlp", name);
    return each_of_mlp(&y->mlp, name, &usual, fn, ctx);
}

nb_status nb_model_each_matrix(nb_model *m, nb_matrix_fn *fn, void *ctx)
{
    for (size_t i = 0; i < m->c.n_layer; i++) NB_TRY(each_of_layer(m, i, fn, ctx));
    return fn(ctx, m->head_is_embed ? "model.embed_tokens.weight" : "lm_head.weight", &m->head);
}
