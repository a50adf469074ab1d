/* test_kv_b.c - W_kv_b from its halves (model/kv_b.h): W_UK turned back, W_UV as it is, exactly. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/rng.h"
#include "kernel/linear/packed.h"
#include "model/kv_b.h"
#include "num/fp16.h"

enum { HEADS = 3, LORA = 40, NOPE = 32, D_V = 21 }; /* LORA, D_V: no multiple of 16 */

static void test_halves(void **state)
{
    (void)state;
    enum { BLOCK = 34 }; /* Q8_0 */
    static uint8_t k[HEADS * LORA][BLOCK];
    static uint16_t v[HEADS * D_V][LORA];
    static float head[(NOPE + D_V) * LORA + 16 * NOPE], row[NOPE];
    for (size_t i = 0; i < HEADS * LORA; i++) {
        const uint16_t d = nb_fp16_from_f32(0.01f + 0.001f * (float)(i % 7));
        for (size_t c = 2; c < BLOCK; c++) k[i][c] = (uint8_t)nb_rng_u64(5, i * BLOCK + c);
        memcpy(k[i], &d, 2);
        for (size_t c = 0; i < HEADS * D_V && c < LORA; c++) v[i][c] = nb_fp16_from_f32((float)((i * LORA + c) % 2000));
    }
    const nb_attn_config a = { .n_head = HEADS, .kv_lora = LORA, .d_nope = NOPE, .d_v = D_V };
    nb_layer l = { .absorb_k = { .data = k, .n_row = HEADS * LORA, .n_col = NOPE, .type = NB_W_Q8_0 },
                   .absorb_v = { .data = v, .n_row = HEADS * D_V, .n_col = LORA, .type = NB_W_F16 } };
    nb_arena arena = { 0 };
    nb_weight all;
    assert_true(nb_kv_b_in_halves(&l));
    assert_true(nb_kv_b_head_floats(&a) <= sizeof head / sizeof *head);
    assert_int_equal(nb_kv_b_joined(&l, &a, &arena, &all, NULL), NB_OK);
    assert_int_equal(all.n_row, HEADS * (NOPE + D_V));
    assert_int_equal(all.n_col, LORA);
    for (size_t h = 0; h < HEADS; h++) {
        const float *own = (const float *)all.data + h * (NOPE + D_V) * LORA;
        nb_kv_b_head(&l, &a, h, head);
        assert_memory_equal(head, own, (NOPE + D_V) * LORA * sizeof *own);
        for (size_t c = 0; c < LORA; c++) {
            nb_packed_values(&l.absorb_k, h * LORA + c, 0, NOPE, row);
            for (size_t i = 0; i < NOPE; i++) assert_true(own[i * LORA + c] == row[i]);
            for (size_t i = 0; i < D_V; i++)
                assert_true(own[(NOPE + i) * LORA + c] == (float)(((h * D_V + i) * LORA + c) % 2000));
        }
    }
    nb_arena_deinit(&arena);
    l.absorb_k.data = NULL;
    assert_false(nb_kv_b_in_halves(&l));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_halves) };
    return cmocka_run_group_tests_name("kv_b", tests, NULL, NULL);
}
