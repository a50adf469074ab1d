/* weight_form.h - quantised matrices of safetensors checkpoints: from a module's tensors to an nb_weight.
 *
 * The tensors decide, module by module: which of them are there, their types and their sizes.  config.json
 * (nb_quant) says what they cannot: bits, the length of groups, which packing.  Where both say
 * something and differ, the checkpoint is refused.  A weight points into the source's files where the layout
 * allows it; AWQ, GPTQ and act order are packed anew, without loss, into the arena.
 *
 *   tensors of module X                                  becomes
 *   X.weight_packed I32, weight_scale, weight_shape      INT4 or BYTE   compressed-tensors pack-quantized
 *     (weight_zero_point, weight_g_idx)
 *   X.weight_packed U8, weight_scale                     FP4            nvfp4-pack (weight_global_scale
 *                                                                       divides), mxfp4-pack
 *   X.weight U8, weight_scale                            FP4            ModelOpt NVFP4 (weight_scale_2
 *                                                                       multiplies), Quark MXFP4
 *   X.weight F8_E4M3, weight_scale or weight_scale_inv   FP8B           per tensor, per row, 128x128; also E8M0
 *   X.weight I8, weight_scale                            BYTE           per row or group
 *   X.weight I8 [rows][cols / 2], weight_scale_inv       INT4           W4AFP8
 *   the same with weight_scale_inv E8M0                  FP4            DeepSeek V4's experts
 *   X.qweight, qzeros, scales (g_idx)                    INT4 or BYTE   AWQ, GPTQ, AutoRound
 *   X float [experts][rows][cols]                        as it is       all experts of a layer, gate above up
 *   X F8_E4M3 [experts][rows][cols], X_scale_inv         FP8B           the same, one scale for each expert
 *   X_blocks U8 [experts][rows][cols / 32][16], X_scales FP4            gpt-oss MXFP4: all experts of a layer
 *
 * Scales of activations (input_scale, input_global_scale, ...) are not used: activations stay
 * floats. */
#ifndef NB_MODEL_WEIGHT_FORM_H
#define NB_MODEL_WEIGHT_FORM_H
#include "base/arena.h"
#include "kernel/linear/packed.h"
#include "load/source.h"
#include "model/config_quant.h"

typedef struct nb_form {
    nb_source *source;
    nb_arena *arena; /* for what has to be made; lives as long as the weight */
    const nb_quant *quant;
    const char *module; /* the tensors' common name, without ".weight" */
    size_t rows, cols;
    nb_error *err;
} nb_form;

/* Whether module has quantised weights. */
bool nb_form_is_quantised(const nb_source *s, const char *module);
/* Takes a module's tensors.  Any size, index or scale that does not fit is refused with a line that names the
 * tensor.  NB_ERR_FORMAT, NB_ERR_NOT_FOUND, NB_ERR_UNSUPPORTED, NB_ERR_NOMEM. */
nb_status nb_form_take(nb_form *f, nb_weight *out);

/* Experts of a layer in one tensor: experts is "model.layers.N.mlp.experts". */
bool nb_form_is_stacked(const nb_source *s, const char *experts);
/* Matrix `part` ("gate", "up" or "down") of expert j of n: f->module is experts, rows and cols are the matrix's.  Rows
 * of MXFP4's gate and up take turns in gate_up_proj and are copied; all else are views. */
nb_status nb_form_take_stacked(nb_form *f, size_t j, size_t n, const char *part, nb_weight *out);

/* ---- between weight_form.c and weight_repack.c ---- */

/* X.suffix with these types and sizes (0: any). */
nb_status nb_form_tensor(nb_form *f, const char *suffix, uint32_t dtypes, size_t n_dim, size_t d0,
                         size_t d1, nb_tensor *out);
nb_status nb_form_bad(const nb_form *f, const char *suffix, const char *fmt, ...) NB_PRINTF(3, 4);
nb_status nb_form_nomem(const nb_form *f);
/* The length of groups when a row has n_group of them. */
nb_status nb_form_group(nb_form *f, const char *suffix, size_t n_group, size_t *size);
/* Whether config.json has integers of this many bits, or says nothing. */
bool nb_form_may_have(const nb_form *f, size_t bits);
nb_status nb_form_check_scales(nb_form *f, const char *suffix, const nb_weight *w);
/* Sorts the columns of w by group where g_idx [cols] is not their order already. */
nb_status nb_form_act_order(nb_form *f, const char *suffix, const int32_t *g_idx, nb_weight *w);
/* Gives a FP8B weight element i of t as the scale of all its blocks. */
nb_status nb_form_one_scale(nb_form *f, const nb_tensor *t, size_t i, nb_weight *w);
nb_status nb_form_take_repacked(nb_form *f, nb_weight *out);

#endif
