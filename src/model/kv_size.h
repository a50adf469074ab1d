/* kv_size.h - bytes of the cache, from the records of the layers: what the engine allocates with,
 * `info` prints and the planner counts, so that none of them can differ.
 *
 * A block is 64 tokens of all layers; a page is one layer of it.  Nothing here allocates. */
#ifndef NB_MODEL_KV_SIZE_H
#define NB_MODEL_KV_SIZE_H
#include "model/config.h"

/* What --kv-cache-dtype auto is for a checkpoint that says nothing of its cache: the model's own
 * type, as in vLLM.  float16 latents are kept in BF16, whose range holds. */
nb_kv_type nb_kv_type_own(const nb_model_config *c);

/* The record of a layer with this attention, with nothing else asked for. NB_ERR_UNSUPPORTED when the type
 * cannot hold the shape. */
nb_status nb_kv_record(const nb_attn_config *a, nb_kv_type type, nb_rope_fmt rope, nb_record *out,
                       nb_error *err);

/* off[n_layer + 1]: where each layer's page begins in a block; off[n_layer] is the block's size.
 * NB_ERR_LIMIT. */
nb_status nb_kv_layer_offsets(const nb_record *record, size_t n_layer, size_t *off, nb_error *err);
/* The same of the residual planes of Thrift mode; layers whose record has none take nothing.
 * *row: bytes of a token's row (the same in all layers); returns how many layers have a plane. */
size_t nb_kv_plane_offsets(const nb_record *record, size_t n_layer, size_t *off, size_t *row);

/* off[n_layer + 1] (may be NULL), in floats: where each layer's open page begins in a slot, [64][n_values].
 * Returns the bytes of a slot: the open pages of one running request. */
size_t nb_kv_tail_offsets(const nb_record *record, size_t n_layer, size_t *off);
/* The same of the rows of --kv-sinks beside a block, in BF16 values: [n_sink][n_values] per layer. */
size_t nb_kv_sink_offsets(const nb_record *record, size_t n_layer, size_t n_sink, size_t *off);

#endif
