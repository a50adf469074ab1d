/* measure.h - the functions behind `nibble eval` and `nibble calibrate`: attention inputs, logits of
 * a given text, a model's hash.  The rules of nibble.h for errors, threads and ownership apply. */
#ifndef NIBBLE_MEASURE_H
#define NIBBLE_MEASURE_H
#include "nibble/nibble.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The attention inputs of one layer for one text, as the cache stores them: after the engine's own
 * --kv-transform, before any rounding.  Borrowed for the call. */
typedef struct nb_capture_layer {
    size_t layer, n_layer;
    bool is_mla;
    size_t n_tok, n_q, n_head, n_kv_head; /* n_kv_head: 1 with MLA */
    size_t dim[2], n_vec[2];  /* a cached token: segments, each n_vec vectors of dim values  */
    size_t n_values;          /* sum of n_vec * dim                                          */
    size_t d_q;               /* MLA: dim[0] + dim[1], the absorbed query; GQA: head width   */
    size_t d_v;               /* MLA: value width of a head; GQA: head width                 */
    float scale;              /* of the scores                                               */
    bool rope_interleaved;    /* MLA: rope rotates neighbours, else i with i + dim[1] / 2     */
    const float *kv;          /* [n_tok][n_values]: latent | rope key, or K | V; rope applied */
    const size_t *pos;        /* [n_q] positions of the queries, ascending                   */
    const float *q;           /* [n_q][n_head][d_q]; MLA: W_UK,h^T q_h | rope part           */
    const float *w_uv;        /* MLA: [n_head][d_v][dim[0]], o_h = w_uv_h (sum p c); else NULL */
} nb_capture_layer;
/* A non-zero return value ends the capture with NB_ERR_CANCELLED. */
typedef int nb_capture_fn(void *ctx, const nb_capture_layer *l);

/* Computes the text and calls fn once per layer, in order, on the calling thread.  Queries are
 * taken at the given positions (ascending, each < n_tok).  The text is computed with this engine's
 * cache record, so layer i sees the rounding of earlier layers: use a bf16 or f32 cache for tensors
 * of the exact model.  NB_ERR_LIMIT: the copies would take more than 4 GiB. */
NB_API nb_status nb_engine_capture(nb_engine *e, const uint32_t *tokens, size_t n_tok,
                                   const size_t *pos, size_t n_pos, nb_capture_fn *fn, void *ctx,
                                   nb_error *err);

/* One product of the forward pass: a matrix, by its name in a Hugging Face folder, and its inputs x[n_tok][n_col].
 * head: SIZE_MAX, or with kv_b_proj the head whose query x (n_col: its part without rotation) is multiplied with
 * W_UK; the latents, which meet all rows of kv_b_proj, come once more with SIZE_MAX. */
typedef struct nb_product {
    const char *name;
    size_t head;
    const float *x;
    size_t n_tok, n_col, stride;
} nb_product;
/* On the engine's thread; a non-zero return value ends the text. */
typedef int nb_product_fn(void *ctx, const nb_product *p);

/* Computes a text as nb_engine_capture does, and calls fn for every product of the layers before it.  CPU only. */
NB_API nb_status nb_engine_products(nb_engine *e, const uint32_t *tokens, size_t n_tok,
                                    nb_product_fn *fn, void *ctx, nb_error *err);

/* Logits of a given text whose tokens from n_prompt on are computed one by one, as generated tokens
 * are (absorbed form, --kv-thrift).  sink is called for each row n_prompt - 1 ... n_tok - 1, in
 * order, on the engine's thread.  0 < n_prompt < n_tok, and n_tok fits the context.  A non-zero
 * return value of sink ends it with NB_ERR_CANCELLED. */
NB_API nb_status nb_engine_forced(nb_engine *e, const uint32_t *tokens, size_t n_tok,
                                  size_t n_prompt, nb_logits_fn *sink, void *ctx, nb_error *err);

/* SHA-256, in hexadecimal, of everything that determines cached values: geometry, norms, and the
 * weights of keys and values of all layers, as loaded from the files.  Transforms do not change it.
 * A calibration file belongs to one such hash. */
enum { NB_MODEL_HASH_CHARS = 64 };
NB_API nb_status nb_engine_model_hash(nb_engine *e, char hex[NB_MODEL_HASH_CHARS + 1],
                                      nb_error *err);

/* For timing at a given depth: fills the prefix cache with the whole pages of a text, as if its
 * prompt had been computed.  At least the first page must be cached already (nb_generate with
 * max_tokens 0).  The other pages are copies of those, so results computed after them are
 * meaningless.  No running request may hold a part of the text.  NB_ERR_NOT_FOUND: no first page;
 * NB_ERR_CAPACITY: no room; NB_ERR_UNSUPPORTED: no prefix caching, or longrope. */
NB_API nb_status nb_engine_fill(nb_engine *e, const uint32_t *tokens, size_t n_tok, nb_error *err);

#ifdef __cplusplus
}
#endif
#endif
