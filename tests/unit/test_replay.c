/* test_replay.c - replays of small traces: the cache against a naive LRU over names of blocks, the
 * scheduler against arithmetic that fits on a page. */
#include "replay_testing.h"

#include <math.h>

#include "base/rng.h"

/* ---- the cache against a naive one ---- */

enum { N_REQ = 300, MAX_ID = 6, MAX_NAIVE = 4096 };

/* A block is the text up to its end: names and the block's place in the last one. */
typedef struct naive_block {
    uint64_t id[MAX_ID];
    size_t n_id, sub;
    uint64_t stamp;
} naive_block;
typedef struct naive {
    naive_block b[MAX_NAIVE];
    size_t n, cap;
    uint64_t clock;
} naive;

static size_t naive_find(const naive *c, const uint64_t *id, size_t block)
{
    for (size_t i = 0; i < c->n; i++)
        if (c->b[i].n_id == block / 8 + 1 && c->b[i].sub == block % 8 &&
            memcmp(c->b[i].id, id, c->b[i].n_id * sizeof *id) == 0)
            return i;
    return MAX_NAIVE;
}

/* Plain LRU: all blocks of the prompt become young, the last one first; then the old ones go. */
static size_t naive_play(naive *c, const uint64_t *id, size_t n_id, size_t n_in)
{
    const size_t n_keyed = n_id * 512 < n_in ? n_id * 512 : n_in, n_block = n_keyed / 64;
    size_t n_hit = 0;
    while (n_hit < n_block && n_hit < (n_in - 1) / 64 && naive_find(c, id, n_hit) < MAX_NAIVE)
        n_hit++;
    for (size_t i = n_block; i-- > 0;) {
        size_t at = naive_find(c, id, i);
        if (at == MAX_NAIVE) {
            at = c->n++;
            assert_true(c->n < MAX_NAIVE);
            c->b[at].n_id = i / 8 + 1;
            c->b[at].sub = i % 8;
            memcpy(c->b[at].id, id, c->b[at].n_id * sizeof *id);
        }
        c->b[at].stamp = ++c->clock;
    }
    while (c->n > c->cap) {
        size_t old = 0;
        for (size_t i = 1; i < c->n; i++)
            if (c->b[i].stamp < c->b[old].stamp) old = i;
        c->b[old] = c->b[--c->n];
    }
    return n_hit;
}

static void test_naive(void **state)
{
    (void)state;
    static naive c[3], all;
    static const size_t cap[3] = { 20, 60, 200 };
    nb_buf text = { 0 };
    uint64_t hit[3] = { 0 }, ceiling = 0, n_in_all = 0;
    all.cap = MAX_NAIVE - 1;
    for (size_t i = 0; i < 3; i++) c[i].cap = cap[i];
    for (size_t r = 0; r < N_REQ; r++) {
        uint64_t id[MAX_ID];
        const size_t n_id = 1 + nb_rng_u64(7, 10 * r) % MAX_ID;
        for (size_t i = 0; i < n_id; i++)
            id[i] = 10 * i + nb_rng_u64(7, 10 * r + 1 + i) % (i ? 3 : 2);
        /* The last name may stand for less than 512 tokens, or tokens follow that have none. */
        const size_t n_in = n_id * 512 - nb_rng_u64(7, 10 * r + 8) % 500 + (r % 9 == 0 ? 600 : 0);
        line(&text, (double)r, n_in, 1, id, n_id);
        for (size_t i = 0; i < 3; i++) hit[i] += 64 * naive_play(&c[i], id, n_id, n_in);
        ceiling += 64 * naive_play(&all, id, n_id, n_in);
        n_in_all += n_in;
    }
    const char *path = write_file("naive.jsonl", &text);
    const nb_mix_options mix = stream(&path);
    nb_replay_point p[4] = { { .n_block = MAX_NAIVE } };
    for (size_t i = 0; i < 3; i++)
        p[i + 1] = (nb_replay_point){ .n_block = cap[i], .evict = NB_KV_EVICT_LRU };
    nb_replay_result r[4];
    nb_error e = { 0 };
    assert_int_equal(nb_replay_cache(&mix, p, 4, r, &e), NB_OK);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(r[i].n_request, N_REQ);
        assert_int_equal(r[i].n_in_tok, n_in_all);
        assert_int_equal(r[i].n_ceiling_tok, ceiling);
        if (i) assert_int_equal(r[i].n_hit_tok, hit[i - 1]);
        if (i > 1) assert_true(r[i].n_hit_tok > r[i - 1].n_hit_tok);
    }
    assert_true(r[0].n_hit_tok == ceiling && r[0].n_evicted == 0);
    assert_true(r[1].n_evicted > 0);
    nb_buf_deinit(&text);
}

static void test_limits(void **state)
{
    (void)state;
    static const uint64_t id[] = { 1, 2, 3, 4 };
    nb_buf text = { 0 };
    line(&text, 0, 2048, 1, id, 4);
    line(&text, 1, 0, 1, id, 0); /* nothing to compute: not counted */
    line(&text, 2, 1024, 1, id, 2);
    const char *path = write_file("limits.jsonl", &text);
    nb_mix_options mix = stream(&path);
    const nb_replay_point p = { .n_block = 100, .evict = NB_KV_EVICT_LRU };
    nb_replay_result r;
    assert_int_equal(nb_replay_cache(&mix, &p, 1, &r, NULL), NB_OK);
    assert_true(r.n_request == 2 && r.n_skipped == 0);
    assert_int_equal(r.n_hit_tok, 1024 - 64); /* the last token is computed */
    mix.max_tok = 2047;
    assert_int_equal(nb_replay_cache(&mix, &p, 1, &r, NULL), NB_OK);
    assert_true(r.n_request == 1 && r.n_skipped == 1 && r.n_hit_tok == 0);
    mix.max_tok = 0;
    mix.n_request = 1;
    assert_int_equal(nb_replay_cache(&mix, &p, 1, &r, NULL), NB_OK);
    assert_true(r.n_request == 1 && r.n_in_tok == 2048);
    nb_error e = { 0 };
    mix.speed = 0;
    assert_int_equal(nb_replay_cache(&mix, &p, 1, &r, &e), NB_ERR_ARG);
    mix.speed = 1;
    mix.sessions = true;
    assert_int_equal(nb_replay_cache(&mix, &p, 1, &r, &e), NB_ERR_ARG);
    nb_buf_deinit(&text);
}

/* ---- sessions ---- */

/* n requests, 100 s apart; each repeats all before it and adds two blocks. */
static const char *write_session(const char *name, size_t n, double gap_s, double api_s)
{
    nb_buf t = { 0 };
    assert_int_equal(
        nb_buf_add_c(&t, "{\"block_size\":64,\"hash_id_scope\":\"local\",\"requests\":["), NB_OK);
    for (size_t i = 0; i < n; i++) {
        (void)nb_buf_printf(&t, "%s{\"t\":%g,\"in\":%zu,\"out\":3,\"api_time\":%g,\"hash_ids\":[",
                            i ? "," : "", gap_s * (double)i, (i + 1) * 128 + 10, api_s);
        for (size_t k = 0; k < 2 * i + 2; k++) (void)nb_buf_printf(&t, "%s%zu", k ? "," : "", k);
        (void)nb_buf_add_c(&t, "]}");
    }
    assert_int_equal(nb_buf_add_c(&t, "]}"), NB_OK);
    const char *path = write_file(name, &t);
    nb_buf_deinit(&t);
    return path;
}

static void test_sessions(void **state)
{
    (void)state;
    const char *path[3];
    path[0] = write_session("a.json", 4, 100, 0);
    path[1] = write_session("b.json", 2, 1000, 0);
    path[2] = write_session("c.json", 3, 100, 0);
    nb_mix_options mix = { .path = path,
                           .n_path = 3,
                           .sessions = true,
                           .n_open = 2,
                           .max_gap_s = 300,
                           .speed = 2,
                           .seed = 5 };
    nb_mix *m = NULL;
    nb_error e = { 0 };
    assert_int_equal(nb_mix_create(&mix, &m, &e), NB_OK);
    size_t n = 0, n_first = 0;
    double last_s = 0, gap_max = 0, at[2] = { 0 };
    size_t len[2] = { 0 };
    nb_block_key first[3];
    for (bool more = true;;) {
        nb_mix_req r;
        assert_int_equal(nb_mix_next(m, &r, &more, &e), NB_OK);
        if (!more) break;
        n++;
        assert_true(r.t_s >= last_s && r.who < 2 && r.n_key == r.n_in / 64);
        last_s = r.t_s;
        if (r.n_in == 138) {
            for (size_t k = 0; k < n_first; k++) /* sessions share nothing */
                assert_memory_not_equal(&first[k], &r.key[0], sizeof first[k]);
            first[n_first++] = r.key[0];
        } else {
            assert_int_equal(r.n_in, len[r.who] + 128);
            gap_max = fmax(gap_max, r.t_s - at[r.who]);
        }
        len[r.who] = r.n_in;
        at[r.who] = r.t_s;
    }
    assert_int_equal(n, 9);
    assert_int_equal(n_first, 3);
    assert_int_equal(nb_mix_n_opened(m), 3);
    assert_true(fabs(gap_max - 150) < 1e-9); /* capped at 300 s, at double speed */
    nb_mix_destroy(m);

    const nb_replay_point p = { .n_block = 500, .evict = NB_KV_EVICT_LRU };
    nb_replay_result r, again;
    assert_int_equal(nb_replay_cache(&mix, &p, 1, &r, &e), NB_OK);
    /* All but the 10 tokens at the end and what a request adds are found: of 4, 2 and 3 requests. */
    assert_int_equal(r.n_hit_tok, (2 + 4 + 6 + 2 + 2 + 4) * 64);
    mix.n_request = 40; /* round and round */
    assert_int_equal(nb_replay_cache(&mix, &p, 1, &r, &e), NB_OK);
    assert_true(r.n_request == 40 && r.n_session > 9);
    assert_int_equal(nb_replay_cache(&mix, &p, 1, &again, &e), NB_OK);
    assert_memory_equal(&r, &again, sizeof r);
    mix.max_tok = 100; /* nothing is short enough: an end, not a search without one */
    assert_int_equal(nb_replay_cache(&mix, &p, 1, &r, &e), NB_OK);
    assert_int_equal(r.n_request, 0);
}

/* ---- serve ---- */

static const nb_replay_clock even = { .prefill_tok_s = 1000, .step_s = 0.5 };
static const nb_replay_serve_options plain = {
    .max_num_seqs = 8, .max_step_tok = 4096, .max_chunk_tok = 4096, .check = true
};

static void test_clock(void **state)
{
    (void)state;
    static const uint64_t id[] = { 1, 2 };
    nb_buf text = { 0 };
    line(&text, 0, 1000, 3, id, 2);
    line(&text, 20000, 1000, 1, id, 2);
    const char *path = write_file("clock.jsonl", &text);
    const nb_mix_options mix = stream(&path);
    nb_replay_point p = { .n_block = 100, .clock = &even };
    nb_replay_result r;
    nb_error e = { 0 };
    assert_int_equal(nb_replay_serve(&mix, &p, &plain, &r, &e), NB_OK);
    /* 1 s for the prompt, two more tokens in steps of 0.5 s; later 960 of 1000 tokens are found. */
    assert_true(r.n_request == 2 && r.n_out_tok == 4 && r.n_hit_tok == 960);
    assert_true(fabs(r.ttft_p99_s - 1) < 1e-9 && fabs(r.ttft_p50_s - 0.04) < 1e-9);
    assert_true(fabs(r.ttft_mean_s - 0.52) < 1e-9 && fabs(r.duration_s - 20.04) < 1e-9);
    assert_true(r.wait_mean_s == 0 && r.n_running_max == 1);
    p.n_block = 16; /* 1000 + 3 tokens are 16 blocks */
    assert_int_equal(nb_replay_serve(&mix, &p, &plain, &r, &e), NB_OK);
    assert_int_equal(r.n_skipped, 0);
    p.n_block = 15;
    assert_int_equal(nb_replay_serve(&mix, &p, &plain, &r, &e), NB_OK);
    assert_int_equal(r.n_skipped, 2);
    nb_buf_deinit(&text);
}

/* Eight prompts at once, blocks for two or three: they wait, or hold too little and are preempted; all are
 * answered in the end. */
static void test_queue(void **state)
{
    (void)state;
    nb_buf text = { 0 };
    for (uint64_t i = 0; i < 8; i++) {
        const uint64_t id[] = { 10 * i, 10 * i + 1 };
        line(&text, 0, 1000, 200, id, 2);
    }
    const char *path = write_file("queue.jsonl", &text);
    const nb_mix_options mix = stream(&path);
    const nb_replay_point tight = { .n_block = 35, .clock = &even },
                          wide = { .n_block = 400, .clock = &even };
    nb_replay_result r, w;
    nb_error e = { 0 };
    if (nb_replay_serve(&mix, &tight, &plain, &r, &e) != NB_OK) fail_msg("%s", e.msg);
    assert_int_equal(nb_replay_serve(&mix, &wide, &plain, &w, &e), NB_OK);
    assert_true(r.n_request == 8 && w.n_request == 8 && r.n_out_tok == 1600 && w.n_out_tok == 1600);
    assert_true(r.n_running_max < 4 && w.n_running_max == 8);
    assert_true(r.n_preempted > 0 && w.n_preempted == 0 && r.wait_mean_s > w.wait_mean_s);
    assert_true(r.ttft_p90_s > 2 * w.ttft_p90_s && r.held_mean > 0.5 && r.held_mean <= 1);
    /* 4096 tokens a step: all eight prompts take 8 s, the last first token comes with the second step. */
    assert_true(w.ttft_p99_s >= 8 && w.ttft_p99_s < 9);
    nb_buf_deinit(&text);
}

/* A session's next request comes api_time before the recorded gap is over, after the answer. */
static void test_closed(void **state)
{
    (void)state;
    const char *path = write_session("closed.json", 3, 100, 30);
    const nb_mix_options mix = { .path = &path,
                                 .n_path = 1,
                                 .sessions = true,
                                 .n_open = 1,
                                 .max_gap_s = 600,
                                 .speed = 1,
                                 .seed = 1 };
    const nb_replay_point p = { .n_block = 100, .clock = &even };
    nb_replay_result r;
    nb_error e = { 0 };
    assert_int_equal(nb_replay_serve(&mix, &p, &plain, &r, &e), NB_OK);
    /* Each computes 138 tokens and two single steps, then 70 s pass. */
    assert_true(r.n_request == 3 && r.n_out_tok == 9 && r.n_hit_tok == 6 * 64);
    assert_true(fabs(r.duration_s - (3 * (0.138 + 1) + 2 * 70)) < 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_naive),    cmocka_unit_test(test_limits),
        cmocka_unit_test(test_sessions), cmocka_unit_test(test_clock),
        cmocka_unit_test(test_queue),    cmocka_unit_test(test_closed),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
