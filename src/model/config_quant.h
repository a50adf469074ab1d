/* config_quant.h - quantised weights of a checkpoint: what quantization_config says of their bytes, so that
 * `nibble plan` can count them, and what their tensors do not say themselves (weight_form.h).
 *
 * A form says how a matrix is stored.  Rules name the modules of each form, and those that stay plain; they are
 * matched as each method does it (config_quant_rules.h), for every layer and kind of module.
 *
 * Sources: the formats' own files.  GPTQ and AWQ: qweight in words of 32 bits, scales of 16 bits and
 * packed zero points of a group, GPTQ also an index of 4 bytes a column.  compressed-tensors and
 * ModelOpt: config_groups.*.weights (num_bits, group_size, strategy, symmetric, type) and ignore.
 * fbgemm_fp8: a byte, and a scale of 32 bits a row.  FP8 with other blocks than 128x128: a byte, and a scale of
 * 32 bits a block.  GGUF: the types of the file's own tensors (load/gguf_config.c). */
#ifndef NB_MODEL_CONFIG_QUANT_H
#define NB_MODEL_CONFIG_QUANT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "load/doc.h"

/* Kinds of modules.  Of a feed-forward gate, up and down, in this order. */
typedef enum nb_quant_unit {
    NB_QU_Q,
    NB_QU_Q_A,
    NB_QU_Q_B,
    NB_QU_KV_A,
    NB_QU_KV_B,
    NB_QU_K,
    NB_QU_V,
    NB_QU_O,
    NB_QU_O_A,     /* DeepSeek V4's: the first of two products */
    NB_QU_INDEX_Q, /* and its indexer's queries */
    NB_QU_DENSE, /* feed-forward of dense layers */
    NB_QU_DENSE_UP,
    NB_QU_DENSE_DOWN,
    NB_QU_SHARED, /* shared experts */
    NB_QU_SHARED_UP,
    NB_QU_SHARED_DOWN,
    NB_QU_EXPERT, /* routed ones */
    NB_QU_EXPERT_UP,
    NB_QU_EXPERT_DOWN,
    NB_QU_HEAD,
    NB_QU_ROUTER, /* in GGUF files only, as the next */
    NB_QU_EMBED,
    NB_QU_K_B, /* kv_b in halves: W_UK transposed, W_UV */
    NB_QU_V_B,
    NB_QU_COUNT
} nb_quant_unit;

/* Where the codes of `qweight` lie (weight_repack.c). */
typedef enum nb_quant_pack {
    NB_PACK_ROWS, /* there are none */
    NB_PACK_AWQ,
    NB_PACK_GPTQ,   /* zero points are stored less 1 */
    NB_PACK_GPTQ_V2 /* as they are */
} nb_quant_pack;

/* How a matrix is stored. */
typedef struct nb_quant_form {
    size_t bits;       /* of a code */
    size_t rows, cols; /* that share a scale; cols 0: the whole row */
    size_t scale_bits; /* of a scale */
    size_t zero_bits;  /* of its zero point; 0: none */
    size_t col_bytes;  /* beside them, of each column */
    bool fp4;          /* codes of 4 bits are E2M1 */
    /* GGUF instead: a row is blocks of `block` values with block_bytes each; 0: not so */
    size_t block, block_bytes;
    char name[16];
} nb_quant_form;

/* The form of each kind of module in each layer: 0 plain, else 1 + its place in nb_quant.form.  Of routed experts the
 * form of the first one; nb_quant.odd has those of other forms. */
typedef struct nb_quant_layer {
    unsigned char form[NB_QU_COUNT];
} nb_quant_layer;

/* n routed experts of a layer whose matrix of kind `unit` has another form than the first one's. */
typedef struct nb_quant_odd {
    unsigned short layer, n;
    unsigned char unit, form;
} nb_quant_odd;

enum { NB_QUANT_MAX_FORM = 32, NB_QUANT_MAX_ODD = 2048 };
typedef struct nb_quant {
    char method[32]; /* "": none; printable */
    nb_quant_form form[NB_QUANT_MAX_FORM];
    size_t n_form; /* 0: config.json does not say */
    bool mixed;    /* and forms may differ in ways that only the tensors say */
    nb_quant_pack pack;
    bool runs;                    /* nibble runs them, on a CPU */
    unsigned char of[NB_QU_COUNT]; /* as in nb_quant_layer, in most layers */
    unsigned partly;              /* mask of 1 << nb_quant_unit: not the same in all layers */
    size_t n_expert;
    nb_quant_odd odd[NB_QUANT_MAX_ODD]; /* in the order of layers */
    size_t n_odd;
} nb_quant;

/* Of which model: its layers, dense or not; routed experts of a layer; whether names may begin with
 * "language_model.". */
typedef struct nb_quant_model {
    const bool *dense; /* [n_layer] */
    size_t n_layer, n_expert;
    bool inner;
} nb_quant_model;

/* What quantization_config says.  layer: [m->n_layer] receives the forms.  A method that is not known, or parameters that say nothing, are no
 * failure: there are no forms then.  NB_ERR_FORMAT, NB_ERR_LIMIT, NB_ERR_NOMEM. */
nb_status nb_quant_read(nb_doc *doc, const nb_quant_model *m, nb_quant *out, nb_quant_layer *layer,
                        nb_error *err);

/* The same from ModelOpt's hf_quant_config.json; out->method "" where it leaves the weights alone. */
nb_status nb_quant_read_file(nb_doc *doc, const nb_quant_model *m, nb_quant *out,
                             nb_quant_layer *layer, nb_error *err);
/* Whether nibble runs such weights: NB_ERR_UNSUPPORTED names the field and its value. */
nb_status nb_quant_check(nb_doc *doc, const nb_quant *q, nb_error *err);
/* The same of the file. */
nb_status nb_quant_check_file(nb_doc *doc, nb_error *err);

/* The form that most matrices have; without forms all of it is 0. */
const nb_quant_form *nb_quant_main(const nb_quant *q);
/* DeepSeek V4: FP8 in blocks of 128x128 with scales of 8 bits, routed experts in MXFP4. */
void nb_quant_set_v4(const bool *dense, size_t n_layer, nb_quant *out, nb_quant_layer *layer);
/* The form of a module by its name; NULL: plain, or not known.  Experts that have another form than the first are
 * taken to be the last ones, which is right for made-up weights. */
const nb_quant_form *nb_quant_of(const nb_quant *q, const nb_quant_layer *layer, size_t n_layer,
                                 const char *module);

/* Four bits and a scale of 16 for 32 values: what --weight-dtype int4 of `nibble plan` means; with routed
 * experts only these. */
nb_quant nb_quant_int4(bool experts);

/* A matrix of these sizes; codes of a row in words of 32 bits. */
uint64_t nb_quant_bytes(const nb_quant_form *f, size_t n_row, size_t n_col);

#endif
