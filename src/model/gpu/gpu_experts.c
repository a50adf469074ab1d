/* gpu_experts.c - routed experts whose weights stay in host memory.
 *
 * Two ways, and a token's own position decides between them (docs/decisions/039-experts-in-host-memory.md):
 *
 *   on the host   attention, router and choice run on the device; the rows, ids and weights go to pinned memory, the
 *                 host's kernels make the routed sum while the device computes the shared experts, and the sum goes
 *                 back.  The host waits for the device in each such layer, so a graph is cut there, into segments.
 *   uploaded      prompts that fill whole units (nb_rank_upload_tok): the layer's experts pass through two buffers
 *                 of the device, a group of experts at a time.  A group is copied to pinned memory by the host's
 *                 threads, which make its tiles if it is packed, then sent beside the stream while the group before it is computed. */
#include <string.h>

#include "model/cpu/cpu_experts.h"
#include "model/gpu/gpu.h"

enum {
    MARK_ROWS = 1,             /* rows and choices are in pinned memory */
    MARK_SENT = 2,             /* and 3: a staging buffer has been sent */
    CPU_ROWS = 1024,           /* rows of the host's workspace */
    GROUP_BYTES = 512 << 20,   /* of a staging buffer, unless one expert takes more */
    COPY_BYTES = 1 << 20,      /* of a task */
    SPARSE_ROWS = 4,           /* fewer rows than this per expert: only experts with rows are sent */
    ALIGN = 256
};

static size_t div_up(size_t a, size_t b)
{
    return (a + b - 1) / b;
}

static size_t round_up(size_t n)
{
    return div_up(n, ALIGN) * ALIGN;
}

/* ---- memory ---- */

/* Where the planes of the matrices of some experts are in a buffer, and bytes of one expert in each. */
typedef struct layout {
    size_t at[NB_GPU_EXPERT_MATS][NB_GPU_PLANES], one[NB_GPU_EXPERT_MATS][NB_GPU_PLANES], n_bytes;
} layout;

static const nb_gpu_form *form_of(const nb_gpu_rank *f, size_t layer, size_t i)
{
    return &f->w.layer[layer].expert.run->form[i]; /* one run: nb_gpu_runs_can_send */
}

static const nb_mlp *experts_of(const nb_gpu_rank *f, size_t layer)
{
    return f->r.o.model->layer[layer].expert;
}

static layout lay_out(const nb_gpu_rank *f, size_t layer, size_t n)
{
    layout l = { 0 };
    for (size_t i = 0; i < NB_GPU_EXPERT_MATS; i++) {
        const nb_weight *w = nb_gpu_expert_mat(experts_of(f, layer), i);
        nb_gpu_plane_bytes(form_of(f, layer, i), w->n_col, l.one[i]);
        for (size_t k = 0; k < NB_GPU_PLANES; k++) l.one[i][k] *= w->n_row;
        if (w->type == NB_W_FP8B) l.one[i][NB_GPU_ROW] = nb_weight_scale_bytes(w);
        for (size_t k = 0; k < NB_GPU_PLANES; k++) {
            l.at[i][k] = l.n_bytes;
            l.n_bytes += round_up(n * l.one[i][k]);
        }
    }
    return l;
}

/* All layers that can be uploaded have one size of group, so that the buffers fit each. */
static nb_status create_staging(nb_gpu_rank *f, nb_error *err)
{
    nb_gpu_host *x = &f->host;
    const size_t n_expert = f->r.part.n_expert, half = div_up(n_expert, 2);
    size_t one = 0;
    for (size_t i = 0; i < f->r.whole->n_layer; i++) {
        if (!nb_gpu_is_host(f, i)) continue;
        const size_t n = lay_out(f, i, 1).n_bytes;
        if (n > one) one = n;
    }
    x->group = GROUP_BYTES / one;
    x->group = x->group < 1 ? 1 : x->group > half ? half : x->group; /* one is sent, another computed */
    for (size_t i = 0; i < f->r.whole->n_layer; i++) {
        if (!nb_gpu_is_host(f, i)) continue;
        const size_t n = lay_out(f, i, x->group).n_bytes;
        if (n > x->stage_bytes) x->stage_bytes = n;
    }
    for (size_t b = 0; b < 2; b++) {
        x->stage[b] = f->api->alloc(f->g, x->stage_bytes);
        x->pinned[b] = f->api->host_alloc(f->g, x->stage_bytes);
        if (!x->stage[b] || !x->pinned[b])
            return nb_fail(err, NB_ERR_NOMEM,
                           "no memory for two buffers of %zu MiB, through which experts reach the "
                           "GPU",
                           x->stage_bytes >> 20);
    }
    f->work_bytes += 2 * x->stage_bytes;
    x->first = f->api->host_alloc(f->g, (n_expert + 1) * sizeof *x->first);
    return x->first ? NB_OK : nb_fail(err, NB_ERR_NOMEM, "out of memory for the workspace");
}

nb_status nb_gpu_host_create(nb_gpu_rank *f, size_t max_row, nb_error *err)
{
    nb_gpu_host *x = &f->host;
    const nb_model_config *c = f->r.whole;
    const size_t rows = max_row < CPU_ROWS ? max_row : CPU_ROWS;
    const size_t width = f->xn.stride + 2 * c->top_k;
    NB_TRY(nb_cpu_experts_create(&f->r.o, rows, &x->cpu, err));
    x->x = f->api->host_alloc(f->g, max_row * width * sizeof *x->x);
    x->y = f->api->host_alloc(f->g, max_row * c->hidden * sizeof *x->y);
    /* one choice of weight 1: the routed sum as moe_sum adds it */
    x->one = f->api->alloc(f->g, max_row * sizeof *x->one);
    x->place = f->api->alloc(f->g, max_row * sizeof *x->place);
    if (!x->x || !x->y || !x->one || !x->place)
        return nb_fail(err, NB_ERR_NOMEM, "out of memory for rows of experts in host memory");
    memset(x->y, 0, max_row * c->hidden * sizeof *x->y);
    uint32_t *place = (uint32_t *)(void *)(x->x + max_row);
    for (size_t i = 0; i < max_row; i++) {
        x->x[i] = 1;
        place[i] = (uint32_t)i;
    }
    f->api->upload(f->g, x->one, x->x, max_row * sizeof *x->one);
    f->api->upload(f->g, x->place, place, max_row * sizeof *x->place);
    NB_TRY(f->api->sync(f->g, err));
    return f->w.upload ? create_staging(f, err) : NB_OK;
}

void nb_gpu_host_destroy(nb_gpu_rank *f)
{
    nb_gpu_host *x = &f->host;
    nb_rank_destroy(x->cpu);
    f->api->host_free(f->g, x->x);
    f->api->host_free(f->g, x->y);
    f->api->host_free(f->g, x->first);
    f->api->free(f->g, x->one);
    f->api->free(f->g, x->place);
    for (size_t b = 0; b < 2; b++) {
        f->api->free(f->g, x->stage[b]);
        f->api->host_free(f->g, x->pinned[b]);
    }
    *x = (nb_gpu_host){ 0 };
}

/* ---- on the host ---- */

/* Ends the segment that is being captured and lets it run. */
static void segment_end(nb_gpu_rank *f, nb_gpu_pass *p)
{
    if (!p->seg) return;
    nb_cuda_graph *x = f->api->graph_end(f->g);
    p->seg[p->n_seg++] = x;
    f->api->graph_launch(f->g, x);
}

static void segment_begin(nb_gpu_rank *f, const nb_gpu_pass *p)
{
    if (p->seg) f->api->graph_begin(f->g);
}

/* Behind n rows of x, on either side: ids, then weights, so that one copy takes all. */
static uint32_t *ids_of(const nb_gpu_rank *f, float *x, size_t n)
{
    return (uint32_t *)(void *)(x + n * f->xn.stride);
}

static float *weights_of(const nb_gpu_rank *f, float *x, size_t n)
{
    return x + n * (f->xn.stride + f->r.whole->top_k);
}

/* The routed sum of the layer, once its rows are there; after an error of the device there are none. */
static void sum_on_host(nb_gpu_rank *f, const nb_gpu_pass *p, size_t layer)
{
    nb_gpu_host *x = &f->host;
    const size_t h = f->r.whole->hidden, n = p->base.n_row;
    if (f->api->wait(f->g, MARK_ROWS, NULL) != NB_OK) return;
    for (size_t i = 1; f->xn.stride != h && i < n; i++)
        memmove(x->x + i * h, x->x + i * f->xn.stride, h * sizeof *x->x);
    nb_cpu_experts_run(x->cpu, layer,
                       &(nb_cpu_experts_args){ .x = x->x,
                                               .id = ids_of(f, x->x, p->n_pad),
                                               .weight = weights_of(f, x->x, p->n_pad),
                                               .y = x->y,
                                               .n_row = n });
}

void nb_gpu_host_moe(nb_gpu_rank *f, nb_gpu_pass *p, size_t layer)
{
    nb_gpu_host *x = &f->host;
    const nb_model_config *c = f->r.whole;
    const size_t n = p->n_pad;
    nb_gpu_route(f, p, layer, ids_of(f, f->xn.f, n), weights_of(f, f->xn.f, n));
    f->api->download(f->g, x->x, f->xn.f, n * (f->xn.stride + 2 * c->top_k) * sizeof *x->x);
    segment_end(f, p);
    f->api->mark(f->g, MARK_ROWS);
    segment_begin(f, p);
    nb_gpu_shared(f, p, layer);
    segment_end(f, p);
    sum_on_host(f, p, layer);
    segment_begin(f, p);
    f->api->upload(f->g, f->e_y, x->y, n * c->hidden * sizeof *x->y);
}

void nb_gpu_host_replay(nb_gpu_rank *f, const nb_gpu_pass *p, nb_cuda_graph *const *seg)
{
    f->api->graph_launch(f->g, *seg++);
    for (size_t i = 0; i < f->r.whole->n_layer; i++) {
        if (!nb_gpu_is_host(f, i)) continue;
        f->api->mark(f->g, MARK_ROWS);
        f->api->graph_launch(f->g, *seg++);
        sum_on_host(f, p, i);
        f->api->graph_launch(f->g, *seg++);
    }
}

/* ---- uploaded ---- */

typedef struct copy_job {
    const nb_gpu_rank *f;
    char *to;
    size_t layer, e0, n;
    layout l;
    size_t n_piece; /* of an expert's largest matrix */
} copy_job;

/* Experts without rows are not sent. */
static bool wanted(const nb_gpu_host *x, size_t e)
{
    return !x->sparse || x->first[e + 1] > x->first[e];
}

/* Rows of a piece. */
static size_t piece_rows(const nb_weight *w, const size_t one[NB_GPU_PLANES])
{
    const size_t row = one[NB_GPU_CODES] / w->n_row;
    return row < COPY_BYTES ? COPY_BYTES / row : 1;
}

static void copy_task(void *ctx, size_t task, size_t worker)
{
    (void)worker;
    const copy_job *j = ctx;
    const size_t piece = task % j->n_piece, at = task / j->n_piece;
    const size_t i = at % NB_GPU_EXPERT_MATS, e = at / NB_GPU_EXPERT_MATS;
    if (!wanted(&j->f->host, j->e0 + e)) return;
    const nb_weight *w = nb_gpu_expert_mat(&experts_of(j->f, j->layer)[j->e0 + e], i);
    const nb_gpu_form *form = form_of(j->f, j->layer, i);
    const size_t *one = j->l.one[i], step = piece_rows(w, one), r = piece * step;
    if (r >= w->n_row) return;
    const size_t n = w->n_row - r < step ? w->n_row - r : step;
    void *to[NB_GPU_PLANES];
    for (size_t k = 0; k < NB_GPU_PLANES; k++)
        to[k] = j->to + j->l.at[i][k] + e * one[k] + r * (one[k] / w->n_row);
    if (form->shape == NB_GPU_TILES) {
        nb_gpu_make_rows(w, form, r, n, to);
        return;
    }
    const size_t row = one[NB_GPU_CODES] / w->n_row;
    memcpy(to[NB_GPU_CODES], (const char *)w->data + r * row, n * row);
    if (r == 0 && one[NB_GPU_ROW]) memcpy(to[NB_GPU_ROW], w->scale, one[NB_GPU_ROW]);
}

/* The next group: its layer and first expert; false: the pass needs no other. */
static bool next_group(const nb_gpu_rank *f, size_t *layer, size_t *e0)
{
    *e0 += f->host.group;
    if (*e0 < f->r.part.n_expert) return true;
    *e0 = 0;
    do ++*layer;
    while (*layer < f->r.whole->n_layer && !nb_gpu_is_host(f, *layer));
    return *layer < f->r.whole->n_layer;
}

/* What is in the pinned buffer, to the device's: as a whole, or expert by expert. */
static void send(nb_gpu_rank *f, const copy_job *j, char *dev, size_t n_bytes)
{
    if (!f->host.sparse) {
        f->api->upload(f->g, dev, j->to, n_bytes);
        return;
    }
    for (size_t e = 0; e < j->n; e++) {
        if (!wanted(&f->host, j->e0 + e)) continue;
        for (size_t i = 0; i < NB_GPU_EXPERT_MATS * NB_GPU_PLANES; i++) {
            const size_t n = j->l.one[i / NB_GPU_PLANES][i % NB_GPU_PLANES];
            const size_t at = j->l.at[i / NB_GPU_PLANES][i % NB_GPU_PLANES] + e * n;
            if (n) f->api->upload(f->g, dev + at, j->to + at, n);
        }
    }
}

/* Copies a group to its pinned buffer once that has been sent; joins the group before it, which is on its way;
 * and sends this one beside what the stream does from now on. */
static void stage(nb_gpu_rank *f, size_t layer, size_t e0)
{
    nb_gpu_host *x = &f->host;
    const size_t b = x->n_staged % 2, left = f->r.part.n_expert - e0;
    copy_job j = { .f = f, .to = x->pinned[b], .layer = layer, .e0 = e0 };
    j.n = left < x->group ? left : x->group;
    j.l = lay_out(f, layer, j.n);
    for (size_t i = 0; i < NB_GPU_EXPERT_MATS; i++) {
        const nb_weight *w = nb_gpu_expert_mat(experts_of(f, layer), i);
        const size_t n = div_up(w->n_row, piece_rows(w, j.l.one[i]));
        if (n > j.n_piece) j.n_piece = n;
    }
    if (f->api->wait(f->g, MARK_SENT + (int)b, NULL) != NB_OK) return;
    nb_dev_run(f->r.o.dev, copy_task, &j, j.n * NB_GPU_EXPERT_MATS * j.n_piece);
    if (x->on_way) f->api->side_join(f->g);
    f->api->side_begin(f->g, false);
    send(f, &j, x->stage[b], j.l.n_bytes);
    f->api->mark(f->g, MARK_SENT + (int)b);
    f->api->side_end(f->g);
    x->on_way = true;
    x->n_staged++;
}

static nb_weight staged(const nb_gpu_rank *f, size_t layer, size_t i, const layout *l, char *stage,
                        size_t n)
{
    const nb_weight *w = nb_gpu_expert_mat(experts_of(f, layer), i);
    void *plane[NB_GPU_PLANES];
    for (size_t k = 0; k < NB_GPU_PLANES; k++)
        plane[k] = l->one[i][k] ? stage + l->at[i][k] : NULL;
    return nb_gpu_weight_of(form_of(f, layer, i), n * w->n_row, w->n_col, plane);
}

/* e_act, e_y of the rows of experts [e0, e0 + n), from buffer b. */
static void compute(nb_gpu_rank *f, const nb_gpu_pass *p, size_t layer, size_t e0, size_t b)
{
    const nb_gpu_host *x = &f->host;
    const nb_model_config *c = f->r.whole;
    const nb_gpu_run *k = f->w.layer[layer].expert.run;
    const size_t left = f->r.part.n_expert - e0, n = left < x->group ? left : x->group;
    const layout l = lay_out(f, layer, n);
    nb_cuda_experts_args a = { .gate = staged(f, layer, NB_GPU_GATE, &l, x->stage[b], n),
                               .up = staged(f, layer, NB_GPU_UP, &l, x->stage[b], n),
                               .x = f->x[p->kind].xn,
                               .y = f->x[p->kind].e_act,
                               .first = f->r_first + e0,
                               .src = f->r_src,
                               .n_expert = n,
                               .n_out = c->moe_inter,
                               .n_tok = p->n_pad,
                               .n_place = p->n_pad * c->top_k,
                               .limit = c->act_limit };
    nb_gpu_experts_run(f, k->row[NB_GPU_GATE][p->kind], a);
    a.gate = staged(f, layer, NB_GPU_DOWN, &l, x->stage[b], n);
    a.up = (nb_weight){ 0 };
    a.x = f->x[p->kind].e_act;
    a.y = nb_gpu_floats(f->e_y, c->hidden);
    a.src = NULL;
    a.n_out = c->hidden;
    a.chosen = true;
    nb_gpu_experts_run(f, k->row[NB_GPU_DOWN][p->kind], a);
}

/* With few rows the host waits for the choice and sends only experts that have some; groups of the next layer are
 * then not sent ahead, because their choice is not known. */
static void look_at_choice(nb_gpu_rank *f)
{
    nb_gpu_host *x = &f->host;
    const size_t n = f->r.part.n_expert + 1;
    f->api->download(f->g, x->first, f->r_first, n * sizeof *x->first);
    f->api->mark(f->g, MARK_ROWS);
    if (f->api->wait(f->g, MARK_ROWS, NULL) != NB_OK) memset(x->first, 0, n * sizeof *x->first);
}

void nb_gpu_host_begin(nb_gpu_rank *f, const nb_gpu_pass *p)
{
    nb_gpu_host *x = &f->host;
    x->sparse = p->n_pad * f->r.whole->top_k < SPARSE_ROWS * f->r.part.n_expert;
    x->ahead = x->on_way = false;
}

void nb_gpu_host_upload(nb_gpu_rank *f, nb_gpu_pass *p, size_t layer)
{
    nb_gpu_host *x = &f->host;
    nb_gpu_route(f, p, layer, f->r_id, f->r_weight);
    if (x->sparse) look_at_choice(f);
    if (!x->ahead) stage(f, layer, 0);
    for (size_t e0 = 0; e0 < f->r.part.n_expert; e0 += x->group) {
        size_t next = layer, next0 = e0;
        const size_t b = (x->n_staged + 1) % 2; /* of the group that was staged last */
        x->ahead = next_group(f, &next, &next0) && (next == layer || !x->sparse);
        if (x->ahead)
            stage(f, next, next0);
        else {
            f->api->side_join(f->g);
            x->on_way = false;
        }
        compute(f, p, layer, e0, b);
    }
    nb_gpu_zero_experts(f, p);
    nb_gpu_shared(f, p, layer);
}

size_t nb_gpu_host_layers(const nb_rank *r, uint64_t *n_bytes)
{
    const nb_gpu_rank *f = (const nb_gpu_rank *)(const void *)r;
    size_t n = 0;
    *n_bytes = 0;
    for (size_t i = 0; i < r->whole->n_layer; i++) {
        if (!nb_gpu_is_host(f, i)) continue;
        *n_bytes += nb_gpu_expert_bytes(r->o.model, i);
        n++;
    }
    return n;
}

size_t nb_gpu_upload_tok(const nb_rank *r)
{
    const nb_gpu_rank *f = (const nb_gpu_rank *)(const void *)r;
    const nb_model_config *c = r->whole;
    enum { ROWS_PER_EXPERT = 32 }; /* about where sending an expert costs less than computing its rows on the host */
    if (!f->w.host || !f->w.upload) return 0;
    return div_up(div_up(ROWS_PER_EXPERT * c->n_expert, c->top_k), NB_PAGE_TOK) * NB_PAGE_TOK;
}
