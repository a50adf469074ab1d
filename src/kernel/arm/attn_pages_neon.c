/* attn_pages_neon.c - attention over pages: a page is decoded to floats once (kv_codec_neon.c), then
 * the heads of every query run through attention over a tile (attn_neon.c).
 *
 * The decoded page, 147 KiB for 512 + 64, stays in the second-level cache.  A batch of 16 heads reads it
 * once for the scores, 12 tokens at a time in the first level, and once for the values: 280 KiB for
 * (2 d1 + d2) / 4 * 64 * 16 = 278,528 FMLA, 4 bytes a cycle where a cycle has 4 of them.  So it is bound by
 * the FMLA; decoding is an eighth of them at 16 heads and vanishes with more.
 * Order of a row: that of attn_neon.c, page by page.
 *
 * Not done: scales of tokens taken into scores and weights instead of values (it would save 4 of the
 * 22 instructions per 16 values), and queries turned so that lanes are heads. */
#include "kernel/attn/attn.h"
#include "kernel/attn_pages/attn_pages.h"
#include "kernel/kv_codec/kv_codec.h"

static void one_page(const nb_attn_pages_args *a, const void *page)
{
    const size_t d1 = a->record->seg[0].dim, d2 = a->record->seg[1].dim;
    float *k1 = a->scratch, *k2 = k1 + NB_PAGE_TOK * d1;
    nb_kv_decode_neon(a->record, page, 0, 0, NB_PAGE_TOK, k1, d1);
    nb_kv_decode_neon(a->record, page, 1, 0, NB_PAGE_TOK, k2, d2);
    nb_attn_args t = { .k1 = k1, .k2 = k2, .v = k1 };
    t.n_q = 1;
    t.head_begin = a->head_begin;
    t.head_end = a->head_end;
    t.group = a->head_end ? a->head_end : 1; /* one latent for all heads */
    t.n_kv = t.vis0 = NB_PAGE_TOK;
    t.d1 = t.d_v = t.k1_stride = t.v_stride = d1;
    t.d2 = t.k2_stride = d2;
    t.scale = a->scale;
    for (size_t i = 0; i < a->n_query; i++) {
        t.q = a->query[i].q;
        t.o = a->query[i].o;
        t.m = a->query[i].m;
        t.l = a->query[i].l;
        nb_attn_neon(&t);
    }
}

void nb_attn_pages_neon(const nb_attn_pages_args *a)
{
    for (size_t p = 0; p < a->n_page; p++) one_page(a, a->page[p]);
}
