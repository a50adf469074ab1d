/* route.h - choice of experts for each token.
 *
 * score = softmax(logits), sigmoid(logits) or sqrt(ln(1 + e^logits)); choice = score + bias (bias may be
 * NULL).  With n_group > 1 the experts form equal groups; a group's rank is its
 * largest choice (group_top = 1) or the sum of its two largest (group_top = 2);
 * only the topk_group best groups take part.  The top_k best choices are taken;
 * equal values go to the lower index.  weight = score of the chosen, then
 * / (sum + 1e-20) if normalise, then * factor.  Where the ids are given, they are read: only weights are made.
 * Source: DeepSeek-V2 (arXiv 2405.04434) and V3 (arXiv 2412.19437); tie rule ours. */
#ifndef NB_KERNEL_ROUTE_H
#define NB_KERNEL_ROUTE_H
#include "kernel/kernel.h"

enum { NB_ROUTE_MAX_EXPERT = 4096, NB_ROUTE_MAX_TOPK = 64 };

typedef struct nb_route_args {
    uint32_t *id;         /* [n_tok][top_k], best first                   */
    float *weight;        /* [n_tok][top_k]                               */
    const float *logits;  /* [n_tok][n_expert]                            */
    const float *bias;    /* [n_expert] or NULL: for the choice only      */
    size_t n_tok, n_expert, top_k;
    size_t n_group, topk_group; /* 1, 1: no groups                        */
    int group_top;        /* 1: max of group, 2: sum of the two largest   */
    bool sigmoid;         /* else softmax over all experts                */
    bool sqrt_softplus;   /* instead of both                              */
    bool given;           /* id is read, each < n_expert                  */
    bool normalise;
    float factor;
} nb_route_args;

/* Weights within 16 * 2^-24 relative of the reference's for the same ids; ids
 * equal the reference's unless two choices differ by less than 4 * 2^-24. */
typedef void nb_route_fn(const nb_route_args *a);
nb_route_fn nb_route_c;
/* choice64: [n_tok][n_expert] scores the choice was made from (-inf: masked). */
void nb_route_ref(const nb_route_args *a, uint32_t *id, double *weight, double *choice64);

typedef struct nb_route_variant {
    const char *name;
    nb_space space;
    nb_caps need;
    nb_route_fn *fn;
} nb_route_variant;
extern const nb_route_variant nb_route_variants[];
#endif
