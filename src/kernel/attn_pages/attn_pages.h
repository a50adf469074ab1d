/* attn_pages.h - absorbed MLA: queries of all heads over complete, encoded pages.
 *
 * The latent is shared by all heads, so a page is decoded once for every row (query, head) of the
 * call.  With c_t and r_t the decoded latent (d1 values) and rope key (d2) of token t of the pages,
 *
 *   s(h,t) = scale * (q[h][0..d1) . c_t + q[h][d1..d1+d2) . r_t)
 *   state (m, l, o) of (query, h): as in attn.h with v_t = c_t, over all 64 * n_page tokens
 *
 * The states are joined to what they hold; a state starts as m = -INFINITY, l = 0 (o need not be
 * initialised then).  All tokens of all pages are visible.  The order of summation of a row is
 * fixed by n_page and the record: neither the other queries, nor the range of heads, nor threads
 * change a bit of it.  Pages that hold no finite number (nb_record_check_page) may give any numbers,
 * never a fault.
 * Source: DeepSeek-AI 2024 (arXiv 2405.04434) section 2.1; Dao et al. 2022 (arXiv 2205.14135). */
#ifndef NB_KERNEL_ATTN_PAGES_H
#define NB_KERNEL_ATTN_PAGES_H
#include "kernel/kernel.h"
#include "num/record.h"

/* Most pages of a call; longer splits of the context take several calls (src/model/cpu/cpu_attn.c). */
enum { NB_ATTN_PAGES_MAX = 4 };

/* One query token: its absorbed query and its state.  Different queries have different states. */
typedef struct nb_attn_query {
    const float *q;   /* [n_head][d1 + d2] */
    float *o, *m, *l; /* [n_head][d1], [n_head], [n_head] */
} nb_attn_query;

typedef struct nb_attn_pages_args {
    const nb_record *record; /* MLA: segment 0 the latent, 1 the rope key; variant->can(record) */
    const void *const *page; /* [n_page], each record->page_bytes, aligned to 128               */
    size_t n_page;           /* 1..NB_ATTN_PAGES_MAX                                         */
    const nb_attn_query *query; /* [n_query], n_query >= 1                                      */
    size_t n_query;
    size_t head_begin, head_end; /* heads of every query to compute                             */
    float scale;
    const void *next; /* a page that this thread will probably read next, to be fetched; or NULL */
    void *scratch; /* variant->scratch(record) bytes, aligned to 64; no meaning outside a call  */
} nb_attn_pages_args;

/* After attn_finish, with A and |v| as in attn.h, n_page tiles and u = 2^-24:
 *   |y - y64| <= u * (96 + 14 n_page + ((d1 + d2)/4 + 20) A) * max|v|
 *              + (q_eps * 2 A + q_step * 2 B + p_eps) * max|v|
 * A row's q_eps and p_eps are the relative rounding of a query and of a weight before their products.  q_step is
 * the rounding of a query relative to the largest magnitude Q_i among the 64 values of its segment that it shares a
 * factor with (i / 64 * 64 on), B = max_t scale * sum Q_i |k_i|: a value off by q_step Q_i moves a score by
 * q_step Q_i |k_i|, and a score counts twice (attn.h).  0: none beyond float.  Decoded values are never rounded.
 * Rows with the same `can` and a q_step sum the same exact integers in the same order: their bits are equal. */
typedef void nb_attn_pages_fn(const nb_attn_pages_args *a);
nb_attn_pages_fn nb_attn_pages_c, nb_attn_pages_avx2, nb_attn_pages_avx2int8, nb_attn_pages_avxvnni, nb_attn_pages_avx512,
    nb_attn_pages_avx512bf16, nb_attn_pages_avx512int8, nb_attn_pages_amx, nb_attn_pages_neon,
    nb_attn_pages_neonint8;
size_t nb_attn_pages_avx2_scratch(const nb_record *r),
    nb_attn_pages_avx2int8_scratch(const nb_record *r);

/* Of a (query, head): what its bound needs. */
typedef struct nb_attn_pages_size {
    double a, b, v_max; /* A, B and max|v| */
} nb_attn_pages_size;

/* Normalised outputs of all queries in double, [n_query][head_end - head_begin][d1], and the sizes of each
 * ([n_query][head_end - head_begin]); states are not touched, of scratch the first d1 + d2 floats are. */
void nb_attn_pages_ref(const nb_attn_pages_args *a, double *y64, nb_attn_pages_size *size);

typedef struct nb_attn_pages_variant {
    const char *name;
    nb_space space;
    nb_caps need;
    nb_attn_pages_fn *fn;
    bool (*can)(const nb_record *r);       /* MLA records that fn takes; the last row takes all */
    size_t (*scratch)(const nb_record *r); /* bytes for one call */
    float q_eps, q_step, p_eps;
} nb_attn_pages_variant;
extern const nb_attn_pages_variant nb_attn_pages_variants[];
bool nb_attn_pages_amx_can(const nb_record *r), nb_attn_pages_avx512bf16_can(const nb_record *r),
    nb_attn_pages_avx512int8_can(const nb_record *r),
    nb_attn_pages_avx2int8_can(const nb_record *r), nb_attn_pages_neonint8_can(const nb_record *r);
size_t nb_attn_pages_amx_scratch(const nb_record *r),
    nb_attn_pages_avx512bf16_scratch(const nb_record *r),
    nb_attn_pages_avx512int8_scratch(const nb_record *r),
    nb_attn_pages_avx512_scratch(const nb_record *r), nb_attn_pages_neonint8_scratch(const nb_record *r);
/* The first row that caps and record allow; NULL for a record that is not of MLA. */
const nb_attn_pages_variant *nb_attn_pages_for(nb_caps caps, const nb_record *r);
#endif
