/* check_cuda_buffers.c - the device's own functions through the checker, and the mistakes that its
 * canaries must find: what writes is a fill of the device, in the right place or not. */
#include "check/check_cuda.h"

typedef struct mistake {
    ptrdiff_t at; /* where a byte too many is written, relative to the output */
    bool input;   /* the last byte of the input is */
} mistake;

static void test(chk *t, const chk_row *row)
{
    static const size_t sizes[] = { 1, 4, 255, 256, 257, 4096, 100003 };
    const mistake *m = row->row;
    for (size_t k = 0; k < NB_COUNT(sizes); k++) {
        const size_t n = sizes[k];
        if (!chk_case(t, "%zu bytes", n)) continue;
        unsigned char *in = chk_raw(t, n), *out = chk_raw(t, n);
        for (size_t i = 0; i < n; i++) in[i] = (unsigned char)chk_u64(t);
        const nb_cuda_api *api = chk_gpu_api(t);
        nb_cuda *g = chk_gpu(t);
        unsigned char *x = chk_gpu_in(t, in, n), *y = chk_gpu_out(t, n);
        chk_gpu_arm(t);
        api->copy(g, y, x, n);
        api->fill(g, y + n / 2, 7, 1);
        if (m->at) api->fill(g, m->at > 0 ? y + n : y + m->at, 0, 1);
        if (m->input) api->fill(g, x + n - 1, ~in[n - 1], 1);
        chk_gpu_done(t);
        chk_gpu_get(t, out, y, n);
        in[n / 2] = 7;
        chk_same_bytes(t, "copied", in, out, n);
    }
}

static size_t rows(chk_row *out, size_t max)
{
    static const mistake none;
    if (max) *out = (chk_row){ "gpu", "", NB_SPACE_CUDA, 0, &none };
    return max != 0;
}

#define BUG(what, expect, ...)                                                                     \
    {                                                                                              \
        what, expect,                                                                              \
        {                                                                                          \
            "broken", "", NB_SPACE_CUDA, 0, &(const mistake)                                       \
            {                                                                                      \
                __VA_ARGS__                                                                        \
            }                                                                                      \
        }                                                                                          \
    }
static const chk_broken broken[] = {
    BUG("a byte behind the output", "wrote behind", .at = 1),
    BUG("a byte before the output", "wrote before", .at = -1),
    BUG("an input is changed", "changed an input", .input = true),
    { 0 },
};

const chk_op chk_cuda_buffers = { "cuda_buffers", rows, test, NULL, broken };
