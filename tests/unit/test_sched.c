/* test_sched.c - the scheduler's rules one by one: order and caps of a plan, forms, admission,
 * prefix hits, preemption and its victims, deferred requests, priorities with age, limits; and
 * that the check finds each broken structure. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
/* cmocka needs the headers above */
#include <cmocka.h>

#include <math.h>

#include "base/attr.h"
#include "base/rng.h"
#include "sched/sched_internal.h"

enum { MAX_ITEM = 16 };

typedef struct rig {
    nb_kv_cache *kv;
    nb_sched *s;
    nb_sched_item item[MAX_ITEM];
    size_t n_item;
    double now;
} rig;

/* 8 slots, 64 tokens per step, chunks of 32, 512 tokens per request, the number of blocks given. */
static const nb_sched_options usual = {
    .max_num_seqs = 8, .max_step_tok = 64, .max_chunk_tok = 32, .max_model_len = 512
};

static rig make(size_t n_block, nb_sched_options o)
{
    rig t = { 0 };
    const nb_kv_cache_options ko = { .n_block = n_block, .index = true, .protected_share = 0.75 };
    assert_int_equal(nb_kv_cache_create(&ko, &t.kv, NULL), NB_OK);
    assert_int_equal(nb_sched_create(&o, t.kv, &t.s, NULL), NB_OK);
    return t;
}

static void ok(const rig *t)
{
    const char *what = nb_sched_check(t->s);
    if (what) print_error("%s\n", what);
    assert_null(what);
}

static void done(rig *t)
{
    nb_kv_cache_stats ks;
    ok(t);
    nb_sched_destroy(t->s);
    nb_kv_cache_get_stats(t->kv, &ks);
    assert_int_equal(ks.n_held, 0);
    assert_null(nb_kv_cache_check(t->kv));
    nb_kv_cache_destroy(t->kv);
}

/* Request `id` of n tokens of text `text` (texts differ from the first token on). */
static nb_sched_request request(uint64_t id, uint32_t text, size_t n)
{
    static uint32_t prompt[4096];
    assert_true(n <= NB_COUNT(prompt));
    for (size_t i = 0; i < n; i++) prompt[i] = text * 10000 + (uint32_t)i;
    return (nb_sched_request){ .id = id,
                               .prompt = prompt,
                               .n_prompt = n,
                               .rope_from = SIZE_MAX,
                               .deadline = (double)INFINITY };
}

static void add(rig *t, uint64_t id, uint32_t text, size_t n)
{
    const nb_sched_request q = request(id, text, n);
    assert_int_equal(nb_sched_add(t->s, &q, t->now, NULL), NB_OK);
    ok(t);
}

static nb_sched_stats stats(const rig *t)
{
    nb_sched_stats st;
    nb_sched_get_stats(t->s, &st);
    return st;
}

static void plan(rig *t)
{
    t->n_item = nb_sched_plan(t->s, t->now, t->item);
    ok(t);
}

static void compute(rig *t)
{
    for (size_t i = 0; i < t->n_item; i++) {
        assert_int_equal(nb_sched_computed(t->s, t->item[i].id), NB_OK);
        ok(t);
        if (t->item[i].last)
            assert_int_equal(nb_sched_push(t->s, t->item[i].id, (uint32_t)t->item[i].pos0), NB_OK);
        ok(t);
    }
}

static void step(rig *t)
{
    plan(t);
    compute(t);
}

static void expect(const rig *t, size_t i, uint64_t id, size_t pos0, size_t n_tok, bool last)
{
    assert_true(i < t->n_item);
    assert_int_equal(t->item[i].id, id);
    assert_int_equal(t->item[i].pos0, pos0);
    assert_int_equal(t->item[i].n_tok, n_tok);
    assert_int_equal(t->item[i].last, last);
}

static const nb_sched_item *item_of(const rig *t, uint64_t id)
{
    for (size_t i = 0; i < t->n_item; i++)
        if (t->item[i].id == id) return &t->item[i];
    return NULL;
}

/* ---- states and their snapshots ---- */

static rig make_with_states(size_t n_block, size_t n_snap)
{
    rig t = { 0 };
    nb_sched_options o = usual;
    o.max_step_tok = o.max_chunk_tok = 512;
    o.snap_tok = 128;
    const nb_kv_cache_options ko = {
        .n_block = n_block, .index = true, .protected_share = 0.75, .n_snap = n_snap
    };
    assert_int_equal(nb_kv_cache_create(&ko, &t.kv, NULL), NB_OK);
    assert_int_equal(nb_sched_create(&o, t.kv, &t.s, NULL), NB_OK);
    return t;
}

/* Items end where snapshots are taken; a hit ends at one and names it; a second prompt that parts from the first
 * gets one there. */
static void test_snapshots(void **state)
{
    (void)state;
    rig t = make_with_states(32, 8);
    add(&t, 1, 1, 330);
    static const size_t end[] = { 128, 256, 320, 330 };
    for (size_t i = 0, at = 0; i < NB_COUNT(end); at = end[i++]) {
        plan(&t);
        expect(&t, 0, 1, at, end[i] - at, i == 3);
        assert_int_equal(t.item[0].load, NB_SNAP_NONE);
        assert_int_equal(t.item[0].save == NB_SNAP_NONE, i == 3);
        compute(&t);
    }
    nb_sched_remove(t.s, 1);
    add(&t, 2, 1, 330); /* the same prompt */
    plan(&t);
    expect(&t, 0, 2, 320, 10, true);
    assert_true(t.item[0].load != NB_SNAP_NONE && t.item[0].n_cached == 320);
    compute(&t);
    nb_sched_remove(t.s, 2);
    add(&t, 3, 1,
        200); /* parts behind block 3, which has none: its end is computed again, and kept */
    plan(&t);
    expect(&t, 0, 3, 128, 64, false);
    assert_true(t.item[0].load != NB_SNAP_NONE && t.item[0].save != NB_SNAP_NONE);
    const uint32_t load = t.item[0].load;
    plan(&t); /* never computed: the place was given back */
    assert_int_equal(t.item[0].load, load);
    compute(&t);
    nb_sched_remove(t.s, 3);
    add(&t, 4, 1, 200);
    plan(&t);
    expect(&t, 0, 4, 192, 8, true);
    done(&t);
}

/* Without a place nothing is kept, and everything is computed. */
static void test_no_places(void **state)
{
    (void)state;
    rig t = make_with_states(32, 0);
    for (uint64_t id = 1; id <= 2; id++) {
        add(&t, id, 1, 150);
        plan(&t);
        expect(&t, 0, id, 0, 128, false);
        assert_int_equal(t.item[0].save, NB_SNAP_NONE);
        compute(&t);
        step(&t);
        nb_sched_remove(t.s, id);
    }
    done(&t);
}

/* ---- one request ---- */

static void test_one(void **state)
{
    (void)state;
    rig t = make(16, usual);
    add(&t, 7, 1, 150);
    assert_int_equal(stats(&t).n_waiting_tok, 150);
    plan(&t); /* alone: the whole step */
    assert_int_equal(t.n_item, 1);
    expect(&t, 0, 7, 0, 64, false);
    assert_true(t.item[0].admitted && t.item[0].n_block == 3 && t.item[0].slot == 0);
    assert_int_equal(t.item[0].tok[63], 10063);
    compute(&t);
    assert_int_equal(stats(&t).n_waiting_tok, 86);
    step(&t);
    expect(&t, 0, 7, 64, 64, false);
    assert_false(t.item[0].admitted);
    step(&t);
    expect(&t, 0, 7, 128, 22, true);
    for (size_t pos = 150; pos < 200;
         pos++) { /* decodes; a block more when 192 is to be computed */
        step(&t);
        expect(&t, 0, 7, pos, 1, true);
        assert_int_equal(t.item[0].n_block, pos < 192 ? 3 : 4);
    }
    assert_int_equal(stats(&t).n_waiting_tok, 0);
    assert_int_equal(stats(&t).prefix_queries, 150);
    assert_int_equal(stats(&t).prefix_hits, 0);
    plan(&t);
    assert_int_equal(nb_sched_computed(t.s, 7), NB_OK);
    plan(&t); /* no token was pushed */
    assert_int_equal(t.n_item, 0);
    assert_int_equal(nb_sched_computed(t.s, 7), NB_ERR_ARG);
    assert_int_equal(nb_sched_computed(t.s, 8), NB_ERR_NOT_FOUND);
    nb_sched_remove(t.s, 7);
    nb_sched_remove(t.s, 7);
    assert_int_equal(stats(&t).n_running, 0);
    add(&t, 7, 1, 20); /* the id is free again */
    done(&t);
}

static void test_void(void **state)
{
    (void)state;
    rig t = make(16, usual);
    add(&t, 1, 1, 40);
    add(&t, 2, 2, 10);
    plan(&t);
    assert_int_equal(t.n_item, 2);
    plan(&t); /* the first plan was not computed: the same again */
    expect(&t, 0, 1, 0, 40, true);
    expect(&t, 1, 2, 0, 10, true);
    assert_false(t.item[0].admitted);
    nb_sched_remove(t.s, 1);
    ok(&t);
    assert_int_equal(nb_sched_computed(t.s, 1), NB_ERR_NOT_FOUND);
    assert_int_equal(nb_sched_computed(t.s, 2), NB_OK);
    done(&t);
}

static void test_forms(void **state)
{
    (void)state;
    rig t = make(16, usual);
    nb_sched_request q = request(1, 1, 100);
    q.n_expanded = 30;
    q.rope_from = 50;
    q.max_item_tok = 40;
    assert_int_equal(nb_sched_add(t.s, &q, 0, NULL), NB_OK);
    static const size_t pos[] = { 0, 30, 50, 90, 100 };
    for (size_t i = 0; i < 4; i++) {
        step(&t);
        expect(&t, 0, 1, pos[i], pos[i + 1] - pos[i], i == 3);
        assert_int_equal(t.item[0].expanded, i < 1);
        assert_int_equal(t.item[0].rope_long, i > 1);
    }
    /* The name of block 0 says how it was computed: 30 tokens expanded, 50 with the short table. */
    nb_block_key key, other;
    assert_int_equal(nb_block_key_root(nb_str_c(""), &key), NB_OK);
    assert_int_equal(nb_block_key_next(&key, q.prompt, 30, 50, &other), NB_OK);
    assert_true(nb_kv_cache_find(t.kv, &other) != NB_BLOCK_NONE);
    assert_int_equal(nb_block_key_next(&key, q.prompt, 0, 64, &other), NB_OK);
    assert_true(nb_kv_cache_find(t.kv, &other) == NB_BLOCK_NONE);
    done(&t);
}

/* Keys that the caller knows are taken as they are: the request finds what is published under them,
 * whatever its tokens, and what follows is named after them. */
static void test_keys(void **state)
{
    (void)state;
    rig t = make(16, usual);
    nb_block_key key[3];
    nb_sched_request q = request(1, 1, 140);
    assert_int_equal(nb_block_key_root(nb_str_c("elsewhere"), &key[0]), NB_OK);
    assert_int_equal(nb_block_key_next(&key[0], q.prompt + 64, 0, 64, &key[1]), NB_OK);
    q.key = key;
    q.n_key = 3;
    assert_int_equal(nb_sched_add(t.s, &q, 0, NULL), NB_ERR_ARG);
    q.n_key = 1;
    assert_int_equal(nb_sched_add(t.s, &q, 0, NULL), NB_OK);
    while (!t.n_item || !t.item[0].last) step(&t);
    assert_true(nb_kv_cache_find(t.kv, &key[0]) != NB_BLOCK_NONE);
    assert_true(nb_kv_cache_find(t.kv, &key[1]) != NB_BLOCK_NONE);
    nb_sched_request other = request(2, 7, 100);
    other.key = key;
    other.n_key = 1;
    assert_int_equal(nb_sched_add(t.s, &other, 0, NULL), NB_OK);
    nb_sched_remove(t.s, 1);
    step(&t);
    assert_int_equal(t.item[0].n_cached, 64);
    done(&t);
}

/* ---- several ---- */

static void test_budget(void **state)
{
    (void)state;
    rig t = make(64, usual);
    add(&t, 1, 1, 10);
    add(&t, 2, 2, 300);
    step(&t);
    expect(&t, 0, 1, 0, 10, true);
    expect(&t, 1, 2, 0, 54, false); /* its chunk of 32, and what nobody else could use */
    add(&t, 3, 3, 300);
    add(&t, 4, 4, 300);
    step(&t); /* the decode first; then chunks: 1 + 32 + 31, and nothing is left for 4 */
    assert_int_equal(t.n_item, 3);
    expect(&t, 0, 1, 10, 1, true);
    expect(&t, 1, 2, 54, 32, false);
    expect(&t, 2, 3, 0, 31, false);
    assert_int_equal(stats(&t).n_waiting, 1);
    assert_int_equal(stats(&t).n_waiting_tok, 300 + (300 - 86) + (300 - 31));
    nb_sched_remove(t.s, 4);
    nb_sched_remove(t.s, 3);
    for (uint64_t id = 5; id < 11; id++) add(&t, id, (uint32_t)id, 1);
    add(&t, 11, 11, 1);
    step(&t);
    assert_int_equal(t.n_item, 8); /* slots */
    expect(&t, 0, 1, 11, 1, true);
    expect(&t, 1, 2, 86, 57, false);
    expect(&t, 7, 10, 0, 1, true);
    bool used[8] = { 0 };
    for (size_t i = 0; i < 8; i++) {
        assert_true(t.item[i].slot < 8 && !used[t.item[i].slot]);
        used[t.item[i].slot] = true;
    }
    assert_int_equal(stats(&t).n_waiting, 1);
    done(&t);
}

static void test_prefix(void **state)
{
    (void)state;
    rig t = make(64, usual);
    add(&t, 1, 1, 128);
    step(&t);
    step(&t);
    add(&t, 2, 1, 128); /* the same text: its last token is computed, so only one block is found */
    add(&t, 3, 1, 200);
    nb_sched_request q = request(4, 1, 128);
    q.salt = nb_str_c("other");
    assert_int_equal(nb_sched_add(t.s, &q, 0, NULL), NB_OK);
    q = request(5, 1, 128);
    q.no_lookup = true;
    assert_int_equal(nb_sched_add(t.s, &q, 0, NULL), NB_OK);
    nb_sched_remove(t.s, 1);
    plan(&t);
    expect(&t, 0, 2, 64, 32, false);
    expect(&t, 1, 3, 128, 32, false);
    assert_int_equal(t.item[0].n_cached, 64);
    assert_int_equal(t.item[1].n_cached, 128);
    assert_int_equal(t.item[0].block[0], t.item[1].block[0]);
    const uint32_t shared = t.item[1].block[1];
    compute(&t);
    step(&t);
    assert_int_equal(item_of(&t, 2)->block[1],
                     shared); /* computed again: swapped for the known one */
    while (!item_of(&t, 5)) step(&t);
    assert_int_equal(item_of(&t, 5)->pos0, 0);
    assert_int_equal(stats(&t).prefix_queries, 128 + 128 + 200 + 128);
    assert_int_equal(stats(&t).prefix_hits, 64 + 128);
    while (stats(&t).n_waiting_tok) step(&t);
    nb_kv_cache_stats ks;
    nb_kv_cache_get_stats(t.kv, &ks);
    assert_int_equal(ks.n_indexed, 2 + 1 + 2); /* text 1 has three full blocks, with `other` two */
    done(&t);
}

static void test_admission(void **state)
{
    (void)state;
    nb_sched_options o = usual;
    o.max_model_len = 256;
    rig t = make(5, o);
    add(&t, 1, 1, 128); /* 2 blocks and one of headroom */
    add(&t, 2, 2, 129); /* 3 and one: not while 1 is there */
    add(&t, 3, 3, 10);  /* would fit, but does not overtake */
    for (size_t i = 0; i < 5; i++) {
        step(&t);
        assert_int_equal(t.n_item, 1);
        assert_int_equal(stats(&t).n_running, 1);
    }
    nb_sched_remove(t.s, 1);
    plan(&t);
    expect(&t, 0, 2, 0, 54, false);
    expect(&t, 1, 3, 0, 10, true); /* 1 block and one */
    compute(&t);
    nb_sched_remove(t.s, 2);
    nb_sched_remove(t.s, 3);
    add(&t, 4, 4, 256); /* no headroom beyond the greatest length */
    add(&t, 5, 5, 1);
    step(&t);
    assert_int_equal(stats(&t).n_running, 1);
    nb_sched_remove(t.s, 4);
    step(&t);
    expect(&t, 0, 5, 0, 1, true);
    done(&t);
}

/* Blocks that others hold already are not needed again. */
static void test_shared_admission(void **state)
{
    (void)state;
    nb_sched_options o = usual;
    o.max_model_len = 320;
    rig t = make(5, o);
    add(&t, 1, 1, 193); /* 4 blocks */
    add(&t, 2, 1, 193); /* 4 + 1, of which 3 will be shared: not yet */
    step(&t);
    assert_int_equal(stats(&t).n_running, 1);
    for (size_t i = 0; i < 4; i++) step(&t);
    assert_int_equal(stats(&t).n_running, 1); /* 2 are needed, 1 is left */
    nb_sched_remove(t.s, 1);
    step(&t);
    assert_int_equal(t.item[0].n_cached, 192);
    add(&t, 3, 1, 150); /* 3 + 1, of which 2 are held: 2 needed, 1 left */
    step(&t);
    assert_int_equal(stats(&t).n_running, 1);
    done(&t);
}

/* Chats with a common beginning: when the part that has it is full, the next ones compute it again in the other. */
static void test_parts_admission(void **state)
{
    (void)state;
    nb_sched_options o = usual;
    o.max_step_tok = o.max_chunk_tok = 512;
    rig t = { 0 };
    const nb_kv_cache_options ko = { .n_block = 32, .index = true, .protected_share = 0.75, .n_part = 2 };
    assert_int_equal(nb_kv_cache_create(&ko, &t.kv, NULL), NB_OK);
    assert_int_equal(nb_sched_create(&o, t.kv, &t.s, NULL), NB_OK);
    for (uint32_t id = 1; id <= 6; id++) { /* 4 common blocks, 3 of its own and one of headroom */
        nb_sched_request q = request(id, 1, 446);
        uint32_t prompt[446];
        for (size_t i = 0; i < NB_COUNT(prompt); i++) prompt[i] = q.prompt[i] + (i < 256 ? 0 : 1000 * id);
        q.prompt = prompt;
        assert_int_equal(nb_sched_add(t.s, &q, 0, NULL), NB_OK);
        step(&t);
    }
    assert_int_equal(stats(&t).n_running, 5); /* 3 in the first part, 2 in the other, with 1 of 16 and 2 of 16 left or less */
    assert_int_equal(stats(&t).prefix_hits, 2 * 256);
    for (uint32_t id = 1; id <= 6; id++) nb_sched_remove(t.s, id);
    done(&t);
}

/* A reset under a running request leaves blocks in the index that nobody finds, before the first
 * is there again: then they all count at once. */
static void test_reset_admission(void **state)
{
    (void)state;
    rig t = make(12, usual);
    add(&t, 1, 1, 449); /* 8 blocks */
    step(&t);
    assert_int_equal(nb_kv_cache_reset(t.kv), 1);
    while (stats(&t).n_waiting_tok) step(&t);
    nb_sched_request q = request(2, 1, 100);
    q.max_item_tok = 32;
    assert_int_equal(nb_sched_add(t.s, &q, 0, NULL), NB_OK);
    add(&t, 3, 1, 449); /* 8 more, 2 are left */
    step(&t);
    step(&t);
    assert_int_equal(stats(&t).n_running, 2);
    step(&t);
    assert_int_equal(stats(&t).n_running, 3);
    assert_int_equal(item_of(&t, 3)->n_cached, 448);
    done(&t);
}

/* ---- preemption ---- */

static void test_preempt(void **state)
{
    (void)state;
    nb_sched_options o = usual;
    o.max_model_len = 384;
    rig t = make(6, o);
    add(&t, 1, 1, 63);
    add(&t, 2, 2, 127);
    while (stats(&t).n_waiting_tok) step(&t);
    add(&t, 3, 3, 63); /* 1 + 1 blocks of the 3 that are left */
    while (stats(&t).n_waiting_tok) step(&t);
    /* All blocks will be needed: 1 grows into 2, 2 into 3, 3 into 2 - one too many. */
    while (stats(&t).n_preempted == 0) step(&t);
    assert_int_equal(stats(&t).n_running, 2);
    assert_int_equal(stats(&t).n_waiting, 1);
    const size_t lost = stats(&t).preempted_tok;
    assert_null(item_of(&t, 3)); /* the least computed, though 1 is older and has less */
    assert_int_equal(nb_sched_n_preempted(t.s, 3), 1);
    assert_int_equal(nb_sched_n_preempted(t.s, 1) + nb_sched_n_preempted(t.s, 99), 0);
    assert_non_null(item_of(&t, 1));
    assert_non_null(item_of(&t, 2));
    add(&t, 4, 4, 5); /* behind 3 */
    step(&t);
    assert_int_equal(t.n_item, 2);
    nb_sched_remove(t.s, 2);
    plan(&t);
    const nb_sched_item *it = item_of(&t, 3);
    assert_true(it && it->admitted && item_of(&t, 4));
    assert_int_equal(it->pos0, lost / 64 * 64); /* what was full is found again */
    assert_int_equal(it->n_cached, lost / 64 * 64);
    assert_int_equal(stats(&t).again_hits, lost / 64 * 64);
    assert_int_equal(stats(&t).again_queries, lost + 1);
    assert_int_equal(stats(&t).prefix_queries, 63 + 127 + 63 + 5);
    done(&t);
}

/* A victim that was planned in the same step is taken out of it. */
static void test_preempt_planned(void **state)
{
    (void)state;
    nb_sched_options o = usual;
    o.max_model_len = 256;
    rig t = make(4, o);
    add(&t, 1, 1, 100); /* 2 blocks */
    while (stats(&t).n_waiting_tok) step(&t);
    add(&t, 2, 2, 1); /* 1 block, 1 left */
    step(&t);
    for (uint32_t i = 0; i < 27; i++) step(&t);
    assert_int_equal(t.n_item, 2);
    step(&t); /* 1 takes the last block */
    assert_int_equal(item_of(&t, 1)->n_block, 3);
    while (stats(&t).n_preempted == 0) step(&t);
    /* 2 is in need and its own victim, since 1 is the oldest. */
    assert_int_equal(t.n_item, 1);
    nb_sched_remove(t.s, 1);
    nb_sched_remove(t.s, 2);

    add(&t, 3, 3, 1);
    add(&t, 4, 4, 1);
    step(&t);
    for (uint32_t i = 0; i < 62; i++) step(&t);
    add(&t, 5, 5, 1); /* takes 1 of 2; soon 3 and 4 need one each */
    step(&t);
    assert_int_equal(stats(&t).n_running, 3);
    const uint64_t before = stats(&t).n_preempted;
    while (stats(&t).n_preempted == before) step(&t);
    assert_int_equal(t.n_item, 2);
    assert_true(item_of(&t, 3) && item_of(&t, 4));
    ok(&t);
    done(&t);
}

/* Decodes of older requests come first; a younger, less computed one with an item goes. */
static void test_preempt_out_of_plan(void **state)
{
    (void)state;
    nb_sched_options o = usual;
    o.max_model_len = 256;
    rig t = make(4, o);
    add(&t, 1, 1, 20);
    step(&t);
    add(&t, 2, 2, 1); /* least computed, and planned before 3 */
    step(&t);
    add(&t, 3, 3, 64); /* 1 block; grows with its first decode */
    plan(&t);
    assert_int_equal(t.n_item, 3);
    assert_int_equal(nb_sched_computed(t.s, 1), NB_OK);
    assert_int_equal(nb_sched_push(t.s, 1, 5), NB_OK);
    assert_int_equal(nb_sched_computed(t.s, 2), NB_OK);
    assert_int_equal(nb_sched_push(t.s, 2, 5), NB_OK);
    const size_t n3 = item_of(&t, 3)->n_tok;
    assert_int_equal(nb_sched_computed(t.s, 3), NB_OK);
    while (n3 < 64 && stats(&t).n_waiting_tok) step(&t);
    uint32_t extra; /* the test takes the last block, so that nothing is left */
    assert_int_equal(nb_kv_cache_acquire(t.kv, &extra), NB_OK);
    if (n3 == 64) assert_int_equal(nb_sched_push(t.s, 3, 5), NB_OK);
    t.n_item = nb_sched_plan(t.s, 0, t.item);
    assert_int_equal(t.n_item, 2);
    expect(&t, 0, 1, t.item[0].pos0, 1, true);
    expect(&t, 1, 3, 64, 1, true);
    assert_int_equal(t.item[1].n_block, 2);
    nb_kv_cache_release(t.kv, &extra, 1);
    done(&t);
}

static void test_preempt_priority(void **state)
{
    (void)state;
    nb_sched_options o = usual;
    o.max_model_len = 256;
    o.priority = true;
    for (int swap = 0; swap < 2; swap++) {
        rig t = make(4, o);
        static const int32_t level[3] = { 0, 5, 1 };
        for (uint64_t id = 1; id <= 3; id++) { /* 2 has the most computed, and the worst level */
            nb_sched_request q = request(id, (uint32_t)id, id == 2 ? 50 : 10);
            q.priority = swap ? -level[id - 1] : level[id - 1];
            assert_int_equal(nb_sched_add(t.s, &q, 0, NULL), NB_OK);
            step(&t);
        }
        while (stats(&t).n_preempted == 0) step(&t);
        const uint64_t gone = swap ? 3 : 2; /* swapped: 2 is best, 1 the worst and oldest */
        assert_int_equal(nb_sched_find_req(t.s, gone)->state, NB_REQ_QUEUED);
        assert_int_equal(stats(&t).n_running, 2);
        done(&t);
    }
}

/* The oldest is the worst as well, and needs a block: those better than it keep theirs. */
static void test_preempt_never_better(void **state)
{
    (void)state;
    nb_sched_options o = usual;
    o.max_model_len = 192;
    o.priority = true;
    rig t = make(3, o);
    nb_sched_request q = request(1, 1, 60);
    q.priority = 9;
    assert_int_equal(nb_sched_add(t.s, &q, 0, NULL), NB_OK);
    step(&t);
    add(&t, 2, 2, 10);
    for (size_t i = 0; i < 80; i++) step(&t); /* 2 takes one of the blocks, then 1 needs two */
    assert_int_equal(nb_sched_find_req(t.s, 1)->run_pos, 0);
    ok(&t);
    done(&t);
}

/* Of [0, n). */
static size_t draw(uint64_t *rnd, size_t n)
{
    return (size_t)(nb_mix64((*rnd)++) % n);
}

/* Random work on a small pool: everything ends, nothing is lost. */
static void test_crowd(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        nb_sched_options o = usual;
        o.priority = seed % 2 != 0;
        o.age_s = 3;
        rig t = make(8 + seed % 5, o);
        uint64_t rnd = seed << 32;
        size_t n_left = 60, end[61];
        for (uint64_t id = 1; id <= 60; id++) {
            const uint32_t text = (uint32_t)draw(&rnd, 3);
            const size_t n_max = draw(&rnd, 2) ? 400 : 60;
            nb_sched_request q = request(id, text, 1 + draw(&rnd, n_max));
            q.n_expanded = draw(&rnd, 2) ? q.n_prompt : 0;
            q.priority = (int32_t)draw(&rnd, 3);
            q.after = draw(&rnd, 4) ? 0 : id - 1;
            end[id] = q.n_prompt + 1 + draw(&rnd, 512 - q.n_prompt);
            assert_int_equal(nb_sched_add(t.s, &q, 0, NULL), NB_OK);
        }
        for (size_t n_step = 0; n_left; n_step++) {
            assert_true(n_step < 100000);
            t.now += 0.5;
            plan(&t);
            assert_true(t.n_item > 0);
            size_t n_tok = 0;
            for (size_t i = 0; i < t.n_item; i++) {
                const nb_sched_item it = t.item[i];
                n_tok += it.n_tok;
                assert_true(it.n_tok && it.pos0 + it.n_tok <= 64 * it.n_block);
                assert_int_equal(nb_sched_computed(t.s, it.id), NB_OK);
                const size_t known = it.pos0 + it.n_tok;
                if (it.last && known + 1 >= end[it.id]) {
                    nb_sched_remove(t.s, it.id);
                    n_left--;
                } else if (it.last) {
                    assert_int_equal(nb_sched_push(t.s, it.id, (uint32_t)known), NB_OK);
                }
            }
            assert_true(n_tok <= 64);
            ok(&t);
        }
        assert_int_equal(stats(&t).n_waiting_tok, 0);
        done(&t);
    }
}

/* ---- waiting ---- */

static void test_after(void **state)
{
    (void)state;
    rig t = make(64, usual);
    add(&t, 1, 1, 100);
    nb_sched_request q = request(2, 1, 100);
    q.after = 1;
    assert_int_equal(nb_sched_add(t.s, &q, 0, NULL), NB_OK);
    q = request(3, 1, 100);
    q.after = 2; /* a chain */
    assert_int_equal(nb_sched_add(t.s, &q, 0, NULL), NB_OK);
    q = request(4, 4, 10);
    q.after = 99; /* gone, or never there */
    assert_int_equal(nb_sched_add(t.s, &q, 0, NULL), NB_OK);
    assert_int_equal(stats(&t).n_deferred, 2);
    assert_int_equal(stats(&t).n_waiting, 4);
    step(&t);
    assert_int_equal(t.n_item, 2);
    assert_non_null(item_of(&t, 4)); /* not held up by those before it */
    assert_int_equal(stats(&t).n_deferred, 2);
    while (!item_of(&t, 2)) step(&t);
    assert_int_equal(item_of(&t, 2)->n_cached, 64);
    assert_int_equal(stats(&t).n_deferred, 0); /* its prompt was short after the hit */
    step(&t);
    assert_non_null(item_of(&t, 3));
    q = request(5, 5, 10);
    q.after = 1; /* has computed its prompt */
    assert_int_equal(nb_sched_add(t.s, &q, 0, NULL), NB_OK);
    assert_int_equal(stats(&t).n_deferred, 0);
    add(&t, 6, 6, 500);
    step(&t);
    q = request(7, 7, 10);
    q.after = 6;
    assert_int_equal(nb_sched_add(t.s, &q, 0, NULL), NB_OK);
    q.id = 8;
    assert_int_equal(nb_sched_add(t.s, &q, 0, NULL), NB_OK);
    nb_sched_remove(t.s, 8); /* while it is deferred */
    ok(&t);
    assert_int_equal(stats(&t).n_deferred, 1);
    nb_sched_remove(t.s, 6);
    ok(&t);
    assert_int_equal(stats(&t).n_deferred, 0);
    step(&t);
    assert_non_null(item_of(&t, 7));
    done(&t);
}

static void test_priority(void **state)
{
    (void)state;
    nb_sched_options o = usual;
    o.max_num_seqs = 1;
    o.priority = true;
    o.age_s = 10;
    rig t = make(64, o);
    static const int32_t level[] = { 2, 1, -1, 1 };
    for (uint64_t id = 1; id <= 4; id++) {
        nb_sched_request q = request(id, (uint32_t)id, 5);
        q.priority = level[id - 1];
        assert_int_equal(nb_sched_add(t.s, &q, 0, NULL), NB_OK);
    }
    static const uint64_t order[] = { 3, 2, 4, 1 };
    for (size_t i = 0; i < 4; i++) {
        step(&t);
        expect(&t, 0, order[i], 0, 5, true);
        nb_sched_remove(t.s, order[i]);
    }
    nb_sched_request q = request(10, 1, 5);
    q.priority = 3;
    t.now = 100;
    assert_int_equal(nb_sched_add(t.s, &q, t.now, NULL), NB_OK);
    for (uint64_t id = 11; id < 16; id++) { /* one level for each 10 s: then by arrival */
        t.now = 100 + 9.5 * (double)(id - 10);
        q.id = id;
        q.priority = 0;
        assert_int_equal(nb_sched_add(t.s, &q, t.now, NULL), NB_OK);
        step(&t);
        assert_int_equal(t.item[0].id, id == 14 ? 10 : id == 15 ? 14 : id);
        nb_sched_remove(t.s, t.item[0].id);
    }
    done(&t);
}

/* Who was set back a moment ago does not hide those of its class who have waited long. */
static void test_class_age(void **state)
{
    (void)state;
    nb_sched_options o = usual;
    o.max_model_len = 384;
    o.priority = true;
    o.age_s = 10;
    rig t = make(6, o);
    static const size_t n_prompt[] = { 63, 127, 63, 320 };
    for (uint64_t id = 1; id <= 4; id++) { /* 4 needs all blocks */
        nb_sched_request q = request(id, (uint32_t)id, n_prompt[id - 1]);
        q.priority = 5;
        assert_int_equal(nb_sched_add(t.s, &q, 0, NULL), NB_OK);
        if (id < 4) step(&t);
    }
    t.now = 100;
    while (stats(&t).n_preempted == 0) step(&t);
    assert_int_equal(nb_sched_n_preempted(t.s, 3), 1);
    nb_sched_request q = request(5, 5, 5);
    q.priority = 0;
    assert_int_equal(nb_sched_add(t.s, &q, t.now, NULL), NB_OK);
    nb_sched_remove(t.s, 2);
    plan(&t);
    assert_non_null(item_of(&t, 3)); /* for 4, which is ten levels better by now */
    assert_null(item_of(&t, 5));
    done(&t);
}

static void test_deadline(void **state)
{
    (void)state;
    rig t = make(64, usual);
    uint64_t id[4];
    for (uint64_t i = 1; i <= 4; i++) {
        nb_sched_request q = request(i, (uint32_t)i, 10);
        if (i != 2) q.deadline = (double)(10 - i);
        assert_int_equal(nb_sched_add(t.s, &q, 0, NULL), NB_OK);
    }
    step(&t);
    assert_int_equal(nb_sched_expired(t.s, 5, id, 4), 0);
    assert_int_equal(nb_sched_expired(t.s, 7.5, id, 4), 2);
    assert_true(id[0] == 3 && id[1] == 4);
    assert_int_equal(nb_sched_expired(t.s, 20, id, 2), 2);
    nb_sched_remove(t.s, 4);
    nb_sched_remove(t.s, 3);
    ok(&t);
    assert_int_equal(nb_sched_expired(t.s, 8.5, id, 4), 0);
    assert_int_equal(nb_sched_expired(t.s, 20, id, 4), 1);
    assert_int_equal(id[0], 1);
    nb_sched_request q = request(5, 5, 10);
    q.deadline = 8.7; /* before the one that is left */
    assert_int_equal(nb_sched_add(t.s, &q, 8.5, NULL), NB_OK);
    assert_int_equal(nb_sched_expired(t.s, 8.6, id, 4), 0);
    assert_true(nb_sched_expired(t.s, 8.8, id, 4) == 1 && id[0] == 5);
    done(&t);
}

static void test_limits(void **state)
{
    (void)state;
    nb_kv_cache *kv;
    nb_sched *s = NULL;
    nb_error err;
    const nb_kv_cache_options ko = { .n_block = 8, .index = true };
    assert_int_equal(nb_kv_cache_create(&ko, &kv, NULL), NB_OK);
    for (int i = 0; i < 7; i++) {
        nb_sched_options o = usual;
        if (i == 0) o.max_model_len = 513;
        if (i == 1) o.max_model_len = 0;
        if (i == 2) o.max_num_seqs = 0;
        if (i == 3) o.max_step_tok = 7;
        if (i == 4) o.max_chunk_tok = 0;
        if (i == 5) o.age_s = (double)NAN;
        if (i == 6) o.max_model_len = SIZE_MAX;
        assert_int_equal(nb_sched_create(&o, kv, &s, &err), NB_ERR_ARG);
        assert_null(s);
    }
    nb_sched_destroy(NULL);
    nb_kv_cache_destroy(kv);
    rig t = make(8, usual);
    nb_sched_request q = request(1, 1, 512);
    assert_int_equal(nb_sched_add(t.s, &q, 0, &err), NB_OK);
    assert_int_equal(nb_sched_add(t.s, &q, 0, &err), NB_ERR_ARG);
    q.id = 0;
    assert_int_equal(nb_sched_add(t.s, &q, 0, &err), NB_ERR_ARG);
    q.id = 2;
    q.n_prompt = 0;
    assert_int_equal(nb_sched_add(t.s, &q, 0, &err), NB_ERR_ARG);
    q.n_prompt = 513;
    assert_int_equal(nb_sched_add(t.s, &q, 0, &err), NB_ERR_LIMIT);
    assert_non_null(strstr(err.msg, "513"));
    assert_int_equal(nb_sched_push(t.s, 1, 0), NB_ERR_LIMIT);
    assert_int_equal(nb_sched_push(t.s, 2, 0), NB_ERR_NOT_FOUND);
    done(&t);
    t = make(8, usual); /* many: the tables of ids grow */
    for (uint64_t id = 1; id <= 1000; id++) {
        nb_sched_request r = request(id * 64, 1, 1);
        assert_int_equal(nb_sched_add(t.s, &r, 0, NULL), NB_OK);
    }
    for (uint64_t id = 1; id <= 1000; id += 2) nb_sched_remove(t.s, id * 64);
    ok(&t);
    assert_int_equal(stats(&t).n_waiting, 500);
    done(&t);
}

/* ---- the check ---- */

#define BREAKS(t, field, value)                                                                    \
    do {                                                                                           \
        const char copy_text[] = #field;                                                           \
        unsigned char copy[sizeof(field)];                                                         \
        memcpy(copy, &(field), sizeof copy);                                                       \
        (field) = (value);                                                                         \
        if (!nb_sched_check((t)->s)) fail_msg("not found: %s = %s", copy_text, #value);            \
        memcpy(&(field), copy, sizeof copy);                                                       \
        ok(t);                                                                                     \
    } while (0)

static void test_check_finds(void **state)
{
    (void)state;
    nb_sched_options o = usual;
    o.max_num_seqs = 3;
    rig t = make(64, o);
    for (uint64_t id = 1; id <= 5; id++) add(&t, id, id == 2 ? 1 : (uint32_t)id, 100);
    nb_sched_request q = request(6, 6, 10);
    q.after = 5;
    assert_int_equal(nb_sched_add(t.s, &q, 0, NULL), NB_OK);
    q.id = 7;
    assert_int_equal(nb_sched_add(t.s, &q, 0, NULL), NB_OK);
    for (size_t i = 0; i < 5; i++) step(&t);
    plan(&t);
    nb_sched *s = t.s;
    nb_req *r[8];
    for (uint64_t id = 1; id <= 7; id++) r[id] = nb_sched_find_req(s, id);
    assert_true(s->n_run == 3 && s->n_queued == 2 && s->deferred.n == 2);
    assert_int_equal(r[1]->block[0], r[2]->block[0]);
    BREAKS(&t, s->n_req, 6);
    BREAKS(&t, s->n_req, 8);
    BREAKS(&t, s->all_tail, r[6]);
    BREAKS(&t, r[3]->all_prev, r[1]);
    BREAKS(&t, r[3]->seq, 0);
    BREAKS(&t, r[3]->r.id, 33);
    BREAKS(&t, r[3]->chain, r[3]);
    BREAKS(&t, r[3]->r.deadline, 1.0);
    BREAKS(&t, r[5]->n_dependent, 1);
    BREAKS(&t, r[6]->r.after, 7);
    BREAKS(&t, r[5]->prompt_done, true);
    BREAKS(&t, s->deferred.n, 1);
    BREAKS(&t, s->deferred.tail, r[6]);
    BREAKS(&t, r[6]->queue_next, NULL);
    BREAKS(&t, r[7]->queue_prev, NULL);
    BREAKS(&t, r[6]->state, NB_REQ_QUEUED);
    BREAKS(&t, r[6]->n_computed, 1);
    BREAKS(&t, s->n_queued, 3);
    BREAKS(&t, s->n_queued_tok, 3);
    BREAKS(&t, s->cls[0].queue.n, 1);
    BREAKS(&t, s->cls[0].queue.head, r[5]);
    BREAKS(&t, s->cls[0].queue.tail, r[4]);
    BREAKS(&t, s->cls[0].level, 3);
    BREAKS(&t, s->n_cls, 0);
    BREAKS(&t, r[4]->queue_next, NULL);
    BREAKS(&t, r[4]->queue_next, r[4]);
    BREAKS(&t, r[4]->n_block, 1);
    BREAKS(&t, r[5]->n_preempted, 1);
    BREAKS(&t, r[5]->n_known, 99);
    BREAKS(&t, s->n_run, 2);
    BREAKS(&t, s->run[0], r[2]);
    BREAKS(&t, s->run[0], r[4]);
    BREAKS(&t, r[2]->run_pos, 2);
    BREAKS(&t, r[2]->state, NB_REQ_QUEUED);
    BREAKS(&t, r[2]->slot, 3);
    BREAKS(&t, r[2]->slot, r[1]->slot);
    BREAKS(&t, s->n_free_slot, 1);
    BREAKS(&t, r[2]->n_computed, r[2]->n_known + 1);
    BREAKS(&t, r[2]->n_known, 513);
    BREAKS(&t, r[2]->n_block, 1);
    BREAKS(&t, r[2]->n_block, 100);
    BREAKS(&t, r[2]->n_pub, 2);
    BREAKS(&t, r[2]->n_pub, 0);
    BREAKS(&t, r[2]->n_key, 9);
    BREAKS(&t, r[2]->n_key, 0);
    BREAKS(&t, r[2]->n_cached, 1);
    BREAKS(&t, r[2]->prompt_done, false);
    BREAKS(&t, r[2]->key[0].b[0], 0x100 % 256 + (r[2]->key[0].b[0] == 0));
    BREAKS(&t, r[2]->block[0], 64);
    BREAKS(&t, r[2]->block[0], r[3]->block[0]);
    BREAKS(&t, r[2]->block[1], r[1]->block[1]);
    BREAKS(&t, r[1]->n_plan, 2);
    BREAKS(&t, r[4]->n_plan, 1);
    BREAKS(&t, s->o.max_step_tok, 2);
    done(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one),
        cmocka_unit_test(test_snapshots),
        cmocka_unit_test(test_no_places),
        cmocka_unit_test(test_void),
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_prefix),
        cmocka_unit_test(test_admission),
        cmocka_unit_test(test_shared_admission),
        cmocka_unit_test(test_parts_admission),
        cmocka_unit_test(test_reset_admission),
        cmocka_unit_test(test_preempt),
        cmocka_unit_test(test_preempt_planned),
        cmocka_unit_test(test_preempt_out_of_plan),
        cmocka_unit_test(test_preempt_priority),
        cmocka_unit_test(test_preempt_never_better),
        cmocka_unit_test(test_crowd),
        cmocka_unit_test(test_after),
        cmocka_unit_test(test_priority),
        cmocka_unit_test(test_class_age),
        cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_check_finds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
