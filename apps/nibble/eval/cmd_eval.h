/* cmd_eval.h - what the commands `nibble eval ...` and `nibble calibrate` share: the text as
 * windows, the variants, their engines, tables, and reports that `eval compare` puts together.
 *
 * Functions that return an int return CLI_OK, or CLI_FAILED / CLI_USAGE after one error line. */
#ifndef NB_APPS_CMD_EVAL_H
#define NB_APPS_CMD_EVAL_H
#include <jansson.h>

#include "../cli.h"
#include "../options/opts.h"
#include "../out_file.h"
#include "nibble/measure.h"
#include "quality/stats.h"
#include "quality/variant.h"
#include "report/svg.h"

/* ---- the text --------------------------------------------------------------- */

enum { EVAL_TOKENS_DEFAULT = 16384, EVAL_CONTEXT_DEFAULT = 2048 };

/* Windows of token ids.  Of --text: each begins with the tokenizer's beginning-of-text token,
 * where it has one, and goes on with the next tokens of the text.  Of --tokens: the ids as they
 * are; an array of arrays says the windows itself. */
typedef struct eval_windows {
    uint32_t *ids;            /* [n_tok], one window behind the other                         */
    size_t *begin;            /* [n + 1]: window w is ids[begin[w]] ... ids[begin[w + 1] - 1] */
    size_t *skip;             /* [n]: tokens at its beginning that only are context           */
    size_t n, n_tok, context; /* windows, ids, the longest window                            */
    int64_t bos;              /* what each window of a text begins with, -1: nothing          */
} eval_windows;
/* --text or --tokens, --context, --stride, --n-tokens (default_tok where 0); every window has at
 * least 2 tokens and fits the model.  Deinit in any case. */
int eval_read_windows(const opts *o, size_t default_tok, eval_windows *out);
void eval_windows_deinit(eval_windows *w);

/* ---- variants --------------------------------------------------------------- */

typedef struct eval_variants {
    nb_arena arena;
    nb_variant *v; /* [n] of --formats, or the one that the other options say */
    size_t n;
    nb_variant reference; /* of --reference, on options that say nothing of the cache */
} eval_variants;
/* Engines of them hold max_model_len tokens (0: the model's maximum) and load no tokenizer
 * unless `text`.  Deinit in any case; engines must not outlive it. */
int eval_read_variants(const opts *o, size_t max_model_len, bool text, eval_variants *out);
void eval_variants_deinit(eval_variants *v);
/* With a progress bar and the engine's warnings; the error line begins with the variant's name.
 * *out is NULL on failure. info may be NULL. */
int eval_open_engine(const nb_variant *v, nb_engine **out, nb_engine_info *info);

/* The folder's name, without the path. */
const char *eval_model_name(const opts *o);
/* Adds what a variant is, "format" (nb_variant_word: also what the name leaves to the options), and
 * what the records of its engine cost: "kv_dtype", "kv_layout", "kv_transform", "kv_thrift",
 * "bytes_per_token", "bits_per_value". */
int eval_json_cost(json_t *to, const nb_variant *v, const nb_engine_info *info);
/* Adds "nibble", "model", "model_sha256" (hash: nb_engine_model_hash, or NULL), "seed",
 * "bootstrap". */
int eval_json_head(json_t *to, const opts *o, const char *hash);
/* {"value", "lo", "hi"}, null for what is not finite; NULL without memory. */
json_t *eval_json_ci(nb_ci c);
/* Puts v into an object, taking it over; CLI_FAILED after "out of memory" when either is NULL. */
int eval_json_put(json_t *to, const char *key, json_t *v);

/* ---- tables ----------------------------------------------------------------- */

/* Cells are added row by row; the first row is the heading.  The first column is set to the left,
 * the others to the right.  Zero-initialise; a lack of memory is told by eval_table_print. */
typedef struct eval_table {
    nb_buf cells;         /* terminated strings */
    size_t n_cell, n_col; /* n_col: set by the first eval_table_row */
    bool failed;
} eval_table;
void eval_table_cell(eval_table *t, const char *fmt, ...) NB_PRINTF(2, 3);
void eval_table_row(eval_table *t); /* ends a row; short rows are filled up */
/* A value with its interval, to three digits of the interval's width. */
void eval_table_ci(eval_table *t, nb_ci c);
/* Appends the aligned table to *to and frees t. */
nb_status eval_table_print(eval_table *t, nb_buf *to);

/* ---- reports ---------------------------------------------------------------- */

/* What one measurement has come to.  Commands print it, compare collects several. */
enum { EVAL_PLOTS_MAX = 6 };
typedef struct eval_plot {
    const char *title; /* static */
    nb_buf svg;
} eval_plot;
typedef struct eval_report {
    json_t *json; /* one object */
    nb_buf text;  /* for the terminal */
    eval_plot plot[EVAL_PLOTS_MAX];
    size_t n_plot; /* the first is what --plot writes */
} eval_report;
void eval_report_deinit(eval_report *r);

/* The measurements.  They print nothing but progress and errors.  Fields of o->eval that are 0 or
 * NULL mean their defaults: compare leaves some so.  Deinit *out in any case.  The JSON object
 * says {"variants": [{"name": ...}, ...]} in the order of --formats (attn: "methods" or as it
 * documents). */
int eval_kl_run(const opts *o, eval_report *out);  /* cmd_eval_kl.c: KL, agreement, perplexity */
int eval_ppl_run(const opts *o, eval_report *out); /* cmd_eval_ppl.c: the same, other tables */
int eval_attn_run(const opts *o,
                  eval_report *out); /* cmd_eval_attn.c: captured tensors, or --stress */
int eval_ruler_run(const opts *o, eval_report *out); /* cmd_eval_ruler.c */

/* The end of a command: with code CLI_OK prints the report (text, or with --json its object on
 * one line) and writes --plot; frees it; returns the exit code. */
int eval_finish(const opts *o, int code, eval_report *r);
/* Before anything is measured: whether the file, the page in the folder (which is created), or what
 * the options name can be written.  Nothing that is there changes, no file is left behind. */
int eval_try_file(const char *path);
int eval_try_dir(const char *path);
int eval_try_outputs(const opts *o);

#endif
