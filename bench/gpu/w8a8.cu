/* w8a8.cu - times cuBLASLt's products of FP8 weights with activations rounded to FP8.
 *
 * Weights are E4M3 with a float for each 128 x 128 block.  Activations are E4M3 with a float for each 128
 * values of a token, rounded here by a kernel that is timed with the product.  The same library's BF16
 * product is timed beside it, once and twice (activations as two BF16 parts, as nibble computes them).
 * Prints microseconds and TFLOP/s, and the distance of sampled results from double, relative to the root
 * mean square of all: with the original activations, and with the rounded ones.
 *
 *     nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -o w8a8 bench/gpu/w8a8.cu -lcublasLt && ./w8a8
 *
 * Needs Hopper and CUDA 12.9 or newer.  docs/decisions/025 says why nibble does not do this. */
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

enum { BLOCK = 128, WORK_BYTES = 32 << 20, SAMPLES = 7, CHECKED = 256 };
static const size_t set_bytes = (size_t)512 << 20; /* more than the L2 cache holds */

/* rows, columns: query and latent, output, shared experts, latent to keys and values (DeepSeek-V2-Lite);
 * an expert of 64 with its share of 8,192 tokens; query and first layer of DeepSeek-V3 */
static const int shapes[][2] = { { 3648, 2048 }, { 2048, 2048 }, { 5632, 2048 }, { 2048, 2816 },
                                 { 4096, 512 },  { 2816, 2048 }, { 7168, 16384 } };
static const int tokens[] = { 64, 512, 768, 8192 };

static void die(const char *what)
{
    fprintf(stderr, "w8a8: %s\n", what);
    exit(1);
}
static void cuda(cudaError_t e)
{
    if (e != cudaSuccess) die(cudaGetErrorString(e));
}
static bool good(cublasStatus_t s)
{
    return s == CUBLAS_STATUS_SUCCESS;
}

template <class T> struct buffer {
    T *p = nullptr;
    explicit buffer(size_t n) { cuda(cudaMalloc(&p, n * sizeof(T))); }
    buffer(const buffer &) = delete;
    ~buffer() { cudaFree(p); }
    void put(const std::vector<T> &v)
    {
        cuda(cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice));
    }
    std::vector<T> get(size_t n) const
    {
        std::vector<T> v(n);
        cuda(cudaMemcpy(v.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost));
        return v;
    }
};

/* Rounds x [n_tok][n_col] to codes and scales [n_col / 128][n_tok]; one warp per 128 values. */
__global__ void quantise(const float *x, __nv_fp8_e4m3 *code, float *scale, int n_tok, int n_col)
{
    const int part = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    const int per = n_col / BLOCK, t = part / per, k = part % per;
    if (t >= n_tok) return;
    const size_t at = (size_t)t * n_col + k * BLOCK + lane * 4;
    const float4 v = *reinterpret_cast<const float4 *>(x + at);
    float most = fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
    for (int d = 16; d; d /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, d));
    const float s = most > 0 ? most / 448 : 1;
    __nv_fp8_e4m3 c[4] = { __nv_fp8_e4m3(v.x / s), __nv_fp8_e4m3(v.y / s), __nv_fp8_e4m3(v.z / s),
                           __nv_fp8_e4m3(v.w / s) };
    *reinterpret_cast<uint32_t *>(code + at) = *reinterpret_cast<uint32_t *>(c);
    if (lane == 0) scale[(size_t)k * n_tok + t] = s;
}

/* y [n_tok][n_out] = W x, column-major: D = A^T B with A = W. */
struct product {
    cublasLtMatmulDesc_t op = nullptr;
    cublasLtMatrixLayout_t w = nullptr, x = nullptr, y = nullptr;
    cublasLtMatmulAlgo_t algo;
    cublasStatus_t state;
    bool ok = false;

    /* ws, xs: scales of E4M3 weights and activations, which the choice of an algorithm asks for. */
    product(cublasLtHandle_t h, cudaDataType type, cudaDataType out, int n_out, int n_col, int n_tok,
            const float *ws, const float *xs)
    {
        const cublasOperation_t t = CUBLAS_OP_T;
        const size_t work = WORK_BYTES;
        cublasLtMatmulPreference_t pref;
        cublasLtMatmulHeuristicResult_t found;
        int n = 0;
        cublasLtMatmulDescCreate(&op, CUBLAS_COMPUTE_32F, CUDA_R_32F);
        cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_TRANSA, &t, sizeof t);
        if (type == CUDA_R_8F_E4M3) {
            const int32_t a = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
            const int32_t b = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
            cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &a, sizeof a);
            cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &b, sizeof b);
            cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &ws, sizeof ws);
            cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &xs, sizeof xs);
        }
        cublasLtMatrixLayoutCreate(&w, type, n_col, n_out, n_col);
        cublasLtMatrixLayoutCreate(&x, type, n_col, n_tok, n_col);
        cublasLtMatrixLayoutCreate(&y, out, n_out, n_tok, n_out);
        cublasLtMatmulPreferenceCreate(&pref);
        cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &work,
                                             sizeof work);
        state = cublasLtMatmulAlgoGetHeuristic(h, op, w, x, y, y, pref, 1, &found, &n);
        ok = good(state) && n;
        if (ok) algo = found.algo;
        cublasLtMatmulPreferenceDestroy(pref);
    }
    product(const product &) = delete;
    ~product()
    {
        cublasLtMatrixLayoutDestroy(w);
        cublasLtMatrixLayoutDestroy(x);
        cublasLtMatrixLayoutDestroy(y);
        cublasLtMatmulDescDestroy(op);
    }
    bool run(cublasLtHandle_t h, const void *wp, const void *xp, float beta, void *yp, void *work)
    {
        const float one = 1;
        state = cublasLtMatmul(h, op, &one, wp, w, xp, x, &beta, yp, y, yp, y, &algo, work, WORK_BYTES, 0);
        return good(state);
    }
};

/* Median microseconds of one call of f(i), i counting up. */
template <class F> static double time_us(size_t n_set, F f)
{
    cudaEvent_t a, b;
    cuda(cudaEventCreate(&a));
    cuda(cudaEventCreate(&b));
    std::vector<float> ms(SAMPLES);
    const int n = (int)std::max<size_t>(10, std::min<size_t>(n_set, 60));
    size_t i = 0;
    for (int k = 0; k < n; k++) f(i++ % n_set);
    for (float &m : ms) {
        cuda(cudaEventRecord(a));
        for (int k = 0; k < n; k++) f(i++ % n_set);
        cuda(cudaEventRecord(b));
        cuda(cudaEventSynchronize(b));
        cuda(cudaEventElapsedTime(&m, a, b));
    }
    cudaEventDestroy(a);
    cudaEventDestroy(b);
    std::sort(ms.begin(), ms.end());
    return ms[SAMPLES / 2] * 1e3 / n;
}

struct weights {
    int n_out, n_col, stride; /* of scales: blocks of columns, a multiple of 4 */
    std::vector<__nv_fp8_e4m3> code;
    std::vector<float> scale;
    double at(int r, int c) const
    {
        return (double)(float)code[(size_t)r * n_col + c] * scale[(size_t)(r / BLOCK) * stride + c / BLOCK];
    }
};

/* Root mean square of y - W x over CHECKED elements, as a share of that of W x. */
template <class X>
static double distance(const weights &w, const std::vector<float> &y, int n_tok, std::mt19937 &rng, X x)
{
    double sum = 0, all = 0;
    for (int i = 0; i < CHECKED; i++) {
        const int r = (int)(rng() % (unsigned)w.n_out), t = (int)(rng() % (unsigned)n_tok);
        double want = 0;
        for (int c = 0; c < w.n_col; c++) want += w.at(r, c) * x(t, c);
        const double d = y[(size_t)t * w.n_out + r] - want;
        sum += d * d;
        all += want * want;
    }
    return std::sqrt(sum / all);
}

static void run(cublasLtHandle_t h, void *work, int n_out, int n_col, int n_tok)
{
    std::mt19937 rng(1);
    std::normal_distribution<float> normal;
    const size_t n_w = (size_t)n_out * n_col, n_x = (size_t)n_tok * n_col;
    weights w{ n_out, n_col, (n_col / BLOCK + 3) / 4 * 4, {}, {} };
    w.code.resize(n_w);
    w.scale.assign((size_t)((n_out + BLOCK - 1) / BLOCK) * w.stride, 0);
    std::vector<__nv_fp8_e4m3> table(4096);
    for (auto &c : table) c = __nv_fp8_e4m3(normal(rng) * 64);
    for (auto &c : w.code) c = table[rng() % 4096];
    for (auto &s : w.scale) s = std::exp(normal(rng) * 0.3f) * 3e-4f;
    std::vector<float> x(n_x), some(4096);
    for (float &v : some) v = normal(rng);
    for (float &v : x) v = some[rng() % 4096];
    for (size_t i = 0; i < n_x; i += 509) x[i] *= 20; /* a few large values, as real activations have */
    std::vector<__nv_bfloat16> wb(n_w), xb(n_x);
    for (size_t i = 0; i < n_w; i++) wb[i] = __float2bfloat16((float)w.code[i]);
    for (size_t i = 0; i < n_x; i++) xb[i] = __float2bfloat16(x[i]);

    const size_t n_set = std::max<size_t>(1, std::min<size_t>(64, set_bytes / (2 * n_w)));
    buffer<__nv_fp8_e4m3> dw(n_w * n_set), dx(n_x);
    buffer<float> dws(w.scale.size()), dxs(n_x / BLOCK), df(n_x), dy((size_t)n_out * n_tok);
    buffer<__nv_bfloat16> dwb(n_w * n_set), dxb(n_x);
    for (size_t i = 0; i < n_set; i++) {
        cuda(cudaMemcpy(dw.p + i * n_w, w.code.data(), n_w, cudaMemcpyHostToDevice));
        cuda(cudaMemcpy(dwb.p + i * n_w, wb.data(), 2 * n_w, cudaMemcpyHostToDevice));
    }
    dws.put(w.scale);
    df.put(x);
    dxb.put(xb);

    product floats(h, CUDA_R_8F_E4M3, CUDA_R_32F, n_out, n_col, n_tok, dws.p, dxs.p);
    product halves(h, CUDA_R_8F_E4M3, CUDA_R_16BF, n_out, n_col, n_tok, dws.p, dxs.p);
    product b(h, CUDA_R_16BF, CUDA_R_32F, n_out, n_col, n_tok, nullptr, nullptr);
    product &q = floats.ok ? floats : halves; /* results in BF16 where float is not supported */
    const int n_block = (int)((n_x / BLOCK + 7) / 8);
    const auto round = [&] { quantise<<<n_block, 256>>>(df.p, dx.p, dxs.p, n_tok, n_col); };
    const auto mul = [&](size_t i) { return q.run(h, dw.p + i * n_w, dx.p, 0, dy.p, work); };
    round();
    if (!q.ok || !mul(0)) {
        printf("%5d x %5d tokens %4d: cuBLASLt has no such product (status %d, %d)\n", n_out, n_col, n_tok,
               (int)floats.state, (int)halves.state);
        return;
    }
    auto y = dy.get((size_t)n_out * n_tok);
    if (!floats.ok) {
        std::vector<__nv_bfloat16> low(y.size());
        memcpy(low.data(), y.data(), low.size() * sizeof low[0]);
        for (size_t i = 0; i < y.size(); i++) y[i] = __bfloat162float(low[i]);
    }
    const auto xs = dxs.get(n_x / BLOCK);
    const auto code = dx.get(n_x);
    const double exact = distance(w, y, n_tok, rng, [&](int t, int c) { return (double)x[(size_t)t * n_col + c]; });
    const double sums = distance(w, y, n_tok, rng, [&](int t, int c) {
        return (double)(float)code[(size_t)t * n_col + c] * xs[(size_t)(c / BLOCK) * n_tok + t];
    });
    const double t8 = time_us(n_set, mul), t8q = time_us(n_set, [&](size_t i) {
                     round();
                     mul(i);
                 });
    double t16 = 0, t16two = 0;
    if (b.ok) {
        t16 = time_us(n_set, [&](size_t i) {
            b.run(h, dwb.p + i * n_w, dxb.p, 0, dy.p, work);
        });
        t16two = time_us(n_set, [&](size_t i) {
            b.run(h, dwb.p + i * n_w, dxb.p, 0, dy.p, work);
            b.run(h, dwb.p + i * n_w, dxb.p, 1, dy.p, work);
        });
    }
    const double ops = 2e-6 * n_out * n_col * n_tok;
    printf("%5d x %5d tokens %4d  W8A8 %8.1f us %6.0f TFLOP/s, with rounding %8.1f us; BF16 %8.1f us %6.0f, two "
           "parts %8.1f us; off by %.1e, of what was rounded %.1e%s\n",
           n_out, n_col, n_tok, t8, ops / t8, t8q, t16, ops / t16, t16two, exact, sums,
           floats.ok ? "" : " (BF16 results)");
    fflush(stdout);
}

int main()
{
    cublasLtHandle_t h;
    cudaDeviceProp p;
    if (!good(cublasLtCreate(&h))) die("cuBLASLt does not start");
    cuda(cudaGetDeviceProperties(&p, 0));
    printf("%s, cuBLASLt %zu\n", p.name, cublasLtGetVersion());
    buffer<char> work(WORK_BYTES);
    for (const auto &s : shapes)
        for (const int n : tokens) {
            if (n == 768 ? s[0] != 2816 : n == 512 && s[0] == 7168) continue;
            run(h, work.p, s[0], s[1], n);
        }
    cublasLtDestroy(h);
    return 0;
}
