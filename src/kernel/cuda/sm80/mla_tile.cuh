/* mla_tile.cuh - one step of absorbed attention over 32 tokens, shared by mla_mma.cu and mla_tail.cu.
 *
 * A step computes s = q k^T, p = 2^(s scale log2(e) - m), and o = o c + p v, where c = 2^(m_old - m).
 *
 * Tile: a block of 8 warps has 16 MT rows (query, head) and 32 tokens in shared memory as BF16, latent and
 * rope key side by side, each padded with zeros to a multiple of 16.  With LO a second tile has what BF16 leaves
 * of each value.
 * What warp w does:
 *   scores   multiplies dimensions [16 ks, 16 ks + 16), ks = w, w + 8, ..., of all rows and tokens (m16n8k16) and
 *            writes its partial sums to shared memory; queries are two BF16 parts in registers
 *   softmax  adds the partial sums of rows 2w, 2w + 1 of every 16, one token per lane, and writes weights as
 *            two BF16 parts and the factor c of the row's sums so far
 *   values   owns dimensions [16 i, 16 i + 16), i = w, w + 8, ..., of all rows
 * The products of two low parts are left out, so products carry an error of 2^-16.  Every sum has one fixed order,
 * by dimension and token. */
#ifndef NB_KERNEL_CUDA_SM80_MLA_TILE_CUH
#define NB_KERNEL_CUDA_SM80_MLA_TILE_CUH
#include "kernel/cuda/common/kv_decode.cuh"
#include "kernel/cuda/common/mla_state.cuh"

enum {
    NB_MT_WARPS = 8,
    NB_MT_THREADS = 32 * NB_MT_WARPS,
    NB_MT_TOK = 32,   /* tokens of a step */
    NB_MT_KSTEPS = 5, /* per warp: (512 + 64) / 16 / 8, rounded up */
    NB_MT_PAIRS = 4,  /* pieces of 16 latent dimensions per warp */
    NB_MT_X = 40,     /* row stride of the partial scores, in floats */
    NB_MT_P = 40,     /* row stride of the weights, in BF16 */
    NB_MT_LORA = 512, /* largest shape */
    NB_MT_ROPE = 64
};

/* Sizes in elements: latent, rope key, padded latent, padded total, and the tile's stride between tokens. */
struct nb_mt_shape {
    uint32_t lora, d_rope, kl, k, stride;
};

__host__ __device__ inline nb_mt_shape nb_mt_shape_of(size_t lora, size_t d_rope)
{
    nb_mt_shape s;
    s.lora = (uint32_t)lora;
    s.d_rope = (uint32_t)d_rope;
    s.kl = (s.lora + 15) / 16 * 16;
    s.k = s.kl + (s.d_rope + 15) / 16 * 16;
    s.stride = s.k + 8; /* an odd number of 16-byte pieces: no bank conflicts */
    return s;
}

/* Bytes of shared memory: weights in two parts, factors, partial scores; then the tiles. */
__host__ __device__ constexpr size_t nb_mt_fixed_bytes(int mt)
{
    return (size_t)mt * 16 * (2 * NB_MT_P * 2 + 4 * 2 + NB_MT_WARPS * NB_MT_X * 4);
}
__host__ __device__ inline size_t nb_mt_tile_bytes(const nb_mt_shape &s)
{
    return (size_t)NB_MT_TOK * s.stride * 2;
}

template <int MT> struct nb_mt_work { /* in shared memory */
    float x[NB_MT_WARPS][16 * MT][NB_MT_X];
    uint16_t p[2][16 * MT][NB_MT_P];
    float c[16 * MT], pad[16 * MT];
};

/* The warp's number in its team of 8 (mla_mma.cu and mla_tail.cu may have two teams in a block). */
__device__ inline uint32_t nb_mt_warp()
{
    return threadIdx.x / 32 % NB_MT_WARPS;
}

/* A warp's queries and its part of the state. */
template <int MT> struct nb_mt_state {
    uint32_t q[2][MT][NB_MT_KSTEPS][4];
    float o[MT][NB_MT_PAIRS][2][4];
    float m[MT][2], l[MT][2]; /* of rows 16 i + 2 w and + 1; l: of the lane's tokens */
};

template <int MT> __device__ inline void nb_mt_reset(nb_mt_state<MT> &z)
{
#pragma unroll
    for (int i = 0; i < MT; i++) {
        z.m[i][0] = z.m[i][1] = -INFINITY;
        z.l[i][0] = z.l[i][1] = 0;
#pragma unroll
        for (int j = 0; j < NB_MT_PAIRS; j++)
#pragma unroll
            for (int k = 0; k < 4; k++) z.o[i][j][0][k] = z.o[i][j][1][k] = 0;
    }
}

/* Element c of a row in the tile's order; q NULL: a missing row, all zeros. */
__device__ inline float nb_mt_q(const nb_mt_shape &s, const float *q, uint32_t c)
{
    if (!q) return 0;
    if (c < s.kl) return c < s.lora ? q[c] : 0;
    return c - s.kl < s.d_rope ? q[s.lora + c - s.kl] : 0;
}

__device__ inline void nb_mt_split(float a, float b, uint32_t &hi, uint32_t &lo)
{
    hi = nb_pack_bf16(a, b);
    lo = nb_pack_bf16(a - __uint_as_float(hi << 16), b - __uint_as_float(hi & 0xffff0000u));
}

/* Loads the queries of tile i: q0 and q1 are this lane's two rows, NULL where there is none.  Without padding, all
 * loads are issued before the first is used. */
template <int MT>
__device__ inline void nb_mt_load_q(nb_mt_state<MT> &z, int i, const nb_mt_shape &s,
                                    const float *q0, const float *q1, const float *any)
{
    const uint32_t w = nb_mt_warp(), t = threadIdx.x % 4;
    const float *at0 = q0 ? q0 : any, *at1 = q1 ? q1 : any;
    const bool plain =
        s.lora + s.d_rope == s.k && ((uintptr_t)at0 & 7) == 0 && ((uintptr_t)at1 & 7) == 0;
    if (__all_sync(~0u, plain)) {
        float2 x[NB_MT_KSTEPS][4];
#pragma unroll
        for (int j = 0; j < NB_MT_KSTEPS; j++) {
            const uint32_t c = 16 * (w + NB_MT_WARPS * j), from = c < s.k ? c + 2 * t : 2 * t;
#pragma unroll
            for (int k = 0; k < 4; k++)
                x[j][k] = *reinterpret_cast<const float2 *>((k % 2 ? at1 : at0) + from +
                                                            (k >= 2 ? 8 : 0));
        }
#pragma unroll
        for (int j = 0; j < NB_MT_KSTEPS; j++)
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const bool in = 16 * (w + NB_MT_WARPS * j) < s.k && (k % 2 ? q1 : q0);
                nb_mt_split(in ? x[j][k].x : 0, in ? x[j][k].y : 0, z.q[0][i][j][k],
                            z.q[1][i][j][k]);
            }
        return;
    }
#pragma unroll 1
    for (int e = 0; e < NB_MT_KSTEPS * 4; e++) {
        const uint32_t c = 16 * (w + NB_MT_WARPS * (e / 4)) + 2 * t + (e % 4 >= 2 ? 8 : 0);
        const float *q = e % 2 ? q1 : q0;
        uint32_t hi, lo;
        nb_mt_split(c < s.k ? nb_mt_q(s, q, c) : 0, c < s.k ? nb_mt_q(s, q, c + 1) : 0, hi, lo);
#pragma unroll
        for (int j = 0; j < NB_MT_KSTEPS; j++)
#pragma unroll
            for (int k = 0; k < 4; k++)
                if (e == 4 * j + k) z.q[0][i][j][k] = hi, z.q[1][i][j][k] = lo;
    }
}

/* Partial scores of all rows with the tile's tokens. */
template <int MT, bool LO>
__device__ inline void nb_mt_scores(nb_mt_work<MT> *s, const nb_mt_state<MT> &z,
                                    const nb_mt_shape &d, const uint16_t *tile)
{
    const uint32_t w = nb_mt_warp(), lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const uint16_t *at = tile + ((lane & 7) + (lane >> 4) * 8) * d.stride + (lane >> 3 & 1) * 8;
    const uint32_t lo = NB_MT_TOK * d.stride;
    float acc[MT][4][4];
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int n = 0; n < 4; n++) acc[i][n][0] = acc[i][n][1] = acc[i][n][2] = acc[i][n][3] = 0;
#pragma unroll
    for (int j = 0; j < NB_MT_KSTEPS; j++) {
        const uint32_t c = 16 * (w + NB_MT_WARPS * j);
        if (c >= d.k) break;
#pragma unroll
        for (int h = 0; h < 2; h++) { /* 16 tokens */
            uint32_t b[4];
            nb_ldmatrix4(b, at + h * 16 * d.stride + c);
#pragma unroll
            for (int i = 0; i < MT; i++) {
                nb_mma_bf16(acc[i][2 * h], z.q[0][i][j], b[0], b[1]);
                nb_mma_bf16(acc[i][2 * h + 1], z.q[0][i][j], b[2], b[3]);
                nb_mma_bf16(acc[i][2 * h], z.q[1][i][j], b[0], b[1]);
                nb_mma_bf16(acc[i][2 * h + 1], z.q[1][i][j], b[2], b[3]);
            }
            if (!LO) continue;
            nb_ldmatrix4(b, at + lo + h * 16 * d.stride + c);
#pragma unroll
            for (int i = 0; i < MT; i++) {
                nb_mma_bf16(acc[i][2 * h], z.q[0][i][j], b[0], b[1]);
                nb_mma_bf16(acc[i][2 * h + 1], z.q[0][i][j], b[2], b[3]);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int n = 0; n < 4; n++) {
            float *x = &s->x[w][16 * i + g][8 * n + 2 * t];
            *reinterpret_cast<float2 *>(x) = make_float2(acc[i][n][0], acc[i][n][1]);
            *reinterpret_cast<float2 *>(x + 8 * NB_MT_X) = make_float2(acc[i][n][2], acc[i][n][3]);
        }
}

/* Weights of the first n_vis tokens; scale includes log2(e). */
template <int MT>
__device__ inline void nb_mt_softmax(nb_mt_work<MT> *s, nb_mt_state<MT> &z, uint32_t n_vis,
                                     float scale)
{
    const uint32_t w = nb_mt_warp(), lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const uint32_t r = 16 * i + 2 * w + k;
            float e = 0;
#pragma unroll
            for (int v = 0; v < NB_MT_WARPS; v++) e += s->x[v][r][lane];
            e = lane < n_vis ? e * scale : -INFINITY;
            float m = e;
#pragma unroll
            for (int b = 16; b > 0; b /= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, b));
            m = fmaxf(m, z.m[i][k]);
            const float c = nb_exp2(z.m[i][k] - m), p = lane < n_vis ? nb_exp2(e - m) : 0;
            z.m[i][k] = m;
            z.l[i][k] = z.l[i][k] * c + p;
            const uint16_t hi = nb_bf16_bits(p);
            s->p[0][r][lane] = hi;
            s->p[1][r][lane] = nb_bf16_bits(p - nb_bf16_float(hi));
            if (lane == 0) s->c[r] = c;
        }
}

/* o = o c + p v. */
template <int MT, bool LO>
__device__ inline void nb_mt_values(const nb_mt_work<MT> *s, nb_mt_state<MT> &z,
                                    const nb_mt_shape &d, const uint16_t *tile)
{
    const uint32_t w = nb_mt_warp(), lane = threadIdx.x % 32, g = lane / 4;
    const uint16_t *at = tile + (lane & 15) * d.stride + (lane >> 4) * 8;
    const uint32_t lo = NB_MT_TOK * d.stride;
#pragma unroll
    for (int i = 0; i < MT; i++) {
        const float c0 = s->c[16 * i + g], c1 = s->c[16 * i + g + 8];
        if (!__any_sync(~0u, !(c0 == 1) || !(c1 == 1))) continue;
#pragma unroll
        for (int j = 0; j < NB_MT_PAIRS; j++)
#pragma unroll
            for (int n = 0; n < 2; n++) {
                z.o[i][j][n][0] *= c0, z.o[i][j][n][1] *= c0;
                z.o[i][j][n][2] *= c1, z.o[i][j][n][3] *= c1;
            }
    }
#pragma unroll
    for (int h = 0; h < 2; h++) { /* 16 tokens */
        uint32_t p[2][MT][4];
#pragma unroll
        for (int i = 0; i < MT; i++)
#pragma unroll
            for (int k = 0; k < 2; k++)
                nb_ldmatrix4(p[k][i], &s->p[k][16 * i + (lane & 15)][16 * h + (lane >> 4) * 8]);
#pragma unroll
        for (int j = 0; j < NB_MT_PAIRS; j++) {
            const uint32_t c = 16 * (w + NB_MT_WARPS * j);
            if (c >= d.kl) break;
            uint32_t b[4];
            nb_ldmatrix4_trans(b, at + h * 16 * d.stride + c);
#pragma unroll
            for (int i = 0; i < MT; i++) {
                nb_mma_bf16(z.o[i][j][0], p[0][i], b[0], b[1]);
                nb_mma_bf16(z.o[i][j][1], p[0][i], b[2], b[3]);
                nb_mma_bf16(z.o[i][j][0], p[1][i], b[0], b[1]);
                nb_mma_bf16(z.o[i][j][1], p[1][i], b[2], b[3]);
            }
            if (!LO) continue;
            nb_ldmatrix4_trans(b, at + lo + h * 16 * d.stride + c);
#pragma unroll
            for (int i = 0; i < MT; i++) {
                nb_mma_bf16(z.o[i][j][0], p[0][i], b[0], b[1]);
                nb_mma_bf16(z.o[i][j][1], p[0][i], b[2], b[3]);
            }
        }
    }
}

/* Writes one of this lane's rows of tile i (half 0: g, 1: g + 8) to o; with `join`, combined with what is there. */
template <int MT>
__device__ inline void nb_mt_put_o(const nb_mt_state<MT> &z, int i, const nb_mt_shape &d, float *o,
                                   int half, bool join, const nb_mla_merge &f)
{
    const uint32_t w = nb_mt_warp(), t = threadIdx.x % 4;
#pragma unroll
    for (int j = 0; j < NB_MT_PAIRS; j++)
#pragma unroll
        for (int n = 0; n < 2; n++) {
            const uint32_t c = 16 * (w + NB_MT_WARPS * j) + 8 * n + 2 * t;
            float x = half ? z.o[i][j][n][2] : z.o[i][j][n][0];
            float y = half ? z.o[i][j][n][3] : z.o[i][j][n][1];
            if (c + 1 < d.lora && d.lora % 2 == 0) {
                float2 *p = reinterpret_cast<float2 *>(o + c);
                if (join) {
                    const float2 old = *p;
                    x = nb_mla_merged(f, old.x, x);
                    y = nb_mla_merged(f, old.y, y);
                }
                *p = make_float2(x, y);
            } else {
                if (c < d.lora) o[c] = join ? nb_mla_merged(f, o[c], x) : x;
                if (c + 1 < d.lora) o[c + 1] = join ? nb_mla_merged(f, o[c + 1], y) : y;
            }
        }
}

/* Sums l of one of the warp's rows over all tokens (lanes). */
__device__ inline float nb_mt_sum(float l)
{
#pragma unroll
    for (int b = 16; b > 0; b /= 2) l += __shfl_xor_sync(~0u, l, b);
    return l;
}

/* Rounds eight values to BF16 (pack8); and what that leaves of them (rest8). */
__device__ inline uint4 nb_mt_pack8(const float (&v)[8])
{
    uint32_t p[4];
    nb_kv_pack8(v, p);
    return make_uint4(p[0], p[1], p[2], p[3]);
}
__device__ inline uint4 nb_mt_rest8(const float (&v)[8], const uint4 &hi)
{
    const uint32_t p[4] = { hi.x, hi.y, hi.z, hi.w };
    float r[8];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        r[2 * j] = v[2 * j] - __uint_as_float(p[j] << 16);
        r[2 * j + 1] = v[2 * j + 1] - __uint_as_float(p[j] & 0xffff0000u);
    }
    return nb_mt_pack8(r);
}

/* ---- two teams of 8 warps in a block, each with its own state: the second's is combined into the first's ---- */

/* In shared memory: the second team's state, and m of the first's. */
struct nb_mt_second {
    float m[16], l[16], first[16], o[16][NB_MT_LORA + 8];
};

/* Called by both teams; the caller then needs a __syncthreads. */
__device__ inline void nb_mt_put_second(nb_mt_second *s, nb_mt_state<1> &z, uint32_t team)
{
    const uint32_t w = nb_mt_warp(), lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int j = 0; j < 2; j++) {
        z.m[0][j] = nb_mla_state_m(z.m[0][j]);
        z.l[0][j] = nb_mt_sum(z.l[0][j]);
        if (lane == 0) (team ? s->m : s->first)[2 * w + j] = z.m[0][j];
        if (lane == 0 && team) s->l[2 * w + j] = z.l[0][j];
    }
#pragma unroll
    for (int j = 0; team && j < NB_MT_PAIRS; j++)
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                *reinterpret_cast<float2 *>(
                    &s->o[g + 8 * half][16 * (w + NB_MT_WARPS * j) + 8 * n + 2 * t]) =
                    make_float2(z.o[0][j][n][2 * half], z.o[0][j][n][2 * half + 1]);
}

/* Called by the first team; afterwards every lane has the row's l. */
__device__ inline void nb_mt_join_second(const nb_mt_second *s, nb_mt_state<1> &z)
{
    const uint32_t w = nb_mt_warp(), lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const uint32_t r = g + 8 * half;
        const nb_mla_merge f = nb_mla_merge_of(s->first[r], s->m[r]);
#pragma unroll
        for (int j = 0; j < NB_MT_PAIRS; j++)
#pragma unroll
            for (int n = 0; n < 2; n++)
#pragma unroll
                for (int i = 0; i < 2; i++)
                    z.o[0][j][n][2 * half + i] =
                        nb_mla_merged(f, z.o[0][j][n][2 * half + i],
                                      s->o[r][16 * (w + NB_MT_WARPS * j) + 8 * n + 2 * t + i]);
    }
#pragma unroll
    for (int j = 0; j < 2; j++) {
        const nb_mla_merge f = nb_mla_merge_of(z.m[0][j], s->m[2 * w + j]);
        z.l[0][j] = nb_mla_merged(f, z.l[0][j], s->l[2 * w + j]);
        z.m[0][j] = f.m;
    }
}

#endif
