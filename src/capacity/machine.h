/* machine.h - what a machine gives: memory, bandwidth, arithmetic, price; how a model lies on
 * several of them; what then fits, how fast it can be at most, and what it costs.
 *
 * The model of time is a roofline: a decode step takes at least the bytes it reads over the
 * bandwidth and the operations over the rate, for each part (weights, attention), with an
 * efficiency for each that is printed beside the result; a measured rate replaces it.
 * Assumptions are strings in the result, so that no figure stands without them. */
#ifndef NB_CAPACITY_MACHINE_H
#define NB_CAPACITY_MACHINE_H
#include "capacity/sizes.h"

/* One row of gpus.json. */
typedef struct nb_machine {
    char name[32], title[64];
    double memory_bytes;    /* of one device, as its driver reports it */
    double bandwidth;       /* bytes/s, nominal */
    double bf16, fp8, fp4;  /* dense FLOP/s; 0: no such unit */
    double link;            /* bytes/s per device and direction to the others, 0: none */
    double price;           /* per hour, one device; 0: unknown */
    char price_source[96];  /* where and when */
} nb_machine;

typedef struct nb_layout {
    size_t n_gpu, tp, dp, ep; /* n_gpu = tp * dp; experts lie on ep of them */
    double utilization;       /* of memory_bytes, [0, 1] */
    double reserve_bytes;     /* per GPU, beside weights and cache: workspace, graphs, libraries */
} nb_layout;

#endif
