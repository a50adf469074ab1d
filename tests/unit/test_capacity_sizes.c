/* test_capacity_sizes.c - what the planner counts against published figures, against the walk over
 * the whole model, and against what engines say they have allocated: to the byte. */
#include "engine_testing.h"

#include <jansson.h>

#include <math.h>
#include "capacity/configs.h"
#include "capacity/layout.h"
#include "capacity/sizes.h"
#include "engine/engine_internal.h"
#include "model/gpu/gpu.h"
#include "model/quantize.h"

static nb_model_config conf; /* large: not on the stack, as the next */
static nb_sizes sizes;

static void read_and_size(const char *model)
{
    nb_error err = { 0 };
    if (nb_capacity_read_config(model, &conf, NULL, &err) != NB_OK ||
        nb_sizes_of(&conf, &sizes, &err) != NB_OK)
        fail_msg("%s: %s", model, err.msg);
}

static void equal(const char *model, const char *what, uint64_t got, uint64_t want)
{
    if (got != want)
        fail_msg("%s: %s: %llu, expected %llu", model, what, (unsigned long long)got,
                 (unsigned long long)want);
}

static double bytes_tok(const char *record)
{
    const nb_record_size *r = nb_sizes_find(&sizes, record);
    assert_non_null(r);
    return r->bytes_tok;
}

/* ---- published figures ---- */

/* Bytes per token of all layers, from papers, cards and other engines' documentation; mha: the
 * same model with a key and a value per head. */
static const struct published {
    const char *model;
    double param; /* 1e9, as it is rounded by who published it */
    double bf16, ds_mla, mha;
} published[] = {
    { "deepseek-v2", 235.74, 69120, 39360, 4915200 },
    { "deepseek-v2-lite", 15.71, 31104, 17712, 276480 },
    { "deepseek-v3", 671.03, 70272, 40016, 4997120 },
    { "deepseek-r1", 671.03, 70272, 40016, 4997120 },
    { "kimi-k2", 1026.4, 70272, 40016, 2498560 },
    { "kimi-k2-0905", 1026.4, 70272, 40016, 2498560 },
    { "kimi-k2-thinking", 1026.4, 70272, 40016, 2498560 },
    { "moonlight-16b", 15.96, 31104, 17712, 276480 },
    { "glm-4.7-flash", 29.94, 54144, 30832, 962560 },
    { "minicpm3-4b", 4.07, 35712, 20336, 793600 },
    { "youtu-llm-2b", 1.96, 36864, 20992, 327680 },
    { "a.x-k1", 518.98, 70272, 40016, 2498560 },
    { "sarvam-105b", 106.03, 36864, 20992, 1310720 },
    { "kimi-linear-48b", 49.12, 8064, 4592, 143360 },
    { "mistral-small-4", 118.97, 23040, 14112, 589824 },
    { "mistral-large-3", 673.42, 70272, 40016, 4997120 },
    { "longcat-flash", 560.66, 64512, 36736, 2293760 },
    { "gigachat3-10b", 10.673, 29952, 17056, 638976 },
    { "llama-3.2-1b", 1.236, 32768, 0, 131072 },
    { "llama-3.2-3b", 3.213, 114688, 0, 344064 },
    { "llama-3.1-8b", 8.030, 131072, 0, 524288 },
    { "llama-3.1-70b", 70.55, 327680, 0, 2621440 },
    { "llama-3.3-70b", 70.55, 327680, 0, 2621440 },
    { "llama-3.1-405b", 405.85, 516096, 0, 8257536 },
    { "qwen2.5-0.5b", 0.494, 12288, 0, 86016 },
    { "qwen2.5-1.5b", 1.544, 28672, 0, 172032 },
    { "qwen2.5-3b", 3.086, 36864, 0, 294912 },
    { "qwen2.5-7b", 7.616, 57344, 0, 401408 },
    { "qwen2.5-14b", 14.77, 196608, 0, 983040 },
    { "qwen2.5-32b", 32.76, 262144, 0, 1310720 },
    { "qwen2.5-72b", 72.71, 327680, 0, 2621440 },
    { "qwen3-0.6b", 0.596, 114688, 0, 229376 },
    { "qwen3-1.7b", 1.721, 114688, 0, 229376 },
    { "qwen3-4b", 4.022, 147456, 0, 589824 },
    { "qwen3-4b-2507", 4.022, 147456, 0, 589824 },
    { "qwen3-8b", 8.191, 147456, 0, 589824 },
    { "qwen3-14b", 14.77, 163840, 0, 819200 },
    { "qwen3-32b", 32.76, 262144, 0, 2097152 },
};

static const nb_attn_equivalent *equivalent(const char *name)
{
    for (size_t i = 0; i < sizes.n_equivalent; i++)
        if (!strcmp(sizes.equivalent[i].name, name)) return &sizes.equivalent[i];
    return NULL;
}

static void test_published(void **state)
{
    (void)state;
    for (size_t i = 0; i < NB_COUNT(published); i++) {
        const struct published *p = &published[i];
        read_and_size(p->model);
        const double got = (double)sizes.n_param / 1e9, off = got / p->param - 1;
        if (off > 2e-3 || off < -2e-3)
            fail_msg("%s: %.3f G parameters, published are %.3f", p->model, got, p->param);
        equal(p->model, "bf16", (uint64_t)bytes_tok("bf16"), (uint64_t)p->bf16);
        assert_true(equivalent("mha")->bytes_tok == p->mha);
        const nb_attn_equivalent *own = equivalent(sizes.is_mla ? "mla" : "gqa");
        assert_true(own->bytes_tok == p->bf16);
        if (p->ds_mla > 0)
            assert_true(bytes_tok("fp8_ds_mla") == p->ds_mla);
        else
            assert_null(nb_sizes_find(&sizes, "fp8_ds_mla"));
    }
}

/* Sparse attention: the indexer's keys are one more plane, 129 bytes a token, of layers that have an indexer; a token is
 * attended to by at most index_topk others. */
static void test_indexer(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        double param, bf16, nvfp4, own, layers;
    } rows[] = { { "deepseek-v3.2", 671.88, 1282, 484, 61, 61 },
                 { "glm-5", 743.9, 1282, 484, 78, 78 },
                 { "glm-5.2", 743.4, 1282, 484, 21, 78 } };
    for (size_t i = 0; i < NB_COUNT(rows); i++) {
        read_and_size(rows[i].model);
        const double off = (double)sizes.n_param / 1e9 / rows[i].param - 1, rest = rows[i].layers - rows[i].own;
        if (off > 2e-3 || off < -2e-3)
            fail_msg("%s: %.3f G parameters", rows[i].model, (double)sizes.n_param / 1e9);
        equal(rows[i].model, "bf16", (uint64_t)bytes_tok("bf16"),
              (uint64_t)(rows[i].own * rows[i].bf16 + rest * 1152));
        equal(rows[i].model, "nvfp4", (uint64_t)bytes_tok("nvfp4"),
              (uint64_t)(rows[i].own * rows[i].nvfp4 + rest * 354));
        assert_null(nb_sizes_find(&sizes, "fp8_ds_mla"));
        assert_true(sizes.attn_most_pairs == 2048 && sizes.choose_bytes_tok == 129 * rows[i].own);
    }
}

/* V3 in full: what the documents of nibble state of its records and of other attention. */
static void test_v3(void **state)
{
    (void)state;
    read_and_size("deepseek-v3");
    static const struct {
        const char *name;
        nb_rope_fmt rope;
        size_t page;
    } rows[] = {
        { "bf16", NB_ROPE_INT8, 64 * 1152 },    { "fp8", NB_ROPE_INT8, 64 * 578 },
        { "fp8", NB_ROPE_FP8, 64 * 578 },       { "nvfp4", NB_ROPE_INT8, 64 * 354 },
        { "nvfp4", NB_ROPE_BF16, 64 * 418 },    { "if4", NB_ROPE_FP8, 64 * 354 },
        { "mxfp4", NB_ROPE_INT8, 64 * 338 },    { "fp8_ds_mla", NB_ROPE_INT8, 64 * 656 },
        { "int4", NB_ROPE_INT8, 64 * 386 },     { "f32", NB_ROPE_INT8, 64 * 2304 },
        { "bfloat16", NB_ROPE_FP8, 64 * 1152 },
    };
    for (size_t i = 0; i < NB_COUNT(rows); i++) {
        const nb_record_size *r = nb_sizes_find_rope(&sizes, rows[i].name, rows[i].rope);
        assert_non_null(r);
        equal(rows[i].name, "page", r->page_bytes, rows[i].page);
        equal(rows[i].name, "block", r->block_bytes, 61 * rows[i].page);
        assert_true(r->bytes_tok_layer * 64 == (double)rows[i].page);
        assert_true(r->bytes_tok * 64 == 61 * (double)rows[i].page);
        assert_true(r->attn_bytes_tok <= r->bytes_tok && r->attn_bytes_tok > r->bytes_tok * .99);
    }
    /* planes end at multiples of 128: 64 bytes of mxfp4's page are never read */
    const nb_record_size *mx = nb_sizes_find(&sizes, "mxfp4");
    assert_true(mx->attn_bytes_tok == 61 * (double)(64 * 338 - 64) / 64);
    assert_true(nb_sizes_find(&sizes, "nvfp4")->rope == NB_ROPE_INT8);
    equal("nvfp4", "planes", nb_sizes_find(&sizes, "nvfp4")->plane_bytes, (size_t)61 * 64 * 256);
    equal("fp8", "planes", nb_sizes_find(&sizes, "fp8")->plane_bytes, 0);
    assert_null(nb_sizes_find(&sizes, "fp4"));
    assert_true(equivalent("gqa8")->bytes_tok == 61 * 8 * 320 * 2);
    assert_true(equivalent("mqa")->bytes_tok == 61 * 320 * 2);
    assert_true(equivalent("mla")->bytes_tok_layer == 1152);
    assert_int_equal(sizes.own, NB_KV_BF16);
    equal("V3", "rows", sizes.n_record, 3 + 5 * 3); /* five types with three rope keys */
    equal("V3", "open page", sizes.tail_bytes_seq, 61 * 64 * 576 * 4);
    equal("V3", "sink", sizes.sink_bytes_block, 61 * 576 * 2);
    assert_true(sizes.n_moe_layer == 58 && sizes.n_expert == 256 && sizes.top_k == 8);
    /* kv_b: 16.8 M weights per layer, in FP8 with scales; copied in BF16: 33.5 MB per layer */
    equal("V3", "absorbed copy", sizes.absorbed_copy_bytes, (uint64_t)61 * 128 * 256 * 512 * 2);
    equal("V3", "on a GPU", sizes.gpu_absorbed_bytes,
          (uint64_t)61 * 128 * 256 * 512 / (128 * 128) * (128 * 128 + 4));
    equal("V3", "kv_b", sizes.kv_b_bytes, (uint64_t)61 * (128 * 256 * 512 + 256 * 4 * 4));
    /* 2 (2 * 512 + 64) absorbed, 2 (128 + 64 + 128) expanded, per head and pair */
    assert_true(sizes.attn_flop_decode == 61.0 * 128 * 2176);
    assert_true(sizes.attn_flop_prefill == 61.0 * 128 * 640);
    assert_true(sizes.expand_flop_tok == 61.0 * 128 * 262144);
    read_and_size("llama-3.1-8b");
    assert_true(sizes.attn_flop_decode == 32.0 * 32 * 512 && sizes.expand_flop_tok == 0);
    assert_true(sizes.kv_b_bytes == 0 && sizes.gpu_absorbed_bytes == 0 && sizes.n_expert == 0);
    for (size_t i = 0; i < sizes.n_record; i++) assert_false(sizes.record[i].rope_varies);
    equal("Llama", "rows", sizes.n_record, 7);
    equal("Llama", "open page", sizes.tail_bytes_seq, 32 * 64 * 2048 * 4);
    read_and_size(in_source("tests/parity/v3_f32"));
    assert_int_equal(sizes.own, NB_KV_F32);
    read_and_size(in_source("tests/parity/youtu_f16"));
    assert_int_equal(sizes.own, NB_KV_BF16);
}

/* ---- against the walk over every tensor ---- */

typedef struct parts {
    uint64_t all, expert, kv_b, split, saved; /* split: what tensor parallelism divides */
    bool int8, int4, moe; /* int4: with moe of routed experts only, else of all but the head */
} parts;

/* 4 bits in words of 32, a scale of 16 bits for 32 values. */
static uint64_t int4_bytes(const nb_weight *w)
{
    const uint64_t words = (w->n_col + 7) / 8, scales = (w->n_col + 31) / 32;
    return w->n_row * (4 * words + 2 * scales);
}

static nb_status add_part(void *ctx, const char *name, nb_weight *w)
{
    parts *p = ctx;
    uint64_t n = p->int8 ? nb_int8_matrix_bytes(w) : nb_weight_bytes(w);
    if (p->int4 && strstr(name, ".layers.") && (!p->moe || strstr(name, ".experts."))) {
        p->saved += n - int4_bytes(w);
        n = int4_bytes(w);
    }
    p->all += n;
    if (strstr(name, ".experts.")) p->expert += n;
    if (strstr(name, "kv_b_proj")) p->kv_b += n;
    const bool whole = strstr(name, "kv_a_proj") || strstr(name, "q_a_proj") ||
                       strstr(name, "self_attn.k_proj") || strstr(name, "self_attn.v_proj");
    if (!whole) p->split += n;
    return NB_OK;
}

static void check_walk(const char *model, nb_sizes_wtype type)
{
    static nb_model_config c;
    const nb_weight_size *w = &sizes.weight[type];
    nb_model m;
    c = conf;
    if (type == NB_SIZES_BF16 || type == NB_SIZES_FP8 || type == NB_SIZES_INT4) {
        c.dtype = "bfloat16";
        c.fp8 = type == NB_SIZES_FP8;
    }
    assert_int_equal(nb_model_shapes(&m, &c, NULL), NB_OK);
    parts p = { .int8 = type == NB_SIZES_INT8, .int4 = type == NB_SIZES_INT4 };
    p.moe = sizes.n_moe_layer > 0;
    assert_int_equal(nb_model_each_matrix(&m, add_part, &p), NB_OK);
    const uint64_t bytes = (p.int8 ? nb_model_int8_weight_bytes(&m) : m.weight_bytes) - p.saved;
    const bool apart = p.int8 || !m.head_is_embed;
    const uint64_t embed = apart ? nb_weight_bytes(&m.embed) : 0;
    equal(model, "weights", w->bytes, bytes);
    equal(model, "experts", w->expert, p.expert);
    equal(model, "kv_b", w->kv_b, p.kv_b);
    equal(model, "embedding", w->embed, embed);
    equal(model, "replicated", w->replicated, bytes - p.split - embed);
    equal(model, "one expert", w->one_expert * sizes.n_moe_layer * sizes.n_expert, p.expert);
    equal(model, "active", w->active,
          bytes - embed - (sizes.n_expert - sizes.top_k) * sizes.n_moe_layer * w->one_expert);
    nb_model_deinit(&m);
}

static void test_walk(void **state)
{
    (void)state;
    nb_bundled_config b;
    for (size_t i = 0; nb_capacity_config_at(i, &b); i++) {
        read_and_size(b.name);
        /* of the largest, with tens of thousands of tensors, one */
        const bool large = sizes.n_moe_layer * sizes.n_expert > 5000;
        for (int t = 0; t < NB_SIZES_N_WTYPE && (!large || !strcmp(b.name, "deepseek-v3")); t++)
            check_walk(b.name, (nb_sizes_wtype)t);
        if (conf.n_stream) continue; /* F32 and tables of tokens: test_v4.c */
        /* all in BF16: two bytes for a parameter, four for a router's bias and for what decays a state */
        uint64_t bias = conf.router_bias ? sizes.n_moe_layer * nb_n_choice(&conf) : 0;
        for (size_t k = 0; k < conf.n_layer; k++) {
            const nb_attn_config *a = &conf.attn[conf.attn_of[k]];
            if (a->kind == NB_ATTN_KDA) bias += a->n_head * (a->head_dim + 1);
            if (a->kind == NB_ATTN_DSA && !a->index_shared) bias += 2 * a->index_dim; /* a norm */
        }
        equal(b.name, "BF16", sizes.weight_bytes_bf16, 2 * (sizes.n_param + bias));
        equal(b.name, "active", sizes.weight[NB_SIZES_BF16].active,
              2 * (sizes.n_param_active + bias));
        equal(
            b.name, "as published", sizes.weight_bytes,
            sizes.weight[conf.fp8          ? NB_SIZES_FP8
                         : nb_quant_main(&conf.quant)->bits ? NB_SIZES_INT4
                                           : NB_SIZES_BF16]
                .bytes);
    }
}

/* Kimi K2 Thinking by hand: 60 layers of 384 experts with three matrices of 7168 x 2048, 4.5 bits a value; the
 * rest is what K2 has beside its experts, in BF16.  Its files are published with 594 GB. */
static void test_int4_experts(void **state)
{
    (void)state;
    const uint64_t n = (uint64_t)60 * 384 * 3 * 7168 * 2048, bias = (uint64_t)60 * 384;
    read_and_size("kimi-k2-thinking");
    equal("K2 Thinking", "experts", sizes.expert_bytes, n * 9 / 16);
    equal("K2 Thinking", "all", sizes.weight_bytes,
          n * 9 / 16 + 2 * (sizes.n_param - n) + 2 * bias);
    assert_true(sizes.weight_bytes / 1000000000 == 594);
    equal("K2 Thinking", "on a GPU", sizes.gpu_absorbed_bytes, sizes.absorbed_copy_bytes);
    assert_false(sizes.checkpoint_unknown);
    assert_true(sizes.own == NB_KV_BF16 && bytes_tok("bf16") == 70272);
}

/* Biases, a tied head, FP16, F32, FP8: whatever the small models of the tests have. */
static void test_walk_small(void **state)
{
    (void)state;
    static const char *const models[] = {
        "v2_group", "v2_lite",      "v3",    "v3_bias",   "v3_f32",        "v3_fp8",
        "v3_geom",  "v3_moonlight", "youtu", "youtu_f16", "kimi_k2",       "glm4_moe_lite",
        "llama3",   "llama_bias",   "qwen2", "qwen3",     "minicpm3_long",
    };
    for (size_t i = 0; i < NB_COUNT(models); i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "tests/parity/%s", models[i]);
        read_and_size(in_source(path));
        for (int t = 0; t < NB_SIZES_N_WTYPE; t++) check_walk(models[i], (nb_sizes_wtype)t);
    }
}

/* ---- against engines ---- */

typedef struct engine_case {
    const char
        *model; /* a folder of the repository; or a bundled name: its cache and layers, the rest
                          small, with dummy weights */
    const char *record, *rope;
    size_t n_sink;
    const char *skip; /* layers */
    size_t n_skip;
    const char *thrift, *weights;
} engine_case;

static const engine_case engine_cases[] = {
    { "models/nibble-tiny", "auto", NULL, 0, NULL, 0, NULL, NULL },
    { "models/nibble-tiny", "bf16", NULL, 4, NULL, 0, NULL, NULL },
    { "models/nibble-tiny", "fp8", "fp8", 0, NULL, 0, NULL, NULL },
    { "models/nibble-tiny", "nvfp4", "bf16", 0, NULL, 0, NULL, "int8" },
    { "models/nibble-tiny", "nvfp4", NULL, 64, "0,2-3", 3, NULL, NULL },
    { "models/nibble-tiny", "if4", "int8", 0, NULL, 0, "token", NULL },
    { "models/nibble-tiny", "nvfp4", NULL, 2, "1", 1, "quest", NULL },
    { "models/nibble-tiny", "mxfp4", "bf16", 0, NULL, 0, NULL, NULL },
    { "models/nibble-tiny", "int4", NULL, 0, NULL, 0, NULL, NULL },
    { "models/nibble-tiny", "fp8_ds_mla", NULL, 0, NULL, 0, NULL, NULL },
    { "models/nibble-tiny", "f32", NULL, 1, "0", 1, NULL, "int8" },
    { "tests/parity/v3", "nvfp4", "fp8", 0, "0", 1, NULL, NULL }, /* 40 + 16: padding */
    { "tests/parity/v3_fp8", "if4", NULL, 3, NULL, 0, "token", "int8" },
    { "tests/parity/v3_f32", "auto", NULL, 0, NULL, 0, NULL, NULL },
    { "tests/parity/glm4_moe_lite", "mxfp4", NULL, 0, NULL, 0, NULL, NULL },
    { "tests/parity/llama_bias", "int4", NULL, 5, "1", 1, NULL, NULL },
    { "tests/parity/qwen3", "nvfp4", NULL, 0, NULL, 0, NULL, "int8" },
    { "tests/parity/kimi_linear", "nvfp4", NULL, 2, NULL, 0, NULL,
      "int8" }, /* states and snapshots */
    { "deepseek-v3", "nvfp4", NULL, 4, "0,60", 2, "token", NULL },
    { "deepseek-v3", "fp8_ds_mla", NULL, 1, NULL, 0, NULL, "int8" },
    { "deepseek-v2", "int4", "bf16", 0, NULL, 0, NULL, NULL },
    { "deepseek-v2-lite", "fp8", NULL, 0, NULL, 0, NULL, NULL },
    { "kimi-k2", "mxfp4", NULL, 0, NULL, 0, NULL, NULL },
    { "glm-4.7-flash", "nvfp4", "fp8", 0, NULL, 0, NULL, NULL },
    { "minicpm3-4b", "if4", "bf16", 0, "61", 1, "token", NULL },
    { "youtu-llm-2b", "mxfp4", NULL, 0, NULL, 0, NULL, NULL },
    { "qwen3-0.6b", "fp8", NULL, 0, NULL, 0, NULL, NULL },
    { "qwen2.5-14b", "nvfp4", NULL, 0, NULL, 0, NULL, NULL },
    { "llama-3.2-3b", "bf16", NULL, 0, NULL, 0, NULL, NULL },
    { "llama-3.2-1b", "int4", NULL, 2, "0,15", 2, NULL, NULL },
};

typedef struct expected {
    size_t block, plane_block, n_plane;
    uint64_t sink_block;
} expected;

/* From sizes alone: layers that are left out have the model's own record. */
static expected expect(const engine_case *c)
{
    const nb_record_size *own = nb_sizes_find(&sizes, nb_kv_type_name(sizes.own));
    nb_rope_fmt rope = nb_rope_fmt_default(sizes.is_mla);
    if (c->rope) assert_int_equal(nb_rope_fmt_parse(c->rope, &rope), NB_OK);
    const nb_record_size *r =
        strcmp(c->record, "auto") != 0 ? nb_sizes_find_rope(&sizes, c->record, rope) : own;
    assert_true(own && r);
    const size_t n = sizes.n_cached_layer - c->n_skip;
    expected x = { .block = n * r->page_bytes + c->n_skip * own->page_bytes,
                   .sink_block = c->n_sink * sizes.sink_bytes_block };
    if (!c->thrift) return x;
    x.plane_block = r->plane_bytes / sizes.n_layer * n;
    x.n_plane = n;
    return x;
}

static uint64_t pool_bytes(const nb_engine *e, const expected *x)
{
    const double n = e->pages.thrift.pool * (double)(e->pages.n_block * NB_PAGE_TOK) * (double)x->n_plane;
    return nb_thrift_pool_bytes((size_t)n, x->plane_block / x->n_plane / NB_PAGE_TOK);
}

static void check_engine(const engine_case *c, const nb_engine *e)
{
    const expected x = expect(c);
    const nb_sizes_wtype t = c->weights ? NB_SIZES_INT8 : NB_SIZES_CHECKPOINT;
    nb_engine_info i;
    nb_engine_get_info(e, &i);
    equal(c->model, "block", i.block_bytes, x.block);
    equal(c->model, "pool", i.kv_pool_bytes, i.n_block * x.block);
    equal(c->model, "pool as allocated", e->pages.kv_bytes, i.n_block * x.block);
    equal(c->model, "end of a block", e->pages.layer_off[sizes.n_layer], x.block);
    assert_true(i.kv_bytes_per_tok == (double)x.block / NB_PAGE_TOK);
    equal(c->model, "state", i.state_bytes, sizes.state_bytes);
    equal(c->model, "open pages", i.tail_bytes,
          i.max_num_seqs * sizes.tail_bytes_seq + i.n_snapshot * sizes.state_bytes);
    equal(c->model, "sinks", i.sink_bytes, i.n_block * x.sink_block);
    equal(c->model, "planes", e->pages.plane_block, x.plane_block);
    equal(c->model, "beside", i.residual_bytes,
          c->thrift ? i.n_block * x.plane_block + pool_bytes(e, &x) : 0);
    equal(c->model, "weights", i.weight_bytes, sizes.weight[t].bytes);
    equal(c->model, "parameters", i.n_param, sizes.n_param);
    /* the pool is there, to its last byte */
    unsigned char last = 1;
    e->rank[0].device.kind->read((nb_device *)&e->rank[0].device, &last, e->rank[0].kv + e->pages.kv_bytes - 1, 1);
    assert_int_equal(last, 0);
}

static void check_plan(const engine_case *c, const nb_engine_options *o, size_t n_seq)
{
    const expected x = expect(c);
    nb_memory_plan p;
    nb_error err = { 0 };
    if (nb_engine_plan_memory(o, &p, &err) != NB_OK) fail_msg("%s: %s", c->model, err.msg);
    equal(c->model, "plan: block", p.block_bytes, x.block);
    equal(c->model, "plan: open pages", p.tail_bytes,
          n_seq * sizes.tail_bytes_seq + 8 * sizes.state_bytes); /* snapshots: 8 at least */
    equal(c->model, "plan: weights", p.weight_bytes,
          sizes.weight[c->weights ? NB_SIZES_INT8 : NB_SIZES_CHECKPOINT].bytes);
    if (!c->thrift) equal(c->model, "plan: beside", p.residual_block_bytes, x.sink_block);
}

static void check_describe(const char *model)
{
    char *text = NULL;
    nb_error err = { 0 };
    if (nb_model_describe(model, &text, &err) != NB_OK) fail_msg("%s: %s", model, err.msg);
    json_t *j = json_loads(text, 0, NULL), *r;
    size_t i, n = 0;
    assert_non_null(j);
    equal(model, "info: weights", (uint64_t)json_integer_value(json_object_get(j, "weight_bytes")),
          sizes.weight_bytes);
    equal(model, "info: INT8",
          (uint64_t)json_integer_value(json_object_get(j, "weight_bytes_int8")),
          sizes.weight_bytes_int8);
    json_array_foreach(json_object_get(j, "records"), i, r)
    {
        const nb_record_size *s =
            nb_sizes_find(&sizes, json_string_value(json_object_get(r, "dtype")));
        assert_non_null(s);
        equal(model, "info: page", (uint64_t)json_integer_value(json_object_get(r, "page_bytes")),
              s->page_bytes);
        n++;
    }
    for (i = 0; i < sizes.n_record; i++) /* one row for each type here, with the default rope key */
        n -= nb_sizes_find(&sizes, sizes.record[i].name) == &sizes.record[i];
    assert_int_equal(n, 0);
    json_decref(j);
    nb_free(text);
}

/* The bundled config with small matrices: what a cache is does not depend on them. */
static const char *small_config(const tmp_dir *dir, const char *name, char path[300])
{
    static const struct {
        const char *key;
        int value;
    } small[] = { { "vocab_size", 256 },       { "hidden_size", 128 },
                  { "intermediate_size", 64 }, { "moe_intermediate_size", 32 },
                  { "ffn_hidden_size", 64 },   { "expert_ffn_hidden_size", 32 },
                  { "zero_expert_num", 8 },
                  { "n_routed_experts", 16 },  { "q_lora_rank", 48 },
                  { "qk_nope_head_dim", 16 },  { "v_head_dim", 16 } };
    nb_bundled_config b;
    nb_error err = { 0 };
    assert_int_equal(nb_capacity_config(name, &b, &err), NB_OK);
    json_t *j = json_loadb(b.json.p, b.json.n_bytes, 0, NULL);
    assert_non_null(j);
    if (!strcmp(name, "qwen2.5-14b")) /* else the hidden size gives it */
        assert_int_equal(json_object_set_new(j, "head_dim", json_integer(128)), 0);
    if (!strcmp(name, "minicpm3-4b"))
        assert_int_equal(json_object_set_new(j, "v_head_dim", json_integer(16)), 0);
    /* heads share the latent; of the others each has its own key and value */
    if (json_object_get(j, "kv_lora_rank"))
        assert_int_equal(json_object_set_new(j, "num_attention_heads", json_integer(4)), 0);
    for (size_t i = 0; i < NB_COUNT(small); i++)
        if (json_is_integer(json_object_get(j, small[i].key)))
            assert_int_equal(json_object_set_new(j, small[i].key, json_integer(small[i].value)), 0);
    char *text = json_dumps(j, 0);
    assert_non_null(text);
    tmp_write(dir, "config.json", nb_str_c(text));
    free(text);
    json_decref(j);
    (void)snprintf(path, 300, "%s/config.json", dir->path);
    return path;
}

static void test_engines(void **state)
{
    (void)state;
    tmp_dir dir;
    tmp_open(&dir);
    for (size_t k = 0; k < NB_COUNT(engine_cases); k++) {
        const engine_case *c = &engine_cases[k];
        const bool files = strchr(c->model, '/') != NULL;
        char path[300];
        const nb_engine_options o = { .model = files ? in_source(c->model)
                                                     : small_config(&dir, c->model, path),
                                      .load_format = files ? NULL : "dummy",
                                      .kv_cache_dtype = c->record,
                                      .kv_rope_dtype = c->rope,
                                      .kv_sinks = c->n_sink,
                                      .kv_skip_layers = c->skip,
                                      .kv_thrift = c->thrift,
                                      .kv_thrift_pool = 0.25,
                                      .weight_dtype = c->weights,
                                      .max_model_len = 128 + 64 * (k % 5),
                                      .max_num_seqs = 1 + k % 3,
                                      .prefill_chunk = 16,
                                      .no_text = true,
                                      .device = "cpu",
                                      .n_thread = 1 };
        read_and_size(o.model);
        check_describe(o.model);
        check_plan(c, &o, o.max_num_seqs);
        nb_engine *e = make_engine(&o);
        assert_int_equal(e->pages.n_block, 2 + k % 5);
        check_engine(c, e);
        nb_engine_destroy(e);
    }
    tmp_close(&dir);
}

/* What each of n ranks allocates is what the planner gives a device of such a layout, and the plan of the memory has
 * all of them together. */
static void check_ranks(const nb_engine_options *o)
{
    const size_t tp = o->tensor_parallel_size, dp = o->data_parallel_size, n = tp * dp;
    nb_memory_plan p;
    nb_error err = { 0 };
    nb_engine_info i;
    const nb_record_size *r = nb_sizes_find(&sizes, "nvfp4");
    nb_machine m = { .memory_bytes = 1e12, .cpu = true };
    const size_t n_part = o->decode_context_parallel_size > 1 ? tp : 1, unit = n_part > 1 ? NB_KV_UNIT_BLOCKS : 1;
    const nb_layout l = { .n_gpu = n, .tp = tp, .dp = dp, .ep = sizes.n_expert ? n : 1, .dcp = n_part, .utilization = 1 };
    const nb_demand d = {
        .config = &conf, .sizes = &sizes, .wtype = NB_SIZES_CHECKPOINT, .machine = &m
    };
    const double one = sizes.n_expert ? (double)sizes.weight[d.wtype].expert / (double)sizes.n_expert : 0;
    nb_place place;
    nb_layout_place(&d, &l, &place);
    assert_true(place.read_share * (double)n_part == 1);
    if (nb_engine_plan_memory(o, &p, &err) != NB_OK) fail_msg("%s", err.msg);
    nb_engine *e = make_engine(o);
    nb_engine_get_info(e, &i);
    equal(o->model, "ranks", i.n_rank, n);
    equal(o->model, "caches", i.n_data_rank, dp);
    assert_true(place.expert == one * (double)e->rank[0].rank->part.n_expert); /* none has more */
    equal(o->model, "block of a rank", i.block_bytes, r->block_bytes);
    equal(o->model, "pool of a rank", e->pages.kv_bytes, i.n_block / n_part * r->block_bytes);
    equal(o->model, "tokens of all", i.kv_pool_tok, i.n_block * NB_PAGE_TOK);
    place.cache = (double)e->pages.kv_bytes; /* so many bytes on each hold these blocks, and no more */
    assert_true(nb_place_blocks(&place, r) == (double)i.n_block);
    place.cache -= 1;
    assert_true(nb_place_blocks(&place, r) < (double)i.n_block);
    equal(o->model, "open pages of all", i.tail_bytes, n * i.max_num_seqs * sizes.tail_bytes_seq);
    equal(o->model, "sinks of all", i.sink_bytes,
          n * i.n_block * o->kv_sinks * sizes.sink_bytes_block);
    equal(o->model, "plan: block", p.block_bytes, unit * r->block_bytes);
    equal(o->model, "plan: tokens of a block", p.block_tok, unit * n_part * NB_PAGE_TOK);
    equal(o->model, "plan: beside a block", p.residual_block_bytes,
          (n - 1) * unit * r->block_bytes + n * o->kv_sinks * sizes.sink_bytes_block);
    equal(o->model, "plan: open pages", p.tail_bytes, i.tail_bytes);
    equal(o->model, "plan: workspace", p.workspace_bytes, i.workspace_bytes);
    for (size_t k = 0; k < n; k++) { /* each is there, to its last byte */
        assert_int_equal(e->rank[k].kv[e->pages.kv_bytes - 1], 0);
        assert_int_equal(((unsigned char *)e->rank[k].tails)[i.tail_bytes / n - 1], 0);
    }
    nb_engine_destroy(e);
}

static void test_ranks(void **state)
{
    (void)state;
    static const char *const models[] = { "deepseek-v3", "glm-4.7-flash", "minicpm3-4b",
                                          "longcat-flash", "llama-3.1-8b", "qwen2.5-7b" };
    tmp_dir dir;
    char path[300];
    tmp_open(&dir);
    for (size_t k = 0; k < NB_COUNT(models); k++)
        for (size_t n = 1; n <= 4; n++) {
            const nb_engine_options o = { .model = small_config(&dir, models[k], path),
                                          .load_format = "dummy",
                                          .kv_cache_dtype = "nvfp4",
                                          .kv_sinks = 3,
                                          .max_model_len = 256,
                                          .max_num_seqs = 2,
                                          .prefill_chunk = 16,
                                          .no_text = true,
                                          .device = "cpu",
                                          .tensor_parallel_size = n,
                                          .data_parallel_size = 1,
                                          .n_thread = 1 };
            read_and_size(o.model);
            nb_engine_options data = o, both;
            data.tensor_parallel_size = 1;
            data.data_parallel_size = n;
            data.enable_expert_parallel = true;
            both = data;
            both.tensor_parallel_size = 2;
            const bool later = !strcmp(models[k], "longcat-flash"); /* its experts are added a layer later */
            if (!later) check_ranks(&data);
            if (!later && n == 2) check_ranks(&both);
            if (nb_rank_can_divide(&conf, n, NULL) != NB_OK) continue; /* groups of heads */
            check_ranks(&o);
            nb_engine_options context = o;
            context.decode_context_parallel_size = n;
            context.kv_sinks = 0;
            if (n > 1 && nb_rank_can_divide_context(&conf, NULL) == NB_OK) check_ranks(&context);
        }
    tmp_close(&dir);
}

/* On a GPU (emulated): the same blocks and open pages; weights in pieces of 32 MiB, of which the last
 * two and what a tensor left free in one are not used. */
static void test_gpu(void **state)
{
    (void)state;
    static const char *const models[] = { "deepseek-v3", "glm-4.7-flash", "llama-3.2-3b" };
    const char *library = getenv("NB_CUDA_EMU_LIBRARY");
    tmp_dir dir;
    char path[300];
    if (!library || !nb_path_is_file(library)) {
        print_message("skipped: no emulation of CUDA\n");
        skip();
    }
    tmp_open(&dir);
    for (size_t k = 0; k < NB_COUNT(models); k++) {
        const nb_engine_options o = { .model = small_config(&dir, models[k], path),
                                      .load_format = "dummy",
                                      .kv_cache_dtype = "nvfp4",
                                      .max_model_len = 128,
                                      .max_num_seqs = 2,
                                      .max_num_batched_tokens = 64,
                                      .no_text = true,
                                      .device = "cuda",
                                      .cuda_library = library,
                                      .n_thread = 1 };
        nb_engine *e = NULL;
        nb_error err = { 0 };
        nb_engine_info i;
        read_and_size(path);
        if (nb_engine_create(&o, &e, &err) != NB_OK) fail_msg("%s: %s", models[k], err.msg);
        nb_engine_get_info(e, &i);
        equal(models[k], "block", i.block_bytes, nb_sizes_find(&sizes, "nvfp4")->block_bytes);
        equal(models[k], "pool", i.kv_pool_bytes, i.n_block * i.block_bytes);
        equal(models[k], "open pages", i.tail_bytes, 2 * sizes.tail_bytes_seq);
        equal(models[k], "weights", i.weight_bytes, sizes.weight_bytes);
        const uint64_t least = sizes.weight_bytes + sizes.gpu_absorbed_bytes;
        if (i.gpu_weight_bytes < least || i.gpu_weight_bytes > least / 3 * 4 + (65 << 20))
            fail_msg("%s: %llu bytes of weights on the GPU, expected %llu and what pieces add",
                     models[k], (unsigned long long)i.gpu_weight_bytes, (unsigned long long)least);
        nb_engine_destroy(e);
    }
    tmp_close(&dir);
}

/* The small config with few layers and a large vocabulary, so that an embedding counts. */
static void widen(const char *path)
{
    json_t *j = json_load_file(path, 0, NULL);
    assert_non_null(j);
    assert_int_equal(json_object_set_new(j, "vocab_size", json_integer(1 << 15)), 0);
    assert_int_equal(json_object_set_new(j, "num_hidden_layers", json_integer(4)), 0);
    assert_int_equal(json_dump_file(j, path, 0), 0);
    json_decref(j);
}

/* Weights of n (emulated) GPUs are those of the plan's layout; norms are floats there. */
static void check_gpu_ranks(const nb_engine_options *o, const char *model, size_t tp, size_t dp)
{
    const size_t n = tp * dp;
    nb_machine gpu = { .memory_bytes = 1e12 };
    const nb_layout l = { .n_gpu = n, .tp = tp, .dp = dp, .ep = n, .utilization = 1 };
    const nb_demand d = { .config = &conf, .sizes = &sizes, .wtype = NB_SIZES_CHECKPOINT, .machine = &gpu };
    nb_engine *e = NULL;
    nb_error err = { 0 };
    nb_engine_info i;
    nb_place place;
    double used = 0;
    nb_layout_place(&d, &l, &place);
    if (nb_engine_create(o, &e, &err) != NB_OK) fail_msg("%s: %s", model, err.msg);
    for (size_t k = 0; k < n; k++) {
        used += (double)nb_gpu_of(e->rank[k].rank)->w.used_bytes;
        assert_true(nb_gpu_of(e->rank[k].rank)->w.used_bytes <= nb_rank_weight_bytes(e->rank[k].rank));
    }
    if (fabs(used / (double)n - place.weights) > 0.01 * place.weights)
        fail_msg("%s, %zu x %zu GPUs: %.0f bytes of weights on each, the plan has %.0f", model, tp, dp,
                 used / (double)n, place.weights);
    nb_engine_get_info(e, &i);
    equal(model, "block", i.block_bytes, nb_sizes_find(&sizes, "nvfp4")->block_bytes);
    equal(model, "pool", e->pages.kv_bytes, e->pages.n_block * i.block_bytes);
    nb_engine_destroy(e);
}

static void test_gpu_ranks(void **state)
{
    (void)state;
    static const char *const models[] = { "deepseek-v2-lite", "glm-4.7-flash", "llama-3.2-3b" };
    const char *library = getenv("NB_CUDA_EMU_LIBRARY");
    tmp_dir dir;
    char path[300];
    if (!library || !nb_path_is_file(library)) {
        print_message("skipped: no emulation of CUDA\n");
        skip();
    }
    tmp_open(&dir);
    for (size_t m = 0; m < NB_COUNT(models); m++)
        for (size_t n = 1; n <= 4; n *= 2) {
            const nb_engine_options o = { .model = small_config(&dir, models[m], path),
                                          .load_format = "dummy",
                                          .kv_cache_dtype = "nvfp4",
                                          .max_model_len = 128,
                                          .max_num_seqs = 2,
                                          .max_num_batched_tokens = 64,
                                          .no_text = true,
                                          .device = "cuda",
                                          .cuda_library = library,
                                          .tensor_parallel_size = n,
                                          .n_thread = 1 };
            nb_engine_options data = o;
            data.tensor_parallel_size = 1;
            data.data_parallel_size = n;
            data.enable_expert_parallel = true;
            widen(path);
            read_and_size(path);
            check_gpu_ranks(&o, models[m], n, 1);
            if (n > 1) check_gpu_ranks(&data, models[m], 1, n);
        }
    tmp_close(&dir);
}

/* The published shapes themselves: what their engines would allocate. */
static void test_plans(void **state)
{
    (void)state;
    static const engine_case cases[] = {
        { "deepseek-v3", "nvfp4", NULL, 0, NULL, 0, NULL, NULL },
        { "deepseek-v2-lite", "if4", "bf16", 4, "0", 1, NULL, "int8" },
        { "glm-4.7-flash", "fp8", "fp8", 0, NULL, 0, NULL, NULL },
        { "llama-3.1-70b", "int4", NULL, 0, "0-3", 4, NULL, NULL },
        { "qwen3-8b", "auto", NULL, 0, NULL, 0, NULL, "int8" },
    };
    for (size_t k = 0; k < NB_COUNT(cases); k++) {
        const engine_case *c = &cases[k];
        char path[64];
        (void)snprintf(path, sizeof path, "models/configs/%s.json", c->model);
        const nb_engine_options o = { .model = in_source(path),
                                      .load_format = "dummy",
                                      .kv_cache_dtype = c->record,
                                      .kv_rope_dtype = c->rope,
                                      .kv_sinks = c->n_sink,
                                      .kv_skip_layers = c->skip,
                                      .weight_dtype = c->weights,
                                      .max_num_seqs = 2,
                                      .prefill_chunk = 16,
                                      .n_thread = 1 };
        read_and_size(c->model);
        check_describe(o.model);
        check_plan(c, &o, 2);
    }
}

/* ---- what is refused ---- */

static void test_too_large(void **state)
{
    (void)state;
    static const char text[] =
        "{\"model_type\":\"deepseek_v3\",\"vocab_size\":512,\"hidden_size\":1048576,"
        "\"intermediate_size\":1048576,\"moe_intermediate_size\":1048576,\"num_hidden_layers\":1024,"
        "\"num_attention_heads\":65536,\"n_routed_experts\":512,\"num_experts_per_tok\":8,"
        "\"n_group\":1,\"topk_group\":1,\"first_k_dense_replace\":1,\"qk_nope_head_dim\":65536,"
        "\"v_head_dim\":65536,\"kv_lora_rank\":65536,\"torch_dtype\":\"float32\"}";
    nb_doc *doc = NULL;
    nb_error err = { 0 };
    assert_int_equal(nb_doc_parse(nb_str_c(text), "config.json", &doc, &err), NB_OK);
    if (nb_model_config_read(doc, &conf, &err) != NB_OK) fail_msg("%s", err.msg);
    nb_doc_destroy(doc);
    memset(&sizes, 7, sizeof sizes);
    assert_int_equal(nb_sizes_of(&conf, &sizes, &err), NB_ERR_LIMIT);
    assert_non_null(strstr(err.msg, "too large"));
    assert_int_equal(*(unsigned char *)&sizes, 7); /* not written */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published),  cmocka_unit_test(test_v3),
        cmocka_unit_test(test_walk),       cmocka_unit_test(test_int4_experts),
        cmocka_unit_test(test_walk_small),
        cmocka_unit_test(test_engines),    cmocka_unit_test(test_gpu),
        cmocka_unit_test(test_gpu_ranks),
        cmocka_unit_test(test_ranks),      cmocka_unit_test(test_plans),
        cmocka_unit_test(test_too_large), cmocka_unit_test(test_indexer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
