/* test_leftover.c - which unused tensors are worth a word. */
#include "load_testing.h"

#include "base/attr.h"
#include "model/leftover.h"

/* A source of one-byte tensors. */
static nb_source *source_of(const char *const *names, size_t n, nb_buf *bytes)
{
    nb_error e;
    nb_source *s = NULL;
    nb_buf head = { 0 };
    assert_int_equal(nb_buf_add_c(&head, "{"), NB_OK);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(nb_buf_printf(&head,
                                       "%s\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":"
                                       "[%zu,%zu]}",
                                       i ? "," : "", names[i], i, i + 1),
                         NB_OK);
    assert_int_equal(nb_buf_add_c(&head, "}"), NB_OK);
    st_build(bytes, head.p, n);
    nb_buf_deinit(&head);
    if (nb_source_open_bytes(nb_buf_view(bytes), "test", &s, &e) != NB_OK) fail_msg("%s", e.msg);
    return s;
}

static size_t count(const nb_model_config *c, const char *const *names, size_t n, char text[200])
{
    nb_buf bytes = { 0 };
    nb_source *s = source_of(names, n, &bytes);
    nb_tensor t;
    const nb_tensor_want used = {
        .name = names[0], .dtypes = 1u << NB_DT_U8, .n_dim = 1, .dim = { 1 }
    };
    assert_int_equal(nb_source_take(s, &used, &t, NULL), NB_OK);
    const size_t left = nb_model_leftovers(c, s, text, 200);
    nb_source_close(s);
    nb_buf_deinit(&bytes);
    return left;
}

static void test_known(void **state)
{
    static const char *const names[] = {
        "model.embed_tokens.weight", /* taken */
        "model.layers.2.eh_proj.weight",
        "model.layers.2.mlp.experts.0.up_proj.weight",
        "model.layers.3.shared_head.norm.weight",
        "mtp.0.norm.weight",
        "vision_tower.blocks.0.weight",
        "mm_projector.proj.weight",
        "visual.patch_embed.weight",
        "model.layers.0.self_attn.rotary_emb.inv_freq",
        "model.layers.1.self_attn.k_proj.k_scale",
        "model.layers.1.mlp.up_proj.input_scale",
    };
    (void)state;
    char text[200];
    const nb_model_config c = { .n_layer = 2, .n_nextn = 2 };
    assert_int_equal(count(&c, names, NB_COUNT(names), text), 0);
    assert_string_equal(text, "");
}

static void test_unknown(void **state)
{
    static const char *const names[] = {
        "model.embed_tokens.weight", "model.layers.1.a.weight",
        "model.layers.2.b.weight",   "model.layers.3.c.weight",
        "model.layers.4.d.weight",   "model.layers.2x.e.weight",
        "avision_tower.weight",      "inv_freq",
    };
    (void)state;
    char text[200];
    nb_model_config c = { .n_layer = 2, .n_nextn = 1 };
    assert_int_equal(count(&c, names, NB_COUNT(names), text), 6);
    assert_string_equal(text, "model.layers.1.a.weight, model.layers.3.c.weight, "
                              "model.layers.4.d.weight, ...");
    c.n_nextn = 0;
    assert_int_equal(count(&c, names, 3, text), 2);
    assert_string_equal(text, "model.layers.1.a.weight, model.layers.2.b.weight");
    assert_int_equal(count(&c, names, 1, text), 0);
}

/* Long names: the text ends where its room does. */
static void test_long(void **state)
{
    static char name[3][180];
    const char *names[3];
    (void)state;
    char text[200];
    const nb_model_config c = { .n_layer = 2 };
    for (size_t i = 0; i < 3; i++) {
        memset(name[i], 'a' + (int)i, sizeof name[i] - 1);
        names[i] = name[i];
    }
    assert_int_equal(count(&c, names, 3, text), 2);
    assert_true(strlen(text) < sizeof text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known),
        cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
