/* layout.h - how a model lies on several devices, and what is then left for the cache.
 *
 * n_gpu = tp * dp.  A replica is tp GPUs that compute the same tokens; dp replicas have users of
 * their own.  Of the weights a GPU has
 *   replicated   all of it on each GPU (q_a, kv_a, k, v, router, norms)
 *   dense        1 / tp: attention's heads, dense and shared feed-forward, head; the embedding, whole on each GPU
 *   experts      1 / n_gpu: the experts are dealt to ep groups of n_gpu / ep GPUs, which divide each of
 *                theirs; the replicas share them, as in vLLM
 *   absorbed     MLA on a GPU: copies of W_UK and W_UV, 1 / tp (sizes.h)
 * and of the cache all: each of the tp GPUs keeps the whole blocks of the replica's users, as nibble's ranks do
 * (docs/several-gpus.md), or with dcp = tp 1 / tp of the blocks, in whole units of NB_KV_UNIT_BLOCKS (decision 070).  MLA's latent is one for all heads; of GQA's K and V a GPU reads its heads' part.  Other
 * engines divide K and V until a GPU has one KV head.  Sources: vLLM PR 26877 (-tp 8 is 8 copies), specs of tensor, data
 * and expert parallelism as vLLM and TensorRT-LLM have them.
 *
 * Plain data; nothing to free. */
#ifndef NB_CAPACITY_LAYOUT_H
#define NB_CAPACITY_LAYOUT_H
#include "capacity/machine.h"
#include "capacity/sizes.h"

enum { NB_MAX_GPU = 4096 };

typedef struct nb_layout {
    size_t n_gpu, tp, dp, ep; /* ep 1: every expert is divided among all GPUs */
    size_t dcp;               /* tp: these divide the blocks of a replica; else 0 or 1 */
    double utilization;       /* of memory_bytes, (0, 1] */
    double reserve_bytes;     /* per GPU, beside weights and cache: workspace, graphs, libraries */
    /* Layers whose routed experts are in the memory of the host, of one GPU: decision 039. */
    size_t host_layers;
    double host_bandwidth, host_link; /* bytes/s: of that memory; from it to the GPU */
} nb_layout;

/* What is asked. Borrowed for the calls. */
typedef struct nb_demand {
    const nb_model_config *config;
    const nb_sizes *sizes;
    nb_sizes_wtype wtype;
    const nb_machine *machine;
    nb_kv_type kv; /* the record by which layouts are compared */
    nb_rope_fmt rope;
} nb_demand;

/* One GPU of a layout, in bytes. */
typedef struct nb_place {
    double budget;                                       /* utilization * memory */
    double replicated, dense, expert, absorbed, weights; /* weights: their sum */
    double embed; /* of dense: the embedding, of which a step reads some rows */
    double host;                                         /* experts in the memory of the host */
    double cache;                                        /* what is left, 0 when nothing is */
    double read_share; /* of a page's bytes that attention of a GPU reads: 1 for MLA, and on a processor; of a divided
                          context its part */
    double n_part;     /* GPUs that divide the blocks of a replica, 1 where each has all */
} nb_place;

/* NB_ERR_ARG with a line that names the option: tp that does not divide the heads, ep without experts
 * or more than there are, or that does not divide the GPUs. */
nb_status nb_layout_check(const nb_demand *d, const nb_layout *l, nb_error *err);
void nb_layout_place(const nb_demand *d, const nb_layout *l, nb_place *out);

/* NB_ERR_UNSUPPORTED, NB_ERR_RANGE: nibble does not compute the model so; asked of the functions that the engine asks
 * (model/rank.h).  What depends on the GPU's library is not known here. */
nb_status nb_layout_runs(const nb_demand *d, const nb_layout *l, nb_error *err);

/* Tokens of a prompt's unit, whose experts are uploaded (nb_rank_upload_tok); 0: they never are, since their weights
 * are packed. */
double nb_layout_upload_tok(const nb_demand *d);
/* The fewest host_layers with which n_bytes are left for the cache; all where none does. */
size_t nb_layout_fit_host(const nb_demand *d, const nb_layout *l, double n_bytes);

/* Blocks of a record in a replica's cache. */
double nb_place_blocks(const nb_place *p, const nb_record_size *r);
/* Users of a replica with n_tok tokens each, prompt and answer: whole blocks, and the open page that
 * each running request has (tail_bytes, of nb_sizes). */
double nb_place_users(const nb_place *p, const nb_record_size *r, double tail_bytes, size_t n_tok);

/* The tp and dp of l->n_gpu GPUs that hold the most tokens of d's record in all; of equal ones the
 * largest tp, whose steps are shortest.  Experts: ep = n_gpu where there are replicas, as far as there are experts.
 * Sets tp, dp, ep; false: no layout leaves room for a block (then the one with the smallest
 * weights per GPU). */
bool nb_layout_suggest(const nb_demand *d, nb_layout *l);
/* The fewest GPUs for which there is a layout (*l then has it; up to 8, then multiples of 8), 0 when
 * there is none. */
size_t nb_layout_needed(const nb_demand *d, nb_layout *l);

#endif
