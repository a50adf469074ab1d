/* test_capacity_machine.c - devices, layouts and the roofline: against arithmetic by hand from
 * the papers' shapes, published prices, floors of a study of kernels, and what was measured on a GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
/* cmocka needs the headers above */
#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#include "capacity/configs.h"
#include "capacity/machine.h"
#include "capacity/roofline.h"
#include "load/doc.h"

#define GIB 1073741824.0

static nb_model_config conf; /* large: not on the stack, as the next */
static nb_sizes sizes;
static nb_machine machine;

static void near(const char *what, double got, double want, double part)
{
    if (!(fabs(got - want) <= part * fabs(want)))
        fail_msg("%s: %.9g, expected %.9g within %g", what, got, want, part);
}

static nb_demand demand(const char *model, const char *gpu, const char *record)
{
    nb_error err = { 0 };
    nb_machines ms;
    assert_int_equal(nb_machines_builtin(&ms, &err), NB_OK);
    const nb_machine *m = nb_machines_find(&ms, gpu);
    assert_non_null(m);
    machine = *m;
    nb_machines_deinit(&ms);
    if (nb_capacity_read_config(model, &conf, NULL, &err) != NB_OK ||
        nb_sizes_of(&conf, &sizes, &err) != NB_OK)
        fail_msg("%s: %s", model, err.msg);
    const nb_record_size *r = nb_sizes_find(&sizes, record);
    assert_non_null(r);
    return (nb_demand){ .config = &conf,
                        .sizes = &sizes,
                        .wtype = NB_SIZES_CHECKPOINT,
                        .machine = &machine,
                        .kv = r->type,
                        .rope = r->rope };
}

static nb_layout layout(size_t tp, size_t dp, size_t ep)
{
    return (nb_layout){ .n_gpu = tp * dp,
                        .tp = tp,
                        .dp = dp,
                        .ep = ep,
                        .utilization = 0.92,
                        .reserve_bytes = 4 * GIB };
}

/* ---- devices -------------------------------------------------------------- */

static void builtin_rows(void **state)
{
    (void)state;
    nb_machines ms;
    assert_int_equal(nb_machines_builtin(&ms, NULL), NB_OK);
    assert_true(ms.n >= 12);
    for (size_t i = 0; i < ms.n; i++) {
        const nb_machine *m = &ms.m[i];
        assert_true(m->source[0] && m->title[0]);
        assert_true(m->memory_bytes > 20 * GIB && m->memory_bytes < 300 * GIB);
        /* FLOP per byte of every card there is: a unit gone wrong is outside */
        assert_true(m->bf16 / m->bandwidth > 100 && m->bf16 / m->bandwidth < 500);
        assert_true(m->fp8 == 0 || (m->fp8 / m->bf16 > 1.9 && m->fp8 / m->bf16 < 2.1));
        assert_true(m->fp4 == 0 || (m->fp4 > 1.9 * m->fp8 && m->fp4 < 4.1 * m->fp8));
        assert_true((m->price > 0) == (m->price_source[0] != 0));
    }
    const nb_machine *h200 = nb_machines_find(&ms, "H200");
    assert_non_null(h200);
    near("H200 memory", h200->memory_bytes, 150.75e9, 1e-3);
    near("H200 bandwidth", h200->bandwidth, 4.8e12, 0);
    /* 8 GPUs for 14.16 and 42.72 an hour, as published on 25 Jun 2026 */
    near("8 H200", 8 * h200->price, 14.16, 1e-12);
    near("8 B200", 8 * nb_machines_find(&ms, "b200")->price, 42.72, 1e-12);
    assert_ptr_equal(nb_machines_find(&ms, "RTX 4090"), nb_machines_find(&ms, "rtx4090"));
    assert_ptr_equal(nb_machines_find(&ms, "a100_80"), nb_machines_find(&ms, "a100-80"));
    assert_null(nb_machines_find(&ms, "h20"));
    assert_null(nb_machines_find(&ms, ""));
    assert_null(nb_machines_find(&ms, "h200 and a name that is longer than any"));
    assert_string_equal(nb_machines_nearest(&ms, "h20o")->name, "h200");
    assert_string_equal(nb_machines_nearest(&ms, "nvidia-h200-sxm")->name, "h200");
    assert_non_null(nb_machines_nearest(&ms, "nothing like these names, and very long at that"));
    nb_machines_deinit(&ms);
}

#define ROW(fields) "{\"gpus\": {\"x1\": {" fields "}}}"
#define GOOD "\"memory_mib\": 1024, \"bandwidth_gbs\": 10, \"bf16_tflops\": 2, \"source\": \"here\""

static void more_rows(void **state)
{
    (void)state;
    nb_machines ms;
    nb_error err = { 0 };
    assert_int_equal(nb_machines_builtin(&ms, NULL), NB_OK);
    const size_t n = ms.n;
    const char *add = "{\"gpus\": {\"x1\": {" GOOD "}, \"h200\": {" GOOD ", \"price\": 3}}}";
    if (nb_machines_add(&ms, nb_str_c(add), "more.json", &err) != NB_OK) fail_msg("%s", err.msg);
    assert_int_equal(ms.n, n + 1);
    near("added", nb_machines_find(&ms, "x1")->bandwidth, 10e9, 0);
    near("replaced", nb_machines_find(&ms, "h200")->memory_bytes, GIB, 0);
    near("replaced", nb_machines_find(&ms, "h200")->price, 3, 0);
    assert_true(nb_machines_find(&ms, "h200")->fp8 == 0);

    static const struct bad {
        const char *json, *word;
    } bad[] = {
        { "[]", "gpus" },
        { "{\"gpus\": []}", "gpus" },
        { "{\"gpus\": {\"x1\": 7}}", "x1" },
        { "{\"gpus\": {\"X1\": {" GOOD "}}}", "X1" },
        { "{\"gpus\": {\"a.b\": {" GOOD "}}}", "a.b" },
        { "{\"gpus\": {\"\": {" GOOD "}}}", "names" },
        { ROW("\"bandwidth_gbs\": 10, \"bf16_tflops\": 2, \"source\": \"s\""), "memory_mib" },
        { ROW("\"memory_mib\": 1024, \"bf16_tflops\": 2, \"source\": \"s\""), "bandwidth_gbs" },
        { ROW("\"memory_mib\": 1024, \"bandwidth_gbs\": 10, \"bf16_tflops\": 2"), "source" },
        { ROW(GOOD ", \"price\": 0"), "price" },
        { ROW(GOOD ", \"price\": -1"), "price" },
        { ROW(GOOD ", \"price\": \"1\""), "price" },
        { ROW(GOOD ", \"price\": 1e300"), "price" },
        { ROW(GOOD ", \"fp16_tflops\": 1"), "fp16_tflops" },
        { ROW("\"memory_mib\": 1e99, \"bandwidth_gbs\": 10, \"bf16_tflops\": 2, \"source\": \"s\""),
          "memory_mib" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        err = (nb_error){ 0 };
        assert_int_not_equal(nb_machines_add(&ms, nb_str_c(bad[i].json), "bad.json", &err), NB_OK);
        if (!strstr(err.msg, bad[i].word) || !strstr(err.msg, "bad.json"))
            fail_msg("%s: \"%s\" does not name %s", bad[i].json, err.msg, bad[i].word);
        assert_int_equal(ms.n, n + 1); /* nothing has changed */
    }
    nb_machines_deinit(&ms);
}

static void too_many_rows(void **state)
{
    (void)state;
    nb_machines ms = { 0 };
    nb_buf b = { 0 };
    nb_error err = { 0 };
    for (int n = NB_MAX_MACHINE; n <= NB_MAX_MACHINE + 1; n++) {
        b.n_bytes = 0;
        assert_int_equal(nb_buf_add_c(&b, "{\"gpus\": {"), NB_OK);
        for (int i = 0; i < n; i++)
            assert_int_equal(nb_buf_printf(&b, "%s\"m%d\": {" GOOD "}", i ? "," : "", i), NB_OK);
        assert_int_equal(nb_buf_add_c(&b, "}}"), NB_OK);
        const nb_status st = nb_machines_add(&ms, nb_buf_view(&b), "many.json", &err);
        assert_int_equal(st, n <= NB_MAX_MACHINE ? NB_OK : NB_ERR_LIMIT);
        assert_int_equal(ms.n, NB_MAX_MACHINE);
    }
    /* full: a new name has no place, an old one has */
    assert_int_equal(nb_machines_add(&ms, nb_str_c(ROW(GOOD)), "one.json", &err), NB_ERR_LIMIT);
    assert_int_equal(
        nb_machines_add(&ms, nb_str_c("{\"gpus\": {\"m3\": {" GOOD "}}}"), "one.json", &err),
        NB_OK);
    nb_buf_deinit(&b);
    nb_machines_deinit(&ms);
}

/* ---- layouts --------------------------------------------------------------- */

static void layouts_refused(void **state)
{
    (void)state;
    const nb_demand v3 = demand("deepseek-v3", "h200", "nvfp4");
    static const struct wrong {
        size_t n, tp, dp, ep;
        const char *word;
    } wrong[] = { { 3, 3, 1, 1, "divide the 128 heads" },
                  { 8, 4, 1, 1, "number of GPUs" },
                  { 8, 0, 8, 1, "number of GPUs" },
                  { 8192, 1, 8192, 1, "number of GPUs" },
                  { 8, 1, 8, 3, "divisor" },
                  { 512, 1, 512, 512, "256 experts" } };
    nb_error err = { 0 };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        nb_layout l = layout(wrong[i].tp, wrong[i].dp, wrong[i].ep);
        l.n_gpu = wrong[i].n;
        assert_int_equal(nb_layout_check(&v3, &l, &err), NB_ERR_ARG);
        if (!strstr(err.msg, wrong[i].word)) fail_msg("%s: no %s", err.msg, wrong[i].word);
    }
    nb_layout l = layout(1, 8, 8);
    assert_int_equal(nb_layout_check(&v3, &l, &err), NB_OK);
    l.utilization = NAN;
    assert_int_equal(nb_layout_check(&v3, &l, &err), NB_ERR_ARG);
    const nb_demand dense = demand("llama-3.1-8b", "h200", "nvfp4");
    l = layout(1, 8, 8);
    assert_int_equal(nb_layout_check(&dense, &l, &err), NB_ERR_ARG);
    assert_non_null(strstr(err.msg, "no routed experts"));
}

/* A matrix in FP8 with a float per 128 x 128 block. */
static double fp8(double rows, double cols)
{
    return rows * cols + 4 * ceil(rows / 128) * ceil(cols / 128);
}

/* DeepSeek-V3 from its paper, section 4.2, in bytes of the FP8 checkpoint. */
typedef struct v3_bytes {
    double expert, dense, replicated, absorbed;
} v3_bytes;
static v3_bytes v3_by_hand(void)
{
    const double h = 7168, heads = 128, one = 2 * fp8(2048, h) + fp8(h, 2048);
    v3_bytes v;
    v.expert = 58 * 256 * one;
    /* down to the latents; norms are 4 MB of floats, or half of it; the router in BF16 */
    v.replicated = 61 * (fp8(1536, h) + fp8(576, h) + 4 * (2 * h + 1536 + 512)) +
                   58 * (256 * h * 2 + 4 * 256) + 4 * h;
    v.dense = 61 * (fp8(heads * 192, 1536) + fp8(heads * 256, 512) + fp8(h, heads * 128)) +
              3 * (2 * fp8(18432, h) + fp8(h, 18432)) + 58 * one + 2 * 129280 * h * 2;
    v.absorbed = 61 * (heads * 256 * 512) * (1 + 4.0 / (128 * 128)); /* W_UK and W_UV, FP8 with their scales */
    return v;
}

static double users_by_hand(double cache, double page, size_t n_tok)
{
    const double tail = 61 * 64.0 * 576 * 4;
    return floor(cache / (ceil((double)n_tok / 64) * 61 * page + tail));
}

static void v3_on_8_h200(void **state)
{
    (void)state;
    nb_demand d = demand("deepseek-v3", "h200", "nvfp4");
    const v3_bytes v = v3_by_hand();
    const double budget = floor(0.92 * 143771 * 1048576);
    nb_place p;
    nb_record_size r;

    /* attention on each GPU for its own users, experts over all */
    nb_layout l = layout(1, 8, 8);
    nb_layout_place(&d, &l, &p);
    near("experts", p.expert, v.expert / 8, 1e-9);
    near("dense", p.dense, v.dense, 1e-6);
    near("replicated", p.replicated, v.replicated, 2.5e-3);
    near("absorbed", p.absorbed, v.absorbed, 1e-9);
    near("cache", p.cache, budget - v.expert / 8 - v.dense - v.replicated - v.absorbed - 4 * GIB,
         1e-4);
    r = *nb_sizes_find(&sizes, "nvfp4");
    assert_int_equal(r.page_bytes, 22656); /* ARCHITECTURE.md */
    assert_true(nb_place_blocks(&p, &r) == floor(p.cache / (61 * 22656.0)));
    const double dp8 = nb_place_users(&p, &r, (double)sizes.tail_bytes_seq, 131072);
    assert_true(dp8 == users_by_hand(p.cache, 22656, 131072));
    assert_true(dp8 == 11); /* 88 users of 128k in all */
    /* short contexts: whole blocks, and the open page counts */
    for (size_t n = 1; n < 5000; n += 63)
        assert_true(nb_place_users(&p, &r, (double)sizes.tail_bytes_seq, n) ==
                    users_by_hand(p.cache, 22656, n));

    /* all eight compute every token: eight copies of each latent, so one user's 128k take as much
     * of every GPU as before, while weights take less */
    const double embed = 129280.0 * 7168 * 2; /* on each */
    l = layout(8, 1, 1);
    nb_layout_place(&d, &l, &p);
    near("cache of TP 8", p.cache,
         budget - (v.expert + v.dense - embed + v.absorbed) / 8 - embed - v.replicated - 4 * GIB, 1e-4);
    near("embedding", p.embed, embed, 1e-9);
    assert_true(p.read_share == 1);
    const double tp8 = nb_place_users(&p, &r, (double)sizes.tail_bytes_seq, 131072);
    assert_true(tp8 == users_by_hand(p.cache, 22656, 131072));
    assert_true(tp8 == 16);
    /* FP8, as the article has it for "16-18 users": 512 + 64 bytes and two scales */
    r = *nb_sizes_find(&sizes, "fp8");
    assert_true(nb_place_users(&p, &r, (double)sizes.tail_bytes_seq, 131072) ==
                users_by_hand(p.cache, (double)r.page_bytes, 131072));
    near("fp8 page", (double)r.page_bytes, 64 * 578.0, 1e-9);
    assert_true(nb_place_users(&p, &r, (double)sizes.tail_bytes_seq, 131072) == 10);
}

/* Copies of W_UK and W_UV: BF16, or FP8 with its blocks' scales; none on a processor. */
static void absorbed_copies(void **state)
{
    (void)state;
    nb_demand d = demand("deepseek-v2-lite", "h100", "nvfp4");
    const nb_layout l = layout(2, 1, 1);
    const double one = 27.0 * 16 * 256 * 512 * 2;
    nb_place p;
    static const nb_sizes_wtype types[] = { NB_SIZES_CHECKPOINT, NB_SIZES_BF16, NB_SIZES_FP8 };
    for (size_t i = 0; i < 3; i++) {
        d.wtype = types[i];
        nb_layout_place(&d, &l, &p);
        near("absorbed", p.absorbed, types[i] == NB_SIZES_FP8 ? one / 4 * (1 + 4.0 / (128 * 128)) : one / 2, 1e-12);
    }
    machine.cpu = true;
    nb_layout_place(&d, &l, &p);
    assert_true(p.absorbed == 0);
    d = demand("llama-3.1-8b", "h100", "bf16");
    nb_layout_place(&d, &l, &p);
    assert_true(p.absorbed == 0);
}

/* Experts in the memory of the host: their bytes change sides, and a step reads those that are hit there. */
static void experts_of_the_host(void **state)
{
    (void)state;
    nb_demand d = demand("deepseek-v2-lite", "h100", "nvfp4");
    nb_layout l = layout(1, 1, 1);
    const double one = 3.0 * 2048 * 1408 * 2, all = 26 * 64 * one;
    const nb_record_size *r = nb_sizes_find(&sizes, "nvfp4");
    nb_place before, p;
    nb_step s;
    nb_prefill f;
    nb_layout_place(&d, &l, &before);
    near("experts on the GPU", before.expert, all, 1e-12);
    l.host_layers = 13;
    l.host_bandwidth = 200e9;
    l.host_link = 50e9;
    nb_layout_place(&d, &l, &p);
    near("half in host memory", p.host, all / 2, 1e-12);
    near("half on the GPU", p.expert, all / 2, 1e-12);
    near("the cache gains them", p.cache - before.cache, all / 2, 1e-9);
    nb_step_of(&d, &l, r, &nb_efficiency_gpu, 1, 512, &s);
    near("read by the host", s.host_bytes, 13 * 6 * one, 1e-9);
    near("its time", s.most.host_s, 13 * 6 * one / 200e9, 1e-9);
    assert_int_equal(s.bound, NB_BOUND_HOST);
    assert_true(s.model.total_s > s.model.host_s && s.model.host_s > s.most.host_s);
    /* 32 rows for each expert are a unit: 384 tokens */
    assert_true(nb_layout_upload_tok(&d) == 384);
    l.host_layers = 26;
    nb_prefill_of(&d, &l, &nb_efficiency_gpu, 2048, 8192, &f);
    near("sent once", f.most_s, all / 50e9, 1e-9);
    assert_true(f.sends_experts);
    nb_prefill_of(&d, &l, &nb_efficiency_gpu, 1, 8192, &f);
    assert_true(!f.sends_experts && f.most_s < 0.1 * all / 50e9);
    d.wtype = NB_SIZES_INT4; /* packed: read by the host */
    nb_prefill_of(&d, &l, &nb_efficiency_gpu, 2048, 8192, &f);
    assert_false(f.sends_experts);
    d.wtype = NB_SIZES_CHECKPOINT;
    /* auto */
    l.host_layers = 0;
    assert_int_equal(nb_layout_fit_host(&d, &l, 1), 0);
    const size_t n = nb_layout_fit_host(&d, &l, before.cache + all / 26);
    assert_int_equal(n, 1);
    assert_int_equal(nb_layout_fit_host(&d, &l, 1e15), 26);
}

static void suggestions(void **state)
{
    (void)state;
    nb_demand d = demand("deepseek-v3", "h200", "nvfp4");
    nb_layout l = layout(8, 1, 1);
    assert_true(nb_layout_suggest(&d, &l));
    assert_true(l.tp == 1 && l.dp == 8 && l.ep == 8);
    /* eight H100 do not hold it, in any layout; sixteen do */
    d = demand("deepseek-v3", "h100", "nvfp4");
    l = layout(8, 1, 1);
    assert_false(nb_layout_suggest(&d, &l));
    assert_int_equal(nb_layout_needed(&d, &l), 16);
    assert_int_equal(l.tp * l.dp, 16);
    nb_place p;
    nb_layout_place(&d, &l, &p);
    assert_true(p.cache > 0);
    /* GQA: a GPU reads its heads of the cache, and keeps all of it */
    d = demand("llama-3.1-70b", "h100", "bf16");
    l = layout(1, 4, 1);
    assert_true(nb_layout_suggest(&d, &l));
    assert_true(l.tp == 4 && l.dp == 1 && l.ep == 1);
    nb_layout_place(&d, &l, &p);
    assert_true(p.read_share == 0.25);
    const double kv = 80.0 * 2 * 1024 * 8192 * 2, norms = 161.0 * 8192 * 2; /* k_proj, v_proj: on each */
    near("replicated", p.replicated, kv + norms, 1e-9);
    const double embed = 128256.0 * 8192 * 2; /* too */
    near("divided", p.dense, ((double)sizes.weight_bytes - kv - norms - embed) / 4 + embed, 1e-9);
    const double pages = 80.0 * 64 * 2 * 8 * 128 * 2;
    assert_true(nb_place_blocks(&p, nb_sizes_find(&sizes, "bf16")) == floor(p.cache / pages));
    l = layout(16, 1, 1); /* 8 KV heads: at least one on each GPU */
    nb_layout_place(&d, &l, &p);
    assert_true(p.read_share == 0.125);
    machine.cpu = true; /* a rank of a processor decodes whole pages */
    nb_layout_place(&d, &l, &p);
    assert_true(p.read_share == 1);
    machine.cpu = false;
    /* no GPU is enough for nothing */
    machine.memory_bytes = 1e6;
    assert_int_equal(nb_layout_needed(&d, &l), 0);
}

/* ---- the roofline ----------------------------------------------------------- */

/* Picoseconds per cached token and layer, h = 16 and 128, on 3.0 TB/s and 798 TFLOP/s: the floors of the
 * study of GPU kernels that this project began with (bytes of its records differ from 324 by scales). */
static void attention_floors(void **state)
{
    (void)state;
    static const struct floor_row {
        const char *model, *record;
        double bytes, ps;
        nb_bound bound;
    } rows[] = {
        { "deepseek-v2-lite", "bf16", 1152, 384.0, NB_BOUND_CACHE },
        { "deepseek-v2-lite", "nvfp4", 354, 354.0 / 3.0, NB_BOUND_CACHE },
        { "deepseek-v3", "bf16", 1152, 384.0, NB_BOUND_CACHE },
        { "deepseek-v3", "nvfp4", 354, 349.0, NB_BOUND_ATTENTION },
        { "deepseek-v3", "fp8_ds_mla", 656, 349.0, NB_BOUND_ATTENTION },
    };
    const nb_efficiency e = nb_efficiency_flat(1);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const nb_demand d = demand(rows[i].model, "h100", rows[i].record);
        const nb_layout l = layout(1, 1, 1);
        const double n_seq = 64, context = 1e6;
        nb_record_size r;
        nb_step s;
        machine.bandwidth = 3.0e12;
        machine.bf16 = 798e12;
        r = *nb_sizes_find_rope(&sizes, nb_kv_type_name(d.kv), d.rope);
        nb_step_of(&d, &l, &r, &e, n_seq, context, &s);
        const double tokens = n_seq * context * (double)conf.n_layer;
        near("bytes", s.cache_bytes / tokens, rows[i].bytes, 1e-3);
        near(rows[i].record, s.most.attention_s / tokens * 1e12, rows[i].ps, 2e-3);
        assert_int_equal(s.bound, rows[i].bound);
        /* efficiencies of 1 and one GPU: modelled is the bound itself */
        near("model", s.model.total_s, s.most.total_s, 1e-12);
        near("sum", s.most.total_s, s.most.products_s + s.most.attention_s, 1e-12);
        near("rate", s.most.tok_s, n_seq / s.most.total_s, 1e-12);
    }
}

/* Sequences of the busiest replica; a step of so many that arithmetic binds. */
static void steps(void **state)
{
    (void)state;
    const nb_demand d = demand("deepseek-v2-lite", "h100", "nvfp4");
    const nb_layout one = layout(1, 1, 1), four = layout(1, 4, 4);
    nb_record_size r;
    nb_step s;
    r = *nb_sizes_find_rope(&sizes, nb_kv_type_name(d.kv), d.rope);
    nb_step_of(&d, &four, &r, &nb_efficiency_gpu, 10, 1000, &s);
    assert_true(s.n_seq == 3);
    near("cache", s.cache_bytes, 3 * 1000 * r.attn_bytes_tok, 1e-12);
    near("attention", s.attention_flop, 3.0 * 1000 * 27 * 16 * 2 * 1088, 1e-12);
    assert_true(s.model.other_s > 27 * nb_efficiency_gpu.layer_s); /* exchanges */
    nb_step_of(&d, &one, &r, &nb_efficiency_gpu, 4096, 64, &s);
    assert_int_equal(s.bound, NB_BOUND_PRODUCTS);
    near("products", s.product_flop, 2.0 * 4096 * (double)sizes.n_param_active, 1e-3);
    near("products", s.most.products_s, s.product_flop / 989.4e12, 1e-9);
    near("products", s.model.products_s, s.product_flop / 989.4e12 / 0.25, 1e-9);
}

/* bench/results/gpu_h100.json and the matrix of gpu_h100_runs.json: DeepSeek-V2-Lite's shape in BF16 on one H100,
 * commit 1eb11ed. */
static void measured_steps(void **state)
{
    (void)state;
    static const struct measured {
        const char *record;
        double context, n_seq, ms;
    } rows[] = { { "nvfp4", 512, 1, 2.743 },     { "nvfp4", 512, 8, 7.148 },
                 { "nvfp4", 512, 32, 12.608 },   { "nvfp4", 512, 64, 14.405 },
                 { "nvfp4", 4096, 1, 2.782 },    { "nvfp4", 4096, 8, 7.270 },
                 { "nvfp4", 4096, 32, 13.334 },  { "nvfp4", 4096, 64, 15.999 },
                 { "nvfp4", 32768, 1, 3.101 },   { "nvfp4", 32768, 8, 8.747 },
                 { "nvfp4", 32768, 32, 17.867 }, { "nvfp4", 32768, 64, 24.319 },
                 { "bf16", 4096, 1, 2.669 },     { "bf16", 4096, 8, 7.335 },
                 { "bf16", 4096, 32, 13.882 },   { "bf16", 32768, 1, 3.106 },
                 { "bf16", 32768, 8, 10.118 },   { "bf16", 32768, 32, 23.638 },
                 { "fp8", 4096, 1, 2.732 },      { "fp8", 4096, 8, 7.239 },
                 { "fp8", 4096, 64, 16.242 },    { "fp8", 32768, 1, 3.032 },
                 { "fp8", 32768, 8, 8.972 },     { "fp8", 32768, 64, 25.826 },
                 { "fp8", 131072, 1, 3.548 },    { "fp8", 131072, 8, 13.160 },
                 { "nvfp4", 131072, 1, 3.359 },  { "nvfp4", 131072, 8, 12.399 },
                 { "bf16", 4096, 64, 17.426 },   { "bf16", 131072, 1, 4.173 },
                 { "bf16", 131072, 8, 18.172 } };
    const nb_layout l = layout(1, 1, 1);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const nb_demand d = demand("deepseek-v2-lite", "h100", rows[i].record);
        nb_record_size r;
        nb_step s;
        r = *nb_sizes_find_rope(&sizes, nb_kv_type_name(d.kv), d.rope);
        nb_step_of(&d, &l, &r, &nb_efficiency_gpu, rows[i].n_seq, rows[i].context, &s);
        near("ms a step", s.model.total_s * 1e3, rows[i].ms, 0.08);
        assert_true(s.most.total_s * 1e3 < rows[i].ms); /* a bound is one */
    }
    /* a prompt of 8,192 tokens after 512 took 190 ms; alone it has fewer pairs */
    const nb_demand d = demand("deepseek-v2-lite", "h100", "nvfp4");
    nb_prefill f;
    nb_prefill_of(&d, &l, &nb_efficiency_gpu, 8192, 8192, &f);
    near("prompt", f.model_s * 1e3, 189.613, 0.12);
    assert_true(f.model_s * 1e3 < 189.613 && f.most_s < 0.3 * f.model_s);
}

/* gpu_h100_runs.json, part fp8: the same with FP8 weights, nvfp4 pages. */
static void measured_fp8_weights(void **state)
{
    (void)state;
    static const struct measured {
        double context, n_seq, ms;
    } rows[] = { { 512, 1, 2.542 },   { 512, 8, 5.761 },   { 512, 64, 12.326 },
                 { 4096, 1, 2.639 },  { 4096, 8, 5.902 },  { 4096, 64, 13.825 },
                 { 32768, 1, 2.943 }, { 32768, 8, 7.503 }, { 32768, 64, 22.187 } };
    const nb_layout l = layout(1, 1, 1);
    nb_demand d = demand("deepseek-v2-lite", "h100", "nvfp4");
    d.wtype = NB_SIZES_FP8;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        nb_step s;
        nb_step_of(&d, &l, nb_sizes_find(&sizes, "nvfp4"), &nb_efficiency_gpu, rows[i].n_seq,
                   rows[i].context, &s);
        near("ms a step", s.model.total_s * 1e3, rows[i].ms, 0.10);
        assert_true(s.most.total_s * 1e3 < rows[i].ms);
    }
}

/* A tiny model of four experts, two per token. */
static const char tiny[] =
    "{\"model_type\":\"deepseek_v3\",\"vocab_size\":512,\"hidden_size\":128,\"intermediate_size\":"
    "160,\"moe_intermediate_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
    "\"kv_lora_rank\":512,\"q_lora_rank\":96,\"qk_nope_head_dim\":32,\"qk_rope_head_dim\":64,"
    "\"v_head_dim\":32,\"n_routed_experts\":4,\"num_experts_per_tok\":2,\"n_group\":1,"
    "\"topk_group\":1,\"n_shared_experts\":1,\"first_k_dense_replace\":1,"
    "\"max_position_embeddings\":4096,\"eos_token_id\":1}";

/* Experts that n_tok tokens hit: over all ways to draw pairs of four. */
static double hit_by_counting(int n_tok)
{
    static const unsigned pair[6] = { 3, 5, 9, 6, 10, 12 };
    long ways = 1, sum = 0;
    for (int i = 0; i < n_tok; i++) ways *= 6;
    for (long w = 0; w < ways; w++) {
        unsigned seen = 0;
        long x = w;
        for (int i = 0; i < n_tok; i++, x /= 6) seen |= pair[x % 6];
        for (; seen; seen >>= 1) sum += seen & 1;
    }
    return (double)sum / (double)ways;
}

static void experts_drawn(void **state)
{
    (void)state;
    nb_demand d = demand("deepseek-v3", "h100", "bf16");
    nb_doc *doc = NULL;
    nb_error err = { 0 };
    assert_int_equal(nb_doc_parse(nb_str_c(tiny), "tiny", &doc, &err), NB_OK);
    if (nb_model_config_read(doc, &conf, &err) != NB_OK) fail_msg("%s", err.msg);
    assert_int_equal(nb_sizes_of(&conf, &sizes, &err), NB_OK);
    nb_doc_destroy(doc);
    const nb_record_size *r = nb_sizes_find(&sizes, "bf16");
    for (int n = 1; n <= 5; n++) {
        nb_step one, two;
        const nb_layout l = layout(1, 1, 1), l2 = layout(1, 2, 2);
        nb_step_of(&d, &l, r, &nb_efficiency_gpu, n, 64, &one);
        near("experts", one.experts_read, hit_by_counting(n), 1e-9);
        /* of two replicas, the experts of all sequences; half of them on each GPU */
        nb_step_of(&d, &l2, r, &nb_efficiency_gpu, n, 64, &two);
        near("experts", two.experts_read, one.experts_read, 1e-12);
        const double expert = (double)sizes.weight[0].one_expert;
        near("read", one.weight_bytes - two.weight_bytes, one.experts_read * expert / 2, 1e-9);
        assert_true(two.n_seq == ceil(n / 2.0));
    }
}

/* Llama 3.1 8B: 6.98e9 parameters in products of a prompt (8.03e9 less embedding and head), and 4 * 32 heads
 * * 128 operations per pair and layer. */
static void prompts(void **state)
{
    (void)state;
    const nb_demand d = demand("llama-3.1-8b", "h100", "bf16");
    const nb_layout l = layout(1, 1, 1), l2 = layout(2, 1, 1);
    const double n = 4096, inner = 4096 * (2 * 4096.0 + 2 * 1024) + 3 * 4096 * 14336.0;
    const double flop = 2 * n * 32 * inner + n * (n + 1) / 2 * 32 * 4 * 4096.0;
    nb_prefill f, g;
    nb_prefill_of(&d, &l, &nb_efficiency_gpu, n, 8192, &f);
    near("operations", f.flop, flop, 1e-3);
    near("time", f.most_s, flop / 989.4e12, 1e-3);
    assert_false(f.reads_weights);
    near("rate", f.most_tok_s, n / f.most_s, 1e-9);
    nb_prefill_of(&d, &l2, &nb_efficiency_gpu, n, 8192, &g);
    const double kv = 2 * n * 32 * 4096 * 2 * 1024; /* keys and values, on each */
    near("two GPUs", g.most_s, (flop + kv) / 2 / 989.4e12, 1e-3);
    assert_true(g.model_s > f.model_s / 2); /* exchanges */
    /* four chunks of a latent prompt: keys of 1, 2 and 3 chunks are rebuilt, kv_b's product each */
    const nb_demand mla = demand("deepseek-v2-lite", "h100", "nvfp4");
    nb_prefill_of(&mla, &l, &nb_efficiency_gpu, n, 4096, &f);
    nb_prefill_of(&mla, &l, &nb_efficiency_gpu, n, 1024, &g);
    near("rebuilt", g.flop - f.flop, 6 * 1024 * 27.0 * 2 * 512 * 16 * 256, 1e-6);
    (void)demand("llama-3.1-8b", "h100", "bf16");
    /* one token reads all weights but the embedding and the head's products */
    nb_prefill_of(&d, &l, &nb_efficiency_gpu, 1, 8192, &f);
    assert_true(f.reads_weights);
    near("one token", f.most_s, (8.03e9 - 128256 * 4096.0) * 2 / 3.35e12, 2e-3);
}

/* The article's own figures: 8 H200 and 8 B200, tokens/s that it measured. */
static void cost(void **state)
{
    (void)state;
    near("32k", nb_cost_million(14.16, 9500), 0.41, 0.012);
    near("128k", nb_cost_million(14.16, 4200), 0.94, 0.005);
    near("B200", nb_cost_million(42.72, 7800), 1.52, 0.002);
    assert_true(nb_cost_million(14.16, 0) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(builtin_rows),
        cmocka_unit_test(more_rows),
        cmocka_unit_test(too_many_rows),
        cmocka_unit_test(layouts_refused),
        cmocka_unit_test(v3_on_8_h200),
        cmocka_unit_test(absorbed_copies),
        cmocka_unit_test(steps),
        cmocka_unit_test(experts_of_the_host),
        cmocka_unit_test(suggestions),
        cmocka_unit_test(attention_floors),
        cmocka_unit_test(measured_steps),
        cmocka_unit_test(measured_fp8_weights),
        cmocka_unit_test(experts_drawn),
        cmocka_unit_test(prompts),
        cmocka_unit_test(cost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
