/* tune_file.h - the file that keeps what nb_engine_tune chose.
 *
 * One JSON file per machine and model's shapes, in XDG_CACHE_HOME/nibble/tune or ~/.cache/nibble/tune:
 *
 *   {"format": "nibble tune", "version": 1, "key": "...", "operations": {
 *    "linear_q4_k": {"level": "avx512", "measured_us": {"avx512": [31.2, 410.0], "avx2": [33.0, 800.1]}}}}
 *
 * The numbers are those of one token and of 64; 0: not measured.  `key` says what the choice is for: version,
 * processor, levels, threads, operations with their shapes and candidates.  A file with another key is stale. */
#ifndef NB_ENGINE_TUNE_FILE_H
#define NB_ENGINE_TUNE_FILE_H
#include "base/str.h"
#include "kernel/kernel.h"
#include "num/record.h"

enum { NB_TUNE_MAX_OP = 16, NB_TUNE_MAX_LEVEL = 6 };

typedef struct nb_tune_level {
    const char *name; /* of nb_cpu_level_table */
    nb_caps mask;
    const char *act;         /* linear: the form of activations of its row */
    double few_us, many_us;  /* microseconds with one token, with 64; 0: not measured */
} nb_tune_level;

typedef struct nb_tune_op {
    char name[32];
    enum { NB_TUNE_LINEAR, NB_TUNE_PAGES, NB_TUNE_PREFILL } kind;
    nb_wtype type; /* linear */
    size_t n_row, n_col;
    const nb_record *record; /* attn_pages */
    size_t n_head;
    nb_tune_level level[NB_TUNE_MAX_LEVEL]; /* candidates, best first by the order of the tables */
    size_t n, chosen;
    nb_caps *into; /* where the chosen mask goes */
} nb_tune_op;

typedef struct nb_tune {
    nb_tune_op op[NB_TUNE_MAX_OP];
    size_t n;
    nb_buf folder, path, key;
} nb_tune;

/* Sets folder, path and key from the operations.  NB_ERR_NOT_FOUND: there is no cache folder. */
nb_status nb_tune_name(nb_tune *t, nb_caps caps, size_t n_thread, nb_error *err);
void nb_tune_deinit(nb_tune *t);
/* *found: every operation's `chosen` is set from the file.  No file, or a stale one, is NB_OK without *found;
 * one that cannot be read or is damaged is an error with a line, without *found. */
nb_status nb_tune_read(nb_tune *t, bool *found, nb_error *err);
nb_status nb_tune_write(const nb_tune *t, nb_error *err);

#endif
