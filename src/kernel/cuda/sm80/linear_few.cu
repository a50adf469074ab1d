/* linear_few.cu - products with few tokens: the weights are read once, at the rate of memory.
 *
 * A warp owns 16 rows (with GLU 16 of each matrix) and one range of columns; the warps of a block
 * own the ranges of the same rows, so that a matrix of 3072 x 2048 is 192 blocks of 8 warps.  A lane loads
 * 16 bytes of two rows for up to 256 columns before it uses the first of them: 8 KB a warp, about
 * 100 KB a multiprocessor, are under way.  x comes through L1, which the blocks of a multiprocessor share;
 * tokens that are not there are not read.  The ranges meet in shared memory and are added in order.
 * Experts: a block's tokens are the places of its expert, 8 NT at a time. */
#include "kernel/cuda/sm80/linear_mma.cuh"

namespace
{
enum { PITCH = 20 }; /* floats between tokens of a partial sum: lanes then meet in no bank */

template <bool FP8, bool GLU, int NT> struct few {
    static const int MT = GLU ? 2 : 1;
    static const int COLS = FP8 ? 64 : 32; /* columns of a load */
    static const int CHUNK = FP8 && GLU && NT > 1 ? 2
                             : FP8 || GLU         ? 4
                                                  : 8;        /* loads under way, per row */
    static const int FOLD = FP8 ? 128 / COLS : CHUNK; /* loads of a scale's block */
};

/* acc += columns [k0, k1) of this lane's rows times its tokens. */
template <bool FP8, bool GLU, int NT>
__device__ inline void range_sum(const nb_lin &j, float (&sum)[GLU ? 2 : 1][NT][4],
                                 const unsigned char *const (&w)[GLU ? 2 : 1][2],
                                 const float *const (&scale)[GLU ? 2 : 1][2],
                                 const size_t (&x_at)[NT], const bool (&valid)[NT], uint32_t k0,
                                 uint32_t k1)
{
    typedef few<FP8, GLU, NT> P;
    const uint32_t own = (threadIdx.x & 3) * (FP8 ? 16 : 8); /* first column of a lane in a load */
    const uint4 zero = make_uint4(0, 0, 0, 0);
    for (uint32_t k = k0; k < k1; k += P::CHUNK * P::COLS) {
        uint4 raw[P::CHUNK][P::MT][2];
#pragma unroll
        for (int i = 0; i < P::CHUNK; i++)
#pragma unroll
            for (int m = 0; m < P::MT; m++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const uint32_t c = k + i * P::COLS + own;
                    raw[i][m][h] =
                        c < k1 ? nb_ldg_stream(w[m][h] + (size_t)c * (FP8 ? 1 : 2)) : zero;
                }
        float acc[FP8 ? P::MT : 1][FP8 ? NT : 1][4]; /* FP8: of a block of 128 columns */
#pragma unroll
        for (int i = 0; i < P::CHUNK; i++) {
            if (k + i * P::COLS >= k1) break;
            if (FP8 && i % P::FOLD == 0)
#pragma unroll
                for (int m = 0; m < P::MT; m++)
#pragma unroll
                    for (int n = 0; n < NT; n++)
#pragma unroll
                        for (int e = 0; e < 4; e++) acc[FP8 ? m : 0][FP8 ? n : 0][e] = 0;
#pragma unroll
            for (int half = 0; half < (FP8 ? 2 : 1); half++) {
                const uint32_t c = k + i * P::COLS + own + 8 * half;
                uint4 hi[NT], lo[NT];
#pragma unroll
                for (int n = 0; n < NT; n++) {
                    const bool ok = valid[n] && c < k1;
                    hi[n] = ok ? *reinterpret_cast<const uint4 *>(j.x.hi + x_at[n] + c) : zero;
                    lo[n] = ok && j.x.lo ? *reinterpret_cast<const uint4 *>(j.x.lo + x_at[n] + c)
                                         : zero;
                }
                uint4 a[P::MT][2];
#pragma unroll
                for (int m = 0; m < P::MT; m++)
#pragma unroll
                    for (int h = 0; h < 2; h++) a[m][h] = nb_lin_operands<FP8>(raw[i][m][h], half);
#pragma unroll
                for (int q = 0; q < 2; q++)
#pragma unroll
                    for (int part = 0; part < 2; part++)
#pragma unroll
                        for (int m = 0; m < P::MT; m++)
#pragma unroll
                            for (int n = 0; n < NT; n++)
                                nb_lin_mma(FP8 ? acc[FP8 ? m : 0][FP8 ? n : 0] : sum[m][n], a[m][0],
                                           a[m][1], part ? lo[n] : hi[n], q);
            }
            if (FP8 && ((i + 1) % P::FOLD == 0 || k + (i + 1) * P::COLS >= k1)) {
                const uint32_t block = (k + i * P::COLS) / 128;
#pragma unroll
                for (int m = 0; m < P::MT; m++)
#pragma unroll
                    for (int n = 0; n < NT; n++)
#pragma unroll
                        for (int e = 0; e < 4; e++)
                            sum[m][n][e] =
                                __fmaf_rn(__ldg(scale[m][e >> 1] + block),
                                          acc[FP8 ? m : 0][FP8 ? n : 0][e], sum[m][n][e]);
            }
        }
    }
}

/* Partial sums of a warp to shared memory: [token][row]. */
template <int NT> __device__ inline void put_part(float *part, const float (&sum)[NT][4])
{
    const uint32_t lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int n = 0; n < NT; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            part[(n * 8 + 2 * t + (e & 1)) * PITCH + g + 8 * (e >> 1)] = sum[n][e];
}

template <bool FP8, bool GLU, int NT>
__global__ void __launch_bounds__(512, 1) few_kernel(nb_lin j, uint32_t n_tile)
{
    const int MT = GLU ? 2 : 1;
    const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, b = blockIdx.y;
    const uint32_t range = warp % j.n_range, tile = warp / j.n_range;
    const uint32_t row0 = (blockIdx.x * n_tile + tile) * 16;
    const uint32_t begin = j.first ? j.first[b] : 0, end = j.first ? j.first[b + 1] : j.n_tok;
    NB_SHARED(float, part); /* [n_tile][n_range][MT][8 NT][PITCH] */
    const unsigned char *w[MT][2];
    const float *scale[MT][2];
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint32_t r = row0 + g + 8 * h < j.n_out ? row0 + g + 8 * h : j.n_out - 1;
            w[m][h] = j.w[m] + (b * j.w_rows + r) * j.n_col * (FP8 ? 1 : 2);
            scale[m][h] = FP8 ? nb_lin_scale(j, m, b, r) : nullptr;
        }
    const uint32_t k0 = range * j.range;
    const uint32_t k1 = k0 + j.range < j.n_col ? k0 + j.range : j.n_col;
    for (uint32_t tok0 = begin; tok0 < end; tok0 += 8 * NT) {
        size_t x_at[NT];
        bool valid[NT];
#pragma unroll
        for (int n = 0; n < NT; n++) {
            const uint32_t tok = tok0 + 8 * n + g;
            valid[n] = tok < end;
            x_at[n] = 0;
            if (valid[n])
                x_at[n] = (j.src ? j.src[tok] : tok) * j.x.stride + (j.first ? 0 : b * j.x_batch);
        }
        float sum[MT][NT][4] = {};
        range_sum<FP8, GLU, NT>(j, sum, w, scale, x_at, valid, k0, k1);
#pragma unroll
        for (int m = 0; m < MT; m++)
            put_part<NT>(part + (warp * MT + m) * (8 * NT * PITCH), sum[m]);
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < n_tile * 8 * NT * 16; i += blockDim.x) {
            const uint32_t r = i % 16, n = i / 16 % (8 * NT), of = i / (16 * 8 * NT);
            const uint32_t row = (blockIdx.x * n_tile + of) * 16 + r;
            if (row >= j.n_out || tok0 + n >= end) continue;
            float v[MT];
#pragma unroll
            for (int m = 0; m < MT; m++) {
                const float *p =
                    part + (of * j.n_range * MT + m) * (8 * NT * PITCH) + n * PITCH + r;
                v[m] = p[0];
                for (uint32_t s = 1; s < j.n_range; s++)
                    v[m] = __fadd_rn(v[m], p[s * MT * (8 * NT * PITCH)]);
            }
            nb_lin_store(j, b, tok0 + n, row, GLU ? nb_lin_swiglu(v[0], v[MT - 1]) : v[0]);
        }
        __syncthreads();
    }
}

template <bool FP8, bool GLU, int NT> void launch(nb_cuda *g, const nb_lin &j, size_t n_batch)
{
    const uint32_t n_tile = j.n_range >= 4 ? 1 : 4 / j.n_range;
    const dim3 grid(nb_lin_ceil(j.n_out, 16 * n_tile), (unsigned)n_batch);
    const size_t bytes = sizeof(float) * n_tile * j.n_range * (GLU ? 2 : 1) * 8 * NT * PITCH;
    NB_LAUNCH(g, (few_kernel<FP8, GLU, NT>), grid, n_tile * j.n_range * 32, bytes, j, n_tile);
}

template <bool FP8, bool GLU>
void launch(nb_cuda *g, const nb_lin &j, size_t n_batch, size_t max_tok)
{
    if (max_tok <= 8)
        launch<FP8, GLU, 1>(g, j, n_batch);
    else
        launch<FP8, GLU, 2>(g, j, n_batch);
}
} // namespace

void nb_lin_few(nb_cuda *g, const nb_lin &j, bool fp8, bool glu, size_t n_batch, size_t max_tok)
{
    if (fp8 && glu)
        launch<true, true>(g, j, n_batch, max_tok);
    else if (fp8)
        launch<true, false>(g, j, n_batch, max_tok);
    else if (glu)
        launch<false, true>(g, j, n_batch, max_tok);
    else
        launch<false, false>(g, j, n_batch, max_tok);
}
