/* imatrix.h - how much each column of a matrix counts: the mean square of its inputs over a text.
 *
 * With inputs x and an error dW the product errs by dW x, whose expected square is sum_j E[x_j^2] dW_j^2 where the inputs'
 * columns are uncorrelated: the weights w of num/fit.h.  The values come from this engine (nb_imatrix_add) or from a
 * file of llama.cpp's (tools/imatrix): GGUF with general.type "imatrix" and tensors X.in_sum2 [columns, matrices] and
 * X.counts [1, matrices], or the older form: i32 entries, then for each i32 bytes of the name, the name, i32 calls,
 * i32 values, F32 values.  Matrices are named as in a GGUF file; experts and heads are the matrices of one entry. */
#ifndef NB_CONVERT_IMATRIX_H
#define NB_CONVERT_IMATRIX_H
#include "base/status.h"
#include "base/str.h"
#include "nibble/measure.h"

enum { NB_IMATRIX_FEW_ROWS = 32 }; /* an expert with fewer inputs takes the mean of its layer's experts */

typedef struct nb_imatrix nb_imatrix;

nb_status nb_imatrix_create(nb_imatrix **out, nb_error *err);
/* A file, mapped until destroy; nothing is copied.  NB_ERR_FORMAT: a damaged file, or another kind. */
nb_status nb_imatrix_open(const char *path, nb_imatrix **out, nb_error *err);
/* The same of bytes in memory (borrowed). */
nb_status nb_imatrix_open_bytes(nb_str bytes, const char *name, nb_imatrix **out, nb_error *err);
void nb_imatrix_destroy(nb_imatrix *m); /* NULL: nothing */

/* An nb_product_fn; ctx is one from nb_imatrix_create.  Non-zero: out of memory. */
int nb_imatrix_add(void *ctx, const nb_product *p);

/* Which rows of W_kv_b: all that a folder's matrix has, W_UK transposed (columns are the query's), or W_UV. */
typedef enum nb_imatrix_part { NB_IMATRIX_WHOLE, NB_IMATRIX_UK, NB_IMATRIX_UV } nb_imatrix_part;
typedef enum nb_imatrix_found {
    NB_IMATRIX_NONE,  /* no values: w is untouched */
    NB_IMATRIX_OWN,   /* its own */
    NB_IMATRIX_SHARED /* the mean of its layer's experts, or heads */
} nb_imatrix_found;

/* Weights w[cols] of the matrix that is called `name` in a Hugging Face folder, of mean 1, none below 1e-3.  head: of the
 * parts.  NB_ERR_FORMAT: another number of values, or values that are negative or not finite. */
nb_status nb_imatrix_weights(const nb_imatrix *m, const char *name, nb_imatrix_part part, size_t head,
                             size_t cols, float *w, nb_imatrix_found *found, nb_error *err);
/* Entries, for a line about the file. */
size_t nb_imatrix_n(const nb_imatrix *m);
#endif
