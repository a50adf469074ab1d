/* residual_cells.h - the cells of the residual plane, in units of the block scale.
 *
 * Cell i of a grid is [lo, lo + 16 step), and mid = lo + step / 2 the middle of its first part.
 * Eight entries each, so that a vector of eight lanes holds a table. */
#ifndef NB_NUM_RESIDUAL_CELLS_H
#define NB_NUM_RESIDUAL_CELLS_H
#include "num/record.h"

typedef struct nb_cells {
    float lo[8], step[8], mid[8];
} nb_cells;

#define NB_CELLS_E2M1(top)                                                                         \
    {                                                                                              \
        { -.25f, .25f, .75f, 1.25f, 1.75f, 2.5f, 3.5f, 5 }, { 1 / 32.f, 1 / 32.f,        1 / 32.f, \
                                                              1 / 32.f, 3 / 64.f,        1 / 16.f, \
                                                              3 / 32.f, (top - 5) / 16.f },        \
            { -.25f + 1 / 64.f,  .25f + 1 / 64.f, .75f + 1 / 64.f, 1.25f + 1 / 64.f,               \
              1.75f + 3 / 128.f, 2.5f + 1 / 32.f, 3.5f + 3 / 64.f, 5 + (top - 5) / 32.f },         \
    }

/* [0]: E2M1 chosen without clipping, [1]: E2M1 from a search, which may clip, [2]: uniform steps */
static const nb_cells nb_cells_table[3] = {
    NB_CELLS_E2M1(6.5f),
    NB_CELLS_E2M1(7.0f),
    { { -.5f, .5f, 1.5f, 2.5f, 3.5f, 4.5f, 5.5f, 6.5f },
      { 1 / 16.f, 1 / 16.f, 1 / 16.f, 1 / 16.f, 1 / 16.f, 1 / 16.f, 1 / 16.f, 3 / 32.f },
      { -.5f + 1 / 32.f, .5f + 1 / 32.f, 1.5f + 1 / 32.f, 2.5f + 1 / 32.f, 3.5f + 1 / 32.f,
        4.5f + 1 / 32.f, 5.5f + 1 / 32.f, 6.5f + 3 / 64.f } },
};

/* The grid of a block with scale byte sf in segment 0 of r (nvfp4 or if4). */
static inline const nb_cells *nb_cells_of(const nb_record *r, uint8_t sf)
{
    if (r->seg[0].fmt != NB_SEG_IF4) return &nb_cells_table[r->mode == NB_KV_SEARCH];
    return &nb_cells_table[sf & 0x80 ? 2 : 1];
}

#endif
