/* test_replay_clock.c - times of replays on a machine: three requests by hand, the clock against the roofline it
 * comes from, and that a larger cache never makes a request later. */
#include "replay_testing.h"

#include <math.h>

#include "base/rng.h"
#include "capacity/configs.h"

static void near(const char *what, double got, double want)
{
    if (!(fabs(got - want) <= 1e-9 * fabs(want)))
        fail_msg("%s: %.12g, expected %.12g", what, got, want);
}

/* ---- a machine of round figures ---- */

/* A token's products are 1,000 operations, a pair of a prompt 2 and of decode 4, rebuilding a key 10; weights are
 * 1,000 bytes, a cached token 1.  10^4 bytes/s, 10^6 operations/s, a half of each in fact, 10 ms a layer. */
typedef struct toy {
    nb_model_config config;
    nb_sizes sizes;
    nb_machine machine;
    nb_layout layout;
    nb_efficiency efficiency;
    nb_record_size record;
    nb_demand demand;
} toy;

static toy *make_toy(void)
{
    toy *r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->config.attn[0].n_head = 1;
    r->config.attn[0].n_kv_head = 1;
    r->sizes.is_mla = true;
    r->sizes.n_layer = 1;
    r->sizes.n_param_active = 500;
    r->sizes.attn_flop_prefill = 2;
    r->sizes.attn_flop_decode = 4;
    r->sizes.expand_flop_tok = 10;
    r->sizes.weight[NB_SIZES_BF16].bytes = 1000;
    r->machine.bandwidth = 1e4;
    r->machine.bf16 = 1e6;
    r->layout = (nb_layout){ .n_gpu = 1, .tp = 1, .dp = 1, .ep = 1, .utilization = 1 };
    r->efficiency = nb_efficiency_flat(0.5);
    r->efficiency.layer_s = 0.01;
    r->record.type = NB_KV_NVFP4;
    r->record.attn_bytes_tok = 1;
    r->demand = (nb_demand){
        .config = &r->config, .sizes = &r->sizes, .wtype = NB_SIZES_BF16, .machine = &r->machine
    };
    return r;
}

static nb_replay_clock clock_of(const toy *r, double chunk)
{
    return (nb_replay_clock){ .demand = &r->demand,
                              .layout = &r->layout,
                              .efficiency = &r->efficiency,
                              .record = &r->record,
                              .chunk = chunk };
}

/* A: 640 tokens at 0.  B: the same and 64 more at 10 s.  C: 128 others at 10.1 s. */
static const char *three_requests(void)
{
    static const uint64_t ab[] = { 1, 2 }, c[] = { 3 };
    nb_buf text = { 0 };
    line(&text, 0, 640, 2, ab, 2);
    line(&text, 10000, 704, 2, ab, 2);
    line(&text, 10100, 128, 1, c, 1);
    const char *path = write_file("three.jsonl", &text);
    nb_buf_deinit(&text);
    return path;
}

/* Chunks of 256.  Operations over 5 * 10^5 a second, and 10 ms:
 *   A  256, 256, 128 tokens after 0, 256, 512: 321,792 + 455,424 + 280,704 are 2.11584 s, 0.03 s more
 *   B  64 after 640: 64,000 + 6,400 rebuilt + 2 * 43,040 pairs are 0.31296 s, 0.01 s more
 *   C  128: 128,000 + 2 * 8,256 are 0.289024 s, 0.01 s more */
static const double a_s = 2.14584, b_s = 0.32296, c_s = 0.299024;

static void test_alone(void **state)
{
    (void)state;
    toy *m = make_toy();
    const char *path = three_requests();
    const nb_mix_options mix = stream(&path);
    const nb_replay_clock clock = clock_of(m, 256), plain = { .prefill_tok_s = 1000 };
    const nb_replay_point p[3] = { { .n_block = 100, .clock = &clock },
                                   { .n_block = 100, .clock = &plain },
                                   { .n_block = 100 } };
    nb_replay_result r[3];
    nb_error e = { 0 };
    if (nb_replay_cache(&mix, p, 3, r, &e) != NB_OK) fail_msg("%s", e.msg);
    assert_int_equal(r[0].n_hit_tok, 640);
    near("mean", r[0].alone_mean_s, (a_s + b_s + c_s) / 3);
    near("median", r[0].alone_p50_s, b_s);
    near("plain mean", r[1].alone_mean_s, (0.640 + 0.064 + 0.128) / 3);
    near("plain median", r[1].alone_p50_s, 0.128);
    assert_true(r[2].alone_mean_s == 0 && r[2].alone_p50_s == 0);
    free(m);
}

static nb_replay_result serve(const char *path, const nb_replay_clock *clock)
{
    static const nb_replay_serve_options o = { .max_num_seqs = 8,
                                               .max_step_tok = 256,
                                               .max_chunk_tok = 256,
                                               .max_item_tok = 256,
                                               .check = true };
    const nb_mix_options mix = stream(&path);
    const nb_replay_point p = { .n_block = 100, .clock = clock };
    nb_replay_result r;
    nb_error e = { 0 };
    if (nb_replay_serve(&mix, &p, &o, &r, &e) != NB_OK) fail_msg("%s", e.msg);
    return r;
}

/* C comes while B's prompt is computed, and shares its step with B's second token: that token reads weights (0.2 s)
 * and 705 bytes (0.141 s), 0.01 s more.  On a processor products are of both at once: 0.291024 s. */
static void test_served(void **state)
{
    (void)state;
    toy *m = make_toy();
    const char *path = three_requests();
    nb_replay_clock clock = clock_of(m, 256);
    nb_replay_result r = serve(path, &clock);
    assert_true(r.n_hit_tok == 640 && r.n_out_tok == 5);
    double t = 10 + b_s + 0.351 + c_s;
    near("end", r.duration_s, t);
    near("mean", r.ttft_mean_s, (a_s + b_s + t - 10.1) / 3);
    near("last", r.ttft_p99_s, a_s);
    m->machine.cpu = true;
    r = serve(path, &clock);
    near("one pass", r.duration_s, 10 + b_s + 0.141 + 0.291024 + 0.01);
    m->machine.cpu = false;
    clock.step_s = 0.5; /* given: it wins */
    r = serve(path, &clock);
    near("steps given", r.duration_s, 10 + b_s + 0.5 + c_s);
    clock.step_s = 0;
    clock.prefill_tok_s = 1000;
    r = serve(path, &clock); /* C comes while the second token of B is computed */
    near("prompts given", r.duration_s, 10 + 0.064 + 0.351 + 0.128);
    free(m);
}

/* A request of ten generated tokens, nine of them again: prompt tokens where there is a rate, else like the tenth. */
static void test_again(void **state)
{
    (void)state;
    toy *m = make_toy();
    nb_replay_clock clock = clock_of(m, 256);
    const nb_clock_step step = { .n_generating = 1,
                                 .n_again = 9,
                                 .work = { .n_seq = 10, .context = 100 } };
    near("ten", nb_clock_step_s(&clock, &step), 0.2 + 0.2 + 0.01);
    clock.prefill_tok_s = 1000;
    near("nine and one", nb_clock_step_s(&clock, &step), 0.009 + 0.2 + 0.02 + 0.01);
    clock.step_s = 0.5;
    near("both given", nb_clock_step_s(&clock, &step), 0.009 + 0.5);
    free(m);
}

static void test_refused(void **state)
{
    (void)state;
    toy *m = make_toy();
    nb_replay_clock c = clock_of(m, 256);
    nb_error e = { 0 };
    assert_int_equal(nb_clock_check(&c, &e), NB_OK);
    assert_int_equal(nb_clock_check(NULL, &e), NB_ERR_ARG);
    c.chunk = 0;
    check_line(&e, nb_clock_check(&c, &e), "0 prompt tokens a step");
    c.chunk = 1;
    m->machine.bandwidth = 0;
    check_line(&e, nb_clock_check(&c, &e), "0 bytes/s");
    c = (nb_replay_clock){ .step_s = 1 };
    check_line(&e, nb_clock_check(&c, &e), "without a machine");
    c = (nb_replay_clock){ .prefill_tok_s = 1, .step_s = -1 };
    check_line(&e, nb_clock_check(&c, &e), "-1 s per step");
    const char *path = three_requests();
    const nb_mix_options mix = stream(&path);
    const nb_replay_point p = { .n_block = 100 };
    const nb_replay_serve_options o = { .max_num_seqs = 1, .max_step_tok = 1, .max_chunk_tok = 1 };
    nb_replay_result r;
    check_line(&e, nb_replay_serve(&mix, &p, &o, &r, &e), "no clock");
    free(m);
}

/* ---- DeepSeek-V3 on eight H200 ---- */

typedef struct real {
    nb_model_config config;
    nb_sizes sizes;
    nb_machine machine;
    nb_demand demand;
} real;

static real *make_real(void)
{
    real *r = calloc(1, sizeof *r);
    nb_machines ms;
    nb_error e = { 0 };
    assert_non_null(r);
    assert_int_equal(nb_machines_builtin(&ms, &e), NB_OK);
    r->machine = *nb_machines_find(&ms, "h200");
    nb_machines_deinit(&ms);
    if (nb_capacity_read_config("deepseek-v3", &r->config, NULL, &e) != NB_OK ||
        nb_sizes_of(&r->config, &r->sizes, &e) != NB_OK)
        fail_msg("%s", e.msg);
    r->demand = (nb_demand){ .config = &r->config, .sizes = &r->sizes, .machine = &r->machine };
    return r;
}

/* A chunk in a step of its own takes what prefill says; so do generated tokens; a step with both is their sum. */
static void test_parts(void **state)
{
    (void)state;
    real *m = make_real();
    const nb_record_size *record = nb_sizes_find(&m->sizes, "nvfp4");
    const nb_efficiency *e = &nb_efficiency_gpu;
    for (uint64_t i = 0; i < 200; i++) {
        const size_t tp = (size_t)1 << nb_rng_u64(1, i) % 4;
        const nb_layout l = { .n_gpu = 8, .tp = tp, .dp = 8 / tp, .ep = 8, .utilization = 0.9 };
        const double n = 1 + (double)(nb_rng_u64(2, i) % 8192);
        const double before = (double)(nb_rng_u64(3, i) % 100000);
        const double n_seq = 1 + (double)(nb_rng_u64(4, i) % 300);
        nb_mixed w = { .all = nb_prompt_chunk(n, before), .largest = nb_prompt_chunk(n, before) };
        nb_prefill p, whole;
        nb_step s;
        nb_prefill_after(&m->demand, &l, e, n, before, 8192, &p);
        near("chunk", nb_mixed_s(&m->demand, &l, record, e, &w), p.model_s);
        nb_step_of(&m->demand, &l, record, e, n_seq, before, &s);
        w.n_seq = n_seq;
        w.context = before;
        near("both", nb_mixed_s(&m->demand, &l, record, e, &w), p.model_s + s.model.total_s);
        w.all = (nb_prompt_work){ 0 };
        near("decode", nb_mixed_s(&m->demand, &l, record, e, &w), s.model.total_s);
        /* what is cached is not computed, but attended to and rebuilt */
        nb_prefill_of(&m->demand, &l, e, before + n, 8192, &whole);
        nb_prefill_after(&m->demand, &l, e, before + n, 0, 8192, &p);
        near("none cached", p.model_s, whole.model_s);
        nb_prefill_after(&m->demand, &l, e, n, before, 8192, &p);
        assert_true(before < 8192 || p.model_s < whole.model_s);
        /* all replicas busy: the rate of prefill, experts of all tokens on all GPUs */
        const double dp = (double)l.dp;
        nb_prefill_after(&m->demand, &l, e, 4096, before, 8192, &p);
        w = (nb_mixed){ .largest = nb_prompt_chunk(4096, before) };
        w.all =
            (nb_prompt_work){ dp * w.largest.n_tok, dp * w.largest.pairs, dp * w.largest.rebuilt };
        near("busy", dp * 4096 / nb_mixed_s(&m->demand, &l, record, e, &w), p.model_tok_s);
    }
    free(m);
}

/* As many chunks as replicas take what one takes, and the experts' work of all. */
static void test_replicas(void **state)
{
    (void)state;
    toy *m = make_toy();
    const nb_prompt_work one = nb_prompt_chunk(128, 64);
    const nb_mixed w = { .all = { 4 * one.n_tok, 4 * one.pairs, 4 * one.rebuilt }, .largest = one };
    const nb_mixed uneven = { .all = one, .largest = one };
    m->layout.n_gpu = m->layout.dp = 4;
    const double four = nb_mixed_s(&m->demand, &m->layout, &m->record, &m->efficiency, &w);
    near("one of four", nb_mixed_s(&m->demand, &m->layout, &m->record, &m->efficiency, &uneven),
         four);
    m->layout.n_gpu = m->layout.dp = 1;
    near("alone", nb_mixed_s(&m->demand, &m->layout, &m->record, &m->efficiency, &uneven), four);
    const double queued = nb_mixed_s(&m->demand, &m->layout, &m->record, &m->efficiency, &w);
    near("one replica", queued - 0.01, 4 * (four - 0.01));
    free(m);
}

/* LRU is a stack: what a cache finds a larger one finds too, so that no request takes longer. */
static void test_larger(void **state)
{
    (void)state;
    enum { N_SIZE = 6, N_TRACE = 4 };
    real *m = make_real();
    const nb_layout l = { .n_gpu = 8, .tp = 8, .dp = 1, .ep = 1, .utilization = 0.9 };
    const nb_replay_clock clock = { .demand = &m->demand,
                                    .layout = &l,
                                    .efficiency = &nb_efficiency_gpu,
                                    .record = nb_sizes_find(&m->sizes, "fp8"),
                                    .chunk = 8192 };
    for (uint64_t seed = 0; seed < N_TRACE; seed++) {
        nb_buf text = { 0 };
        for (uint64_t i = 0; i < 400; i++) {
            uint64_t id[40];
            const size_t n = 1 + nb_rng_u64(10 + seed, 3 * i) % NB_COUNT(id);
            const uint64_t who = nb_rng_u64(10 + seed, 3 * i + 1) % 12;
            for (size_t k = 0; k < n; k++) id[k] = 1000 * who + k;
            line(&text, (double)i, 512 * n - nb_rng_u64(10 + seed, 3 * i + 2) % 512, 1, id, n);
        }
        const char *path = write_file("larger.jsonl", &text);
        nb_buf_deinit(&text);
        const nb_mix_options mix = stream(&path);
        nb_replay_point p[N_SIZE];
        nb_replay_result r[N_SIZE];
        nb_error e = { 0 };
        for (size_t i = 0; i < N_SIZE; i++)
            p[i] = (nb_replay_point){ .n_block = (size_t)100 << i,
                                      .evict = NB_KV_EVICT_LRU,
                                      .clock = &clock };
        if (nb_replay_cache(&mix, p, N_SIZE, r, &e) != NB_OK) fail_msg("%s", e.msg);
        for (size_t i = 1; i < N_SIZE; i++) {
            assert_true(r[i].n_hit_tok >= r[i - 1].n_hit_tok);
            assert_true(r[i].alone_mean_s <= r[i - 1].alone_mean_s);
            assert_true(r[i].alone_p50_s <= 1.011 * r[i - 1].alone_p50_s);
        }
        assert_true(r[N_SIZE - 1].alone_mean_s < 0.7 * r[0].alone_mean_s);
    }
    free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone),  cmocka_unit_test(test_served),
        cmocka_unit_test(test_again),  cmocka_unit_test(test_refused),
        cmocka_unit_test(test_parts),  cmocka_unit_test(test_replicas),
        cmocka_unit_test(test_larger),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
