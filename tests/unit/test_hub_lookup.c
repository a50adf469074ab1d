/* test_hub_lookup.c - ids, the folders that variables name, revisions in a hub cache. */
#include "load_testing.h"

#include "load/hub.h"
#include "nibble/nibble.h"

#define COMMIT_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define COMMIT_AB "aaaaabbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define COMMIT_C "c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00"

static void test_ids(void **state)
{
    (void)state;
    static const struct {
        const char *text, *repo, *revision; /* repo NULL: no id */
    } rows[] = {
        { "a/b", "a/b", "main" },
        { "deepseek-ai/DeepSeek-V2-Lite", "deepseek-ai/DeepSeek-V2-Lite", "main" },
        { "zai-org/GLM-4.7-Flash@v1.0", "zai-org/GLM-4.7-Flash", "v1.0" },
        { "a/b@refs/pr/1", "a/b", "refs/pr/1" },
        { "_a/b_@" COMMIT_A, "_a/b_", COMMIT_A },
        { "", NULL, NULL },
        { "gpt2", NULL, NULL },
        { "a/", NULL, NULL },
        { "/b", NULL, NULL },
        { "a/b/c", NULL, NULL },
        { "a//b", NULL, NULL },
        { "./b", NULL, NULL },
        { "../b", NULL, NULL },
        { "a/..", NULL, NULL },
        { "a/b--c", NULL, NULL },
        { "a/b..c", NULL, NULL },
        { "-a/b", NULL, NULL },
        { "a/b.", NULL, NULL },
        { "a/b c", NULL, NULL },
        { "a/b\n", NULL, NULL },
        { "a/b@", NULL, NULL },
        { "a/b@../x", NULL, NULL },
        { "a/b@/x", NULL, NULL },
        { "a/b@x/", NULL, NULL },
        { "a/b@x y", NULL, NULL },
        { "a/b@x@y", NULL, NULL },
        { "a/b@x?y", NULL, NULL },
        { "@main", NULL, NULL },
    };
    nb_hub_id id;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const bool ok = nb_hub_id_parse(rows[i].text, &id);
        if (ok != (rows[i].repo != NULL)) fail_msg("'%s': %s", rows[i].text, ok ? "taken" : "not");
        if (!ok) continue;
        assert_string_equal(id.repo, rows[i].repo);
        assert_string_equal(id.revision, rows[i].revision);
    }
    char text[500];
    for (size_t n = 90; n < 300; n++) { /* names of up to 96 bytes, revisions below 200 */
        memset(text, 'x', sizeof text);
        memcpy(text, "a/", 2);
        text[2 + n] = 0;
        assert_int_equal(nb_hub_id_parse(text, &id), n <= 96);
        text[2 + n] = 'x';
        memcpy(text, "a/b@", 4);
        text[4 + n] = 0;
        assert_int_equal(nb_hub_id_parse(text, &id), n < sizeof id.revision);
    }
    assert_true(nb_hub_is_hash(COMMIT_A));
    assert_false(nb_hub_is_hash(COMMIT_A "a"));
    assert_false(nb_hub_is_hash("AAAAaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"));
    assert_false(nb_hub_is_hash(""));
}

static void clear_environment(void)
{
    static const char *const names[] = { "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME",
                                         "XDG_CACHE_HOME", "HOME" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_int_equal(unsetenv(names[i]), 0);
}

static void check_cache(const char *want)
{
    nb_buf b = { 0 };
    nb_error e = { 0 };
    assert_int_equal(nb_hub_cache(&b, &e), NB_OK);
    assert_string_equal(b.p, want);
    nb_buf_deinit(&b);
}

/* From the last that counts to the first. */
static void test_variables(void **state)
{
    (void)state;
    nb_buf b = { 0 };
    nb_error e = { 0 };
    clear_environment();
    check_line(&e, nb_hub_cache(&b, &e), "HF_HOME");
    assert_int_equal(e.status, NB_ERR_NOT_FOUND);
    nb_buf_deinit(&b);
    (void)setenv("HOME", "/h", 1);
    check_cache("/h/.cache/huggingface/hub");
    (void)setenv("XDG_CACHE_HOME", "/x", 1);
    check_cache("/x/huggingface/hub");
    (void)setenv("HF_HOME", "~/hf", 1);
    check_cache("/h/hf/hub");
    (void)setenv("HF_HOME", "/hf/", 1);
    check_cache("/hf/hub");
    (void)setenv("HUGGINGFACE_HUB_CACHE", "/old", 1);
    check_cache("/old");
    (void)setenv("HF_HUB_CACHE", "/new", 1);
    check_cache("/new");
    (void)setenv("HF_HUB_CACHE", "", 1); /* empty is not set */
    check_cache("/old");
    clear_environment();
}

static void make_dir(const char *fmt, const char *cache, const char *name)
{
    char path[800];
    (void)snprintf(path, sizeof path, fmt, cache, name);
    for (char *p = path + 1; *p; p++) {
        if (*p != '/') continue;
        *p = 0;
        (void)mkdir(path, 0777);
        *p = '/';
    }
    (void)mkdir(path, 0777);
}

static void make_file(const char *fmt, const char *cache, const char *name, const char *text)
{
    char path[800];
    (void)snprintf(path, sizeof path, fmt, cache, name);
    assert_int_equal(nb_file_write(path, text, strlen(text), NULL), NB_OK);
}

static void find(const char *cache, const char *text, const char *commit)
{
    nb_hub_id id;
    nb_error e = { 0 };
    nb_buf b = { 0 };
    char want[800];
    assert_true(nb_hub_id_parse(text, &id));
    if (nb_hub_find(cache, &id, &b, &e) != NB_OK) fail_msg("%s: %s", text, e.msg);
    (void)snprintf(want, sizeof want, "%s/models--o--m/snapshots/%s", cache, commit);
    assert_string_equal(b.p, want);
    nb_buf_deinit(&b);
}

static void find_none(const char *cache, const char *text, const char *line)
{
    nb_hub_id id;
    nb_error e = { 0 };
    nb_buf b = { 0 };
    assert_true(nb_hub_id_parse(text, &id));
    check_line(&e, nb_hub_find(cache, &id, &b, &e), line);
    assert_null(b.p);
}

static void test_find(void **state)
{
    (void)state;
    tmp_dir t;
    tmp_open(&t);
    const char *refs = "%s/models--o--m/refs/%s", *snapshots = "%s/models--o--m/snapshots/%s";
    find_none(t.path, "o/m", "o/m: no such folder, and not in the hub cache");
    find_none(t.path, "o/m@v1", "`nibble pull o/m@v1` downloads it");
    make_dir(snapshots, t.path, COMMIT_A);
    make_dir(snapshots, t.path, COMMIT_AB);
    make_dir(snapshots, t.path, COMMIT_C);
    make_dir(refs, t.path, "refs/pr");
    find_none(t.path, "o/m", "revision main is not in the hub cache");
    find_none(t.path, "o/m", "`nibble pull o/m` downloads it or goes on");
    make_file(refs, t.path, "main", COMMIT_A "\n");
    make_file(refs, t.path, "refs/pr/1", COMMIT_AB);
    find(t.path, "o/m", COMMIT_A);
    find(t.path, "o/m@refs/pr/1", COMMIT_AB);
    /* commits, whole and shortened */
    find(t.path, "o/m@" COMMIT_C, COMMIT_C);
    find(t.path, "o/m@c0ffe", COMMIT_C);
    find(t.path, "o/m@aaaaab", COMMIT_AB);
    find_none(t.path, "o/m@aaaaa", "o/m@aaaaa: 2 commits in the hub cache begin so");
    find_none(t.path, "o/m@c0ff", "revision c0ff is not");
    find_none(t.path, "o/m@ddddd", "revision ddddd is not");
    /* a branch may have a name that looks like a commit */
    make_file(refs, t.path, "c0ffee", COMMIT_A);
    find(t.path, "o/m@c0ffee", COMMIT_A);
    /* what a reference may hold */
    static const char *const bad[] = { "",         "../../x",
                                       "/etc",     COMMIT_A "0",
                                       "deadbeef", "dddddddddddddddddddddddddddddddddddddddd" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        make_file(refs, t.path, "main", bad[i]);
        find_none(t.path, "o/m", "revision main is not");
    }
    assert_int_equal(setenv("HF_HUB_CACHE", t.path, 1), 0);
    char *path = NULL;
    nb_error e = { 0 };
    assert_int_equal(nb_model_find("o/m@c0ffe", &path, &e), NB_OK);
    assert_non_null(strstr(path, COMMIT_C));
    nb_free(path);
    assert_int_equal(nb_model_find(t.path, &path, &e), NB_OK); /* a path is itself */
    assert_string_equal(path, t.path);
    nb_free(path);
    assert_int_equal(nb_model_find("./no/such", &path, &e), NB_OK);
    assert_string_equal(path, "./no/such");
    nb_free(path);
    clear_environment();
    tmp_close(&t);
}

static void missing(const char *dir, nb_status st, const char *words)
{
    nb_error e = { .status = st, .msg = "it lacks x" };
    assert_int_equal(nb_hub_missing(dir, st, &e), st);
    if (words && !strstr(e.msg, words)) fail_msg("'%s' not in: %s", words, e.msg);
    if (!words) assert_string_equal(e.msg, "it lacks x");
}

static void test_missing(void **state)
{
    (void)state;
    tmp_dir t;
    tmp_open(&t);
    char dir[800];
    make_dir("%s/models--o--m/refs", t.path, "");
    make_file("%s/models--o--m/refs/%s", t.path, "main", COMMIT_A);
    (void)snprintf(dir, sizeof dir, "%s/models--o--m/snapshots/" COMMIT_A "/", t.path);
    missing(dir, NB_ERR_NOT_FOUND, "it lacks x; `nibble pull o/m` downloads what is missing");
    missing(dir, NB_ERR_IO, NULL);
    missing("/c/models--o--m/snapshots/" COMMIT_C, NB_ERR_NOT_FOUND, "`nibble pull o/m@" COMMIT_C);
    missing("/c/models--o--m/snapshots/main", NB_ERR_NOT_FOUND, NULL);
    missing("/c/datasets--o--m/snapshots/" COMMIT_C, NB_ERR_NOT_FOUND, NULL);
    missing("/c/models--om/snapshots/" COMMIT_C, NB_ERR_NOT_FOUND, NULL);
    missing("/c/models--o--m/snapshots/" COMMIT_C "/sub", NB_ERR_NOT_FOUND, NULL);
    missing("models/o", NB_ERR_NOT_FOUND, NULL);
    missing("", NB_ERR_NOT_FOUND, NULL);
    assert_int_equal(nb_hub_missing(dir, NB_ERR_NOT_FOUND, NULL), NB_ERR_NOT_FOUND);
    tmp_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_variables),
        cmocka_unit_test(test_find),
        cmocka_unit_test(test_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
