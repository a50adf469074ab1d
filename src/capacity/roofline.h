/* roofline.h - how fast a layout can be at most, how fast it would be as this project measures, and
 * what that costs.
 *
 * Decode.  A step makes one token for each of b sequences of a replica.  On each GPU
 *   products   read: replicated + dense / tp (of the embedding b rows) + the experts that are hit
 *              compute: 2 * active parameters * b / tp
 *   attention  read: b * context * bytes of a cached token;  compute: operations of sizes.h
 * A layer's attention needs its products and the reverse, so the two parts are summed; within a part
 * reading and computing overlap: each takes max(bytes / bandwidth, operations / rate).  Of E experts a
 * token draws k; B tokens hit E (1 - (1 - k/E)^B) of them, if all are as likely and tokens are
 * independent; B is of all replicas, which share the experts; those that are hit lie evenly on the GPUs.  Rate: BF16, as nibble computes: weights and cached codes of
 * fewer bits are widened first.
 *
 * Prefill of P tokens, each layer: 2 * active parameters without the head * P, attention of all pairs in the
 * expanded form, and the keys of earlier chunks rebuilt in each further chunk (chunk tokens a step).  A cached prefix
 * of C tokens is attended to by all P, and each chunk rebuilds its keys; reading and decoding it is not counted (of
 * DeepSeek-V3 on an H200 2 % of rebuilding at most).
 *
 * A step with both: MLA on a GPU makes a pass over the layers for each kind of token (decision 022), so their times are
 * summed; else there is one pass, weights are read once and operations of products summed.
 *
 * Experts in the memory of the host: a generated token's are read there while the GPU waits, host_bytes / bandwidth; a
 * prompt's are sent to the GPU, once in each chunk, beside the arithmetic; those of a prompt shorter than a unit are
 * read by the host, and so are packed ones; its arithmetic is not counted.
 *
 * "most" is this with the data sheet's figures and nothing else: an upper bound of tokens/s.  "model" divides by
 * nb_efficiency and adds launches and exchanges between GPUs: what is to be expected, where the
 * machine is like the one that was measured. */
#ifndef NB_CAPACITY_ROOFLINE_H
#define NB_CAPACITY_ROOFLINE_H
#include "capacity/layout.h"

/* Fractions of the machine's nominal figures, (0, 1]. */
typedef struct nb_efficiency {
    double weights_few; /* of the bandwidth, reading weights in 16 bits for up to 8 sequences */
    double weights;     /* the same, 32 sequences and more, and prompts */
    double narrow_few;  /* weights that are decoded first: FP8 and fewer bits, up to 8 sequences */
    double narrow;      /* the same, 32 sequences and more, and prompts */
    double cache;       /* of the bandwidth, reading pages of 4-bit codes, which are decoded */
    double cache_fp8;   /* the same, 8-bit codes */
    double cache_wide;  /* the same, BF16 and F32 pages */
    double attention;   /* of BF16, attention of a decode step */
    double prefill;     /* of BF16, products and attention of prompts, products of large steps */
    double layer_s;     /* per layer and step: launches and what else does not grow with the work */
    double reduce_s;    /* per exchange between GPUs */
    const char *source; /* where the figures are from */
} nb_efficiency;

/* What was measured on an H100 (docs/gpu.md), on processors with AVX2 (docs/performance.md); one
 * fraction for everything and nothing per layer. */
extern const nb_efficiency nb_efficiency_gpu, nb_efficiency_cpu;
nb_efficiency nb_efficiency_flat(double fraction);

typedef enum nb_bound {
    NB_BOUND_WEIGHTS,   /* bandwidth: weights */
    NB_BOUND_PRODUCTS,  /* arithmetic of products */
    NB_BOUND_CACHE,     /* bandwidth: cached tokens */
    NB_BOUND_ATTENTION, /* arithmetic of attention */
    NB_BOUND_HOST,      /* bandwidth: experts in host memory, which the GPU waits for */
    NB_BOUND_COUNT
} nb_bound;
const char *nb_bound_name(nb_bound b); /* "weights", ... */
const char *nb_bound_text(nb_bound b); /* "bandwidth, weights", ... */

typedef struct nb_time {
    double products_s, attention_s, host_s, other_s, total_s;
    double tok_s; /* of the whole machine */
} nb_time;

/* Per GPU and step. */
typedef struct nb_step {
    double n_seq;        /* of the busiest replica */
    double experts_read; /* different experts of a layer that are hit, on all GPUs together */
    double weight_bytes, cache_bytes, product_flop, attention_flop;
    double host_bytes; /* of experts, read by the host */
    nb_bound bound; /* the longest of these in `most` */
    nb_time most, model;
} nb_step;
/* concurrency sequences in all, dealt to the replicas, with `context` cached tokens each.  The
 * machine's bandwidth and bf16 are not 0. */
void nb_step_of(const nb_demand *d, const nb_layout *l, const nb_record_size *r,
                const nb_efficiency *e, double concurrency, double context, nb_step *out);

typedef struct nb_prefill {
    double flop;               /* of the prompt, all GPUs together */
    double attention_fraction; /* of flop */
    bool reads_weights;        /* the time is that of reading the weights: a short prompt */
    bool sends_experts;        /* that of sending experts from the memory of the host */
    double most_s,
        model_s; /* until the last layer, of a prompt that is alone: time to first token */
    double most_tok_s, model_tok_s; /* all replicas busy */
} nb_prefill;
void nb_prefill_of(const nb_demand *d, const nb_layout *l, const nb_efficiency *e, double n_tok,
                   double chunk, nb_prefill *out);

/* The same of n_tok tokens, >= 1, that follow n_cached which are found in the cache; rates are of the n_tok. */
void nb_prefill_after(const nb_demand *d, const nb_layout *l, const nb_efficiency *e, double n_tok,
                      double n_cached, double chunk, nb_prefill *out);

/* Of prompts in one step. */
typedef struct nb_prompt_work {
    double n_tok;   /* that are computed */
    double pairs;   /* of a query and a token it attends to */
    double rebuilt; /* tokens before a chunk, whose keys are expanded again */
} nb_prompt_work;
/* A chunk of n_tok tokens after `before` others. */
static inline nb_prompt_work nb_prompt_chunk(double n_tok, double before)
{
    return (nb_prompt_work){ n_tok, n_tok * before + n_tok * (n_tok + 1) / 2, before };
}

/* A step of all replicas. */
typedef struct nb_mixed {
    double n_seq, context;       /* tokens that are generated, mean of what they attend to */
    nb_prompt_work all, largest; /* chunks of prompts: their sums; the largest of each field */
} nb_mixed;
/* Modelled seconds; all replicas step together, the busiest says how long. */
double nb_mixed_s(const nb_demand *d, const nb_layout *l, const nb_record_size *r,
                  const nb_efficiency *e, const nb_mixed *m);

/* What a million tokens cost, 0 where the price is unknown: price * 1e6 / (3600 tok_s). */
static inline double nb_cost_million(double price_hour, double tok_s)
{
    return tok_s > 0 ? price_hour / (tok_s * 3600.0) * 1e6 : 0;
}

#endif
