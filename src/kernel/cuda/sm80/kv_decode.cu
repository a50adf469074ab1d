/* kv_decode.cu - decodes pages to rows of BF16 parts and floats, for the expanded form.
 *
 * A thread decodes eight adjacent values of four tokens, 16 apart, with all loads in flight together.  It stores each
 * form as one 16-byte piece (two for floats).  Threads are ordered along a token's values, then along tokens, so a warp
 * reads and writes whole lines.  Bound by memory, mostly by the writes.  Own rows are converted the same way from
 * floats.  kv_decode.cuh decodes the values themselves. */
#include "kernel/cuda/common/kv_decode.cuh"
#include "kernel/cuda/common/ops.cuh"

namespace
{

enum { THREADS = 256, PAGE = NB_PAGE_TOK, EACH = 4 };

struct decode {
    nb_cuda_kv_decode_args a;
    uint32_t seg, off, n_eight; /* segment; its first value in a row; eights per vector */
};

/* Stores values place.. of row i, of which n <= 8 exist, in every form that y asks for. */
__device__ void put8(const nb_cuda_rows &y, size_t i, uint32_t place, uint32_t n,
                     const float (&v)[8])
{
    const size_t at = i * y.stride + place;
    if (n < 8 || place % 8 != 0) {
        for (uint32_t j = 0; j < 8; j++)
            if (j < n) nb_put(y, at + j, v[j]);
        return;
    }
    if (y.f) {
        float4 *f = reinterpret_cast<float4 *>(y.f + at);
        f[0] = make_float4(v[0], v[1], v[2], v[3]);
        f[1] = make_float4(v[4], v[5], v[6], v[7]);
    }
    if (!y.hi) return;
    uint32_t p[4];
    nb_kv_pack8(v, p);
    *reinterpret_cast<uint4 *>(y.hi + at) = make_uint4(p[0], p[1], p[2], p[3]);
    if (!y.lo) return;
    float rest[8];
#pragma unroll
    for (int j = 0; j < 8; j++)
        rest[j] = v[j] - __uint_as_float(j & 1 ? p[j / 2] & 0xffff0000u : p[j / 2] << 16);
    nb_kv_pack8(rest, p);
    *reinterpret_cast<uint4 *>(y.lo + at) = make_uint4(p[0], p[1], p[2], p[3]);
}

/* Threads are ordered by page, token, place in the token; each has every 16th token of its page. */
template <int FMT> __global__ void __launch_bounds__(THREADS) decode_pages(NB_PARAM decode p)
{
    const nb_cuda_cache &cache = p.a.cache;
    const nb_record_seg &s = cache.record.seg[p.seg];
    const nb_cuda_chunk &c = cache.chunk[p.a.chunk];
    const uint32_t per_tok = p.n_eight * (uint32_t)s.n_vec, dim = (uint32_t)s.dim;
    const uint32_t per_page = per_tok * (PAGE / EACH);
    const uint32_t u = blockIdx.x * THREADS + threadIdx.x, i = u / per_page, rest = u % per_page;
    const uint32_t tok = rest / per_tok, k = rest % per_tok;
    const uint32_t vec = k / p.n_eight, i0 = 8 * (k % p.n_eight);
    if (i >= (uint32_t)p.a.n_page) return;
    const uint32_t block = cache.block[c.block0 + p.a.page0 + i];
    const unsigned char *page = cache.pool + block * cache.block_bytes + cache.layer_off;
    float v[EACH][8];
#pragma unroll
    for (uint32_t j = 0; j < EACH; j++)
        nb_kv_load8<FMT>(s, page, tok + j * (PAGE / EACH), vec, i0, v[j]);
#pragma unroll
    for (uint32_t j = 0; j < EACH; j++)
        put8(p.a.y[p.seg], (size_t)i * PAGE + tok + j * (PAGE / EACH), vec * dim + i0,
             dim - i0 < 8 ? dim - i0 : 8, v[j]);
}

/* Own rows, treated as one vector. */
__global__ void __launch_bounds__(THREADS) decode_own(NB_PARAM decode p)
{
    const nb_cuda_cache &cache = p.a.cache;
    const nb_record_seg &s = cache.record.seg[p.seg];
    const nb_cuda_chunk &c = cache.chunk[p.a.chunk];
    const uint32_t n = (uint32_t)(s.n_vec * s.dim), u = blockIdx.x * THREADS + threadIdx.x;
    const uint32_t tok = u / p.n_eight, i0 = 8 * (u % p.n_eight);
    if (tok >= PAGE) return;
    const size_t row = (p.a.page0 + blockIdx.y) * PAGE + tok;
    const float *x = (c.own ? c.own : c.tail + cache.tail_off) + row * cache.record.n_values;
    const bool there = c.n_tok != 0 && row < c.pos0 % PAGE + c.n_tok;
    float v[8];
#pragma unroll
    for (uint32_t j = 0; j < 8; j++) v[j] = there && i0 + j < n ? x[p.off + i0 + j] : 0;
    put8(p.a.y[p.seg], (size_t)blockIdx.y * PAGE + tok, i0, n - i0 < 8 ? n - i0 : 8, v);
}

} // namespace

#define PAGES(fmt)                                                                                 \
    case fmt: NB_LAUNCH(g, (decode_pages<fmt>), grid, dim3(THREADS), 0, p); break;

void nb_cuda_kv_decode(nb_cuda *g, const nb_cuda_kv_decode_args *a)
{
    if (a->n_page == 0) return;
    decode p = { *a, 0, 0, 0 };
    for (uint32_t seg = 0; seg < a->cache.record.n_seg; seg++) {
        const nb_record_seg &s = a->cache.record.seg[seg];
        const size_t n = s.n_vec * s.dim;
        const bool wanted = a->y[seg].f || a->y[seg].hi;
        p.seg = seg;
        p.n_eight = (uint32_t)((a->own ? n : s.dim) + 7) / 8;
        const size_t own_unit = PAGE * (size_t)p.n_eight;
        const size_t unit = PAGE / EACH * (size_t)p.n_eight * s.n_vec * a->n_page;
        const dim3 own((unsigned)((own_unit + THREADS - 1) / THREADS), (unsigned)a->n_page);
        const dim3 grid((unsigned)((unit + THREADS - 1) / THREADS));
        if (wanted && a->own)
            NB_LAUNCH(g, decode_own, own, dim3(THREADS), 0, p);
        else if (wanted)
            switch (s.fmt) {
                NB_KV_CUDA_FORMATS(PAGES)
            default: break;
            }
        p.off += (uint32_t)n;
    }
}
