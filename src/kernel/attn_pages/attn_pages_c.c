/* attn_pages_c.c - portable attention over pages: a page is decoded to floats once, then every query
 * runs the portable attention over a tile.  Bound by the arithmetic: 2 (2 d1 + d2) flops per row and
 * token.  Order of a row: that of attn_c.c, page by page. */
#include "kernel/attn/attn.h"
#include "kernel/attn_pages/attn_pages.h"

static void one_page(const nb_attn_pages_args *a, const void *page)
{
    const size_t d1 = a->record->seg[0].dim, d2 = a->record->seg[1].dim;
    float *k1 = a->scratch, *k2 = k1 + NB_PAGE_TOK * d1;
    nb_record_decode(a->record, page, 0, 0, NB_PAGE_TOK, k1, d1);
    nb_record_decode(a->record, page, 1, 0, NB_PAGE_TOK, k2, d2);
    nb_attn_args t = {
        .k1 = k1,
        .k2 = k2,
        .v = k1,
        .n_q = 1,
        .head_begin = a->head_begin,
        .head_end = a->head_end,
        .group = a->head_end ? a->head_end : 1, /* one latent for all heads */
        .n_kv = NB_PAGE_TOK,
        .vis0 = NB_PAGE_TOK,
        .d1 = d1,
        .d2 = d2,
        .d_v = d1,
        .k1_stride = d1,
        .k2_stride = d2,
        .v_stride = d1,
        .scale = a->scale,
    };
    for (size_t i = 0; i < a->n_query; i++) {
        t.q = a->query[i].q;
        t.o = a->query[i].o;
        t.m = a->query[i].m;
        t.l = a->query[i].l;
        nb_attn_c(&t);
    }
}

void nb_attn_pages_c(const nb_attn_pages_args *a)
{
    for (size_t p = 0; p < a->n_page; p++) one_page(a, a->page[p]);
}
