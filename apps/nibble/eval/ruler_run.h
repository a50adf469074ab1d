/* ruler_run.h - the prompts of nb_ruler_set through an engine: generated answers and the
 * log-probability of the expected ones. */
#ifndef NB_APPS_RULER_RUN_H
#define NB_APPS_RULER_RUN_H
#include "cmd_eval.h"
#include "quality/ruler.h"

typedef struct ruler_outcome {
    char *text;          /* generated, without special tokens; free */
    double match, exact; /* 0..1 */
    double logprob;      /* of the expected answer, natural, mean over its tokens */
    double total;        /* the same, sum */
} ruler_outcome;
void ruler_outcomes_free(ruler_outcome *r, size_t n); /* and r itself */

/* All prompts under one variant, `batch` at once; *out is [s->n] and for ruler_outcomes_free.
 * cost gets what eval_json_cost says. CLI_OK, or CLI_FAILED after an error line. */
int ruler_run(const nb_variant *v, const nb_ruler_set *s, size_t batch, json_t *cost,
              ruler_outcome **out);

#endif
