/* bench_kernel_kv.c - pages of the cache: encoding, decoding, residual planes. */
#include <string.h>

#include "base/rng.h"
#include "kernel/kv_codec/kv_codec.h"
#include "kernel/kv_residual/kv_residual.h"
#include "num/bf16.h"
#include "timing/bench_kernel_internal.h"

enum { LATENT = 512, ROPE = 64, VALUES = LATENT + ROPE, DISTINCT = 8 };

nb_status nb_kb_record(const nb_kb_run *r, nb_record *out, nb_error *err)
{
    const char *name = r->c->record ? r->c->record : "nvfp4";
    nb_record_opts o = { .rope = nb_rope_fmt_default(true), NB_SEGS_MLA(LATENT, ROPE) };
    if (nb_kv_type_parse(name, &o.type) != NB_OK)
        return nb_fail(err, NB_ERR_ARG, "%s is no record: expected one of%s", name, NB_KV_LIST + 1);
    if (r->c->rope && nb_rope_fmt_parse(r->c->rope, &o.rope) != NB_OK)
        return nb_fail(err, NB_ERR_ARG, "%s: no type of a rope key (expected fp8, bf16 or int8)",
                       r->c->rope);
    o.mode = nb_kv_mode_default(o.type);
    return nb_record_init(out, &o, err);
}

static uint16_t *rows(nb_kbench *b, size_t page)
{
    uint16_t *x = nb_kb_alloc(b, (size_t)NB_PAGE_TOK * VALUES * sizeof *x);
    for (size_t i = 0; x && i < (size_t)NB_PAGE_TOK * VALUES; i++)
        x[i] = nb_bf16_from_f32((float)(2 * nb_rng_unit(b->seed + 16 + page, i) - 1));
    return x;
}

static bool encode(const nb_kb_run *r, const nb_record *rec, const uint16_t *x, void *page)
{
    const nb_kv_codec_variant *v;
    KB_PICK(v, nb_kv_codec_variants, r->caps);
    if (rec->type != NB_KV_F32) return v->encode(rec, page, x, VALUES) == NB_OK;
    float *f = nb_kb_alloc(r->b, (size_t)NB_PAGE_TOK * VALUES * sizeof *f);
    if (!f) return false;
    for (size_t i = 0; i < (size_t)NB_PAGE_TOK * VALUES; i++) f[i] = nb_bf16_to_f32(x[i]);
    nb_record_store_f32(rec, page, f, VALUES);
    return true;
}

/* A few different pages, over and over: no kernel's time depends on the values. */
void *nb_kb_pages(nb_kb_run *r, const nb_record *rec, size_t n_page)
{
    unsigned char *p = nb_kb_alloc(r->b, n_page * rec->page_bytes);
    for (size_t i = 0; p && i < n_page; i++) {
        if (i >= DISTINCT) {
            memcpy(p + i * rec->page_bytes, p + (i - DISTINCT) * rec->page_bytes, rec->page_bytes);
            continue;
        }
        const uint16_t *x = rows(r->b, i);
        if (!x || !encode(r, rec, x, p + i * rec->page_bytes)) return NULL;
    }
    return p;
}

typedef struct kv_op {
    const nb_kv_codec_variant *codec;
    const nb_kv_residual_variant *residual;
    nb_record record;
    size_t n_page;
    size_t at;           /* of what a task reads in a page of the set: the page, then the plane */
    uint16_t *x;         /* [64][VALUES] */
    float *out;          /* [n_thread][64][VALUES] */
    unsigned char *page; /* [n_thread][page_bytes], encoded into */
    size_t stride;       /* bytes of a page of the set */
} kv_op;

static kv_op *new_op(nb_kb_run *r, nb_error *err, nb_status *st)
{
    kv_op *o = nb_kb_alloc(r->b, sizeof *o);
    const size_t nt = nb_pool_n_thread(r->b->pool);
    *st = o ? nb_kb_record(r, &o->record, err) : nb_kb_nomem(err);
    if (*st != NB_OK) return NULL;
    o->n_page = r->c->context / NB_PAGE_TOK;
    o->x = rows(r->b, 0);
    o->out = nb_kb_alloc(r->b, nt * NB_PAGE_TOK * VALUES * sizeof *o->out);
    o->page = nb_kb_alloc(r->b, nt * o->record.page_bytes);
    if (!o->x || !o->out || !o->page) {
        *st = nb_kb_nomem(err);
        return NULL;
    }
    r->op = o;
    return o;
}

static void decode_task(void *ctx, size_t task, size_t worker)
{
    const nb_kb_run *r = ctx;
    const kv_op *o = r->op;
    const unsigned char *page = nb_kb_item(r, r->item) + task * o->stride;
    float *out = o->out + worker * NB_PAGE_TOK * VALUES;
    o->codec->decode(&o->record, page, 0, 0, NB_PAGE_TOK, out, VALUES);
    o->codec->decode(&o->record, page, 1, 0, NB_PAGE_TOK, out + LATENT, VALUES);
}

static void encode_task(void *ctx, size_t task, size_t worker)
{
    const nb_kb_run *r = ctx;
    const kv_op *o = r->op;
    (void)task;
    (void)o->codec->encode(&o->record, o->page + worker * o->record.page_bytes, o->x, VALUES);
}

static void plane_decode_task(void *ctx, size_t task, size_t worker)
{
    const nb_kb_run *r = ctx;
    const kv_op *o = r->op;
    const unsigned char *page = nb_kb_item(r, r->item) + task * o->stride, *plane = page + o->at;
    for (size_t t = 0; t < NB_PAGE_TOK; t++)
        o->residual->decode(&o->record, page, t, plane + t * nb_residual_row_bytes(&o->record),
                            o->out + (worker * NB_PAGE_TOK + t) * VALUES);
}

static void plane_encode_task(void *ctx, size_t task, size_t worker)
{
    const nb_kb_run *r = ctx;
    const kv_op *o = r->op;
    o->residual->encode(&o->record, nb_kb_item(r, r->item) + task * o->stride, o->x, VALUES,
                        o->out + worker * NB_PAGE_TOK * VALUES);
}

#define STEP(name, task)                                                                           \
    static void name(nb_kb_run *r, size_t item)                                                    \
    {                                                                                              \
        r->item = item;                                                                            \
        nb_pool_run(r->b->pool, task, r, ((const kv_op *)r->op)->n_page);                          \
    }
STEP(decode_step, decode_task)
STEP(encode_step, encode_task)
STEP(plane_decode_step, plane_decode_task)
STEP(plane_encode_step, plane_encode_task)

nb_status nb_kb_kv_codec(nb_kb_run *r, nb_error *err)
{
    nb_status st;
    kv_op *o = new_op(r, err, &st);
    if (!o) return st;
    KB_PICK(o->codec, nb_kv_codec_variants, r->caps);
    o->stride = o->record.page_bytes;
    const void *model = nb_kb_pages(r, &o->record, o->n_page);
    if (!model) return nb_kb_nomem(err);
    NB_TRY(nb_kb_make_set(r, model, 1, o->n_page * o->stride, err));
    const nb_kb_part p = { .variant = o->codec->name,
                           .bytes = (double)(o->n_page * o->stride),
                           .context = (double)r->c->context };
    r->part[0] = r->part[1] = p;
    r->part[0].name = "decode";
    r->part[0].step = decode_step;
    r->part[1].name = "encode";
    r->part[1].step = encode_step;
    /* What is encoded lies in a cache: a page is written while its rows are still there. */
    r->part[1].bytes = 0;
    r->n_part = o->record.type == NB_KV_F32 ? 1 : 2;
    return NB_OK;
}

nb_status nb_kb_kv_residual(nb_kb_run *r, nb_error *err)
{
    nb_status st;
    kv_op *o = new_op(r, err, &st);
    if (!o) return st;
    if (!nb_residual_possible(&o->record))
        return nb_fail(err, NB_ERR_UNSUPPORTED, "%s has no residual plane (nvfp4 and if4 have)",
                       nb_kv_type_name(o->record.type));
    KB_PICK(o->residual, nb_kv_residual_variants, r->caps);
    o->at = o->record.page_bytes;
    o->stride = o->at + nb_residual_page_bytes(&o->record);
    unsigned char *model = nb_kb_alloc(r->b, o->n_page * o->stride);
    const unsigned char *page = nb_kb_pages(r, &o->record, o->n_page);
    if (!model || !page) return nb_kb_nomem(err);
    for (size_t i = 0; i < o->n_page; i++) {
        unsigned char *to = model + i * o->stride;
        memcpy(to, page + i * o->at, o->at);
        o->residual->encode(&o->record, to, o->x, VALUES, to + o->at);
    }
    NB_TRY(nb_kb_make_set(r, model, 1, o->n_page * o->stride, err));
    const nb_kb_part p = { .variant = o->residual->name,
                           .bytes = (double)(o->n_page * o->stride),
                           .context = (double)r->c->context };
    r->part[0] = r->part[1] = p;
    r->part[0].name = "decode";
    r->part[0].step = plane_decode_step;
    r->part[1].name = "encode";
    r->part[1].step = plane_encode_step;
    r->part[1].bytes = (double)(o->n_page * o->at);
    r->n_part = 2;
    return NB_OK;
}
