/* kv_scales.h - what a checkpoint says of its own KV cache: the type it was calibrated for, and
 * scales per layer (ModelOpt's hf_quant_config.json, config.json's quantization_config, tensors
 * such as self_attn.k_proj.k_scale; docs/accuracy.md lists the names). */
#ifndef NB_LOAD_KV_SCALES_H
#define NB_LOAD_KV_SCALES_H
#include "base/arena.h"
#include "load/source.h"

typedef enum nb_kv_algo { NB_KV_ALGO_NONE, NB_KV_ALGO_FP8, NB_KV_ALGO_NVFP4 } nb_kv_algo;

/* DIR/hf_quant_config.json, else the quantization_config of config.json.  A cache type that
 * nibble does not have (INT8, NVFP4_AFFINE) is NB_ERR_UNSUPPORTED by name. */
nb_status nb_kv_algo_read(const char *dir, nb_kv_algo *out, nb_error *err);

/* One of the two files from memory: is_config says which; *out is NB_KV_ALGO_NONE where it names
 * no type.  name stands in the error lines. */
nb_status nb_kv_algo_parse(nb_str json, const char *name, bool is_config, nb_kv_algo *out,
                           nb_error *err);

/* Scales of a layer: 0 where the checkpoint has none. */
typedef struct nb_kv_scale {
    float k, v;
} nb_kv_scale;
/* out: [n_layer].  NB_ERR_FORMAT naming the tensor for a scale that is zero, negative, not
 * finite or not one element.  *n_found: layers that have one. */
nb_status nb_kv_scales_read(nb_source *s, size_t n_layer, nb_kv_scale *out, size_t *n_found,
                            nb_error *err);

#endif
