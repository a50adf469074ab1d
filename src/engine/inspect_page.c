/* inspect_page.c - nb_engine_page_json: real values of one page at several precisions.
 *
 * The engine keeps the values of the page that a request is filling (its open page) as they
 * were computed, rounded to BF16; a page that is full has only its record.  So what is shown
 * is an open page: of the oldest running request that has one, else of the request that ended
 * last.  It is encoded here as each record would encode it, with the codecs that the forward
 * pass is tested against; rows that are not written yet are zeros and are not shown. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "engine/engine_internal.h"
#include "num/bf16.h"
#include "num/int4.h"
#include "num/traits.h"
#include "num/ue8m0.h"
#include "sched/sched_look.h"

enum {
    PLANE_VALUES = 2048, /* of a token in the planes */
    TOKEN_VALUES = 16384 /* largest token that is shown */
};

static const nb_kv_type shown_types[] = { NB_KV_BF16, NB_KV_FP8, NB_KV_NVFP4, NB_KV_IF4 };

typedef struct page_copy {
    /* asked */
    size_t layer;
    /* answered */
    bool have, running;
    nb_request_id id;
    size_t pos0, n_tok;
    uint32_t tok[NB_BLOCK_TOK];
    float *x; /* [64][n_values], rows from n_tok on are zero */
} page_copy;

void nb_engine_note_page(nb_engine *e, const nb_run *r)
{
    nb_sched_look_at v;
    if (!nb_sched_look(nb_sched_of(e, r), r->id, &v) || !v.running) return;
    const size_t n = v.n_computed % NB_BLOCK_TOK, pos0 = v.n_computed - n;
    if (n == 0) return; /* no open page: an earlier note may still hold */
    e->last_page = (nb_last_page){ .id = r->id, .shard = r->shard, .slot = v.slot, .pos0 = pos0, .n_tok = n };
    memcpy(e->last_page.tok, v.tok + pos0, n * sizeof *v.tok);
}

static void copy_rows(nb_engine *e, page_copy *p, size_t shard, size_t slot, const uint32_t *tok)
{
    const size_t n_values = e->pages.record[p->layer].n_values;
    const float *page = nb_engine_tail(e, shard, slot) + e->pages.tail_off[p->layer];
    memcpy(p->tok, tok, p->n_tok * sizeof *tok);
    nb_device *d = &e->rank[nb_shard_rank(e, shard)].device;
    d->kind->read(d, p->x, page, p->n_tok * n_values * sizeof *page);
    p->have = true;
}

static void take(nb_engine *e, void *ctx)
{
    page_copy *p = ctx;
    nb_sched_look_at best = { 0 };
    size_t shard = 0;
    for (const nb_run *r = e->live; r; r = r->next) {
        nb_sched_look_at v;
        if (!r->added || !nb_sched_look(nb_sched_of(e, r), r->id, &v) || !v.running) continue;
        if (v.n_computed % NB_BLOCK_TOK == 0 || (p->id && r->id > p->id)) continue;
        p->id = r->id;
        best = v;
        shard = r->shard;
    }
    if (p->id) {
        p->running = true;
        p->n_tok = best.n_computed % NB_BLOCK_TOK;
        p->pos0 = best.n_computed - p->n_tok;
        copy_rows(e, p, shard, best.slot, best.tok + p->pos0);
    } else if (e->last_page.n_tok) {
        p->id = e->last_page.id;
        p->n_tok = e->last_page.n_tok;
        p->pos0 = e->last_page.pos0;
        copy_rows(e, p, e->last_page.shard, e->last_page.slot, e->last_page.tok);
    }
}

/* ---- text ---- */

/* NULL (out of memory, or not finite) makes the document fail. */
static int add(json_t *list, json_t *v)
{
    return json_array_append_new(list, v);
}

static json_t *floats(const float *x, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < n; i++) {
        if (add(list, json_real((double)x[i])) == 0) continue;
        json_decref(list);
        list = NULL;
    }
    return list;
}

static json_t *base64(const unsigned char *p, size_t n)
{
    static const char set[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *text = malloc(4 * (n / 3 + 1) + 1), *out = text;
    if (!text) return NULL;
    for (size_t i = 0; i < n; i += 3) {
        const unsigned b = n - i > 1 ? p[i + 1] : 0, c = n - i > 2 ? p[i + 2] : 0;
        const unsigned v = (unsigned)p[i] << 16 | b << 8 | c;
        *out++ = set[v >> 18];
        *out++ = set[v >> 12 & 63];
        *out++ = n - i > 1 ? set[v >> 6 & 63] : '=';
        *out++ = n - i > 2 ? set[v & 63] : '=';
    }
    json_t *j = json_stringn(text, (size_t)(out - text));
    free(text);
    return j;
}

/* One byte for each value, the square root of its magnitude: small values stay visible. */
static json_t *plane(const float *x, size_t n_tok, size_t n_values, size_t n_shown, float amax)
{
    unsigned char *b = malloc(n_tok * n_shown);
    if (!b) return NULL;
    for (size_t t = 0; t < n_tok; t++)
        for (size_t i = 0; i < n_shown; i++) {
            const float v = x[t * n_values + i], m = amax > 0 ? fabsf(v) / amax : 0;
            const int q = (int)lrintf(127 * sqrtf(m < 1 ? m : 1));
            b[t * n_shown + i] = (unsigned char)(v < 0 ? -q : q);
        }
    json_t *j = base64(b, n_tok * n_shown);
    free(b);
    return j;
}

/* The token's text; bytes that are not UTF-8 by themselves have none. */
static json_t *token_text(const nb_text *text, uint32_t id)
{
    size_t n = 0;
    const char *p = text ? nb_text_token_bytes(text, id, &n) : NULL;
    if (!p || !nb_utf8_valid((nb_str){ p, n })) return json_null();
    return json_stringn(p, n);
}

static json_t *tokens(const nb_engine *e, const page_copy *p)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < p->n_tok; i++) {
        json_t *t = json_pack("{s:I, s:o}", "id", (json_int_t)p->tok[i], "text",
                              token_text(e->text, p->tok[i]));
        if (add(list, t) == 0) continue;
        json_decref(list);
        list = NULL;
    }
    return list;
}

static json_t *shape(const nb_engine *e, size_t layer)
{
    const nb_record *r = &e->pages.record[layer];
    static const char *const names[NB_ROLE_COUNT] = { "latent", "rope key", "keys", "values", "index key" };
    json_t *list = json_array();
    for (size_t s = 0; list && s < r->n_seg; s++) {
        json_t *g = json_pack("{s:s, s:I, s:I}", "name", names[r->seg[s].role], "n_vec",
                              (json_int_t)r->seg[s].n_vec, "dim", (json_int_t)r->seg[s].dim);
        if (add(list, g) == 0) continue;
        json_decref(list);
        list = NULL;
    }
    return list;
}

/* ---- codes and scales of a token, from the bytes of its page ---- */

static unsigned code_at(const uint8_t *codes, unsigned bits, size_t i)
{
    if (bits == 32) return nb_le32_get(codes + 4 * i);
    if (bits == 16) return nb_le16_get(codes + 2 * i);
    if (bits == 8) return codes[i];
    return nb_nibble_get(codes, i);
}

static int add_codes(json_t *list, const nb_record_seg *g, const nb_seg_trait *f,
                     const uint8_t *page, size_t tok)
{
    const size_t vec_bytes = nb_num_bytes(f->code, g->dim);
    int bad = 0;
    for (size_t v = 0; v < g->n_vec; v++) {
        const uint8_t *codes = page + g->code_off + tok * g->code_stride + v * vec_bytes;
        for (size_t i = 0; i < g->dim; i++)
            bad |= add(list, json_integer((json_int_t)code_at(codes, nb_num_bits(f->code), i)));
    }
    return bad;
}

/* Block scales (bit 7 of IF4's is a flag); outer scales: powers of two, byte 0 is zero. */
static int add_scales(json_t *seg, const nb_record_seg *g, const nb_seg_trait *f,
                      const uint8_t *page, size_t tok)
{
    json_t *scales = json_array(), *raw = json_array();
    json_t *outer = json_array(), *outer_raw = json_array();
    int bad = json_object_set_new(seg, "scales", scales) |
              json_object_set_new(seg, "scale_bytes", raw) |
              json_object_set_new(seg, "outer", outer) |
              json_object_set_new(seg, "outer_bytes", outer_raw);
    if (bad) return bad;
    const uint8_t *sf = page + g->scale_off + tok * g->scale_stride;
    for (size_t k = 0; nb_num_bits(f->scale) == 8 && k < g->n_vec * g->n_group; k++) {
        const uint8_t b = f->flagged ? sf[k] & 0x7f : sf[k];
        bad |= add(scales, json_real((double)nb_num_get(f->scale, &b, 0))) |
               add(raw, json_integer(sf[k]));
    }
    const uint8_t *o = page + g->outer_off + tok * g->outer_stride;
    for (size_t v = 0; f->outer && v < g->n_vec; v++)
        bad |= add(outer, json_real(o[v] ? (double)nb_ue8m0_to_f32(o[v]) : 0)) |
               add(outer_raw, json_integer(o[v]));
    return bad;
}

static json_t *segments(const nb_record *r, const uint8_t *page, size_t tok)
{
    json_t *list = json_array();
    for (size_t s = 0; list && s < r->n_seg; s++) {
        const nb_record_seg *g = &r->seg[s];
        const nb_seg_trait *f = nb_seg_traits[g->fmt];
        json_t *codes = json_array();
        json_t *j =
            json_pack("{s:s, s:i, s:I, s:o}", "fmt", f->name, "code_bits",
                      (int)nb_num_bits(f->code), "group", (json_int_t)f->group, "codes", codes);
        const int bad = !j || add_codes(codes, g, f, page, tok) || add_scales(j, g, f, page, tok);
        if (!bad && add(list, j) == 0) continue;
        if (bad) json_decref(j);
        json_decref(list);
        list = NULL;
    }
    return list;
}

/* ---- a record ---- */

typedef struct scratch {
    uint16_t *bits; /* [64][n_values] BF16, segment by segment within a token */
    float *back;    /* [64][n_values] decoded */
    uint8_t *page;
} scratch;

static double rms(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        const double d = (double)a[i] - (double)b[i];
        sum += d * d;
    }
    return sqrt(sum / (double)n);
}

static double largest(const float *a, const float *b, size_t n)
{
    double m = 0;
    for (size_t i = 0; i < n; i++) m = fmax(m, fabs((double)a[i] - (double)b[i]));
    return m;
}

static json_t *record_json(const nb_record *r, const page_copy *p, const scratch *w, size_t tok,
                           float amax)
{
    const size_t n = r->n_values;
    if (nb_record_encode_page(r, w->page, w->bits, n) != NB_OK) return NULL;
    for (size_t s = 0; s < r->n_seg; s++)
        nb_record_decode(r, w->page, s, 0, p->n_tok, w->back + r->seg[s].first, n);
    const float *was = p->x + tok * n, *is = w->back + tok * n;
    return json_pack("{s:s, s:f, s:I, s:f, s:f, s:f, s:o, s:o, s:o}", "dtype",
                     nb_kv_type_name(r->type), "bytes_per_token", nb_record_bytes_per_tok(r),
                     "page_bytes", (json_int_t)r->page_bytes, "rmse_token", rms(was, is, n),
                     "rmse_page", rms(p->x, w->back, p->n_tok * n), "max_error_token",
                     largest(was, is, n), "decoded", floats(is, n), "plane",
                     plane(w->back, p->n_tok, n, n < PLANE_VALUES ? n : PLANE_VALUES, amax),
                     "segments", segments(r, w->page, tok));
}

static json_t *records(const nb_engine *e, const page_copy *p, const scratch *w, size_t tok,
                       float amax)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < NB_COUNT(shown_types); i++) {
        nb_record_opts o;
        nb_record r;
        const nb_kv_type t = shown_types[i];
        const nb_attn_config *a = nb_layer_attn(&e->model.c, p->layer);
        nb_model_record_opts(a, t, nb_kv_mode_default(t), nb_attn_rope_fmt(a), &o);
        if (nb_record_init(&r, &o, NULL) != NB_OK) continue; /* cannot hold this shape */
        json_t *j = record_json(&r, p, w, tok, amax);
        if (j && add(list, j) == 0) continue;
        json_decref(list);
        list = NULL;
    }
    return list;
}

/* ---- the document ---- */

/* Bytes of the largest page that is encoded here: BF16's, or one with padding. */
static size_t page_room(const nb_engine *e, size_t layer)
{
    const nb_attn_config *a = nb_layer_attn(&e->model.c, layer);
    size_t most = 0;
    for (size_t i = 0; i < NB_COUNT(shown_types); i++) {
        nb_record_opts o;
        nb_record r;
        nb_model_record_opts(a, shown_types[i], NB_KV_4OVER6, nb_attn_rope_fmt(a), &o);
        if (nb_record_init(&r, &o, NULL) == NB_OK && r.page_bytes > most) most = r.page_bytes;
    }
    return most;
}

/* The largest magnitude; -1 when a value is not finite. */
static float magnitude(const float *x, size_t n)
{
    float m = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) return -1;
        m = fmaxf(m, fabsf(x[i]));
    }
    return m;
}

static nb_status write_page(const nb_engine *e, const page_copy *p, const scratch *w, size_t tok,
                            char **json, nb_error *err)
{
    const size_t n = e->pages.record[p->layer].n_values;
    const float amax = magnitude(p->x, p->n_tok * n);
    bool finite = amax >= 0;
    for (size_t i = 0; i < NB_PAGE_TOK * n; i++) {
        w->bits[i] = nb_bf16_from_f32(p->x[i]);
        finite = finite && nb_bf16_is_finite(w->bits[i]);
    }
    if (!finite) return nb_fail(err, NB_ERR_NONFINITE, "the page holds values that are no numbers");
    json_t *j = json_pack(
        "{s:I, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:f, s:o, s:o}", "request",
        (json_int_t)p->id, "running", p->running, "layer", (json_int_t)p->layer, "n_layer",
        (json_int_t)e->model.c.n_layer, "pos0", (json_int_t)p->pos0, "n_tok", (json_int_t)p->n_tok,
        "tok", (json_int_t)tok, "n_values", (json_int_t)n, "plane_values",
        (json_int_t)(n < PLANE_VALUES ? n : PLANE_VALUES), "segments", shape(e, p->layer), "tokens",
        tokens(e, p), "amax", (double)amax, "values", floats(p->x + tok * n, n), "records",
        records(e, p, w, tok, amax));
    /* Nine digits tell every float exactly. */
    *json = j ? json_dumps(j, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(j);
    return *json ? NB_OK : nb_fail(err, NB_ERR_NOMEM, "no memory for the picture of a page");
}

nb_status nb_engine_page_json(nb_engine *e, size_t layer, size_t tok, char **json, nb_error *err)
{
    if (!e || !json) return nb_fail(err, NB_ERR_ARG, "no engine given");
    if (layer >= e->model.c.n_layer)
        return nb_fail(err, NB_ERR_RANGE, "layer is %zu: expected 0..%zu", layer,
                       e->model.c.n_layer - 1);
    const size_t n = e->pages.record[layer].n_values;
    if (nb_layer_attn(&e->model.c, layer)->kind == NB_ATTN_CSA)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "layer %zu has compressed attention, whose rows stand for several tokens: no picture of a page",
                       layer);
    if (tok >= NB_PAGE_TOK)
        return nb_fail(err, NB_ERR_RANGE, "tok is %zu: expected 0..%d", tok, NB_PAGE_TOK - 1);
    if (n > TOKEN_VALUES)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "a token of this model has %zu values a layer; up to %d can be shown", n,
                       TOKEN_VALUES);
    page_copy p = { .layer = layer, .x = calloc(NB_PAGE_TOK * n, sizeof *p.x) };
    const scratch w = { .bits = malloc(NB_PAGE_TOK * n * sizeof *w.bits),
                        .back = malloc(NB_PAGE_TOK * n * sizeof *w.back),
                        .page = malloc(page_room(e, layer)) };
    nb_status st = NB_OK;
    if (!p.x || !w.bits || !w.back || !w.page)
        st = nb_fail(err, NB_ERR_NOMEM, "no memory for the picture of a page");
    else if (nb_engine_call(e, take, &p) != NB_OK)
        st = nb_fail(err, NB_ERR_ARG, "nb_engine_page_json was called from a callback");
    else if (!p.have)
        st = nb_fail(err, NB_ERR_NOT_FOUND, "no page is being filled, and no last one is kept");
    else /* a token that is not written yet: the last one that is */
        st = write_page(e, &p, &w, tok < p.n_tok ? tok : p.n_tok - 1, json, err);
    free(p.x);
    free(w.bits);
    free(w.back);
    free(w.page);
    return st;
}
