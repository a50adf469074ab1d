/* check_attn_pages.c - attention over encoded pages: every MLA record (a `sub` per type; encoder
 * modes, rope formats, outlier channels and fixed scales within it), one to four pages, one to five
 * queries, ranges of heads, fresh and running states, hostile bytes, and independence of a row. */
#include "check/check.h"
#include "kernel/attn/attn.h"
#include "kernel/attn_pages/attn_pages.h"
#include "num/bf16.h"
#include "os/cpu.h"

enum { MAX_QUERY = 5, MAX_TYPE_ROWS = 64 };
enum { PLAIN, OUTLIERS, FIXED, BOTH, N_EXTRA };
static const char *const extra_name[] = { "", " outliers", " fixed", " outliers fixed" };

typedef struct shape {
    size_t d1, d2, n_page, n_query, n_head, h0, h1;
    nb_rope_fmt rope;
} shape;

static const shape shapes[] = {
    { 512, 64, 2, 1, 16, 0, 16, NB_ROPE_INT8 }, /* the models */
    { 512, 64, 1, 4, 8, 0, 8, NB_ROPE_FP8 },
    { 512, 64, 4, 1, 20, 0, 20, NB_ROPE_BF16 },
    { 512, 64, 1, 1, 128, 0, 128, NB_ROPE_INT8 },
    { 256, 32, 3, 2, 16, 3, 12, NB_ROPE_INT8 },
    { 512, 64, 2, 5, 4, 1, 2, NB_ROPE_INT8 }, /* parts of the heads */
    { 512, 64, 1, 3, 7, 2, 7, NB_ROPE_FP8 },
    { 128, 64, 2, 1, 3, 0, 3, NB_ROPE_BF16 }, /* other dims: multiples of a block, and odd ones */
    { 64, 16, 1, 5, 5, 0, 5, NB_ROPE_INT8 },
    { 40, 8, 4, 3, 6, 1, 5, NB_ROPE_FP8 },
    { 48, 6, 2, 1, 17, 0, 17, NB_ROPE_INT8 },
    { 31, 17, 1, 2, 9, 0, 9, NB_ROPE_FP8 },
    { 320, 32, 1, 1, 33, 0, 33, NB_ROPE_BF16 },
    { 1, 2, 2, 1, 1, 0, 1, NB_ROPE_INT8 },
    { 512, 64, 1, 1, 1, 0, 1, NB_ROPE_INT8 },
};

typedef struct kase {
    nb_record r;
    nb_attn_pages_args a;
    const void *page[NB_ATTN_PAGES_MAX];
    nb_attn_query query[MAX_QUERY];
    size_t n_head;
} kase;

static size_t some_places(chk *t, size_t n, uint16_t *out)
{
    size_t k = 0;
    for (size_t at = chk_between(t, 0, 3); at < n && k < NB_MAX_OUTLIER;
         at += chk_between(t, 1, n / 7 + 1))
        out[k++] = (uint16_t)at;
    return k;
}

/* A record of the type, mode and extras; false: the type cannot hold the shape. */
static bool make_record(chk *t, nb_record *r, const shape *s, nb_kv_type type, nb_kv_mode mode,
                        unsigned extra)
{
    uint16_t places[2][NB_MAX_OUTLIER];
    nb_record_opts o = { .type = type, .mode = mode, .rope = s->rope, NB_SEGS_MLA(s->d1, s->d2) };
    for (size_t k = 0; k < 2 && extra & OUTLIERS; k++) {
        o.seg[k].outlier = places[k];
        o.seg[k].n_outlier = some_places(t, o.seg[k].dim, places[k]);
    }
    if (extra & FIXED && nb_record_init(r, &o, NULL) == NB_OK)
        for (size_t k = 0; k < 2; k++)
            if (r->seg[k].fmt == NB_SEG_E4M3 || r->seg[k].fmt == NB_SEG_NVFP4)
                o.seg[k].fixed_scale = (float)(1e-4 + chk_unit(t) * 0.004);
    return nb_record_init(r, &o, NULL) == NB_OK;
}

static const void *make_page(chk *t, const nb_record *r, chk_pattern pat)
{
    uint16_t *x = chk_raw(t, NB_PAGE_TOK * r->n_values * sizeof *x);
    unsigned char *page = chk_in(t, r->page_bytes); /* a multiple of 128: aligned at either end */
    for (size_t s = 0; s < r->n_seg; s++)
        for (size_t i = 0; i < NB_PAGE_TOK; i++) {
            float row[512];
            uint16_t *v = x + i * r->n_values + r->seg[s].first;
            chk_fill(t, row, r->seg[s].dim, pat);
            for (size_t j = 0; j < r->seg[s].dim; j++) v[j] = nb_bf16_from_f32(row[j]);
        }
    if (nb_record_encode_page(r, page, x, r->n_values) != NB_OK)
        chk_fail(t, "the specification refuses finite values");
    return page;
}

static void new_states(chk *t, kase *k)
{
    const size_t n = k->a.n_query * k->n_head, d1 = k->r.seg[0].dim;
    float *o = chk_out(t, n * d1 * sizeof *o), *m = chk_out(t, n * sizeof *m);
    float *l = chk_out(t, n * sizeof *l);
    for (size_t i = 0; i < k->a.n_query; i++) {
        nb_attn_query *q = &k->query[i];
        q->o = o + i * k->n_head * d1;
        q->m = m + i * k->n_head;
        q->l = l + i * k->n_head;
        for (size_t h = 0; h < k->n_head; h++) {
            q->m[h] = -INFINITY;
            q->l[h] = 0;
        }
    }
}

static void *new_scratch(chk *t, const nb_attn_pages_variant *v, const nb_record *r)
{
    const size_t n = v->scratch(r);
    const bool front = t->front;
    if (n % 64 != 0) t->front = true;
    void *p = chk_raw(t, n);
    t->front = front;
    return p;
}

static void make_case(chk *t, const nb_attn_pages_variant *v, kase *k, const shape *s,
                      chk_pattern pq, chk_pattern pv)
{
    k->n_head = s->n_head;
    for (size_t p = 0; p < s->n_page; p++) k->page[p] = make_page(t, &k->r, pv);
    for (size_t i = 0; i < s->n_query; i++) {
        const size_t n = s->n_head * (s->d1 + s->d2);
        k->query[i].q = chk_in_rows(t, 1, n, n, pq);
    }
    k->a = (nb_attn_pages_args){ .record = &k->r,
                                 .page = k->page,
                                 .n_page = s->n_page,
                                 .query = k->query,
                                 .n_query = s->n_query,
                                 .head_begin = s->h0,
                                 .head_end = s->h1,
                                 .scale = 1 / sqrtf((float)(s->d1 + s->d2)) };
    k->a.scratch = new_scratch(t, v, &k->r);
    new_states(t, k);
}

/* The reference, and the bound of n_page tiles: [n_query][heads of the range][d1].  Of a row that rounds queries to
 * bytes also those of the rounded queries, whose bound is the tighter. */
typedef struct wanted {
    double *y, *bound;
    double *y_byte, *bound_byte; /* or NULL */
} wanted;

/* The query as a row with q_step reads its latent part: bytes, a factor per 64 values. */
static void round_query(float *q, size_t d1, double steps)
{
    for (size_t j = 0, n; j < d1; j += n) {
        double most = 0;
        n = d1 - j < 64 ? d1 - j : 64;
        for (size_t i = j; i < j + n; i++) most = fmax(most, fabs((double)q[i]));
        for (size_t i = j; i < j + n && most > 0; i++)
            q[i] = (float)(rint((double)q[i] * steps / most) * most / steps);
    }
}

static wanted wanted_of(chk *t, const nb_attn_pages_variant *v, const kase *k, double q_step)
{
    nb_attn_pages_args a = k->a;
    const size_t d1 = k->r.seg[0].dim, d = d1 + k->r.seg[1].dim;
    const size_t n = a.n_query * (a.head_end - a.head_begin);
    wanted w = { chk_f64(t, n * d1), chk_f64(t, n * d1), NULL, NULL };
    nb_attn_pages_size *size = chk_raw(t, n * sizeof *size);
    a.scratch = chk_raw(t, d * sizeof(float));
    nb_attn_pages_ref(&a, w.y, size);
    for (size_t i = 0; i < n; i++) {
        const double big_a = size[i].a,
                     eps = (double)v->q_eps * 2 * big_a + q_step * 2 * size[i].b + (double)v->p_eps;
        const double u = 96 + 14 * (double)a.n_page + ((double)d / 4 + 20) * big_a;
        for (size_t j = 0; j < d1; j++)
            w.bound[i * d1 + j] = (u * 0x1p-24 + eps) * size[i].v_max + 0x1p-126;
    }
    return w;
}

static wanted make_wanted(chk *t, const nb_attn_pages_variant *v, const kase *k)
{
    const size_t d1 = k->r.seg[0].dim, d = d1 + k->r.seg[1].dim;
    wanted w = wanted_of(t, v, k, (double)v->q_step);
    if (v->q_step == 0) return w;
    kase bytes = *k;
    bytes.a.query = bytes.query;
    for (size_t i = 0; i < k->a.n_query; i++) {
        float *q = chk_raw(t, k->n_head * d * sizeof *q);
        memcpy(q, k->query[i].q, k->n_head * d * sizeof *q);
        for (size_t h = 0; h < k->n_head; h++) round_query(q + h * d, d1, 127);
        bytes.query[i].q = q;
    }
    const wanted b = wanted_of(t, v, &bytes, 0);
    w.y_byte = b.y;
    w.bound_byte = b.bound;
    return w;
}

static void compare(chk *t, const kase *k, const wanted *w)
{
    const size_t d1 = k->r.seg[0].dim, h0 = k->a.head_begin, n = k->a.head_end - h0;
    float *y = chk_raw(t, n * d1 * sizeof *y);
    for (size_t i = 0; i < k->a.n_query; i++) {
        const nb_attn_query *q = &k->query[i];
        nb_attn_finish(y, q->o + h0 * d1, q->l + h0, n, d1);
        chk_close(t, y, n, d1, d1, w->y + i * n * d1, w->bound + i * n * d1);
        if (w->y_byte)
            chk_close(t, y, n, d1, d1, w->y_byte + i * n * d1, w->bound_byte + i * n * d1);
        for (size_t h = 0; h < k->n_head; h++) /* heads outside the range are not touched */
            if ((h < h0 || h >= k->a.head_end) && (q->m[h] != -INFINITY || q->l[h] != 0))
                chk_fail(t, "touched head %zu outside its range", h);
    }
}

static void same_head(chk *t, const char *why, const nb_attn_query *a, const nb_attn_query *b,
                      size_t h, size_t d1)
{
    chk_same(t, why, a->o + h * d1, d1, b->o + h * d1, d1, 1, d1);
    chk_same(t, why, a->l + h, 1, b->l + h, 1, 1, 1);
    chk_same(t, why, a->m + h, 1, b->m + h, 1, 1, 1);
}

/* Rows alone (up to 12 of them), and all of them with the queries in another order. */
static void check_alone(chk *t, const nb_attn_pages_variant *v, const kase *k)
{
    const size_t d1 = k->r.seg[0].dim, n_head = k->a.head_end - k->a.head_begin;
    const size_t n = k->a.n_query * n_head, step = n / 12 + 1;
    kase one = *k;
    one.a.query = one.query;
    new_states(t, &one);
    for (size_t at = chk_between(t, 0, step - 1); at < n; at += step) {
        nb_attn_pages_args a = one.a;
        a.query = &one.query[at / n_head];
        a.n_query = 1;
        a.head_begin += at % n_head;
        a.head_end = a.head_begin + 1;
        chk_call(t, v->fn(&a));
        same_head(t, "for a row alone", &k->query[at / n_head], a.query, a.head_begin, d1);
    }
    new_states(t, &one);
    const size_t cut = k->a.head_begin + chk_between(t, 0, n_head);
    nb_attn_query back[MAX_QUERY];
    for (size_t i = 0; i < k->a.n_query; i++) back[i] = one.query[k->a.n_query - 1 - i];
    one.a.query = back;
    for (int part = 0; part < 2; part++) {
        nb_attn_pages_args a = one.a;
        if (part) a.head_begin = cut;
        if (!part) a.head_end = cut;
        if (a.head_begin < a.head_end) chk_call(t, v->fn(&a));
    }
    for (size_t i = 0; i < k->a.n_query; i++)
        for (size_t h = k->a.head_begin; h < k->a.head_end; h++)
            same_head(t, "for another split", &k->query[i], &one.query[i], h, d1);
}

/* Integers are exact: rows that take the same records with queries in bytes give equal bits (attn_pages.h). */
static void check_twin(chk *t, const nb_attn_pages_variant *v, const kase *k)
{
    const nb_attn_pages_variant *first = nb_attn_pages_variants;
    while (first->name && (first->q_step == 0 || first->can != v->can || first->p_eps != v->p_eps)) first++;
    if (!first->name || first == v || (first->need & ~nb_cpu_caps())) return;
    kase twin = *k;
    twin.a.query = twin.query;
    new_states(t, &twin);
    chk_call(t, first->fn(&twin.a));
    for (size_t i = 0; i < k->a.n_query; i++)
        for (size_t h = k->a.head_begin; h < k->a.head_end; h++)
            same_head(t, "from another level", &k->query[i], &twin.query[i], h, k->r.seg[0].dim);
}

/* A NaN in one row's query: the other rows keep their bits. */
static void check_nan_row(chk *t, const nb_attn_pages_variant *v, const kase *k)
{
    const size_t d1 = k->r.seg[0].dim, d = d1 + k->r.seg[1].dim;
    const size_t n_head = k->a.head_end - k->a.head_begin;
    const size_t bad_q = chk_between(t, 0, k->a.n_query - 1);
    const size_t bad_h = k->a.head_begin + chk_between(t, 0, n_head - 1);
    kase one = *k;
    one.a.query = one.query;
    new_states(t, &one);
    float *q = chk_copy(t, k->query[bad_q].q, k->n_head * d * sizeof *q, true);
    q[bad_h * d + chk_between(t, 0, d - 1)] = chk_u64(t) % 2 ? NAN : INFINITY;
    one.query[bad_q].q = q;
    chk_call(t, v->fn(&one.a));
    for (size_t i = 0; i < k->a.n_query; i++)
        for (size_t h = k->a.head_begin; h < k->a.head_end; h++)
            if (i != bad_q || h != bad_h)
                same_head(t, "beside a row with a NaN", &k->query[i], &one.query[i], h, d1);
    const nb_attn_query *b = &one.query[bad_q];
    bool finite = isfinite(b->l[bad_h]) && isfinite(b->m[bad_h]);
    for (size_t j = 0; j < d1; j++) finite = finite && isfinite(b->o[bad_h * d1 + j]);
    if (finite) chk_fail(t, "a query that is not finite gave a finite state");
}

/* The same pages in two calls: the second finds a running state. */
static void check_two_calls(chk *t, const nb_attn_pages_variant *v, const kase *k, const wanted *w)
{
    kase two = *k;
    two.a.query = two.query;
    new_states(t, &two);
    nb_attn_pages_args a = two.a;
    a.n_page = chk_between(t, 1, k->a.n_page - 1);
    chk_call(t, v->fn(&a));
    a.page += a.n_page;
    a.n_page = k->a.n_page - a.n_page;
    chk_call(t, v->fn(&a));
    compare(t, &two, w);
}

/* Bytes that no encoder writes: any numbers, no fault. */
static void check_hostile(chk *t, const nb_attn_pages_variant *v, const kase *k)
{
    kase bad = *k;
    bad.a.query = bad.query;
    bad.a.page = bad.page;
    new_states(t, &bad);
    for (size_t p = 0; p < k->a.n_page; p++) {
        unsigned char *b = chk_in(t, k->r.page_bytes);
        for (size_t i = 0; i < k->r.page_bytes; i++)
            b[i] = p % 2 ? 0xff : (unsigned char)chk_u64(t);
        bad.page[p] = b;
    }
    chk_call(t, v->fn(&bad.a));
}

typedef enum special { USUAL, EQUAL, DOMINANT } special;

static void one_case(chk *t, const nb_attn_pages_variant *v, kase *k, const shape *s,
                     chk_pattern pat, special what)
{
    /* Large values meet tiny queries: scores of 2^60 would make the bound say nothing. */
    make_case(t, v, k, s, what == EQUAL ? CHK_ZERO : pat == CHK_LARGE ? CHK_TINY : pat, pat);
    if (what == DOMINANT) k->a.scale *= 1000;
    const wanted w = make_wanted(t, v, k);
    chk_call(t, v->fn(&k->a));
    compare(t, k, &w);
    check_alone(t, v, k);
    check_twin(t, v, k);
    if (s->n_page > 1) check_two_calls(t, v, k, &w);
    if (what == USUAL && pat == CHK_NORMAL) {
        check_nan_row(t, v, k);
        check_hostile(t, v, k);
    }
}

static nb_kv_mode last_mode(nb_kv_type type)
{
    return type == NB_KV_NVFP4 || type == NB_KV_IF4 ? NB_KV_SEARCH : NB_KV_BASIC;
}

/* Every pattern for the small shapes; of the large ones the first few, each in one of them. */
static bool wanted_pattern(size_t i, size_t big, chk_pattern p)
{
    return !big || p == CHK_NORMAL || p == CHK_CONST || p % 4 == i % 4;
}

static void one_shape(chk *t, const nb_attn_pages_variant *v, size_t i, nb_kv_type type)
{
    const shape *s = &shapes[i];
    const size_t work = s->n_page * s->n_query * (s->h1 - s->h0) * s->d1;
    const bool big = work > 4000, huge = work > 12000;
    const nb_kv_mode mode = (nb_kv_mode)(i % (size_t)(last_mode(type) + 1));
    kase k;
    for (unsigned extra = 0; extra < N_EXTRA; extra++) {
        for (chk_pattern p = 0; p < CHK_PATTERN_COUNT; p++) {
            if (extra ? p != (extra + i) % CHK_PATTERN_COUNT && (big || p != CHK_NORMAL)
                      : !wanted_pattern(i, big, p))
                continue;
            if (huge && extra && extra != 1 + i % 3) continue;
            if (chk_case(t, "shape %zu: %zu+%zu %zu pages %zu q heads %zu..%zu%s %s", i, s->d1,
                         s->d2, s->n_page, s->n_query, s->h0, s->h1, extra_name[extra],
                         chk_pattern_name(p)) &&
                make_record(t, &k.r, s, type, mode, extra) && v->can(&k.r))
                one_case(t, v, &k, s, p, USUAL);
        }
    }
    if (huge && i % 2) return;
    for (special w = EQUAL; w <= DOMINANT; w++)
        if (chk_case(t, "shape %zu %s", i, w == EQUAL ? "equal scores" : "one dominant") &&
            make_record(t, &k.r, s, type, mode, PLAIN) && v->can(&k.r))
            one_case(t, v, &k, s, w == EQUAL ? CHK_OUTLIER : CHK_NORMAL, w);
}

/* The row that a machine of just the level of v takes. */
static bool is_taken(const nb_attn_pages_variant *v, const nb_record *r)
{
    return v->can(r) && nb_attn_pages_for(v->need, r) == v;
}

/* A row for each type; `_odd`: of shapes and extras that a better row of the level leaves to this one. */
static size_t rows(chk_row *out, size_t max)
{
    static const shape usual = { .d1 = 512, .d2 = 64, .rope = NB_ROPE_INT8 };
    static const shape odd = { .d1 = 31, .d2 = 17, .rope = NB_ROPE_INT8 };
    static char odd_name[NB_KV_TYPE_COUNT][32];
    size_t n = 0;
    for (const nb_attn_pages_variant *v = nb_attn_pages_variants; v->name; v++) {
        for (nb_kv_type type = 0; type < NB_KV_TYPE_COUNT && n < max; type++) {
            nb_record r;
            if (!make_record(NULL, &r, &usual, type, NB_KV_BASIC, PLAIN) || !v->can(&r)) continue;
            const char *sub = nb_kv_type_name(type);
            if (!is_taken(v, &r) && make_record(NULL, &r, &odd, type, NB_KV_BASIC, PLAIN) &&
                is_taken(v, &r)) {
                (void)snprintf(odd_name[type], sizeof odd_name[type], "%s_odd", sub);
                sub = odd_name[type];
            }
            out[n++] = (chk_row){ v->name, sub, v->space, v->need, v };
        }
    }
    return n;
}

static nb_status type_of(const chk_row *row, nb_kv_type *type)
{
    char name[32];
    (void)snprintf(name, sizeof name, "%s", row->sub);
    char *end = strstr(name, "_odd");
    if (end) *end = 0;
    return nb_kv_type_parse(name, type);
}

static void test(chk *t, const chk_row *row)
{
    nb_kv_type type = NB_KV_BF16;
    if (type_of(row, &type) != NB_OK) chk_fail(t, "no record type %s", row->sub);
    for (size_t i = 0; i < NB_COUNT(shapes); i++) one_shape(t, row->row, i, type);
}

typedef struct job {
    const nb_attn_pages_variant *v;
    kase k;
} job;

static void call(void *ctx)
{
    const job *j = ctx;
    j->v->fn(&j->k.a);
}

/* The rate counts the bytes of the pages; ns per token is the time / 256. */
static void bench(chk *t, const chk_row *row)
{
    static const struct {
        const char *label;
        shape s;
    } list[] = {
        { "4 pages, 16 heads", { 512, 64, 4, 1, 16, 0, 16, NB_ROPE_INT8 } },
        { "4 pages, 8 heads", { 512, 64, 4, 1, 8, 0, 8, NB_ROPE_INT8 } },
        { "4 pages, 16 heads, 4 q", { 512, 64, 4, 4, 16, 0, 16, NB_ROPE_INT8 } },
        { "4 pages, 128 heads", { 512, 64, 4, 1, 128, 0, 128, NB_ROPE_INT8 } },
        { "1 page, 16 heads", { 512, 64, 1, 1, 16, 0, 16, NB_ROPE_INT8 } },
    };
    nb_kv_type type = NB_KV_BF16;
    if (type_of(row, &type) != NB_OK) return;
    for (size_t i = 0; i < NB_COUNT(list); i++) {
        const shape *s = &list[i].s;
        job j = { .v = row->row };
        chk_case(t, "bench %zu", i);
        if (!make_record(t, &j.k.r, s, type, NB_KV_BASIC, PLAIN)) return;
        make_case(t, j.v, &j.k, s, CHK_NORMAL, CHK_NORMAL);
        j.k.a.query = j.k.query;
        j.k.a.page = j.k.page;
        j.k.a.record = &j.k.r;
        const double n_tok = (double)(s->n_page * NB_PAGE_TOK);
        const double n_row = (double)(s->n_query * s->n_head);
        chk_time(t, list[i].label, (double)(s->n_page * j.k.r.page_bytes),
                 2 * n_tok * n_row * (double)(2 * s->d1 + s->d2), call, &j);
    }
}

/* Planted bugs. */
static size_t c_scratch(const nb_record *r)
{
    return nb_attn_pages_variants[0].name ? NB_PAGE_TOK * r->n_values * sizeof(float) : 0;
}
static bool any(const nb_record *r)
{
    return r->n_seg == 2;
}
static void last_page_lost(const nb_attn_pages_args *a)
{
    nb_attn_pages_args b = *a;
    if (b.n_page > 1) b.n_page--;
    nb_attn_pages_c(&b);
}
static void no_rope(const nb_attn_pages_args *a)
{
    nb_record r = *a->record; /* the rope key of token 0 for all */
    nb_attn_pages_args b = *a;
    r.seg[1].code_stride = r.seg[1].outer_stride = r.seg[1].side_stride = 0;
    b.record = &r;
    nb_attn_pages_c(&b);
}
static void forgets_outer(const nb_attn_pages_args *a)
{
    nb_record r = *a->record; /* every token with the outer scale of token 0 */
    nb_attn_pages_args b = *a;
    r.seg[0].outer_stride = 0;
    b.record = &r;
    nb_attn_pages_c(&b);
}
static void first_query_for_all(const nb_attn_pages_args *a)
{
    nb_attn_pages_args b = *a;
    nb_attn_query q[MAX_QUERY];
    for (size_t i = 0; i < a->n_query; i++) {
        q[i] = a->query[i];
        q[i].q = a->query[0].q;
    }
    b.query = q;
    nb_attn_pages_c(&b);
}
static void restarts_state(const nb_attn_pages_args *a)
{
    for (size_t i = 0; i < a->n_query; i++)
        for (size_t h = a->head_begin; h < a->head_end; h++) a->query[i].m[h] = -INFINITY;
    nb_attn_pages_c(a);
}
static void depends_on_neighbours(const nb_attn_pages_args *a)
{
    nb_attn_pages_c(a);
    if (a->n_query * (a->head_end - a->head_begin) == 1)
        a->query[0].l[a->head_begin] = nextafterf(a->query[0].l[a->head_begin], 0);
}
static void writes_past_scratch(const nb_attn_pages_args *a)
{
    nb_attn_pages_c(a);
    ((volatile unsigned char *)a->scratch)[c_scratch(a->record)] = 1;
}
static void nan_spreads(const nb_attn_pages_args *a)
{
    nb_attn_pages_c(a);
    const nb_attn_query *q = a->query; /* 0 * the row before enters a row */
    for (size_t h = a->head_begin + 1; h < a->head_end; h++) q->l[h] += 0 * q->l[h - 1];
}
static void heads_outside(const nb_attn_pages_args *a)
{
    nb_attn_pages_c(a);
    if (a->head_begin > 0) a->query[0].l[a->head_begin - 1] = 1;
}

static void coarse_queries(const nb_attn_pages_args *a)
{
    const size_t d1 = a->record->seg[0].dim, d = d1 + a->record->seg[1].dim;
    static float q[MAX_QUERY][128 * 576];
    nb_attn_query query[MAX_QUERY];
    nb_attn_pages_args b = *a;
    for (size_t i = 0; i < a->n_query; i++) {
        query[i] = a->query[i];
        query[i].q = q[i];
        memcpy(q[i] + a->head_begin * d, a->query[i].q + a->head_begin * d,
               (a->head_end - a->head_begin) * d * sizeof(float));
        for (size_t h = a->head_begin; h < a->head_end; h++) round_query(q[i] + h * d, d1, 126);
    }
    b.query = query;
    nb_attn_pages_c(&b);
}

#define BUG(what, expect, fn) BUG_STEP(what, expect, fn, 0)
#define BUG_STEP(what, expect, fn, q_step)                                                         \
    {                                                                                              \
        what, expect,                                                                              \
        {                                                                                          \
            "broken", "nvfp4", NB_SPACE_HOST, 0, &(const nb_attn_pages_variant)                    \
            {                                                                                      \
                "broken", NB_SPACE_HOST, 0, fn, any, c_scratch, 0, q_step, 0                       \
            }                                                                                      \
        }                                                                                          \
    }
static const chk_broken broken[] = {
    BUG("the last page is lost", "expected", last_page_lost),
    BUG("one rope key for all tokens", "expected", no_rope),
    BUG("outer scale of the first token", "expected", forgets_outer),
    BUG("all queries are the first", "expected", first_query_for_all),
    BUG("a running state starts afresh", "expected", restarts_state),
    BUG("a row depends on its neighbours", "other bits", depends_on_neighbours),
    BUG("scratch is written past its end", "", writes_past_scratch),
    BUG("a NaN spreads to the next head", "other bits", nan_spreads),
    BUG("a head outside the range is touched", "", heads_outside),
    BUG_STEP("bytes of 126 steps instead of 127", "expected", coarse_queries, 0x1p-8f),
    { 0 },
};

const chk_op chk_attn_pages = { "attn_pages", rows, test, bench, broken };
