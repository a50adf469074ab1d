/* replay_clock.c - see replay_clock.h. */
#include "capacity/replay_clock.h"

#include <math.h>

nb_status nb_clock_check(const nb_replay_clock *c, nb_error *err)
{
    if (!c) return nb_fail(err, NB_ERR_ARG, "replay: no clock; expected one");
    const bool plain = c->prefill_tok_s > 0 && isfinite(c->prefill_tok_s);
    if (!(plain || (c->demand && c->prefill_tok_s == 0)) || !(c->step_s >= 0) ||
        !isfinite(c->step_s))
        return nb_fail(err, NB_ERR_ARG,
                       "replay: %g prompt tokens per second and %g s per step%s; "
                       "expected more than 0, and 0 or more",
                       c->prefill_tok_s, c->step_s, c->demand ? "" : " without a machine");
    if (c->demand && (!(c->demand->machine->bandwidth > 0) || !(c->demand->machine->bf16 > 0) ||
                      !(c->chunk >= 1)))
        return nb_fail(
            err, NB_ERR_ARG,
            "replay: a machine of %g bytes/s and %g operations/s, %g prompt tokens a step; "
            "expected more than 0, and 1 or more",
            c->demand->machine->bandwidth, c->demand->machine->bf16, c->chunk);
    return NB_OK;
}

double nb_clock_prompt_s(const nb_replay_clock *c, size_t n_tok, size_t n_cached)
{
    if (c->prefill_tok_s > 0) return (double)n_tok / c->prefill_tok_s;
    nb_prefill p;
    nb_prefill_after(c->demand, c->layout, c->efficiency, (double)n_tok, (double)n_cached, c->chunk,
                     &p);
    return p.model_s;
}

static double machine_s(const nb_replay_clock *c, const nb_mixed *work)
{
    return nb_mixed_s(c->demand, c->layout, c->record, c->efficiency, work);
}

double nb_clock_step_s(const nb_replay_clock *c, const nb_clock_step *s)
{
    const bool plain_prompts = c->prefill_tok_s > 0, plain_steps = c->step_s > 0 || !c->demand;
    nb_mixed left = s->work;
    double t = 0;
    if (plain_prompts) {
        t += (left.all.n_tok + (double)s->n_again) / c->prefill_tok_s;
        left.all = left.largest = (nb_prompt_work){ 0 };
        left.n_seq -= (double)s->n_again;
    }
    if (plain_steps) {
        t += s->n_generating ? c->step_s : 0;
        left.n_seq = 0;
    }
    return left.n_seq > 0 || left.all.n_tok > 0 ? t + machine_s(c, &left) : t;
}
