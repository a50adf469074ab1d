/* test_engine_inspect.c - the pictures of the cache and of a page that the server's page draws. */
#include "engine_testing.h"

#include <jansson.h>
#include <math.h>
#include <stdatomic.h>

#include "num/e4m3.h"

static json_t *parse(char *text)
{
    json_error_t why;
    json_t *j = json_loads(text, 0, &why);
    if (!j) fail_msg("not JSON: %s", why.text);
    nb_free(text);
    return j;
}

static json_t *cache_of(nb_engine *e)
{
    char *text = NULL;
    assert_int_equal(nb_engine_cache_json(e, &text, NULL), NB_OK);
    return parse(text);
}

static json_t *page_of(nb_engine *e, size_t layer, size_t tok)
{
    char *text = NULL;
    nb_error err = { 0 };
    if (nb_engine_page_json(e, layer, tok, &text, &err) != NB_OK) fail_msg("%s", err.msg);
    return parse(text);
}

static size_t number(const json_t *j, const char *key)
{
    const json_t *v = json_object_get(j, key);
    assert_true(json_is_integer(v));
    return (size_t)json_integer_value(v);
}

static const char *text_of(const json_t *j, const char *key)
{
    const char *s = json_string_value(json_object_get(j, key));
    assert_non_null(s);
    return s;
}

static size_t count(const char *s, char c)
{
    size_t n = 0;
    for (; *s; s++) n += *s == c;
    return n;
}

static void generate(nb_engine *e, const uint32_t *prompt, size_t n_prompt, size_t max_tokens)
{
    nb_request rq = { .prompt = prompt, .n_prompt = n_prompt };
    nb_result r = { 0 };
    nb_sampling_default(&rq.sampling);
    rq.sampling.temperature = 0;
    rq.sampling.max_tokens = max_tokens;
    rq.sampling.ignore_eos = true;
    nb_error err = { 0 };
    if (nb_generate(e, &rq, &r, &err) != NB_OK) fail_msg("%s", err.msg);
    nb_result_deinit(&r);
}

/* Columns have one entry for each block that is not free; parents name such blocks. */
static void check_columns(const json_t *c)
{
    const char *state = text_of(c, "state");
    const size_t n = number(c, "n_block"), n_used = n - count(state, '.');
    size_t k = 0;
    assert_int_equal(strlen(state), n);
    assert_int_equal(json_array_size(json_object_get(c, "parent")), n_used);
    assert_int_equal(json_array_size(json_object_get(c, "holders")), n_used);
    assert_int_equal(json_array_size(json_object_get(c, "hits")), n_used);
    assert_int_equal(strlen(text_of(c, "keys")), 8 * n_used);
    for (size_t id = 0; id < n; id++) {
        if (state[id] == '.') continue;
        const json_int_t d = json_integer_value(json_array_get(json_object_get(c, "parent"), k));
        const json_int_t held = json_integer_value(json_array_get(json_object_get(c, "holders"), k));
        const json_int_t parent = (json_int_t)id + d;
        assert_true(parent >= 0 && (size_t)parent < n && state[parent] != '.');
        assert_int_equal(held > 0, state[id] == 'h');
        k++;
    }
}

static void test_cache(void **state)
{
    (void)state;
    nb_engine *e = simple_engine("tests/parity/v3", "nvfp4");
    nb_engine_info info;
    nb_engine_get_info(e, &info);
    json_t *c = cache_of(e);
    check_columns(c);
    assert_int_equal(count(text_of(c, "state"), '.'), info.n_block);
    assert_int_equal(number(c, "block_bytes"), info.block_bytes);
    json_decref(c);

    uint32_t prompt[200];
    random_ids(prompt, 200, info.vocab, 5);
    generate(e, prompt, 200, 2);
    c = cache_of(e);
    check_columns(c);
    assert_int_equal(count(text_of(c, "state"), '1'), 3);
    json_decref(c);

    generate(e, prompt, 130, 2); /* its two full blocks are found */
    c = cache_of(e);
    check_columns(c);
    assert_int_equal(count(text_of(c, "state"), 'm'), 2);
    assert_int_equal(json_array_size(json_object_get(c, "requests")), 0);
    json_decref(c);
    nb_engine_destroy(e);
}

static void check_record(const json_t *page, const json_t *r, bool exact)
{
    const size_t n = number(page, "n_values");
    const json_t *values = json_object_get(page, "values"), *back = json_object_get(r, "decoded");
    double sum = 0;
    assert_int_equal(json_array_size(back), n);
    for (size_t i = 0; i < n; i++) {
        const double d = json_real_value(json_array_get(values, i)) -
                         json_real_value(json_array_get(back, i));
        sum += d * d;
    }
    const double rmse = json_real_value(json_object_get(r, "rmse_token"));
    assert_true(fabs(sqrt(sum / (double)n) - rmse) <= 1e-6 * rmse + 1e-12);
    assert_int_equal(rmse == 0, exact);
    size_t n_codes = 0, s;
    json_t *seg;
    json_array_foreach(json_object_get(r, "segments"), s, seg) {
        n_codes += json_array_size(json_object_get(seg, "codes"));
        if (strcmp(text_of(seg, "fmt"), "e4m3") != 0) continue;
        /* One vector, one outer scale: code times scale is the value. */
        const double scale = json_real_value(json_array_get(json_object_get(seg, "outer"), 0));
        const size_t dim = json_array_size(json_object_get(seg, "codes"));
        const json_int_t code = json_integer_value(json_array_get(json_object_get(seg, "codes"), 0));
        const json_t *value = json_array_get(back, s ? n - dim : 0);
        assert_true((double)nb_e4m3_value[code] * scale == json_real_value(value));
    }
    assert_int_equal(n_codes, n);
    const size_t n_plane = number(page, "n_tok") * number(page, "plane_values");
    assert_int_equal(strlen(text_of(r, "plane")), (n_plane + 2) / 3 * 4);
}

static void test_page(void **state)
{
    (void)state;
    nb_engine *e = simple_engine("tests/parity/v3", "nvfp4");
    nb_engine_info info;
    nb_engine_get_info(e, &info);
    char *text = NULL;
    assert_int_equal(nb_engine_page_json(e, 0, 0, &text, NULL), NB_ERR_NOT_FOUND);
    assert_int_equal(nb_engine_page_json(e, info.n_layer, 0, &text, NULL), NB_ERR_RANGE);
    assert_int_equal(nb_engine_page_json(e, 0, 64, &text, NULL), NB_ERR_RANGE);
    assert_null(text);

    uint32_t prompt[100];
    random_ids(prompt, 100, info.vocab, 6);
    generate(e, prompt, 100, 5); /* 104 are computed: the last token is not */
    json_t *p = page_of(e, info.n_layer - 1, 3);
    assert_int_equal(number(p, "n_tok"), 40);
    assert_int_equal(number(p, "pos0"), 64);
    assert_int_equal(number(p, "tok"), 3);
    assert_true(json_is_false(json_object_get(p, "running")));
    assert_int_equal(json_array_size(json_object_get(p, "tokens")), 40);
    assert_int_equal(number(json_array_get(json_object_get(p, "tokens"), 3), "id"), prompt[67]);
    const json_t *records = json_object_get(p, "records");
    assert_int_equal(json_array_size(records), 4);
    for (size_t i = 0; i < 4; i++) check_record(p, json_array_get(records, i), i == 0);
    json_decref(p);

    p = page_of(e, 0, 63); /* not written: the last one that is */
    assert_int_equal(number(p, "tok"), 39);
    json_decref(p);

    /* The slot is used again by a request that leaves no open page: the old rows are gone. */
    generate(e, prompt, 64, 0);
    assert_int_equal(nb_engine_page_json(e, 0, 0, &text, NULL), NB_ERR_NOT_FOUND);
    nb_engine_destroy(e);
}

static void test_gqa(void **state)
{
    (void)state;
    nb_engine *e = simple_engine("tests/parity/qwen3", "bf16");
    nb_engine_info info;
    nb_engine_get_info(e, &info);
    uint32_t prompt[10];
    random_ids(prompt, 10, info.vocab, 7);
    generate(e, prompt, 10, 1);
    json_t *p = page_of(e, 0, 9);
    const json_t *segments = json_object_get(p, "segments");
    assert_string_equal(text_of(json_array_get(segments, 0), "name"), "keys");
    assert_string_equal(text_of(json_array_get(segments, 1), "name"), "values");
    json_decref(p);
    nb_engine_destroy(e);
}

/* A request that waits in its callback until it is let go: what runs can be looked at. */
typedef struct gate {
    nb_engine *e;
    atomic_bool seen, asked_in_callback, done;
    nb_status in_callback;
} gate;

static int on_gate(void *ctx, const nb_token_event *ev)
{
    (void)ev;
    gate *g = ctx;
    char *text = NULL;
    if (!atomic_load(&g->asked_in_callback)) { /* once: the test reads it from then on */
        g->in_callback = nb_engine_cache_json(g->e, &text, NULL);
        atomic_store(&g->asked_in_callback, true);
    }
    return atomic_load(&g->seen);
}

static void on_gate_done(void *ctx, nb_status st, const nb_result *r, const nb_error *err)
{
    (void)st, (void)r, (void)err;
    atomic_store(&((gate *)ctx)->done, true);
}

static void test_running(void **state)
{
    (void)state;
    gate g = { .e = simple_engine("tests/parity/v3", "fp8") };
    nb_engine_info info;
    nb_engine_get_info(g.e, &info);
    uint32_t prompt[90];
    random_ids(prompt, 90, info.vocab, 8);
    nb_request rq = { .prompt = prompt, .n_prompt = 90, .on_token = on_gate, .on_token_ctx = &g,
                      .on_done = on_gate_done };
    nb_sampling_default(&rq.sampling);
    rq.sampling.ignore_eos = true;
    rq.sampling.max_tokens = info.max_model_len - 90;
    nb_request_id id = 0;
    assert_int_equal(nb_engine_submit(g.e, &rq, &id, NULL), NB_OK);
    while (!atomic_load(&g.asked_in_callback)) {}
    assert_int_equal(g.in_callback, NB_ERR_ARG);
    json_t *c = cache_of(g.e);
    check_columns(c);
    const json_t *r = json_array_get(json_object_get(c, "requests"), 0);
    if (r) { /* it may have ended by its length */
        assert_int_equal(number(r, "id"), id);
        assert_int_equal(number(r, "prompt_tokens"), 90);
        assert_true(number(r, "n_blocks") >= 2 && count(text_of(c, "state"), 'h') >= 2);
        assert_int_equal(json_array_size(json_object_get(r, "runs")) % 2, 0);
    }
    json_decref(c);
    atomic_store(&g.seen, true);
    nb_engine_abort(g.e, id);
    nb_engine_destroy(g.e); /* waits for it */
    assert_true(atomic_load(&g.done));
}

int main(void)
{
    if (!have_file("tests/parity/v3/config.json")) return SKIP_EXIT;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cache),
        cmocka_unit_test(test_page),
        cmocka_unit_test(test_gqa),
        cmocka_unit_test(test_running),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
