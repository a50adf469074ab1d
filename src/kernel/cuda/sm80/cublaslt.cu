/* cublaslt.cu - the row "cublaslt": y = W x for BF16 weights and prompts, by NVIDIA's library if it is installed.
 *
 * The library is loaded at run time (libcublasLt.so.13), so nothing requires it.  y = W hi, then y += W lo: two
 * products into the same floats.  cuBLASLt normally picks a kernel by the number of tokens.  Here one algorithm is
 * requested per (n_out, n_col), for 4096 tokens and without split-K, and used for every number of tokens.  So a
 * row's bits do not depend on that number.  A part of a matrix (n_whole) takes the algorithm of the whole.  Calls that cuBLASLt cannot do (bias, no float output wanted, unaligned
 * rows) go to wgmma or mma_prompt; the call decides, never the number of tokens.
 *
 * On an H100 with cuBLASLt 13.1 a row's bits were the same for every number of tokens from 1 to 300 and for 511, 512,
 * 777, 1024, 2000, 2048 and 4096, in ten shapes (576 x 2048 to 10944 x 2048).
 * Times there, two parts (us; linear_wgmma.cu in brackets):
 *   tokens            512        2048        8192
 *   3072 x 2048    48  (53)   106 (115)   333 (339)
 *    576 x 2048    28  (27)    30  (54)    65 (124)
 *   4096 x  512    21  (16)    55  (39)   217 (151)
 * y is read and written once more than necessary, so short sums (n_col under 1024) are left to wgmma. */
#include "kernel/cuda/common/ops.cuh"

#if !NB_CUDA_EMULATED
#include <cublasLt.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORK_BYTES = 32 << 20, ALGO_TOK = 4096, MAX_SHAPE = 128, MAX_FOUND = 16, LEAST_COL = 1024 };

struct algo_of {
    size_t n_out, n_col;
    bool ok;
    cublasLtMatmulAlgo_t algo;
};

struct blas {
    void *lib;
    cublasLtHandle_t handle;
    decltype(&cublasLtCreate) create;
    decltype(&cublasLtDestroy) destroy;
    decltype(&cublasLtGetVersion) version;
    decltype(&cublasLtMatmul) matmul;
    decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
    decltype(&cublasLtMatmulAlgoConfigGetAttribute) config;
    decltype(&cublasLtMatmulDescInit_internal) desc_init;
    decltype(&cublasLtMatmulDescSetAttribute) desc_set;
    decltype(&cublasLtMatrixLayoutInit_internal) layout_init;
    decltype(&cublasLtMatmulPreferenceInit_internal) pref_init;
    decltype(&cublasLtMatmulPreferenceSetAttribute) pref_set;
    algo_of shape[MAX_SHAPE];
    size_t n_shape;
};

/* Whether a device of this process has loaded the library; the rows' `can` functions get no device to ask. */
static bool have_library;

#define NEED(field, symbol)                                                                        \
    if (!(b->field = reinterpret_cast<decltype(b->field)>(dlsym(b->lib, #symbol)))) return false
static bool find_symbols(blas *b)
{
    NEED(create, cublasLtCreate);
    NEED(destroy, cublasLtDestroy);
    NEED(version, cublasLtGetVersion);
    NEED(matmul, cublasLtMatmul);
    NEED(heuristic, cublasLtMatmulAlgoGetHeuristic);
    NEED(config, cublasLtMatmulAlgoConfigGetAttribute);
    NEED(desc_init, cublasLtMatmulDescInit_internal);
    NEED(desc_set, cublasLtMatmulDescSetAttribute);
    NEED(layout_init, cublasLtMatrixLayoutInit_internal);
    NEED(pref_init, cublasLtMatmulPreferenceInit_internal);
    NEED(pref_set, cublasLtMatmulPreferenceSetAttribute);
    return true;
}

void nb_cuda_blas_close(nb_cuda *g)
{
    blas *b = static_cast<blas *>(g->blas);
    if (b && b->handle) b->destroy(b->handle);
    if (b && b->lib) dlclose(b->lib);
    free(b);
    if (g->blas_work) cudaFree(g->blas_work);
    g->blas = g->blas_work = NULL;
}

/* If the library is missing or anything fails, g->blas stays NULL. */
void nb_cuda_blas_open(nb_cuda *g)
{
    blas *b = static_cast<blas *>(calloc(1, sizeof *b));
    g->blas = b;
    if (b && (b->lib = dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_LOCAL)) && find_symbols(b) &&
        b->create(&b->handle) == CUBLAS_STATUS_SUCCESS &&
        cudaMalloc(&g->blas_work, WORK_BYTES) == cudaSuccess) {
        g->blas_work_bytes = WORK_BYTES;
        have_library = true;
        return;
    }
    cudaGetLastError();
    nb_cuda_blas_close(g);
}

/* Version in cuBLASLt's numbering (130100: 13.1), or 0. */
size_t nb_cuda_blas_version(const nb_cuda *g)
{
    return g->blas ? static_cast<const blas *>(g->blas)->version() : 0;
}

/* y [n_tok][n_out] = W x in column-major terms: D = A^T B with A = W [n_col x n_out], B = x. */
struct problem {
    cublasLtMatmulDescOpaque_t op;
    cublasLtMatrixLayoutOpaque_t w, x, y;
};
static bool describe(const blas *b, problem *p, size_t n_out, size_t n_col, size_t n_tok,
                     size_t x_stride, size_t y_stride)
{
    const cublasOperation_t t = CUBLAS_OP_T;
    const auto layout = [&](cublasLtMatrixLayoutOpaque_t *l, cudaDataType type, size_t rows,
                            size_t cols, size_t stride) {
        return b->layout_init(l, sizeof *l, type, rows, cols, (int64_t)stride) ==
               CUBLAS_STATUS_SUCCESS;
    };
    return b->desc_init(&p->op, sizeof p->op, CUBLAS_COMPUTE_32F, CUDA_R_32F) ==
               CUBLAS_STATUS_SUCCESS &&
           b->desc_set(&p->op, CUBLASLT_MATMUL_DESC_TRANSA, &t, sizeof t) ==
               CUBLAS_STATUS_SUCCESS &&
           layout(&p->w, CUDA_R_16BF, n_col, n_out, n_col) &&
           layout(&p->x, CUDA_R_16BF, n_col, n_tok, x_stride) &&
           layout(&p->y, CUDA_R_32F, n_out, n_tok, y_stride);
}

/* Chooses the one algorithm of a shape: the library's first proposal that does not split K. */
static void choose(nb_cuda *g, const blas *b, algo_of *a)
{
    problem p;
    cublasLtMatmulPreferenceOpaque_t pref;
    cublasLtMatmulHeuristicResult_t found[MAX_FOUND];
    const uint64_t work = g->blas_work_bytes;
    const uint32_t none = CUBLASLT_REDUCTION_SCHEME_NONE, align = 16;
    int n = 0;
    if (!describe(b, &p, a->n_out, a->n_col, ALGO_TOK, a->n_col, a->n_out)) return;
    if (b->pref_init(&pref, sizeof pref) != CUBLAS_STATUS_SUCCESS) return;
    b->pref_set(&pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &work, sizeof work);
    b->pref_set(&pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &none, sizeof none);
    b->pref_set(&pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &align, sizeof align);
    b->pref_set(&pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &align, sizeof align);
    b->pref_set(&pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &align, sizeof align);
    b->pref_set(&pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &align, sizeof align);
    if (b->heuristic(b->handle, &p.op, &p.w, &p.x, &p.y, &p.y, &pref, MAX_FOUND, found, &n) !=
        CUBLAS_STATUS_SUCCESS)
        return;
    for (int i = 0; i < n && !a->ok; i++) {
        int32_t split = 1;
        size_t got;
        b->config(&found[i].algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &split, sizeof split, &got);
        if (found[i].state != CUBLAS_STATUS_SUCCESS || split > 1) continue;
        a->algo = found[i].algo;
        a->ok = true;
    }
}

/* The algorithm of a shape, or NULL. */
static const algo_of *algorithm(nb_cuda *g, size_t n_out, size_t n_col)
{
    blas *b = static_cast<blas *>(g->blas);
    if (!b) return NULL;
    for (size_t i = 0; i < b->n_shape; i++)
        if (b->shape[i].n_out == n_out && b->shape[i].n_col == n_col)
            return b->shape[i].ok ? &b->shape[i] : NULL;
    if (b->n_shape == MAX_SHAPE) return NULL;
    algo_of *a = &b->shape[b->n_shape++];
    a->n_out = n_out;
    a->n_col = n_col;
    choose(g, b, a);
    return a->ok ? a : NULL;
}

static void multiply(nb_cuda *g, const algo_of *f, problem *p, const void *w, const uint16_t *x,
                     float *y, float beta)
{
    const blas *b = static_cast<const blas *>(g->blas);
    const float one = 1;
    const cublasStatus_t s =
        b->matmul(b->handle, &p->op, &one, w, &p->w, x, &p->x, &beta, y, &p->y, y, &p->y, &f->algo,
                  g->blas_work, g->blas_work_bytes, g->stream);
    if (s == CUBLAS_STATUS_SUCCESS) return;
    char why[64];
    snprintf(why, sizeof why, "cuBLASLt: status %d", (int)s);
    nb_cuda_check(g, cudaErrorUnknown, why);
}

bool nb_cuda_linear_cublaslt_can(nb_wtype type, size_t n_out, size_t n_col, bool two_parts)
{
    (void)two_parts;
    return have_library && type == NB_W_BF16 && n_out && n_out % 8 == 0 && n_col >= LEAST_COL &&
           n_col % 8 == 0;
}

void nb_cuda_linear_cublaslt(nb_cuda *g, const nb_cuda_linear_args *a)
{
    if (!a->n_tok || g->error != cudaSuccess) return;
    problem p;
    const uintptr_t at =
        reinterpret_cast<uintptr_t>(a->y.f) | reinterpret_cast<uintptr_t>(a->w.data);
    const bool aligned = at % 16 == 0 && a->y.stride % 4 == 0 && a->x.stride % 8 == 0;
    const algo_of *f = NULL;
    if (a->y.f && a->n_batch == 1 && !a->bias && aligned) f = algorithm(g, a->n_whole ? a->n_whole : a->n_out, a->w.n_col);
    if (!f || !describe(static_cast<const blas *>(g->blas), &p, a->n_out, a->w.n_col, a->n_tok,
                        a->x.stride, a->y.stride)) {
        (g->cc >= 90 ? nb_cuda_linear_wgmma : nb_cuda_linear_mma_prompt)(g, a);
        return;
    }
    multiply(g, f, &p, a->w.data, a->x.hi, a->y.f, a->add ? 1.0f : 0.0f);
    if (a->x.lo) multiply(g, f, &p, a->w.data, a->x.lo, a->y.f, 1);
    if (!a->y.hi || a->add) return;
    nb_cuda_split_args s = {};
    s.x = a->y.f;
    s.y = a->y;
    s.y.f = NULL;
    s.n_tok = a->n_tok;
    s.dim = a->n_out;
    s.x_stride = a->y.stride;
    nb_cuda_split(g, &s);
}
#endif
