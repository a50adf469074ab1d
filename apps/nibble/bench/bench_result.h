/* bench_result.h - what the JSON of every `nibble bench` command has at its top:
 *
 *   schema 1, command, version, commit (of --metadata commit=..., else null), date, machine,
 *   results [{name, unit, better, median, mad, lo, hi, n, ...}],
 *   noise {rows, median_rel_mad, max_rel_mad, control_ns {begin, end}, load_average {begin, end}}
 *
 * A row's name tells what was measured, wholly and in the same words in every run: `bench/compare`
 * matches rows by it.  n is the number of times that the figure was measured, mad the median of the distances from
 * the median (null with a single one).  The control is a chain of multiplications that always takes the
 * same number of clock ticks, timed before and after: it tells how much of a processor there was. */
#ifndef NB_APPS_BENCH_RESULT_H
#define NB_APPS_BENCH_RESULT_H
#include <jansson.h>
#include <stdbool.h>

#include "../options/opts.h"
#include "bench_machine.h"
#include "timing/bench_kernel.h"

typedef struct bench_doc {
    bench_machine machine;
    nb_kbench_spread control; /* ns, before the measurement */
} bench_doc;

/* Reads the machine and times the control. */
void bench_doc_begin(bench_doc *d);
/* CLI_OK, or CLI_USAGE after an error line. */
int bench_doc_check_metadata(const opt_strs *metadata);
/* The keys up to machine, and those of --metadata; NULL: out of memory. */
json_t *bench_doc_head(const bench_doc *d, const char *name, const opt_strs *metadata);
/* Adds `noise` of j's `results`, timing the control again. False: out of memory. */
bool bench_doc_end(const bench_doc *d, json_t *j);
/* head takes over the keys of `more` (which is given up), ends, and is printed as one line. CLI_OK, or
 * CLI_FAILED after an error line; both may be NULL: out of memory. */
int bench_doc_print(const bench_doc *d, json_t *head, json_t *more);

/* Appends a row: `row` (taken over; NULL: a new one) with the keys of a figure.  False: out of
 * memory. */
bool bench_row_add(json_t *results, json_t *row, const char *name, const char *unit,
                   bool more_is_better, const nb_kbench_spread *s);

/* 20261121-195700, as vLLM's bench writes it. */
void bench_date(char out[32]);
/* The last part of a path, without .json or /config.json: what stands for a model in names of rows. */
void bench_model_name(const char *model, char *out, size_t n_bytes);

#endif
