/* gpu_create.c - plans and allocates the forward pass on a GPU: everything once, from the model and
 * the largest step. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/gpu_internal.h"
#include "model/kv_size.h"
#include "num/residual.h"

enum {
    ALIGN = 256,
    PAD_ROWS = 32,           /* a graph's rows are rounded up */
    PART_BYTES = 512 << 20,  /* of attention states in one pass, unless one query needs more */
    SCORE_BYTES = 256 << 20, /* of scores at once, in Thrift mode, unless one query needs more */
    WIDE_HEADS = 32          /* from here on half of the context is expanded at once */
};

static size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t div_up(size_t a, size_t b)
{
    return (a + b - 1) / b;
}

static size_t round8(size_t n)
{
    return (n + 7) / 8 * 8;
}

/* ---- what is refused ---- */

static nb_status no_latent(const nb_gpu *gpu, const nb_model_config *c, nb_error *err)
{
    const nb_cuda_api *api = nb_gpu_api(gpu);
    nb_record r;
    nb_cuda_info info;
    NB_TRY(nb_kv_record(c, NB_KV_BF16, NB_ROPE_BF16, &r, err));
    api->get_info(nb_gpu_handle(gpu), &info);
    for (const nb_cuda_mla_row *row = api->mla; row->name; row++)
        if (row->cc <= info.cc && row->can(&r, c->n_head)) return NB_OK;
    return nb_fail(err, NB_ERR_UNSUPPORTED,
                   "the GPU has no attention over latents of %zu + %zu values with %zu heads",
                   c->kv_lora, c->d_rope, c->n_head);
}

nb_status nb_gpu_can_compute(const nb_gpu *gpu, const nb_model_config *c, bool absorbed_only,
                             nb_error *err)
{
    if (c->attn == NB_ATTN_MLA && !absorbed_only && (c->d_v > 256 || c->d_nope + c->d_rope > 320))
        return nb_fail(
            err, NB_ERR_UNSUPPORTED,
            "heads of %zu + %zu and %zu values: a GPU has prompts' attention for at most 320 "
            "and 256 (--mla absorbed does without)",
            c->d_nope, c->d_rope, c->d_v);
    if (c->attn != NB_ATTN_MLA && c->head_dim > 256)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "heads of %zu values: a GPU has attention for at most 256", c->head_dim);
    return c->attn == NB_ATTN_MLA ? no_latent(gpu, c, err) : NB_OK;
}

static nb_status refuse(const nb_forward_options *o, nb_error *err)
{
    if (o->n_sink)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "--kv-sinks is not there on a GPU (--device cpu has it)");
    if (o->thrift.kind != NB_THRIFT_OFF && o->thrift.kind != NB_THRIFT_TOKEN)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "--kv-thrift %s is not there on a GPU (token is; --device cpu has it)",
                       nb_thrift_name(o->thrift.kind));
    NB_TRY(nb_gpu_can_compute(o->gpu, &o->model->c, o->absorbed_only, err));
    NB_ASSERT(o->max_seq > 0 && o->max_pos > 0 && o->max_tok > 0);
    return NB_OK;
}

/* ---- kernels of attention ---- */

bool nb_gpu_thrift_layer(const nb_gpu_forward *f, size_t layer)
{
    return f->thrift && nb_residual_possible(&f->o.record[layer]);
}

/* Whether the row fits the layer; only one refines tokens. */
static bool fits(const nb_gpu_forward *f, const nb_cuda_mla_row *r, size_t layer)
{
    if (r->cc > f->info.cc || !r->can(&f->o.record[layer], f->o.model->c.n_head)) return false;
    return !nb_gpu_thrift_layer(f, layer) || !strcmp(r->name, "mma");
}

static nb_status choose_attention(nb_gpu_forward *f, nb_error *err)
{
    const nb_model_config *c = &f->o.model->c;
    f->attn = nb_arena_array(&f->arena, c->n_layer, sizeof *f->attn);
    f->set_of = nb_arena_array(&f->arena, c->n_layer, 1);
    if (!f->attn || !f->set_of) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    if (!f->mla) {
        f->units[0] = NB_CUDA_GQA_UNITS;
        f->n_set = 1;
        return NB_OK;
    }
    for (size_t i = 0; i < c->n_layer; i++) {
        const nb_cuda_mla_row *r = f->api->mla;
        while (r->name && !fits(f, r, i)) r++;
        if (!r->name)
            return nb_fail(err, NB_ERR_UNSUPPORTED,
                           "layer %zu: the GPU has no attention over %s pages of %zu + %zu values",
                           i, nb_kv_type_name(f->o.record[i].type), c->kv_lora, c->d_rope);
        f->attn[i] = r;
        size_t s = 0;
        while (s < f->n_set && memcmp(&f->units[s], &r->units, sizeof r->units) != 0) s++;
        if (s == NB_GPU_SETS)
            return nb_fail(
                err, NB_ERR_UNSUPPORTED,
                "records of the layers need attention kernels with more than %d sizes of units",
                NB_GPU_SETS);
        f->units[s] = r->units;
        f->set_of[i] = (unsigned char)s;
        if (s == f->n_set) f->n_set++;
    }
    return NB_OK;
}

/* ---- gate and up in one ---- */

/* The halves of a joined matrix; false: they are two matrices, or have a bias. */
static bool halves(const nb_gpu_group *g, nb_weight *gate, nb_weight *up)
{
    const nb_weight *w = &g->m[0].w;
    if (g->n != 1 || !w->data || g->m[0].bias || w->type == NB_W_INT8) return false;
    *gate = *up = *w;
    gate->n_row = up->n_row = w->n_row / 2;
    up->data = (const char *)w->data + gate->n_row * w->n_col * nb_wtype_bytes(w->type);
    if (w->type == NB_W_FP8B)
        up->scale = w->scale + div_up(gate->n_row, NB_FP8_BLOCK) * div_up(w->n_col, NB_FP8_BLOCK);
    return true;
}

static nb_status choose_glu(nb_gpu_forward *f, nb_error *err)
{
    const size_t n_layer = f->o.model->c.n_layer;
    f->glu = nb_arena_array(&f->arena, n_layer, sizeof *f->glu);
    if (!f->glu) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < n_layer; i++) {
        nb_gpu_glu *x = &f->glu[i];
        if (!halves(&f->w.layer[i].gate_up, &x->gate, &x->up)) continue;
        const nb_cuda_experts_row *r = f->api->experts;
        while (r->name && (r->kind != NB_CUDA_DIRECT || r->cc > f->info.cc ||
                           !r->can(x->gate.type, x->gate.n_row, x->gate.n_col)))
            r++;
        /* the rows' floats are there where the products read them */
        if (r->name && (f->w.floats || strcmp(r->name, "simt") != 0)) x->row = r;
    }
    return NB_OK;
}

/* ---- sections ---- */

static void *cut(size_t *at, char *base, size_t n_bytes)
{
    char *p = base + *at;
    *at += (n_bytes + ALIGN - 1) / ALIGN * ALIGN;
    return p;
}

/* The same walk gives the sizes (base NULL) and both sets of pointers. */
static void lay_out(nb_gpu_stage *s, size_t n_set, char *base, nb_gpu_section *x)
{
    size_t at = 0;
    x->n_item = cut(&at, base, NB_GPU_SETS * sizeof *x->n_item);
    x->tok = cut(&at, base, s->max_row * sizeof *x->tok);
    x->pos = cut(&at, base, s->max_row * sizeof *x->pos);
    x->row_chunk = cut(&at, base, s->max_row * sizeof *x->row_chunk);
    x->rope_long = cut(&at, base, s->max_row);
    x->thrift = cut(&at, base, s->max_row);
    for (size_t i = 0; i < n_set; i++)
        x->part_first[i] = cut(&at, base, (s->max_row + 1) * sizeof **x->part_first);
    x->chunk = cut(&at, base, s->max_chunk * sizeof *x->chunk);
    s->fixed_bytes = at;
    for (size_t i = 0; i < n_set; i++) {
        s->item_off[i] = at;
        x->item[i] = cut(&at, base, s->max_item * sizeof **x->item);
    }
    s->block_off = at;
    x->block = cut(&at, base, s->max_block * sizeof *x->block);
    s->n_bytes = at;
}

static nb_status create_stage(nb_gpu_forward *f, nb_gpu_stage *s, nb_error *err)
{
    static char origin; /* pointers of the first walk are not used */
    lay_out(s, f->n_set, &origin, &s->host);
    s->host_mem = f->api->host_alloc(f->g, s->n_bytes);
    s->dev_mem = f->api->alloc(f->g, s->n_bytes);
    if (!s->host_mem || !s->dev_mem)
        return nb_fail(err, NB_ERR_NOMEM, "no memory for the tables of a step (%zu KiB)",
                       s->n_bytes >> 10);
    memset(s->host_mem, 0, s->n_bytes);
    lay_out(s, f->n_set, s->host_mem, &s->host);
    lay_out(s, f->n_set, s->dev_mem, &s->dev);
    f->work_bytes += s->n_bytes;
    f->pinned_bytes += s->n_bytes;
    return NB_OK;
}

static nb_status create_stages(nb_gpu_forward *f, nb_error *err)
{
    const size_t blocks = f->o.max_seq * f->max_block;
    nb_gpu_stage *d = &f->stage[NB_CUDA_DIRECT], *p = &f->stage[NB_CUDA_PROMPT];
    *d = (nb_gpu_stage){ .max_row = f->D + PAD_ROWS,
                         .max_chunk = f->o.max_seq + PAD_ROWS,
                         .max_item = f->max_part,
                         .max_block = blocks };
    *p = (nb_gpu_stage){
        .max_row = f->T, .max_chunk = f->o.max_seq, .max_item = 1, .max_block = blocks
    };
    if (f->direct) NB_TRY(create_stage(f, d, err));
    return f->prompt ? create_stage(f, p, err) : NB_OK;
}

/* ---- buffers ---- */

/* A buffer: where its pointer goes, its bytes. */
typedef struct slot {
    void *at; /* of a pointer */
    size_t n_bytes;
} slot;

enum { MAX_SLOTS = 80 };

typedef struct slots {
    slot s[MAX_SLOTS];
    size_t n;
} slots;

static void want(slots *l, void *at, size_t n, size_t size)
{
    NB_ASSERT(l->n < MAX_SLOTS);
    l->s[l->n++] = (slot){ at, (n * size + ALIGN - 1) / ALIGN * ALIGN };
}

/* n rows that enter products: parts, and floats where some product reads these. */
static void want_rows(slots *l, const nb_gpu_forward *f, nb_cuda_rows *r, size_t n, size_t width)
{
    r->stride = round8(width);
    if (f->w.floats) want(l, &r->f, n * r->stride, sizeof(float));
    want(l, &r->hi, n * r->stride, 2);
    want(l, &r->lo, n * r->stride, 2);
}

static bool has_moe(const nb_model_config *c)
{
    for (size_t i = 0; i < c->n_layer; i++)
        if (!c->dense[i]) return true;
    return false;
}

static void want_common(slots *l, nb_gpu_forward *f)
{
    const nb_model_config *c = &f->o.model->c;
    const bool moe = has_moe(c);
    const size_t R = max_size(f->prompt ? f->T : 0, f->direct ? f->D + PAD_ROWS : 0);
    const size_t inter = max_size(c->inter, moe ? c->n_shared * c->moe_inter : 0);
    const size_t rows = moe ? R * c->top_k : 0;
    want(l, &f->h, f->h_rows * c->hidden, sizeof(float));
    want(l, &f->branch, R * c->hidden, sizeof(float));
    want(l, &f->in, R * f->in_width, sizeof(float));
    want(l, &f->cos_sin, R * c->rope.dim, sizeof(float));
    want(l, &f->inv_freq, c->rope.dim / 2, sizeof(float));
    want(l, &f->inv_freq_long, c->rope.dim / 2, sizeof(float));
    want(l, &f->gate_up, R * 2 * inter, sizeof(float));
    want_rows(l, f, &f->xn, max_size(R, f->logit_rows), c->hidden);
    want_rows(l, f, &f->attn_y, R, c->n_head * f->d_o);
    want_rows(l, f, &f->act, R, inter);
    if (f->mla && c->q_lora) {
        want_rows(l, f, &f->qa, R, c->q_lora);
        want(l, &f->q, R * c->n_head * f->d_q, sizeof(float));
    }
    if (moe) {
        want_rows(l, f, &f->e_act, rows, c->moe_inter);
        want(l, &f->e_y, rows * c->hidden, sizeof(float));
        want(l, &f->r_logits, R * c->n_expert, sizeof(float));
        want(l, &f->r_weight, rows, sizeof(float));
        want(l, &f->r_id, rows, sizeof(uint32_t));
        want(l, &f->r_src, rows, sizeof(uint32_t));
        want(l, &f->r_place, rows, sizeof(uint32_t));
        want(l, &f->r_first, c->n_expert + 1, sizeof(uint32_t));
    }
    want(l, &f->own, f->max_own * NB_PAGE_TOK * f->n_values, sizeof(float));
    want(l, &f->bad, f->o.max_tok + f->o.max_seq + PAD_ROWS, sizeof(uint32_t));
    want(l, &f->saturated, 1, sizeof(uint64_t));
    want(l, &f->logits, f->logit_rows * c->n_vocab, sizeof(float));
    want(l, &f->l_row, f->logit_rows, sizeof(uint32_t));
    want(l, &f->l_id, f->logit_rows, sizeof(uint32_t));
    want(l, &f->l_sample, f->logit_rows, sizeof *f->l_sample);
    want(l, &f->l_scratch, f->logit_rows, NB_CUDA_SAMPLE_SCRATCH(c->n_vocab));
}

static void want_thrift(slots *l, nb_gpu_forward *f)
{
    const size_t R = f->D + PAD_ROWS, nh = f->o.model->c.n_head;
    if (!f->thrift) return;
    f->t_stride = f->max_block * NB_PAGE_TOK;
    f->t_rows = max_size(1, min_size(R, SCORE_BYTES / (nh * f->t_stride * sizeof(float))));
    f->pick.first_stride = f->max_block + 1;
    f->pick.tok_stride = max_size(1, nb_thrift_token_cap(f->o.thrift.fraction, f->t_stride));
    want(l, &f->pick.n, R, sizeof(uint32_t));
    want(l, &f->pick.first, R * f->pick.first_stride, sizeof(uint32_t));
    want(l, &f->pick.tok, R * f->pick.tok_stride, sizeof(uint32_t));
    want(l, &f->t_score, f->t_rows * nh * f->t_stride, sizeof(float));
    want(l, &f->t_best, f->t_rows * f->t_stride, sizeof(float));
    want(l, &f->t_lse, f->t_rows * nh, sizeof(float));
    want(l, &f->t_count, NB_GPU_COUNTS, sizeof(uint64_t));
}

static void want_direct(slots *l, nb_gpu_forward *f)
{
    const nb_model_config *c = &f->o.model->c;
    const size_t R = f->D + PAD_ROWS, nh = c->n_head;
    size_t scratch = 0;
    if (!f->direct) return;
    want(l, &f->part_o, f->max_part * nh * f->d_state, sizeof(float));
    want(l, &f->part_m, f->max_part * nh, sizeof(float));
    want(l, &f->part_l, f->max_part * nh, sizeof(float));
    if (!f->mla) return;
    want(l, &f->qx, R * nh * (c->kv_lora + c->d_rope), sizeof(float));
    want_rows(l, f, &f->q_nope, R, nh * c->d_nope);
    want_rows(l, f, &f->u, R, nh * c->kv_lora);
    for (size_t i = 0; i < c->n_layer; i++)
        scratch = max_size(scratch, f->attn[i]->scratch(&f->o.record[i], nh, R));
    want(l, &f->attn_scratch, scratch, 1);
    if (f->o.model->layer[0].kv_b.type == NB_W_FP8B)
        want(l, &f->unabsorbed, R * nh * c->d_v, sizeof(float));
}

static void want_prompt(slots *l, nb_gpu_forward *f)
{
    const nb_model_config *c = &f->o.model->c;
    const size_t nh = c->n_head, own = (f->T / NB_PAGE_TOK + 2) * NB_PAGE_TOK;
    const size_t width = round8(nh * (c->d_nope + c->d_v));
    if (!f->prompt) return;
    want_rows(l, f, &f->lat, max_size(own, f->span_tok), c->kv_lora);
    f->rope.stride = f->rope_own.stride = round8(c->d_rope);
    want(l, &f->rope.hi, f->span_tok * f->rope.stride, 2);
    want(l, &f->rope_own.hi, own * f->rope.stride, 2);
    want(l, &f->kv_ctx, f->span_tok * width, 2);
    want(l, &f->kv_own, own * width, 2);
    want(l, &f->pm, f->T * nh, sizeof(float));
    want(l, &f->pl, f->T * nh, sizeof(float));
    want(l, &f->po, f->T * nh * c->d_v, sizeof(float));
}

static nb_status allocate(nb_gpu_forward *f, nb_error *err)
{
    slots l = { .n = 0 };
    size_t n_bytes = 0;
    want_common(&l, f);
    want_direct(&l, f);
    want_thrift(&l, f);
    want_prompt(&l, f);
    for (size_t i = 0; i < l.n; i++) n_bytes += l.s[i].n_bytes;
    f->work = f->api->alloc(f->g, n_bytes);
    if (!f->work)
        return nb_fail(err, NB_ERR_NOMEM,
                       "the GPU has no memory for a workspace of %zu MiB (a smaller "
                       "--max-num-batched-tokens needs less)",
                       n_bytes >> 20);
    f->work_bytes += n_bytes;
    char *p = f->work;
    for (size_t i = 0; i < l.n; i++) {
        memcpy(l.s[i].at, &p, sizeof p); /* pointers to other types */
        p += l.s[i].n_bytes;
    }
    f->api->fill(f->g, f->work, 0, n_bytes);
    return NB_OK;
}

/* ---- host memory ---- */

static nb_status create_host(nb_gpu_forward *f, nb_error *err)
{
    const size_t n_bad = f->o.max_tok + f->o.max_seq + PAD_ROWS, parts = f->o.max_seq + 1;
    f->which = nb_arena_array(&f->arena, parts, sizeof *f->which);
    f->tok0 = nb_arena_array(&f->arena, parts, sizeof *f->tok0);
    f->n_tok = nb_arena_array(&f->arena, parts, sizeof *f->n_tok);
    f->row_of = nb_arena_array(&f->arena, f->o.max_tok, sizeof *f->row_of);
    f->bad_of = nb_arena_array(&f->arena, n_bad, sizeof *f->bad_of);
    f->group = nb_arena_array(&f->arena, f->D, sizeof *f->group);
    f->h_bad = f->api->host_alloc(f->g, n_bad * sizeof *f->h_bad);
    f->h_row = f->api->host_alloc(f->g, f->logit_rows * sizeof *f->h_row);
    f->h_id = f->api->host_alloc(f->g, f->logit_rows * sizeof *f->h_id);
    f->h_sample = f->api->host_alloc(f->g, f->logit_rows * sizeof *f->h_sample);
    f->h_saturated = f->api->host_alloc(f->g, sizeof *f->h_saturated);
    f->h_count = f->api->host_alloc(f->g, NB_GPU_COUNTS * sizeof *f->h_count);
    if (!f->which || !f->tok0 || !f->n_tok || !f->row_of || !f->bad_of || !f->group || !f->h_bad ||
        !f->h_row || !f->h_id || !f->h_sample || !f->h_saturated || !f->h_count)
        return nb_fail(err, NB_ERR_NOMEM, "out of memory for the workspace");
    *f->h_saturated = 0;
    memset(f->h_count, 0, NB_GPU_COUNTS * sizeof *f->h_count);
    return NB_OK;
}

/* ---- sizes ---- */

static void size(nb_gpu_forward *f)
{
    const nb_model_config *c = &f->o.model->c;
    size_t states = 1;
    f->n_values = f->o.record->n_values;
    f->d_q = f->mla ? c->d_nope + c->d_rope : c->head_dim;
    f->d_o = f->mla ? c->d_v : c->head_dim;
    f->d_state = f->mla ? c->kv_lora : c->head_dim;
    f->in_width = f->w.layer[0].in.width;
    f->max_block = div_up(f->o.max_pos, NB_PAGE_TOK);
    f->T = f->o.max_tok;
    f->D = max_size(f->o.max_seq, min_size(f->T, NB_GPU_DIRECT_TOK));
    f->h_rows = f->o.max_tok + PAD_ROWS;
    for (size_t i = 0; i < f->n_set; i++)
        states = max_size(states, nb_cuda_n_unit(f->units[i], f->max_block) + 1);
    const size_t fit = PART_BYTES / (c->n_head * f->d_state * sizeof(float));
    f->max_part = max_size(states, min_size(fit, (f->D + PAD_ROWS) * states));
    f->max_own = f->T / NB_PAGE_TOK + 2 * min_size(f->o.max_seq, f->T / 2 + 1) + 2;
    f->span_tok = c->n_head > WIDE_HEADS ? NB_GPU_SPAN_TOK / 2 : NB_GPU_SPAN_TOK;
    f->logit_rows = min_size(f->o.max_tok, NB_GPU_LOGIT_ROWS);
}

static nb_status create(nb_gpu_forward *f, nb_error *err)
{
    const nb_rope_config *r = &f->o.model->c.rope;
    NB_TRY(refuse(&f->o, err));
    NB_TRY(choose_attention(f, err));
    NB_TRY(nb_gpu_weights_init(&f->w, f->o.model, f->o.gpu, f->direct, f->prompt, err));
    NB_TRY(choose_glu(f, err));
    size(f);
    NB_TRY(create_stages(f, err));
    NB_TRY(allocate(f, err));
    NB_TRY(create_host(f, err));
    f->api->upload(f->g, f->inv_freq, r->inv_freq, r->dim / 2 * sizeof *r->inv_freq);
    f->api->upload(f->g, f->inv_freq_long, r->inv_freq_long, r->dim / 2 * sizeof *r->inv_freq);
    return f->api->sync(f->g, err);
}

nb_status nb_gpu_forward_create(const nb_forward_options *o, nb_gpu_forward **out, nb_error *err)
{
    nb_gpu_forward *f = calloc(1, sizeof *f);
    if (!f) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    f->o = *o;
    f->api = nb_gpu_api(o->gpu);
    f->g = nb_gpu_handle(o->gpu);
    f->api->get_info(f->g, &f->info);
    f->mla = o->model->c.attn == NB_ATTN_MLA;
    f->direct = true; /* logits, and what is generated */
    f->prompt = f->mla && !o->absorbed_only;
    f->thrift = f->mla && o->thrift.kind == NB_THRIFT_TOKEN;
    const nb_status st = create(f, err);
    if (st != NB_OK) {
        nb_gpu_forward_destroy(f);
        return st;
    }
    *out = f;
    return NB_OK;
}

void nb_gpu_forward_destroy(nb_gpu_forward *f)
{
    if (!f) return;
    for (size_t i = 0; i < f->n_graph; i++) f->api->graph_destroy(f->g, f->graph[i].graph);
    for (size_t k = 0; k < 2; k++) {
        f->api->host_free(f->g, f->stage[k].host_mem);
        f->api->free(f->g, f->stage[k].dev_mem);
    }
    f->api->free(f->g, f->work);
    f->api->host_free(f->g, f->h_bad);
    f->api->host_free(f->g, f->h_row);
    f->api->host_free(f->g, f->h_id);
    f->api->host_free(f->g, f->h_sample);
    f->api->host_free(f->g, f->h_saturated);
    f->api->host_free(f->g, f->h_count);
    if (f->w.gpu) nb_gpu_weights_deinit(&f->w);
    nb_arena_deinit(&f->arena);
    free(f);
}

/* ---- what it is ---- */

size_t nb_gpu_forward_bytes(const nb_gpu_forward *f)
{
    return f->work_bytes;
}

uint64_t nb_gpu_forward_weight_bytes(const nb_gpu_forward *f)
{
    return f->w.n_bytes;
}

void nb_gpu_forward_describe(const nb_gpu_forward *f, char *buf, size_t n_bytes)
{
    const nb_gpu_layer *l = &f->w.layer[f->o.model->c.n_layer - 1];
    const size_t last = f->o.model->c.n_layer - 1;
    size_t at = (size_t)snprintf(buf, n_bytes, "%s: linear=%s", f->info.name, l->o.row[0]->name);
    if (f->prompt && at < n_bytes)
        at += (size_t)snprintf(buf + at, n_bytes - at, " linear_prompt=%s", l->o.row[1]->name);
    if (l->expert.row_up[0] && at < n_bytes)
        at += (size_t)snprintf(buf + at, n_bytes - at, " experts=%s", l->expert.row_up[0]->name);
    if (f->attn[last] && at < n_bytes)
        (void)snprintf(buf + at, n_bytes - at, " attn_%s=%s",
                       nb_kv_type_name(f->o.record[last].type), f->attn[last]->name);
}

void nb_gpu_forward_set_trace(nb_gpu_forward *f, nb_trace_fn *trace, void *ctx)
{
    f->trace = trace;
    f->trace_ctx = ctx;
}

uint64_t nb_gpu_forward_saturated(const nb_gpu_forward *f)
{
    return *f->h_saturated;
}

nb_thrift_count nb_gpu_forward_thrift_count(const nb_gpu_forward *f)
{
    const uint64_t *n = f->h_count;
    size_t row = 0; /* the same in all layers that have planes */
    for (size_t i = 0; i < f->o.model->c.n_layer; i++)
        if (nb_gpu_thrift_layer(f, i)) row = nb_residual_row_bytes(&f->o.record[i]);
    return (nb_thrift_count){ .scored = n[0],
                              .refined = n[1],
                              .over = n[2],
                              .base_bytes = n[3],
                              .residual_bytes = n[1] * row };
}
