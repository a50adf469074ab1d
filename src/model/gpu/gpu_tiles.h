/* gpu_tiles.h - matrices of 4 and 8 bits in the form that a GPU reads (kernel/linear/tiled.h), made by the host's threads. */
#ifndef NB_MODEL_GPU_TILES_H
#define NB_MODEL_GPU_TILES_H
#include "dev/dev.h"
#include "kernel/linear/tiled.h"

/* Of a matrix, or of n below each other: in tiles, as floats where there are no tiles (act order, odd groups, scales that
 * 16 bits do not hold), or as it is. */
typedef enum nb_gpu_shape { NB_GPU_AS_IT_IS, NB_GPU_TILES, NB_GPU_FLOATS } nb_gpu_shape;

typedef struct nb_gpu_form {
    nb_gpu_shape shape;
    nb_wtype type; /* on the device */
    nb_tiled tile; /* of tiles */
    bool row_scales; /* as it is: FP8 with a scale per row */
} nb_gpu_form;

/* The form of n matrices with one n_col, each in it; false: there is none. */
bool nb_gpu_form_of(const nb_weight *const *src, size_t n, nb_gpu_form *out);
/* Makes *a the form of both; false: there is none, and *a is as it was. */
bool nb_gpu_form_join(nb_gpu_form *a, const nb_gpu_form *b);
/* Whether one product can read both, as gate and up. */
bool nb_gpu_form_pair(const nb_gpu_form *a, const nb_gpu_form *b);

/* Planes of a matrix on the device, and bytes of a row of each. */
enum { NB_GPU_CODES, NB_GPU_SCALES, NB_GPU_ZEROS, NB_GPU_ROW, NB_GPU_PLANES };
void nb_gpu_plane_bytes(const nb_gpu_form *f, size_t n_col, size_t out[NB_GPU_PLANES]);

/* Rows [r, r + n) of w, of tiles or floats, to planes of the host. */
void nb_gpu_make_rows(const nb_weight *w, const nb_gpu_form *f, size_t r, size_t n,
                      void *const plane[NB_GPU_PLANES]);
/* The same by all threads. */
void nb_gpu_make_all(nb_dev *dev, const nb_weight *w, const nb_gpu_form *f, size_t r, size_t n,
                     void *const plane[NB_GPU_PLANES]);

/* A matrix of the device: planes, which are NULL where the form has none. */
nb_weight nb_gpu_weight_of(const nb_gpu_form *f, size_t n_row, size_t n_col,
                           void *const plane[NB_GPU_PLANES]);

#endif
