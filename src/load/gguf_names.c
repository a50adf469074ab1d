/* gguf_names.c - the tensors of a GGUF file under the names of a Hugging Face folder.
 *
 * A matrix has the same bytes in both: rows one after another.  Three things differ.  Routed experts are slices of one
 * tensor.  llama.cpp stores the rows of Llama's q and k in the order of its own rotation, pairs beside each other.
 * W_kv_b comes in two: attn_k_b is W_UK transposed per head, so that its blocks run along another dimension than prompts
 * read.  Where one of them has blocks, or they have different types, they are there as k_b_proj and v_b_proj
 * (model/kv_b.h); else they are joined. */
#include <stdio.h>
#include <stdlib.h>

#include "load/gguf.h"
#include "load/load_internal.h"
#include "num/bf16.h"
#include "num/fp16.h"

typedef struct name_row {
    const char *gguf, *hf; /* behind "blk.N." and "model.layers.N." */
    size_t n_dim;          /* 1: vector, 2: matrix */
    const char *heads;     /* Llama only: rows in pairs, with the number of heads under this key */
} name_row;

#define Q_HEADS "attention.head_count"
#define KV_HEADS "attention.head_count_kv"
static const name_row layer_rows[] = {
    { "attn_norm.weight", "input_layernorm.weight", 1, NULL },
    { "ffn_norm.weight", "post_attention_layernorm.weight", 1, NULL },
    { "attn_q.weight", "self_attn.q_proj.weight", 2, Q_HEADS },
    { "attn_q.bias", "self_attn.q_proj.bias", 1, Q_HEADS },
    { "attn_k.weight", "self_attn.k_proj.weight", 2, KV_HEADS },
    { "attn_k.bias", "self_attn.k_proj.bias", 1, KV_HEADS },
    { "attn_v.weight", "self_attn.v_proj.weight", 2, NULL },
    { "attn_v.bias", "self_attn.v_proj.bias", 1, NULL },
    { "attn_output.weight", "self_attn.o_proj.weight", 2, NULL },
    { "attn_output.bias", "self_attn.o_proj.bias", 1, NULL },
    { "attn_q_norm.weight", "self_attn.q_norm.weight", 1, NULL },
    { "attn_k_norm.weight", "self_attn.k_norm.weight", 1, NULL },
    { "attn_q_a.weight", "self_attn.q_a_proj.weight", 2, NULL },
    { "attn_q_a_norm.weight", "self_attn.q_a_layernorm.weight", 1, NULL },
    { "attn_q_b.weight", "self_attn.q_b_proj.weight", 2, NULL },
    { "attn_kv_a_mqa.weight", "self_attn.kv_a_proj_with_mqa.weight", 2, NULL },
    { "attn_kv_a_norm.weight", "self_attn.kv_a_layernorm.weight", 1, NULL },
    { "attn_kv_b.weight", "self_attn.kv_b_proj.weight", 2, NULL },
    { "ffn_gate.weight", "mlp.gate_proj.weight", 2, NULL },
    { "ffn_up.weight", "mlp.up_proj.weight", 2, NULL },
    { "ffn_down.weight", "mlp.down_proj.weight", 2, NULL },
    { "ffn_gate.bias", "mlp.gate_proj.bias", 1, NULL },
    { "ffn_up.bias", "mlp.up_proj.bias", 1, NULL },
    { "ffn_down.bias", "mlp.down_proj.bias", 1, NULL },
    { "ffn_gate_inp.weight", "mlp.gate.weight", 2, NULL },
    { "exp_probs_b.bias", "mlp.gate.e_score_correction_bias", 1, NULL },
    { "ffn_gate_shexp.weight", "mlp.shared_experts.gate_proj.weight", 2, NULL },
    { "ffn_up_shexp.weight", "mlp.shared_experts.up_proj.weight", 2, NULL },
    { "ffn_down_shexp.weight", "mlp.shared_experts.down_proj.weight", 2, NULL },
};
static const name_row model_rows[] = {
    { "token_embd.weight", "model.embed_tokens.weight", 2, NULL },
    { "output_norm.weight", "model.norm.weight", 1, NULL },
    { "output.weight", "lm_head.weight", 2, NULL },
};

/* Slices of a tensor with a third dimension: expert j's matrices are `parts` of equal height. */
typedef struct expert_row {
    const char *gguf;
    size_t n_part;
    const char *part[2];
} expert_row;
static const expert_row expert_rows[] = {
    { "ffn_gate_exps.weight", 1, { "gate", NULL } },
    { "ffn_up_exps.weight", 1, { "up", NULL } },
    { "ffn_down_exps.weight", 1, { "down", NULL } },
    { "ffn_gate_up_exps.weight", 2, { "gate", "up" } },
};

/* Read with the configuration. */
static const char *const tables[] = { "rope_freqs.weight", "rope_factors_long.weight",
                                      "rope_factors_short.weight" };

const char *nb_gguf_layer_name(const char *hf)
{
    for (size_t i = 0; i < NB_COUNT(layer_rows); i++)
        if (strcmp(hf, layer_rows[i].hf) == 0) return layer_rows[i].gguf;
    return NULL;
}

typedef struct walk {
    const nb_gguf *g;
    nb_arena *names;
    nb_gguf_part_fn *fn;
    void *ctx;
    nb_error *err;
    nb_str arch;
} walk;

static nb_status bad(const walk *w, const nb_gguf_tensor *t, const char *what)
{
    return nb_fail(w->err, NB_ERR_FORMAT, "%s: tensor '%s': %s",
                   nb_show_path(w->g->file[t->file].path).s, nb_show(t->name).s, what);
}

static nb_status emit(const walk *w, nb_gguf_part *p, const char *name)
{
    p->name = nb_arena_strdup(w->names, nb_str_c(name));
    if (!p->name)
        return nb_fail(w->err, NB_ERR_NOMEM, "%s: out of memory",
                       nb_show_path(nb_gguf_name(w->g)).s);
    return w->fn(w->ctx, p, w->err);
}

/* Everything but the name, as the file has it. */
static nb_gguf_part as_it_is(const nb_gguf_tensor *t, size_t n_dim)
{
    nb_gguf_part p = {
        .t = t, .dtype = nb_gguf_dtype_of(t->type)->dtype, .data = t->data, .n_bytes = t->n_bytes
    };
    p.n_dim = t->n_dim > n_dim ? t->n_dim : n_dim;
    for (size_t i = 0; i < p.n_dim; i++) {
        const size_t k = p.n_dim - 1 - i;
        p.dim[i] = k < t->n_dim ? t->dim[k] : 1;
    }
    return p;
}

static nb_status whole(const walk *w, const nb_gguf_tensor *t, const name_row *row,
                       const char *name)
{
    nb_gguf_part p = as_it_is(t, row->n_dim);
    if (row->heads && nb_str_eqc(w->arch, "llama")) {
        char key[96];
        uint64_t n = 0;
        (void)snprintf(key, sizeof key, "llama.%s", row->heads);
        bool found;
        NB_TRY(nb_gguf_u64(w->g, key, &n, &found, w->err));
        if (!found) NB_TRY(nb_gguf_u64(w->g, "llama." Q_HEADS, &n, NULL, w->err));
        if (n == 0 || p.dim[0] % n || p.dim[0] / n % 2)
            return bad(w, t, "its rows are not an even number per head");
        p.form = NB_GGUF_ROPE_ROWS;
        p.n_head = (size_t)n;
    }
    return emit(w, &p, name);
}

static nb_status experts(const walk *w, const nb_gguf_tensor *t, const expert_row *row,
                         unsigned long layer)
{
    char name[128];
    const size_t n = t->n_dim > 2 ? t->dim[2] : 1, rows = t->n_dim > 1 ? t->dim[1] : 1;
    if (t->n_dim > 3) return bad(w, t, "has four dimensions, expected three");
    if (rows % row->n_part) return bad(w, t, "has an odd number of rows, expected gate and up");
    if (n > 65536) return bad(w, t, "has more experts than 65536");
    nb_gguf_part p = as_it_is(t, 2);
    p.n_dim = 2;
    p.dim[0] = rows / row->n_part;
    p.dim[1] = t->dim[0];
    p.n_bytes = n ? t->n_bytes / n / row->n_part : 0;
    for (size_t j = 0; j < n; j++)
        for (size_t k = 0; k < row->n_part; k++) {
            (void)snprintf(name, sizeof name, "model.layers.%lu.mlp.experts.%zu.%s_proj.weight",
                           layer, j, row->part[k]);
            NB_TRY(emit(w, &p, name));
            p.data += p.n_bytes;
        }
    return NB_OK;
}

/* attn_k_b or attn_v_b as one matrix, the heads one below the other. */
static nb_status half(const walk *w, const nb_gguf_tensor *t, unsigned long layer, const char *what,
                      size_t rows)
{
    char name[128];
    nb_gguf_part p = as_it_is(t, 2);
    p.n_dim = 2;
    p.dim[0] = rows;
    p.dim[1] = t->dim[0];
    (void)snprintf(name, sizeof name, "model.layers.%lu.self_attn.%s.weight", layer, what);
    return emit(w, &p, name);
}

static nb_status kv_b(const walk *w, const nb_gguf_tensor *k, unsigned long layer)
{
    char name[128];
    (void)snprintf(name, sizeof name, "blk.%lu.attn_v_b.weight", layer);
    const nb_gguf_tensor *v = nb_gguf_find_tensor(w->g, name);
    if (!v) return bad(w, k, "attn_v_b, which belongs to it, is missing");
    const size_t n_head = k->n_dim > 2 ? k->dim[2] : 1, lora = k->n_dim > 1 ? k->dim[1] : 1;
    const size_t v_head = v->n_dim > 2 ? v->dim[2] : 1, d_v = v->n_dim > 1 ? v->dim[1] : 1,
                 nope = k->dim[0];
    if (k->n_dim > 3 || v->n_dim > 3 || v->dim[0] != lora || v_head != n_head)
        return bad(w, k,
                   "its shape and that of attn_v_b do not fit: expected [nope, latent, heads] and "
                   "[latent, value, heads]");
    const nb_gguf_dtype *kt = nb_gguf_dtype_of(k->type), *vt = nb_gguf_dtype_of(v->type);
    const bool read = kt->values && vt->values;
    nb_gguf_part p = { .t = k, .t2 = v, .form = NB_GGUF_KV_B, .n_head = n_head, .n_dim = 2 };
    p.dtype = read ? kt->dtype : NB_DT_OTHER; /* it is refused when it is taken */
    if (nope > SIZE_MAX - d_v || (n_head && nope + d_v > SIZE_MAX / n_head) ||
        (lora && n_head * (nope + d_v) > SIZE_MAX / 4 / lora))
        return bad(w, k, "has more bytes than can be addressed");
    if (read && (kt != vt || kt->block > 1)) {
        NB_TRY(half(w, k, layer, "k_b_proj", n_head * lora));
        return half(w, v, layer, "v_b_proj", n_head * d_v);
    }
    p.dim[0] = n_head * (nope + d_v);
    p.dim[1] = lora;
    p.n_bytes = p.dim[0] * lora * (p.dtype == NB_DT_F32 ? 4 : 2);
    p.data = k->data;
    (void)snprintf(name, sizeof name, "model.layers.%lu.self_attn.kv_b_proj.weight", layer);
    return emit(w, &p, name);
}

/* X.scale beside X.weight (NVFP4): one for the matrix, or one for each expert. */
static nb_status outer_scale(const walk *w, const nb_gguf_tensor *t, unsigned long layer,
                             const char *rest)
{
    char weight[NB_GGUF_MAX_NAME_BYTES + 8], name[160];
    (void)snprintf(weight, sizeof weight, "%.*s.weight", (int)(strlen(rest) - 6), rest);
    nb_gguf_part p = as_it_is(t, 1);
    if (t->type != 0 || t->n_dim != 1) return bad(w, t, "expected F32 with one dimension");
    for (size_t i = 0; i < NB_COUNT(layer_rows); i++)
        if (!strcmp(weight, layer_rows[i].gguf)) {
            (void)snprintf(name, sizeof name, "model.layers.%lu.%s_outer", layer, layer_rows[i].hf);
            return emit(w, &p, name);
        }
    for (size_t i = 0; i < NB_COUNT(expert_rows); i++) {
        const size_t n = t->dim[0];
        if (strcmp(weight, expert_rows[i].gguf) != 0) continue;
        p.dim[0] = 1;
        p.n_bytes = sizeof(float);
        for (size_t j = 0; j < n && j < 65536; j++, p.data += p.n_bytes)
            for (size_t k = 0; k < expert_rows[i].n_part; k++) {
                (void)snprintf(name, sizeof name,
                               "model.layers.%lu.mlp.experts.%zu.%s_proj.weight_outer", layer, j,
                               expert_rows[i].part[k]);
                NB_TRY(emit(w, &p, name));
            }
        return NB_OK;
    }
    return nb_fail(w->err, NB_ERR_UNSUPPORTED, "%s: tensor '%s': a scale of this tensor is not supported",
                   nb_show_path(w->g->file[t->file].path).s, nb_show(t->name).s);
}

/* A tensor of a layer; rest is its name behind "blk.N.". */
static nb_status layer_tensor(const walk *w, const nb_gguf_tensor *t, unsigned long layer,
                              const char *rest)
{
    char name[NB_GGUF_MAX_NAME_BYTES + 64];
    for (size_t i = 0; i < NB_COUNT(layer_rows); i++)
        if (!strcmp(rest, layer_rows[i].gguf)) {
            (void)snprintf(name, sizeof name, "model.layers.%lu.%s", layer, layer_rows[i].hf);
            return whole(w, t, &layer_rows[i], name);
        }
    for (size_t i = 0; i < NB_COUNT(expert_rows); i++)
        if (!strcmp(rest, expert_rows[i].gguf)) return experts(w, t, &expert_rows[i], layer);
    if (!strcmp(rest, "attn_k_b.weight")) return kv_b(w, t, layer);
    if (!strcmp(rest, "attn_v_b.weight")) return NB_OK;
    if (strlen(rest) > 6 && !strcmp(rest + strlen(rest) - 6, ".scale"))
        return outer_scale(w, t, layer, rest);
    nb_gguf_part p = as_it_is(t, 1);
    (void)snprintf(name, sizeof name, "model.layers.%lu.%s", layer, rest);
    return emit(w, &p, name);
}

static nb_status one(const walk *w, const nb_gguf_tensor *t)
{
    char name[NB_GGUF_MAX_NAME_BYTES + 1];
    memcpy(name, t->name.p, t->name.n_bytes);
    name[t->name.n_bytes] = 0;
    unsigned long layer = 0;
    int used = 0;
    for (size_t i = 0; i < NB_COUNT(tables); i++)
        if (!strcmp(name, tables[i])) return NB_OK;
    if (sscanf(name, "blk.%5lu.%n", &layer, &used) == 1 && used)
        return layer_tensor(w, t, layer, name + used);
    for (size_t i = 0; i < NB_COUNT(model_rows); i++)
        if (!strcmp(name, model_rows[i].gguf)) return whole(w, t, &model_rows[i], model_rows[i].hf);
    nb_gguf_part p = as_it_is(t, 1);
    return emit(w, &p, name);
}

nb_status nb_gguf_tensors(const nb_gguf *g, nb_arena *names, nb_gguf_part_fn *fn, void *ctx,
                          nb_error *err)
{
    walk w = { .g = g, .names = names, .fn = fn, .ctx = ctx, .err = err };
    bool found;
    NB_TRY(nb_gguf_str(g, "general.architecture", &w.arch, &found, err));
    for (size_t i = 0; i < g->n_tensor; i++) NB_TRY(one(&w, &g->tensor[i]));
    return NB_OK;
}

/* ---- making bytes ---- */

/* Row 2i + j of a head goes to row i + j * d / 2. */
static void rope_rows(const nb_gguf_part *p, unsigned char *to)
{
    const size_t d = p->dim[0] / p->n_head, bytes = p->n_bytes / p->dim[0];
    for (size_t r = 0; r < p->dim[0]; r++) {
        const size_t h = r / d, i = r % d;
        memcpy(to + (h * d + i / 2 + i % 2 * (d / 2)) * bytes, p->data + r * bytes, bytes);
    }
}

static void put(nb_dtype type, unsigned char *to, size_t i, float v)
{
    const uint16_t h = type == NB_DT_BF16  ? nb_bf16_from_f32(v)
                       : type == NB_DT_F16 ? nb_fp16_from_f32(v)
                                           : 0;
    if (type == NB_DT_F32)
        memcpy(to + 4 * i, &v, sizeof v);
    else
        memcpy(to + 2 * i, &h, sizeof h);
}

static nb_status join_kv_b(const nb_gguf_part *p, unsigned char *to, nb_error *err)
{
    const nb_gguf_tensor *k = p->t, *v = p->t2;
    const nb_gguf_dtype *kt = nb_gguf_dtype_of(k->type), *vt = nb_gguf_dtype_of(v->type);
    const size_t nope = k->dim[0], lora = p->dim[1], d = p->dim[0] / p->n_head, d_v = d - nope;
    const size_t k_bytes = nope / kt->block * kt->block_bytes,
                 v_bytes = lora / vt->block * vt->block_bytes;
    const size_t n = nope > lora ? nope : lora;
    float *row = malloc((n ? n : 1) * sizeof *row);
    if (!row) return nb_fail(err, NB_ERR_NOMEM, "out of memory for %s", p->name);
    for (size_t h = 0; h < p->n_head; h++) {
        for (size_t c = 0; c < lora; c++) {
            kt->values(k->data + (h * lora + c) * k_bytes, nope / kt->block, row);
            for (size_t i = 0; i < nope; i++) put(p->dtype, to, (h * d + i) * lora + c, row[i]);
        }
        for (size_t j = 0; j < d_v; j++) {
            vt->values(v->data + (h * d_v + j) * v_bytes, lora / vt->block, row);
            for (size_t c = 0; c < lora; c++)
                put(p->dtype, to, (h * d + nope + j) * lora + c, row[c]);
        }
    }
    free(row);
    return NB_OK;
}

nb_status nb_gguf_make(const nb_gguf_part *p, void *to, nb_error *err)
{
    if (p->n_bytes == 0) return NB_OK;
    if (p->form == NB_GGUF_KV_B) return join_kv_b(p, to, err);
    rope_rows(p, to);
    return NB_OK;
}
