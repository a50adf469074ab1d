/* test_engine_weights.c - an engine whose weight files are truncated, overwritten or replaced. */
#include "engine_testing.h"

#include <fcntl.h>
#include <stdatomic.h>

#include "base/attr.h"

#define MODEL "tests/parity/v3_sharded"
static const char *const shard = "model-00002-of-00003.safetensors";

enum { N_PROMPT = 40, N_GEN = 8, DEADLINE_MS = 60000 };

static tmp_dir dir;
static gen g;
static atomic_int n_warning, n_failed;
static char news[1024];

static void on_news(void *ctx, bool failed, const char *line)
{
    (void)ctx;
    (void)snprintf(news, sizeof news, "%s", line);
    atomic_fetch_add(failed ? &n_failed : &n_warning, 1);
}

static const char *at(const char *name)
{
    static char full[4][600];
    static int turn;
    char *p = full[turn++ % 4];
    (void)snprintf(p, sizeof full[0], "%s/%s", dir.path, name);
    return p;
}

/* A copy of the model that the test may spoil. */
static void copy_model(void)
{
    static const char *const names[] = { "config.json", "model.safetensors.index.json",
                                         "model-00001-of-00003.safetensors",
                                         "model-00002-of-00003.safetensors",
                                         "model-00003-of-00003.safetensors" };
    tmp_open(&dir);
    for (size_t i = 0; i < NB_COUNT(names); i++) {
        char from[200];
        nb_buf b = { 0 };
        (void)snprintf(from, sizeof from, MODEL "/%s", names[i]);
        nb_error e;
        if (nb_file_read(in_source(from), 1 << 24, &b, &e) != NB_OK) fail_msg("%s", e.msg);
        tmp_write(&dir, names[i], nb_buf_view(&b));
        nb_buf_deinit(&b);
    }
}

static nb_engine_options options(void)
{
    return (nb_engine_options){ .model = dir.path,
                                .kv_cache_dtype = "f32",
                                .no_text = true,
                                .n_thread = 2,
                                .device = "cpu",
                                .on_news = on_news };
}

static nb_engine *open_with(const nb_engine_options *o)
{
    nb_engine *e = NULL;
    nb_error err = { 0 };
    atomic_store(&n_warning, 0);
    atomic_store(&n_failed, 0);
    if (nb_engine_create(o, &e, &err) != NB_OK) fail_msg("%s", err.msg);
    return e;
}

static nb_status generate(nb_engine *e, uint64_t seed, nb_error *err)
{
    uint32_t id[N_PROMPT];
    const nb_sampling s = { .max_tokens = N_GEN,
                            .ignore_eos = true,
                            .n_logprobs = -1,
                            .top_p = 1,
                            .repetition_penalty = 1 };
    nb_engine_info info;
    nb_engine_get_info(e, &info);
    random_ids(id, N_PROMPT, info.vocab, seed);
    gen_reset(&g);
    return try_run(e, id, N_PROMPT, &s, &g, err);
}

static void expect_tokens(nb_engine *e, uint64_t seed, const uint32_t *tok)
{
    nb_error err;
    if (generate(e, seed, &err) != NB_OK) fail_msg("%s", err.msg);
    assert_int_equal(g.n_seen, N_GEN);
    assert_memory_equal(g.seen, tok, N_GEN * sizeof *tok);
}

static void wait_for(atomic_int *n)
{
    for (int ms = 0; ms < DEADLINE_MS && atomic_load(n) == 0; ms++) (void)usleep(1000);
    assert_int_equal(atomic_load(n), 1);
}

/* What the engine gives that nobody disturbs. */
static void reference(uint32_t tok[N_GEN])
{
    const nb_engine_options o = options();
    nb_engine *e = open_with(&o);
    nb_error err;
    assert_int_equal(generate(e, 1, &err), NB_OK);
    memcpy(tok, g.seen, N_GEN * sizeof *tok);
    nb_engine_destroy(e);
}

static void overwrite(const char *name)
{
    static char bytes[60000];
    memset(bytes, 0x3c, sizeof bytes);
    const int fd = open(at(name), O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, sizeof bytes, 20000), sizeof bytes);
    assert_int_equal(close(fd), 0);
}

/* The step that meets the end of the file gives no token, and no later one either. */
static void test_truncated(void **state)
{
    (void)state;
    nb_error err;
    uint32_t tok[N_GEN];
    copy_model();
    reference(tok);
    const nb_engine_options o = options();
    nb_engine *e = open_with(&o);
    expect_tokens(e, 1, tok);
    assert_int_equal(truncate(at(shard), 40000), 0);
    check_line(&err, generate(e, 2, &err), shard);
    assert_int_equal(err.status, NB_ERR_FAILED);
    assert_int_equal(g.n_seen, 0);
    check_line(&err, nb_engine_health(e, &err), shard);
    assert_int_equal(err.status, NB_ERR_FAILED);
    assert_int_equal(atomic_load(&n_failed), 1);
    assert_non_null(strstr(news, "the engine has failed: "));
    assert_int_equal(generate(e, 3, &err), NB_ERR_FAILED);
    assert_int_equal(atomic_load(&n_failed), 1);
    nb_engine_destroy(e);
    /* An engine in the same process has nothing to do with it; this file does not load. */
    nb_engine *bad = NULL;
    check_line(&err, nb_engine_create(&o, &bad, &err), shard);
    tmp_close(&dir);
}

static void test_overwritten(void **state)
{
    (void)state;
    nb_error err;
    copy_model();
    const nb_engine_options o = options();
    nb_engine *e = open_with(&o);
    assert_int_equal(generate(e, 1, &err), NB_OK);
    (void)usleep(20000); /* the next tick of the file system's clock */
    overwrite(shard);
    wait_for(&n_failed); /* without a request */
    assert_non_null(strstr(news, "was changed in place"));
    assert_int_equal(generate(e, 2, &err), NB_ERR_FAILED);
    check_line(&err, nb_engine_health(e, &err), shard);
    nb_engine_destroy(e);
    tmp_close(&dir);
}

static void test_replaced(void **state)
{
    (void)state;
    nb_error err;
    uint32_t tok[N_GEN];
    copy_model();
    reference(tok);
    const nb_engine_options o = options();
    nb_engine *e = open_with(&o);
    tmp_write(&dir, "new", nb_str_c("something else"));
    assert_int_equal(rename(at("new"), at(shard)), 0);
    wait_for(&n_warning);
    assert_non_null(strstr(news, shard));
    expect_tokens(e, 1, tok);
    assert_int_equal(unlink(at("model-00001-of-00003.safetensors")), 0);
    (void)usleep(1500000);
    expect_tokens(e, 1, tok);
    assert_int_equal(atomic_load(&n_warning), 1); /* said once */
    assert_int_equal(atomic_load(&n_failed), 0);
    assert_int_equal(nb_engine_health(e, &err), NB_OK);
    nb_engine_destroy(e);
    tmp_close(&dir);
}

static void test_copied(void **state)
{
    (void)state;
    nb_error err;
    uint32_t tok[N_GEN];
    copy_model();
    reference(tok);
    nb_engine_options o = options();
    o.load_format = "copy";
    nb_engine *e = open_with(&o);
    assert_int_equal(truncate(at(shard), 40000), 0);
    overwrite("model-00001-of-00003.safetensors");
    expect_tokens(e, 1, tok);
    (void)usleep(1500000);
    expect_tokens(e, 1, tok);
    assert_int_equal(nb_engine_health(e, &err), NB_OK);
    assert_int_equal(atomic_load(&n_failed) + atomic_load(&n_warning), 0);
    nb_engine_destroy(e);
    tmp_close(&dir);
}

/* On a GPU the files are not needed once they are loaded, mapped or not. */
static void test_gpu(void **state)
{
    (void)state;
    nb_error err;
    uint32_t tok[N_GEN];
    nb_engine_options o = options();
    o.device = "cuda";
    o.cuda_library = getenv("NB_CUDA_EMU_LIBRARY");
    if (!o.cuda_library || !*o.cuda_library) skip();
    for (int copy = 0; copy < 2; copy++) {
        copy_model();
        o.load_format = copy ? "copy" : "auto";
        nb_engine *e = open_with(&o);
        assert_int_equal(generate(e, 1, &err), NB_OK);
        memcpy(tok, g.seen, sizeof tok);
        assert_int_equal(truncate(at(shard), 40000), 0);
        assert_int_equal(nb_engine_reset_prefix_cache(e, NULL), NB_OK);
        expect_tokens(e, 1, tok);
        assert_int_equal(nb_engine_health(e, &err), NB_OK);
        nb_engine_destroy(e);
        tmp_close(&dir);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_truncated), cmocka_unit_test(test_overwritten),
        cmocka_unit_test(test_replaced),  cmocka_unit_test(test_copied),
        cmocka_unit_test(test_gpu),
    };
    const int rc = cmocka_run_group_tests(tests, NULL, NULL);
    gen_reset(&g);
    return rc;
}
