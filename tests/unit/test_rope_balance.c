/* test_rope_balance.c - factors of rope pairs: powers of two, one per pair, undone in the queries,
 * the same for a model whose pairs were made larger; and of no effect where nothing is rounded. */
#include "engine_testing.h"

#include <math.h>

#include "engine/engine_internal.h"
#include "kernel/embed/embed.h"

static const char *const models[] = { "tests/parity/v3",          "tests/parity/v3_geom",
                                      "tests/parity/v3_halfrope", "tests/parity/v3_fp8",
                                      "tests/parity/v3_bias",     "tests/parity/minicpm3_long" };

static double length(const nb_model_config *c, const nb_layer *l, size_t row)
{
    const uint32_t id = (uint32_t)row;
    float *w = calloc(c->hidden, sizeof *w);
    double sum = l->kv_a_b ? (double)l->kv_a_b[row] * l->kv_a_b[row] : 0;
    assert_non_null(w);
    nb_embed_c(&(nb_embed_args){
        .y = w, .id = &id, .n_tok = 1, .y_stride = c->hidden, .factor = 1, .w = l->kv_a });
    for (size_t i = 0; i < c->hidden; i++) sum += pow((double)w[i] * l->in_norm[i], 2);
    free(w);
    return sum;
}

static void check_layer(const nb_model_config *c, const nb_layer *l)
{
    const size_t half = c->attn[0].d_rope / 2;
    for (size_t p = 0; p < half; p++) {
        const size_t a = c->attn[0].rope.interleaved ? 2 * p : p,
                     b = c->attn[0].rope.interleaved ? a + 1 : a + half;
        const double size =
            sqrt(length(c, l, c->attn[0].kv_lora + a) + length(c, l, c->attn[0].kv_lora + b));
        const double k = l->rope_k ? l->rope_k[a] : 1, q = l->rope_q ? l->rope_q[a] : 1;
        int e;
        assert_true(frexp(k, &e) == 0.5);
        assert_true(k * q == 1);
        if (l->rope_k) {
            assert_true(l->rope_k[a] == l->rope_k[b]);
            assert_true(l->rope_q[a] == l->rope_q[b]);
        }
        if (k < 4096 && k > 1 / 4096.0 && !(size * k > 0.7 && size * k < 1.415))
            fail_msg("pair %zu has size %g and factor %g", p, size, k);
    }
}

static void test_factors(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        nb_engine *e = simple_engine(models[i], "bf16");
        for (size_t l = 0; l < e->model.c.n_layer; l++)
            check_layer(&e->model.c, &e->model.layer[l]);
        nb_engine_destroy(e);
    }
}

/* Without the factors: the same bits from caches that round to 8 significant bits or not at all. */
static void test_no_effect(void **state)
{
    (void)state;
    static const char *const types[] = { "f32", "bf16" };
    uint32_t id[100];
    const size_t row[] = { 10, 63, 64, 70, 99 }, n = sizeof row / sizeof *row;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        for (size_t t = 0; t < 2; t++) {
            nb_engine *e = simple_engine(models[i], types[t]);
            const size_t v = vocab_of(e);
            random_ids(id, 100, v, 3);
            float *with = logits_at(e, id, 100, row, n);
            nb_engine_destroy(e);
            e = simple_engine(models[i], types[t]);
            bool any = false;
            for (size_t l = 0; l < e->model.c.n_layer; l++) {
                any |= e->model.layer[l].rope_k != NULL;
                e->model.layer[l].rope_k = e->model.layer[l].rope_q = NULL;
            }
            assert_true(any);
            float *without = logits_at(e, id, 100, row, n);
            if (!same_floats(with, without, n * v)) fail_msg("%s, %s", models[i], types[t]);
            free(with);
            free(without);
            nb_engine_destroy(e);
        }
}

int main(void)
{
    if (!have_file("tests/parity/v3_geom/config.json")) {
        (void)printf("skipped: no parity checkpoints\n");
        return SKIP_EXIT;
    }
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_factors),
                                        cmocka_unit_test(test_no_effect) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
