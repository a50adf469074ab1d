/* replay_clock.h - how long a step of a replay takes: by plain numbers, or as the roofline model has it for a
 * machine, a layout and a record (roofline.h).  A plain number, where there is one, wins.
 *
 * With several replicas (data parallel) a replay has one cache and one scheduler for all: as if requests
 * went where the beginning of their prompt lies, and work were dealt evenly. */
#ifndef NB_CAPACITY_REPLAY_CLOCK_H
#define NB_CAPACITY_REPLAY_CLOCK_H
#include <stdint.h>

#include "capacity/roofline.h"

typedef struct nb_replay_clock {
    double prefill_tok_s; /* prompt tokens per second; 0: the machine's time */
    double step_s;        /* of a step that generates; 0: the machine's time, or none without one */
    /* The machine, all borrowed; demand NULL: none, and prefill_tok_s > 0. */
    const nb_demand *demand;
    const nb_layout *layout;
    const nb_efficiency *efficiency;
    const nb_record_size *record; /* of one GPU of the layout */
    double chunk;                 /* prompt tokens of a step and replica, >= 1 */
} nb_replay_clock;

/* NB_ERR_ARG with a line that says what is wrong; c may be NULL, which is wrong. */
nb_status nb_clock_check(const nb_replay_clock *c, nb_error *err);

/* A prompt that is alone on the machine, of which n_cached tokens are found. */
double nb_clock_prompt_s(const nb_replay_clock *c, size_t n_tok, size_t n_cached);

typedef struct nb_clock_step {
    size_t n_generating; /* requests that generate                                             */
    size_t
        n_again; /* further tokens of theirs, computed again after a preemption: in work.n_seq too */
    nb_mixed work;
} nb_clock_step;
/* Tokens that are generated again cost what prompt tokens cost where there is a plain rate, else what
 * generated ones do. */
double nb_clock_step_s(const nb_replay_clock *c, const nb_clock_step *s);

#endif
