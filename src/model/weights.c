/* weights.c - the tensors of a model, as tables: name, where it goes, its shape,
 * and when it exists.  Names are those of Hugging Face checkpoints. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "kernel/embed/embed.h"
#include "model/model.h"

enum { NAME_BYTES = 192 };

/* Conditions, as bits of the configuration. */
enum {
    IF_MLA = 1 << 0,
    IF_GQA = 1 << 1,
    IF_QLORA = 1 << 2,
    IF_NO_QLORA = 1 << 3,
    IF_QA_BIAS = 1 << 4,
    IF_O_BIAS = 1 << 5,
    IF_Q_BIAS = 1 << 6,
    IF_KV_BIAS = 1 << 7,
    IF_QK_NORM = 1 << 8
};
/* Dimensions by name. */
typedef enum dim_id {
    D_NONE,
    D_HIDDEN,
    D_QLORA,
    D_KV,
    D_KVA,
    D_QK,
    D_KVB,
    D_HV,
    D_QH,
    D_KVH,
    D_HEAD
} dim_id;

typedef struct tensor_row {
    const char *name;
    size_t off;        /* in nb_layer: an nb_weight, or a const float * for vectors */
    dim_id rows, cols; /* cols D_NONE: a vector */
    unsigned when;
    bool ones; /* what a dummy vector holds: norms 1, biases 0 */
} tensor_row;

#define AT(member) offsetof(nb_layer, member)
static const tensor_row attn_rows[] = {
    { "input_layernorm.weight", AT(in_norm), D_HIDDEN, D_NONE, 0, true },
    { "post_attention_layernorm.weight", AT(post_norm), D_HIDDEN, D_NONE, 0, true },
    { "self_attn.q_proj.weight", AT(q), D_QK, D_HIDDEN, IF_MLA | IF_NO_QLORA, false },
    { "self_attn.q_a_proj.weight", AT(q_a), D_QLORA, D_HIDDEN, IF_MLA | IF_QLORA, false },
    { "self_attn.q_a_proj.bias", AT(q_a_b), D_QLORA, D_NONE, IF_MLA | IF_QLORA | IF_QA_BIAS,
      false },
    { "self_attn.q_a_layernorm.weight", AT(q_a_norm), D_QLORA, D_NONE, IF_MLA | IF_QLORA, true },
    { "self_attn.q_b_proj.weight", AT(q_b), D_QK, D_QLORA, IF_MLA | IF_QLORA, false },
    { "self_attn.kv_a_proj_with_mqa.weight", AT(kv_a), D_KVA, D_HIDDEN, IF_MLA, false },
    { "self_attn.kv_a_proj_with_mqa.bias", AT(kv_a_b), D_KVA, D_NONE, IF_MLA | IF_QA_BIAS, false },
    { "self_attn.kv_a_layernorm.weight", AT(kv_a_norm), D_KV, D_NONE, IF_MLA, true },
    { "self_attn.kv_b_proj.weight", AT(kv_b), D_KVB, D_KV, IF_MLA, false },
    { "self_attn.o_proj.weight", AT(o), D_HIDDEN, D_HV, IF_MLA, false },
    { "self_attn.q_proj.weight", AT(q), D_QH, D_HIDDEN, IF_GQA, false },
    { "self_attn.q_proj.bias", AT(q_b_bias), D_QH, D_NONE, IF_GQA | IF_Q_BIAS, false },
    { "self_attn.k_proj.weight", AT(k), D_KVH, D_HIDDEN, IF_GQA, false },
    { "self_attn.k_proj.bias", AT(k_b), D_KVH, D_NONE, IF_GQA | IF_KV_BIAS, false },
    { "self_attn.v_proj.weight", AT(v), D_KVH, D_HIDDEN, IF_GQA, false },
    { "self_attn.v_proj.bias", AT(v_b), D_KVH, D_NONE, IF_GQA | IF_KV_BIAS, false },
    { "self_attn.q_norm.weight", AT(q_norm), D_HEAD, D_NONE, IF_GQA | IF_QK_NORM, true },
    { "self_attn.k_norm.weight", AT(k_norm), D_HEAD, D_NONE, IF_GQA | IF_QK_NORM, true },
    { "self_attn.o_proj.weight", AT(o), D_HIDDEN, D_QH, IF_GQA, false },
    { "self_attn.o_proj.bias", AT(o_b), D_HIDDEN, D_NONE, IF_O_BIAS, false },
};

typedef struct loader {
    nb_model *m;
    nb_source *s; /* NULL: shapes only */
    nb_error *err;
    unsigned have; /* conditions that hold */
} loader;

static size_t dim_of(const nb_model_config *c, dim_id d)
{
    switch (d) {
    case D_NONE: return 0;
    case D_HIDDEN: return c->hidden;
    case D_QLORA: return c->q_lora;
    case D_KV: return c->kv_lora;
    case D_KVA: return c->kv_lora + c->d_rope;
    case D_QK: return c->n_head * (c->d_nope + c->d_rope);
    case D_KVB: return c->n_head * (c->d_nope + c->d_v);
    case D_HV: return c->n_head * c->d_v;
    case D_QH: return c->n_head * c->head_dim;
    case D_KVH: return c->n_kv_head * c->head_dim;
    case D_HEAD: return c->head_dim;
    }
    return 0;
}

static unsigned conditions(const nb_model_config *c)
{
    unsigned h = c->attn == NB_ATTN_MLA ? IF_MLA : IF_GQA;
    h |= c->q_lora ? IF_QLORA : IF_NO_QLORA;
    if (c->qa_bias) h |= IF_QA_BIAS;
    if (c->o_bias) h |= IF_O_BIAS;
    if (c->q_bias) h |= IF_Q_BIAS;
    if (c->kv_bias) h |= IF_KV_BIAS;
    if (c->qk_norm) h |= IF_QK_NORM;
    return h;
}

static nb_wtype wtype_of(nb_dtype t)
{
    return t == NB_DT_F32       ? NB_W_F32
           : t == NB_DT_F16     ? NB_W_F16
           : t == NB_DT_F8_E4M3 ? NB_W_FP8B
                                : NB_W_BF16;
}

static nb_dtype config_dtype(const nb_model_config *c)
{
    return c->dtype[0] == 'b' ? NB_DT_BF16 : c->dtype[5] == '1' ? NB_DT_F16 : NB_DT_F32;
}

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

static nb_status take_matrix(loader *l, const char *name, size_t rows, size_t cols, bool may_fp8,
                             nb_weight *out)
{
    const bool fp8 = may_fp8 && l->m->c.fp8;
    const nb_tensor_want want = {
        .name = name,
        .dtypes = ANY_FLOAT | (fp8 ? 1u << NB_DT_F8_E4M3 : 0),
        .n_dim = 2,
        .dim = { rows, cols },
        .dummy_dtype = fp8 ? NB_DT_F8_E4M3 : config_dtype(&l->m->c),
        .dummy_fill = NB_FILL_NORMAL,
    };
    nb_tensor t;
    NB_TRY(take(l, &want, &t));
    *out = (nb_weight){ .data = t.data, .n_row = rows, .n_col = cols, .type = wtype_of(t.dtype) };
    l->m->weight_bytes += t.n_bytes;
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

/* type: what checkpoints have it in; any float is read. */
static nb_status take_vector(loader *l, const char *name, size_t n, bool ones, nb_dtype type,
                             const float **out)
{
    const nb_tensor_want want = {
        .name = name,
        .dtypes = ANY_FLOAT,
        .n_dim = 1,
        .dim = { n },
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

static nb_status take_mlp(loader *l, const char *prefix, size_t inter, bool bias, nb_mlp *out)
{
    const size_t h = l->m->c.hidden;
    const nb_dtype type = config_dtype(&l->m->c);
    char name[NAME_BYTES];
    (void)snprintf(name, sizeof name, "%s.gate_proj.weight", prefix);
    NB_TRY(take_matrix(l, name, inter, h, true, &out->gate));
    (void)snprintf(name, sizeof name, "%s.up_proj.weight", prefix);
    NB_TRY(take_matrix(l, name, inter, h, true, &out->up));
    (void)snprintf(name, sizeof name, "%s.down_proj.weight", prefix);
    NB_TRY(take_matrix(l, name, h, inter, true, &out->down));
    if (!bias) return NB_OK;
    (void)snprintf(name, sizeof name, "%s.gate_proj.bias", prefix);
    NB_TRY(take_vector(l, name, inter, false, type, &out->gate_b));
    (void)snprintf(name, sizeof name, "%s.up_proj.bias", prefix);
    NB_TRY(take_vector(l, name, inter, false, type, &out->up_b));
    (void)snprintf(name, sizeof name, "%s.down_proj.bias", prefix);
    return take_vector(l, name, h, false, type, &out->down_b);
}

static nb_status take_moe(loader *l, size_t i, nb_layer *y)
{
    const nb_model_config *c = &l->m->c;
    char name[NAME_BYTES];
    (void)snprintf(name, sizeof name, "model.layers.%zu.mlp.gate.weight", i);
    NB_TRY(take_matrix(l, name, c->n_expert, c->hidden, false, &y->router));
    if (c->router_bias) {
        (void)snprintf(name, sizeof name, "model.layers.%zu.mlp.gate.e_score_correction_bias", i);
        NB_TRY(take_vector(l, name, c->n_expert, false, NB_DT_F32, &y->router_b));
    }
    y->expert = nb_arena_array(&l->m->arena, c->n_expert, sizeof *y->expert);
    if (!y->expert) return nb_fail(l->err, NB_ERR_NOMEM, "out of memory for layer %zu", i);
    for (size_t j = 0; j < c->n_expert; j++) {
        (void)snprintf(name, sizeof name, "model.layers.%zu.mlp.experts.%zu", i, j);
        NB_TRY(take_mlp(l, name, c->moe_inter, false, &y->expert[j]));
    }
    if (c->n_shared == 0) return NB_OK;
    (void)snprintf(name, sizeof name, "model.layers.%zu.mlp.shared_experts", i);
    return take_mlp(l, name, c->n_shared * c->moe_inter, c->mlp_bias, &y->mlp);
}

static nb_status take_layer(loader *l, size_t i)
{
    const nb_model_config *c = &l->m->c;
    nb_layer *y = &l->m->layer[i];
    char name[NAME_BYTES];
    for (size_t k = 0; k < NB_COUNT(attn_rows); k++) {
        const tensor_row *r = &attn_rows[k];
        if ((r->when & ~l->have) != 0) continue;
        (void)snprintf(name, sizeof name, "model.layers.%zu.%s", i, r->name);
        void *at = (char *)y + r->off;
        if (r->cols == D_NONE) {
            const float *v;
            NB_TRY(take_vector(l, name, dim_of(c, r->rows), r->ones, config_dtype(c), &v));
            memcpy(at, &v, sizeof v);
        } else {
            NB_TRY(take_matrix(l, name, dim_of(c, r->rows), dim_of(c, r->cols), true, at));
        }
    }
    if (!c->dense[i]) return take_moe(l, i, y);
    (void)snprintf(name, sizeof name, "model.layers.%zu.mlp", i);
    return take_mlp(l, name, c->inter, c->mlp_bias, &y->mlp);
}

static nb_status take_all(loader *l, bool dummy)
{
    nb_model *m = l->m;
    const nb_model_config *c = &m->c;
    NB_TRY(take_matrix(l, "model.embed_tokens.weight", c->n_vocab, c->hidden, false, &m->embed));
    NB_TRY(take_vector(l, "model.norm.weight", c->hidden, true, config_dtype(c), &m->final_norm));
    for (size_t i = 0; i < c->n_layer; i++) NB_TRY(take_layer(l, i));
    m->wtype = m->layer[0].o.type;
    /* A tied model that ships its own lm_head uses it, as transformers does. */
    if (c->tied && (dummy || !nb_source_has(l->s, "lm_head.weight"))) {
        m->head = m->embed;
        m->head_is_embed = true;
        return NB_OK;
    }
    return take_matrix(l, "lm_head.weight", c->n_vocab, c->hidden, false, &m->head);
}

static nb_status load(nb_model *m, const nb_model_config *c, nb_source *s, nb_error *err)
{
    *m = (nb_model){ .c = *c };
    loader l = { .m = m, .s = s, .err = err, .have = conditions(c) };
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
    for (size_t i = 0; st == NB_OK && c->attn == NB_ATTN_MLA && i < c->n_layer; i++)
        st = nb_rope_balance(m, i, err);
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

uint64_t nb_weight_bytes(const nb_weight *w)
{
    const uint64_t codes = (uint64_t)w->n_row * w->n_col * nb_wtype_bytes(w->type);
    const uint64_t rows = w->n_row, block = NB_FP8_BLOCK;
    if (w->type == NB_W_INT8) return codes + rows * sizeof *w->scale;
    if (w->type != NB_W_FP8B) return codes;
    return codes + (rows + block - 1) / block * ((w->n_col + block - 1) / block) * sizeof *w->scale;
}

static nb_status each_of_mlp(nb_mlp *p, const char *prefix, nb_matrix_fn *fn, void *ctx)
{
    nb_weight *const w[] = { &p->gate, &p->up, &p->down };
    static const char *const part[] = { "gate", "up", "down" };
    char name[NAME_BYTES + 32];
    for (size_t i = 0; i < NB_COUNT(w); i++) {
        if (w[i]->n_row == 0) continue;
        (void)snprintf(name, sizeof name, "%s.%s_proj.weight", prefix, part[i]);
        NB_TRY(fn(ctx, name, w[i]));
    }
    return NB_OK;
}

static nb_status each_of_layer(nb_model *m, size_t i, nb_matrix_fn *fn, void *ctx)
{
    const unsigned have = conditions(&m->c);
    nb_layer *y = &m->layer[i];
    char name[NAME_BYTES];
    for (size_t k = 0; k < NB_COUNT(attn_rows); k++) {
        const tensor_row *r = &attn_rows[k];
        if ((r->when & ~have) != 0 || r->cols == D_NONE) continue;
        (void)snprintf(name, sizeof name, "model.layers.%zu.%s", i, r->name);
        NB_TRY(fn(ctx, name, (nb_weight *)(void *)((char *)y + r->off)));
    }
    for (size_t j = 0; y->expert && j < m->c.n_expert; j++) {
        (void)snprintf(name, sizeof name, "model.layers.%zu.mlp.experts.%zu", i, j);
        NB_TRY(each_of_mlp(&y->expert[j], name, fn, ctx));
    }
    (void)snprintf(name, sizeof name, "model.layers.%zu.mlp%s", i,
                   y->expert ? ".shared_experts" : "");
    return each_of_mlp(&y->mlp, name, fn, ctx);
}

nb_status nb_model_each_matrix(nb_model *m, nb_matrix_fn *fn, void *ctx)
{
    for (size_t i = 0; i < m->c.n_layer; i++) NB_TRY(each_of_layer(m, i, fn, ctx));
    return fn(ctx, m->head_is_embed ? "model.embed_tokens.weight" : "lm_head.weight", &m->head);
}
