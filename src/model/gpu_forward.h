/* gpu_forward.h - the forward pass on a GPU: what forward.h promises, with device memory.
 *
 * In a chunk's view pool and tail are device memory, block is host memory, plane is pinned host memory
 * that kernels write and read where it is; sinks and Thrift mode by blocks are refused.  A step is at most one pass over the prompt tokens of all chunks (the expanded form) and
 * passes over those of the direct form (absorbed MLA, GQA); what a token is, not where it stands, decides
 * which kernels it meets (nb_cuda_kind), so its bits depend on its sequence alone.  Passes of single
 * tokens are CUDA graphs, one per number of rows (rounded up), and one for a short sequence alone.
 *
 * Owned by the engine's thread. */
#ifndef NB_MODEL_GPU_FORWARD_H
#define NB_MODEL_GPU_FORWARD_H
#include "model/forward.h"
#include "model/gpu_weights.h"

typedef struct nb_gpu_forward nb_gpu_forward;

/* NB_ERR_UNSUPPORTED: heads or a latent that no kernel of this device takes, whatever the records. */
nb_status nb_gpu_can_compute(const nb_gpu *gpu, const nb_model_config *c, bool absorbed_only,
                             nb_error *err);
/* o->gpu is the device, o->max_seq the most chunks of a step, o->max_pos the longest sequence. */
nb_status nb_gpu_forward_create(const nb_forward_options *o, nb_gpu_forward **out, nb_error *err);
void nb_gpu_forward_destroy(nb_gpu_forward *f);
size_t nb_gpu_forward_bytes(const nb_gpu_forward *f); /* device memory beside the weights */
uint64_t nb_gpu_forward_weight_bytes(const nb_gpu_forward *f);
/* "linear_bf16=mma attn_nvfp4=wgmma_few ..." */
void nb_gpu_forward_describe(const nb_gpu_forward *f, char *buf, size_t n_bytes);
void nb_gpu_forward_set_trace(nb_gpu_forward *f, nb_trace_fn *trace, void *ctx);
uint64_t nb_gpu_forward_saturated(const nb_gpu_forward *f);
nb_thrift_count nb_gpu_forward_thrift_count(const nb_gpu_forward *f); /* there is no pool */

/* As nb_forward_step; NB_ERR_INTERNAL when the device has failed, which is for good. */
nb_status nb_gpu_forward_step(nb_gpu_forward *f, const nb_chunk *chunk, size_t n_chunk,
                              unsigned char *bad, nb_error *err);
/* As nb_forward_logits, to host memory. */
nb_status nb_gpu_forward_logits(nb_gpu_forward *f, const size_t *tok, size_t n, float *logits,
                                nb_error *err);
/* Tokens of these rows drawn on the device: id[n], UINT32_MAX where the logits are not finite. */
nb_status nb_gpu_forward_sample(nb_gpu_forward *f, const size_t *tok, const nb_cuda_sample_row *row,
                                size_t n, uint32_t *id, nb_error *err);

#endif
