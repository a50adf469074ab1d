/* ggml_grids.h - rows of values that the IQ1 to IQ3 types of GGUF choose from (ggml_iq.c).
 *
 * IQ2: eight values of 2 bits each, 0 to 2 for 8, 25 and 43.  IQ1 likewise, for -1, 0 and 1.  IQ3: four values of 3 bits
 * each, for 4, 12, ..., 52, 62 (IQ3_XXS) and 1, 3, ..., 15 (IQ3_S).  The first value is the lowest. */
#ifndef NB_NUM_GGML_GRIDS_H
#define NB_NUM_GGML_GRIDS_H
#include <stdint.h>

extern const uint16_t nb_ggml_grid_iq2_xxs[256], nb_ggml_grid_iq2_xs[512], nb_ggml_grid_iq2_s[1024],
    nb_ggml_grid_iq3_xxs[256], nb_ggml_grid_iq3_s[512], nb_ggml_grid_iq1[2048];

#endif
