/* sample.h - from a row of logits to a token.
 *
 * One nb_sampler per request, owned by one thread at a time; what is large and holds nothing
 * from one token to the next is a scratch of the thread that draws.  The order of the steps is
 * vLLM's (v1/sample/sampler.py), so that the same numbers mean the same here:
 *
 *   1. log-probabilities reported are those of the unmodified logits
 *   2. logit_bias is added
 *   3. while fewer than min_tokens tokens were generated, end_id are set to -inf
 *      then, with a mask, all tokens that it does not have are set to -inf; where min_tokens would
 *      leave none, it does not hold
 *   4. repetition penalty r, tokens of prompt and output:  l > 0 ? l / r : l * r
 *   5. frequency penalty f and presence penalty q, tokens of the output that
 *      occurred n times:  l -= f * n + q
 *   6. temperature T: weights exp((l - max) / T); T < 1e-5 is greedy: the largest
 *      logit, of equal ones the lowest id, and steps 7 to 9 have no effect
 *   7. min_p: tokens with less than min_p times the best probability are removed
 *   8. top_k: the k best stay (exactly k: of equal ones the lowest ids)
 *   9. top_p: of what is left, a token stays when the tokens better than it have
 *      together less than top_p of the mass; so the best always stays
 *  10. the token is the first, in order of ids, whose cumulated weight exceeds
 *      u * (sum of weights), with u = nb_rng_unit(seed, number of tokens generated)
 *
 * Weights are floats: of d = (l - max) / T the weight is exp(d * (1 + a)) * (1 + b), with |a| and
 * |b| at most 2e-7; log-probabilities are within 1e-6 * (1 + |logprob|).  Sums are in double.
 * Whole sums are those of row.h: in blocks of 64 tokens in order of ids (of all tokens, or of
 * those that stayed where top_k or top_p removed some), pairwise in a block, then block by block;
 * the cumulated weight is the sum of the blocks before and, token by token, of those in the
 * token's block; where rounding leaves no token that exceeds, the last one of weight above 0 of
 * the block in which the sum does is taken, or of all.  Equal logits and an equal history give
 * an equal token, whatever thread or batch computes it.  Tokens whose weight is
 * below e^-60 of the best have less than the resolution of u and are never drawn, nor are those
 * that are FLT_MAX below it.
 *
 * Cost: two to five passes over n_vocab, most of them vectors; top_k and top_p select in linear
 * time, and nothing is ever sorted.  A sampler takes a few hundred bytes, with penalties also 16
 * to 32 per different token of prompt and output; a scratch takes 21 bytes per vocabulary entry,
 * and 16 KiB. */
#ifndef NB_SAMPLE_SAMPLE_H
#define NB_SAMPLE_SAMPLE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "kernel/cuda/api/nb_cuda_ops.h"

enum { NB_SAMPLE_TOP_MAX = 20 }; /* as OpenAI's top_logprobs */

typedef struct nb_sample_bias {
    uint32_t id;
    float bias;
} nb_sample_bias;

/* The fields of nb_sampling (nibble.h) that choose tokens; same meaning and range.
 * Pointers are borrowed during create only. */
typedef struct nb_sample_params {
    double temperature;        /* >= 0; 0: greedy                    */
    size_t top_k;              /* 0: off                             */
    double top_p;              /* (0, 1]; 1: off                     */
    double min_p;              /* [0, 1]; 0: off                     */
    double repetition_penalty; /* [1e-6, 1e6]; 1: off                */
    double presence_penalty;   /* [-2, 2]; 0: off                    */
    double frequency_penalty;  /* [-2, 2]; 0: off                    */
    uint64_t seed;
    const nb_sample_bias *logit_bias; /* each in [-100, 100]; of one id: added up */
    size_t n_logit_bias;
    size_t max_tokens;      /* >= 1; only checked here            */
    size_t min_tokens;      /* <= max_tokens                      */
    const uint32_t *end_id; /* what min_tokens holds off: end-of-text ids and stop ids */
    size_t n_end_id;
    int n_logprobs; /* -1: none; 0..20: token's and the k best */
} nb_sample_params;

/* Temperature 1, max_tokens 128, no logprobs, everything else off. */
void nb_sample_params_default(nb_sample_params *p);
/* NB_ERR_ARG or NB_ERR_RANGE with a line naming the field and its range. */
nb_status nb_sample_params_check(const nb_sample_params *p, size_t n_vocab, nb_error *err);

typedef struct nb_sample_logprob {
    uint32_t id;
    float logprob; /* natural log */
} nb_sample_logprob;

typedef struct nb_sample_out {
    uint32_t id;
    float logprob;                            /* of id; 0 when n_logprobs is -1 */
    size_t n_top;                             /* min(n_logprobs, n_vocab) */
    nb_sample_logprob top[NB_SAMPLE_TOP_MAX]; /* best first, of equal ones the lowest id */
} nb_sample_out;

/* What drawing needs besides, for any number of samplers, one after the other. */
typedef struct nb_sample_scratch nb_sample_scratch;
nb_status nb_sample_scratch_create(size_t n_vocab, nb_sample_scratch **out, nb_error *err);
void nb_sample_scratch_destroy(nb_sample_scratch *x);
size_t nb_sample_scratch_bytes(size_t n_vocab);

typedef struct nb_sampler nb_sampler;

/* Bit id % 64 of word id / 64; ids beyond n_id are not in it. */
typedef struct nb_sample_mask {
    const uint64_t *bits;
    size_t n_id;
} nb_sample_mask;

/* Checks the parameters, copies what it needs. */
nb_status nb_sampler_create(const nb_sample_params *p, size_t n_vocab, nb_sampler **out,
                            nb_error *err);
void nb_sampler_destroy(nb_sampler *s);
/* Counts the prompt for the repetition penalty; may be called in pieces.
 * NB_ERR_RANGE when an id is not below n_vocab: then nothing was counted.  NB_ERR_NOMEM: then
 * part of it may have been. */
nb_status nb_sampler_accept_prompt(nb_sampler *s, const uint32_t *ids, size_t n_ids);
/* Chooses the next token from logits[n_vocab] and counts it.  NB_ERR_NONFINITE when
 * a logit is NaN or +inf, or all are -inf, NB_ERR_NOMEM (nothing was counted then).  logits
 * are not modified.  x is of the same n_vocab.  mask: NULL, or which tokens may be chosen. */
nb_status nb_sampler_next(nb_sampler *s, nb_sample_scratch *x, const float *logits,
                          const nb_sample_mask *mask, nb_sample_out *out);
/* For a row that is drawn elsewhere by steps 6 to 10 alone (no penalties, biases, log-probabilities
 * or tokens held off): its parameters, and true; nb_sampler_drew counts the token then. */
bool nb_sampler_plain(const nb_sampler *s, nb_cuda_sample_row *row);
void nb_sampler_drew(nb_sampler *s);
/* Tokens chosen so far. */
size_t nb_sampler_n_generated(const nb_sampler *s);

/* The log-probability of a given token and the n_top best (<= NB_SAMPLE_TOP_MAX), of unmodified
 * logits, as nb_sampler_next reports them.  NB_ERR_NONFINITE as there. */
nb_status nb_sample_logprobs(const float *logits, size_t n_vocab, uint32_t id, size_t n_top,
                             nb_sample_out *out);

#endif
