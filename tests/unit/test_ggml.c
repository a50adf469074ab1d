/* test_ggml.c - the floats of GGUF's blocks: tests/data/ggml_blocks.bin has blocks of random bytes and what
 * llama.cpp's library makes of them (tests/e2e/gguf_oracle.sh).  They agree bit for bit, as weights too. */
#include "load_testing.h"

#include "kernel/linear/packed.h"
#include "load/gguf.h"

enum { MAX_BYTES = 1 << 16, MAX_VALUES = 768 };

static uint32_t u32_at(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void test_vectors(void **state)
{
    (void)state;
    const char *root = getenv("NB_SOURCE_DIR");
    char path[512];
    nb_buf file = { 0 };
    nb_error e = { 0 };
    size_t n_type = 0;
    (void)snprintf(path, sizeof path, "%s/tests/data/ggml_blocks.bin", root ? root : ".");
    if (nb_file_read(path, MAX_BYTES, &file, &e) != NB_OK) fail_msg("%s", e.msg);
    const uint8_t *p = (const uint8_t *)file.p, *end = p + file.n_bytes;
    for (; p < end; n_type++) {
        const nb_gguf_dtype *d = nb_gguf_dtype_of(u32_at(p));
        const size_t n_block = u32_at(p + 4), n = n_block * d->block;
        const uint8_t *block = p + 8, *want = block + n_block * d->block_bytes;
        float got[MAX_VALUES];
        assert_true(n <= MAX_VALUES && want + n * sizeof *got <= end);
        d->values(block, n_block, got);
        if (memcmp(got, want, n * sizeof *got) != 0) fail_msg("%s: other floats", d->name);
        /* as a row of a matrix: every part of it */
        const nb_wtype type = NB_W_Q8_0 + (nb_wtype)(d->dtype - NB_DT_Q8_0);
        const nb_weight w = {
            .data = block, .n_row = 1, .n_col = n, .type = type, .group.outer = 1
        };
        assert_int_equal(nb_wtypes[type].block, d->block);
        assert_int_equal(nb_wtypes[type].block_bytes, d->block_bytes);
        for (size_t c = 0; c < n; c += 37) {
            const size_t m = n - c < 100 ? n - c : 100;
            nb_packed_values(&w, 0, c, m, got);
            assert_memory_equal(got, want + c * sizeof *got, m * sizeof *got);
        }
        p = want + n * sizeof *got;
    }
    assert_int_equal(n_type, NB_DT_OTHER - NB_DT_Q8_0);
    nb_buf_deinit(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_vectors) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
