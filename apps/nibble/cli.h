/* cli.h - what the subcommands share: errors, files, standard output. */
#ifndef NB_APPS_CLI_H
#define NB_APPS_CLI_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "nibble/nibble.h"

#if defined(__GNUC__)
#define CLI_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#else
#define CLI_PRINTF(fmt, first)
#endif

/* Exit codes; every function here that returns an int returns one of them. */
enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

/* Print "nibble: ...", one line, on standard error. */
int cli_failed(const char *fmt, ...) CLI_PRINTF(1, 2); /* returns CLI_FAILED */
int cli_usage(const char *fmt, ...) CLI_PRINTF(1, 2);  /* returns CLI_USAGE  */
int cli_status(nb_status s, const nb_error *err);      /* CLI_FAILED, with err's line */
void cli_note(const char *fmt, ...) CLI_PRINTF(1, 2);

/* The bytes of a file, or of standard input for "-", terminated; free() them. */
int cli_read_file(const char *path, size_t max_bytes, char **data, size_t *n_bytes);
/* A JSON array of token ids; free() them. */
int cli_read_ids(const char *path, uint32_t **ids, size_t *n_ids);

/* Flushes standard output; a closed pipe or a full disk is a failure.  `code` is what
 * the command has come to so far. */
int cli_finish(int code);
void cli_out_error(int e); /* writing to standard output has failed with this errno */
bool cli_out_ok(void);    /* false once writing to standard output has failed */
bool cli_out_flush(void); /* flushes and says the same */

double cli_seconds(void); /* monotonic */

/* Figures as `plan` prints them and `serve` logs them: "140.4 GiB"; "1,234,567" of a whole number. */
enum { CLI_FIGURE_BYTES = 32 };
void cli_bytes_text(double x, char *out, size_t n);
void cli_count_text(double x, char *out, size_t n);
typedef struct cli_memory_part {
    const char *name; /* NULL: the part is left out */
    double bytes;
} cli_memory_part;
/* "weights 29.3 GiB, reserve 4.0 GiB, cache 36.7 GiB". */
void cli_memory_text(const cli_memory_part *part, size_t n_part, char *out, size_t n);

/* A progress bar on standard error when that is a terminal, else nothing. */
nb_progress_fn cli_progress;
/* What stands behind the percentage from now on, such as a rate. */
void cli_progress_tail(const char *text);
bool cli_progress_shown(void); /* standard error is a terminal */
void cli_progress_end(void);

struct opts;
/* One per subcommand, in cmd_<name>.c. */
int cmd_run(const struct opts *o);
int cmd_chat(const struct opts *o);
int cmd_info(const struct opts *o);
int cmd_logits(const struct opts *o);
int cmd_plan(const struct opts *o);
int cmd_pull(const struct opts *o);
int cmd_verify(const struct opts *o);
int cmd_convert(const struct opts *o);
int cmd_tokenize(const struct opts *o);
int cmd_render(const struct opts *o);
int cmd_serve(const struct opts *o);
int cmd_bench_serve(const struct opts *o);      /* cmd_bench.c */
int cmd_bench_throughput(const struct opts *o); /* bench_throughput.c */
int cmd_bench_kernel(const struct opts *o);     /* bench_kernel.c */
int cmd_bench_load(const struct opts *o);       /* bench_load.c */
int cmd_bench_matrix(const struct opts *o);     /* bench_matrix.c */
int cmd_bench_tune(const struct opts *o);       /* bench_tune.c */
int cmd_eval_kl(const struct opts *o);
int cmd_eval_ppl(const struct opts *o);
int cmd_eval_compare(const struct opts *o);
int cmd_eval_attn(const struct opts *o);
int cmd_calibrate(const struct opts *o);
int cmd_eval_ruler(const struct opts *o);

#endif
