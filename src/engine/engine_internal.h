/* engine_internal.h - what the files of src/engine share.
 *
 * One thread, the engine's, runs loop.c and owns all state below but for what is marked
 * otherwise.  Other threads reach it through its queue (queue.h). */
#ifndef NB_ENGINE_INTERNAL_H
#define NB_ENGINE_INTERNAL_H
#include <stdatomic.h>

#include "nibble/nibble.h"

#include "dev/dev.h"
#include "engine/answers.h"
#include "engine/pages.h"
#include "engine/queue.h"
#include "engine/step.h"
#include "kv/kv_cache.h"
#include "load/doc.h"
#include "load/kv_calib.h"
#include "load/kv_scales.h"
#include "load/source.h"
#include "text/tokenizer.h"

/* The open page of the request that ended last, for nb_engine_page_json: its rows stay in the
 * slot's buffer until the slot is used again. */
typedef struct nb_last_page {
    nb_request_id id;
    size_t shard, slot, pos0, n_tok; /* n_tok 0: there is none, or its rows are gone */
    uint32_t tok[NB_BLOCK_TOK];
} nb_last_page;

/* What the --kv-* options come to (kv_options.c): read before the records are laid out. */
enum { NB_TRANSFORM_CENTER = 1, NB_TRANSFORM_EQUALIZE = 2, NB_TRANSFORM_HADAMARD = 4 };
typedef struct nb_engine_kv {
    nb_kv_calib calib;      /* have_calib */
    const char *calib_path; /* in the arena */
    bool have_calib;
    unsigned char *transform; /* [n_layer] NB_TRANSFORM_* */
    char transform_text[48];  /* "none", "center+equalize", "per layer" */
    nb_kv_algo algo;          /* what the checkpoint was calibrated for */
    nb_kv_scale *scale;       /* [n_layer]; 0: scales are dynamic */
    nb_arena arena;
} nb_engine_kv;

/* --cpu-experts (cpu_experts.c). */
typedef struct nb_engine_experts {
    nb_expert_place place; /* as asked for */
    size_t n_layer;        /* as it came to */
    uint64_t n_bytes;
} nb_engine_experts;

/* Counters and texts that users see. */
typedef struct nb_engine_figures {
    double t_create;
    char kernels[400], tuned[512], warnings[2 * NB_NOTE_BYTES + 512], weights[16];
    nb_engine_stats count;    /* the thread's */
    nb_engine_stats snapshot; /* guarded by queue.lock */
} nb_engine_figures;

/* A scheduler and the blocks that it plans with.  There is one, for all ranks together, or one for each data-parallel
 * rank, or group of tensor-parallel ones, which alone computes its requests. */
typedef struct nb_shard {
    nb_kv_cache *cache;
    nb_sched *sched;
} nb_shard;

struct nb_engine {
    /* immutable after create */
    nb_engine_kv kvo;
    nb_engine_experts experts;
    nb_text *text;
    nb_source *source;
    nb_model model;
    nb_dev *dev;    /* of the engine's thread: rank 0's */
    nb_ranks ranks; /* their number, and their threads */
    nb_pages pages;
    bool no_prefix_caching;
    bool quantized, fp8; /* --weight-dtype int8 or fp8; the latter */
    nb_acts acts;        /* --activation-dtype */
    nb_levels levels;    /* --tune */
    void *codes;         /* [codes_bytes]: codes and scales of e->model's matrices */
    size_t codes_bytes;
    nb_news news; /* fn may be NULL */

    /* any thread */
    nb_queue queue;
    atomic_uint cancel_seq; /* a signal handler too */

    /* owned by the engine's thread */
    nb_engine_rank rank[NB_ENGINE_MAX_RANK];
    nb_engine_step step;
    nb_engine_figures stats;
    nb_shard shard[NB_ENGINE_MAX_RANK];
    size_t n_shard; /* immutable */
    nb_answers answers;
    nb_run *live;             /* list of those taken */
    nb_run *over, **over_end; /* list of those that have ended */
    unsigned cancel_seen;
    nb_last_page last_page;
};

/* ---- records.c ---- */

/* The record of each layer, from e->kvo and the options.  Sets record, layer_off,
 * block_bytes, n_sink and kv_dtype of e->pages. */
nb_status nb_engine_choose_records(nb_engine *e, const nb_engine_options *o, nb_error *err);
/* ---- layout.c ---- */

/* --tensor-parallel-size and --data-parallel-size: e->n_shard, e->ranks and e->dev, when model and record are known. */
nb_status nb_engine_lay_out(nb_engine *e, const nb_engine_options *o, nb_error *err);
/* ---- shards.c ---- */

/* The shard for a new request: where another is that it waits for, else where it costs least. */
size_t nb_engine_place(nb_engine *e, const nb_sched_request *rq);
/* Plans a step of all shards: items of shard k are [first[k], first[k + 1]) of e->step.item.  Returns their number. */
size_t nb_shards_plan(nb_engine *e, double now);
/* The step took so many seconds. */
void nb_shards_timed(nb_engine *e, double seconds);
/* The first of the ranks that have the shard's cache, each a copy; those of the next shard follow. */
static inline size_t nb_shard_rank(const nb_engine *e, size_t shard)
{
    return shard * e->ranks.n_tensor;
}
static inline nb_sched *nb_sched_of(const nb_engine *e, const nb_run *r)
{
    return e->shard[r->shard].sched;
}
/* Sums of all shards. */
void nb_shards_stats(const nb_engine *e, nb_sched_stats *s, nb_kv_cache_stats *k);
/* Each by itself: data_rank of the statistics. */
void nb_shards_count(const nb_engine *e, nb_engine_stats *out);
/* ---- device.c ---- */
nb_status nb_engine_open_device(nb_engine *e, const nb_engine_options *o, nb_error *err);
/* ---- cpu_experts.c ---- */

/* After the device was chosen; why: for which reason it is not a GPU. */
nb_status nb_engine_read_experts(nb_engine *e, const nb_engine_options *o, const char *why,
                                 nb_error *err);
static inline bool nb_engine_wants_experts(const nb_engine *e)
{
    return e->experts.place.n_host || e->experts.place.fit;
}
/* Memory of the GPU that experts must leave free: the cache's, and what is not to be used at all. */
void nb_engine_reserve_for_experts(nb_engine *e, const nb_engine_options *o);
/* ---- planes.c ---- */

/* After the records and the form are chosen: thrift, plane_off, plane_block. */
nb_status nb_engine_read_thrift(nb_engine *e, const nb_engine_options *o, nb_error *err);
/* Bytes of planes and pool for that many blocks; 0 without Thrift mode. */
size_t nb_engine_plane_bytes(const nb_engine *e, size_t n_block);
nb_status nb_engine_create_planes(nb_engine *e, nb_error *err);
void nb_engine_release_planes(nb_engine *e);

/* kv_layout: the planes of a page in words. */
void nb_engine_describe_layout(nb_engine *e);
/* Where the cache is, as a rank sees it; rank 0. */
nb_kv_pool nb_engine_pool_of(const nb_engine *e, const nb_engine_rank *r);
static inline nb_kv_pool nb_engine_pool(const nb_engine *e)
{
    return nb_engine_pool_of(e, &e->rank[0]);
}
/* ---- pool.c: the memory of the cache ---- */

/* Before loading: max_model_len, and n_block and kv_bytes where the pool is the host's memory. */
nb_status nb_engine_size_pool(nb_engine *e, const nb_engine_options *o, nb_error *err);
/* tails, kv, sinks, planes and the rank; n_block, kv_bytes and max_model_len as they come to. */
nb_status nb_engine_allocate_pool(nb_engine *e, const nb_engine_options *o, nb_caps caps,
                                  nb_error *err);
void nb_engine_release_pool(nb_engine *e);
nb_status nb_engine_create_ranks(nb_engine *e, nb_caps caps, nb_error *err);
/* Touches memory of the host in parallel, in pieces between which the progress is reported. */
void nb_engine_commit(nb_engine *e, const nb_engine_options *o, const char *what, void *p,
                      size_t n_bytes, size_t before, size_t total);

/* ---- memory.c: a step ---- */

/* Sizes of a step, from the options; max_model_len is known. */
nb_status nb_engine_size_step(nb_engine *e, const nb_engine_options *o, nb_error *err);
/* Pool, scheduler, rank and the rest of a step's workspace. */
nb_status nb_engine_allocate(nb_engine *e, const nb_engine_options *o, nb_caps caps, nb_error *err);
void nb_engine_release(nb_engine *e);
/* Of rows of --kv-sinks beside a block, which may be the first of a sequence. */
size_t nb_engine_sink_block_bytes(const nb_engine *e);
size_t nb_engine_workspace_bytes(const nb_engine *e);
/* The states of one request, and all snapshots of such, of one rank. */
static inline size_t nb_engine_state_bytes(const nb_engine *e)
{
    return e->pages.state_off[e->model.c.n_layer] * sizeof(float);
}
static inline size_t nb_engine_snap_bytes(const nb_engine *e)
{
    return e->pages.n_snap * nb_engine_state_bytes(e);
}
/* The open page of a shard's slot: layer i at + tail_off[i]. */
static inline float *nb_engine_tail(const nb_engine *e, size_t shard, size_t slot)
{
    return e->rank[nb_shard_rank(e, shard)].tails + slot * (e->pages.tail_bytes / sizeof(float));
}

/* ---- kv_options.c ---- */

/* Fills e->kvo from the options, the calibration file and the checkpoint (e->source is open, the
 * configuration read, no weights loaded). */
nb_status nb_engine_read_kv(nb_engine *e, const nb_engine_options *o, nb_error *err);
/* --kv-cache-dtype auto: the type that the checkpoint was calibrated for, else the model's own. */
nb_kv_type nb_engine_auto_type(const nb_engine *e);
/* After loading: checks the calibration's hash and folds the transforms into the weights. */
nb_status nb_engine_fold(nb_engine *e, nb_error *err);
void nb_engine_kv_deinit(nb_engine_kv *k);

/* ---- weight_dtype.c ---- */

/* --activation-dtype: e->acts. */
nb_status nb_engine_read_activation_dtype(nb_engine *e, const nb_engine_options *o, nb_error *err);

nb_status nb_engine_read_weight_dtype(nb_engine *e, const nb_engine_options *o, nb_error *err);
/* After loading and folding. */
nb_status nb_engine_quantize(nb_engine *e, const nb_engine_options *o, nb_error *err);
/* What weight_bytes would be, by loading (which reads little), not quantising. */
nb_status nb_engine_plan_weights(nb_engine *e, const nb_engine_options *o, uint64_t *n_bytes,
                                 nb_error *err);

/* ---- generate.c: from other threads ---- */

/* Runs fn on the engine's thread between two steps and waits for it, also when the engine has
 * failed.  NB_ERR_ARG from a callback, which must not wait. */
static inline nb_status nb_engine_call(nb_engine *e, nb_call_fn *fn, void *ctx)
{
    return nb_queue_call(&e->queue, fn, ctx);
}

/* ---- loop.c: the thread ---- */

void nb_engine_main(void *engine);
/* Hands the run to the engine's thread and waits for its end; the run is gone in any case. */
nb_status nb_engine_run_and_wait(nb_engine *e, nb_run *r, nb_waiter *w, nb_error *err);
/* Refuses what waits when it is called from a callback. */
nb_status nb_engine_check_caller(const nb_engine *e, const char *what, nb_error *err);

/* ---- inspect_page.c ---- */
void nb_engine_note_page(nb_engine *e, const nb_run *r); /* before r leaves the scheduler */

/* ---- stats.c ---- */

/* One more line of what the user should know (nb_engine_info.warnings), cut where there is no room. */
void nb_engine_warn(nb_engine *e, const char *fmt, ...) NB_PRINTF(2, 3);
void nb_engine_publish(nb_engine *e); /* the snapshot for nb_engine_get_stats */
void nb_engine_count_step(nb_engine *e, size_t n_tok, double s);

#endif
