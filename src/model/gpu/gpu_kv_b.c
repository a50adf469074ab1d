/* gpu_kv_b.c - kv_b on a GPU: its absorbed forms, W_UK transposed per head and W_UV, and the expanded form, for prompts. */
#include <stdlib.h>
#include <string.h>

#include "model/gpu/gpu_upload.h"
#include "model/kv_b.h"
#include "num/bf16.h"

/* Row r, column c of an absorbed form, in kv_b. */
typedef struct absorbed {
    const nb_weight *kv_b;
    const float *value; /* kv_b's values if they become two parts */
    size_t n_head, d_nope, d_v;
    bool keys; /* [n_head * kv_lora][d_nope]; else values: [n_head * d_v][kv_lora] */
} absorbed;

static void place(const absorbed *a, size_t r, size_t c, size_t *kr, size_t *kc)
{
    const size_t lora = a->kv_b->n_col, d = a->d_nope + a->d_v;
    *kr = a->keys ? r / lora * d + c : r / a->d_v * d + a->d_nope + r % a->d_v;
    *kc = a->keys ? r % lora : c;
}

/* With values, part 0: BF16 of the value, part 1: of what is left. Else: the element as it is. */
static void fill_row(const absorbed *a, size_t r, size_t n_col, int part, char *out)
{
    const nb_weight *w = a->kv_b;
    const size_t size = nb_wtype_bytes(w->type);
    for (size_t c = 0; c < n_col; c++) {
        size_t kr, kc;
        place(a, r, c, &kr, &kc);
        if (!a->value) {
            memcpy(out + c * size, (const char *)w->data + (kr * w->n_col + kc) * size, size);
            continue;
        }
        const float v = a->value[kr * w->n_col + kc];
        const uint16_t hi = nb_bf16_from_f32(v);
        const uint16_t b = part == 0 ? hi : nb_bf16_from_f32(v - nb_bf16_to_f32(hi));
        memcpy(out + 2 * c, &b, 2);
    }
}

static nb_status absorbed_form(nb_uploader *u, const absorbed *a, size_t n_row, size_t n_col,
                               nb_gpu_mat out[2], size_t n_part)
{
    const nb_wtype type = n_part == 2 ? NB_W_BF16 : a->kv_b->type;
    const size_t row = n_col * nb_wtype_bytes(type), step = 1024;
    char *stage = malloc(step * row);
    nb_status st = stage ? NB_OK : nb_fail(u->err, NB_ERR_NOMEM, "out of memory");
    for (size_t p = 0; p < n_part && st == NB_OK; p++) {
        void *data;
        st = nb_up_take(u, n_row * row, &data);
        for (size_t r = 0; r < n_row && st == NB_OK; r += step) {
            const size_t n = n_row - r < step ? n_row - r : step;
            for (size_t i = 0; i < n; i++) fill_row(a, r + i, n_col, (int)p, stage + i * row);
            nb_up_put(u, (char *)data + r * row, stage, n * row);
        }
        if (st == NB_OK)
            out[p].w = (nb_weight){ .data = data, .n_row = n_row, .n_col = n_col, .type = type };
    }
    free(stage);
    return st;
}

/* Scales of an absorbed form whose blocks are blocks of kv_b (nb_gpu_keeps_blocks). */
static nb_status absorbed_scales(nb_uploader *u, const absorbed *a, nb_weight *w)
{
    enum { B = NB_FP8_BLOCK };
    const size_t n_row = w->n_row / B, n_col = w->n_col / B, n_bytes = n_row * n_col * sizeof(float);
    void *dev;
    float *scale = malloc(n_bytes);
    if (!scale) return nb_fail(u->err, NB_ERR_NOMEM, "out of memory");
    for (size_t r = 0; r < n_row; r++)
        for (size_t c = 0; c < n_col; c++) {
            size_t kr, kc;
            place(a, r * B, c * B, &kr, &kc);
            scale[r * n_col + c] = a->kv_b->scale[kr / B * (a->kv_b->n_col / B) + kc / B];
        }
    const nb_status st = nb_up_take(u, n_bytes, &dev);
    if (st == NB_OK) nb_up_put(u, dev, scale, n_bytes);
    free(scale);
    w->scale = dev;
    return st;
}

/* Chooses the kernels of uk and uv; prompts do not use them. */
static nb_status choose_absorbed(nb_uploader *u, const nb_attn_config *attn, nb_gpu_layer *g)
{
    const bool prompt = u->use[NB_CUDA_PROMPT];
    u->use[NB_CUDA_PROMPT] = false;
    for (size_t p = 0; p < g->n_part; p++) {
        NB_TRY(nb_up_choose(u, "kv_b_proj, absorbing", &g->uk[p], attn->kv_lora, true));
        NB_TRY(nb_up_choose(u, "kv_b_proj, absorbing", &g->uv[p], attn->d_v, true));
    }
    u->use[NB_CUDA_PROMPT] = prompt;
    return NB_OK;
}

static nb_status absorb(nb_uploader *u, const nb_attn_config *attn, absorbed *a, nb_gpu_layer *g)
{
    const bool blocks = nb_gpu_keeps_blocks(a->kv_b, attn);
    a->keys = true;
    NB_TRY(absorbed_form(u, a, attn->n_head * attn->kv_lora, attn->d_nope, g->uk, g->n_part));
    if (blocks) NB_TRY(absorbed_scales(u, a, &g->uk->w));
    a->keys = false;
    NB_TRY(absorbed_form(u, a, attn->n_head * attn->d_v, attn->kv_lora, g->uv, g->n_part));
    return blocks ? absorbed_scales(u, a, &g->uv->w) : NB_OK;
}

/* The file's own halves of kv_b, where they have tiles. */
static bool has_packed_halves(const nb_layer *l)
{
    const nb_weight *half[2] = { &l->absorb_k, &l->absorb_v };
    nb_gpu_form f;
    for (size_t i = 0; i < NB_COUNT(half); i++)
        if (!half[i]->data || !nb_gpu_form_of(&half[i], 1, &f) || f.shape != NB_GPU_TILES) return false;
    return true;
}

static nb_status absorb_packed(nb_uploader *u, const nb_attn_config *attn, size_t head0, const nb_layer *l,
                               nb_gpu_layer *g)
{
    nb_weight k, v;
    const nb_weight *one[2] = { &k, &v };
    NB_TRY(nb_up_view(u, "kv_b_proj", &l->absorb_k, nb_up_heads(attn, head0, attn->kv_lora), &k));
    NB_TRY(nb_up_view(u, "kv_b_proj", &l->absorb_v, nb_up_heads(attn, head0, attn->d_v), &v));
    NB_TRY(nb_up_stack(u, &one[0], 1, &g->uk->w));
    return nb_up_stack(u, &one[1], 1, &g->uv->w);
}

static nb_status absorbing(nb_uploader *u, const nb_attn_config *attn, size_t head0, const nb_layer *l,
                           const nb_weight *kv_b, nb_gpu_layer *g)
{
    nb_weight own;
    const nb_weight *w = &own;
    if (!u->use[NB_CUDA_DIRECT]) return NB_OK;
    NB_TRY(nb_up_view(u, "kv_b_proj", kv_b, nb_up_heads(attn, head0, attn->d_nope + attn->d_v), &own));
    absorbed a = { w, NULL, attn->n_head, attn->d_nope, attn->d_v, true };
    g->n_part = nb_gpu_in_two_parts(w, attn) ? 2 : 1; /* halves: F32 */
    g->uv_batch = attn->d_v;
    if (has_packed_halves(l))
        NB_TRY(absorb_packed(u, attn, head0, l, g));
    else if (g->n_part == 1)
        NB_TRY(absorb(u, attn, &a, g));
    else {
        float *value = nb_up_values(w);
        if (!value) return nb_fail(u->err, NB_ERR_NOMEM, "out of memory");
        a.value = value;
        const nb_status st = absorb(u, attn, &a, g);
        free(value);
        NB_TRY(st);
    }
    return choose_absorbed(u, attn, g);
}

/* kv_b in BF16, where its halves are packed along different dimensions: its product is rounded to BF16 in any case. */
static nb_status expanding_packed(nb_uploader *u, const nb_weight *w, nb_up_rows own, nb_gpu_layer *g)
{
    const size_t n = w->n_row * w->n_col;
    float *value = nb_up_values(w);
    uint16_t *b = malloc(n * sizeof *b);
    nb_status st = value && b ? NB_OK : nb_fail(u->err, NB_ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < n && st == NB_OK; i++) b[i] = nb_bf16_from_f32(value[i]);
    if (st == NB_OK)
        st = nb_up_matrix(u, "kv_b_proj",
                    &(nb_weight){ .data = b, .n_row = w->n_row, .n_col = w->n_col, .type = NB_W_BF16 },
                    NULL, own, &g->kv_b);
    free(value);
    free(b);
    return st;
}

static nb_status expanding(nb_uploader *u, const nb_attn_config *attn, size_t head0, const nb_layer *l,
                           const nb_weight *kv_b, nb_gpu_layer *g)
{
    const bool direct = u->use[NB_CUDA_DIRECT];
    if (!u->use[NB_CUDA_PROMPT]) return NB_OK;
    u->use[NB_CUDA_DIRECT] = false;
    const nb_up_rows own = nb_up_heads(attn, head0, attn->d_nope + attn->d_v);
    const nb_status st = nb_kv_b_in_halves(l) ? expanding_packed(u, kv_b, own, g)
                                              : nb_up_matrix(u, "kv_b_proj", kv_b, NULL, own, &g->kv_b);
    u->use[NB_CUDA_DIRECT] = direct;
    return st;
}

/* Of halves, kv_b as a whole is there during the upload only. */
nb_status nb_up_kv_b(nb_uploader *u, const nb_attn_config *attn, size_t head0, const nb_layer *l,
                             nb_gpu_layer *g)
{
    nb_arena joined = { 0 };
    nb_weight kv_b = l->kv_b;
    nb_attn_config whole = *attn;
    whole.n_head = l->absorb_v.n_row / attn->d_v; /* of all ranks */
    nb_status st = nb_kv_b_in_halves(l) ? nb_kv_b_joined(l, &whole, &joined, &kv_b, u->err) : NB_OK;
    if (st == NB_OK) st = absorbing(u, attn, head0, l, &kv_b, g);
    /* sparse attention has no expanded form (gpu_dsa.c) */
    if (st == NB_OK && attn->kind != NB_ATTN_DSA) st = expanding(u, attn, head0, l, &kv_b, g);
    nb_arena_deinit(&joined);
    return st;
}
