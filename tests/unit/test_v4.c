/* test_v4.c - DeepSeek V4: geometry and sizes of the published configurations, spellings, refusals, names of tensors,
 * pages with fewer rows than tokens, and that chunks, threads and other requests change no bit. */
#include "engine_testing.h"

#include <math.h>

#include "capacity/configs.h"
#include "capacity/sizes.h"
#include "load/source.h"
#include "model/attention.h"
#include "num/bf16.h"
#include "num/record.h"
#include "num/traits.h"
#include "os/file.h"

static nb_model_config conf; /* large */

static size_t layers_of(size_t ratio)
{
    size_t n = 0;
    for (size_t i = 0; i < conf.n_layer; i++) n += nb_layer_attn(&conf, i)->ratio == ratio;
    return n;
}

/* ---- published figures ---- */

static void test_published(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t swa, csa, hca, hidden, heads, top;
        double param, active; /* 1e9 */
    } want[] = {
        { "deepseek-v4-flash", 2, 21, 20, 4096, 64, 512, 284.3, 13.8 },
        { "deepseek-v4-pro", 0, 30, 31, 7168, 128, 1024, 1573, 49.8 },
    };
    for (size_t i = 0; i < NB_COUNT(want); i++) {
        nb_error err = { 0 };
        static nb_sizes s;
        if (nb_capacity_read_config(want[i].name, &conf, NULL, &err) != NB_OK)
            fail_msg("%s", err.msg);
        assert_int_equal(layers_of(0), want[i].swa);
        assert_int_equal(layers_of(4), want[i].csa);
        assert_int_equal(layers_of(128), want[i].hca);
        assert_int_equal(conf.hidden, want[i].hidden);
        assert_int_equal(conf.n_hash, 3);
        for (size_t k = 0; k < conf.n_layer; k++) {
            const nb_attn_config *a = nb_layer_attn(&conf, k);
            assert_int_equal(a->n_head, want[i].heads);
            assert_int_equal(a->index_topk, a->ratio == 4 ? want[i].top : 0);
            assert_true(a->rope.factor == 1 && a->rope.dim == 64);
            /* the slowest pair: base 10,000, or 160,000 and sixteen times slower by YaRN */
            const double theta = a->ratio ? 160000 : 10000;
            const double f = pow(theta, -62.0 / 64) / (a->ratio ? 16 : 1);
            assert_true(fabs((double)a->rope.inv_freq[31] - f) < 1e-6 * f);
        }
        if (nb_sizes_of(&conf, &s, &err) != NB_OK) fail_msg("%s", err.msg);
        if (fabs((double)s.n_param / 1e9 - want[i].param) > 0.0006 * want[i].param)
            fail_msg("%s: %.3f G parameters", want[i].name, (double)s.n_param / 1e9);
        if (fabs((double)s.n_param_active / 1e9 - want[i].active) > 0.05 * want[i].active)
            fail_msg("%s: %.3f G active", want[i].name, (double)s.n_param_active / 1e9);
        /* 512 + 128 values for 4 tokens, 512 for 128; a page of 64 tokens has a place for one of the latter */
        const nb_record_size *r = nb_sizes_find(&s, "f32");
        assert_non_null(r);
        const size_t csa = want[i].csa * 16 * 640 * 4, hca = want[i].hca * 512 * 4;
        assert_int_equal(r->block_bytes, csa + hca);
        /* beside it, per request: the open pages' rows; windows of 128 rows and the compressors' sums */
        const size_t window = conf.n_layer * 128 * 512,
                     sums = want[i].csa * (8 * 2 * 1024 + 8 * 2 * 256) + want[i].hca * 3 * 512;
        assert_int_equal(s.state_bytes, 4 * (window + sums));
        assert_int_equal(s.tail_bytes_seq,
                         s.state_bytes + 4 * (want[i].csa * 16 * 640 + want[i].hca * 512));
        assert_string_equal(s.attention, "csa");
        /* weights in BF16: two bytes more for what is published in F32, and eight for each expert of a token */
        const uint64_t n = conf.n_layer, h = conf.hidden;
        const uint64_t f32 = n * 2 * (24 * 4 * h + 24 + 3) + (4 * 4 * h + 4 + 1) +
                             n * want[i].heads + want[i].csa * (4 * 1024 + 4 * 256) +
                             want[i].hca * 128 * 512 + (n - 3) * conf.n_expert,
                       hash = (uint64_t)3 * 129280 * 6 * 8;
        assert_int_equal(s.weight_bytes_bf16, 2 * s.n_param + 2 * f32 + hash);
        /* experts: a byte for two values, and one for 32 */
        const uint64_t experts = n * conf.n_expert * 3 * h * conf.moe_inter;
        assert_int_equal(s.expert_bytes, experts * 17 / 32);
        /* FP8: a byte, and one for a block of 128 x 128; all sides are multiples of that */
        const nb_attn_config *a = nb_layer_attn(&conf, 2);
        const uint64_t q = a->q_lora, w = (uint64_t)a->n_head * 512, g = a->o_group * a->o_lora,
                       fp8 = n * (q * h + w * q + 512 * h + g * w / a->o_group + h * g +
                                  3 * h * conf.moe_inter) +
                             want[i].csa * 64 * 128 * q;
        assert_int_equal(s.weight_bytes, experts * 17 / 32 + fp8 + fp8 / 16384 +
                                             2 * (s.n_param - experts - fp8) + 2 * f32 + hash);
    }
}

/* ---- config.json ---- */

static nb_status read_text(const char *text, nb_error *err)
{
    nb_doc *doc = NULL;
    *err = (nb_error){ 0 };
    nb_status st = nb_doc_parse(nb_str_c(text), "config.json", &doc, err);
    if (st == NB_OK) st = nb_model_config_read(doc, &conf, err);
    nb_doc_destroy(doc);
    return st;
}

#define HEAD                                                                                                   \
    "{\"model_type\": \"deepseek_v4\", \"hidden_size\": 64, \"num_hidden_layers\": 4, \"vocab_size\": 32,"     \
    "\"num_attention_heads\": 4, \"head_dim\": 32, \"q_lora_rank\": 32, \"o_groups\": 2, \"o_lora_rank\": 32," \
    "\"index_n_heads\": 4, \"index_head_dim\": 32, \"index_topk\": 8, \"n_routed_experts\": 8,"                \
    "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 32"

static void test_spellings(void **state)
{
    (void)state;
    nb_error err;
    static const char published[] = HEAD
        ", \"qk_rope_head_dim\": 8, \"num_hash_layers\": 1, \"compress_ratios\": [0, 4, 128, 4, 0],"
        "\"rope_theta\": 10000, \"compress_rope_theta\": 160000, \"rope_scaling\": {\"type\": \"yarn\","
        "\"factor\": 16, \"original_max_position_embeddings\": 256, \"beta_fast\": 32, \"beta_slow\": 1}}";
    static const char own[] = HEAD
        ", \"partial_rotary_factor\": 0.25, \"mlp_layer_types\": [\"hash_moe\", \"moe\", \"moe\", \"moe\"],"
        "\"layer_types\": [\"sliding_attention\", \"compressed_sparse_attention\","
        "\"heavily_compressed_attention\", \"compressed_sparse_attention\"], \"rope_parameters\": {\"main\":"
        "{\"rope_type\": \"default\", \"rope_theta\": 10000, \"partial_rotary_factor\": 0.25},"
        "\"compress\": {\"rope_type\": \"yarn\", \"rope_theta\": 160000, \"factor\": 16,"
        "\"original_max_position_embeddings\": 256, \"beta_fast\": 32, \"beta_slow\": 1,"
        "\"attention_factor\": 1.0}}}";
    static nb_model_config first;
    if (read_text(published, &err) != NB_OK) fail_msg("%s", err.msg);
    first = conf;
    if (read_text(own, &err) != NB_OK) fail_msg("%s", err.msg);
    assert_int_equal(conf.n_attn, 3);
    assert_int_equal(conf.n_hash, 1);
    for (size_t i = 0; i < 4; i++) {
        const nb_attn_config *a = nb_layer_attn(&conf, i), *b = nb_layer_attn(&first, i);
        assert_int_equal(a->ratio, b->ratio);
        assert_memory_equal(a->rope.inv_freq, b->rope.inv_freq, 4 * sizeof(float));
    }
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *more, *word;
    } cases[] = {
        { ", \"qk_rope_head_dim\": 8, \"compress_ratios\": [0, 4, 8, 4]}", "compress_ratios" },
        { ", \"qk_rope_head_dim\": 8, \"compress_ratios\": [0, 4]}", "compress_ratios has 2" },
        { ", \"qk_rope_head_dim\": 8, \"compress_ratios\": [0, 0, 0, 0]}", "a window alone" },
        { ", \"layer_types\": [\"sliding_attention\", \"full_attention\", \"sliding_attention\","
          "\"sliding_attention\"]}",
          "layer_types: the entry of layer 1" },
        { ", \"compress_rates\": {\"compressed_sparse_attention\": 8}}",
          "compress_rates.compressed_sparse_attention" },
        { ", \"scoring_func\": \"sigmoid\"}", "scoring_func" },
        { ", \"expert_dtype\": \"int4\"}", "expert_dtype" },
        { ", \"qk_rope_head_dim\": 32}", "qk_rope_head_dim" },
        { ", \"num_key_value_heads\": 2}", "num_key_value_heads" },
        { ", \"hc_mult\": 17}", "hc_mult" },
        { ", \"mlp_layer_types\": [\"moe\", \"hash_moe\"]}", "mlp_layer_types" },
    };
    for (size_t i = 0; i < NB_COUNT(cases); i++) {
        char text[2048];
        nb_error err;
        (void)snprintf(text, sizeof text, "%s%s", HEAD, cases[i].more);
        if (read_text(text, &err) == NB_OK) fail_msg("%s: was read", cases[i].more);
        if (!strstr(err.msg, cases[i].word)) fail_msg("%s: %s", cases[i].more, err.msg);
    }
}

/* ---- names ---- */

static void test_names(void **state)
{
    (void)state;
    static const struct {
        const char *ours, *theirs; /* NULL: there is none */
    } rows[] = {
        { "model.embed_tokens.weight", "embed.weight" },
        { "lm_head.weight", "head.weight" },
        { "model.hc_head.hc_fn", "hc_head_fn" },
        { "model.layers.12.attn_hc.base", "layers.12.hc_attn_base" },
        { "model.layers.3.self_attn.q_a_proj.weight", "layers.3.attn.wq_a.weight" },
        { "model.layers.3.self_attn.q_a_proj.weight_scale_inv", "layers.3.attn.wq_a.scale" },
        { "model.layers.3.self_attn.kv_proj.weight", "layers.3.attn.wkv.weight" },
        { "model.layers.3.self_attn.compressor.kv_proj.weight",
          "layers.3.attn.compressor.wkv.weight" },
        { "model.layers.3.self_attn.compressor.indexer.kv_proj.weight",
          "layers.3.attn.indexer.compressor.wkv.weight" },
        { "model.layers.3.self_attn.compressor.indexer.position_bias",
          "layers.3.attn.indexer.compressor.ape" },
        { "model.layers.3.self_attn.sinks", "layers.3.attn.attn_sink" },
        { "model.layers.3.mlp.experts.17.up_proj.weight_scale_inv",
          "layers.3.ffn.experts.17.w3.scale" },
        { "model.layers.3.mlp.shared_experts.down_proj.weight",
          "layers.3.ffn.shared_experts.w2.weight" },
        { "model.layers.3.mlp.gate.e_score_correction_bias", "layers.3.ffn.gate.bias" },
        { "model.layers.3.mlp.gate.tid2eid", "layers.3.ffn.gate.tid2eid" },
        { "model.layers.x.mlp.gate.weight", NULL },
        { "model.layers.3.mlp.experts.17.side_proj.weight", NULL },
        { "model.layers.99999999999999999999999999.attn_hc.fn", NULL },
        { "vision_tower.weight", NULL },
    };
    for (size_t i = 0; i < NB_COUNT(rows); i++) {
        char out[256], tiny[8];
        const bool found = nb_names_v4(rows[i].ours, out, sizeof out);
        if (found != (rows[i].theirs != NULL))
            fail_msg("%s: %s", rows[i].ours, found ? out : "none");
        if (found) assert_string_equal(out, rows[i].theirs);
        assert_false(nb_names_v4(rows[i].ours, tiny, sizeof tiny));
    }
}

/* ---- pages with fewer rows ---- */

/* A row's bytes do not depend on how many rows a page has: it is read as the same row of a page of 64. */
static void test_rows(void **state)
{
    (void)state;
    enum { LATENT = 96, ROPE = 32, INDEX = 32, VALUES = LATENT + ROPE + INDEX };
    static uint16_t x[NB_PAGE_TOK * VALUES];
    static float a[VALUES], b[VALUES];
    static const size_t ratios[] = { 4, 128 };
    for (size_t i = 0; i < NB_COUNT(x); i++)
        x[i] = nb_bf16_from_f32((float)nb_rng_u64(7, i) * 0x1p-63f - 1);
    for (int t = 0; t < NB_KV_TYPE_COUNT; t++)
        for (size_t k = 0; k < NB_COUNT(ratios); k++) {
            nb_record few, all;
            nb_error err;
            nb_record_opts o = { .type = (nb_kv_type)t,
                                 .mode = nb_kv_mode_default((nb_kv_type)t),
                                 .rope = NB_ROPE_INT8,
                                 .n_seg = 3,
                                 .seg = { { .role = NB_ROLE_LATENT, .dim = LATENT, .n_vec = 1 },
                                          { .role = NB_ROLE_ROPE, .dim = ROPE, .n_vec = 1 },
                                          { .role = NB_ROLE_INDEX, .dim = INDEX, .n_vec = 1 } } };
            if (nb_record_init(&all, &o, &err) != NB_OK) continue; /* fp8_ds_mla */
            o.row_tok = ratios[k];
            if (nb_record_init(&few, &o, &err) != NB_OK) {
                assert_true(nb_kv_main((nb_kv_type)t)->group_tok); /* int4: rows share scales */
                continue;
            }
            const size_t n = ratios[k] == 4 ? 16 : 1;
            assert_int_equal(few.n_row, n);
            unsigned char *p = calloc(1, few.page_bytes), *q = calloc(1, all.page_bytes);
            assert_true(p && q && few.page_bytes < all.page_bytes);
            if (t == NB_KV_F32) {
                static float f[NB_PAGE_TOK * VALUES];
                for (size_t i = 0; i < NB_COUNT(x); i++) f[i] = nb_bf16_to_f32(x[i]);
                nb_record_store_f32(&few, p, f, VALUES);
                nb_record_store_f32(&all, q, f, VALUES);
            } else {
                assert_int_equal(nb_record_encode_page(&few, p, x, VALUES), NB_OK);
                assert_int_equal(nb_record_encode_page(&all, q, x, VALUES), NB_OK);
            }
            if (nb_record_check_page(&few, p, &err) != NB_OK) fail_msg("%s", err.msg);
            for (size_t r = 0; r < n; r++)
                for (size_t s = 0; s < 3; s++) {
                    nb_record_decode(&few, p, s, r, 1, a, VALUES);
                    nb_record_decode(&all, q, s, r, 1, b, VALUES);
                    assert_memory_equal(a, b, few.seg[s].dim * sizeof *a);
                }
            free(p);
            free(q);
        }
}

/* ---- a checkpoint with wrong values ---- */

/* Byte `at` of a tensor becomes `byte`; what loading says. */
static void damaged(const char *tensor, nb_dtype type, size_t at, unsigned char byte,
                    const char *word)
{
    nb_buf file = { 0 };
    nb_error err = { 0 };
    nb_source *s = NULL;
    nb_tensor t;
    nb_model m;
    if (nb_model_config_read_path(in_source("tests/parity/v4"), &conf, &err) != NB_OK ||
        nb_file_read(in_source("tests/parity/v4/model.safetensors"), 1 << 22, &file, &err) !=
            NB_OK ||
        nb_source_open_bytes(nb_buf_view(&file), "model.safetensors", &s, &err) != NB_OK)
        fail_msg("%s", err.msg);
    const nb_tensor_want want = { .name = tensor, .dtypes = 1u << type, .n_dim = 2 };
    if (nb_source_take(s, &want, &t, &err) != NB_OK) fail_msg("%s", err.msg);
    ((unsigned char *)(uintptr_t)t.data)[at] = byte; /* of our buffer, or a copy of the source */
    if (nb_model_load(&m, &conf, s, &err) == NB_OK) fail_msg("%s: loaded", tensor);
    if (!strstr(err.msg, word)) fail_msg("%s: %s", tensor, err.msg);
    nb_source_close(s);
    nb_buf_deinit(&file);
}

static void test_damaged(void **state)
{
    (void)state;
    damaged("layers.0.ffn.gate.tid2eid", NB_DT_I64, 24, 8,
            "[1, 1] is 8, expected an expert 0 to 7");
    damaged("layers.0.ffn.gate.tid2eid", NB_DT_I64, 7, 0x80, "expected an expert 0 to 7");
    damaged("layers.0.attn.wq_a.scale", NB_DT_F8_E8M0, 0, 255, "q_a_proj.weight_scale_inv");
    damaged("layers.1.ffn.experts.3.w2.scale", NB_DT_F8_E8M0, 5, 255,
            "experts.3.down_proj.weight_scale_inv");
}

/* ---- promises ---- */

enum { N_TOK = 300, VOCAB = 128 };
static uint32_t ids[N_TOK];

typedef struct rows {
    float v[8][VOCAB];
    size_t n;
} rows;

static int keep(void *ctx, size_t row, const float *logits, size_t n_vocab)
{
    rows *r = ctx;
    (void)row;
    memcpy(r->v[r->n++], logits, n_vocab * sizeof *logits);
    return 0;
}

static nb_engine *open_v4(const char *kv, size_t n_thread, size_t chunk)
{
    return make_engine(&(nb_engine_options){ .model = in_source("tests/parity/v4"),
                                             .kv_cache_dtype = kv,
                                             .no_text = true,
                                             .n_thread = n_thread,
                                             .prefill_chunk = chunk,
                                             .max_model_len = 512 });
}

static void logits_of(const char *kv, size_t n_thread, size_t chunk, rows *out)
{
    static const size_t at[] = { 0, 3, 63, 64, 127, 128, 200, 299 };
    nb_error err = { 0 };
    nb_engine *e = open_v4(kv, n_thread, chunk);
    out->n = 0;
    if (nb_logits(e, ids, N_TOK, at, NB_COUNT(at), keep, out, &err) != NB_OK)
        fail_msg("%s", err.msg);
    assert_int_equal(out->n, NB_COUNT(at));
    nb_engine_destroy(e);
}

static void test_same_bits(void **state)
{
    (void)state;
    static const struct {
        size_t n_thread, chunk;
    } cuts[] = { { 1, 512 }, { 2, 7 }, { 1, 64 }, { 3, 1 }, { 2, 129 } };
    static const char *const kv[] = { "f32", "bf16", "nvfp4", "fp8" };
    for (size_t k = 0; k < NB_COUNT(kv); k++) {
        static rows first, other;
        logits_of(kv[k], 2, 512, &first);
        for (size_t i = 0; i < NB_COUNT(cuts); i++) {
            logits_of(kv[k], cuts[i].n_thread, cuts[i].chunk, &other);
            if (memcmp(first.v, other.v, sizeof first.v) != 0)
                fail_msg("%s, %zu threads, chunks of %zu: other logits", kv[k], cuts[i].n_thread,
                         cuts[i].chunk);
        }
    }
}

/* A request alone has the tokens that it has beside others. */
static void test_in_a_crowd(void **state)
{
    (void)state;
    nb_error err = { 0 };
    nb_result alone = { 0 };
    nb_engine *e = open_v4("nvfp4", 2, 64);
    nb_request rq = { .prompt = ids, .n_prompt = 150 };
    nb_sampling_default(&rq.sampling);
    rq.sampling.temperature = 0;
    rq.sampling.max_tokens = 40;
    rq.sampling.ignore_eos = true;
    if (nb_generate(e, &rq, &alone, &err) != NB_OK) fail_msg("%s", err.msg);
    /* again, where others have used the same slots and blocks */
    for (size_t n = 20; n < 150; n += 61) {
        nb_result other = { 0 };
        nb_request o = rq;
        o.prompt = ids + n;
        if (nb_generate(e, &o, &other, &err) != NB_OK) fail_msg("%s", err.msg);
        nb_result_deinit(&other);
    }
    nb_result again = { 0 };
    if (nb_generate(e, &rq, &again, &err) != NB_OK) fail_msg("%s", err.msg);
    assert_int_equal(alone.n_tokens, again.n_tokens);
    assert_memory_equal(alone.tokens, again.tokens, alone.n_tokens * sizeof *alone.tokens);
    nb_result_deinit(&alone);
    nb_result_deinit(&again);
    nb_engine_destroy(e);
}

/* ---- what is refused ---- */

static void test_options(void **state)
{
    (void)state;
    static const struct {
        nb_engine_options o;
        const char *word;
    } cases[] = {
        { { .kv_cache_dtype = "int4" }, "rows share a scale" },
        { { .kv_sinks = 4 }, "--kv-sinks" },
        { { .kv_transform = "hadamard" }, "--kv-transform" },
        { { .tensor_parallel_size = 2 }, "one rank only" },
        { { .kv_cache_dtype = "fp8_ds_mla" }, "fp8_ds_mla" },
    };
    for (size_t i = 0; i < NB_COUNT(cases); i++) {
        nb_engine *e = NULL;
        nb_error err = { 0 };
        nb_engine_options o = cases[i].o;
        o.model = in_source("tests/parity/v4");
        o.no_text = true;
        o.n_thread = 1;
        if (nb_engine_create(&o, &e, &err) == NB_OK) fail_msg("%s: accepted", cases[i].word);
        if (!strstr(err.msg, cases[i].word)) fail_msg("%s: %s", cases[i].word, err.msg);
    }
}

int main(void)
{
    random_ids(ids, N_TOK, VOCAB, 11);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published),  cmocka_unit_test(test_spellings),
        cmocka_unit_test(test_refusals),   cmocka_unit_test(test_names),
        cmocka_unit_test(test_rows),       cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_in_a_crowd), cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
