/* kv_b.c - see kv_b.h. */
#include "model/kv_b.h"

#include <string.h>

#include "kernel/embed/embed.h"

enum { TURN = 16 }; /* rows of the transposed W_UK at a time: 64 bytes of a row of W_UK */

static void read_rows(const nb_weight *w, size_t first, size_t n, float *out)
{
    uint32_t id[TURN];
    if (nb_wtype_is_packed(w->type)) { /* whole rows: a block is read once */
        for (size_t i = 0; i < n; i++) nb_packed_values(w, first + i, 0, w->n_col, out + i * w->n_col);
        return;
    }
    for (size_t i = 0; i < n; i++) id[i] = (uint32_t)(first + i);
    nb_embed_c(&(nb_embed_args){
        .y = out, .id = id, .w = *w, .n_tok = n, .y_stride = w->n_col, .factor = 1.0f });
}

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

size_t nb_kv_b_head_floats(const nb_attn_config *a)
{
    return (a->d_nope + a->d_v) * a->kv_lora + TURN * a->d_nope;
}

void nb_kv_b_head(const nb_layer *l, const nb_attn_config *a, size_t head, float *out)
{
    const size_t lora = a->kv_lora, nope = a->d_nope;
    float *turn = out + (nope + a->d_v) * lora;
    for (size_t c = 0; c < lora; c += TURN) {
        const size_t n = min_size(TURN, lora - c);
        read_rows(&l->absorb_k, head * lora + c, n, turn);
        for (size_t i = 0; i < nope; i++)
            for (size_t k = 0; k < n; k++) out[i * lora + c + k] = turn[k * nope + i];
    }
    for (size_t r = 0; r < a->d_v; r += TURN)
        read_rows(&l->absorb_v, head * a->d_v + r, min_size(TURN, a->d_v - r), out + (nope + r) * lora);
}

nb_status nb_kv_b_joined(const nb_layer *l, const nb_attn_config *a, nb_arena *arena, nb_weight *out,
                         nb_error *err)
{
    const size_t rows = a->d_nope + a->d_v, one = nb_kv_b_head_floats(a);
    float *data = nb_arena_array(arena, a->n_head * rows * a->kv_lora, sizeof *data);
    float *head = nb_arena_array(arena, one, sizeof *head);
    if (!data || !head) return nb_fail(err, NB_ERR_NOMEM, "out of memory for kv_b_proj");
    for (size_t h = 0; h < a->n_head; h++) {
        nb_kv_b_head(l, a, h, head);
        memcpy(data + h * rows * a->kv_lora, head, rows * a->kv_lora * sizeof *data);
    }
    *out = (nb_weight){ .data = data, .n_row = a->n_head * rows, .n_col = a->kv_lora, .type = NB_W_F32 };
    return NB_OK;
}
