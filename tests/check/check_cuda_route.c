/* check_cuda_route.c - route on a GPU: ids and weights against route_ref.c, the order by expert by its
 * definition, tokens alone and in steps of every size that is computed otherwise. */
#include "check/check.h"
#include "check/check_cuda.h"
#include "kernel/route/route.h"

typedef struct shape {
    size_t n_expert, top_k, n_group, topk_group;
    int group_top;
    bool sigmoid, normalise, bias;
    bool softplus, given; /* given: ids come from a table of tokens */
} shape;

static const shape shapes[] = {
    { 1, 1, 1, 1, 1, false, false, false, false, false },
    { 8, 2, 1, 1, 1, false, true, false, false, false },
    { 16, 16, 1, 1, 1, true, true, false, false, false },
    { 60, 4, 1, 1, 1, false, false, false, false, false },
    { 64, 6, 1, 1, 1, false, false, false, false, false },
    { 64, 6, 1, 1, 1, true, true, true, false, false },
    { 160, 6, 8, 3, 1, false, false, false, false, false },
    { 256, 8, 8, 4, 2, true, true, true, false, false },
    { 384, 8, 1, 1, 2, true, true, true, false, false },
    { 12, 3, 4, 2, 2, true, false, true, false, false },
    { 9, 2, 9, 3, 2, true, true, false, false, false },
    { 513, 64, 27, 20, 1, false, true, true, false, false },
    { 80, 3, 40, 5, 2, true, true, true, false, false },
    { 1200, 2, 1, 1, 1, false, true, false, false, false },
    { 256, 6, 1, 1, 1, false, true, true, true, false },
    { 256, 6, 1, 1, 1, false, true, false, true, true },
    { 9, 2, 1, 1, 1, true, false, false, false, true },
};

/* What one call gives, on the host. */
typedef struct result {
    uint32_t *id, *first, *src, *place;
    float *weight;
} result;

static nb_route_args make_args(chk *t, const shape *s, size_t n_tok, chk_pattern p)
{
    nb_route_args a = { .n_tok = n_tok, .n_expert = s->n_expert, .top_k = s->top_k };
    a.n_group = s->n_group;
    a.topk_group = s->topk_group;
    a.group_top = s->group_top;
    a.sigmoid = s->sigmoid;
    a.sqrt_softplus = s->softplus;
    a.given = s->given;
    a.normalise = s->normalise;
    a.factor = chk_u64(t) % 2 ? 1.0f : 2.5f;
    float *x = chk_in_rows(t, n_tok, s->n_expert, s->n_expert, p);
    for (size_t i = 0; p == CHK_NORMAL && i < n_tok * s->n_expert; i++) x[i] *= 8;
    a.logits = x;
    if (s->bias) a.bias = chk_in_rows(t, 1, s->n_expert, s->n_expert, CHK_TIES);
    return a;
}

enum { N_VOCAB = 50 };
static uint16_t table[N_VOCAB * NB_ROUTE_MAX_TOPK];

/* A table of distinct experts. */
static void make_table(chk *t, const nb_route_args *a)
{
    for (size_t v = 0; v < N_VOCAB; v++) {
        const size_t first = chk_between(t, 0, a->n_expert - 1);
        for (size_t k = 0; k < a->top_k; k++) table[v * a->top_k + k] = (uint16_t)((first + k) % a->n_expert);
    }
}

/* Token `tok` of the table; one behind its end, as padding is. */
static uint32_t id_of(size_t tok)
{
    return tok % 11 == 10 ? UINT32_MAX : (uint32_t)(tok * 7 % N_VOCAB);
}

/* tok0: the first token's number in the table. */
static result run(chk *t, const nb_route_args *a, size_t n_rank, size_t tok0)
{
    const size_t n = a->n_tok * a->top_k * 4, n_first = (a->n_expert + 1) * 4;
    nb_cuda_route_args g = { .n_tok = a->n_tok,
                             .n_expert = a->n_expert,
                             .top_k = a->top_k,
                             .n_group = a->n_group,
                             .topk_group = a->topk_group,
                             .n_rank = n_rank,
                             .group_top = a->group_top,
                             .sigmoid = a->sigmoid,
                             .sqrt_softplus = a->sqrt_softplus,
                             .normalise = a->normalise,
                             .factor = a->factor,
                             .n_vocab = N_VOCAB };
    if (a->given) {
        uint32_t *tok = chk_raw(t, a->n_tok * sizeof *tok);
        for (size_t i = 0; i < a->n_tok; i++) tok[i] = id_of(tok0 + i);
        g.tok = chk_gpu_in(t, tok, a->n_tok * sizeof *tok);
        g.table = chk_gpu_in(t, table, N_VOCAB * a->top_k * sizeof *table);
    }
    g.logits = chk_gpu_in(t, a->logits, a->n_tok * a->n_expert * sizeof(float));
    if (a->bias) g.bias = chk_gpu_in(t, a->bias, a->n_expert * sizeof(float));
    g.id = chk_gpu_out(t, n);
    g.first = chk_gpu_out(t, n_first);
    g.src = chk_gpu_out(t, n);
    g.place = chk_gpu_out(t, n);
    g.weight = chk_gpu_out(t, n);
    chk_gpu_call(t, chk_gpu_api(t)->route(chk_gpu(t), &g));
    result r = { chk_raw(t, n), chk_raw(t, n_first), chk_raw(t, n), chk_raw(t, n), chk_raw(t, n) };
    chk_gpu_get(t, r.id, g.id, n);
    chk_gpu_get(t, r.first, g.first, n_first);
    chk_gpu_get(t, r.src, g.src, n);
    chk_gpu_get(t, r.place, g.place, n);
    chk_gpu_get(t, r.weight, g.weight, n);
    return r;
}

static bool ids_valid(chk *t, const nb_route_args *a, const result *r)
{
    for (size_t i = 0; i < a->n_tok * a->top_k; i++) {
        bool twice = false;
        for (size_t j = i / a->top_k * a->top_k; j < i; j++) twice |= r->id[i] == r->id[j];
        if (r->id[i] < a->n_expert && !twice) continue;
        chk_fail(t, "token %zu: id %u of %zu experts%s", i / a->top_k, r->id[i], a->n_expert,
                 twice ? " twice" : "");
        return false;
    }
    return true;
}

/* The experts of rank 0 in ascending order, then those of rank 1, ... */
static void order_right(chk *t, const nb_route_args *a, const result *r, size_t n_rank)
{
    const size_t n = a->n_tok * a->top_k;
    uint32_t at = 0;
    for (size_t s = 0, k = 0, e = 0; s < a->n_expert; s++, e += n_rank) {
        while (e >= a->n_expert) e = ++k;
        if (r->first[s] != at) {
            chk_fail(t, "expert %zu begins at %u, expected %u", e, r->first[s], at);
            return;
        }
        for (size_t i = 0; i < n; i++) {
            if (r->id[i] != e) continue;
            if (r->place[i] != at || r->src[at] != i / a->top_k) {
                chk_fail(t, "row %zu is at %u of token %u, expected %u", i, r->place[i], r->src[at],
                         at);
                return;
            }
            at++;
        }
    }
    if (r->first[a->n_expert] != n) chk_fail(t, "%u rows, expected %zu", r->first[a->n_expert], n);
}

/* The order of a choice that has been made, with tokens that have none. */
static void order_given(chk *t, const nb_route_args *a, const result *r, size_t n_rank)
{
    const size_t k = a->top_k, n = a->n_tok * k;
    nb_cuda_route_args g = { .n_tok = a->n_tok, .n_expert = a->n_expert, .top_k = k, .n_rank = n_rank };
    unsigned char *on = chk_raw(t, a->n_tok);
    uint32_t *first = chk_raw(t, (a->n_expert + 1) * 4), *src = chk_raw(t, n * 4), *place = chk_raw(t, n * 4);
    const bool all = chk_u64(t) % 4 == 0;
    for (size_t i = 0; i < a->n_tok; i++) on[i] = all || chk_u64(t) % 3 != 0;
    g.id = (uint32_t *)(uintptr_t)chk_gpu_in(t, r->id, n * 4);
    g.on = all && chk_u64(t) % 2 ? NULL : chk_gpu_in(t, on, a->n_tok);
    g.first = chk_gpu_out(t, (a->n_expert + 1) * 4);
    g.src = chk_gpu_out(t, n * 4);
    g.place = chk_gpu_out(t, n * 4);
    chk_gpu_call(t, chk_gpu_api(t)->route(chk_gpu(t), &g));
    chk_gpu_get(t, first, g.first, (a->n_expert + 1) * 4);
    chk_gpu_get(t, src, g.src, n * 4);
    chk_gpu_get(t, place, g.place, n * 4);
    uint32_t at = 0;
    bool right = true;
    for (size_t s = 0, q = 0, e = 0; s < a->n_expert; s++, e += n_rank) {
        while (e >= a->n_expert) e = ++q;
        right &= first[s] == at;
        for (size_t i = 0; i < n && right; i++) {
            if (r->id[i] != e || !on[i / k]) continue;
            right = place[i] == at && src[at] == i / k;
            at++;
        }
    }
    for (size_t i = 0; i < n && right; i++) right = on[i / k] || place[i] == 0;
    if (!right || first[a->n_expert] != at) chk_fail(t, "another order of %u rows that are given", at);
}

static void compare(chk *t, const nb_route_args *a, const result *r)
{
    const size_t k = a->top_k, n = a->n_tok * k;
    uint32_t *id = chk_raw(t, n * sizeof *id);
    double *weight = chk_f64(t, n), *choice = chk_f64(t, a->n_tok * a->n_expert);
    double bound[NB_ROUTE_MAX_TOPK];
    for (size_t i = 0; a->given && i < n; i++) {
        const uint32_t tok = id_of(i / k);
        id[i] = table[(tok < N_VOCAB ? tok : 0) * k + i % k];
    }
    nb_route_ref(a, id, weight, choice);
    for (size_t tok = 0; tok < a->n_tok; tok++) {
        const double *c = choice + tok * a->n_expert;
        size_t same = 0;
        while (same < k && r->id[tok * k + same] == id[tok * k + same]) same++;
        if (same < k) {
            const double d = c[id[tok * k + same]] - c[r->id[tok * k + same]];
            if (d == 0 || !(fabs(d) < 4 * 0x1p-24))
                chk_fail(t, "token %zu place %zu: id %u, expected %u (choices differ by %.3g)", tok,
                         same, r->id[tok * k + same], id[tok * k + same], d);
            continue; /* a near tie: other weights */
        }
        for (size_t j = 0; j < k; j++)
            bound[j] = 16 * 0x1p-24 * fabs(weight[tok * k + j]) + 0x1p-149;
        chk_close(t, r->weight + tok * k, 1, k, k, weight + tok * k, bound);
    }
}

static void one_case(chk *t, const shape *s, size_t n_tok, chk_pattern p, bool hostile)
{
    static const float bad[] = { NAN, INFINITY, -INFINITY };
    const nb_route_args a = make_args(t, s, n_tok, p);
    make_table(t, &a);
    float *x = (float *)(uintptr_t)a.logits;
    for (size_t i = 0; hostile && i < n_tok / 2 * s->n_expert; i++)
        if (i < s->n_expert || chk_u64(t) % 3 == 0) x[i] = bad[chk_u64(t) % 3];
    for (size_t i = 0; hostile && n_tok > 1 && i < s->n_expert; i++) x[i] = NAN;
    const result r = run(t, &a, 1, 0);
    if (!ids_valid(t, &a, &r)) return;
    order_right(t, &a, &r, 1);
    const size_t n_rank = chk_between(t, 2, 8);
    const result parts = run(t, &a, n_rank, 0);
    order_right(t, &a, &parts, n_rank);
    order_given(t, &a, &parts, n_rank);
    chk_same_bytes(t, "ids for ranks", parts.id, r.id, n_tok * s->top_k * 4);
    chk_same_bytes(t, "weights for ranks", parts.weight, r.weight, n_tok * s->top_k * 4);
    if (!hostile) compare(t, &a, &r);
    for (size_t k = n_tok > 3 ? n_tok - 3 : 0; k < n_tok; k++) {
        nb_route_args one = a;
        one.n_tok = 1;
        one.logits = a.logits + k * s->n_expert;
        const result alone = run(t, &one, 1, k);
        chk_same_bytes(t, "ids of a token alone", alone.id, r.id + k * s->top_k, s->top_k * 4);
        chk_same_bytes(t, "weights of a token alone", alone.weight, r.weight + k * s->top_k,
                       s->top_k * 4);
    }
}

static void test(chk *t, const chk_row *row)
{
    (void)row;
    static const size_t sizes[] = { 64, 65, 70, 130 };
    for (size_t i = 0; i < NB_COUNT(shapes); i++) {
        for (chk_pattern p = 0; p < CHK_PATTERN_COUNT; p++)
            if (chk_case(t, "shape %zu (%zu experts, %zu groups) %s", i, shapes[i].n_expert,
                         shapes[i].n_group, chk_pattern_name(p)))
                one_case(t, &shapes[i], chk_between(t, 1, 5), p, false);
        if (chk_case(t, "shape %zu hostile", i)) one_case(t, &shapes[i], 6, CHK_NORMAL, true);
        if (chk_case(t, "shape %zu, many", i))
            one_case(t, &shapes[i], sizes[i % NB_COUNT(sizes)], CHK_NORMAL, i % 2 != 0);
    }
    if (chk_case(t, "several blocks")) one_case(t, &shapes[5], 800, CHK_NORMAL, false);
    if (chk_case(t, "all to one")) one_case(t, &shapes[7], 64, CHK_ZERO, false);
    if (chk_case(t, "all to one, many")) one_case(t, &shapes[4], 700, CHK_ZERO, false);
}

typedef struct job {
    const nb_cuda_api *api;
    nb_cuda *g;
    nb_cuda_route_args a;
} job;

static void call(void *ctx)
{
    const job *j = ctx;
    j->api->route(j->g, &j->a);
}

static void bench(chk *t, const chk_row *row)
{
    (void)row;
    static const size_t which[] = { 4, 7 }, n_toks[] = { 1, 4, 8, 16, 64, 65, 512, 8192 };
    for (size_t i = 0; i < NB_COUNT(which) * NB_COUNT(n_toks); i++) {
        const shape *s = &shapes[which[i / NB_COUNT(n_toks)]];
        const size_t n_tok = n_toks[i % NB_COUNT(n_toks)], n = n_tok * s->top_k * 4;
        char label[64];
        chk_case(t, "bench");
        const nb_route_args h = make_args(t, s, n_tok, CHK_NORMAL);
        job j = { chk_gpu_api(t), chk_gpu(t), { 0 } };
        j.a = (nb_cuda_route_args){ .n_tok = n_tok,
                                    .n_expert = s->n_expert,
                                    .top_k = s->top_k,
                                    .n_group = s->n_group,
                                    .topk_group = s->topk_group,
                                    .group_top = s->group_top,
                                    .sigmoid = s->sigmoid,
                                    .normalise = s->normalise,
                                    .factor = h.factor };
        j.a.logits = chk_gpu_in(t, h.logits, n_tok * s->n_expert * sizeof(float));
        if (h.bias) j.a.bias = chk_gpu_in(t, h.bias, s->n_expert * sizeof(float));
        j.a.id = chk_gpu_out(t, n);
        j.a.first = chk_gpu_out(t, (s->n_expert + 1) * 4);
        j.a.src = chk_gpu_out(t, n);
        j.a.place = chk_gpu_out(t, n);
        j.a.weight = chk_gpu_out(t, n);
        snprintf(label, sizeof label, "%zu of %zu experts, %zu tok", s->top_k, s->n_expert, n_tok);
        chk_gpu_time(t, label, 4.0 * (double)(s->n_expert * n_tok), 0, call, &j);
    }
}

const chk_op chk_cuda_route = { "cuda_route", chk_gpu_row, test, bench, NULL };
