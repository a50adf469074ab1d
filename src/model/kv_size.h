/* kv_size.h - bytes of the cache, from the records of the layers: what the engine allocates with,
 * `info` prints and the planner counts, so that none of them can differ.
 *
 * A block is 64 tokens of all layers; a page is one layer of it.  Nothing here allocates. */
#ifndef NB_MODEL_KV_SIZE_H
#define NB_MODEL_KV_SIZE_H
#include "model/config.h"

/* The encoder that a type has unless one is asked for. */
static inline nb_kv_mode nb_kv_mode_default(nb_kv_type t)
{
    return t == NB_KV_IF4 ? NB_KV_SEARCH : NB_KV_4OVER6;
}

/* What --kv-cache-dtype auto is for a checkpoint that says nothing of its cache: the model's own
 * type, as in vLLM.  float16 latents are kept in BF16, whose range holds. */
nb_kv_type nb_kv_type_own(const nb_model_config *c);

/* The record of a layer of this model with nothing else asked for. NB_ERR_UNSUPPORTED when the type
 * cannot hold the shape. */
nb_status nb_kv_record(const nb_model_config *c, nb_kv_type type, nb_rope_fmt rope, nb_record *out,
                       nb_error *err);

/* off[n_layer + 1]: where each layer's page begins in a block; off[n_layer] is the block's size.
 * NB_ERR_LIMIT. */
nb_status nb_kv_layer_offsets(const nb_record *record, size_t n_layer, size_t *off, nb_error *err);
/* The same of the residual planes of Thrift mode; layers whose record has none take nothing.
 * *row: bytes of a token's row (the same in all layers); returns how many layers have a plane. */
size_t nb_kv_plane_offsets(const nb_record *record, size_t n_layer, size_t *off, size_t *row);

/* Open pages of one running request: floats [n_layer][64][n_values]. */
size_t nb_kv_tail_bytes(const nb_record *record, size_t n_layer);
/* Rows of --kv-sinks beside a block: BF16 [n_layer][n_sink][n_values]. */
size_t nb_kv_sink_bytes(const nb_record *record, size_t n_layer, size_t n_sink);

#endif
