/* gpu_weights.c - uploads a model's weights: see gpu_weights.h.
 *
 * Small tensors share pieces of PIECE bytes, since the device hands out memory in units of 2 MiB. */
#include "model/gpu/gpu_weights.h"

#include <stdlib.h>
#include <string.h>

#include "kernel/embed/embed.h"
#include "kernel/linear/packed.h"
#include "model/attn_csa.h"
#include "model/backend.h"
#include "model/kv_b.h"
#include "num/bf16.h"

enum { PIECE = 32 << 20, ALIGN = 256 };

typedef struct uploader {
    nb_gpu_weights *w;
    const nb_model *m;
    const nb_rank_part *part;
    nb_dev *dev;
    nb_error *err;
    int cc;
    bool use[2]; /* by kind */
    bool codes;  /* rows that read activations as codes are taken */
} uploader;

static size_t div_up(size_t a, size_t b)
{
    return (a + b - 1) / b;
}

static nb_status take(uploader *u, size_t n_bytes, void **out)
{
    nb_gpu_weights *w = u->w;
    const size_t n = div_up(n_bytes, ALIGN) * ALIGN;
    w->used_bytes += n;
    if (n > w->left) {
        const size_t piece = n > PIECE / 4 ? n : PIECE;
        void **grown = realloc(w->chunk, (w->n_chunk + 1) * sizeof *grown);
        if (!grown) return nb_fail(u->err, NB_ERR_NOMEM, "out of memory");
        w->chunk = grown;
        char *p = nb_gpu_api(w->gpu)->alloc(nb_gpu_handle(w->gpu), piece);
        if (!p)
            return nb_fail(u->err, NB_ERR_NOMEM,
                           "the GPU has no memory for the weights: %zu MiB after %llu MiB",
                           piece >> 20, (unsigned long long)(w->n_bytes >> 20));
        w->chunk[w->n_chunk++] = p;
        w->n_bytes += piece;
        if (n == piece) { /* a piece of its own; the one in hand stays */
            *out = p;
            return NB_OK;
        }
        w->at = p;
        w->left = piece;
    }
    *out = w->at;
    w->at += n;
    w->left -= n;
    return NB_OK;
}

static void put(uploader *u, void *dst, const void *src, size_t n_bytes)
{
    nb_gpu_api(u->w->gpu)->upload(nb_gpu_handle(u->w->gpu), dst, src, n_bytes);
}

static nb_status vector(uploader *u, const float *x, size_t n, const float **out)
{
    void *p = NULL;
    *out = NULL;
    if (!x || n == 0) return NB_OK;
    NB_TRY(take(u, n * sizeof *x, &p));
    put(u, p, x, n * sizeof *x);
    *out = p;
    return NB_OK;
}

/* ---- rows of the tables ---- */

static const nb_cuda_linear_row *find_linear(const uploader *u, nb_cuda_kind kind, nb_wtype type,
                                             size_t n_out, size_t n_col, bool two_parts)
{
    const nb_cuda_linear_row *r = nb_gpu_api(u->w->gpu)->linear;
    for (; r->name; r++)
        if (r->kind == kind && r->cc <= u->cc && (u->codes || !r->codes) &&
            r->can(type, n_out, n_col, two_parts))
            return r;
    return NULL;
}

/* n_out: of the whole matrix. */
static nb_status choose(uploader *u, const char *what, nb_gpu_mat *m, size_t n_out, bool two_parts)
{
    m->n_whole = n_out;
    for (int k = 0; k < 2; k++) {
        if (!u->use[k]) continue;
        m->row[k] = find_linear(u, (nb_cuda_kind)k, m->w.type, n_out, m->w.n_col, two_parts);
        if (!m->row[k])
            return nb_fail(u->err, NB_ERR_UNSUPPORTED,
                           "%s: the GPU has no product for %s weights of %zux%zu", what,
                           nb_wtypes[m->w.type].name, n_out, m->w.n_col);
        if (m->w.n_row && !m->row[k]->can(m->w.type, m->w.n_row, m->w.n_col, two_parts))
            return nb_fail(u->err, NB_ERR_UNSUPPORTED,
                           "%s: %s computes %zux%zu, but not the %zu rows of a rank; expected a multiple of 8: use fewer ranks",
                           what, m->row[k]->name, n_out, m->w.n_col, m->w.n_row);
        if (m->row[k]->floats) u->w->floats = true;
    }
    return NB_OK;
}

enum { STAGE_BYTES = 4 << 20 };

/* A plane of the device, and where the next rows of it go. */
typedef struct plane {
    char *host, *dev;
    size_t row_bytes;
} plane;

static void put_plane(uploader *u, plane *p, size_t n_row)
{
    if (p->row_bytes) put(u, p->dev, p->host, n_row * p->row_bytes);
    p->dev += n_row * p->row_bytes;
}

/* n matrices of form f, one below the other, made by the host's threads. */
static nb_status stack_made(uploader *u, const nb_weight *const *src, size_t n, const nb_gpu_form *f,
                            nb_weight *out)
{
    const size_t n_col = src[0]->n_col;
    size_t n_row = 0, bytes[NB_GPU_PLANES];
    nb_gpu_plane_bytes(f, n_col, bytes);
    for (size_t i = 0; i < n; i++) n_row += src[i]->n_row;
    plane p[NB_GPU_PLANES];
    void *dev[NB_GPU_PLANES] = { NULL }, *host[NB_GPU_PLANES] = { NULL };
    const size_t step = STAGE_BYTES / bytes[NB_GPU_CODES] + 1;
    nb_arena stage = { 0 };
    nb_status st = NB_OK;
    for (size_t i = 0; i < NB_COUNT(p) && st == NB_OK; i++) {
        p[i] = (plane){ .row_bytes = bytes[i] };
        if (!bytes[i]) continue;
        st = take(u, n_row * bytes[i], &dev[i]);
        p[i].dev = dev[i];
        p[i].host = host[i] = nb_arena_array(&stage, step, bytes[i]);
        if (st == NB_OK && !p[i].host) st = nb_fail(u->err, NB_ERR_NOMEM, "out of memory");
    }
    for (size_t i = 0; i < n && st == NB_OK; i++)
        for (size_t r = 0; r < src[i]->n_row; r += step) {
            const size_t m = src[i]->n_row - r < step ? src[i]->n_row - r : step;
            nb_gpu_make_all(u->dev, src[i], f, r, m, host);
            for (size_t k = 0; k < NB_COUNT(p); k++) put_plane(u, &p[k], m);
        }
    nb_arena_deinit(&stage);
    *out = nb_gpu_weight_of(f, n_row, n_col, dev);
    return st;
}

/* n matrices of one form and n_col, one below the other: [sum of n_row][n_col]. */
static nb_status stack(uploader *u, const nb_weight *const *src, size_t n, nb_weight *out)
{
    nb_weight all = *src[0];
    nb_gpu_form f;
    (void)nb_gpu_form_of(src, n, &f);
    if (f.shape != NB_GPU_AS_IT_IS) return stack_made(u, src, n, &f, out);
    size_t n_bytes = 0, n_scale = 0; /* bytes */
    void *data, *scale = NULL;
    all.n_row = 0;
    for (size_t i = 0; i < n; i++) {
        all.n_row += src[i]->n_row;
        n_bytes += nb_weight_data_bytes(src[i]);
        n_scale += nb_weight_scale_bytes(src[i]);
    }
    NB_TRY(take(u, n_bytes, &data));
    if (n_scale) NB_TRY(take(u, n_scale, &scale));
    char *d = data, *s = scale;
    for (size_t i = 0; i < n; i++) {
        put(u, d, src[i]->data, nb_weight_data_bytes(src[i]));
        d += nb_weight_data_bytes(src[i]);
        if (!n_scale) continue;
        put(u, s, src[i]->scale, nb_weight_scale_bytes(src[i]));
        s += nb_weight_scale_bytes(src[i]);
    }
    all.data = data;
    all.scale = scale;
    *out = all;
    return NB_OK;
}

/* ---- parts ---- */

/* Rows that a rank has of a matrix. */
typedef struct rows {
    size_t first, n;
} rows;

static rows all_of(const nb_weight *w)
{
    return (rows){ 0, w->n_row };
}

/* A view of some rows. */
static nb_status view(const uploader *u, const char *what, const nb_weight *w, rows r, nb_weight *out)
{
    const bool blocks = w->type == NB_W_FP8B && !w->row_scales;
    if (blocks && r.n && r.first % NB_FP8_BLOCK)
        return nb_fail(u->err, NB_ERR_UNSUPPORTED,
                       "%s: on a GPU the part of a rank must begin with a block of %d rows that have one scale, and "
                       "this one begins at row %zu; fewer ranks may do, or --device cpu",
                       what, NB_FP8_BLOCK, r.first);
    *out = nb_weight_rows(w, r.first, r.n);
    return NB_OK;
}

/* Rows r of a matrix; a rank may have none. */
static nb_status matrix(uploader *u, const char *what, const nb_weight *src, const float *bias, rows r,
                        nb_gpu_mat *out)
{
    nb_weight w;
    const nb_weight *one = &w;
    if (!src->data || r.n == 0) return NB_OK;
    NB_TRY(view(u, what, src, r, &w));
    NB_TRY(stack(u, &one, 1, &out->w));
    NB_TRY(vector(u, bias ? bias + r.first : NULL, r.n, &out->bias));
    return choose(u, what, out, src->n_row, true);
}

/* ---- products of the same rows ---- */

static bool can_stack(const nb_weight *const *src, size_t n)
{
    nb_gpu_form f;
    for (size_t i = 0; i < n; i++) {
        if (src[i]->n_col != src[0]->n_col) return false;
        /* block scales begin anew at a matrix's first row */
        if (src[i]->type == NB_W_FP8B && !src[i]->row_scales && i + 1 < n &&
            src[i]->n_row % NB_FP8_BLOCK)
            return false;
    }
    return nb_gpu_form_of(src, n, &f);
}

static nb_status stack_bias(uploader *u, const nb_weight *const *src, const float *const *bias,
                            size_t n, size_t n_row, const float **out)
{
    bool any = false;
    for (size_t i = 0; i < n; i++) any |= bias[i] != NULL;
    if (!any) return NB_OK;
    float *all = calloc(n_row, sizeof *all);
    if (!all) return nb_fail(u->err, NB_ERR_NOMEM, "out of memory");
    for (size_t i = 0, at = 0; i < n; at += src[i++]->n_row)
        if (bias[i]) memcpy(all + at, bias[i], src[i]->n_row * sizeof *all);
    const nb_status st = vector(u, all, n_row, out);
    free(all);
    return st;
}

/* Rows r[i] of the n matrices. */
static nb_status group(uploader *u, const char *what, const nb_weight *const *src,
                       const float *const *bias, const rows *r, size_t n, nb_gpu_group *g)
{
    nb_weight part[NB_GPU_JOIN];
    const nb_weight *have[NB_GPU_JOIN];
    const float *b[NB_GPU_JOIN];
    size_t n_whole = 0;
    bool empty = false;
    *g = (nb_gpu_group){ .n = n, .joined = can_stack(src, n) };
    for (size_t i = 0; i < n; i++) {
        NB_TRY(view(u, what, src[i], r[i], &part[i]));
        have[i] = &part[i];
        b[i] = bias[i] ? bias[i] + r[i].first : NULL;
        g->at[i] = g->width;
        g->width += r[i].n;
        n_whole += src[i]->n_row;
        empty |= r[i].n == 0;
    }
    if (!g->joined || empty || !can_stack(have, n)) {
        for (size_t i = 0; i < n; i++) {
            NB_TRY(matrix(u, what, src[i], bias[i], r[i], &g->m[i]));
            if (g->joined && g->m[i].w.data) NB_TRY(choose(u, what, &g->m[i], n_whole, true));
        }
        return NB_OK;
    }
    g->n = 1;
    NB_TRY(stack(u, have, n, &g->m[0].w));
    NB_TRY(stack_bias(u, have, b, n, g->width, &g->m[0].bias));
    return choose(u, what, &g->m[0], n_whole, true);
}

/* ---- the absorbed forms of kv_b ---- */

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

static nb_status absorbed_form(uploader *u, const absorbed *a, size_t n_row, size_t n_col,
                               nb_gpu_mat out[2], size_t n_part)
{
    const nb_wtype type = n_part == 2 ? NB_W_BF16 : a->kv_b->type;
    const size_t row = n_col * nb_wtype_bytes(type), step = 1024;
    char *stage = malloc(step * row);
    nb_status st = stage ? NB_OK : nb_fail(u->err, NB_ERR_NOMEM, "out of memory");
    for (size_t p = 0; p < n_part && st == NB_OK; p++) {
        void *data;
        st = take(u, n_row * row, &data);
        for (size_t r = 0; r < n_row && st == NB_OK; r += step) {
            const size_t n = n_row - r < step ? n_row - r : step;
            for (size_t i = 0; i < n; i++) fill_row(a, r + i, n_col, (int)p, stage + i * row);
            put(u, (char *)data + r * row, stage, n * row);
        }
        if (st == NB_OK)
            out[p].w = (nb_weight){ .data = data, .n_row = n_row, .n_col = n_col, .type = type };
    }
    free(stage);
    return st;
}

/* Scales of an absorbed form whose blocks are blocks of kv_b (nb_gpu_keeps_blocks). */
static nb_status absorbed_scales(uploader *u, const absorbed *a, nb_weight *w)
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
    const nb_status st = take(u, n_bytes, &dev);
    if (st == NB_OK) put(u, dev, scale, n_bytes);
    free(scale);
    w->scale = dev;
    return st;
}

/* Chooses the kernels of uk and uv; prompts do not use them. */
static nb_status choose_absorbed(uploader *u, const nb_attn_config *attn, nb_gpu_layer *g)
{
    const bool prompt = u->use[NB_CUDA_PROMPT];
    u->use[NB_CUDA_PROMPT] = false;
    for (size_t p = 0; p < g->n_part; p++) {
        NB_TRY(choose(u, "kv_b_proj, absorbing", &g->uk[p], attn->kv_lora, true));
        NB_TRY(choose(u, "kv_b_proj, absorbing", &g->uv[p], attn->d_v, true));
    }
    u->use[NB_CUDA_PROMPT] = prompt;
    return NB_OK;
}

/* The rows of this rank's heads, d_head each. */
static rows heads_of(const nb_attn_config *attn, size_t head0, size_t d_head)
{
    return (rows){ head0 * d_head, attn->n_head * d_head };
}

static nb_status absorb(uploader *u, const nb_attn_config *attn, absorbed *a, nb_gpu_layer *g)
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

static nb_status absorb_packed(uploader *u, const nb_attn_config *attn, size_t head0, const nb_layer *l,
                               nb_gpu_layer *g)
{
    nb_weight k, v;
    const nb_weight *one[2] = { &k, &v };
    NB_TRY(view(u, "kv_b_proj", &l->absorb_k, heads_of(attn, head0, attn->kv_lora), &k));
    NB_TRY(view(u, "kv_b_proj", &l->absorb_v, heads_of(attn, head0, attn->d_v), &v));
    NB_TRY(stack(u, &one[0], 1, &g->uk->w));
    return stack(u, &one[1], 1, &g->uv->w);
}

/* The values of kv_b as floats, freed by the caller; NULL: out of memory. */
static float *values_of(const nb_weight *w)
{
    float *value = malloc(w->n_row * w->n_col * sizeof *value);
    for (uint32_t r = 0; value && r < w->n_row; r++)
        nb_embed_c(&(nb_embed_args){ .y = value + r * w->n_col,
                                     .id = &r,
                                     .w = *w,
                                     .n_tok = 1,
                                     .y_stride = w->n_col,
                                     .factor = 1.0f });
    return value;
}

static nb_status absorbing(uploader *u, const nb_attn_config *attn, size_t head0, const nb_layer *l,
                           const nb_weight *kv_b, nb_gpu_layer *g)
{
    nb_weight own;
    const nb_weight *w = &own;
    if (!u->use[NB_CUDA_DIRECT]) return NB_OK;
    NB_TRY(view(u, "kv_b_proj", kv_b, heads_of(attn, head0, attn->d_nope + attn->d_v), &own));
    absorbed a = { w, NULL, attn->n_head, attn->d_nope, attn->d_v, true };
    g->n_part = nb_gpu_in_two_parts(w, attn) ? 2 : 1; /* halves: F32 */
    g->uv_batch = attn->d_v;
    if (has_packed_halves(l))
        NB_TRY(absorb_packed(u, attn, head0, l, g));
    else if (g->n_part == 1)
        NB_TRY(absorb(u, attn, &a, g));
    else {
        float *value = values_of(w);
        if (!value) return nb_fail(u->err, NB_ERR_NOMEM, "out of memory");
        a.value = value;
        const nb_status st = absorb(u, attn, &a, g);
        free(value);
        NB_TRY(st);
    }
    return choose_absorbed(u, attn, g);
}

/* kv_b in BF16, where its halves are packed along different dimensions: its product is rounded to BF16 in any case. */
static nb_status expanding_packed(uploader *u, const nb_weight *w, rows own, nb_gpu_layer *g)
{
    const size_t n = w->n_row * w->n_col;
    float *value = values_of(w);
    uint16_t *b = malloc(n * sizeof *b);
    nb_status st = value && b ? NB_OK : nb_fail(u->err, NB_ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < n && st == NB_OK; i++) b[i] = nb_bf16_from_f32(value[i]);
    if (st == NB_OK)
        st = matrix(u, "kv_b_proj",
                    &(nb_weight){ .data = b, .n_row = w->n_row, .n_col = w->n_col, .type = NB_W_BF16 },
                    NULL, own, &g->kv_b);
    free(value);
    free(b);
    return st;
}

static nb_status expanding(uploader *u, const nb_attn_config *attn, size_t head0, const nb_layer *l,
                           const nb_weight *kv_b, nb_gpu_layer *g)
{
    const bool direct = u->use[NB_CUDA_DIRECT];
    if (!u->use[NB_CUDA_PROMPT]) return NB_OK;
    u->use[NB_CUDA_DIRECT] = false;
    const rows own = heads_of(attn, head0, attn->d_nope + attn->d_v);
    const nb_status st = nb_kv_b_in_halves(l) ? expanding_packed(u, kv_b, own, g)
                                              : matrix(u, "kv_b_proj", kv_b, NULL, own, &g->kv_b);
    u->use[NB_CUDA_DIRECT] = direct;
    return st;
}

/* Of halves, kv_b as a whole is there during the upload only. */
static nb_status upload_kv_b(uploader *u, const nb_attn_config *attn, size_t head0, const nb_layer *l,
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

/* ---- experts ---- */

/* Matrix k of a run's experts, one below the other. */
static nb_status stack_run(uploader *u, const nb_mlp *expert, nb_gpu_run *r, size_t k)
{
    const nb_weight **src = calloc(r->n, sizeof *src);
    if (!src) return nb_fail(u->err, NB_ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < r->n; i++)
        src[i] = nb_gpu_expert_mat(&expert[nb_gpu_expert_of(u->part, r->first + i)], k);
    const nb_status st = stack(u, src, r->n, &r->w[k]);
    free(src);
    return st;
}

static nb_status upload_experts(uploader *u, const nb_layer *l, nb_gpu_layer *g)
{
    g->host = false;
    for (size_t i = 0; i < g->expert.n_run; i++)
        for (size_t k = 0; k < NB_GPU_EXPERT_MATS; k++)
            NB_TRY(stack_run(u, l->expert, &g->expert.run[i], k));
    return NB_OK;
}

static nb_status experts(uploader *u, size_t layer, nb_gpu_layer *g)
{
    nb_gpu_experts *e = &g->expert;
    nb_gpu_weights *w = u->w;
    const nb_layer *l = &u->m->layer[layer];
    const nb_gpu_row_limits limits = { nb_gpu_api(w->gpu)->experts, u->cc, { u->use[0], u->use[1] }, u->codes };
    NB_TRY(nb_gpu_runs_init(e, l->expert, layer, u->part, &limits, &w->arena, u->err));
    w->floats |= e->floats;
    w->apart |= e->apart;
    if (g->host)
        w->upload &= nb_gpu_runs_can_send(e);
    else
        NB_TRY(upload_experts(u, l, g));
    NB_TRY(matrix(u, "mlp.gate", &l->router, NULL, all_of(&l->router), &g->router));
    return vector(u, l->router_b, nb_n_choice(&u->m->c), &g->router_b);
}

/* ---- layers ---- */

static nb_status upload_gqa(uploader *u, const nb_attn_config *attn, size_t head0, const nb_layer *l,
                            nb_gpu_layer *g)
{
    const rows part[] = { heads_of(attn, head0, attn->head_dim), all_of(&l->k), all_of(&l->v) };
    const nb_weight *const src[] = { &l->q, &l->k, &l->v };
    const float *const bias[] = { l->q_b_bias, l->k_b, l->v_b };
    NB_TRY(vector(u, l->q_norm, attn->head_dim, &g->q_norm));
    NB_TRY(vector(u, l->k_norm, attn->head_dim, &g->k_norm));
    return group(u, "q_proj, k_proj, v_proj", src, bias, part, 3, &g->in);
}

/* Latent attention, and the keys of an indexer (NULL: none). */
static nb_status upload_latent(uploader *u, const nb_attn_config *attn, size_t head0, const nb_layer *l,
                               const nb_weight *index_k, nb_gpu_layer *g)
{
    const rows q = heads_of(attn, head0, attn->d_nope + attn->d_rope);
    const rows part[] = { attn->q_lora ? all_of(&l->q_a) : q, all_of(&l->kv_a),
                          index_k ? all_of(index_k) : (rows){ 0, 0 } };
    const nb_weight *const src[] = { attn->q_lora ? &l->q_a : &l->q, &l->kv_a, index_k };
    const float *const bias[] = { attn->q_lora ? l->q_a_b : NULL, l->kv_a_b, NULL };
    NB_TRY(group(u, index_k ? "q_a_proj, kv_a_proj, indexer.wk" : "q_proj, kv_a_proj", src, bias, part,
                 index_k ? 3 : 2, &g->in));
    NB_TRY(vector(u, l->q_a_norm, attn->q_lora, &g->q_a_norm));
    NB_TRY(vector(u, l->kv_a_norm, attn->kv_lora, &g->kv_a_norm));
    NB_TRY(vector(u, l->kv_mean, attn->kv_lora, &g->mean));
    NB_TRY(vector(u, l->rope_k, attn->d_rope, &g->rope_k));
    NB_TRY(vector(u, l->rope_q, attn->d_rope, &g->rope_q));
    if (attn->q_lora) NB_TRY(matrix(u, "q_b_proj", &l->q_b, NULL, q, &g->q_b));
    return upload_kv_b(u, attn, head0, l, g);
}

static nb_status upload_mla(uploader *u, const nb_attn_config *attn, size_t head0, const nb_layer *l,
                            nb_gpu_layer *g)
{
    return upload_latent(u, attn, head0, l, NULL, g);
}

/* Every rank has the whole indexer. */
static nb_status upload_dsa(uploader *u, const nb_attn_config *attn, size_t head0, const nb_layer *l,
                            nb_gpu_layer *g)
{
    NB_TRY(upload_latent(u, attn, head0, l, attn->index_shared ? NULL : &l->index_k, g));
    if (attn->index_shared) return NB_OK;
    NB_TRY(vector(u, l->index_norm, attn->index_dim, &g->index_norm));
    NB_TRY(vector(u, l->index_norm_b, attn->index_dim, &g->index_norm_b));
    NB_TRY(matrix(u, "indexer.wq_b", &l->index_q, NULL, all_of(&l->index_q), &g->index_q));
    return matrix(u, "indexer.weights_proj", &l->index_w, NULL, all_of(&l->index_w), &g->index_w);
}

static nb_status upload_csa(uploader *u, const nb_attn_config *a, size_t head0, const nb_layer *l, nb_gpu_layer *g)
{
    const nb_weight *const in[] = { &l->q_a, &l->kv_a };
    const nb_weight *const comp[] = { &l->comp.kv, &l->comp.gate, &l->idx_comp.kv, &l->idx_comp.gate };
    const float *const none[NB_GPU_JOIN] = { NULL };
    const rows in_rows[] = { all_of(in[0]), all_of(in[1]) };
    const rows comp_rows[] = { all_of(comp[0]), all_of(comp[1]), all_of(comp[2]), all_of(comp[3]) };
    const size_t keys = nb_csa_width(a, a->index_dim);
    (void)head0; /* one rank */
    NB_TRY(group(u, "q_a_proj, kv_proj", in, none, in_rows, 2, &g->in));
    NB_TRY(vector(u, l->q_a_norm, a->q_lora, &g->q_a_norm));
    NB_TRY(vector(u, l->kv_a_norm, a->head_dim, &g->kv_a_norm));
    NB_TRY(vector(u, l->sink, a->n_head, &g->sink));
    NB_TRY(matrix(u, "q_b_proj", &l->q_b, NULL, all_of(&l->q_b), &g->q_b));
    NB_TRY(matrix(u, "o_a_proj", &l->o_a, NULL, all_of(&l->o_a), &g->o_a));
    NB_TRY(choose(u, "o_a_proj", &g->o_a, a->o_lora, true)); /* a product for each group */
    if (!a->ratio) return NB_OK;
    NB_TRY(group(u, "compressor", comp, none, comp_rows, a->index_topk ? 4 : 2, &g->comp));
    NB_TRY(vector(u, l->comp.ape, a->ratio * nb_csa_width(a, a->head_dim), &g->ape[0]));
    NB_TRY(vector(u, l->comp.norm, a->head_dim, &g->comp_norm[0]));
    if (!a->index_topk) return NB_OK;
    NB_TRY(vector(u, l->idx_comp.ape, a->ratio * keys, &g->ape[1]));
    NB_TRY(vector(u, l->idx_comp.norm, a->index_dim, &g->comp_norm[1]));
    NB_TRY(matrix(u, "indexer.q_b_proj", &l->idx_q, NULL, all_of(&l->idx_q), &g->index_q));
    return matrix(u, "indexer.scorer.weights_proj", &l->idx_w, NULL, all_of(&l->idx_w), &g->index_w);
}

static nb_status attention(uploader *u, size_t i)
{
    typedef nb_status upload_fn(uploader *, const nb_attn_config *, size_t, const nb_layer *,
                                nb_gpu_layer *);
    static upload_fn *const kinds[NB_ATTN_KINDS] = {
        [NB_ATTN_MLA] = upload_mla, [NB_ATTN_GQA] = upload_gqa, [NB_ATTN_DSA] = upload_dsa, [NB_ATTN_CSA] = upload_csa
    };
    const size_t which = u->m->c.attn_of[i];
    const nb_attn_config *attn = &u->part->attn[which];
    return kinds[attn->kind](u, attn, u->part->head0[which], &u->m->layer[i], &u->w->layer[i]);
}

/* Of n_scale scales. */
static nb_status streams(uploader *u, const nb_mix *m, size_t n_scale, nb_gpu_mix *g)
{
    if (!m->fn.data) return NB_OK;
    float *fn = values_of(&m->fn);
    if (!fn) return nb_fail(u->err, NB_ERR_NOMEM, "out of memory");
    const nb_status st = vector(u, fn, m->fn.n_row * m->fn.n_col, &g->fn);
    free(fn);
    NB_TRY(st);
    NB_TRY(vector(u, m->base, m->fn.n_row, &g->base));
    return vector(u, m->scale, n_scale, &g->scale);
}

/* Streams, and experts by token. */
static nb_status mixed(uploader *u, const nb_layer *l, nb_gpu_layer *g)
{
    const nb_model_config *c = &u->m->c;
    for (size_t k = 0; k < NB_COUNT(g->mix); k++) NB_TRY(streams(u, &l->mix[k], 3, &g->mix[k]));
    if (!l->hash) return NB_OK;
    void *p;
    NB_TRY(take(u, c->n_vocab * c->top_k * sizeof *l->hash, &p));
    put(u, p, l->hash, c->n_vocab * c->top_k * sizeof *l->hash);
    g->hash = p;
    return NB_OK;
}

static nb_status layer(uploader *u, size_t i)
{
    const nb_model_config *c = &u->m->c;
    const nb_layer *l = &u->m->layer[i];
    nb_gpu_layer *g = &u->w->layer[i];
    NB_TRY(vector(u, l->in_norm, c->hidden, &g->in_norm));
    NB_TRY(vector(u, l->post_norm, c->hidden, &g->post_norm));
    if (l->branch_norm) NB_TRY(vector(u, l->branch_norm, c->hidden, &g->branch_norm));
    NB_TRY(attention(u, i));
    NB_TRY(mixed(u, l, g));
    const nb_rank_part *p = u->part;
    const rows out = { p->out0, p->n_out };
    NB_TRY(matrix(u, "o_proj", &l->o, l->o_b, out, &g->o));
    if (l->mlp.gate.data) {
        const rows inter = c->dense[i] ? (rows){ p->inter0, p->inter }
                                       : (rows){ p->shared0, p->shared_inter };
        const rows part[] = { inter, inter };
        const nb_weight *const src[] = { &l->mlp.gate, &l->mlp.up };
        const float *const bias[] = { l->mlp.gate_b, l->mlp.up_b };
        NB_TRY(group(u, "gate_proj, up_proj", src, bias, part, 2, &g->gate_up));
        NB_TRY(matrix(u, "down_proj", &l->mlp.down, l->mlp.down_b, out, &g->down));
    }
    return nb_layer_has_experts(c, i) ? experts(u, i, g) : NB_OK;
}

/* ---- places ---- */

static void mark_host(nb_gpu_weights *w, const nb_model_config *c, const nb_expert_place *place)
{
    const size_t n_host = place->fit ? SIZE_MAX : place->n_host;
    for (size_t i = 0, n = 0; i < c->n_layer && n < n_host; i++) {
        if (!nb_layer_has_experts(c, i)) continue;
        w->layer[i].host = w->host = true;
        n++;
    }
}

static nb_status upload_all(uploader *u)
{
    const nb_model *m = u->m;
    nb_gpu_weights *w = u->w;
    for (size_t i = 0; i < m->c.n_layer; i++) NB_TRY(layer(u, i));
    /* every logit is of the direct kind: whether its token was a prompt's must not matter */
    u->use[NB_CUDA_DIRECT] = true;
    u->use[NB_CUDA_PROMPT] = false;
    const rows vocab = { u->part->vocab0, u->part->n_vocab };
    NB_TRY(matrix(u, "lm_head", &m->head, NULL, vocab, &w->head));
    const nb_weight *const embed = &m->embed;
    if (m->head_is_embed && vocab.n == m->head.n_row)
        w->embed.w = w->head.w;
    else
        NB_TRY(stack(u, &embed, 1, &w->embed.w));
    NB_TRY(vector(u, m->final_norm, m->c.hidden, &w->final_norm));
    NB_TRY(streams(u, &m->mix, 1, &w->mix));
    return nb_gpu_api(w->gpu)->sync(nb_gpu_handle(w->gpu), u->err);
}

nb_status nb_gpu_weights_init(nb_gpu_weights *w, const nb_model *m, const nb_rank_part *part,
                              nb_gpu *gpu, nb_dev *dev, bool direct, bool expanded, bool codes,
                              const nb_expert_place *place, nb_error *err)
{
    nb_cuda_info info;
    *w = (nb_gpu_weights){ .gpu = gpu, .dev = dev, .part = part, .upload = expanded };
    nb_gpu_api(gpu)->get_info(nb_gpu_handle(gpu), &info);
    uploader u = { w, m, part, dev, err, info.cc, { direct, expanded }, codes };
    w->layer = nb_arena_array(&w->arena, m->c.n_layer, sizeof *w->layer);
    nb_status st = w->layer ? NB_OK : nb_fail(err, NB_ERR_NOMEM, "out of memory");
    if (st == NB_OK) mark_host(w, &m->c, place);
    if (st == NB_OK) st = upload_all(&u);
    if (st != NB_OK) nb_gpu_weights_deinit(w);
    return st;
}

/* ---- experts that fit ---- */

uint64_t nb_gpu_expert_bytes(const nb_model *m, size_t layer)
{
    uint64_t n = 0;
    for (size_t e = 0; e < m->c.n_expert; e++) {
        const nb_mlp *x = &m->layer[layer].expert[e];
        const nb_weight *const w[] = { &x->gate, &x->up, &x->down };
        for (size_t i = 0; i < NB_COUNT(w); i++) n += nb_weight_bytes(w[i]);
    }
    return n;
}

/* The same on the device. */
static uint64_t device_bytes(const nb_gpu_weights *w, const nb_model *m, size_t layer)
{
    return nb_gpu_runs_bytes(&w->layer[layer].expert, m->layer[layer].expert, w->part);
}

/* Bytes that the device has beside leave_bytes, and beside what is lost at the ends of pieces. */
static uint64_t room(const nb_gpu_weights *w, uint64_t leave_bytes)
{
    nb_cuda_info info;
    nb_gpu_api(w->gpu)->get_info(nb_gpu_handle(w->gpu), &info);
    const uint64_t keep =
        leave_bytes > UINT64_MAX - 3 * PIECE ? UINT64_MAX : leave_bytes + 3 * PIECE;
    return info.free_bytes > keep ? info.free_bytes - keep : 0;
}

nb_status nb_gpu_weights_fit(nb_gpu_weights *w, const nb_model *m, uint64_t leave_bytes, bool all,
                             nb_error *err)
{
    uint64_t need = 0;
    uploader u = { .w = w, .m = m, .part = w->part, .dev = w->dev, .err = err };
    for (size_t i = 0; i < m->c.n_layer; i++) {
        if (w->layer[i].host) need += device_bytes(w, m, i);
    }
    if (all && need > room(w, leave_bytes)) return NB_OK;
    for (size_t i = m->c.n_layer; i-- > 0;) {
        if (!w->layer[i].host) continue;
        if (!all && device_bytes(w, m, i) > room(w, leave_bytes)) break;
        NB_TRY(upload_experts(&u, &m->layer[i], &w->layer[i]));
        NB_TRY(nb_gpu_api(w->gpu)->sync(nb_gpu_handle(w->gpu), err));
    }
    w->host = false;
    for (size_t i = 0; i < m->c.n_layer; i++) w->host |= w->layer[i].host;
    return NB_OK;
}

void nb_gpu_weights_deinit(nb_gpu_weights *w)
{
    for (size_t i = 0; i < w->n_chunk; i++)
        nb_gpu_api(w->gpu)->free(nb_gpu_handle(w->gpu), w->chunk[i]);
    free(w->chunk);
    nb_arena_deinit(&w->arena);
    *w = (nb_gpu_weights){ 0 };
}
