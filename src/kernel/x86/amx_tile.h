/* amx_tile.h - configurations of the tile unit, and a fence for compilers; shared by all AMX files.
 *
 * Eight tiles of up to 16 rows of 64 bytes (palette 1).  A product C += A B takes a cycle for each
 * row of A, 16 for a full tile, with a latency of 52: at least four sums must be in flight to keep
 * the unit busy.  A tile load takes 8 cycles, a store 16. */
#ifndef NB_KERNEL_AMX_TILE_H
#define NB_KERNEL_AMX_TILE_H
#include <immintrin.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

typedef struct nb_amx_config {
    alignas(64) uint8_t palette;
    uint8_t start_row, zero[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} nb_amx_config;

/* All eight tiles with 16 rows of 64 bytes. */
// clang-format off
#define NB_AMX_FULL                                                \
    { .palette = 1, .row_bytes = { 64, 64, 64, 64, 64, 64, 64, 64 }, \
      .rows = { 16, 16, 16, 16, 16, 16, 16, 16 } }
// clang-format on

/* Between ordinary stores and the tile loads (or the configuration) that read what they wrote:
 * gcc's intrinsics do not tell it that memory is read.  No instruction. */
static inline void nb_amx_written(void)
{
    atomic_signal_fence(memory_order_seq_cst);
}

/* Zeroes all tiles. */
static inline void nb_amx_configure(const nb_amx_config *c)
{
    nb_amx_written();
    _tile_loadconfig(c);
}

#endif
