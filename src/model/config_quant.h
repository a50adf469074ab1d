/* config_quant.h - quantised weights of a checkpoint: what quantization_config says of their bytes, so that
 * `nibble plan` can count them, and what their tensors do not say themselves (weight_form.h).
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

/* Where the codes of `qweight` lie (weight_repack.c). */
typedef enum nb_quant_pack {
    NB_PACK_ROWS, /* there are none */
    NB_PACK_AWQ,
    NB_PACK_GPTQ,   /* zero points are stored less 1 */
    NB_PACK_GPTQ_V2 /* as they are */
} nb_quant_pack;

typedef struct nb_quant {
    char method[32];   /* "": none; printable */
    size_t bits;       /* of a value; 0: config.json does not say, or: */
    bool mixed;        /* matrices differ, each one's tensors say how */
    size_t rows, cols; /* that share a scale; cols 0: the whole row */
    size_t scale_bits; /* of a scale */
    size_t zero_bits;  /* of its zero point; 0: none */
    size_t col_bytes;  /* beside them, of each column */
    nb_quant_pack pack;
    bool fp4;          /* values of 4 bits are E2M1 */
    bool runs;         /* nibble runs them, on a CPU */
    unsigned units,
        partly; /* masks of 1 << nb_quant_unit: quantised; of which some layers are not */
} nb_quant;

/* What quantization_config says.  dense: [n_layer] layers without experts.  A method that is not known, or
 * parameters that differ from matrix to matrix, are no failure: bits is 0 then.  NB_ERR_FORMAT,
 * NB_ERR_LIMIT, NB_ERR_NOMEM. */
nb_status nb_quant_read(nb_doc *doc, const bool *dense, size_t n_layer, nb_quant *out,
                        nb_error *err);

/* The same from ModelOpt's hf_quant_config.json; out->method "" where it leaves the weights alone. */
nb_status nb_quant_read_file(nb_doc *doc, const bool *dense, size_t n_layer, nb_quant *out,
                             nb_error *err);
/* Whether nibble runs such weights: NB_ERR_UNSUPPORTED names the field and its value. */
nb_status nb_quant_check(nb_doc *doc, const nb_quant *q, nb_error *err);
/* The same of the file. */
nb_status nb_quant_check_file(nb_doc *doc, nb_error *err);
/* Whether a module is quantised, as far as its name says. */
bool nb_quant_has(const nb_quant *q, const char *module);

/* Four bits and a scale of 16 for 32 values: what --weight-dtype int4 of `nibble plan` means; with routed
 * experts only these. */
nb_quant nb_quant_int4(bool experts);

/* A matrix of these sizes; codes of a row in words of 32 bits.  bits > 0. */
uint64_t nb_quant_bytes(const nb_quant *q, size_t n_row, size_t n_col);

#endif
