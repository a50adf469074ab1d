/* bench_runs.h - a workload that is run several times: figures of each run, their medians and spread. */
#ifndef NB_APPS_BENCH_RUNS_H
#define NB_APPS_BENCH_RUNS_H
#include "bench_common.h"

enum {
    RUN_REQUESTS, /* per second */
    RUN_OUTPUT,   /* tokens per second */
    RUN_TOTAL,    /* with those of the prompts */
    RUN_TTFT,     /* medians over the requests of the run, ms; this and the next */
    RUN_TPOT,
    RUN_ITL,
    RUN_E2EL,
    N_RUN_FIGURE
};

typedef struct bench_runs {
    size_t n;
    double *v; /* [N_RUN_FIGURE][n] */
} bench_runs;

bool bench_runs_init(bench_runs *r, size_t n); /* n >= 1; false: out of memory */
void bench_runs_deinit(bench_runs *r);
void bench_runs_put(bench_runs *r, size_t k, const bench_summary *s);
/* The run with the median of output tokens per second; of two in the middle the slower one. */
size_t bench_runs_middle(const bench_runs *r);
/* Lines of the table; nothing for a single run. */
void bench_runs_print(FILE *f, const bench_runs *r);
/* `how`: what of the engine makes the figures, or "". Adds what all `nibble bench` commands have (bench_result.h), `results` with a row for each figure.
 * False: out of memory. */
bool bench_runs_json(json_t *j, const bench_runs *r, const bench_plan *p, const char *kind,
                     const char *model, const char *how);

#endif
