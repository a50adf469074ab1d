/* tune.c - see tune.h: the operations of a model, their candidates, and the measuring. */
#include "engine/tune.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/attr.h"
#include "engine/engine_internal.h"
#include "engine/tune_file.h"
#include "kernel/attn_pages/attn_pages.h"
#include "kernel/linear/packed.h"
#include "nb_config.h"
#include "os/cpu.h"
#include "timing/bench_kernel.h"

enum {
    FEW_TOK = 1,
    MANY_TOK = 64,  /* of a prompt; an expert gets about so many of 512 */
    CONTEXT = 2048, /* of decode attention */
    COLD_BYTES = 64 << 20,
    ROUNDS = 3, /* the levels take turns; the best of each counts */
    SAMPLES = 2,
    MAX_SHAPE = 64,
    LEAST_BYTES = 256 << 20, /* weights of a model that is measured unasked */
};
static const double SAMPLE_S = 1e-3, BETTER = 0.9;

/* ---- what a model computes ---- */

typedef struct shape {
    nb_wtype type;
    size_t n_row, n_col;
    double values; /* of all such matrices */
} shape;

typedef struct shapes {
    shape of[MAX_SHAPE];
    size_t n;
} shapes;

static nb_status count_shape(void *ctx, const char *name, nb_weight *w)
{
    shapes *s = ctx;
    (void)name;
    size_t i = 0;
    while (i < s->n &&
           (s->of[i].type != w->type || s->of[i].n_row != w->n_row || s->of[i].n_col != w->n_col))
        i++;
    if (i == MAX_SHAPE) return NB_OK;
    if (i == s->n) s->of[s->n++] = (shape){ .type = w->type, .n_row = w->n_row, .n_col = w->n_col };
    s->of[i].values += (double)w->n_row * (double)w->n_col;
    return NB_OK;
}

/* The row that an operation would use with these capabilities, for telling candidates apart. */
static const void *row_of(const nb_tune_op *op, const nb_engine *e, nb_caps caps, const char **act)
{
    static const char *const form[NB_ACT_COUNT] = { "float", "bf16", "int16", "int8", "fp8" };
    if (op->kind == NB_TUNE_LINEAR) {
        const nb_linear_variant *v = nb_linear_find(op->type, e->acts.of[op->type], caps);
        *act = form[v->act];
        return v->need ? v : NULL;
    }
    if (op->kind == NB_TUNE_PAGES) {
        const nb_attn_pages_variant *v = nb_attn_pages_for(caps, op->record);
        return v && v->need ? v : NULL;
    }
    nb_plan p;
    nb_plan_init(&p, caps, NULL);
    return p.attn_prefill->need ? p.attn_prefill : NULL;
}

/* Levels from the highest, each with a row of its own; rows that need nothing are for machines that have
 * nothing else. */
static void find_candidates(nb_tune_op *op, const nb_engine *e, nb_caps caps)
{
    size_t n = 0;
    while (nb_cpu_level_table[n].name) n++;
    const void *last = NULL;
    for (size_t i = n; i-- > 0 && op->n < NB_TUNE_MAX_LEVEL;) {
        const nb_cpu_level *l = &nb_cpu_level_table[i];
        const char *act = NULL;
        if (l->mask & ~caps) continue;
        const void *row = row_of(op, e, l->mask, &act);
        if (!row || row == last) continue;
        /* Beside AVX-512, not below it: a candidate only where it has a row. */
        const char *other = NULL;
        if (l->bit == NB_CAP_AVXVNNI && row == row_of(op, e, l->mask & ~l->bit, &other)) continue;
        last = row;
        op->level[op->n++] = (nb_tune_level){ .name = l->name, .mask = l->mask, .act = act };
    }
}

static void add(nb_tune *t, const nb_engine *e, nb_caps caps, nb_tune_op op)
{
    if (t->n == NB_TUNE_MAX_OP) return;
    find_candidates(&op, e, caps);
    if (op.n > 1) t->op[t->n++] = op;
}

static void add_products(nb_tune *t, nb_engine *e, nb_caps caps)
{
    shapes s = { .n = 0 };
    (void)nb_model_each_matrix(&e->model, count_shape, &s);
    for (int type = 0; type < NB_W_TYPE_COUNT; type++) {
        const shape *most = NULL;
        for (size_t i = 0; i < s.n; i++)
            if (s.of[i].type == (nb_wtype)type && (!most || s.of[i].values > most->values))
                most = &s.of[i];
        if (!most) continue;
        nb_tune_op op = { .kind = NB_TUNE_LINEAR,
                          .type = (nb_wtype)type,
                          .n_row = most->n_row,
                          .n_col = most->n_col,
                          .into = &e->levels.linear[type] };
        (void)snprintf(op.name, sizeof op.name, "linear_%s", nb_wtypes[type].word);
        add(t, e, caps, op);
    }
}

/* Of the first layer with latent attention. */
static void add_attention(nb_tune *t, nb_engine *e, nb_caps caps)
{
    for (size_t i = 0; i < e->model.c.n_layer; i++) {
        const nb_attn_config *a = nb_layer_attn(&e->model.c, i);
        if (!nb_attn_is_latent(a)) continue;
        nb_tune_op op = { .kind = NB_TUNE_PAGES,
                          .record = &e->pages.record[i],
                          .n_head = a->n_head,
                          .into = &e->levels.attn_pages };
        (void)snprintf(op.name, sizeof op.name, "attn_pages");
        add(t, e, caps, op);
        op.kind = NB_TUNE_PREFILL;
        op.into = &e->levels.attn_prefill;
        (void)snprintf(op.name, sizeof op.name, "attn_prefill");
        if (e->step.form != NB_FORM_ABSORBED) add(t, e, caps, op);
        return;
    }
}

/* ---- measuring ---- */

/* *us: microseconds of all parts of a case, if they are fewer than what it holds. */
static nb_status time_case(nb_kbench *b, const nb_kbench_case *c, double *us, nb_error *err)
{
    nb_kbench_row row[NB_KBENCH_MAX_ROW];
    size_t n = 0;
    NB_TRY(nb_kbench_run(b, c, row, &n, err));
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += row[i].best_ns / 1e3;
    if (*us == 0 || sum < *us) *us = sum;
    return NB_OK;
}

static nb_status time_level(nb_kbench *b, const nb_tune_op *op, nb_tune_level *l, nb_error *err)
{
    static const char *const names[] = { "linear", "attn_pages", "attn_prefill" };
    nb_kbench_case c = { .op = names[op->kind],
                         .level = l->name,
                         .record = "nvfp4",
                         .weight = nb_wtypes[op->type].word,
                         .act = l->act,
                         .n_head = op->n_head ? op->n_head : 1,
                         .n_query = 1,
                         .context = CONTEXT,
                         .n_row = op->n_row ? op->n_row : 1,
                         .n_col = op->n_col ? op->n_col : 1,
                         .n_tok = FEW_TOK,
                         .cold = true,
                         .set_bytes = op->kind == NB_TUNE_LINEAR ? COLD_BYTES : 1,
                         .n_sample = SAMPLES,
                         .sample_s = SAMPLE_S,
                         .no_floor = true };
    if (op->kind == NB_TUNE_PAGES) {
        c.record = nb_kv_type_name(op->record->type);
        return time_case(b, &c, &l->few_us, err);
    }
    if (op->kind == NB_TUNE_PREFILL) {
        c.n_query = MANY_TOK;
        return time_case(b, &c, &l->many_us, err);
    }
    NB_TRY(time_case(b, &c, &l->few_us, err));
    c.n_tok = MANY_TOK;
    c.set_bytes = 1;
    return time_case(b, &c, &l->many_us, err);
}

/* Generated tokens and prompts count the same: the sum of both, each over that of the first candidate. */
static void choose(nb_tune_op *op)
{
    const nb_tune_level *first = &op->level[0];
    double best = 1;
    for (size_t i = 1; i < op->n; i++) {
        const nb_tune_level *l = &op->level[i];
        double sum = 0, n = 0;
        if (first->few_us > 0) sum += l->few_us / first->few_us, n++;
        if (first->many_us > 0) sum += l->many_us / first->many_us, n++;
        if (n > 0 && sum / n < best * (best < 1 ? 1 : BETTER)) {
            best = sum / n;
            op->chosen = i;
        }
    }
}

static nb_status measure(nb_tune *t, size_t n_thread, nb_error *err)
{
    nb_kbench *b = NULL;
    NB_TRY(nb_kbench_create(n_thread, 1, &b, err));
    nb_status st = NB_OK;
    for (size_t i = 0; i < t->n && st == NB_OK; i++) {
        nb_tune_op *op = &t->op[i];
        for (size_t k = 0; k < ROUNDS * op->n && st == NB_OK; k++)
            st = time_level(b, op, &op->level[k % op->n], err);
        if (st == NB_OK) choose(op);
    }
    nb_kbench_destroy(b);
    return st;
}

/* ---- the choice ---- */

static void apply(nb_engine *e, const nb_tune *t)
{
    for (size_t i = 0; i < t->n; i++) *t->op[i].into = t->op[i].level[t->op[i].chosen].mask;
    (void)snprintf(e->stats.tuned, sizeof e->stats.tuned, "%s", t->path.p);
}

static nb_status measure_and_keep(nb_engine *e, const nb_engine_options *o, nb_tune *t,
                                  nb_error *err)
{
    nb_error why = { 0 };
    if (o->progress) o->progress(o->progress_ctx, "timing kernels", 0, 0);
    NB_TRY(measure(t, nb_dev_n_worker(e->dev), err));
    const nb_status st = nb_tune_write(t, &why);
    if (st == NB_ERR_NOMEM) return nb_fail(err, st, "%s", why.msg);
    if (st == NB_OK)
        apply(e, t);
    else
        nb_engine_warn(
            e,
            "%s; kernels are taken in the order of their tables, because what was measured "
            "cannot be kept",
            why.msg);
    return NB_OK;
}

nb_status nb_engine_tune(nb_engine *e, const nb_engine_options *o, nb_caps caps, nb_error *err)
{
    static const char *const ways[] = { "off", "auto", "on", "again" };
    size_t way = 0;
    nb_levels_all(&e->levels);
    while (o->tune && way < NB_COUNT(ways) && strcmp(o->tune, ways[way]) != 0) way++;
    if (way == NB_COUNT(ways))
        return nb_fail(err, NB_ERR_ARG, "--tune %.100s: expected off, auto, on or again", o->tune);
    const bool dummy = o->load_format && !strcmp(o->load_format, "dummy");
    if (way == 0 || o->cpu_caps || e->rank[0].device.kind->own_memory) return NB_OK;
    if (way == 1 && (dummy || e->model.weight_bytes < LEAST_BYTES)) return NB_OK;
    nb_tune *t = calloc(1, sizeof *t);
    if (!t) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < e->model.c.n_layer; i++) /* nb_plan_init_exact */
        if (e->pages.record[i].type == NB_KV_F32)
            caps &= ~(nb_caps)(NB_CAP_AMX | NB_CAP_AVX512BF16);
    add_products(t, e, caps);
    add_attention(t, e, caps);
    nb_error why = { 0 };
    nb_status st = t->n ? nb_tune_name(t, caps, nb_dev_n_worker(e->dev), &why) : NB_OK;
    if (t->n && st == NB_OK && way != 3) {
        bool found = false;
        const nb_status read = nb_tune_read(t, &found, &why);
        if (read != NB_OK) nb_engine_warn(e, "%s; kernels are timed again", why.msg);
        if (found) apply(e, t);
        if (!found) st = measure_and_keep(e, o, t, err);
    } else if (t->n && st == NB_OK) {
        st = measure_and_keep(e, o, t, err);
    } else if (st == NB_ERR_NOT_FOUND) { /* no folder to keep it in */
        nb_engine_warn(e, "%s; kernels are taken in the order of their tables", why.msg);
        st = NB_OK;
    }
    nb_tune_deinit(t);
    free(t);
    return st;
}
