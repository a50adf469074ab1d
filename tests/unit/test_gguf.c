/* test_gguf.c - GGUF: headers that are accepted, one line for each thing refused, names and forms of tensors, and what
 * becomes of the metadata. */
#include "load_testing.h"

#include "capacity/sizes.h"
#include "load/gguf.h"
#include "model/config.h"

enum { TENSOR_BYTES = 128 };

/* A file that is put together piece by piece. */
typedef struct file {
    nb_buf kv, info, data;
    uint64_t n_kv, n_tensor;
    uint32_t version;
} file;

static void put(nb_buf *b, uint64_t v, int n_bytes)
{
    for (int i = 0; i < n_bytes; i++)
        assert_int_equal(nb_buf_add_ch(b, (char)(v >> (8 * i))), NB_OK);
}

static void put_str(nb_buf *b, const char *s)
{
    put(b, strlen(s), 8);
    assert_int_equal(nb_buf_add_c(b, s), NB_OK);
}

static void key(file *f, const char *k, uint32_t type)
{
    put_str(&f->kv, k);
    put(&f->kv, type, 4);
    f->n_kv++;
}
static void key_u32(file *f, const char *k, uint32_t v)
{
    key(f, k, NB_GGUF_U32);
    put(&f->kv, v, 4);
}
static void key_f32(file *f, const char *k, float v)
{
    uint32_t w;
    memcpy(&w, &v, sizeof w);
    key(f, k, NB_GGUF_F32);
    put(&f->kv, w, 4);
}
static void key_str(file *f, const char *k, const char *v)
{
    key(f, k, NB_GGUF_STRING);
    put_str(&f->kv, v);
}

/* F32 with the values 0, 1, 2, ...; dimensions with 0 at the end. */
static void tensor_at(file *f, const char *name, const uint64_t *ne, uint32_t type, uint64_t offset)
{
    uint32_t n_dim = 0;
    uint64_t n = 1;
    for (; ne[n_dim]; n_dim++) n *= ne[n_dim];
    put_str(&f->info, name);
    put(&f->info, n_dim, 4);
    for (uint32_t i = 0; i < n_dim; i++) put(&f->info, ne[i], 8);
    put(&f->info, type, 4);
    put(&f->info, offset, 8);
    f->n_tensor++;
    for (uint64_t i = 0; type == 0 && n <= 4096 && i < n; i++) {
        const float v = (float)i;
        assert_int_equal(nb_buf_add(&f->data, &v, sizeof v), NB_OK);
    }
    while (f->data.n_bytes % 32) put(&f->data, 0, 1);
}
static void tensor(file *f, const char *name, const uint64_t *ne)
{
    tensor_at(f, name, ne, 0, f->data.n_bytes);
}
#define NE(...) ((const uint64_t[]){ __VA_ARGS__, 0 })

static void build(file *f, nb_buf *out)
{
    out->n_bytes = 0;
    assert_int_equal(nb_buf_add_c(out, "GGUF"), NB_OK);
    put(out, f->version ? f->version : 3, 4);
    put(out, f->n_tensor, 8);
    put(out, f->n_kv, 8);
    assert_int_equal(nb_buf_add_str(out, nb_buf_view(&f->kv)), NB_OK);
    assert_int_equal(nb_buf_add_str(out, nb_buf_view(&f->info)), NB_OK);
    while (out->n_bytes % 32) put(out, 0, 1);
    assert_int_equal(nb_buf_add_str(out, nb_buf_view(&f->data)), NB_OK);
    nb_buf_deinit(&f->kv);
    nb_buf_deinit(&f->info);
    nb_buf_deinit(&f->data);
    *f = (file){ 0 };
}

/* The file is refused, with the words in the line. */
static void refused(file *f, nb_status st, const char *words)
{
    nb_buf b = { 0 };
    nb_gguf *g = NULL;
    nb_error e = { 0 };
    build(f, &b);
    assert_int_equal(nb_gguf_open_bytes(nb_buf_view(&b), "f.gguf", &g, &e), st);
    check_line(&e, st, "f.gguf");
    if (!strstr(e.msg, words)) fail_msg("'%s' not in: %s", words, e.msg);
    nb_buf_deinit(&b);
}

static void test_headers(void **state)
{
    (void)state;
    file f = { .version = 4 };
    refused(&f, NB_ERR_UNSUPPORTED, "version 4");
    f.version = 3u << 24;
    refused(&f, NB_ERR_UNSUPPORTED, "big-endian");
    f.n_kv = (uint64_t)1 << 60;
    refused(&f, NB_ERR_FORMAT, "keys of metadata do not fit");
    f.n_tensor = (uint64_t)1 << 61;
    refused(&f, NB_ERR_FORMAT, "tensors do not fit");
    key_u32(&f, "a", 1);
    key_u32(&f, "a", 2);
    refused(&f, NB_ERR_FORMAT, "'a' is there twice");
    key(&f, "a", 13);
    refused(&f, NB_ERR_FORMAT, "unknown type 13");
    key(&f, "a", NB_GGUF_BOOL);
    put(&f.kv, 2, 1);
    refused(&f, NB_ERR_FORMAT, "bool is 2");
    key(&f, "a", NB_GGUF_ARRAY);
    put(&f.kv, NB_GGUF_ARRAY, 4);
    put(&f.kv, 1, 8);
    refused(&f, NB_ERR_FORMAT, "lists of lists");
    for (int type = NB_GGUF_U8; type <= NB_GGUF_F64; type++) {
        if (type == NB_GGUF_ARRAY) continue;
        key(&f, "a", NB_GGUF_ARRAY);
        put(&f.kv, (uint64_t)type, 4);
        put(&f.kv, (uint64_t)1 << 60, 8);
        refused(&f, NB_ERR_FORMAT, "1152921504606846976 items do not fit");
    }
    for (uint32_t v = 0; v < 49; v += 24) { /* 0, 24, 48: no powers of two */
        key_u32(&f, "general.alignment", v);
        refused(&f, NB_ERR_FORMAT, "general.alignment");
    }
}

static void test_tensors_refused(void **state)
{
    (void)state;
    file f = { 0 };
    tensor(&f, "t", NE(8));
    tensor(&f, "t", NE(8));
    refused(&f, NB_ERR_FORMAT, "'t' is there twice");
    tensor(&f, "a", NE(8));
    tensor_at(&f, "b", NE(8), 0, 0);
    refused(&f, NB_ERR_FORMAT, "tensor 'b': begins at byte 0 of the data, expected 32");
    tensor(&f, "a", NE(8));
    tensor_at(&f, "b", NE(8), 0, 64);
    refused(&f, NB_ERR_FORMAT, "expected 32");
    tensor_at(&f, "t", NE(5000), 0, 0);
    refused(&f, NB_ERR_FORMAT, "truncated");
    tensor_at(&f, "t", NE((uint64_t)1 << 40, (uint64_t)1 << 40), 0, 0);
    refused(&f, NB_ERR_FORMAT, "more bytes than can be addressed");
    tensor_at(&f, "t", NE((uint64_t)1 << 63), 0, 0);
    refused(&f, NB_ERR_FORMAT, "negative");
    tensor_at(&f, "t", NE(1, 1, 1, 1, 1), 0, 0);
    refused(&f, NB_ERR_FORMAT, "5 dimensions");
    tensor_at(&f, "t", NE(100), 12, 0);
    refused(&f, NB_ERR_FORMAT, "100 columns are not whole blocks of 256, as Q4_K has them");
    tensor_at(&f, "t", NE(32), 99, 0);
    refused(&f, NB_ERR_FORMAT, "unknown type 99");
    tensor_at(&f, "t", NE(256), 139, 0);
    refused(&f, NB_ERR_UNSUPPORTED,
            "tensor 't': type 133 or above is not supported: only ik_llama.cpp has it");
    tensor_at(&f, "", NE(8), 0, 0);
    refused(&f, NB_ERR_FORMAT, "the name has 0 bytes");
}

/* Every shorter file is refused. */
static void test_truncated(void **state)
{
    (void)state;
    file f = { 0 };
    nb_buf b = { 0 };
    key_str(&f, "general.architecture", "llama");
    key_u32(&f, "general.alignment", 32);
    tensor(&f, "token_embd.weight", NE(8, 2));
    build(&f, &b);
    for (size_t n = 0; n < b.n_bytes; n++) {
        nb_gguf *g = NULL;
        nb_error e = { 0 };
        char *p = malloc(n + 1);
        assert_non_null(p);
        memcpy(p, b.p, n);
        assert_int_equal(nb_gguf_open_bytes((nb_str){ p, n }, "f.gguf", &g, &e), NB_ERR_FORMAT);
        check_line(&e, NB_ERR_FORMAT, "f.gguf");
        free(p);
    }
    nb_buf_deinit(&b);
}

static const float *take(nb_source *s, const char *name, size_t n_dim, size_t rows, size_t cols)
{
    nb_error e = { 0 };
    nb_tensor t;
    const nb_tensor_want w = {
        .name = name, .dtypes = 1u << NB_DT_F32, .n_dim = n_dim, .dim = { rows, cols }
    };
    if (nb_source_take(s, &w, &t, &e) != NB_OK) fail_msg("%s", e.msg);
    return t.data;
}

static void test_names_and_forms(void **state)
{
    (void)state;
    file f = { 0 };
    nb_buf b = { 0 };
    nb_source *s = NULL;
    nb_error e = { 0 };
    nb_tensor t;
    key_str(&f, "general.architecture", "llama");
    key_u32(&f, "llama.attention.head_count", 2);
    key_u32(&f, "llama.attention.head_count_kv", 1);
    tensor(&f, "token_embd.weight", NE(2, 3));
    tensor(&f, "output_norm.weight", NE(4));
    tensor(&f, "blk.7.attn_q.weight", NE(2, 8));
    tensor(&f, "blk.7.attn_k.weight", NE(2, 4));
    tensor(&f, "blk.7.attn_v.weight", NE(2, 4));
    tensor(&f, "blk.0.ffn_down_exps.weight", NE(2, 3, 2));
    tensor(&f, "blk.0.ffn_gate_up_exps.weight", NE(2, 4, 2));
    tensor(&f, "blk.0.attn_k_b.weight", NE(2, 3, 2)); /* nope 2, latent 3, heads 2 */
    tensor(&f, "blk.0.attn_v_b.weight", NE(3, 1, 2)); /* value 1 */
    tensor(&f, "blk.3.nextn.enorm.weight", NE(4));
    tensor_at(&f, "blk.0.attn_output.weight", NE(256), 34, f.data.n_bytes);
    for (int i = 0; i < 54; i++) put(&f.data, 0, 1);
    build(&f, &b);
    if (nb_source_open_bytes(nb_buf_view(&b), "f.gguf", &s, &e) != NB_OK) fail_msg("%s", e.msg);
    assert_int_equal(take(s, "model.embed_tokens.weight", 2, 3, 2)[5], 5);
    assert_int_equal(take(s, "model.norm.weight", 1, 4, 0)[3], 3);
    /* rows (0 1 2 3) of a head are two pairs: they become 0 2 1 3 */
    const float *q = take(s, "model.layers.7.self_attn.q_proj.weight", 2, 8, 2);
    static const float rows[] = { 0, 4, 2, 6, 8, 12, 10, 14 };
    for (size_t i = 0; i < 8; i++) assert_int_equal(q[2 * i], rows[i]);
    assert_int_equal(take(s, "model.layers.7.self_attn.k_proj.weight", 2, 4, 2)[2], 4);
    assert_int_equal(take(s, "model.layers.7.self_attn.v_proj.weight", 2, 4, 2)[2], 2);
    assert_int_equal(take(s, "model.layers.0.mlp.experts.1.down_proj.weight", 2, 3, 2)[0], 6);
    assert_int_equal(take(s, "model.layers.0.mlp.experts.0.up_proj.weight", 2, 2, 2)[0], 4);
    assert_int_equal(take(s, "model.layers.0.mlp.experts.1.gate_proj.weight", 2, 2, 2)[0], 8);
    /* head 0: W_UK [2][3] from [3][2], then W_UV */
    const float *kv = take(s, "model.layers.0.self_attn.kv_b_proj.weight", 2, 6, 3);
    static const float joined[] = { 0, 2, 4, 1, 3, 5, 0, 1, 2, 6, 8, 10, 7, 9, 11, 3, 4, 5 };
    for (size_t i = 0; i < 18; i++) assert_int_equal(kv[i], joined[i]);
    assert_true(nb_source_has(s, "model.layers.3.nextn.enorm.weight"));
    const nb_tensor_want o = { .name = "model.layers.0.self_attn.o_proj.weight",
                               .dtypes = UINT32_MAX,
                               .n_dim = 2 };
    assert_int_equal(nb_source_take(s, &o, &t, &e), NB_ERR_UNSUPPORTED);
    check_line(&e, NB_ERR_UNSUPPORTED,
               "o_proj.weight': type TQ1_0 is not supported: it is a rare type");
    nb_source_close(s);
    nb_buf_deinit(&b);
}

static void deepseek(file *f, bool groups)
{
    static const struct {
        const char *key;
        uint32_t v;
    } ints[] = {
        { "block_count", 62 },
        { "nextn_predict_layers", 1 },
        { "context_length", 163840 },
        { "embedding_length", 7168 },
        { "feed_forward_length", 18432 },
        { "attention.head_count", 128 },
        { "attention.kv_lora_rank", 512 },
        { "attention.key_length_mla", 192 },
        { "attention.value_length_mla", 128 },
        { "attention.key_length", 576 },
        { "attention.value_length", 512 },
        { "expert_count", 256 },
        { "expert_used_count", 8 },
        { "expert_shared_count", 1 },
        { "expert_feed_forward_length", 2048 },
        { "expert_gating_func", 2 },
        { "leading_dense_block_count", 3 },
        { "rope.dimension_count", 64 },
    };
    key_str(f, "general.architecture", "deepseek2");
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) {
        char k[96];
        (void)snprintf(k, sizeof k, "deepseek2.%s", ints[i].key);
        key_u32(f, k, ints[i].v);
    }
    key_f32(f, "deepseek2.attention.layer_norm_rms_epsilon", 1e-6f);
    key_f32(f, "deepseek2.expert_weights_scale", 2.5f);
    key_f32(f, "deepseek2.rope.freq_base", 10000);
    key_str(f, "deepseek2.rope.scaling.type", "yarn");
    key_f32(f, "deepseek2.rope.scaling.factor", 40);
    key_u32(f, "deepseek2.rope.scaling.original_context_length", 4096);
    key_f32(f, "deepseek2.rope.scaling.yarn_log_multiplier", 0.1f);
    key_u32(f, "deepseek2.some_new_key", 1);
    key(f, "deepseek2.expert_weights_norm", NB_GGUF_BOOL);
    put(&f->kv, 1, 1);
    if (groups) key_u32(f, "deepseek2.expert_group_count", 8);
    if (groups) key_u32(f, "deepseek2.expert_group_used_count", 4);
    tensor(f, "token_embd.weight", NE(1, 5));
    tensor(f, "output.weight", NE(1, 5));
    tensor(f, "blk.0.attn_q_a.weight", NE(1, 1536));
}

static nb_status config(file *f, nb_model_config *c, nb_error *e)
{
    nb_buf b = { 0 }, text = { 0 };
    nb_gguf *g = NULL;
    nb_doc *doc = NULL;
    bool found = false;
    build(f, &b);
    if (nb_gguf_open_bytes(nb_buf_view(&b), "f.gguf", &g, e) != NB_OK) fail_msg("%s", e->msg);
    nb_status st = nb_gguf_text(g, "config.json", &text, &found, e);
    if (st == NB_OK) st = nb_doc_parse(nb_buf_view(&text), "f.gguf", &doc, e);
    if (st == NB_OK) st = nb_model_config_read(doc, c, e);
    nb_doc_destroy(doc);
    nb_gguf_close(g);
    nb_buf_deinit(&b);
    nb_buf_deinit(&text);
    return st;
}

/* DeepSeek-V3's geometry; its softmax scale is published as 0.135234. */
static void test_config(void **state)
{
    (void)state;
    static nb_model_config c;
    file f = { 0 };
    nb_error e = { 0 };
    for (int groups = 0; groups < 2; groups++) {
        deepseek(&f, groups);
        if (config(&f, &c, &e) != NB_OK) fail_msg("%s", e.msg);
        const nb_attn_config *a = &c.attn[0];
        assert_string_equal(c.family, "deepseek_v3");
        assert_int_equal(c.n_layer, 61);
        assert_int_equal(c.n_nextn, 1);
        assert_int_equal(c.n_vocab, 5);
        assert_false(c.tied);
        assert_int_equal(a->q_lora, 1536);
        assert_int_equal(a->d_nope, 128);
        assert_int_equal(a->d_v, 128);
        assert_true(a->softmax_scale > 0.135233 && a->softmax_scale < 0.135235);
        assert_true(a->rope.interleaved && a->rope.factor == 1);
        assert_int_equal(c.n_group, 8);
        assert_int_equal(c.topk_group, 4);
        assert_true(c.dense[2] && !c.dense[3] && c.normalise && c.sigmoid);
        assert_non_null(strstr(c.notes, "deepseek2.some_new_key"));
        /* the key is absent: the user is told what is assumed */
        assert_int_equal(strstr(c.assumed, "n_group 8, topk_group 4") != NULL, !groups);
    }
}

/* A tensor of 32-value blocks of this many bytes. */
static void blocks(file *f, const char *name, uint64_t cols, uint64_t rows, uint32_t type, size_t bytes)
{
    tensor_at(f, name, NE(cols, rows), type, f->data.n_bytes);
    for (size_t i = 0; i < cols / 32 * rows * bytes; i++) put(&f->data, 0, 1);
    while (f->data.n_bytes % 32) put(&f->data, 0, 1);
}

/* The bytes that are counted are those of the tensors, layer by layer. */
static void test_sizes(void **state)
{
    (void)state;
    static nb_model_config c;
    static nb_sizes sizes;
    file f = { 0 };
    nb_error e = { 0 };
    enum { Q8_0 = 34, Q4_0 = 18, N = 64 * 64 / 32 };
    key_str(&f, "general.architecture", "llama");
    static const char *const ints[] = { "block_count", "context_length", "embedding_length",
                                        "attention.head_count", "feed_forward_length" };
    static const uint32_t v[] = { 2, 128, 64, 2, 64 };
    for (size_t i = 0; i < NB_COUNT(ints); i++) {
        char k[96];
        (void)snprintf(k, sizeof k, "llama.%s", ints[i]);
        key_u32(&f, k, v[i]);
    }
    key_f32(&f, "llama.attention.layer_norm_rms_epsilon", 1e-6f);
    blocks(&f, "token_embd.weight", 64, 64, 8, Q8_0);
    tensor(&f, "output_norm.weight", NE(64));
    for (int i = 0; i < 2; i++) {
        static const char *const parts[] = { "attn_q", "attn_k", "attn_v", "attn_output",
                                             "ffn_gate", "ffn_up", "ffn_down" };
        char name[64];
        for (size_t k = 0; k < NB_COUNT(parts); k++) {
            (void)snprintf(name, sizeof name, "blk.%d.%s.weight", i, parts[k]);
            /* Q8_0 in the first layer's down, a plain v in the second, Q4_0 elsewhere */
            if (i == 1 && k == 2)
                tensor(&f, name, NE(64, 64));
            else
                blocks(&f, name, 64, 64, k == 6 && i == 0 ? 8 : 2, k == 6 && i == 0 ? Q8_0 : Q4_0);
        }
    }
    if (config(&f, &c, &e) != NB_OK) fail_msg("%s", e.msg);
    assert_string_equal(c.quant.method, "gguf");
    assert_string_equal(nb_quant_main(&c.quant)->name, "Q4_0");
    assert_string_equal(c.quant.form[c.quant_of[0].form[NB_QU_DENSE_DOWN] - 1].name, "Q8_0");
    assert_string_equal(c.quant.form[c.quant_of[1].form[NB_QU_V] - 1].name, "F32");
    assert_int_equal(nb_sizes_of(&c, &sizes, &e), NB_OK);
    /* norms are counted in 16 bits; the head is the embedding */
    assert_int_equal(sizes.weight_bytes, 12 * N * Q4_0 + 2 * N * Q8_0 + 64 * 64 * 4 + 5 * 64 * 2);
}

static void test_config_refused(void **state)
{
    (void)state;
    static nb_model_config c;
    file f = { 0 };
    nb_error e = { 0 };
    key_str(&f, "general.architecture", "mamba");
    assert_int_equal(config(&f, &c, &e), NB_ERR_UNSUPPORTED);
    check_line(&e, NB_ERR_UNSUPPORTED, "architecture \"mamba\"");
    key_u32(&f, "general.architecture", 1);
    assert_int_equal(config(&f, &c, &e), NB_ERR_FORMAT);
    check_line(&e, NB_ERR_FORMAT, "'general.architecture' is u32, expected a string");
    deepseek(&f, true);
    key_f32(&f, "deepseek2.attn_logit_softcapping", 50);
    assert_int_equal(config(&f, &c, &e), NB_ERR_UNSUPPORTED);
    check_line(&e, NB_ERR_UNSUPPORTED, "softcapping' 50 is not supported");
    key_str(&f, "general.architecture", "llama");
    tensor(&f, "token_embd.weight", NE(1, 5));
    assert_int_equal(config(&f, &c, &e), NB_ERR_FORMAT);
    check_line(&e, NB_ERR_FORMAT, "'llama.block_count' is missing");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_headers),   cmocka_unit_test(test_tensors_refused),
        cmocka_unit_test(test_truncated), cmocka_unit_test(test_names_and_forms),
        cmocka_unit_test(test_config),    cmocka_unit_test(test_config_refused),
        cmocka_unit_test(test_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
