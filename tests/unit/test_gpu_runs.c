/* test_gpu_runs.c - routed experts divided into runs of neighbours with the same forms (model/gpu/gpu_runs.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/status.h"
#include "model/gpu/gpu_runs.h"

enum { EXPERTS = 7, ROWS = 8, COLS = 64 };

static bool floats_only(nb_wtype type, size_t n_out, size_t n_col)
{
    (void)n_out;
    (void)n_col;
    return type == NB_W_F32;
}
static bool packed_or_bf16(nb_wtype type, size_t n_out, size_t n_col)
{
    (void)n_out;
    (void)n_col;
    return type == NB_W_BF16 || type == NB_W_INT4 || type == NB_W_BYTE;
}
static const nb_cuda_experts_row rows[] = {
    { "codes", 80, NB_CUDA_DIRECT, false, packed_or_bf16, NULL, true },
    { "mma", 80, NB_CUDA_DIRECT, false, packed_or_bf16, NULL, false },
    { "simt", 80, NB_CUDA_DIRECT, true, floats_only, NULL, false },
    { "late", 90, NB_CUDA_PROMPT, false, packed_or_bf16, NULL, false },
    { NULL, 0, NB_CUDA_DIRECT, false, NULL, NULL, false },
};
static const nb_gpu_row_limits limits = { rows, 80, { true, false }, false };

static uint16_t scale[ROWS * COLS / 32];
static uint8_t code[ROWS * COLS * 4], zero[ROWS * COLS / 32];

static nb_weight matrix(char form)
{
    nb_weight w = { .data = code, .n_row = ROWS, .n_col = COLS, .type = NB_W_BF16 };
    if (form == 'p') return w; /* plain */
    w.type = form == '8' ? NB_W_BYTE : NB_W_INT4;
    w.group = (nb_wgroups){ .scale = scale, .size = form == 'o' ? 8 : 32, .scale_type = NB_S_BF16, .outer = 1 };
    if (form == 'z') w.group.zero = zero; /* zero points are added to a run's form */
    return w;     /* 'o': groups without tiles, which become floats */
}

/* forms: gate, up and down of each expert. */
static nb_status divide(const char *forms, const nb_rank_part *part, nb_arena *a, nb_gpu_experts *x, nb_error *err)
{
    static nb_mlp expert[EXPERTS];
    for (size_t e = 0; e < EXPERTS; e++) {
        expert[e].gate = matrix(forms[4 * e]);
        expert[e].up = matrix(forms[4 * e + 1]);
        expert[e].down = matrix(forms[4 * e + 2]);
    }
    return nb_gpu_runs_init(x, expert, 5, part, &limits, a, err);
}

static void check_run(const nb_gpu_experts *x, size_t i, size_t first, size_t n, bool apart, const char *up,
                      const char *down)
{
    const nb_gpu_run *r = &x->run[i];
    assert_int_equal(r->first, first);
    assert_int_equal(r->n, n);
    assert_int_equal(r->apart, apart);
    assert_string_equal(r->row[NB_GPU_GATE][0]->name, up);
    assert_string_equal(r->row[NB_GPU_DOWN][0]->name, down);
    assert_int_equal(r->row[NB_GPU_UP][0] != NULL, apart);
    assert_null(r->row[NB_GPU_GATE][1]);
}

static const nb_rank_part whole = { .expert_step = 1, .n_expert = EXPERTS };

static void test_runs(void **state)
{
    (void)state;
    nb_arena a = { 0 };
    nb_gpu_experts x;
    assert_int_equal(divide("444 444 444 444 444 444 444 ", &whole, &a, &x, NULL), NB_OK);
    assert_int_equal(x.n_run, 1);
    check_run(&x, 0, 0, EXPERTS, false, "mma", "mma");
    assert_true(nb_gpu_runs_can_send(&x) && !x.apart && !x.floats);
    assert_int_equal(divide("444 44z 44p 44p 48p 48p ooo ", &whole, &a, &x, NULL), NB_OK);
    assert_int_equal(x.n_run, 4);
    check_run(&x, 0, 0, 2, false, "mma", "mma");
    assert_true(x.run[0].form[NB_GPU_DOWN].tile.zeros && !x.run[0].form[NB_GPU_UP].tile.zeros);
    check_run(&x, 1, 2, 2, false, "mma", "mma");
    check_run(&x, 2, 4, 2, true, "mma", "mma");
    check_run(&x, 3, 6, 1, false, "simt", "simt");
    assert_true(x.apart && x.floats && !nb_gpu_runs_can_send(&x));
    nb_arena_deinit(&a);
}

/* A rank has every second expert; its neighbours are those of its own. */
static void test_ranks(void **state)
{
    (void)state;
    nb_arena a = { 0 };
    nb_gpu_experts x;
    const nb_rank_part part = { .expert0 = 1, .expert_step = 2, .n_expert = 3 }, none = { .expert_step = 1 };
    assert_int_equal(divide("444 ppp 444 ppp 444 ppp 444 ", &part, &a, &x, NULL), NB_OK);
    assert_int_equal(x.n_run, 1);
    check_run(&x, 0, 0, 3, false, "mma", "mma");
    assert_int_equal(x.run->form[NB_GPU_GATE].type, NB_W_BF16);
    assert_int_equal(divide("444 ppp 444 ppp 444 444 444 ", &part, &a, &x, NULL), NB_OK);
    assert_int_equal(x.n_run, 2);
    check_run(&x, 1, 2, 1, false, "mma", "mma");
    assert_int_equal(divide("444 ppp 444 ppp 444 444 444 ", &none, &a, &x, NULL), NB_OK);
    assert_int_equal(x.n_run, 0);
    assert_false(nb_gpu_runs_can_send(&x));
    nb_arena_deinit(&a);
}

/* What they take: 4 bits and 8 bytes of scales per 128 columns that are there, and a float per row. */
static void test_bytes(void **state)
{
    (void)state;
    nb_arena a = { 0 };
    nb_gpu_experts x;
    nb_mlp expert[EXPERTS];
    for (size_t e = 0; e < EXPERTS; e++) expert[e] = (nb_mlp){ matrix('4'), matrix('4'), matrix('p'), 0, 0, 0 };
    assert_int_equal(divide("44p 44p 44p 44p 44p 44p 44p ", &whole, &a, &x, NULL), NB_OK);
    assert_int_equal(nb_gpu_runs_bytes(&x, expert, &whole),
                     EXPERTS * ROWS * (2 * (64 + 8 + sizeof(float)) + COLS * sizeof(uint16_t)));
    nb_arena_deinit(&a);
}

static void test_no_product(void **state)
{
    (void)state;
    nb_arena a = { 0 };
    nb_gpu_experts x;
    nb_error err = { 0 };
    static const nb_cuda_experts_row none[] = { { NULL, 0, NB_CUDA_DIRECT, false, NULL, NULL, false } };
    const nb_gpu_row_limits no = { none, 90, { true, true }, true };
    nb_mlp expert[EXPERTS];
    for (size_t e = 0; e < EXPERTS; e++) expert[e] = (nb_mlp){ matrix('4'), matrix('4'), matrix('4'), 0, 0, 0 };
    assert_int_equal(nb_gpu_runs_init(&x, expert, 5, &whole, &no, &a, &err), NB_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "model.layers.5.mlp.experts"));
    nb_arena_deinit(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runs),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_no_product),
    };
    return cmocka_run_group_tests_name("gpu_runs", tests, NULL, NULL);
}
