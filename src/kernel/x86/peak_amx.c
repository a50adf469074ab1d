/* peak_amx.c - peak loops of the tile unit: four accumulators, two tiles on each side, nothing is
 * loaded; 16 cycles a product and a latency of 52 make four chains enough. */
#include <immintrin.h>
#include <string.h>

#include "kernel/peak/peak.h"

/* Palette 1: eight tiles of 16 rows of 64 bytes. */
static const struct {
    _Alignas(64) uint8_t palette;
    uint8_t start_row, reserved[14];
    uint16_t bytes_per_row[16];
    uint8_t rows[16];
} config = { .palette = 1,
             .bytes_per_row = { 64, 64, 64, 64, 64, 64, 64, 64 },
             .rows = { 16, 16, 16, 16, 16, 16, 16, 16 } };

static void start(void)
{
    _Alignas(64) unsigned char one[1024];
    memset(one, 1, sizeof one);
    _tile_loadconfig(&config);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(4, one, 64);
    _tile_loadd(5, one, 64);
    _tile_loadd(6, one, 64);
    _tile_loadd(7, one, 64);
}

static float finish(void)
{
    _Alignas(64) unsigned char out[4][1024];
    _tile_stored(0, out[0], 64);
    _tile_stored(1, out[1], 64);
    _tile_stored(2, out[2], 64);
    _tile_stored(3, out[3], 64);
    _tile_release();
    return (float)(out[0][0] + out[1][0] + out[2][0] + out[3][0]);
}

double nb_peak_bf16_amx(size_t n_round, float *sink)
{
    start();
    for (size_t r = 0; r < n_round; r++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    *sink = finish();
    return 4.0 * 16 * 16 * 32 * 2 * (double)n_round;
}

double nb_peak_int8_amx(size_t n_round, float *sink)
{
    start();
    for (size_t r = 0; r < n_round; r++) {
        _tile_dpbssd(0, 4, 6);
        _tile_dpbssd(1, 4, 7);
        _tile_dpbssd(2, 5, 6);
        _tile_dpbssd(3, 5, 7);
    }
    *sink = finish();
    return 4.0 * 16 * 16 * 64 * 2 * (double)n_round;
}
