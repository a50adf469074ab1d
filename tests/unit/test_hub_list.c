/* test_hub_list.c - which files of a repository are chosen, pages, lists of hashes, digests. */
#include "load_testing.h"

#include "hub/digest.h"
#include "hub/list.h"
#include "hub/verify.h"

#define HEX40 "0123456789abcdef0123456789abcdef01234567"
#define HEX64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void add_file(nb_hub_list *l, const char *path)
{
    char json[400];
    nb_error e = { 0 };
    (void)snprintf(json, sizeof json,
                   "[{\"type\":\"file\",\"path\":\"%s\",\"oid\":\"" HEX40 "\",\"size\":3}]", path);
    assert_int_equal(nb_hub_parse_tree(nb_str_c(json), "x", l, &e), NB_OK);
}

/* `files` and `want` are names joined by blanks. */
static void check_choice(const char *files, const char *include, const char *exclude,
                         const char *want)
{
    nb_hub_list l = { 0 };
    nb_buf got = { 0 };
    char all[600], *save = NULL;
    (void)snprintf(all, sizeof all, "%s", files);
    for (char *p = strtok_r(all, " ", &save); p; p = strtok_r(NULL, " ", &save)) add_file(&l, p);
    nb_hub_list_select(&l, (nb_hub_globs){ &include, include != NULL },
                       (nb_hub_globs){ &exclude, exclude != NULL });
    assert_int_equal(l.n_bytes, 3 * l.n);
    assert_int_equal(nb_buf_add_c(&got, ""), NB_OK);
    for (size_t i = 0; i < l.n; i++)
        assert_int_equal(nb_buf_printf(&got, "%s%s", i ? " " : "", l.file[i].path), NB_OK);
    assert_string_equal(got.p, want);
    nb_buf_deinit(&got);
    nb_hub_list_deinit(&l);
}

static void test_choice(void **state)
{
    (void)state;
    static const char all[] =
        "config.json generation_config.json tokenizer.json tokenizer.model tokenizer.py tiktoken.model "
        "model-00001-of-00002.safetensors model.safetensors.index.json consolidated.safetensors "
        "pytorch_model.bin model.gguf original/x.safetensors onnx/model.onnx LICENSE LICENSE-MODEL "
        "README.md merges.txt notes.txt chat_template.jinja modeling_x.py .gitattributes figures/a.png";
    check_choice(
        all, NULL, NULL,
        "config.json generation_config.json tokenizer.json tokenizer.model tiktoken.model "
        "model-00001-of-00002.safetensors model.safetensors.index.json LICENSE LICENSE-MODEL "
        "README.md merges.txt chat_template.jinja");
    check_choice(
        all, "*.safetensors", NULL,
        "model-00001-of-00002.safetensors consolidated.safetensors original/x.safetensors");
    check_choice(all, "*.safetensors", "original/",
                 "model-00001-of-00002.safetensors consolidated.safetensors");
    check_choice(all, "original/*", NULL, "original/x.safetensors");
    check_choice("a.json b.json c.json", "[!a].json", "c*", "b.json");
    check_choice("params.json tekken.json consolidated-00001-of-00002.safetensors consolidated.safetensors.index.json "
                 "x/consolidated.safetensors",
                 NULL, NULL,
                 "params.json tekken.json consolidated-00001-of-00002.safetensors "
                 "consolidated.safetensors.index.json");
    check_choice("a.json A.json", "a.*", NULL, "a.json");
    check_choice("a.json", "*.bin", NULL, "");
}

static void test_pages(void **state)
{
    (void)state;
    static const struct {
        const char *link, *url;
    } rows[] = {
        { "<https://h/a?b=1&c=2>; rel=\"next\"", "https://h/a?b=1&c=2" },
        { "<https://h/1>; rel=\"prev\", <https://h/2>; rel=\"next\"", "https://h/2" },
        { "<https://h/1>; rel=next", "https://h/1" },
        { "<https://h/1>; rel=\"last\"", NULL },
        { "<>; rel=\"next\"", NULL },
        { "<https://h/1", NULL },
        { "", NULL },
        { "<https://h/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa>; rel=\"next\"",
          NULL },
    };
    char url[40];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const bool ok = nb_hub_next_page(rows[i].link, url, sizeof url);
        assert_int_equal(ok, rows[i].url != NULL);
        if (ok) assert_string_equal(url, rows[i].url);
    }
}

static void test_digests(void **state)
{
    (void)state;
    nb_hub_digest d = { 0 };
    nb_error e = { 0 };
    char hex[65];
    /* `printf hello | git hash-object --stdin`, `printf hello | sha256sum` */
    assert_int_equal(nb_hub_digest_begin(&d, HEX40, 5, &e), NB_OK);
    nb_hub_digest_add(&d, "hello", 5);
    nb_hub_digest_end(&d, hex);
    assert_string_equal(hex, "b6fc4c620b67d95f953a5c1c1230aaab5db5a1b0");
    assert_int_equal(nb_hub_digest_begin(&d, HEX64, 5, &e), NB_OK);
    nb_hub_digest_add(&d, "hel", 3);
    nb_hub_digest_add(&d, "lo", 2);
    nb_hub_digest_end(&d, hex);
    assert_string_equal(hex, "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824");
    nb_hub_digest_deinit(&d);
}

static void test_sums(void **state)
{
    (void)state;
    tmp_dir t;
    nb_hub_checks c = { 0 };
    nb_error e = { 0 };
    tmp_open(&t);
    tmp_write(&t, "hello", nb_str_c("hello"));
    tmp_write(&t, "other", nb_str_c("hello"));
    assert_int_equal(nb_hub_checks_walk(&c, t.path, &e), NB_OK);
    assert_int_equal(c.n, 2);
    assert_int_equal(c.n_bytes, 10);
    static const char list[] =
        "2CF24DBA5FB0A30E26E83B2AC5B9E29E1B161E5C1FA7425E73043362938B9824 *./hello\r\n\n"
        "# remark\n" HEX64 "  other\n" HEX64 "  absent"; /* no line end */
    assert_int_equal(nb_hub_checks_sums(&c, nb_str_c(list), "list", &e), NB_OK);
    assert_int_equal(c.n, 3);
    assert_int_equal(nb_hub_checks_run(&c, t.path, 2, NULL, NULL, NULL, &e), NB_OK);
    assert_int_equal(c.p[0].verdict, NB_HUB_GOOD);
    assert_int_equal(c.p[1].verdict, NB_HUB_BAD);
    assert_non_null(strstr(c.p[1].why, "its SHA-256 is 2cf24dba"));
    assert_string_equal(c.p[2].name, "absent");
    assert_string_equal(c.p[2].why, "it is missing");
    static const char *const bad[] = { "x  y",      HEX40 "  y", HEX64 "  ../y", HEX64 "  /y",
                                       HEX64 "\ty", HEX64 "  ",  HEX64 };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        check_line(&e, nb_hub_checks_sums(&c, nb_str_c(bad[i]), "list", &e), "list:1: expected 64");
    nb_hub_checks_deinit(&c);
    tmp_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_pages),
        cmocka_unit_test(test_digests),
        cmocka_unit_test(test_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
