/* sizes.c - see sizes.h.
 *
 * Layers of a model have few shapes: dense, with experts or with both, and one for each kind of attention.  So the weights
 * come from models of one layer, walked as the engine walks them, times the number of such layers: V3's
 * 58 x 256 experts are not named one by one, and the sums are the same to the byte. */
#include "capacity/sizes.h"

#include <stdlib.h>
#include <string.h>

#include "model/attention.h"
#include "model/kv_size.h"
#include "model/quantize.h"
#include "num/traits.h"

/* No checkpoint is an exabyte; below that no sum overflows. */
#define MOST_BYTES ((uint64_t)1 << 60)

/* ---- weights ---- */

/* How matrices are kept: as they are, as --weight-dtype int8 makes them, or quantised. */
typedef struct form {
    bool int8;
    const nb_quant *quant;    /* NULL: none */
    const unsigned char *of;  /* [NB_QU_COUNT]: 1 + the form of each kind of module, or 0 */
    size_t layer;             /* whose experts may differ */
} form;
static const form as_is = { false, NULL, NULL, 0 };

/* k: 1 + a form of f->quant, or 0. */
static uint64_t matrix_in(const nb_weight *w, const form *f, size_t k)
{
    if (w->n_row == 0) return 0;
    if (k) return nb_quant_bytes(&f->quant->form[k - 1], w->n_row, w->n_col);
    return f->int8 ? nb_int8_matrix_bytes(w) : nb_weight_bytes(w);
}

static uint64_t matrix(const nb_weight *w, const form *f, nb_quant_unit unit)
{
    return matrix_in(w, f, f->quant ? f->of[unit] : 0);
}

/* kv_b; of a GGUF in halves, what these take. */
static uint64_t kv_b_bytes(const nb_model *m, const form *f)
{
    const nb_weight *w = &m->layer[0].kv_b;
    const nb_attn_config *a = nb_layer_attn(&m->c, 0);
    const unsigned char k = f->quant ? f->of[NB_QU_K_B] : 0, v = f->quant ? f->of[NB_QU_V_B] : 0;
    if (!k || !v || w->n_row == 0) return matrix(w, f, NB_QU_KV_B);
    return nb_quant_bytes(&f->quant->form[k - 1], a->n_head * a->kv_lora, a->d_nope) +
           nb_quant_bytes(&f->quant->form[v - 1], a->n_head * a->d_v, a->kv_lora);
}

static uint64_t mlp(const nb_mlp *p, const form *f, nb_quant_unit unit)
{
    return matrix(&p->gate, f, unit) + matrix(&p->up, f, (nb_quant_unit)(unit + 1)) +
           matrix(&p->down, f, (nb_quant_unit)(unit + 2));
}

/* All routed experts of a layer. */
static uint64_t experts(const nb_model *m, const form *f)
{
    const nb_mlp *p = &m->layer[0].expert[0];
    const nb_weight *const of[3] = { &p->gate, &p->up, &p->down };
    uint64_t sum = m->c.n_expert * mlp(p, f, NB_QU_EXPERT);
    for (size_t i = 0; f->quant && i < f->quant->n_odd; i++) {
        const nb_quant_odd *o = &f->quant->odd[i];
        if (o->layer != f->layer) continue;
        const nb_weight *w = of[o->unit - NB_QU_EXPERT];
        sum += o->n * matrix_in(w, f, o->form); /* modulo 2^64, in any order */
        sum -= o->n * matrix(w, f, (nb_quant_unit)o->unit);
    }
    return sum;
}

/* What is neither in a layer nor embedding or head: the final norm, and the weights that make one of several residual
 * streams. */
static uint64_t last_bytes(const nb_model *m)
{
    const size_t s = m->c.n_stream;
    return m->c.hidden * nb_model_dtype_bytes(&m->c) +
           (s ? (s * s * m->c.hidden + s + 1) * sizeof(float) : 0);
}

/* One layer: m is a model of this layer alone. */
static void size_layer(const nb_model *m, const form *f, nb_weight_size *out)
{
    const nb_layer *l = &m->layer[0];
    const struct {
        const nb_weight *w;
        nb_quant_unit unit;
    } attn[] = { { &l->q, NB_QU_Q },       { &l->q_a, NB_QU_Q_A },   { &l->q_b, NB_QU_Q_B },
                 { &l->kv_a, NB_QU_KV_A }, { &l->o, NB_QU_O },
                 { &l->k, NB_QU_K },       { &l->v, NB_QU_V },       { &l->f_a, NB_QU_Q },
                 { &l->f_b, NB_QU_Q },     { &l->g_a, NB_QU_Q },     { &l->g_b, NB_QU_Q },
                 { &l->beta, NB_QU_Q },    { &l->o_a, NB_QU_O_A },   { &l->idx_q, NB_QU_INDEX_Q } };
    const nb_mlp *const shared = &l->mlp;
    const nb_quant_unit unit = m->c.dense[0] ? NB_QU_DENSE : NB_QU_SHARED;
    const uint64_t router = matrix(&l->router, &as_is, NB_QU_ROUTER),
                   router_own = matrix(&l->router, &(form){ false, f->quant, f->of, 0 }, NB_QU_ROUTER);
    const uint64_t embed = nb_weight_bytes(&m->embed), head = nb_weight_bytes(&m->head);
    uint64_t plain = router + mlp(shared, &as_is, unit) + kv_b_bytes(m, &as_is);
    uint64_t sum = router_own + mlp(shared, f, unit) + kv_b_bytes(m, f);
    for (size_t i = 0; i < NB_COUNT(attn); i++) {
        plain += matrix(attn[i].w, &as_is, attn[i].unit);
        sum += matrix(attn[i].w, f, attn[i].unit);
    }
    const nb_weight *const index[] = { &l->index_q, &l->index_k }; /* no form has a name for these */
    for (size_t i = 0; i < NB_COUNT(index); i++) {
        plain += matrix(index[i], &as_is, NB_QU_O);
        sum += matrix(index[i], &(form){ .int8 = f->int8 }, NB_QU_O);
    }
    if (l->expert) {
        out->expert = experts(m, f);
        out->one_expert = out->expert / m->c.n_expert;
        plain += m->c.n_expert * mlp(&l->expert[0], &as_is, NB_QU_EXPERT);
    }
    /* What is left of the walk's sum are vectors. */
    const uint64_t vectors = m->weight_bytes - plain - embed - (m->head_is_embed ? 0 : head);
    const uint64_t own = vectors - last_bytes(m);
    out->bytes = sum + own + out->expert;
    const size_t most = m->c.top_k < m->c.n_expert ? m->c.top_k : m->c.n_expert;
    out->active = sum + own + (l->expert ? out->expert / m->c.n_expert * most : 0);
    out->kv_b = kv_b_bytes(m, f);
    out->halves = f->quant && f->of[NB_QU_K_B];
    out->replicated = matrix(&l->q_a, f, NB_QU_Q_A) + matrix(&l->kv_a, f, NB_QU_KV_A) +
                      matrix(&l->k, f, NB_QU_K) + matrix(&l->v, f, NB_QU_V) + router_own + own;
}

/* Embedding, head and final norm: m is any model. */
static void size_rest(const nb_model *m, const form *f, nb_weight_size *out)
{
    const form plain = { false, f->quant, f->of, 0 };
    const uint64_t embed = matrix(&m->embed, &plain, NB_QU_EMBED);
    const uint64_t norm = last_bytes(m);
    const bool own = f->int8 || (f->quant && f->of[NB_QU_HEAD]);
    const bool apart = !m->head_is_embed || own; /* a quantised head is another matrix */
    const uint64_t head = apart ? matrix(&m->head, f, NB_QU_HEAD) : embed;
    *out = (nb_weight_size){ .bytes = head + norm + (apart ? embed : 0),
                             .active = head + norm,
                             .replicated = norm,
                             .embed_copy = embed,
                             .embed = apart ? embed : 0 };
}

/* A shape of layers. */
typedef struct shape {
    size_t attn;
    bool dense, shortcut, hashed;
} shape;

static bool has_shape(const nb_model_config *c, size_t layer, const shape *s)
{
    return c->attn_of[layer] == s->attn && c->dense[layer] == s->dense &&
           c->shortcut[layer] == s->shortcut && nb_layer_is_hashed(c, layer) == s->hashed;
}

/* Adds the layers of c that have this shape; m is a model of one. */
static nb_status add_layers(const nb_model_config *c, const nb_model *m, const shape *s, form *f,
                            nb_weight_size *sum, nb_error *err)
{
    const bool each = f->quant == &c->quant;
    nb_weight_size one = { 0 };
    for (size_t i = 0; i < c->n_layer; i++) {
        if (!has_shape(c, i, s)) continue;
        if (each) f->of = c->quant_of[i].form;
        f->layer = i;
        if (sum->bytes == 0) size_rest(m, f, sum);
        size_layer(m, f, &one);
        if (one.bytes > MOST_BYTES / c->n_layer || sum->bytes > MOST_BYTES)
            return nb_fail(err, NB_ERR_LIMIT,
                           "config.json: %zu layers of %.3g bytes are too large: expected less than "
                           "%.3g bytes of weights",
                           c->n_layer, (double)one.bytes, (double)MOST_BYTES);
        sum->bytes += one.bytes;
        sum->active += one.active;
        sum->expert += one.expert;
        sum->kv_b += one.kv_b;
        sum->halves |= one.halves;
        sum->replicated += one.replicated;
    }
    return NB_OK;
}

static bool any_layer(const nb_model_config *c, const shape *s)
{
    for (size_t i = 0; i < c->n_layer; i++)
        if (has_shape(c, i, s)) return true;
    return false;
}

/* one: a copy of the configuration, its number of layers and type changed here. */
static nb_status size_weights(const nb_model_config *c, nb_sizes_wtype type, nb_model_config *one,
                              size_t n_moe, nb_weight_size *out, nb_error *err)
{
    nb_weight_size sum = { 0 };
    const nb_quant int4 = nb_quant_int4(n_moe > 0);
    form f = { .int8 = type == NB_SIZES_INT8 };
    if (type == NB_SIZES_INT4) f = (form){ .quant = &int4, .of = int4.of };
    if (type == NB_SIZES_CHECKPOINT && c->quant.n_form) f.quant = &c->quant;
    *one = *c;
    if (type == NB_SIZES_BF16 || type == NB_SIZES_FP8 || type == NB_SIZES_INT4) {
        one->dtype = "bfloat16";
        one->fp8 = type == NB_SIZES_FP8;
    }
    one->n_layer = 1;
    one->quant = (nb_quant){ 0 }; /* f has it */
    for (size_t k = 0; k < 8 * c->n_attn; k++) {
        const shape s = { k / 8, k % 2, k / 2 % 2, k / 4 % 2 };
        nb_model m;
        if (!any_layer(c, &s)) continue;
        one->dense[0] = s.dense;
        one->shortcut[0] = s.shortcut;
        one->n_hash = s.hashed;
        one->attn_of[0] = (unsigned char)s.attn;
        NB_TRY(nb_model_shapes(&m, one, err));
        const nb_status st = add_layers(c, &m, &s, &f, &sum, err);
        nb_model_deinit(&m);
        NB_TRY(st);
    }
    if (n_moe) sum.one_expert = sum.expert / (n_moe * c->n_expert);
    *out = sum;
    return NB_OK;
}

/* Bytes of W_UK and W_UV on a GPU (model/gpu/gpu_weights.h): of FP8 in blocks that lie within a head as they are, of
 * other codes two BF16 matrices.  Halves count as kv_b already; there the BF16 of the expanded form comes beside them. */
static uint64_t gpu_absorbed(const nb_model_config *c, const nb_sizes *s, nb_sizes_wtype type)
{
    const uint64_t own = s->weight[type].kv_b, bf16 = s->weight[NB_SIZES_BF16].kv_b;
    bool blocks = own == s->weight[NB_SIZES_FP8].kv_b;
    for (size_t i = 0; i < c->n_attn; i++)
        blocks &= c->attn[i].d_nope % NB_FP8_BLOCK == 0 && c->attn[i].d_v % NB_FP8_BLOCK == 0 &&
                  c->attn[i].kv_lora % NB_FP8_BLOCK == 0;
    if (s->weight[type].halves) return bf16;
    return own < bf16 && !blocks ? 2 * bf16 : own;
}

static void name_weights(const nb_model_config *c, nb_sizes *s)
{
    const nb_weight_size *w = s->weight;
    s->weight_bytes = w[NB_SIZES_CHECKPOINT].bytes;
    s->weight_bytes_bf16 = w[NB_SIZES_BF16].bytes;
    s->weight_bytes_fp8 = w[NB_SIZES_FP8].bytes;
    s->weight_bytes_int8 = w[NB_SIZES_INT8].bytes;
    s->weight_bytes_int4 = w[NB_SIZES_INT4].bytes;
    s->checkpoint_unknown = c->quant.method[0] && !c->quant.n_form;
    s->active_bytes = w[NB_SIZES_CHECKPOINT].active;
    s->expert_bytes = w[NB_SIZES_CHECKPOINT].expert;
    s->kv_b_bytes = w[NB_SIZES_CHECKPOINT].kv_b;
    s->replicated_bytes = w[NB_SIZES_CHECKPOINT].replicated;
    s->absorbed_copy_bytes = w[NB_SIZES_BF16].kv_b;
    s->gpu_absorbed_bytes = gpu_absorbed(c, s, NB_SIZES_CHECKPOINT);
    s->gpu_absorbed_fp8_bytes = gpu_absorbed(c, s, NB_SIZES_FP8);
}

static nb_status add_weights(const nb_model_config *c, nb_sizes *s, nb_error *err)
{
    nb_model_config *one = malloc(sizeof *one);
    nb_status st = one ? NB_OK : nb_fail(err, NB_ERR_NOMEM, "out of memory");
    for (int t = 0; t < NB_SIZES_N_WTYPE && st == NB_OK; t++)
        st = size_weights(c, (nb_sizes_wtype)t, one, s->n_moe_layer, &s->weight[t], err);
    free(one);
    if (st == NB_OK) name_weights(c, s);
    return st;
}

/* ---- the cache ---- */

/* Bytes of a page without the padding between its planes. */
static size_t read_bytes(const nb_record *r)
{
    const nb_record_seg *g = r->seg;
    size_t n = 0;
    if (nb_kv_traits[r->type]->in_rows) return g->code_stride * r->n_row; /* whole rows */
    for (size_t i = 0; i < r->n_seg; i++) {
        n += r->n_row * (g[i].code_stride + g[i].outer_stride + g[i].side_stride);
        n += nb_seg_scale_rows(g[i].fmt, r->n_row) * g[i].scale_stride;
    }
    return n;
}

unsigned nb_sizes_code_bits(nb_kv_type t)
{
    return nb_kv_bits(t);
}

static bool rope_varies(const nb_model_config *c, nb_kv_type t)
{
    return nb_attn_any_rope_key(c) && !nb_kv_traits[t]->own_rope;
}

/* The record of each layer; false: the type cannot hold some layer. */
static bool layer_records(const nb_model_config *c, nb_kv_type type, nb_rope_fmt rope,
                          nb_record *all)
{
    for (size_t i = 0; i < c->n_layer; i++) {
        const nb_attn_config *a = nb_layer_attn(c, i);
        const bool key = nb_attention_of(a->kind)->has_rope_key;
        nb_record_opts o;
        nb_model_record_opts(a, type, nb_kv_mode_default(type),
                             key ? rope : nb_rope_fmt_default(false), &o);
        if (nb_record_init(&all[i], &o, NULL) != NB_OK) return false;
    }
    return true;
}

static nb_status fill_record(const nb_model_config *c, const nb_record *all, nb_rope_fmt rope,
                             size_t *off, nb_record_size *out, nb_error *err)
{
    const size_t n = c->n_layer;
    size_t read = 0, n_cached = 0, row;
    NB_TRY(nb_kv_layer_offsets(all, n, off, err));
    for (size_t i = 0; i < n; i++) {
        read += read_bytes(&all[i]);
        n_cached += all[i].page_bytes > 0;
    }
    *out =
        (nb_record_size){ .type = all->type,
                          .rope = rope,
                          .rope_varies = rope_varies(c, all->type),
                          .name = nb_kv_type_name(all->type),
                          .page_bytes = all[nb_attn_first_cached(c)].page_bytes,
                          .block_bytes = off[n],
                          .bytes_tok_layer =
                              n_cached ? (double)off[n] / NB_PAGE_TOK / (double)n_cached : 0,
                          .bytes_tok = (double)off[n] / NB_PAGE_TOK,
                          .attn_bytes_tok = (double)read / NB_PAGE_TOK };
    (void)nb_kv_plane_offsets(all, n, off, &row);
    if (nb_attn_all(c, NB_ATTN_MLA)) out->plane_bytes = off[n]; /* Thrift mode is MLA's */
    return NB_OK;
}

static nb_status add_records(const nb_model_config *c, nb_sizes *s, nb_record *all, size_t *off,
                             nb_error *err)
{
    const nb_rope_fmt first = nb_rope_fmt_default(nb_attn_any_rope_key(c));
    s->state_bytes = nb_attn_state_offsets(c, NULL) * sizeof(float);
    const nb_rope_fmt ropes[] = { first, NB_ROPE_FP8, NB_ROPE_INT8, NB_ROPE_BF16 };
    for (int t = 0; t < NB_KV_TYPE_COUNT; t++)
        for (size_t k = 0; k < NB_COUNT(ropes); k++) {
            if (k > 0 && (ropes[k] == first || !rope_varies(c, (nb_kv_type)t))) continue;
            /* a shape that this record cannot hold has no row */
            if (!layer_records(c, (nb_kv_type)t, ropes[k], all)) continue;
            NB_ASSERT(s->n_record < NB_SIZES_MAX_RECORD);
            NB_TRY(fill_record(c, all, ropes[k], off, &s->record[s->n_record++], err));
            s->tail_bytes_seq = nb_kv_tail_offsets(all, c->n_layer, NULL) + s->state_bytes;
            s->sink_bytes_block = nb_kv_sink_offsets(all, c->n_layer, 1, NULL);
        }
    if (s->n_record) return NB_OK;
    return nb_fail(err, NB_ERR_UNSUPPORTED, "config.json: no record can hold this model's cache");
}

static nb_status size_records(const nb_model_config *c, nb_sizes *s, nb_error *err)
{
    nb_record *all = calloc(c->n_layer, sizeof *all);
    size_t *off = calloc(c->n_layer + 1, sizeof *off);
    nb_status st = all && off ? NB_OK : nb_fail(err, NB_ERR_NOMEM, "out of memory");
    if (st == NB_OK) st = add_records(c, s, all, off, err);
    free(all);
    free(off);
    return st;
}

/* ---- other attention ---- */

static void add_equivalent(nb_sizes *s, const char *name,
                           size_t n_kv_head, double k_dim, double v_dim)
{
    const double layer = 2 * (double)n_kv_head * (k_dim + v_dim);
    s->equivalent[s->n_equivalent++] = (nb_attn_equivalent){
        name, n_kv_head, k_dim, v_dim, layer, layer * (double)s->n_cached_layer,
    };
}

/* Values that a token adds to the cache in a layer that caches, on average. */
static double compressed_values(const nb_model_config *c)
{
    double n = 0, n_layer = 0;
    for (size_t i = 0; i < c->n_layer; i++) {
        const size_t ratio = nb_layer_attn(c, i)->ratio;
        if (ratio) n += (double)nb_layer_dims(c, i).n_values / (double)ratio;
        n_layer += ratio != 0;
    }
    return n_layer > 0 ? n / n_layer : 0;
}

/* Equivalents are of the attention of the first layer that caches something, in all that do. */
static void add_attention(const nb_model_config *c, nb_sizes *s)
{
    const size_t at = nb_attn_first_cached(c);
    const nb_attn_config *a = nb_layer_attn(c, at);
    const nb_attn_cost first = nb_layer_attention(c, at)->cost(a);
    const double k = (double)first.k_dim, v = (double)first.v_dim;
    const size_t heads = a->n_head;
    if (a->kind == NB_ATTN_CSA)
        add_equivalent(s, "csa", 1, compressed_values(c), 0);
    else if (s->is_mla)
        add_equivalent(s, "mla", 1, (double)(a->kv_lora + a->d_rope), 0);
    else
        add_equivalent(s, "gqa", first.n_kv_head, k, v);
    add_equivalent(s, "mha", heads, k, v);
    add_equivalent(s, "gqa8", heads < 8 ? heads : 8, k, v);
    add_equivalent(s, "mqa", 1, k, v);
    for (size_t i = 0; i < c->n_layer; i++) {
        const nb_attn_cost n = nb_layer_attention(c, i)->cost(nb_layer_attn(c, i));
        s->attn_flop_prefill += n.pair_flop_prompt;
        s->attn_flop_decode += n.pair_flop_decode;
        s->expand_flop_tok += n.expand_flop;
        s->attn_flop_choose += n.pair_flop_choose;
        s->attn_most_pairs = (double)n.most_pairs;
        if (n.pair_flop_choose > 0) s->choose_bytes_tok += (double)a->index_dim + 1;
    }
}

/* ---- together ---- */

static nb_status size_all(const nb_model_config *c, nb_sizes *s, nb_error *err)
{
    nb_model_size n;
    s->is_mla = true;
    for (size_t i = 0; i < c->n_layer; i++) {
        const bool cached = nb_layer_dims(c, i).n_values != 0;
        s->n_cached_layer += cached;
        s->is_mla &= !cached || nb_attn_is_latent(nb_layer_attn(c, i));
    }
    s->attention = nb_layer_attention(c, nb_attn_first_cached(c))->name;
    s->has_rope_key = nb_attn_any_rope_key(c);
    s->own = nb_kv_type_own(c);
    s->n_layer = c->n_layer;
    for (size_t i = 0; i < c->n_layer; i++) s->n_moe_layer += nb_layer_has_experts(c, i);
    if (s->n_moe_layer) {
        s->n_expert = c->n_expert;
        s->top_k = c->top_k < c->n_expert ? c->top_k : c->n_expert; /* zero experts may be chosen, too */
    }
    NB_TRY(add_weights(c, s, err)); /* first: it refuses what is too large to count */
    nb_model_config_size(c, &n);
    s->n_param = n.n_param;
    s->n_param_active = n.n_param_active;
    NB_TRY(size_records(c, s, err));
    add_attention(c, s);
    return NB_OK;
}

nb_status nb_sizes_of(const nb_model_config *c, nb_sizes *out, nb_error *err)
{
    nb_sizes *s = calloc(1, sizeof *s);
    if (!s) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    const nb_status st = size_all(c, s, err);
    if (st == NB_OK) *out = *s;
    free(s);
    return st;
}

const nb_record_size *nb_sizes_find_rope(const nb_sizes *s, const char *name, nb_rope_fmt rope)
{
    nb_kv_type t;
    if (nb_kv_type_parse(name, &t) != NB_OK) return NULL;
    for (size_t i = 0; i < s->n_record; i++)
        if (s->record[i].type == t && (s->record[i].rope == rope || !s->record[i].rope_varies))
            return &s->record[i];
    return NULL;
}

const nb_record_size *nb_sizes_find(const nb_sizes *s, const char *name)
{
    return nb_sizes_find_rope(s, name, nb_rope_fmt_default(s->has_rope_key));
}
