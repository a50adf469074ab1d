/* test_cu_emu.cpp - the emulation of CUDA against plain loops, and the mistakes that it must find.
 *
 * Kernels run four or eight times, since the order of threads and blocks changes with each launch. */
#include "emu/cuda/emu.h"
#include "dev/cuda/runtime.cuh"
#include "kernel/cuda/common/ptx.cuh"

#include <stdio.h>
#include <stdlib.h>

static int n_fail, n_test;
static nb_cuda *g;

#define EXPECT(cond)                                                                               \
    do {                                                                                           \
        n_test++;                                                                                  \
        if (!(cond)) {                                                                             \
            n_fail++;                                                                              \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond);                             \
        }                                                                                          \
    } while (0)

static void open_device()
{
    nb_error err;
    nb_cuda_rt_close(g);
    g = NULL;
    if (nb_cuda_rt_open(0, &g, &err) != NB_OK) {
        fprintf(stderr, "%s\n", err.msg);
        exit(1);
    }
}

/* The device's error must have all words; afterwards it is opened anew. */
static void expect_error(const char *a, const char *b)
{
    nb_error err;
    err.msg[0] = 0;
    const nb_status s = nb_cuda_rt_sync(g, &err);
    n_test++;
    if (s != NB_ERR_INTERNAL || !strstr(err.msg, a) || !strstr(err.msg, b)) {
        n_fail++;
        fprintf(stderr, "expected an error with `%s` and `%s`, got %d: %s\n", a, b, s, err.msg);
    }
    open_device();
}

/* ---- barriers and shuffles ---- */

static __global__ void reverse(float *x)
{
    NB_SHARED(float, s);
    const unsigned i = threadIdx.x, n = blockDim.x;
    float *row = x + (size_t)(blockIdx.y * gridDim.x + blockIdx.x) * n;
    s[i] = row[i];
    __syncthreads();
    row[i] = s[n - 1 - i];
}
static void test_barrier()
{
    static float x[2][3][200];
    for (unsigned round = 0; round < 8; round++) {
        for (int i = 0; i < 1200; i++) (&x[0][0][0])[i] = (float)i;
        NB_LAUNCH(g, reverse, dim3(3, 2), 200, 200 * sizeof(float), &x[0][0][0]);
        bool ok = true;
        for (int i = 0; i < 1200; i++)
            ok &= (&x[0][0][0])[i] == (float)(i / 200 * 200 + 199 - i % 200);
        EXPECT(ok);
    }
}

static __global__ void many(unsigned *out)
{
    const unsigned lane = threadIdx.x % 32, i = threadIdx.x;
    unsigned *o = out + 16 * i;
    o[0] = __shfl_sync(0xffffffffu, i, 5);
    o[1] = __shfl_xor_sync(0xffffffffu, i, 3);
    o[2] = __shfl_up_sync(0xffffffffu, i, 2);
    o[3] = __shfl_down_sync(0xffffffffu, i, 7);
    o[4] = __shfl_sync(0xffffffffu, i, 9, 8);
    o[5] = __ballot_sync(0xffffffffu, i % 3 == 0);
    if (lane < 8) { /* two groups at two places at once */
        o[6] = __shfl_xor_sync(0xffu, i, 1);
    } else {
        o[6] = __shfl_xor_sync(0xffffff00u, i, 2);
    }
    __syncwarp();
    o[7] = (unsigned)__any_sync(0xffffffffu, lane == 31);
    o[8] = (unsigned)__all_sync(0xffffffffu, lane != 31);
    o[9] = (unsigned)__syncthreads_count(i % 5 == 0);
    o[10] = __reduce_max_sync(0xffffffffu, i ^ 21);
    const double d = __shfl_xor_sync(0xffffffffu, (double)i, 1);
    o[11] = (unsigned)d;
    atomicAdd(&out[12], 1u);
    atomicMax(&out[13], i);
}
static void test_shuffles()
{
    static unsigned out[96][16];
    for (unsigned round = 0; round < 4; round++) {
        memset(out, 0, sizeof out);
        NB_LAUNCH(g, many, 1, 96, 0, &out[0][0]);
        bool ok = out[0][12] == 96 && out[0][13] == 95;
        for (unsigned i = 0; i < 96; i++) {
            const unsigned lane = i % 32, warp = i - lane, *o = out[i];
            unsigned ballot = 0, most = 0, n5 = 0;
            for (unsigned k = 0; k < 32; k++) {
                ballot |= ((warp + k) % 3 == 0 ? 1u : 0u) << k;
                most = max(most, (warp + k) ^ 21);
            }
            for (unsigned k = 0; k < 96; k++) n5 += k % 5 == 0;
            ok &= o[0] == warp + 5 && o[1] == (i ^ 3) && o[2] == (lane < 2 ? i : i - 2);
            ok &= o[3] == (lane > 24 ? i : i + 7) && o[4] == warp + lane / 8 * 8 + 1;
            ok &= o[5] == ballot && o[7] == 1 && o[8] == 0 && o[9] == n5 && o[10] == most;
            ok &= o[6] == (i ^ (lane < 8 ? 1 : 2));
            ok &= o[11] == (i ^ 1);
        }
        EXPECT(ok);
    }
}

/* ---- matrices ---- */

static uint32_t rnd_state = 1;
static uint32_t rnd()
{
    return rnd_state = rnd_state * 1664525u + 1013904223u;
}
static float small() /* exact in both 16-bit formats, sums exact in float */
{
    return (float)((int)(rnd() >> 20) % 64 - 32) / 8;
}

struct mats {
    uint16_t a[16][24], b[8][24]; /* rows of 16, b transposed; stride 24: 48 bytes */
    uint16_t bk[16][24];          /* b as [k][n], 8 of 24 used */
    float c[16][8];
    bool f16;
};
static __global__ void product(const mats *m, float *out)
{
    NB_SHARED(unsigned char, raw);
    mats *s = (mats *)raw;
    const unsigned lane = threadIdx.x, gr = lane / 4, t = lane % 4;
    for (size_t i = lane; i < sizeof(mats) / 16; i += 32)
        nb_cp_async16(raw + 16 * i, (const unsigned char *)m + 16 * i);
    nb_cp_async_commit();
    nb_cp_async_wait<0>();
    __syncwarp();
    uint32_t a[4], b[4], bt[4];
    nb_ldmatrix4(a, &s->a[lane % 8 + lane / 8 % 2 * 8][lane / 16 * 8]);
    nb_ldmatrix4(b, &s->b[lane % 8][lane / 8 % 2 * 8]);
    nb_ldmatrix4_trans(bt, &s->bk[lane % 16][0]);
    float c[4] = { m->c[gr][2 * t], m->c[gr][2 * t + 1], m->c[gr + 8][2 * t],
                   m->c[gr + 8][2 * t + 1] };
    if (m->f16)
        nb_mma_f16(c, a, b[0], b[1]);
    else
        nb_mma_bf16(c, a, b[0], b[1]);
    if (b[0] != bt[0] || b[1] != bt[1]) c[0] = 1e9f;
    out[gr * 8 + 2 * t] = c[0];
    out[gr * 8 + 2 * t + 1] = c[1];
    out[(gr + 8) * 8 + 2 * t] = c[2];
    out[(gr + 8) * 8 + 2 * t + 1] = c[3];
}
static void test_matrices()
{
    static mats m;
    static float fa[16][16], fb[16][8], out[16][8];
    for (unsigned round = 0; round < 8; round++) {
        m.f16 = round & 1;
        for (int r = 0; r < 16; r++)
            for (int k = 0; k < 16; k++) {
                fa[r][k] = small();
                m.a[r][k] = m.f16 ? nb_emu_to_f16(fa[r][k]) : nb_emu_to_bf16(fa[r][k]);
            }
        for (int k = 0; k < 16; k++)
            for (int c = 0; c < 8; c++) {
                fb[k][c] = small();
                m.b[c][k] = m.f16 ? nb_emu_to_f16(fb[k][c]) : nb_emu_to_bf16(fb[k][c]);
                m.bk[k][c] = m.b[c][k];
            }
        for (int i = 0; i < 128; i++) (&m.c[0][0])[i] = small();
        NB_LAUNCH(g, product, 1, 32, sizeof m, &m, &out[0][0]);
        bool ok = true;
        for (int r = 0; r < 16; r++)
            for (int c = 0; c < 8; c++) {
                float want = m.c[r][c];
                for (int k = 0; k < 16; k++) want += fa[r][k] * fb[k][c];
                ok &= out[r][c] == want;
            }
        EXPECT(ok);
    }
}

/* ---- 16-bit and 8-bit floats ---- */

static void test_formats()
{
    bool ok = true;
    for (uint32_t u = 0; u < 0x10000; u++) { /* every code survives, NaN as NaN */
        const float h = nb_emu_from_f16((uint16_t)u), b = nb_emu_from_bf16((uint16_t)u);
        ok &= isnan(h) ? nb_emu_to_f16(h) == 0x7fff : nb_emu_to_f16(h) == u;
        ok &= isnan(b) ? nb_emu_to_bf16(b) == 0x7fff : nb_emu_to_bf16(b) == u;
        if (u < 0x7bff) { /* the middle of two goes to the even one, its neighbours to theirs */
            const float next = nb_emu_from_f16((uint16_t)(u + 1)), mid = (h + next) / 2;
            ok &= nb_emu_to_f16(mid) == u + (u & 1);
            ok &= nb_emu_to_f16(nextafterf(mid, 0)) == u &&
                  nb_emu_to_f16(nextafterf(mid, 1e9f)) == u + 1;
        }
    }
    for (unsigned u = 0; u < 0x7e; u++) {
        const float e = (__half)__nv_cvt_fp8_to_halfraw((uint8_t)u, __NV_E4M3);
        const float next = (__half)__nv_cvt_fp8_to_halfraw((uint8_t)(u + 1), __NV_E4M3);
        const float mid = (e + next) / 2;
        ok &= __nv_cvt_float_to_fp8(-e, __NV_SATFINITE, __NV_E4M3) == (0x80 | u);
        ok &= __nv_cvt_float_to_fp8(mid, __NV_SATFINITE, __NV_E4M3) == u + (u & 1);
        ok &= __nv_cvt_float_to_fp8(nextafterf(mid, 1e9f), __NV_SATFINITE, __NV_E4M3) == u + 1;
    }
    EXPECT(ok);
    EXPECT(nb_emu_to_f16(65519.0f) == 0x7bff && nb_emu_to_f16(65520.0f) == 0x7c00);
    EXPECT(__nv_cvt_float_to_fp8(1e9f, __NV_SATFINITE, __NV_E4M3) == 0x7e);
    EXPECT((float)__hfma(__half(3.0f), __half(5.0f), __half(0x1p-14f)) == 15.0f);
    EXPECT(__byte_perm(0x33221100, 0x77665544, 0x7350) == 0x77335500u);
    EXPECT(nb_exp2(-127.0f) == 0 && nb_exp2(-126.0f) == 0x1p-126f && nb_exp2(3.0f) == 8.0f);
}

/* ---- graphs ---- */

static __global__ void add_one(float *x, float by)
{
    x[threadIdx.x] += by;
}
static void test_graph()
{
    float *x = (float *)nb_cuda_rt_alloc(g, 64 * sizeof *x), host[64];
    nb_cuda_rt_fill(g, x, 0, 64 * sizeof *x);
    nb_cuda_rt_graph_begin(g);
    float by = 2;
    NB_LAUNCH(g, add_one, 1, 64, 0, x, by);
    by = 5; /* arguments were copied */
    NB_LAUNCH(g, add_one, 1, 32, 0, x, by);
    nb_cuda_graph *graph = nb_cuda_rt_graph_end(g);
    nb_cuda_rt_download(g, host, x, sizeof host);
    EXPECT(host[0] == 0);
    for (int i = 0; i < 3; i++) nb_cuda_rt_graph_launch(g, graph);
    nb_cuda_rt_download(g, host, x, sizeof host);
    EXPECT(nb_cuda_rt_sync(g, NULL) == NB_OK && host[0] == 21 && host[63] == 6);
    nb_cuda_rt_graph_destroy(g, graph);
    nb_cuda_rt_free(g, x);
}

/* ---- mistakes ---- */

static __global__ void some_leave(float *x)
{
    if (threadIdx.x >= 40) return;
    __syncthreads();
    x[0] = 1;
}
static __global__ void two_places(unsigned *x)
{
    if (threadIdx.x < 16)
        x[0] = __shfl_xor_sync(0xffffffffu, 1u, 1);
    else
        __syncwarp();
}
static __global__ void not_all(unsigned *x)
{
    if (threadIdx.x < 31)
        x[0] = __ballot_sync(0xffffffffu, 1);
    else
        __syncthreads();
}
static __global__ void from_outside(unsigned *x)
{
    if (threadIdx.x < 8) x[threadIdx.x] = __shfl_sync(0xffu, 1u, 9);
}
static __global__ void too_far(unsigned n)
{
    NB_SHARED(unsigned char, s);
    if (blockIdx.x == 1) s[n] = 1;
}
static __global__ void not_aligned(const unsigned char *x)
{
    NB_SHARED(unsigned char, s);
    nb_cp_async16(s, x + 8);
}
static __global__ void no_wait(const float *x, float *y)
{
    NB_SHARED(float, s);
    nb_cp_async16(s + 4 * threadIdx.x, x + 4 * threadIdx.x);
    nb_cp_async_commit();
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x];
}
static void test_mistakes()
{
    static float x[64];
    static unsigned u[64];
    alignas(16) static unsigned char bytes[64];
    NB_LAUNCH(g, some_leave, 1, 64, 0, x);
    expect_error("some_leave, block (0,0,0)", "40 threads wait at __syncthreads, 24 have ended");
    NB_LAUNCH(g, two_places, 1, 32, 0, u);
    expect_error("two_places", "__syncwarp");
    NB_LAUNCH(g, not_all, 1, 32, 0, u);
    expect_error("not_all", "1 are at __syncthreads");
    NB_LAUNCH(g, from_outside, 1, 32, 0, u);
    expect_error("from_outside", "reads lane 9");
    NB_LAUNCH(g, too_far, 3, 32, 100, 100u);
    expect_error("too_far, block (1,0,0)", "byte 100 of 100");
    NB_LAUNCH(g, not_aligned, 1, 1, 64, bytes);
    expect_error("not_aligned", "not aligned to 16");
    NB_LAUNCH(g, add_one, 0, 32, 0, x, 1.0f);
    expect_error("add_one", "grid");
    NB_LAUNCH(g, add_one, 1, 1025, 0, x, 1.0f);
    expect_error("add_one", "block");
    NB_LAUNCH(g, reverse, 1, 32, 49 << 10, x);
    expect_error("reverse", "NB_SHARED_LIMIT");
    NB_SHARED_LIMIT(g, reverse, 64 << 10);
    NB_LAUNCH(g, reverse, 1, 32, 49 << 10, x);
    EXPECT(nb_cuda_rt_sync(g, NULL) == NB_OK);
    int n_nan = 0;
    for (int round = 0; round < 4; round++) {
        alignas(16) static float y[8], from[32];
        NB_LAUNCH(g, no_wait, 1, 8, 32 * sizeof(float), from, y);
        n_nan += isnan(y[7]);
    }
    EXPECT(n_nan == 2);
    /* Sticky: the graph of a failed device is none, and nothing runs any more. */
    NB_LAUNCH(g, some_leave, 1, 64, 0, x);
    x[0] = 3;
    NB_LAUNCH(g, add_one, 1, 1, 0, x, 1.0f);
    nb_cuda_rt_graph_begin(g);
    EXPECT(nb_cuda_rt_graph_end(g) == NULL && x[0] == 3);
    expect_error("some_leave", "have ended");
}

int main()
{
    open_device();
    test_barrier();
    test_shuffles();
    test_matrices();
    test_formats();
    test_graph();
    test_mistakes();
    nb_cuda_rt_close(g);
    printf("test_cu_emu: %d of %d failed\n", n_fail, n_test);
    return n_fail != 0;
}
