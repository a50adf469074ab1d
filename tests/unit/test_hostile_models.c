/* test_hostile_models.c - 10,000 damaged models, from a fixed seed, through the public
 * interface: config.json, generation_config.json, the index, safetensors headers,
 * tokenizer.json, tokenizer_config.json with its chat template.
 *
 * JSON is damaged as a tree (a value replaced, a key removed, renamed or repeated) or as
 * bytes.  Nothing may crash or leak (the sanitizers watch; files stay closed), a failure
 * leaves one clean line, and what loads has to answer a request or refuse it. */
#include "engine_testing.h"

#include <jansson.h>
#include <math.h>

#include "fuzz/mutate_driver.h"

enum {
    N_CONFIG = 3000,
    N_GENERATION = 500,
    N_INDEX = 1000,
    N_HEADER = 2000,
    N_TOKENIZER = 2000,
    N_TEMPLATE = 1500
};
static const uint64_t seed = 20250101;

typedef struct dice {
    uint64_t stream, n;
} dice;
static size_t below(dice *d, size_t n)
{
    return n ? (size_t)(nb_rng_u64(seed ^ d->stream << 32, d->n++) % n) : 0;
}

/* ---- damage ---- */

static const char *const values[] = {
    "null",
    "true",
    "false",
    "0",
    "1",
    "-1",
    "2",
    "3",
    "7",
    "16",
    "63",
    "64",
    "65",
    "255",
    "256",
    "1000",
    "65536",
    "65537",
    "1048576",
    "2147483647",
    "2147483648",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "-9223372036854775808",
    "0.0",
    "-0.0",
    "0.5",
    "1e-300",
    "1e300",
    "\"\"",
    "\"x\"",
    "\"bfloat16\"",
    "\"float32\"",
    "\"yarn\"",
    "\"longrope\"",
    "\"llama3\"",
    "\"linear\"",
    "\"fp8\"",
    "\"deepseek_v2\"",
    "\"llama\"",
    "\"qwen3\"",
    "\"minicpm3\"",
    "[]",
    "{}",
    "[1]",
    "[0,1]",
    "[-1,5]",
    "[1,2,3,4]",
    "[\"a\"]",
    "[[]]",
    "{\"a\":1}",
    "\"..\"",
    "\"/etc/passwd\"",
    "\"\\u0000\"",
    "\"\\u001b[2J\"",
    "\"\\ud83d\\ude00\"",
    "\"F32\"",
    "\"F8_E4M3\"",
    "\"I64\"",
};

static json_t *some_value(dice *d)
{
    return json_loads(values[below(d, NB_COUNT(values))], JSON_DECODE_ANY, NULL);
}

static size_t count_nodes(json_t *j)
{
    size_t n = 1;
    const char *key;
    json_t *v;
    size_t i;
    json_object_foreach(j, key, v) n += count_nodes(v);
    json_array_foreach(j, i, v) n += count_nodes(v);
    return n;
}

/* The container of the k-th value below j in *parent, its key or index. */
static bool find_node(json_t *j, size_t *k, json_t **parent, const char **key, size_t *index)
{
    const char *name;
    json_t *v;
    size_t i;
    json_object_foreach(j, name, v)
    {
        *parent = j;
        *key = name;
        if ((*k)-- == 0) return true;
        if (find_node(v, k, parent, key, index)) return true;
    }
    json_array_foreach(j, i, v)
    {
        *parent = j;
        *key = NULL;
        *index = i;
        if ((*k)-- == 0) return true;
        if (find_node(v, k, parent, key, index)) return true;
    }
    return false;
}

static void damage_tree(json_t *j, dice *d)
{
    json_t *parent = NULL;
    const char *key = NULL;
    size_t index = 0, k = below(d, count_nodes(j) - 1);
    if (!find_node(j, &k, &parent, &key, &index)) return;
    char name[200];
    (void)snprintf(name, sizeof name, "%s", key ? key : "");
    const size_t kind = below(d, 8);
    if (kind == 0 && key)
        (void)json_object_del(parent, name);
    else if (kind == 0)
        (void)json_array_remove(parent, index);
    else if (kind == 1 && !key)
        (void)json_array_insert_new(parent, index, some_value(d));
    else if (kind == 1) { /* the value under another name */
        json_t *v = json_incref(json_object_get(parent, name));
        (void)json_object_del(parent, name);
        name[below(d, strlen(name) + 1)] = (char)('a' + below(d, 26));
        if (name[0])
            (void)json_object_set_new(parent, name, v);
        else
            json_decref(v);
    } else if (kind == 2 && json_is_integer(key ? json_object_get(parent, name)
                                                : json_array_get(parent, index))) {
        json_t *v = key ? json_object_get(parent, name) : json_array_get(parent, index);
        static const uint64_t change[] = { UINT64_MAX, 1, UINT64_MAX - 1, 2 };
        const uint64_t x = (uint64_t)json_integer_value(v);
        (void)json_integer_set(v, (json_int_t)(below(d, 4) ? x + change[below(d, 4)] : x * 2));
    } else if (key)
        (void)json_object_set_new(parent, name, some_value(d));
    else
        (void)json_array_set_new(parent, index, some_value(d));
}

/* out: `good` with the fuzzers' damage to bytes added to it. */
static void damaged_bytes(const nb_buf *good, dice *d, nb_buf *out)
{
    const size_t cap = good->n_bytes + 20000;
    uint8_t *p = malloc(cap), *whole = malloc(good->n_bytes);
    assert_true(p && whole);
    memcpy(whole, good->p, good->n_bytes);
    char name[] = "good";
    const nb_fuzz_input in = { name, whole, good->n_bytes };
    const size_t n = nb_fuzz_mutate(seed, d->stream, &in, 1, p, cap);
    assert_int_equal(nb_buf_add(out, p, n), NB_OK);
    free(whole);
    free(p);
}

/* out: `good` with damage, as text. */
static void damaged_json(const nb_buf *good, dice *d, nb_buf *out)
{
    out->n_bytes = 0;
    const bool tree = below(d, 4) > 0;
    if (tree) {
        json_t *j = json_loadb(good->p, good->n_bytes, 0, NULL);
        assert_non_null(j);
        for (size_t k = below(d, 3) + 1; k > 0 && count_nodes(j) > 1; k--) damage_tree(j, d);
        char *text = json_dumps(j, JSON_COMPACT);
        assert_non_null(text);
        assert_int_equal(nb_buf_add_c(out, text), NB_OK);
        free(text);
        json_decref(j);
        return;
    }
    damaged_bytes(good, d, out);
}

/* ---- models on disk ---- */

typedef struct model_dir {
    tmp_dir dir;
    const char *files[8]; /* names in the folder */
    nb_buf good[8];
    size_t n_file;
} model_dir;

static void add_file(model_dir *m, const char *name, const char *from)
{
    nb_error err;
    nb_buf *b = &m->good[m->n_file];
    if (nb_file_read(in_source(from), 16 << 20, b, &err) != NB_OK) fail_msg("%s", err.msg);
    m->files[m->n_file++] = name;
    tmp_write(&m->dir, name, nb_buf_view(b));
}

static void add_text(model_dir *m, const char *name, const char *text)
{
    assert_int_equal(nb_buf_add_c(&m->good[m->n_file], text), NB_OK);
    m->files[m->n_file] = name;
    tmp_write(&m->dir, name, nb_buf_view(&m->good[m->n_file++]));
}

static void model_close(model_dir *m)
{
    for (size_t i = 0; i < m->n_file; i++) nb_buf_deinit(&m->good[i]);
    tmp_close(&m->dir);
}

static size_t n_loaded, n_refused, n_answered;

static void check_refusal(const model_dir *m, nb_status st, const nb_error *err)
{
    check_line(err, st, NULL);
    /* of a very long path only the end is shown */
    if (!strstr(err->msg, m->dir.path) && strncmp(err->msg, "--", 2) != 0 &&
        strncmp(err->msg, "chat_template", 13) != 0 && strlen(err->msg) < 300)
        fail_msg("the line names neither file nor option: %s", err->msg);
    n_refused++;
}

static void ask_model(nb_engine *e)
{
    static const uint32_t prompt[70] = { 1, 2, 3, 0, 5, 6, 7 };
    nb_engine_info info;
    nb_error err = { 0 };
    nb_result r;
    nb_engine_get_info(e, &info);
    const nb_request rq = { .prompt = prompt,
                            .n_prompt = n_loaded % 8 ? 5 : 66,
                            .sampling = greedy(3) };
    const nb_status st = nb_generate(e, &rq, &r, &err);
    if (st == NB_OK) {
        n_answered++;
        for (size_t i = 0; i < r.n_tokens; i++) assert_true(r.tokens[i] < info.vocab);
        nb_result_deinit(&r);
    } else {
        check_line(&err, st, NULL);
    }
}

static void load_model(const model_dir *m, size_t i)
{
    static const char *const kv[] = { "bf16", "nvfp4", "int4", "auto", "fp8" };
    nb_engine *e = NULL;
    nb_error err = { 0 };
    const nb_status st =
        nb_engine_create(&(nb_engine_options){ .model = m->dir.path,
                                               .kv_cache_dtype = kv[i % NB_COUNT(kv)],
                                               .n_thread = 1,
                                               .prefill_chunk = 32,
                                               .max_model_len = 128 },
                         &e, &err);
    if (st != NB_OK) {
        assert_null(e);
        check_refusal(m, st, &err);
        return;
    }
    n_loaded++;
    ask_model(e);
    nb_engine_destroy(e);
    if (i % 4 == 0) {
        char *json = NULL;
        if (nb_model_describe(m->dir.path, &json, &err) == NB_OK) nb_free(json);
    }
}

static void load_text(const model_dir *m)
{
    static const char sample[] =
        "Hello <x> world, caf\xc3\xa9 123\n  \xe4\xbd\xa0 <|user|> \xff end";
    static const char chat[] = "{\"messages\":[{\"role\":\"system\",\"content\":\"S\"},"
                               "{\"role\":\"user\",\"content\":\"hi\"}]}";
    nb_text *t = NULL;
    nb_error err = { 0 };
    const nb_status st = nb_text_create(m->dir.path, NULL, &t, &err);
    if (st != NB_OK) {
        assert_null(t);
        check_refusal(m, st, &err);
        return;
    }
    n_loaded++;
    uint32_t *id = NULL;
    size_t n = 0, n_back = 0;
    char *text = NULL;
    for (unsigned flags = 0; flags < 4; flags++) {
        const nb_status ts = nb_text_tokenize(t, sample, sizeof sample - 1, flags, &id, &n, &err);
        if (ts != NB_OK) {
            check_line(&err, ts, NULL);
            continue;
        }
        n_answered++;
        if (nb_text_detokenize(t, id, n, flags & 1, &text, &n_back, &err) == NB_OK) nb_free(text);
        nb_free(id);
    }
    const nb_status rs = nb_text_render(t, chat, sizeof chat - 1, &text, &n_back, &id, &n, &err);
    if (rs == NB_OK) {
        nb_free(text);
        nb_free(id);
    } else {
        check_line(&err, rs, NULL);
    }
    nb_text_destroy(t);
}

static void reset_counts(void)
{
    n_loaded = n_refused = n_answered = 0;
}
static void report(const char *what)
{
    print_message("%s: %zu loaded, %zu refused, %zu answers\n", what, n_loaded, n_refused,
                  n_answered);
}

/* Damages file f of the folder n times and loads it. */
static void attack_json(model_dir *m, size_t f, size_t n, uint64_t stream, bool text_only)
{
    nb_buf b = { 0 };
    for (size_t i = 0; i < n; i++) {
        dice d = { .stream = stream + i };
        damaged_json(&m->good[f], &d, &b);
        tmp_write(&m->dir, m->files[f], nb_buf_view(&b));
        if (text_only)
            load_text(m);
        else
            load_model(m, i);
    }
    nb_buf_deinit(&b);
    tmp_write(&m->dir, m->files[f], nb_buf_view(&m->good[f]));
}

static void test_config(void **state)
{
    (void)state;
    static const char *const dirs[] = { "v3_sharded", "llama3", "minicpm3_long" };
    const size_t n_open = n_open_files();
    reset_counts();
    for (size_t k = 0; k < 3; k++) {
        model_dir m = { 0 };
        char from[200];
        tmp_open(&m.dir);
        (void)snprintf(from, sizeof from, "tests/parity/%s/config.json", dirs[k]);
        add_file(&m, "config.json", from);
        if (k == 0) {
            add_file(&m, "model.safetensors.index.json",
                     "tests/parity/v3_sharded/model.safetensors.index.json");
            add_file(&m, "model-00001-of-00003.safetensors",
                     "tests/parity/v3_sharded/model-00001-of-00003.safetensors");
            add_file(&m, "model-00002-of-00003.safetensors",
                     "tests/parity/v3_sharded/model-00002-of-00003.safetensors");
            add_file(&m, "model-00003-of-00003.safetensors",
                     "tests/parity/v3_sharded/model-00003-of-00003.safetensors");
        } else {
            (void)snprintf(from, sizeof from, "tests/parity/%s/model.safetensors", dirs[k]);
            add_file(&m, "model.safetensors", from);
        }
        const size_t before = n_answered;
        load_model(&m, 0);
        assert_int_equal(n_answered, before + 1); /* undamaged it works */
        attack_json(&m, 0, N_CONFIG / 3, 1000000 * (k + 1), false);
        if (k == 0) {
            attack_json(&m, 1, N_INDEX, 5000000, false);
        } else if (k == 1) {
            add_text(&m, "generation_config.json",
                     "{\"bos_token_id\":0,\"eos_token_id\":[1,5,7],\"temperature\":0.6}");
            attack_json(&m, 2, N_GENERATION, 6000000, false);
        }
        model_close(&m);
    }
    assert_int_equal(n_open_files(), n_open);
    report("config.json, generation_config.json, index");
    assert_true(n_refused > 1000 && n_loaded > 500 && n_answered > 300);
}

/* A safetensors file: the header as a tree with its length put right, or bytes of it. */
static void damaged_header(const nb_buf *good, dice *d, nb_buf *out)
{
    uint64_t n = 0;
    for (int i = 0; i < 8; i++) n |= (uint64_t)(unsigned char)good->p[i] << (8 * i);
    nb_buf head = { 0 }, bad = { 0 };
    assert_true(n + 8 <= good->n_bytes);
    assert_int_equal(nb_buf_add(&head, good->p + 8, (size_t)n), NB_OK);
    damaged_json(&head, d, &bad);
    uint64_t len = bad.n_bytes;
    if (below(d, 8) == 0) len += (uint64_t)below(d, 5) - 2;
    if (below(d, 40) == 0) len = (uint64_t)below(d, SIZE_MAX);
    out->n_bytes = 0;
    for (int i = 0; i < 8; i++)
        assert_int_equal(nb_buf_add_ch(out, (char)(len >> (8 * i) & 0xff)), NB_OK);
    assert_int_equal(nb_buf_add_str(out, nb_buf_view(&bad)), NB_OK);
    size_t rest = good->n_bytes - 8 - (size_t)n;
    if (below(d, 6) == 0) rest = below(d, rest); /* the end is missing */
    assert_int_equal(nb_buf_add(out, good->p + 8 + n, rest), NB_OK);
    if (below(d, 10) == 0) out->n_bytes = below(d, out->n_bytes);
    nb_buf_deinit(&head);
    nb_buf_deinit(&bad);
}

static void test_headers(void **state)
{
    (void)state;
    model_dir m = { 0 };
    nb_buf b = { 0 };
    const size_t n_open = n_open_files();
    reset_counts();
    tmp_open(&m.dir);
    add_file(&m, "config.json", "tests/parity/llama3/config.json");
    add_file(&m, "model.safetensors", "tests/parity/llama3/model.safetensors");
    for (size_t i = 0; i < N_HEADER; i++) {
        dice d = { .stream = 7000000 + i };
        damaged_header(&m.good[1], &d, &b);
        tmp_write(&m.dir, m.files[1], nb_buf_view(&b));
        load_model(&m, i);
    }
    nb_buf_deinit(&b);
    model_close(&m);
    assert_int_equal(n_open_files(), n_open);
    report("headers");
    assert_true(n_refused > N_HEADER / 2 && n_loaded > 3);
}

/* ---- text ---- */

static const char template_text[] =
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{{ '<s>' + m['content'] | trim "
    "}}{% elif loop.first and not m.tool_calls is defined %}{{ m.content | upper }}{% else %}{% set ns "
    "= namespace(n=0) %}{% for c in m.content %}{% set ns.n = ns.n + 1 %}{{ loop.index }}{% endfor "
    "%}{{ m | tojson }}{% endif %}{% endfor %}{%- macro f(x, y=2) -%}{{ x ~ y }}{%- endmacro -%}{{ f(1) "
    "}}{% if add_generation_prompt %}<a>{% endif %}";

static void test_tokenizers(void **state)
{
    (void)state;
    static const char *const files[] = { "bytelevel", "sentencepiece", "mixed" };
    const size_t n_open = n_open_files();
    reset_counts();
    for (size_t k = 0; k < 3; k++) {
        model_dir m = { 0 };
        char from[200];
        tmp_open(&m.dir);
        (void)snprintf(from, sizeof from, "tests/data/tok/%s.json", files[k]);
        add_file(&m, "tokenizer.json", from);
        const size_t before = n_loaded;
        load_text(&m);
        assert_int_equal(n_loaded, before + 1); /* undamaged it works */
        attack_json(&m, 0, N_TOKENIZER / 3, 10000000 + 1000000 * k, true);
        model_close(&m);
    }
    assert_int_equal(n_open_files(), n_open);
    report("tokenizer.json");
    assert_true(n_refused > 300);
}

static void test_templates(void **state)
{
    (void)state;
    model_dir m = { 0 };
    nb_buf good = { 0 }, bad = { 0 };
    tmp_open(&m.dir);
    add_file(&m, "tokenizer.json", "tests/data/tok/sentencepiece.json");
    json_t *j = json_load_file(in_source("tests/data/tok/config.json"), 0, NULL);
    assert_non_null(j);
    assert_int_equal(json_object_set_new(j, "chat_template", json_string(template_text)), 0);
    char *text = json_dumps(j, 0);
    add_text(&m, "tokenizer_config.json", text);
    free(text);
    reset_counts();
    attack_json(&m, 1, N_TEMPLATE / 3, 20000000, true);
    assert_int_equal(nb_buf_add(&good, template_text, sizeof template_text - 1), NB_OK);
    for (size_t i = 0; i < N_TEMPLATE - N_TEMPLATE / 3; i++) { /* the template's own text */
        dice d = { .stream = 21000000 + i };
        bad.n_bytes = 0;
        damaged_bytes(&good, &d, &bad);
        tmp_write(&m.dir, "chat_template.jinja", nb_buf_view(&bad));
        load_text(&m);
    }
    json_decref(j);
    nb_buf_deinit(&good);
    nb_buf_deinit(&bad);
    model_close(&m);
    report("tokenizer_config.json, templates");
    assert_true(n_refused > 100 && n_loaded > 300);
}

int main(void)
{
    if (!have_file("tests/parity/v3_sharded/config.json")) {
        printf("skipped: no parity checkpoints\n");
        return SKIP_EXIT;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_config),
        cmocka_unit_test(test_headers),
        cmocka_unit_test(test_tokenizers),
        cmocka_unit_test(test_templates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
