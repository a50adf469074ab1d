/* sched_rules.h - is a plan what sched.h promises? */
#ifndef NB_TESTS_SCHED_RULES_H
#define NB_TESTS_SCHED_RULES_H
#include "prop/sched_sim.h"

/* A plan and what was true around it. */
typedef struct sim_plan {
    nb_sched_item item[SIM_SEQS];
    size_t n_item, n_tok;
    nb_sched_stats before, after;
    size_t available; /* blocks, before */
    uint32_t n_ref[SIM_BLOCKS];
    bool indexed[SIM_BLOCKS];
    size_t n_victim, n_was_running;
    bool unsure; /* who was set back cannot be told yet */
} sim_plan;

/* Plans, takes what was planned into the model, and checks every rule. */
int sim_make_plan(sim *w, sim_plan *pl);
/* Is r waiting for a request that has not computed its prompt? */
bool sim_deferred(sim *w, const sim_req *r);

#endif
