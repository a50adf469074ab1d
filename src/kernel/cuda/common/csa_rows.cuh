/* csa_rows.cuh - what a query of compressed attention reads: its units of rows, and where a row's values are. */
#ifndef NB_KERNEL_CUDA_COMMON_CSA_ROWS_CUH
#define NB_KERNEL_CUDA_COMMON_CSA_ROWS_CUH
#include "kernel/cuda/common/kv_decode.cuh"

/* A query: compressed rows, and tokens of its window (the first at position first); pos UINT32_MAX: padding. */
struct nb_csa_query {
    nb_cuda_chunk c;
    uint32_t pos, n_comp, n_win, first;
};

__device__ inline nb_csa_query nb_csa_query_of(const nb_cuda_csa_attend_args &a, uint32_t i)
{
    nb_csa_query x = {};
    const uint32_t row = (uint32_t)a.row0 + i, chunk = a.row_chunk[row];
    x.pos = UINT32_MAX;
    if (chunk == UINT32_MAX) return x;
    x.c = a.cache.chunk[chunk];
    x.pos = x.c.pos0 + (row - x.c.row0);
    x.n_comp = a.ratio ? (x.pos + 1) / (uint32_t)a.ratio : 0;
    if (a.at && x.n_comp > a.k) x.n_comp = (uint32_t)a.k;
    x.n_win = x.pos + 1 < a.window ? x.pos + 1 : (uint32_t)a.window;
    x.first = x.pos + 1 - x.n_win;
    return x;
}

/* Rows of a unit: n from `begin` on, of the compressed ones or of the window. */
struct nb_csa_unit {
    uint32_t begin, n;
    bool window;
};

__device__ inline nb_csa_unit nb_csa_unit_of(const nb_cuda_csa_attend_args &a, const nb_csa_query &x, uint32_t u)
{
    constexpr uint32_t FIRST = NB_CUDA_CSA_FIRST, FROM = NB_CUDA_CSA_LONG_FROM, LONG = NB_CUDA_CSA_LONG;
    nb_csa_unit r;
    r.window = u < a.n_win_unit;
    if (!r.window) u -= (uint32_t)a.n_win_unit;
    const uint32_t all = r.window ? x.n_win : x.n_comp, n = FROM / FIRST;
    const bool longer = !r.window && u >= n;
    r.begin = longer ? FROM + (u - n) * LONG : u * FIRST;
    const uint32_t left = all > r.begin ? all - r.begin : 0, most = longer ? LONG : FIRST;
    r.n = left < most ? left : most;
    return r;
}

/* Row k of a unit: its values as floats (f), or the page and the row in it. */
struct nb_csa_place {
    const float *f;
    const unsigned char *page;
    uint32_t row;
};

__device__ inline nb_csa_place nb_csa_place_of(const nb_cuda_csa_attend_args &a, const nb_csa_query &x, uint32_t i,
                                               const nb_csa_unit &u, uint32_t k)
{
    const uint32_t at = u.begin + k, ratio = (uint32_t)a.ratio;
    if (u.window) {
        const uint32_t pos = x.first + at;
        const float *f = x.c.tail + a.state_off + (size_t)(pos % (uint32_t)a.window) * a.dim;
        if (pos >= x.c.pos0) f = a.kv + (size_t)(x.c.row0 + (pos - x.c.pos0)) * a.kv_stride;
        return { f, nullptr, 0 };
    }
    const uint32_t w = a.at ? a.at[(size_t)i * a.k + at] : at;
    const uint32_t last = (w + 1) * ratio - 1, page = last / NB_PAGE_TOK, row = last % NB_PAGE_TOK / ratio;
    const nb_record &r = a.cache.record;
    if (page >= x.pos / NB_PAGE_TOK) {
        const float *rows = x.c.tail + a.cache.tail_off;
        if (x.c.own) rows = x.c.own + (size_t)(page - x.c.pos0 / NB_PAGE_TOK) * r.n_row * r.n_values;
        return { rows + (size_t)row * r.n_values, nullptr, row };
    }
    return { nullptr,
             a.cache.pool + a.cache.layer_off + (size_t)a.cache.block[x.c.block0 + page] * a.cache.block_bytes, row };
}

#endif
