/* check_cuda_zero_experts.c - the rows of choices that give back what they read, by their definition in double: places of
 * zero experts become x, all others stay. */
#include "check/check.h"
#include "check/check_cuda.h"
#include "num/bf16.h"

static void one_case(chk *t, size_t n_place, size_t dim, bool two)
{
    enum { ZEROS = 3 };
    const size_t n_tok = chk_between(t, 1, 6), stride = (dim + 7) / 8 * 8;
    const size_t y_stride = dim + 4 * chk_between(t, 0, 2);
    float *x = chk_in_rows(t, n_tok, dim, dim, CHK_RUNS);
    nb_cuda_zero_experts_args a = { .n_zero = ZEROS,
                                    .n_place = n_place,
                                    .dim = dim,
                                    .y_stride = y_stride };
    a.x = chk_gpu_in_rows(t, x, n_tok, dim, stride, two ? 2 : 1);
    uint32_t *src = chk_raw(t, n_place * sizeof *src), *first = chk_raw(t, (ZEROS + 1) * sizeof *first);
    for (size_t p = 0; p < n_place; p++) src[p] = (uint32_t)chk_between(t, 0, n_tok - 1);
    for (size_t i = 0, at = chk_between(t, 0, n_place); i <= ZEROS; i++) {
        first[i] = (uint32_t)at; /* those in front are of other experts, those behind of nobody */
        at = i + 1 == ZEROS && chk_u64(t) % 2 ? n_place : chk_between(t, at, n_place);
    }
    a.src = chk_gpu_in(t, src, n_place * sizeof *src);
    a.first = chk_gpu_in(t, first, (ZEROS + 1) * sizeof *first);
    a.y = chk_gpu_out(t, n_place * y_stride * sizeof *a.y);
    chk_gpu_call(t, chk_gpu_api(t)->zero_experts(chk_gpu(t), &a));
    float *y = chk_raw(t, n_place * y_stride * sizeof *y);
    chk_gpu_get(t, y, a.y, n_place * y_stride * sizeof *y);
    static const unsigned char fill[] = { 0xa5, 0xa5, 0xa5, 0x7f };
    for (size_t i = 0; i < n_place * y_stride; i++) {
        const size_t p = i / y_stride, c = i % y_stride;
        if (p < first[0] || p >= first[ZEROS] || c >= dim) {
            if (memcmp(&y[i], fill, sizeof fill) != 0)
                chk_fail(t, "place %zu, value %zu was written", p, c);
            continue;
        }
        const double v = (double)x[src[p] * dim + c];
        const double want = two ? v : (double)nb_bf16_to_f32(nb_bf16_from_f32((float)v));
        if (!(fabs((double)y[i] - want) <= 0x1p-17 * fabs(v) + 0x1p-133))
            chk_fail(t, "place %zu, value %zu is %g, expected %g", p, c, (double)y[i], want);
    }
}

static void test(chk *t, const chk_row *row)
{
    (void)row;
    static const size_t dims[] = { 1, 7, 64, 513, 1032, 6144 };
    for (size_t d = 0; d < NB_COUNT(dims); d++)
        for (unsigned k = 0; k < 4; k++)
            if (chk_case(t, "dim=%zu %u", dims[d], k))
                one_case(t, chk_between(t, 1, 12), dims[d], k % 2 != 0);
}

const chk_op chk_cuda_zero_experts = { "cuda_zero_experts", chk_gpu_row, test, NULL, NULL };
