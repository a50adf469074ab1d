/* records.c - which record each layer's cache has, and where its page lies in a block.
 *
 * Most models have one record in all layers.  They differ where --kv-cache-dtype-skip-layers
 * leaves some in the model's own type, where a calibration file chose by measurement, and in
 * outlier channels and checkpoints' scales, which belong to a layer.  All records of a model have the same
 * values per token, so that open pages and workspace do not depend on them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine_internal.h"
#include "model/kv_size.h"
#include "num/traits.h"

/* What the options say, for every layer. */
typedef struct wish {
    nb_kv_type own, type; /* of the model; asked for */
    bool by_calib;        /* --kv-cache-dtype auto with a calibration file: the file chooses */
    bool have_mode;
    nb_kv_mode mode;
    bool have_rope;
    nb_rope_fmt rope;
    size_t n_outlier;
} wish;

static nb_status read_wish(const nb_engine *e, const nb_engine_options *o, wish *w, nb_error *err)
{
    const char *dtype = o->kv_cache_dtype ? o->kv_cache_dtype : "auto";
    const bool is_auto = !strcmp(dtype, "auto");
    w->own = w->type = nb_kv_type_own(&e->model.c);
    w->by_calib = is_auto && e->kvo.have_calib;
    if (is_auto && e->kvo.algo == NB_KV_ALGO_FP8) w->type = NB_KV_FP8;
    if (is_auto && e->kvo.algo == NB_KV_ALGO_NVFP4) w->type = NB_KV_NVFP4;
    if (!is_auto && nb_kv_type_parse(dtype, &w->type) != NB_OK)
        return nb_fail(err, NB_ERR_ARG, "--kv-cache-dtype %s: expected one of auto%s", dtype,
                       NB_KV_LIST);
    w->have_mode = o->kv_cache_mode != NULL;
    if (o->kv_cache_mode && nb_kv_mode_parse(o->kv_cache_mode, &w->mode) != NB_OK)
        return nb_fail(err, NB_ERR_ARG, "--kv-cache-mode %s: expected basic, 4over6 or search",
                       o->kv_cache_mode);
    w->rope = nb_rope_fmt_default(true);
    if (o->kv_rope_dtype && nb_rope_fmt_parse(o->kv_rope_dtype, &w->rope) != NB_OK)
        return nb_fail(err, NB_ERR_ARG, "--kv-rope-dtype %s: expected fp8, bf16 or int8",
                       o->kv_rope_dtype);
    w->have_rope = o->kv_rope_dtype != NULL;
    if (o->kv_outliers > NB_MAX_OUTLIER)
        return nb_fail(err, NB_ERR_RANGE, "--kv-outliers %zu: at most %d", o->kv_outliers,
                       NB_MAX_OUTLIER);
    if (o->kv_outliers && !e->kvo.have_calib)
        return nb_fail(err, NB_ERR_ARG,
                       "--kv-outliers %zu: which channels these are is measured: --kv-calibration "
                       "FILE is missing",
                       o->kv_outliers);
    w->n_outlier = o->kv_outliers;
    if (o->kv_sinks > NB_PAGE_TOK)
        return nb_fail(err, NB_ERR_RANGE, "--kv-sinks %zu: at most %d", o->kv_sinks, NB_PAGE_TOK);
    if (o->kv_sinks && nb_attn_any(&e->model.c, NB_ATTN_CSA))
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "--kv-sinks %zu: rows of compressed attention (%s) stand for several tokens", o->kv_sinks,
                       e->model.c.family);
    return NB_OK;
}

/* ---- --kv-cache-dtype-skip-layers ---- */

static bool number(const char **p, size_t *out)
{
    size_t v = 0;
    const char *s = *p;
    for (; *s >= '0' && *s <= '9' && v <= NB_MAX_LAYER; s++) v = v * 10 + (size_t)(*s - '0');
    const bool ok = s != *p && v <= NB_MAX_LAYER;
    *p = s;
    *out = v;
    return ok;
}

/* "0,2,5-7" into skip[n_layer]. */
static nb_status read_skip(const char *list, size_t n_layer, bool *skip, nb_error *err)
{
    const char *p = list;
    while (p && *p) {
        size_t a, b;
        bool ok = number(&p, &a);
        b = a;
        if (ok && *p == '-') {
            p++;
            ok = number(&p, &b);
        }
        if (!ok || b < a || (*p && *p != ',') || (*p == ',' && !p[1]))
            return nb_fail(err, NB_ERR_ARG,
                           "--kv-cache-dtype-skip-layers %s: expected layers such as 0,2,5-7",
                           list);
        if (b >= n_layer)
            return nb_fail(err, NB_ERR_RANGE,
                           "--kv-cache-dtype-skip-layers %s: layer %zu of a model with layers "
                           "0..%zu",
                           list, b, n_layer - 1);
        for (size_t i = a; i <= b; i++) skip[i] = true;
        if (*p == ',') p++;
    }
    return NB_OK;
}

/* ---- a layer ---- */

static void calibrated(const nb_kv_calib_layer *l, const wish *w, nb_kv_type *type,
                       nb_kv_mode *mode, nb_rope_fmt *rope)
{
    if (!w->by_calib || !l->kv_dtype[0]) return;
    (void)nb_kv_type_parse(l->kv_dtype, type); /* the reader has checked the names */
    *mode = nb_kv_mode_default(*type);
    if (l->kv_mode[0]) (void)nb_kv_mode_parse(l->kv_mode, mode);
    *rope = l->rope;
}

static void checkpoint_scales(const nb_engine *e, size_t layer, nb_record_opts *ro)
{
    const nb_kv_scale *s = e->kvo.scale ? &e->kvo.scale[layer] : NULL;
    if (!s || nb_kv_main(ro->type)->fixed_top == 0) return;
    /* amax / 2688 leaves block scales no room to be one and a half times as large, which 4over6
     * tries: there the outer scale is amax / (6 * 256). */
    const bool headroom = nb_kv_traits[ro->type]->modes && ro->mode == NB_KV_4OVER6;
    const float f = headroom ? 448.0f / 256.0f : 1.0f;
    if (ro->seg[0].role != NB_ROLE_LATENT) {
        ro->seg[0].fixed_scale = s->k * f;
        ro->seg[1].fixed_scale = s->v * f;
        return;
    }
    /* One latent is key and value; in FP8 the scale is that of the rope key too, where that is
     * FP8 as well. */
    ro->seg[0].fixed_scale = (s->k > s->v ? s->k : s->v) * f;
    if (ro->type == NB_KV_FP8 && ro->rope == NB_ROPE_FP8)
        ro->seg[1].fixed_scale = ro->seg[0].fixed_scale;
}

static nb_status choose(nb_engine *e, const wish *w, size_t layer, bool skip, nb_error *err)
{
    const nb_kv_calib_layer *l = e->kvo.have_calib ? &e->kvo.calib.layer[layer] : NULL;
    nb_kv_type type = w->type;
    nb_kv_mode mode = nb_kv_mode_default(type);
    const nb_attn_config *attn = nb_layer_attn(&e->model.c, layer);
    if (!nb_attention_of(attn->kind)->record) { /* it caches nothing */
        const nb_record_opts none = { .type = type };
        return nb_record_init(&e->pages.record[layer], &none, err);
    }
    nb_rope_fmt rope =
        nb_attention_of(attn->kind)->has_rope_key || w->have_rope ? w->rope : nb_rope_fmt_default(false);
    if (l) calibrated(l, w, &type, &mode, &rope);
    if (w->have_mode) mode = w->mode;
    if (w->have_rope) rope = w->rope;
    /* A checkpoint's FP8 scale was measured for both parts of a token. */
    else if (type == NB_KV_FP8 && e->kvo.scale && nb_attn_is_latent(attn) &&
             (e->kvo.scale[layer].k > 0 || e->kvo.scale[layer].v > 0))
        rope = NB_ROPE_FP8;
    if (skip) type = w->own;
    nb_record_opts ro;
    uint16_t outlier[NB_MAX_OUTLIER];
    nb_model_record_opts(attn, type, mode, rope, &ro);
    const size_t n = w->n_outlier ? w->n_outlier : l ? l->n_outlier : 0;
    if (n && l && nb_kv_bits(type) == 4) {
        const unsigned t = e->kvo.transform ? e->kvo.transform[layer] : 0;
        if (n > l->n_values)
            return nb_fail(err, NB_ERR_RANGE, "--kv-outliers %zu: layer %zu has %zu channels", n,
                           layer, l->n_values);
        nb_kv_calib_outliers(l, t & NB_TRANSFORM_CENTER, t & NB_TRANSFORM_EQUALIZE, n, outlier);
        ro.seg[0].outlier = outlier;
        ro.seg[0].n_outlier = n;
    }
    if (l && !nb_kv_traits[type]->own_rope && l->n_rope_outlier) {
        ro.seg[1].outlier = l->rope_outlier; /* a rope key in BF16 has no use for them */
        ro.seg[1].n_outlier = l->n_rope_outlier;
    }
    checkpoint_scales(e, layer, &ro);
    return nb_record_init(&e->pages.record[layer], &ro, err);
}

nb_status nb_engine_choose_records(nb_engine *e, const nb_engine_options *o, nb_error *err)
{
    const size_t n_layer = e->model.c.n_layer;
    bool skip[NB_MAX_LAYER] = { false };
    wish w = { 0 };
    NB_TRY(read_wish(e, o, &w, err));
    NB_TRY(read_skip(o->kv_skip_layers, n_layer, skip, err));
    e->pages.record = calloc(n_layer, sizeof *e->pages.record);
    e->pages.layer_off = calloc(n_layer + 1, sizeof *e->pages.layer_off);
    e->pages.tail_off = calloc(n_layer + 1, sizeof *e->pages.tail_off);
    e->pages.sink_off = calloc(n_layer + 1, sizeof *e->pages.sink_off);
    e->pages.state_off = calloc(n_layer + 1, sizeof *e->pages.state_off);
    if (!e->pages.state_off || !e->pages.record || !e->pages.layer_off || !e->pages.tail_off ||
        !e->pages.sink_off)
        return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    const char *name = w.by_calib ? "calibrated" : nb_kv_type_name(w.type);
    (void)snprintf(e->pages.kv_dtype, sizeof e->pages.kv_dtype, "%s", name);
    for (size_t i = 0; i < n_layer; i++) NB_TRY(choose(e, &w, i, skip[i], err));
    NB_TRY(nb_kv_layer_offsets(e->pages.record, n_layer, e->pages.layer_off, err));
    e->pages.block_bytes = e->pages.layer_off[n_layer];
    e->pages.n_sink = o->kv_sinks;
    (void)nb_kv_tail_offsets(e->pages.record, n_layer, e->pages.tail_off);
    (void)nb_attn_state_offsets(&e->model.c, e->pages.state_off);
    (void)nb_kv_sink_offsets(e->pages.record, n_layer, e->pages.n_sink, e->pages.sink_off);
    return NB_OK;
}

nb_kv_pool nb_engine_pool_of(const nb_engine *e, const nb_engine_rank *r)
{
    return (nb_kv_pool){
        .page = r->kv,
        .block_bytes = e->pages.block_bytes,
        .n_block = e->pages.n_part > 1 ? e->pages.n_block / e->pages.n_part : 0,
        .page_off = e->pages.layer_off,
        .tail = r->tails,
        .tail_floats = e->pages.tail_bytes / sizeof *r->tails,
        .tail_off = e->pages.tail_off,
        .state0 = e->pages.tail_off[e->model.c.n_layer],
        .state_floats = e->pages.state_off[e->model.c.n_layer],
        .state_off = e->pages.state_off,
        .snap = r->snaps,
        .sink = r->sinks,
        .sink_block = e->pages.sink_off[e->model.c.n_layer],
        .sink_off = e->pages.sink_off,
        .plane = r->plane,
        .plane_block = e->pages.plane_block,
        .plane_off = e->pages.plane_off,
    };
}

/* ---- in words ---- */

static bool same_layout(const nb_record *a, const nb_record *b)
{
    for (size_t i = 0; i < a->n_seg && i < b->n_seg; i++)
        if (a->seg[i].fmt != b->seg[i].fmt || a->seg[i].role != b->seg[i].role) return false;
    return a->type == b->type && a->n_seg == b->n_seg && a->page_bytes == b->page_bytes;
}

/* The planes of a page, in the order of their offsets (record.h). */
static void describe_page(const nb_record *r, const char *const *name, nb_buf *b)
{
    if (r->n_seg == 0) {
        (void)nb_buf_printf(b, "a state per request");
        return;
    }
    if (nb_kv_traits[r->type]->in_rows) {
        (void)nb_buf_printf(b, "rows %zux%zu", r->n_row, r->seg[0].code_stride);
        return;
    }
    for (size_t i = 0; i < r->n_seg; i++) {
        const nb_record_seg *s = &r->seg[i];
        (void)nb_buf_printf(b, "%s%s%s %zux%zu", i ? " + " : "", name[i],
                            s->fmt == NB_SEG_INT8 ? " int8" : "", r->n_row, s->code_stride);
        if (s->scale_stride)
            (void)nb_buf_printf(b, " + scales %zux%zu", nb_seg_scale_rows(s->fmt, r->n_row), s->scale_stride);
    }
    for (size_t i = 0; i < r->n_seg; i++)
        if (r->seg[i].outer_stride)
            (void)nb_buf_printf(b, " + %s outer %zux%zu", name[i], r->n_row,
                                r->seg[i].outer_stride);
    for (size_t i = 0; i < r->n_seg; i++)
        if (r->seg[i].n_outlier)
            (void)nb_buf_printf(b, " + %s outliers %zux%zu", name[i], r->n_row,
                                r->seg[i].side_stride);
}

void nb_engine_describe_layout(nb_engine *e)
{
    const size_t n = e->model.c.n_layer;
    nb_buf b = { 0 };
    for (size_t i = 0, end; i < n; i = end) { /* runs of layers that are alike */
        for (end = i + 1; end < n && same_layout(&e->pages.record[i], &e->pages.record[end]);)
            end++;
        if (i || end < n) (void)nb_buf_printf(&b, "%slayers %zu-%zu: ", i ? "; " : "", i, end - 1);
        describe_page(&e->pages.record[i], nb_layer_attention(&e->model.c, i)->plane, &b);
    }
    (void)snprintf(e->pages.kv_layout, sizeof e->pages.kv_layout, "%s", b.p ? b.p : "");
    nb_buf_deinit(&b);
}
