/* config_quant.h - weights of a checkpoint that nibble does not run: what quantization_config says of their
 * bytes, so that `nibble plan` can count them.
 *
 * Sources: the formats' own files.  GPTQ and AWQ: qweight in words of 32 bits, scales of 16 bits and
 * packed zero points of a group, GPTQ also an index of 4 bytes a column.  compressed-tensors and
 * ModelOpt: config_groups.*.weights (num_bits, group_size, strategy, symmetric, type) and ignore.
 * fbgemm_fp8: a byte, and a scale of 32 bits a row.  FP8 with other blocks than 128x128: a byte, and a scale of
 * 32 bits a block. */
#ifndef NB_MODEL_CONFIG_QUANT_H
#define NB_MODEL_CONFIG_QUANT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "load/doc.h"

/* Parts of a model that are quantised together, or not at all. */
typedef enum nb_quant_unit {
    NB_QU_Q,
    NB_QU_Q_A,
    NB_QU_Q_B,
    NB_QU_KV_A,
    NB_QU_KV_B,
    NB_QU_K,
    NB_QU_V,
    NB_QU_O,
    NB_QU_DENSE,  /* feed-forward of dense layers */
    NB_QU_SHARED, /* shared experts */
    NB_QU_EXPERT, /* routed ones */
    NB_QU_HEAD,
    NB_QU_COUNT
} nb_quant_unit;

typedef struct nb_quant {
    char method[32];   /* "": weights that nibble reads; printable */
    size_t bits;       /* of a value; 0: config.json does not say */
    size_t rows, cols; /* that share a scale; cols 0: the whole row */
    size_t scale_bits; /* of a scale */
    size_t zero_bits;  /* of its zero point; 0: none */
    size_t col_bytes;  /* beside them, of each column */
    unsigned units,
        partly; /* masks of 1 << nb_quant_unit: quantised; of which some layers are not */
} nb_quant;

/* What quantization_config says.  dense: [n_layer] layers without experts.  A method that is not known, or
 * parameters that differ from matrix to matrix, are no failure: bits is 0 then.  NB_ERR_FORMAT,
 * NB_ERR_LIMIT, NB_ERR_NOMEM. */
nb_status nb_quant_read(nb_doc *doc, const bool *dense, size_t n_layer, nb_quant *out,
                        nb_error *err);

/* Four bits and a scale of 16 for 32 values: what --weight-dtype int4 of `nibble plan` means; with routed
 * experts only these. */
nb_quant nb_quant_int4(bool experts);

/* A matrix of these sizes; codes of a row in words of 32 bits.  bits > 0. */
uint64_t nb_quant_bytes(const nb_quant *q, size_t n_row, size_t n_col);

#endif
