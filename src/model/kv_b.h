/* kv_b.h - W_kv_b of files that have it in halves: W_UK of each head transposed, and W_UV (nb_layer.absorb_k, absorb_v).
 *
 * The absorbed form reads the halves as they are.  The expanded form, which needs W_UK's rows, makes one head's rows
 * floats when it is about to use them; nobody keeps the whole matrix. */
#ifndef NB_MODEL_KV_B_H
#define NB_MODEL_KV_B_H
#include "model/model.h"

static inline bool nb_kv_b_in_halves(const nb_layer *l)
{
    return l->absorb_k.data != NULL;
}

/* Floats that nb_kv_b_head writes: the head's rows, and what it needs to turn W_UK. */
size_t nb_kv_b_head_floats(const nb_attn_config *a);
/* Rows of W_kv_b of one head of the whole model, [d_nope + d_v][kv_lora]: the exact values of the halves. */
void nb_kv_b_head(const nb_layer *l, const nb_attn_config *a, size_t head, float *out);
/* W_kv_b as floats, in the arena; a: of the whole model. */
nb_status nb_kv_b_joined(const nb_layer *l, const nb_attn_config *a, nb_arena *arena, nb_weight *out,
                         nb_error *err);

#endif
