/* step.h - what the engine's thread needs to compute steps: the limits of a step, its workspace, and the ranks. */
#ifndef NB_ENGINE_STEP_H
#define NB_ENGINE_STEP_H
#include "dev/device.h"
#include "engine/ranks.h"
#include "engine/run.h"
#include "engine/watch.h"
#include "model/rank.h"
#include "sched/sched.h"

enum { NB_ENGINE_MAX_STEP_TOK = 65536 };

/* A device that computes, and its memory of the cache (nb_pages says where is what). */
typedef struct nb_engine_rank {
    nb_device device;
    int gpu_index; /* two ranks may share a GPU: for tests */
    nb_rank *rank;
    unsigned char *kv;    /* block b, layer i: kv + b * block_bytes + layer_off[i] */
    float *snaps;         /* snapshot i: snaps + i * state_off[n_layer]; NULL: none */
    float *tails;         /* slot s, layer i: [64][n_values] open page, see nb_engine_tail */
    unsigned char *plane; /* block b, layer i: plane + b * plane_block + plane_off[i] */
    nb_thrift_pool *thrift_pool;
    uint16_t *sinks; /* block b, layer i: sinks + b * sink_off[n_layer] + sink_off[i]: rows
                      * [n_sink][n_values]; only first blocks' are written */
} nb_engine_rank;

typedef struct nb_engine_step {
    enum { NB_FORM_AUTO, NB_FORM_ABSORBED, NB_FORM_EXPANDED } form; /* --mla */
    size_t upload_tok; /* nb_rank_upload_tok */
    size_t max_model_len, prefill_chunk, max_num_seqs, max_step_tok, max_chunk_tok;
    /* of the step that runs */
    nb_sched_item *item; /* [shards * max_num_seqs], as chunk and bad */
    size_t first[NB_ENGINE_MAX_RANK + 1]; /* where the items of each shard begin; the end */
    nb_chunk *chunk;
    unsigned char *bad;
    nb_row *row;   /* [shards * max_step_tok], in the order of shards */
    size_t *place; /* [max_row], as sampled, row_st, draw and drawn */
    size_t row_first[NB_ENGINE_MAX_RANK + 1]; /* where the rows of each shard begin in `place`; outlives a rank that hangs */
    nb_sample_out *sampled;
    nb_status *row_st;
    nb_cuda_sample_row *draw; /* rows that the device draws */
    uint32_t *drawn;
    float *logits;  /* [max_row][n_vocab] */
    size_t max_row; /* rows of `logits` */
    size_t logits_bytes, n_scratch;
    nb_sample_scratch **scratch; /* [n_scratch] */
    nb_weight_watch watch; /* off where the device has its own memory: no file is read any more */
    bool fail_step;        /* tests: the next step fails as if the device had */
} nb_engine_step;

#endif
