/* bench_common.h - what the two benchmarks share: options, sampling, results. */
#ifndef NB_APPS_BENCH_COMMON_H
#define NB_APPS_BENCH_COMMON_H
#include "bench_data.h"
#include "bench_result.h"
#include "bench_stats.h"

typedef struct bench_plan {
    const bench_opts *o;
    bench_report report;
    double rate, burstiness; /* INFINITY: all at once; equal gaps */
    bench_doc doc;           /* begun by bench_doc_begin */
} bench_plan;
/* CLI_OK, or CLI_USAGE after an error line. */
int bench_plan_make(const bench_opts *o, bench_plan *p);

/* The value of an option such as --temperature; false: not given. Checked by bench_plan_make. */
bool bench_number(const char *text, double *out);

/* The ids of t that stand for text: not the special ones.  CLI_OK or CLI_FAILED. */
int bench_pool_of(const nb_text *t, bench_set *s);
/* bench_tok.encode; text is a const nb_text. */
int bench_encode_text(const void *text, const char *s, size_t n_bytes, uint32_t **ids,
                      size_t *n_ids);

/* What stands before the figures in the JSON; NULL: out of memory. */
json_t *bench_result_head(const bench_plan *p, const char *backend, const char *model,
                          const char *tokenizer);
/* Prints the errors of some requests, and writes j (taken over) where the options say. */
int bench_result_save(const bench_plan *p, const char *backend, const char *model, json_t *j);
/* CLI_FAILED after an error line when requests were lost or none was completed. */
int bench_verdict(const bench_rec *r, const bench_summary *s);

#endif
