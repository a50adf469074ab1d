/* answers.h - finished answers are computed again as prompts while the engine is idle: what the engine
 * tells src/sched/refill.h about its requests.  All on the engine's thread. */
#ifndef NB_ENGINE_ANSWERS_H
#define NB_ENGINE_ANSWERS_H
#include "nibble/nibble.h"

#include "engine/run.h"
#include "sched/refill.h"

enum { NB_REFILL_QUIET_MS = 50 }; /* longer than a client takes that asks again at once */

typedef struct nb_answers {
    nb_refill *refill; /* NULL: answers are not computed again */
    double t_busy;     /* when a request was last computed, or came */
} nb_answers;

/* With the scheduler. */
nb_status nb_engine_create_answers(nb_engine *e, const nb_engine_options *o, nb_error *err);
void nb_answers_add(nb_engine *e, const nb_run *r);                 /* before r leaves the scheduler */
void nb_answers_yield(nb_engine *e, const nb_run *r, double now); /* before r enters it */
bool nb_answers_pending(const nb_engine *e);
/* The engine has failed, or its cache is emptied. */
void nb_answers_clear(nb_engine *e);
/* Into e->stats.count, once per snapshot. */
void nb_answers_count(nb_engine *e);

/* Whether tokens of a prompt may be computed otherwise than generated ones: latent attention; on a GPU compressed
 * attention, too, whose prompts have other products. */
bool nb_engine_has_forms(const nb_engine *e);
/* How the tokens of a prompt of that length are computed: see nb_sched_request. */
typedef struct nb_prompt_form {
    size_t n_expanded, n_upload, rope_from;
} nb_prompt_form;
nb_prompt_form nb_engine_prompt_form(const nb_engine *e, size_t n_prompt);

#endif
