/* queue.h - the requests in an engine and what other threads ask of it: submissions, aborts, calls.
 *
 * All of it is guarded by `lock`, which is never held in a callback.  The engine's thread takes the lists before each
 * step (loop.c). */
#ifndef NB_ENGINE_QUEUE_H
#define NB_ENGINE_QUEUE_H
#include "engine/run.h"
#include "os/thread.h"

enum {
    NB_ENGINE_MAX_RUN = 65536,          /* requests in the engine */
    NB_ENGINE_RUN_TABLE = 8192,         /* chains of the table of requests, a power of two */
    NB_ENGINE_MAX_PROMPT_TOK = 64 << 20 /* of all requests in the engine: less than 1 GiB */
};

typedef void nb_call_fn(struct nb_engine *e, void *ctx);
typedef struct nb_call {
    nb_call_fn *fn;
    void *ctx;
    struct nb_call *next;
    bool done;
} nb_call;

typedef struct nb_queue {
    nb_thread *thread; /* the engine's; set once */
    nb_mutex *lock;
    nb_cond *wake, *done; /* the engine's thread; those who wait for it */
    nb_run *first, **end; /* submitted, not taken yet */
    nb_run *aborts;
    nb_call *calls, **calls_end;
    nb_run *table[NB_ENGINE_RUN_TABLE]; /* by id */
    size_t n_live;                      /* requests in the table */
    size_t n_live_tok, max_live_tok;    /* prompt tokens of these */
    size_t n_queued, n_queued_tok;      /* from `first` on */
    nb_request_id last_id;
    bool stopping, failed;
    char why_failed[NB_ERROR_MSG_BYTES];
} nb_queue;

nb_status nb_queue_init(nb_queue *q);
void nb_queue_deinit(nb_queue *q);
/* Appends a request and gives it its id.  On failure run is the caller's. */
nb_status nb_queue_add(nb_queue *q, nb_run *run, nb_request_id *id, nb_error *err);
/* Puts the request on the list of aborts; it may have ended. */
void nb_queue_abort(nb_queue *q, nb_request_id id);
/* Has the engine's thread do fn between two steps, and waits.  NB_ERR_ARG on that thread, which must not wait. */
nb_status nb_queue_call(nb_queue *q, nb_call_fn *fn, void *ctx);
/* The request with this id among those in the engine (lock held), or NULL. */
nb_run *nb_queue_find(const nb_queue *q, nb_request_id id);
/* Takes a request out of the table and the list of aborts (lock held). */
void nb_queue_forget(nb_queue *q, nb_run *run);
/* NB_ERR_FAILED and why, when the engine has failed. */
nb_status nb_queue_health(const nb_queue *q, nb_error *err);

#endif
