/* attn_csa.c - compressed attention: one row is key and value of all heads, and old rows stand for several tokens.
 *
 *   q_h = rope(rms(W_q_b norm(W_q_a x))_h) [head_dim], row c_t = rope(norm(W_kv x_t)), the last d_rope values rotated
 *   A query at position p attends to the rows of positions (p - window, p], and to rows made of `ratio` tokens each,
 *   row w of tokens [w ratio, (w + 1) ratio) once (w + 1) ratio <= p + 1.  All heads share the rows, K = V; a head's
 *   sink is one more weight of its softmax, without a value.  The output's last d_rope values are rotated back, and
 *   two products follow: o_group products of a part of the heads each, then W_o.
 *
 *   A compressed row is norm(sum_j g_j * kv_j), rotated at the position of its first token, with kv = W x,
 *   gate = W_gate x + ape[t mod ratio], g the softmax of the gates over the tokens, each channel alone.  With ratio 4
 *   (CSA) kv and gate have two halves, and the sum has eight terms: the first halves of the window of tokens before,
 *   and the second halves of its own.  An indexer with keys that are compressed in the same way chooses index_topk rows.
 *   With ratio 128 (HCA) all rows are attended to.
 *
 * Source: DeepSeek-V4's inference code; docs/decisions/053. */
#include "model/attn_csa.h"

#include <stddef.h>

#define AT(member) offsetof(nb_layer, member)

#define DIM(name, expr)                                                                            \
    static size_t name(const nb_model_config *c, const nb_attn_config *a)                          \
    {                                                                                              \
        (void)c;                                                                                   \
        return expr;                                                                               \
    }
DIM(q_lora, a->q_lora)
DIM(q_rows, a->n_head * a->head_dim)
DIM(head_dim, a->head_dim)
DIM(n_head, a->n_head)
DIM(group_rows, a->o_group * a->o_lora)
DIM(group_cols, a->n_head * a->head_dim / a->o_group)
DIM(row_width, nb_csa_width(a, a->head_dim))
DIM(key_width, nb_csa_width(a, a->index_dim))
DIM(row_ape, a->ratio *nb_csa_width(a, a->head_dim))
DIM(key_ape, a->ratio *nb_csa_width(a, a->index_dim))
DIM(idx_rows, a->index_head * a->index_dim)
DIM(idx_head, a->index_head)
DIM(idx_dim, a->index_dim)

static bool compressed(const nb_attn_config *a)
{
    return a->ratio != 0;
}
static bool indexed(const nb_attn_config *a)
{
    return a->index_topk != 0;
}

#define SELF "self_attn."
#define COMP SELF "compressor."
#define IDX COMP "indexer."
static const nb_tensor_row tensors[] = {
    { SELF "q_a_proj.weight", AT(q_a), q_lora, nb_dim_hidden, NULL, 0 },
    { SELF "q_a_norm.weight", AT(q_a_norm), q_lora, NULL, NULL, NB_T_ONES },
    { SELF "q_b_proj.weight", AT(q_b), q_rows, q_lora, NULL, 0 },
    { SELF "kv_proj.weight", AT(kv_a), head_dim, nb_dim_hidden, NULL, 0 },
    { SELF "kv_norm.weight", AT(kv_a_norm), head_dim, NULL, NULL, NB_T_ONES },
    { SELF "sinks", AT(sink), n_head, NULL, NULL, NB_T_F32 },
    { SELF "o_a_proj.weight", AT(o_a), group_rows, group_cols, NULL, 0 },
    { SELF "o_b_proj.weight", AT(o), nb_dim_hidden, group_rows, NULL, 0 },
    { COMP "kv_proj.weight", AT(comp.kv), row_width, nb_dim_hidden, compressed, NB_T_KEEP },
    { COMP "gate_proj.weight", AT(comp.gate), row_width, nb_dim_hidden, compressed, NB_T_KEEP },
    { COMP "position_bias", AT(comp.ape), row_ape, NULL, compressed, NB_T_F32 | NB_T_ANY_SHAPE },
    { COMP "kv_norm.weight", AT(comp.norm), head_dim, NULL, compressed, NB_T_ONES },
    { IDX "q_b_proj.weight", AT(idx_q), idx_rows, q_lora, indexed, 0 },
    { IDX "scorer.weights_proj.weight", AT(idx_w), idx_head, nb_dim_hidden, indexed, NB_T_KEEP },
    { IDX "kv_proj.weight", AT(idx_comp.kv), key_width, nb_dim_hidden, indexed, NB_T_KEEP },
    { IDX "gate_proj.weight", AT(idx_comp.gate), key_width, nb_dim_hidden, indexed, NB_T_KEEP },
    { IDX "position_bias", AT(idx_comp.ape), key_ape, NULL, indexed, NB_T_F32 | NB_T_ANY_SHAPE },
    { IDX "kv_norm.weight", AT(idx_comp.norm), idx_dim, NULL, indexed, NB_T_ONES },
};

size_t nb_csa_width(const nb_attn_config *a, size_t dim)
{
    return a->ratio == NB_CSA_OVERLAP ? 2 * dim : dim;
}

nb_csa_state nb_csa_state_of(const nb_attn_config *a)
{
    const size_t width = nb_csa_width(a, a->head_dim), keys = nb_csa_width(a, a->index_dim);
    nb_csa_state s = { .comp = a->window * a->head_dim };
    s.idx_comp = s.comp;
    if (a->ratio == NB_CSA_OVERLAP) s.idx_comp += 2 * NB_CSA_OVERLAP * 2 * width;
    if (a->ratio > NB_CSA_OVERLAP) s.idx_comp += 3 * width;
    s.n = s.idx_comp + (a->index_topk ? 2 * NB_CSA_OVERLAP * 2 * keys : 0);
    return s;
}

static nb_attn_dims dims(const nb_attn_config *a)
{
    return (nb_attn_dims){ .n_head = a->n_head,
                           .d_q = a->head_dim,
                           .d_o = a->o_group * a->o_lora / a->n_head,
                           .d_state = a->head_dim,
                           .n_values = a->ratio ? nb_csa_values(a) : 0,
                           .n_state = nb_csa_state_of(a).n,
                           .d_low = a->q_lora };
}

static void record(const nb_attn_config *a, nb_record_opts *o)
{
    o->n_seg = !a->ratio ? 0 : a->index_topk ? 3 : 2;
    o->seg[0] = (nb_seg_opts){ .role = NB_ROLE_LATENT, .dim = a->head_dim - a->d_rope, .n_vec = 1 };
    o->seg[1] = (nb_seg_opts){ .role = NB_ROLE_ROPE, .dim = a->d_rope, .n_vec = 1 };
    o->seg[2] = (nb_seg_opts){ .role = NB_ROLE_INDEX, .dim = a->index_dim, .n_vec = 1 };
    o->row_tok = a->ratio;
}

/* Of a token of the context: the part of a row that it is.  The window counts nothing, since it does not grow. */
static nb_attn_cost cost(const nb_attn_config *a)
{
    const double per = a->ratio ? 1 / (double)a->ratio : 0;
    const double attn = a->index_topk ? 0 : 4 * (double)a->n_head * (double)a->head_dim;
    const double pair = per * (attn + 2 * (double)a->index_head * (double)a->index_dim);
    return (nb_attn_cost){ .pair_flop_prompt = pair,
                           .pair_flop_decode = pair,
                           .k_dim = a->head_dim,
                           .v_dim = a->head_dim,
                           .n_kv_head = 1 };
}

const nb_attention nb_attention_csa = {
    .name = "csa",
    .plane = { "rows", "rope", "index keys" },
    .tensor = tensors,
    .n_tensor = NB_COUNT(tensors),
    .has_rope_key = true,
    .dims = dims,
    .record = record,
    .cost = cost,
};
