/* packed.h - weight types that store groups of values: one row of traits per type.
 *
 * A row of the matrix is whole blocks of `block` columns, each `block_bytes` long; what a block needs
 * beside its codes is in it, or in the planes of nb_weight.group.  The one function of a type makes
 * floats of blocks; from it come the reference, the embedding, linear and linear_t on every level
 * (linear_packed_*.c, linear_c.c).  A faster kernel is one more row of linear.c.
 * docs/add-a-weight-type.md has the steps. */
#ifndef NB_KERNEL_PACKED_H
#define NB_KERNEL_PACKED_H
#include "kernel/kernel.h"

/* Columns that generic kernels dequantise at a time; every block divides it. */
enum { NB_PACKED_CHUNK = 256 };

/* Writes the values of columns [c, c + n) of row r as they are stored (without `place`): c is a multiple of
 * the type's block, and c + n is one, too, or n_col.  A value is what the format's formula gives,
 * rounded to float once where it is not exact.  Any bytes are accepted. */
typedef void nb_packed_fn(const nb_weight *w, size_t r, size_t c, size_t n, float *out);

typedef struct nb_wtype_traits {
    const char *name; /* for people: "INT4"              */
    const char *word; /* in options and JSON: "int4"     */
    size_t block, block_bytes;
    nb_packed_fn *values; /* NULL: a plain type, block 1 */
} nb_wtype_traits;
extern const nb_wtype_traits nb_wtypes[NB_W_TYPE_COUNT];

/* Bytes of a row and of all rows in nb_weight.data. */
static inline size_t nb_wtype_row_bytes(nb_wtype t, size_t n_col)
{
    const nb_wtype_traits *x = &nb_wtypes[t];
    return (n_col + x->block - 1) / x->block * x->block_bytes;
}
static inline size_t nb_weight_data_bytes(const nb_weight *w)
{
    return w->n_row * nb_wtype_row_bytes(w->type, w->n_col);
}

/* Bytes of nb_weight.scale, and of all that belongs to a matrix. */
size_t nb_weight_scale_bytes(const nb_weight *w);
size_t nb_weight_bytes(const nb_weight *w);

/* Rows [first, first + n) of a matrix, as one.  FP8B with a scale per block: first is a multiple of NB_FP8_BLOCK. */
nb_weight nb_weight_rows(const nb_weight *w, size_t first, size_t n);

/* Groups of a row, and bytes of the planes of scales and of zero points. */
static inline size_t nb_weight_n_group(const nb_weight *w)
{
    return (w->n_col + w->group.size - 1) / w->group.size;
}
size_t nb_stype_bytes(nb_stype t);
size_t nb_weight_plane_bytes(const nb_weight *w); /* 0 for types without planes */

/* n scales from the i-th on, without `outer`. */
void nb_packed_scales(const nb_wgroups *g, size_t i, size_t n, float *out);

/* Columns [c, c + n) of row r of a packed type, any range, in the matrix's order. */
void nb_packed_values(const nb_weight *w, size_t r, size_t c, size_t n, float *out);

#endif
