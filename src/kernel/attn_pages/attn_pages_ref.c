/* attn_pages_ref.c - attention over pages in double: per batch of rows one pass for the largest
 * scores and one for the sums, each token decoded by its definition. */
#include "kernel/attn_pages/attn_pages.h"

#include <math.h>

enum { BATCH = 64 };

typedef struct rows {
    const nb_attn_pages_args *a;
    size_t first, n, n_head, d1, d2; /* rows (query, head), heads fastest */
    double max[BATCH], sum[BATCH];
    nb_attn_pages_size *size;
} rows;

static const float *query_of(const rows *b, size_t i)
{
    const size_t at = b->first + i;
    const float *q = b->a->query[at / b->n_head].q;
    return q + (b->a->head_begin + at % b->n_head) * (b->d1 + b->d2);
}

/* The score of a decoded token. */
static double score(const rows *b, size_t i, const float *x)
{
    const float *q = query_of(b, i);
    double s = 0;
    for (size_t j = 0; j < b->d1 + b->d2; j++) s += (double)q[j] * (double)x[j];
    return s * (double)b->a->scale;
}

/* What a token of values x adds to the sizes of row i. */
static void grow(rows *b, size_t i, const float *x)
{
    enum { SHARED = 64 }; /* values with one Q */
    const float *q = query_of(b, i);
    const double scale = fabs((double)b->a->scale);
    double a = 0, all = 0;
    for (size_t j = 0, n; j < b->d1 + b->d2; j += n) {
        const size_t end = j < b->d1 ? b->d1 : b->d1 + b->d2;
        double most = 0, sum = 0;
        n = end - j < SHARED ? end - j : SHARED;
        for (size_t k = j; k < j + n; k++) {
            a += fabs((double)q[k] * (double)x[k]);
            most = fmax(most, fabs((double)q[k]));
            sum += fabs((double)x[k]);
            if (k < b->d1) b->size[i].v_max = fmax(b->size[i].v_max, fabs((double)x[k]));
        }
        all += most * sum;
    }
    b->size[i].a = fmax(b->size[i].a, a * scale);
    b->size[i].b = fmax(b->size[i].b, all * scale);
}

static const float *token(const rows *b, size_t t)
{
    const nb_attn_pages_args *a = b->a;
    const void *page = a->page[t / NB_PAGE_TOK];
    float *x = a->scratch;
    nb_record_decode(a->record, page, 0, t % NB_PAGE_TOK, 1, x, b->d1);
    nb_record_decode(a->record, page, 1, t % NB_PAGE_TOK, 1, x + b->d1, b->d2);
    return x;
}

static void largest(rows *b, size_t n_tok)
{
    for (size_t i = 0; i < b->n; i++) {
        b->max[i] = -INFINITY;
        b->sum[i] = 0;
        b->size[i] = (nb_attn_pages_size){ 0 };
    }
    for (size_t t = 0; t < n_tok; t++) {
        const float *x = token(b, t);
        for (size_t i = 0; i < b->n; i++) {
            b->max[i] = fmax(b->max[i], score(b, i, x));
            grow(b, i, x);
        }
    }
}

static void sums(rows *b, size_t n_tok, double *y)
{
    for (size_t k = 0; k < b->n * b->d1; k++) y[k] = 0;
    for (size_t t = 0; t < n_tok; t++) {
        const float *x = token(b, t);
        for (size_t i = 0; i < b->n; i++) {
            const double p = exp(score(b, i, x) - b->max[i]);
            b->sum[i] += p;
            for (size_t j = 0; j < b->d1; j++) y[i * b->d1 + j] += p * (double)x[j];
        }
    }
    for (size_t i = 0; i < b->n; i++)
        for (size_t j = 0; j < b->d1; j++) y[i * b->d1 + j] /= b->sum[i];
}

void nb_attn_pages_ref(const nb_attn_pages_args *a, double *y64, nb_attn_pages_size *size)
{
    rows b = { .a = a, .n_head = a->head_end - a->head_begin };
    b.d1 = a->record->seg[0].dim;
    b.d2 = a->record->seg[1].dim;
    for (size_t at = 0; at < a->n_query * b.n_head; at += b.n) {
        const size_t left = a->n_query * b.n_head - at;
        b.first = at;
        b.n = left < BATCH ? left : BATCH;
        b.size = size + at;
        largest(&b, a->n_page * NB_PAGE_TOK);
        sums(&b, a->n_page * NB_PAGE_TOK, y64 + at * b.d1);
    }
}
