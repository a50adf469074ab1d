/* measure.h - looking inside a prompt: what `nibble eval` and `nibble calibrate` are made of.
 *
 * Beside nibble.h, under the same rules (errors, threads, ownership). */
#ifndef NIBBLE_MEASURE_H
#define NIBBLE_MEASURE_H
#include "nibble/nibble.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The attention inputs of one layer for one text, in the domain in which the cache stores them:
 * after the engine's own --kv-transform, before any rounding.  Borrowed for the call. */
typedef struct nb_capture_layer {
    size_t layer, n_layer;
    bool is_mla;
    size_t n_tok, n_q, n_head, n_kv_head; /* n_kv_head: 1 with MLA */
    size_t dim[2], n_vec[2];  /* a cached token: segments, each n_vec vectors of dim values  */
    size_t n_values;          /* sum of n_vec * dim                                          */
    size_t d_q;               /* MLA: dim[0] + dim[1], the absorbed query; GQA: head width   */
    size_t d_v;               /* MLA: value width of a head; GQA: head width                 */
    float scale;              /* of the scores                                               */
    bool rope_interleaved;    /* MLA: the pairs that rope rotates are neighbours, else i and
                                 i + dim[1] / 2                                              */
    const float *kv;          /* [n_tok][n_values]: latent | rope key, or K | V; rope applied */
    const size_t *pos;        /* [n_q] positions of the queries, ascending                   */
    const float *q;           /* [n_q][n_head][d_q]; MLA: W_UK,h^T q_h | rope part           */
    const float *w_uv;        /* MLA: [n_head][d_v][dim[0]], o_h = w_uv_h (sum p c); else NULL */
} nb_capture_layer;
/* Non-zero return ends the capture with NB_ERR_CANCELLED. */
typedef int nb_capture_fn(void *ctx, const nb_capture_layer *l);

/* Computes the text and calls fn once per layer, in order, on the calling thread.  Queries are
 * taken at the given positions (ascending, each < n_tok).  The text is computed with this engine's cache record, so
 * what reaches layer i has seen the cache of the layers before it; use a bf16 or f32 cache for
 * tensors of the exact model.  NB_ERR_LIMIT when the copies would take more than 4 GiB. */
NB_API nb_status nb_engine_capture(nb_engine *e, const uint32_t *tokens, size_t n_tok,
                                   const size_t *pos, size_t n_pos, nb_capture_fn *fn, void *ctx,
                                   nb_error *err);

/* Logits of a text whose tokens from n_prompt on are computed one by one, as generated tokens are
 * (absorbed form, --kv-thrift), whatever the model would have chosen: one call of sink for each
 * row n_prompt - 1 ... n_tok - 1, in order, on the engine's thread.  0 < n_prompt < n_tok, at most
 * the context.  Non-zero return of sink ends with NB_ERR_CANCELLED. */
NB_API nb_status nb_engine_forced(nb_engine *e, const uint32_t *tokens, size_t n_tok,
                                  size_t n_prompt, nb_logits_fn *sink, void *ctx, nb_error *err);

/* SHA-256, in hex, of what makes the cached values: geometry, norms and the weights of keys and
 * values of all layers, as loaded from the files (transforms do not change it).  A calibration
 * file belongs to one such hash. */
enum { NB_MODEL_HASH_CHARS = 64 };
NB_API nb_status nb_engine_model_hash(nb_engine *e, char hex[NB_MODEL_HASH_CHARS + 1],
                                      nb_error *err);

/* For measurements of time at a depth: makes the prefix cache hold the whole pages of a text as if
 * its prompt had been computed.  At least its first page must be there already (nb_generate with
 * max_tokens 0); pages that are not are copies of those, so that nothing that is computed behind
 * them means anything.  No running request may hold a part of the text.  NB_ERR_NOT_FOUND,
 * NB_ERR_CAPACITY (no room), NB_ERR_UNSUPPORTED (no prefix caching, longrope). */
NB_API nb_status nb_engine_fill(nb_engine *e, const uint32_t *tokens, size_t n_tok, nb_error *err);

#ifdef __cplusplus
}
#endif
#endif
