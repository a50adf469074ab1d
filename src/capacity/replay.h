/* replay.h - a trace through the real cache and scheduler, without a model and on a clock of its own.
 *
 * `nb_mix` says which request comes when.  A stream (Mooncake, Azure) is played as it was recorded.  Of
 * sessions n_open are always open: when one ends another is drawn (a permutation of the files by
 * seed, again and again), until the wished number of requests came or no file is left; gaps between a
 * session's requests are those recorded, capped at max_gap_s.  Requests longer than max_tok are left
 * out (a session goes on with the next); sessions share no text unless their files say so.
 *
 * nb_replay_cache plays the requests one after the other through nb_kv_cache: each finds
 * its longest cached prefix, takes blocks for the other full blocks of its prompt and gives all
 * back.  Nothing is generated, nobody waits, and no two requests hold blocks at once.  That is
 * what published hit rates mean.  Several caches are fed in one pass.  With a clock there is also the
 * time that computing the tokens which were not found takes a request that is alone.
 *
 * nb_replay_serve plays them through nb_sched: requests wait for blocks, slots and tokens of a
 * step, hold blocks while they run, generate, are preempted.  A step takes what the clock says
 * (replay_clock.h), and a session's next request comes when its last was answered and the recorded
 * time between answer and request (where it is known; else the gap between requests) has passed, capped.
 *
 * Hit tokens are whole blocks of 64; a prompt's last token is always computed, as in the engine. */
#ifndef NB_CAPACITY_REPLAY_H
#define NB_CAPACITY_REPLAY_H
#include "capacity/replay_clock.h"
#include "capacity/trace.h"

/* ---- the order of requests ---- */

typedef struct nb_mix nb_mix;

typedef struct nb_mix_options {
    const char *const *path; /* [n_path] one stream, or sessions; borrowed          */
    size_t n_path;
    bool sessions;
    bool closed;      /* the next request of a session waits for nb_mix_done       */
    size_t n_open;    /* sessions, 1 .. 4096                                        */
    double max_gap_s; /* >= 0                                                       */
    double speed;     /* > 0: times and gaps are divided by it                      */
    uint64_t seed;
    size_t n_request; /* 0: until the stream's end, or no session is left to draw   */
    size_t max_tok;   /* prompts longer than this are left out; 0: none             */
} nb_mix_options;

typedef struct nb_mix_req {
    double t_s;
    size_t n_in, n_out;
    const nb_block_key *key; /* [n_key] of its leading blocks, until the next call   */
    size_t n_key;            /* <= n_in / 64                                          */
    size_t who;              /* the open session                                      */
} nb_mix_req;

nb_status nb_mix_create(const nb_mix_options *o, nb_mix **out, nb_error *err);
void nb_mix_destroy(nb_mix *m);
/* When the next request comes; INFINITY: none before an answer, or ever. */
nb_status nb_mix_peek(nb_mix *m, double *t_s, nb_error *err);
/* The request that nb_mix_peek announced; *more is false when there is none. */
nb_status nb_mix_next(nb_mix *m, nb_mix_req *r, bool *more, nb_error *err);
/* The last request of session `who` was answered. */
nb_status nb_mix_done(nb_mix *m, size_t who, double now_s, nb_error *err);
size_t nb_mix_n_skipped(const nb_mix *m); /* too long                                */
size_t nb_mix_n_opened(const nb_mix *m);  /* sessions                                */

/* ---- results ---- */

typedef struct nb_replay_point {
    size_t n_block; /* of 64 tokens          */
    nb_kv_evict evict;
    double protected_share;
    const nb_replay_clock *clock; /* borrowed; of nb_replay_cache NULL: no times */
} nb_replay_point;

typedef struct nb_replay_result {
    uint64_t n_request, n_skipped, n_session; /* skipped: too long for max_tok or the cache    */
    uint64_t n_in_tok, n_hit_tok, n_out_tok;
    uint64_t n_evicted; /* blocks                                                              */
    uint64_t n_ceiling_tok; /* cache: hits of an endless cache; UINT64_MAX: too many to count  */
    /* cache, with a clock: of each request alone; the median within 1 % */
    double alone_mean_s, alone_p50_s;
    /* serve */
    uint64_t n_preempted, preempted_tok, again_tok; /* again: hits at admissions after it      */
    double ttft_mean_s, ttft_p50_s, ttft_p90_s, ttft_p99_s;
    double wait_mean_s; /* of that, in the queue                                               */
    double duration_s;  /* of the clock                                                        */
    double held_mean;   /* share of the blocks held by running requests, over time             */
    size_t n_running_max;
} nb_replay_result;

typedef struct nb_replay_serve_options {
    size_t max_num_seqs, max_step_tok, max_chunk_tok; /* as nb_sched_options */
    size_t max_item_tok; /* of one request in a step; 0: all that fit */
    bool check;          /* nb_sched_check now and then (tests) */
} nb_replay_serve_options;

/* result[n_point]. */
nb_status nb_replay_cache(const nb_mix_options *mix, const nb_replay_point *point, size_t n_point,
                          nb_replay_result *result, nb_error *err);
nb_status nb_replay_serve(const nb_mix_options *mix, const nb_replay_point *point,
                          const nb_replay_serve_options *o, nb_replay_result *result,
                          nb_error *err);

#endif
