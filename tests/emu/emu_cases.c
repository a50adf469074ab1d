/* emu_cases.c - every line of emu_list.inc as a function, and the tile operations.
 *
 * Compiled twice: with the emulation, and with EMU_HARDWARE=1 and the flags of the amx level for the
 * real instructions.  The same source for both is the point. */
#include <immintrin.h>
#include <string.h>

#include "emu/emu_test.h"

#if EMU_HARDWARE
#define CASES emu_hw_cases
#define TILES emu_hw_tiles
#else
#define CASES emu_cases
#define TILES emu_tiles
#endif

#define OUT_I(v) store_512i(out, v)
#define OUT_F(v) _mm512_storeu_ps(out->ps, v)
#define OUT_D(v) _mm512_storeu_pd(out->pd, v)
#define OUT_Y(v) _mm256_storeu_si256((__m256i *)(void *)out->u8, v)
#define OUT_G(v) _mm256_storeu_ps(out->ps, v)
#define OUT_Z(v) _mm_storeu_si128((__m128i *)(void *)out->u8, v)
#define OUT_M(v) (out->u64[0] = (v))
#define OUT_S(v) (out->ps[0] = (v))
#define OUT_N(v) (out->s32[0] = (v))

static inline void store_512i(emu_vec *out, __m512i v)
{
    _mm512_storeu_si512(out->u8, v);
}

#define X(name, kind, expression, statement)                                                       \
    static void run_##name(const emu_in *in, emu_vec *out)                                         \
    {                                                                                              \
        const __m512i a = _mm512_loadu_si512(in->a.u8), b = _mm512_loadu_si512(in->b.u8);          \
        const __m512i c = _mm512_loadu_si512(in->c.u8);                                            \
        const __m512 f = _mm512_loadu_ps(in->f.ps), g = _mm512_loadu_ps(in->g.ps);                 \
        const __m512 h = _mm512_loadu_ps(in->h.ps);                                                \
        const __m512d d = _mm512_loadu_pd(in->d.pd), e = _mm512_loadu_pd(in->e.pd);                \
        const __m256i y = _mm512_castsi512_si256(a);                                               \
        const __m128i q = _mm512_castsi512_si128(a);                                               \
        const uint64_t k = in->k;                                                                  \
        const uint8_t *p = in->mem;                                                                \
        (void)a, (void)b, (void)c, (void)f, (void)g, (void)h, (void)d, (void)e, (void)y;           \
        (void)q, (void)k, (void)p;                                                                 \
        memset(out, 0, sizeof *out);                                                               \
        OUT_##kind(expression);                                                                    \
    }
#include "emu_list.inc"
#undef X
#define X(name, kind, expression, statement) { #name, #kind, run_##name },
const emu_case CASES[] = {
#include "emu_list.inc"
    { 0 },
};

typedef struct config {
    uint8_t palette, start_row, reserved[14];
    uint16_t colsb[16];
    uint8_t rows[16];
} config;

static void set_config(void *bytes64, int m, int k, int n)
{
    config c = { .palette = 1 };
    c.rows[0] = c.rows[1] = (uint8_t)m;
    c.rows[2] = (uint8_t)k;
    c.colsb[0] = c.colsb[2] = (uint16_t)(4 * n);
    c.colsb[1] = (uint16_t)(4 * k);
    memcpy(bytes64, &c, 64);
}

void TILES(int op, emu_tile_in *in)
{
    uint8_t cfg[64];
    set_config(cfg, in->m, in->k, in->n);
    _tile_loadconfig(cfg);
    _tile_loadd(0, in->c, 64);
    _tile_loadd(1, in->a, 64);
    _tile_stream_loadd(2, in->b, 64);
    switch (op) {
    case 0: _tile_dpbf16ps(0, 1, 2); break;
    case 1: _tile_dpbssd(0, 1, 2); break;
    case 2: _tile_dpbsud(0, 1, 2); break;
    case 3: _tile_dpbusd(0, 1, 2); break;
    default: _tile_dpbuud(0, 1, 2); break;
    }
    _tile_stored(0, in->c, 64);
    _tile_release();
}

#if !EMU_HARDWARE
const char *const emu_faults[] = { "aligned load",
                                   "aligned store",
                                   "no configuration",
                                   "tile without shape",
                                   "rows differ",
                                   "columns differ",
                                   "inner differs",
                                   "the same tile",
                                   "palette 2",
                                   "17 rows",
                                   "after a release",
                                   "aligned masked load",
                                   0 };

static void run_tile_fault(size_t i, uint8_t *cfg)
{
    config *c = (config *)(void *)cfg;
    if (i == 4) c->rows[1] = 7;
    if (i == 5) c->colsb[2] = 60;
    if (i == 6) c->rows[2] = 12;
    if (i == 8) c->palette = 2;
    if (i == 9) c->rows[0] = 17;
    _tile_loadconfig(cfg);
    if (i == 3) _tile_zero(5);
    if (i == 7) _tile_dpbssd(0, 1, 1);
    if (i == 10) {
        _tile_release();
        _tile_zero(0);
    }
    _tile_dpbssd(0, 1, 2);
}

void emu_run_fault(size_t i, void *aligned64)
{
    uint8_t cfg[64], *p = aligned64;
    set_config(cfg, 16, 16, 16);
    if (i == 0) _mm512_storeu_si512(p, _mm512_load_si512(p + 8));
    if (i == 1) _mm512_store_ps((float *)(void *)(p + 4), _mm512_setzero_ps());
    if (i == 2) _tile_zero(0);
    if (i == 11) _mm512_storeu_ps(p, _mm512_maskz_load_ps(1, p + 4));
    run_tile_fault(i, cfg);
}

void emu_edge(uint8_t *end, int op)
{
    uint8_t cfg[64];
    __m512i v = _mm512_set1_epi8(3);
    switch (op) {
    case 0: v = _mm512_maskz_loadu_epi8(0x1ff, end - 9); break;
    case 1: v = _mm512_mask_loadu_epi32(v, 0x7, end - 12); break;
    case 2: _mm512_mask_storeu_epi16(end - 6, 0x7, v); break;
    case 3: _mm512_mask_storeu_ps(end - 4, 1, _mm512_castsi512_ps(v)); break;
    case 4: _mm512_mask_compressstoreu_epi32(end - 8, 0x8080, v); break;
    case 5: v = _mm512_maskz_expandloadu_epi8(0x8000000000000001ull, end - 2); break;
    case 6: _mm512_mask_cvtepi32_storeu_epi8(end - 3, 0x7, v); break;
    default:
        set_config(cfg, 3, 2, 5);
        _tile_loadconfig(cfg);
        _tile_loadd(0, end - 2 * 32 - 20, 32);
        _tile_stored(0, end - 2 * 32 - 20, 32);
        _tile_release();
    }
    _mm_storeu_si128((__m128i *)(void *)(end - 64), _mm512_castsi512_si128(v));
}
#endif
