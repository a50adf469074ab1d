/* index_score_amx.c - scores of an indexer on the tile unit: 64 tokens x 16 heads at a time.
 *
 * Keys are rows of BF16 (which they are already; their rounding changes nothing), a query lies as the unit wants its
 * second operand: pairs of values, 16 heads a row.  Four tiles of sums are in flight; what they give goes through
 * memory, where max, the head's weight and the sum over heads are three vector instructions per token and 16 heads. */
#include <string.h>

#include "kernel/index_score/index_score.h"
#include "kernel/x86/amx_tile.h"
#include "kernel/x86/vec_avx512.h"

enum { TILE = 16, STEP = 32 }; /* heads of a block; values of a step */

static size_t n_block(size_t n_head)
{
    return (n_head + TILE - 1) / TILE;
}
static size_t n_step(size_t dim)
{
    return (dim + STEP - 1) / STEP;
}

size_t nb_index_bytes_amx(size_t n_head, size_t dim)
{
    return n_block(n_head) * TILE * (sizeof(float) + n_step(dim) * STEP * 2);
}

/* Keys, the sums of a block, the lanes of tokens. */
size_t nb_index_scratch_amx(size_t n_head, size_t dim)
{
    (void)n_head;
    return NB_INDEX_TOK * (n_step(dim) * STEP * 2 + 2 * TILE * sizeof(float));
}

static uint16_t rounded(float x)
{
    const __m256i h = (__m256i)_mm512_cvtneps_pbh(_mm512_set1_ps(x));
    return (uint16_t)_mm256_extract_epi16(h, 0);
}

void nb_index_pack_amx(size_t n_head, size_t dim, const float *q, const float *w, void *out)
{
    const size_t block = n_step(dim) * STEP * TILE;
    float *weight = out;
    uint16_t *to = (uint16_t *)(void *)(weight + n_block(n_head) * TILE);
    memset(out, 0, nb_index_bytes_amx(n_head, dim));
    for (size_t h = 0; h < n_head; h++) {
        weight[h] = w[h];
        for (size_t d = 0; d < dim; d++)
            to[h / TILE * block + d / 2 * 2 * TILE + h % TILE * 2 + d % 2] =
                rounded(q[h * dim + d]);
    }
}

static void pack_keys(const nb_index_score_args *a, uint16_t *to)
{
    const size_t width = n_step(a->dim) * STEP;
    const size_t n_row = (a->n_tok + TILE - 1) / TILE * TILE;
    for (size_t t = 0; t < n_row; t++)
        for (size_t d = 0; d < width; d += 16) {
            const size_t left = t < a->n_tok && d < a->dim ? a->dim - d : 0;
            const __mmask16 m = nb_avx512_mask16(left < 16 ? left : 16);
            const float *k = left ? a->k + t * a->k_stride + d : a->k;
            _mm256_store_si256((__m256i *)(void *)(to + t * width + d),
                               (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(m, k)));
        }
}

/* The products of all tokens with a block of heads, into sum [64][16]. */
static void multiply(const uint16_t *k, const uint16_t *q, size_t n_k, size_t n_tile, float *sum)
{
    const size_t row = n_k * STEP * 2; /* bytes of a key */
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (size_t s = 0; s < n_k; s++) {
        const uint16_t *x = k + s * STEP;
        _tile_loadd(4, q + s * STEP * TILE, 64);
        _tile_loadd(5, x, row);
        _tile_dpbf16ps(0, 5, 4);
        if (n_tile > 1) {
            _tile_loadd(6, x + TILE * row / 2, row);
            _tile_dpbf16ps(1, 6, 4);
        }
        if (n_tile > 2) {
            _tile_loadd(7, x + TILE * row, row);
            _tile_dpbf16ps(2, 7, 4);
        }
        if (n_tile > 3) {
            _tile_loadd(5, x + TILE * row / 2 * 3, row);
            _tile_dpbf16ps(3, 5, 4);
        }
    }
    _tile_stored(0, sum, 64);
    _tile_stored(1, sum + TILE * TILE, 64);
    _tile_stored(2, sum + 2 * TILE * TILE, 64);
    _tile_stored(3, sum + 3 * TILE * TILE, 64);
    nb_amx_written();
}

void nb_index_score_amx(const nb_index_score_args *a)
{
    static const nb_amx_config full = NB_AMX_FULL;
    const size_t n_k = n_step(a->dim), n_b = n_block(a->n_head),
                 n_tile = (a->n_tok + TILE - 1) / TILE;
    uint16_t *k = a->scratch;
    float *sum = (float *)(void *)(k + NB_INDEX_TOK * n_k * STEP),
          *lane = sum + NB_INDEX_TOK * TILE;
    if (a->n_tok == 0 || a->n_query == 0) return;
    pack_keys(a, k);
    nb_amx_configure(&full);
    for (size_t i = 0; i < a->n_query; i++) {
        const float *w = (const float *)(const void *)((const char *)a->q +
                                                       i * nb_index_bytes_amx(a->n_head, a->dim));
        const uint16_t *q = (const uint16_t *)(const void *)(w + n_b * TILE);
        for (size_t b = 0; b < n_b; b++) {
            const __m512 weight = _mm512_loadu_ps(w + b * TILE);
            multiply(k, q + b * n_k * STEP * TILE, n_k, n_tile, sum);
            for (size_t t = 0; t < a->n_tok; t++) {
                const __m512 v = _mm512_max_ps(_mm512_load_ps(sum + t * TILE), _mm512_setzero_ps());
                const __m512 old = b ? _mm512_load_ps(lane + t * TILE) : _mm512_setzero_ps();
                _mm512_store_ps(lane + t * TILE, _mm512_fmadd_ps(weight, v, old));
            }
        }
        for (size_t t = 0; t < a->n_tok; t++)
            a->s[i * a->s_stride + t] = nb_avx512_join(_mm512_load_ps(lane + t * TILE));
    }
    _tile_release();
}
