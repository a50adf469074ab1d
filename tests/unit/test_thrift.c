/* test_thrift.c - the parts of Thrift mode that need no model: options, the choice against brute
 * force, the pool against a naive one. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/attr.h"
#include "base/rng.h"
#include "model/thrift.h"

static uint64_t drawn;
static uint64_t draw(void)
{
    return nb_rng_u64(20261121, drawn++);
}
static size_t below(size_t n)
{
    return (size_t)(draw() % n);
}

/* ---- options ---- */

static void test_words(void **state)
{
    (void)state;
    static const char *const word[] = { "off", "token", "block-mean", "quest", "block-prob" };
    nb_thrift_options o;
    for (size_t i = 0; i < NB_COUNT(word); i++) {
        assert_int_equal(nb_thrift_parse(word[i], 0, 0, 0, &o, NULL), NB_OK);
        assert_int_equal(o.kind, i);
        assert_string_equal(nb_thrift_name(o.kind), word[i]);
        assert_true(o.tau == 1e-3 && o.pool == 0.02);
        assert_true(o.fraction == (i == NB_THRIFT_TOKEN ? 0.005 : 0.05));
    }
    assert_int_equal(nb_thrift_parse(NULL, 0, 0, 0, &o, NULL), NB_OK);
    assert_int_equal(o.kind, NB_THRIFT_OFF);
    assert_int_equal(nb_thrift_parse("quest", 0.5, 1, 0.25, &o, NULL), NB_OK);
    assert_true(o.tau == 0.5 && o.fraction == 1 && o.pool == 0.25);
}

static void refused(const char *kind, double tau, double fraction, double pool, nb_status st,
                    const char *line)
{
    nb_thrift_options o = { .max_pos = 77 };
    nb_error err = { 0 };
    assert_int_equal(nb_thrift_parse(kind, tau, fraction, pool, &o, &err), st);
    assert_string_equal(err.msg, line);
    assert_int_equal(o.max_pos, 77); /* untouched */
}

static void test_refused(void **state)
{
    (void)state;
    refused("tokens", 0, 0, 0, NB_ERR_ARG,
            "--kv-thrift tokens: expected off, token, block-mean, quest or block-prob");
    refused("", 0, 0, 0, NB_ERR_ARG,
            "--kv-thrift : expected off, token, block-mean, quest or block-prob");
    refused("token", 1.5, 0, 0, NB_ERR_RANGE, "--kv-thrift-tau 1.5: expected 0 to 1");
    refused("token", NAN, 0, 0, NB_ERR_RANGE, "--kv-thrift-tau nan: expected 0 to 1");
    refused("token", 0, -0.1, 0, NB_ERR_RANGE, "--kv-thrift-fraction -0.1: expected 0 to 1");
    refused("token", 0, INFINITY, 0, NB_ERR_RANGE, "--kv-thrift-fraction inf: expected 0 to 1");
    refused("quest", 0, 0, 2, NB_ERR_RANGE, "--kv-thrift-pool 2: expected 0 to 1");
    refused("off", 0, 0, -1, NB_ERR_RANGE, "--kv-thrift-pool -1: expected 0 to 1");
}

/* ---- the choice ---- */

static void test_counts(void **state)
{
    (void)state;
    static const struct {
        double f;
        size_t n, cap, page;
    } row[] = {
        { 0.05, 0, 0, 0 },        { 0.05, 1, 1, 1 },       { 0.05, 9, 1, 1 },
        { 0.05, 10, 1, 1 },       { 0.5, 1, 1, 1 },        { 0.5, 3, 2, 2 },
        { 0.5, 5, 3, 2 },         { 0.5, 7, 4, 4 },        { 0.25, 6, 2, 2 },
        { 0.25, 10, 3, 2 },       { 0.25, 14, 4, 4 },      { 1, 17, 17, 17 },
        { 0.05, 2048, 103, 102 }, { 0.005, 3000, 15, 15 }, { 1e-9, 64, 1, 1 },
        { 0.999, 10, 10, 10 },
    };
    for (size_t i = 0; i < NB_COUNT(row); i++) {
        assert_int_equal(nb_thrift_token_cap(row[i].f, row[i].n), row[i].cap);
        assert_int_equal(nb_thrift_n_page(row[i].f, row[i].n), row[i].page);
    }
}

static void test_lse(void **state)
{
    (void)state;
    float s[300];
    for (int round = 0; round < 200; round++) {
        const size_t n = 1 + below(300);
        const double width = (double[]){ 0.01, 1, 30, 1000 }[round % 4];
        double max = -INFINITY, sum = 0;
        for (size_t i = 0; i < n; i++) {
            s[i] = (float)(width * (2 * nb_rng_unit(7, drawn++) - 1));
            max = fmax(max, (double)s[i]);
        }
        for (size_t i = 0; i < n; i++) sum += exp((double)s[i] - max);
        const double want = max + log(sum);
        const float got = nb_thrift_lse(s, n);
        assert_true(fabs((double)got - want) <= 1e-6 * (1 + fabs(want)));
        assert_true((double)got >= max);
    }
    assert_true(nb_thrift_lse(s, 0) == -INFINITY);
    s[0] = 3;
    assert_true(nb_thrift_lse(s, 1) == 3);
    s[0] = NAN, s[1] = 1;
    assert_true(isnan(nb_thrift_lse(s, 2)));
    s[0] = INFINITY;
    assert_true(nb_thrift_lse(s, 2) == INFINITY);
}

/* The same by taking the largest again and again. */
static size_t choose_slowly(const float *x, size_t n, double above, size_t cap, uint32_t *out,
                            size_t *n_over)
{
    unsigned char *taken = test_calloc(n + 1, 1);
    size_t n_out = 0;
    *n_over = 0;
    for (;;) {
        size_t best = n;
        for (size_t i = 0; i < n; i++)
            if (!taken[i] && (double)x[i] > above && (best == n || x[i] > x[best])) best = i;
        if (best == n) break;
        taken[best] = n_out < cap ? 1 : 2;
        if (n_out < cap)
            n_out++;
        else
            (*n_over)++;
    }
    n_out = 0;
    for (size_t i = 0; i < n; i++)
        if (taken[i] == 1) out[n_out++] = (uint32_t)i;
    test_free(taken);
    return n_out;
}

static void test_choose(void **state)
{
    (void)state;
    enum { MAX = 90 };
    float x[MAX];
    for (int round = 0; round < 20000; round++) {
        const size_t n = below(MAX + 1), cap = below(n + 2);
        const int how = round % 5;
        for (size_t i = 0; i < n; i++) {
            const double u = nb_rng_unit(3, drawn++) * 2 - 1;
            x[i] = how == 0   ? (float)u
                   : how == 1 ? (float)((int)(u * 4)) * 0.5f /* ties */
                   : how == 2 ? (float)(u * 0x1p-20)         /* keys that share bytes */
                   : how == 3 ? (below(4) ? (float)(u * 100) : -INFINITY)
                              : (below(5) ? -0.0f : 0.0f);
            if (how == 3 && below(9) == 0) x[i] = NAN;
        }
        const double above = below(3) == 0 ? -INFINITY : nb_rng_unit(4, drawn++) - 0.7;
        uint32_t got[MAX + 2], want[MAX + 2];
        size_t over = 999, want_over = 0;
        got[cap] = 0xabcdef01;
        const size_t n_want = choose_slowly(x, n, above, cap, want, &want_over);
        assert_int_equal(nb_thrift_choose(x, n, above, cap, got, &over), n_want);
        assert_int_equal(over, want_over);
        assert_memory_equal(got, want, n_want * sizeof *got);
        assert_int_equal(got[cap], 0xabcdef01);
    }
}

/* ---- the pool ---- */

enum { ROW = 24, N_LAYER = 3, N_BLOCK = 5, N_TOK = 64 };
static unsigned char plane[N_LAYER][N_BLOCK][N_TOK][ROW];

typedef struct naive {
    size_t n_slot, n;
    struct {
        size_t layer, block, tok;
        uint64_t used, round;
    } e[64];
} naive;

static size_t look(const naive *m, size_t layer, size_t block, size_t tok)
{
    size_t i = 0;
    while (i < m->n && !(m->e[i].layer == layer && m->e[i].block == block && m->e[i].tok == tok))
        i++;
    return i;
}

/* What the pool has to say: hit; in the pool afterwards. */
static void naive_get(naive *m, size_t layer, size_t block, size_t tok, uint64_t now,
                      uint64_t round, bool *hit, bool *in)
{
    size_t i = look(m, layer, block, tok);
    *hit = i < m->n;
    *in = true;
    if (!*hit) {
        if (m->n < m->n_slot) {
            i = m->n++;
        } else {
            i = 0;
            for (size_t k = 1; k < m->n; k++)
                if (m->e[k].used < m->e[i].used) i = k;
            *in = m->n && m->e[i].round != round;
            if (!*in) return;
        }
    }
    m->e[i].layer = layer, m->e[i].block = block, m->e[i].tok = tok;
    m->e[i].used = now, m->e[i].round = round;
}

static void naive_drop(naive *m, size_t layer, size_t block)
{
    for (size_t i = 0; i < m->n;)
        if (m->e[i].layer == layer && m->e[i].block == block)
            m->e[i] = m->e[--m->n];
        else
            i++;
}

static void fill_page(size_t layer, size_t block)
{
    for (size_t t = 0; t < N_TOK; t++)
        for (size_t k = 0; k < ROW; k++) plane[layer][block][t][k] = (unsigned char)draw();
}

static void run_pool(size_t n_slot)
{
    nb_thrift_pool *p = NULL;
    naive m = { .n_slot = n_slot };
    uint64_t round = 0;
    const unsigned char *seen[200]; /* rows of this round */
    const unsigned char *from[200];
    size_t n_seen = 0;
    assert_int_equal(nb_thrift_pool_create(n_slot, ROW, &p, NULL), NB_OK);
    assert_true(nb_thrift_pool_bytes(n_slot, ROW) >= n_slot * ROW);
    for (uint64_t now = 1; now < 20000; now++) {
        const size_t layer = below(N_LAYER), block = below(N_BLOCK);
        if (below(12) == 0 || n_seen == NB_COUNT(seen)) {
            nb_thrift_pool_begin(p);
            round++;
            n_seen = 0;
            if (below(3) == 0) { /* pages are rewritten between rounds */
                fill_page(layer, block);
                nb_thrift_pool_drop(p, layer, (uint32_t)block);
                naive_drop(&m, layer, block);
            }
            continue;
        }
        const size_t tok = below(below(2) ? 4 : N_TOK);
        const unsigned char *row = plane[layer][block][tok];
        bool hit, want_hit, want_in;
        naive_get(&m, layer, block, tok, now, round, &want_hit, &want_in);
        const unsigned char *got = nb_thrift_pool_get(p, layer, (uint32_t)block, tok, row, &hit);
        assert_int_equal(hit, want_hit);
        assert_int_equal(got != row, want_in);
        seen[n_seen] = got;
        from[n_seen++] = row;
        for (size_t i = 0; i < n_seen; i++) assert_memory_equal(seen[i], from[i], ROW);
    }
    nb_thrift_pool_destroy(p);
}

static void test_pool(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_LAYER; i++)
        for (size_t b = 0; b < N_BLOCK; b++) fill_page(i, b);
    run_pool(0);
    run_pool(1);
    run_pool(7);
    run_pool(60);
    nb_thrift_pool *p = NULL;
    nb_error err = { 0 };
    assert_int_equal(nb_thrift_pool_create(UINT32_MAX, ROW, &p, &err), NB_ERR_LIMIT);
    nb_thrift_pool_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words), cmocka_unit_test(test_refused), cmocka_unit_test(test_counts),
        cmocka_unit_test(test_lse),   cmocka_unit_test(test_choose),  cmocka_unit_test(test_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
