/* calibrate.c - see calibrate.h: the passes over the text, and what they come to.
 *
 *   1  windows that are not held out: statistics of each layer; transforms follow from them
 *   2  held-out windows: every transform with the record that is asked for; one per layer is chosen
 *   3  with a budget, held-out windows again: records with that transform; one per layer is chosen
 *
 * Tensors are captured anew in each pass instead of being kept: a long text of a large model would
 * not fit into memory. */
#include "calibrate/calibrate.h"

#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "base/str.h"
#include "calibrate/calibrate_internal.h"
#include "num/traits.h"

enum {
    MAX_LIST = 16,      /* transforms of --candidates */
    STAT_QUERIES = 16,  /* per window of the statistics */
    MIN_HELD_TOK = 128, /* of a window that is held out */
    MAX_CAND = 96       /* per layer and pass */
};

typedef struct layer_state {
    calib_stats stats;
    calib_layer_stats s;
    size_t n0, dim[2], n_vec[2];
    bool is_mla;
    calib_candidate c[MAX_CAND];
    size_t n_cand, n_transform; /* pass 2: those before n_transform are about transforms */
    double *ref_sq;             /* [n_head] */
    /* chosen */
    calib_transform transform; /* for 4-bit records */
    calib_transform no_mix;    /* the same, but none with a Hadamard transform: for outliers */
    calib_scaling scaling;     /* what the file says of D and P */
    double plain_error, rope_error[NB_ROPE_WAYS];
    calib_candidate best;
} layer_state;

typedef struct calibration {
    const nb_calibrate_options *o;
    nb_engine *e;
    nb_engine_info info;
    nb_arena arena;
    calib_bench bench;
    unsigned list[MAX_LIST]; /* CALIB_* of the candidates, none first */
    size_t n_list;
    bool *held; /* [n_window] */
    size_t n_held, n_query, n_stat_tok;
    layer_state *layer; /* [info.n_layer] */
    size_t *pos;        /* of the queries of the window in hand */
    size_t n_pos, first_query;
    uint64_t done, total; /* windows, for the progress bar */
    nb_status st;         /* of a callback */
    nb_error *err;
} calibration;

static nb_status no_memory(nb_error *err)
{
    return nb_fail(err, NB_ERR_NOMEM, "out of memory for a calibration");
}

/* ---- the list of transforms ---- */

static nb_status parse_transform(nb_str word, unsigned *out, nb_error *err)
{
    static const struct {
        const char *name;
        unsigned part;
    } parts[] = { { "none", 0 },
                  { "center", CALIB_CENTER },
                  { "equalize", CALIB_EQUALIZE },
                  { "hadamard", CALIB_HADAMARD } };
    unsigned sum = 0;
    size_t n = 0;
    for (nb_str rest = word;; n++) {
        const char *plus = rest.n_bytes ? memchr(rest.p, '+', rest.n_bytes) : NULL;
        const nb_str part = { rest.p, plus ? (size_t)(plus - rest.p) : rest.n_bytes };
        size_t i = 0;
        while (i < NB_COUNT(parts) && !nb_str_eqc(part, parts[i].name)) i++;
        if (i == NB_COUNT(parts) || (i == 0 && (n || plus)) || (sum & parts[i].part))
            return nb_fail(err, NB_ERR_ARG,
                           "--candidates: %.*s: expected none, or center, equalize, hadamard "
                           "joined by +",
                           (int)(word.n_bytes < 80 ? word.n_bytes : 80), word.p);
        sum |= parts[i].part;
        if (!plus) break;
        rest = (nb_str){ plus + 1, rest.n_bytes - part.n_bytes - 1 };
    }
    *out = sum;
    return NB_OK;
}

static nb_status parse_list(calibration *c)
{
    const char *p = c->o->candidates ? c->o->candidates : NB_CALIB_CANDIDATES;
    c->list[c->n_list++] = 0; /* none is always measured */
    for (;;) {
        const size_t n = strcspn(p, ",");
        unsigned t = 0;
        NB_TRY(parse_transform((nb_str){ p, n }, &t, c->err));
        size_t i = 0;
        while (i < c->n_list && c->list[i] != t) i++;
        if (i == c->n_list) c->list[c->n_list++] = t; /* there are 8 of them: they fit */
        if (!p[n]) return NB_OK;
        p += n + 1;
    }
}

/* ---- windows and positions ---- */

static size_t window_tokens(const calibration *c, size_t w)
{
    return c->o->begin[w + 1] - c->o->begin[w];
}

/* Held-out windows are spread over the text. */
static nb_status split(calibration *c)
{
    const nb_calibrate_options *o = c->o;
    size_t n_fit = 0, seen = 0;
    for (size_t w = 0; w < o->n_window; w++) n_fit += window_tokens(c, w) >= MIN_HELD_TOK;
    size_t want = (size_t)((double)n_fit * o->held_out + 0.5);
    if (want < 1) want = 1;
    if (want >= o->n_window) want = o->n_window - 1;
    if (n_fit == 0 || want == 0)
        return nb_fail(c->err, NB_ERR_ARG,
                       "the text makes %zu windows: calibration needs two of %d tokens or more "
                       "(a longer text, or a smaller --context)",
                       o->n_window, MIN_HELD_TOK);
    c->held = nb_arena_array(&c->arena, o->n_window, sizeof *c->held);
    if (!c->held) return no_memory(c->err);
    for (size_t w = 0; w < o->n_window; w++) {
        if (window_tokens(c, w) < MIN_HELD_TOK) continue;
        seen++;
        if (seen * want / n_fit == (seen - 1) * want / n_fit) continue;
        c->held[w] = true;
        c->n_held++;
    }
    for (size_t w = 0; w < o->n_window; w++)
        if (!c->held[w]) c->n_stat_tok += window_tokens(c, w);
    return NB_OK;
}

/* One position in each of n equal parts of [first, n_tok). */
static void place_queries(calibration *c, size_t w, size_t first, size_t n)
{
    const size_t n_tok = window_tokens(c, w), room = n_tok > first ? n_tok - first : 0;
    c->n_pos = n < room ? n : room;
    for (size_t i = 0; i < c->n_pos; i++) {
        const size_t a = i * room / c->n_pos, b = (i + 1) * room / c->n_pos;
        c->pos[i] = first + a + (size_t)(nb_rng_u64(c->o->seed, w * 65537 + i) % (b - a));
    }
}

static nb_status capture(calibration *c, size_t w, nb_capture_fn *fn, const char *label)
{
    const nb_calibrate_options *o = c->o;
    if (o->progress) o->progress(o->progress_ctx, label, c->done, c->total);
    nb_error why = { 0 };
    c->st = NB_OK;
    const nb_status st = nb_engine_capture(c->e, o->ids + o->begin[w], window_tokens(c, w), c->pos,
                                           c->n_pos, fn, c, &why);
    c->done++;
    if (st == NB_OK || c->st != NB_OK) return c->st; /* the callback's own line is there */
    return nb_fail(c->err, st, "%s", why.msg);
}

/* ---- pass 1 ---- */

static int take_statistics(void *ctx, const nb_capture_layer *l)
{
    calibration *c = ctx;
    layer_state *y = &c->layer[l->layer];
    y->is_mla = l->is_mla;
    y->n0 = l->n_vec[0] * l->dim[0];
    memcpy(y->dim, l->dim, sizeof y->dim);
    memcpy(y->n_vec, l->n_vec, sizeof y->n_vec);
    c->st = nb_calib_stats_add(&y->stats, l, &c->arena);
    return c->st != NB_OK;
}

static nb_status statistics(calibration *c)
{
    for (size_t w = 0; w < c->o->n_window; w++) {
        if (c->held[w]) continue;
        place_queries(c, w, 0, STAT_QUERIES);
        NB_TRY(capture(c, w, take_statistics, "statistics"));
    }
    for (size_t i = 0; i < c->info.n_layer; i++) {
        layer_state *y = &c->layer[i];
        if (nb_calib_stats_finish(&y->stats, y->is_mla, &c->arena, &y->s) != NB_OK)
            return no_memory(c->err);
    }
    return NB_OK;
}

/* ---- candidates ---- */

static void describe(const layer_state *y, calib_scaling scaling, nb_kv_calib_layer *out)
{
    *out = (nb_kv_calib_layer){
        .n_values = y->n0,
        .mean = y->s.mean,
        .sd = y->s.sd,
        .amax = y->stats.amax,
        .token_amax = y->stats.token_amax,
        .n_pair = y->stats.n_pair,
        .pair_max = y->stats.pair_max,
        .pair_mean = y->s.pair_mean,
        .scale_log2 = y->s.scale_log2[scaling],
        .perm = y->s.perm[scaling],
        .hadamard = y->s.hadamard,
    };
}

/* The record that is asked for: its rope key only means something with MLA. */
static nb_calib_record asked(const calibration *c, const layer_state *y)
{
    nb_calib_record r = c->o->record;
    if (!y->is_mla) r.rope = NB_ROPE_FP8;
    return r;
}

/* Adds a candidate; one that the layer's shape or the record does not allow is left out. */
static nb_status add(calibration *c, layer_state *y, calib_transform t, nb_calib_record r)
{
    if ((t.parts & CALIB_HADAMARD) && (!y->s.hadamard || (r.n_outlier && nb_kv_bits(r.type) == 4)))
        return NB_OK;
    if ((!y->is_mla && (r.rope != NB_ROPE_FP8 || r.n_pair)) || r.n_outlier > y->n0) return NB_OK;
    NB_ASSERT(y->n_cand < MAX_CAND);
    calib_candidate *k = &y->c[y->n_cand];
    nb_kv_calib_layer l;
    uint16_t outlier[NB_MAX_OUTLIER], rope[NB_MAX_OUTLIER];
    *k = (calib_candidate){ .t = t, .record = r };
    describe(y, t.scaling, &l);
    nb_kv_calib_outliers(&l, t.parts & CALIB_CENTER, t.parts & CALIB_EQUALIZE, r.n_outlier,
                         outlier);
    const size_t n_rope = nb_calib_rope_outliers(&y->stats, &y->s, r.n_pair, rope);
    nb_record_opts ro = y->is_mla
                            ? (nb_record_opts){ NB_SEGS_MLA(y->dim[0], y->dim[1]) }
                            : (nb_record_opts){ NB_SEGS_KV(y->dim[0], y->dim[1], y->n_vec[0]) };
    ro.type = r.type;
    ro.mode = r.mode;
    ro.rope = r.rope;
    ro.seg[0].outlier = outlier;
    ro.seg[0].n_outlier = nb_kv_bits(r.type) == 4 ? r.n_outlier : 0;
    ro.seg[1].outlier = rope;
    ro.seg[1].n_outlier = n_rope;
    nb_error why;
    const nb_status st = nb_record_init(&k->layout, &ro, &why);
    if (st != NB_OK && y->n_cand) return NB_OK;
    if (st != NB_OK) return nb_fail(c->err, st, "%s", why.msg);
    k->bits = (double)k->layout.page_bytes * 8 / (NB_PAGE_TOK * (double)k->layout.n_values);
    k->loss = nb_arena_array(&c->arena, c->n_held * c->n_query, sizeof *k->loss);
    k->err_sq = nb_arena_array(&c->arena, c->info.n_head, sizeof *k->err_sq);
    if (!k->loss || !k->err_sq) return no_memory(c->err);
    y->n_cand++;
    return NB_OK;
}

static int measure_layer(void *ctx, const nb_capture_layer *l)
{
    calibration *c = ctx;
    layer_state *y = &c->layer[l->layer];
    c->st =
        nb_calib_measure(&c->bench, l, &y->s, y->c, y->n_cand, c->first_query, y->ref_sq, c->err);
    return c->st != NB_OK;
}

/* All candidates of all layers on the held-out windows. */
static nb_status measure(calibration *c, const char *label)
{
    c->first_query = 0;
    for (size_t i = 0; i < c->info.n_layer; i++)
        memset(c->layer[i].ref_sq, 0, c->info.n_head * sizeof *c->layer[i].ref_sq);
    for (size_t w = 0; w < c->o->n_window; w++) {
        if (!c->held[w]) continue;
        place_queries(c, w, NB_PAGE_TOK, c->n_query);
        NB_TRY(capture(c, w, measure_layer, label));
        c->first_query += c->n_pos;
    }
    for (size_t i = 0; i < c->info.n_layer; i++) {
        layer_state *y = &c->layer[i];
        nb_calib_summarise(y->c, y->n_cand, c->first_query, y->ref_sq, c->info.n_head);
    }
    return NB_OK;
}

/* ---- pass 2 ---- */

static nb_status add_transforms(calibration *c, layer_state *y)
{
    y->n_cand = 0;
    for (size_t i = 0; i < c->n_list; i++) {
        const unsigned parts = c->list[i];
        if (parts && !y->is_mla) continue;
        for (int k = 0; k < CALIB_SCALINGS; k++) {
            if (k && !(parts & CALIB_EQUALIZE)) break;
            NB_TRY(add(c, y, (calib_transform){ parts, (calib_scaling)k }, asked(c, y)));
        }
    }
    y->n_transform = y->n_cand;
    for (size_t k = 0; k < NB_ROPE_WAYS && y->is_mla; k++) {
        nb_calib_record r = asked(c, y);
        r.rope = nb_rope_ways[k].fmt;
        r.n_pair = nb_rope_ways[k].n_pair;
        NB_TRY(add(c, y, (calib_transform){ 0 }, r));
    }
    return NB_OK;
}

/* Of the candidates that `allow` takes; out of them `none` when nothing is surely better. */
static nb_status choose_among(calibration *c, layer_state *y, unsigned forbidden, size_t *out)
{
    calib_candidate some[MAX_CAND];
    size_t at[MAX_CAND], n = 0, k = 0;
    for (size_t i = 0; i < y->n_transform; i++) {
        if (y->c[i].t.parts & forbidden) continue;
        at[n] = i;
        some[n++] = y->c[i];
    }
    NB_TRY(nb_calib_choose_transform(some, n, c->first_query, c->o->seed, &k, c->err));
    *out = at[k];
    return NB_OK;
}

static nb_status choose_transform(calibration *c, layer_state *y)
{
    size_t k = 0, plain = 0, best = SIZE_MAX;
    NB_TRY(choose_among(c, y, 0, &k));
    NB_TRY(choose_among(c, y, CALIB_HADAMARD, &plain));
    y->transform = y->c[k].t;
    y->no_mix = y->c[plain].t;
    y->best = y->c[k];
    y->plain_error = y->c[0].error;
    for (size_t i = y->n_transform; i < y->n_cand; i++)
        y->rope_error[i - y->n_transform] = y->c[i].error;
    y->scaling = y->transform.scaling;
    if (y->transform.parts & CALIB_EQUALIZE) return NB_OK;
    /* Not used, but in the file, for those who ask for it: the scaling that did best. */
    for (size_t i = 0; i < y->n_transform; i++)
        if ((y->c[i].t.parts & CALIB_EQUALIZE) &&
            (best == SIZE_MAX || y->c[i].mean_loss < y->c[best].mean_loss))
            best = i;
    if (best != SIZE_MAX) y->scaling = y->c[best].t.scaling;
    return NB_OK;
}

/* ---- pass 3 ---- */

static nb_status add_records(calibration *c, layer_state *y)
{
    static const nb_calib_record four[] = {
        { NB_KV_MXFP4, NB_KV_BASIC, NB_ROPE_FP8, 0, 0 },
        { NB_KV_NVFP4, NB_KV_4OVER6, NB_ROPE_FP8, 0, 0 },
        { NB_KV_NVFP4, NB_KV_SEARCH, NB_ROPE_FP8, 0, 0 },
        { NB_KV_IF4, NB_KV_SEARCH, NB_ROPE_FP8, 0, 0 },
        { NB_KV_INT4, NB_KV_BASIC, NB_ROPE_FP8, 0, 0 },
    };
    static const size_t outliers[] = { 0, 4, 8 };
    const calib_transform none = { 0 };
    y->n_cand = 0;
    NB_TRY(add(c, y, none, (nb_calib_record){ .type = NB_KV_BF16 }));
    for (size_t j = 0; j < NB_ROPE_WAYS; j++) {
        const nb_calib_record r = { .type = NB_KV_FP8,
                                    .rope = nb_rope_ways[j].fmt,
                                    .n_pair = nb_rope_ways[j].n_pair };
        NB_TRY(add(c, y, none, r));
        if (y->no_mix.parts) NB_TRY(add(c, y, y->no_mix, r));
    }
    for (size_t k = 0; k < NB_COUNT(outliers); k++)
        for (size_t i = 0; i < NB_COUNT(four); i++)
            for (size_t j = 0; j < NB_ROPE_WAYS; j++) {
                nb_calib_record r = four[i];
                r.rope = nb_rope_ways[j].fmt;
                r.n_pair = nb_rope_ways[j].n_pair;
                r.n_outlier = outliers[k];
                NB_TRY(add(c, y, r.n_outlier ? y->no_mix : y->transform, r));
            }
    return NB_OK;
}

static void take(layer_state *y, size_t k)
{
    y->best = y->c[k];
    if (y->best.t.parts & CALIB_EQUALIZE) y->scaling = y->best.t.scaling;
}

static nb_status choose_records(calibration *c)
{
    const size_t n_layer = c->info.n_layer;
    if (c->o->target_bits <= 0) {
        for (size_t i = 0; i < n_layer; i++)
            take(&c->layer[i],
                 nb_calib_choose_error(c->layer[i].c, c->layer[i].n_cand, c->o->max_error));
        return NB_OK;
    }
    calib_candidate *all = nb_arena_array(&c->arena, n_layer * MAX_CAND, sizeof *all);
    size_t *n = nb_arena_array(&c->arena, n_layer, sizeof *n);
    size_t *pick = nb_arena_array(&c->arena, n_layer, sizeof *pick);
    if (!all || !n || !pick) return no_memory(c->err);
    for (size_t i = 0; i < n_layer; i++) {
        n[i] = c->layer[i].n_cand;
        memcpy(all + i * MAX_CAND, c->layer[i].c, n[i] * sizeof *all);
    }
    NB_TRY(nb_calib_choose_bits(all, n, MAX_CAND, n_layer, c->o->target_bits, pick, c->err));
    for (size_t i = 0; i < n_layer; i++) take(&c->layer[i], pick[i]);
    return NB_OK;
}

/* ---- the result ---- */

static const void *keep(nb_arena *a, const void *p, size_t n_bytes)
{
    void *to = p ? nb_arena_alloc(a, n_bytes) : NULL;
    if (to) memcpy(to, p, n_bytes);
    return to;
}

static nb_status fill_layer(const layer_state *y, nb_arena *a, nb_kv_calib_layer *out)
{
    static const char *const modes[] = { "basic", "4over6", "search" };
    const nb_calib_record *r = &y->best.record;
    nb_kv_calib_layer l;
    describe(y, y->scaling, &l);
    const size_t n = l.n_values * sizeof(float), n_pair = l.n_pair * sizeof(float);
    l.mean = keep(a, l.mean, n);
    l.sd = keep(a, l.sd, n);
    l.amax = keep(a, l.amax, n);
    if (!l.mean || !l.sd || !l.amax) return NB_ERR_NOMEM;
    if (y->is_mla) {
        l.pair_max = keep(a, l.pair_max, n_pair);
        l.pair_mean = keep(a, l.pair_mean, n_pair);
        l.scale_log2 = keep(a, l.scale_log2, l.n_values);
        l.perm = keep(a, l.perm, l.n_values * sizeof *l.perm);
        if (!l.pair_max || !l.pair_mean || !l.scale_log2 || !l.perm) return NB_ERR_NOMEM;
    }
    l.use_center = y->best.t.parts & CALIB_CENTER;
    l.use_equalize = y->best.t.parts & CALIB_EQUALIZE;
    l.use_hadamard = y->best.t.parts & CALIB_HADAMARD;
    (void)snprintf(l.kv_dtype, sizeof l.kv_dtype, "%s", nb_kv_type_name(r->type));
    if (nb_kv_traits[r->type]->modes)
        (void)snprintf(l.kv_mode, sizeof l.kv_mode, "%s", modes[r->mode]);
    l.rope = r->rope;
    if (r->rope != NB_ROPE_BF16)
        l.n_rope_outlier = nb_calib_rope_outliers(&y->stats, &y->s, r->n_pair, l.rope_outlier);
    memcpy(l.rope_error, y->rope_error, sizeof l.rope_error);
    l.n_outlier = nb_kv_bits(r->type) == 4 ? r->n_outlier : 0;
    l.error = y->best.error;
    l.plain_error = y->plain_error;
    l.bits = y->best.bits;
    *out = l;
    return NB_OK;
}

static nb_status fill(calibration *c, nb_kv_calib *out)
{
    nb_kv_calib k = { .is_mla = c->layer[0].is_mla,
                      .n_layer = c->info.n_layer,
                      .n_tok = c->n_stat_tok,
                      .target_bits = c->o->target_bits };
    NB_TRY(nb_engine_model_hash(c->e, k.model_hash, c->err));
    (void)snprintf(k.family, sizeof k.family, "%s", c->info.family);
    k.layer = nb_arena_array(&k.arena, k.n_layer, sizeof *k.layer);
    nb_status st = k.layer ? NB_OK : NB_ERR_NOMEM;
    for (size_t i = 0; i < k.n_layer && st == NB_OK; i++) {
        st = fill_layer(&c->layer[i], &k.arena, &k.layer[i]);
        k.mean_bits += c->layer[i].best.bits / (double)k.n_layer;
    }
    if (st != NB_OK) {
        nb_kv_calib_deinit(&k);
        return no_memory(c->err);
    }
    *out = k;
    return NB_OK;
}

static nb_status run(calibration *c, nb_kv_calib *out)
{
    const nb_calibrate_options *o = c->o;
    const bool budget = o->target_bits > 0 || o->max_error > 0;
    NB_TRY(parse_list(c));
    NB_TRY(split(c));
    c->n_query = o->n_query ? o->n_query : NB_CALIB_QUERIES;
    c->layer = nb_arena_array(&c->arena, c->info.n_layer, sizeof *c->layer);
    c->pos = nb_arena_array(&c->arena, c->n_query + STAT_QUERIES, sizeof *c->pos);
    if (!c->layer || !c->pos) return no_memory(c->err);
    for (size_t i = 0; i < c->info.n_layer; i++) {
        c->layer[i].ref_sq = nb_arena_array(&c->arena, c->info.n_head, sizeof(double));
        if (!c->layer[i].ref_sq) return no_memory(c->err);
    }
    c->total = o->n_window + (budget ? c->n_held : 0);
    NB_TRY(statistics(c));
    for (size_t i = 0; i < c->info.n_layer; i++) NB_TRY(add_transforms(c, &c->layer[i]));
    NB_TRY(measure(c, "transforms"));
    for (size_t i = 0; i < c->info.n_layer; i++) NB_TRY(choose_transform(c, &c->layer[i]));
    if (budget) {
        for (size_t i = 0; i < c->info.n_layer; i++) NB_TRY(add_records(c, &c->layer[i]));
        NB_TRY(measure(c, "records"));
        NB_TRY(choose_records(c));
    }
    return fill(c, out);
}

nb_status nb_calibrate(nb_engine *e, const nb_calibrate_options *o, nb_kv_calib *out, nb_error *err)
{
    nb_error own = { 0 };
    if (!e || !o || !out) return nb_fail(err, NB_ERR_ARG, "no engine given");
    if (o->record.type == NB_KV_F32 || o->n_window < 2 || !(o->held_out > 0 && o->held_out < 1) ||
        (o->target_bits > 0 && o->max_error > 0))
        return nb_fail(err, NB_ERR_ARG,
                       "calibration takes a record that rounds, two windows of text, a share of "
                       "them that is held out, and one budget");
    calibration c = { .o = o, .e = e, .err = &own };
    nb_engine_get_info(e, &c.info);
    nb_calib_bench_init(&c.bench);
    const nb_status st = run(&c, out);
    nb_calib_bench_deinit(&c.bench);
    nb_arena_deinit(&c.arena);
    if (st == NB_OK) return NB_OK;
    return nb_fail(err, st, "%s", own.msg[0] ? own.msg : nb_status_text(st));
}
