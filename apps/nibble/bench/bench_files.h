/* bench_files.h - the files of a model: reading them plainly, and making the system forget them. */
#ifndef NB_APPS_BENCH_FILES_H
#define NB_APPS_BENCH_FILES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct bench_file {
    char *path;
    uint64_t n_bytes;
    bool weights; /* *.safetensors */
} bench_file;

typedef struct bench_files {
    bench_file *file;
    size_t n, n_weights;
    uint64_t weight_bytes; /* of the files with weights */
} bench_files;

bool bench_is_weights(const char *path); /* *.safetensors */

/* The regular files of a folder (links are followed, folders in it are not entered), or the one file
 * that the path is.  CLI_OK, or CLI_FAILED after an error line; deinit in any case. */
int bench_files_list(const char *model, bench_files *f);
void bench_files_deinit(bench_files *f);

/* Asks the system to drop all of them from its cache.  *resident: the part of some places in the
 * files that were there afterwards all the same, as they are while another process has them mapped; -1: it cannot be
 * told here.  CLI_OK, or CLI_FAILED after an error line. */
int bench_files_drop(const bench_files *f, double *resident);
/* Reads the files with weights from begin to end; seconds. */
int bench_files_read(const bench_files *f, double *seconds);

#endif
