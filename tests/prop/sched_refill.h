/* sched_refill.h - refills in prop_sched: a naive model of src/sched/refill.h beside the real one. */
#ifndef NB_TESTS_SCHED_REFILL_H
#define NB_TESTS_SCHED_REFILL_H
#include "prop/sched_sim.h"

enum { REFILL_TEXTS = 5 };

typedef struct refill_model {
    nb_refill *f; /* NULL: this run has none */
    nb_refill_options o;
    struct {
        uint32_t tok[SIM_TOK];
        size_t n, n_prompt; /* n: whole blocks */
        nb_sched_request form;
        unsigned salt;
    } text[REFILL_TEXTS];
    size_t n_text;
    uint64_t n_done, n_dropped, n_tok;
} refill_model;

/* With options drawn from w->p; after the scheduler was made. */
int refill_init(sim *w, refill_model *m);
/* A request has finished; it is still in the scheduler. */
int refill_add(sim *w, refill_model *m, const sim_req *r);
/* r arrives; it is not in the scheduler yet. */
int refill_yield(sim *w, refill_model *m, const uint32_t *tok, size_t n_tok, unsigned salt);
/* A step in which nobody else is there. */
int refill_step(sim *w, refill_model *m);
void refill_clear(sim *w, refill_model *m);

#endif
