/* convert_read.c - see convert_internal.h: the source's tensors as floats. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "convert/convert_internal.h"
#include "load/optional.h"
#include "num/bf16.h"
#include "num/fp16.h"

enum { NAME_BYTES = 512, MAX_TEXT_BYTES = 64 << 20 };
#define DT(t) (1u << NB_DT_##t)

nb_status nb_conv_nomem(nb_conv *c)
{
    return nb_fail(c->err, NB_ERR_NOMEM, "out of memory");
}

/* ---- experts in one tensor ---- */

static const char experts[] = ".mlp.experts.";

/* 2: gate above up, 1: down, of [n_expert][rows][cols]; 0: neither.  MXFP4 comes as [n_expert][rows][cols / 32][16]. */
static size_t stacked_parts(const nb_conv *c, const char *name, nb_tensor *t)
{
    const char *at = strstr(name, experts);
    if (!at || !nb_source_peek(c->source, name, t)) return 0;
    at += sizeof experts - 1;
    const bool blocks = !strcmp(at, "gate_up_proj_blocks") || !strcmp(at, "down_proj_blocks");
    if (t->n_dim != (blocks ? 4 : 3)) return 0;
    if (blocks) t->dim[2] *= 32;
    const bool up = !strcmp(at, "gate_up_proj") || !strcmp(at, "gate_up_proj_blocks");
    return up && t->dim[1] % 2 == 0 ? 2 : !strcmp(at, "down_proj") || (blocks && !up) ? 1 : 0;
}

bool nb_conv_is_beside_stack(const char *name)
{
    static const char *const ends[] = { "gate_up_proj_scales", "down_proj_scales", "gate_up_proj_scale_inv",
                                        "down_proj_scale_inv", "gate_up_proj_activation_scale",
                                        "down_proj_activation_scale" };
    const char *at = strstr(name, experts);
    for (size_t i = 0; at && i < NB_COUNT(ends); i++)
        if (!strcmp(at + sizeof experts - 1, ends[i])) return true;
    return false;
}

size_t nb_conv_n_stacked(const nb_conv *c, const char *name)
{
    nb_tensor t;
    const size_t parts = stacked_parts(c, name, &t);
    return parts ? parts * t.dim[0] : 0;
}

nb_status nb_conv_stacked_name(nb_conv *c, const char *name, size_t i, char **out)
{
    nb_tensor t;
    char text[NAME_BYTES];
    const size_t parts = stacked_parts(c, name, &t);
    const int head = (int)(strstr(name, experts) - name + (ptrdiff_t)sizeof experts - 1);
    const char *part = parts == 1 ? "down_proj" : i % 2 ? "up_proj" : "gate_proj";
    const int n = snprintf(text, sizeof text, "%.*s%zu.%s.weight", head, name, i / parts, part);
    if (n < 0 || (size_t)n >= sizeof text)
        return nb_fail(c->err, NB_ERR_LIMIT, "tensor '%s': its name is too long",
                       nb_show_c(name).s);
    *out = nb_arena_strdup(&c->arena, nb_str_c(text));
    return *out ? NB_OK : nb_conv_nomem(c);
}

/* A view of expert e in a tensor of floats. */
static nb_status take_plain_stack(nb_conv *c, const char *whole, const char *name, size_t e, bool down, bool up,
                                  nb_tensor *t, nb_conv_matrix *out)
{
    const nb_tensor_want want = { .name = whole, .dtypes = 1u << t->dtype, .n_dim = 3 };
    NB_TRY(nb_source_take(c->source, &want, t, c->err));
    nb_conv_matrix m = { .name = name, .t = *t, .rows = t->dim[1] / (down ? 1 : 2), .cols = t->dim[2] };
    m.t.n_dim = 2;
    m.t.dim[0] = m.rows;
    m.t.dim[1] = m.cols;
    m.t.n_bytes = m.rows * m.cols * nb_dtype_bytes(t->dtype);
    m.t.data = (const char *)t->data + ((down ? e : 2 * e + up) * m.t.n_bytes);
    *out = m;
    return NB_OK;
}

/* The matrix of one expert in a tensor of all; *found: there is such a tensor. */
static nb_status take_stacked(nb_conv *c, const char *name, nb_conv_matrix *out, bool *found)
{
    unsigned long e;
    int used = 0;
    char whole[NAME_BYTES];
    nb_tensor t = { 0 };
    const char *at = strstr(name, experts), *part;
    *found = false;
    if (!at || sscanf(at + sizeof experts - 1, "%6lu.%n", &e, &used) != 1 || !used) return NB_OK;
    part = at + sizeof experts - 1 + used;
    const bool down = !strcmp(part, "down_proj.weight"), up = !strcmp(part, "up_proj.weight");
    if (!down && !up && strcmp(part, "gate_proj.weight") != 0) return NB_OK;
    const int head = (int)(at - name + (ptrdiff_t)sizeof experts - 1);
    size_t parts = 0;
    for (int k = 0; k < 2 && !parts; k++) {
        const int n = snprintf(whole, sizeof whole, "%.*s%s%s", head, name, down ? "down_proj" : "gate_up_proj",
                               k ? "_blocks" : "");
        if (n < 0 || (size_t)n >= sizeof whole) return NB_OK;
        parts = stacked_parts(c, whole, &t);
    }
    if (!parts || e >= t.dim[0]) return NB_OK;
    *found = true;
    if (1u << t.dtype & (DT(F32) | DT(BF16) | DT(F16)))
        return take_plain_stack(c, whole, name, e, down, up, &t, out);
    *out = (nb_conv_matrix){ .name = name, .rows = t.dim[1] / parts, .cols = t.dim[2] };
    (void)snprintf(whole, sizeof whole, "%.*s", head - 1, name);
    return nb_conv_take_coded_stack(c, whole, e, t.dim[0], down ? "down" : up ? "up" : "gate", out);
}

nb_status nb_conv_take(nb_conv *c, const char *name, nb_conv_matrix *out)
{
    nb_conv_matrix m;
    nb_tensor t;
    bool found = false;
    nb_arena_reset(&c->now);
    if (!nb_source_peek(c->source, name, &t)) {
        NB_TRY(take_stacked(c, name, out, &found));
        if (found) return NB_OK;
    }
    NB_TRY(nb_conv_size(c, name, &m));
    if (m.coded) {
        NB_TRY(nb_conv_take_coded(c, &m));
        *out = m;
        return NB_OK;
    }
    if (!(1u << m.t.dtype & (DT(F32) | DT(BF16) | DT(F16))))
        return nb_fail(c->err, NB_ERR_UNSUPPORTED, "tensor '%s' is %s: not known as a form of weights",
                       nb_show_c(name).s, nb_dtype_name(m.t.dtype));
    const nb_tensor_want want = { .name = name, .dtypes = 1u << m.t.dtype, .n_dim = m.t.n_dim };
    NB_TRY(nb_source_take(c->source, &want, &m.t, c->err));
    *out = m;
    return NB_OK;
}

nb_status nb_conv_take_size(nb_conv *c, const char *name, nb_conv_matrix *out)
{
    nb_tensor t;
    bool found = false;
    if (!nb_source_peek(c->source, name, &t)) {
        nb_arena_reset(&c->now);
        NB_TRY(take_stacked(c, name, out, &found));
    }
    return found ? NB_OK : nb_conv_size(c, name, out);
}

void nb_conv_rows(const nb_conv_matrix *m, size_t r, size_t n, float *out)
{
    const size_t from = r * m->cols, count = n * m->cols;
    const uint16_t *half = (const uint16_t *)m->t.data + from;
    if (m->coded) {
        for (size_t i = 0; i < n; i++) nb_conv_coded_row(m, r + i, out + i * m->cols);
    } else if (m->t.dtype == NB_DT_F32) {
        memcpy(out, (const float *)m->t.data + from, count * sizeof *out);
    } else if (m->t.dtype == NB_DT_BF16) {
        for (size_t i = 0; i < count; i++) out[i] = nb_bf16_to_f32(half[i]);
    } else {
        for (size_t i = 0; i < count; i++) out[i] = nb_fp16_to_f32(half[i]);
    }
}

bool nb_conv_finite(const float *x, size_t n)
{
    float sum = 0; /* 0 * x is 0, or no number */
    for (size_t i = 0; i < n; i++) sum += 0 * x[i];
    return sum == 0;
}

nb_status nb_conv_not_finite(nb_conv *c, const char *name)
{
    return nb_fail(c->err, NB_ERR_FORMAT, "tensor '%s' has values that are not finite",
                   nb_show_c(name).s);
}

/* ---- strips ---- */

nb_status nb_conv_scratch(nb_conv *c, size_t cols)
{
    const size_t n = nb_pool_n_thread(c->pool);
    if (cols <= c->scratch_cols) return NB_OK;
    if (cols > SIZE_MAX / sizeof(float) / NB_CONV_STRIP) return nb_conv_nomem(c);
    if (!c->scratch) c->scratch = calloc(n, sizeof *c->scratch);
    if (!c->scratch) return nb_conv_nomem(c);
    for (size_t i = 0; i < n; i++) {
        free(c->scratch[i]);
        c->scratch[i] = malloc(NB_CONV_STRIP * cols * sizeof(float));
        if (!c->scratch[i]) return nb_conv_nomem(c);
    }
    c->scratch_cols = cols;
    return NB_OK;
}

typedef struct strips {
    nb_conv *c;
    const nb_conv_matrix *m;
    nb_conv_strip_fn *fn;
    void *ctx;
    uint8_t *bad; /* [tasks] */
} strips;

static void strip_task(void *ctx, size_t task, size_t worker)
{
    const strips *s = ctx;
    float *x = s->c->scratch[worker];
    const size_t r = task * NB_CONV_STRIP, left = s->m->rows - r,
                 n = left < NB_CONV_STRIP ? left : NB_CONV_STRIP;
    nb_conv_rows(s->m, r, n, x);
    s->bad[task] = !nb_conv_finite(x, n * s->m->cols);
    if (!s->bad[task]) s->fn(s->ctx, x, r, n);
}

nb_status nb_conv_strips(nb_conv *c, const nb_conv_matrix *m, nb_conv_strip_fn *fn, void *ctx)
{
    const size_t n = (m->rows + NB_CONV_STRIP - 1) / NB_CONV_STRIP;
    NB_TRY(nb_conv_scratch(c, m->cols));
    strips s = { .c = c, .m = m, .fn = fn, .ctx = ctx, .bad = calloc(n ? n : 1, 1) };
    if (!s.bad) return nb_conv_nomem(c);
    nb_pool_run(c->pool, strip_task, &s, n);
    bool bad = false;
    for (size_t i = 0; i < n; i++) bad |= s.bad[i];
    free(s.bad);
    return bad ? nb_conv_not_finite(c, m->name) : NB_OK;
}

typedef struct tops {
    float *top; /* [strips] */
    size_t cols;
} tops;

static void top_of_strip(void *ctx, const float *x, size_t r, size_t n)
{
    const tops *t = ctx;
    float a = 0;
    for (size_t i = 0; i < n * t->cols; i++) a = fmaxf(a, fabsf(x[i]));
    t->top[r / NB_CONV_STRIP] = a;
}

nb_status nb_conv_largest(nb_conv *c, const nb_conv_matrix *m, float *out)
{
    const size_t n = (m->rows + NB_CONV_STRIP - 1) / NB_CONV_STRIP;
    tops t = { .top = calloc(n ? n : 1, sizeof *t.top), .cols = m->cols };
    if (!t.top) return nb_conv_nomem(c);
    const nb_status st = nb_conv_strips(c, m, top_of_strip, &t);
    *out = 0;
    for (size_t i = 0; i < n; i++) *out = fmaxf(*out, t.top[i]);
    free(t.top);
    return st;
}

nb_status nb_conv_importance(nb_conv *c, const char *name, nb_imatrix_part part, size_t n_head,
                             size_t cols, const float **w)
{
    const size_t n = part == NB_IMATRIX_WHOLE ? 1 : n_head;
    size_t found = 0;
    *w = NULL;
    if (!c->o->imatrix) return NB_OK;
    if (n * cols > c->n_importance) {
        free(c->importance);
        c->n_importance = 0;
        c->importance = malloc(n * cols * sizeof *c->importance);
        if (!c->importance) return nb_conv_nomem(c);
        c->n_importance = n * cols;
    }
    for (size_t h = 0; h < n; h++) {
        float *to = c->importance + h * cols;
        nb_imatrix_found how;
        NB_TRY(nb_imatrix_weights(c->o->imatrix, name, part, h, cols, to, &how, c->err));
        for (size_t i = 0; how == NB_IMATRIX_NONE && i < cols; i++) to[i] = 1;
        found += how != NB_IMATRIX_NONE;
        c->report->n_weighted += how == NB_IMATRIX_OWN;
        c->report->n_shared += how == NB_IMATRIX_SHARED;
        c->report->n_unweighted += how == NB_IMATRIX_NONE;
    }
    if (found) *w = c->importance;
    return NB_OK;
}

void nb_conv_progress(nb_conv *c, const nb_conv_matrix *m)
{
    c->done_bytes += m->t.n_bytes;
    nb_source_drop(c->source, m->t.data, m->t.n_bytes);
    const uint64_t all = nb_source_bytes(c->source);
    if (c->o->progress)
        c->o->progress(c->o->progress_ctx, "converting weights",
                       c->done_bytes < all ? c->done_bytes : all, all);
}

bool nb_conv_keeps(const nb_conv *c, const char *name)
{
    for (const char *p = c->o->keep; p && *p;) {
        const size_t n = strcspn(p, ",");
        for (const char *s = name; n && *s; s++)
            if (strncmp(s, p, n) == 0) return true;
        p += n + (p[n] == ',');
    }
    return false;
}

/* ---- texts ---- */

nb_status nb_conv_text(nb_conv *c, const char *name, nb_buf *out, bool *found)
{
    out->n_bytes = 0;
    return nb_optional_read(c->o->model, name, MAX_TEXT_BYTES, out, found, c->err);
}

nb_status nb_conv_json(nb_conv *c, const char *name, json_t **out)
{
    nb_buf text = { 0 };
    bool found;
    *out = NULL;
    nb_status st = nb_conv_text(c, name, &text, &found);
    if (st == NB_OK && found)
        st = nb_json_parse(nb_buf_view(&text), name,
                           &(nb_json_limits){ MAX_TEXT_BYTES, 64, 4194304 }, out, c->err);
    nb_buf_deinit(&text);
    return st;
}
