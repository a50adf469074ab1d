/* quantize.h - the matrices of a loaded model as INT8 or FP8 (--weight-dtype).
 *
 * Quantised are all matrices of the layers and the head (num/int8_row.h and fp8_row.h have the rules) but those
 * of 4 bits, in groups, in blocks of GGUF, or (for FP8) of FP8 already; not the
 * embedding, of which a row is read per token, nor the router, whose small differences choose
 * experts, nor vectors.  After transforms were folded in and the model's hash was computed. */
#ifndef NB_MODEL_QUANTIZE_H
#define NB_MODEL_QUANTIZE_H
#include "dev/dev.h"
#include "model/model.h"

/* Memory for the codes and scales of a matrix of this shape. */
size_t nb_int8_matrix_bytes(const nb_weight *w);
/* The same for all of them.  Needs shapes only (nb_model_shapes). */
size_t nb_model_int8_bytes(nb_model *m);
size_t nb_model_fp8_bytes(nb_model *m);
/* What m->weight_bytes is with them. */
uint64_t nb_model_int8_weight_bytes(nb_model *m);
uint64_t nb_model_fp8_weight_bytes(nb_model *m);

/* done and total are bytes of the originals. */
typedef void nb_quantize_progress_fn(void *ctx, const char *label, uint64_t done, uint64_t total);

typedef struct nb_quantize_options {
    nb_dev *dev;       /* its workers share the rows of a matrix */
    bool fp8;          /* else INT8 */
    void *memory;      /* [nb_model_int8_bytes or _fp8_bytes], aligned to 64; the caller's, outlives the model */
    nb_source *source; /* of the model: told which tensors are not needed any more */
    nb_quantize_progress_fn *progress; /* or NULL */
    void *progress_ctx;
} nb_quantize_options;

/* Replaces the matrices one after the other, so that beside the result at most one original needs
 * to be in memory.  A weight that is not finite: NB_ERR_FORMAT with the tensor's name; m can then
 * only be destroyed. */
nb_status nb_model_quantize(nb_model *m, const nb_quantize_options *o, nb_error *err);

#endif
