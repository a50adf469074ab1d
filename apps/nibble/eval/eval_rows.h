/* eval_rows.h - a text under a reference and under variants, row by row of logits: the measurement
 * behind `eval kl` and `eval ppl`. */
#ifndef NB_APPS_EVAL_ROWS_H
#define NB_APPS_EVAL_ROWS_H
#include "cmd_eval.h"
#include "quality/lockstep.h"

typedef struct eval_rows_of {
    const char *name;        /* the variant's, or "floor" */
    double *kl, *nll, *same; /* [n] */
    json_t *cost;            /* eval_json_cost */
} eval_rows_of;

typedef struct eval_rows {
    eval_windows text;
    size_t n, max_pos;             /* rows; the highest position of one */
    uint32_t *window, *pos, *next; /* [n] */
    double *nll_ref;               /* [n] */
    const char *ref_name;
    json_t *ref_cost;
    /* [0] is the floor: the reference again, its prompt computed in steps of another size; then
     * the variants in their order */
    eval_rows_of *of;
    size_t n_of;
    size_t chunk_ref, chunk_floor; /* prompt tokens of a step */
    size_t vocab;
    char hash[NB_MODEL_HASH_CHARS + 1];
} eval_rows;

/* CLI_OK, or an exit code after an error line. Names live as long as v. Deinit in any case. */
int eval_rows_measure(const opts *o, const eval_variants *v, eval_rows *out);
void eval_rows_deinit(eval_rows *r);
/* Rows of system i for nb_lockstep_summarise. */
nb_lockstep_rows eval_rows_view(const eval_rows *r, size_t i);

/* ---- eval_sums.c: what they come to ---- */

typedef struct eval_sums {
    size_t n_range, edge[NB_LOCKSTEP_RANGES + 1];
    nb_lockstep_sum *all;   /* [n_of] */
    nb_lockstep_sum *range; /* [n_of][n_range]; n is 0 where there are no rows */
    nb_ci *vs_first;        /* [n_of]: mean KL less that of the first variant, paired */
} eval_sums;
int eval_sums_make(const opts *o, const eval_rows *r, eval_sums *out);
void eval_sums_deinit(eval_sums *s);
/* The report's object; NULL after an error line. */
json_t *eval_sums_json(const opts *o, const char *what, const eval_rows *r, const eval_sums *s);
/* What was measured, in words: the first lines of the tables. */
nb_status eval_sums_head(const opts *o, const eval_rows *r, const eval_sums *s, nb_buf *to);
/* How the intervals were made: the last lines. */
nb_status eval_sums_foot(const opts *o, const eval_rows *r, nb_buf *to);
/* A table by ranges of positions of one figure. */
typedef nb_ci eval_figure(const nb_lockstep_sum *s);
nb_status eval_sums_ranges(const eval_rows *r, const eval_sums *s, const char *title,
                           eval_figure *figure, nb_buf *to);
/* Adds a plot of the figure against the position, and one with a bar for each variant. */
int eval_sums_plot(const opts *o, const eval_rows *r, const nb_svg_axes *axes, eval_figure *figure,
                   eval_report *out);
int eval_sums_bars(const eval_rows *r, const eval_sums *s, const nb_svg_axes *axes,
                   eval_figure *figure, eval_report *out);

/* A whole command: variants, rows, sums, JSON under that name, text and plots; out is for the
 * caller to free in any case. */
typedef nb_status eval_table_fn(const opts *o, const eval_rows *r, const eval_sums *s, nb_buf *to);
typedef int eval_plots_fn(const opts *o, const eval_rows *r, const eval_sums *s, eval_report *out);
int eval_sums_run(const opts *o, const char *name, eval_table_fn *table, eval_plots_fn *plots,
                  eval_report *out);

#endif
