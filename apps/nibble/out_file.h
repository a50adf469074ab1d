/* out_file.h - files that commands write: under their name only when they are complete. */
#ifndef NB_APPS_OUT_FILE_H
#define NB_APPS_OUT_FILE_H
#include <stddef.h>
#include <stdio.h>

/* Zero-initialise. */
typedef struct out_file {
    FILE *f;
    char *path, *temp; /* temp: renamed to path at the end; NULL: copied to it */
} out_file;

/* Opens out->f for what will be `path` ("-": standard output).  A regular file, or none, is replaced at the
 * end; a device, a fifo or a dangling link is written to as it is, at the end too.  CLI_FAILED with a line. */
int out_file_open(out_file *out, const char *path);
/* Puts the file in place when code is CLI_OK, and removes what was written otherwise.  Returns code, or
 * CLI_FAILED with a line; what was there before is then unchanged.  After a failed open too. */
int out_file_close(out_file *out, const char *path, int code);

/* A whole file. */
int out_file_write(const char *path, const void *p, size_t n_bytes);
/* One more line; on failure the file is as it was. */
int out_file_append(const char *path, const char *line);

/* The line of a file that cannot be written, with errno; returns CLI_FAILED. */
int out_file_failed(const char *path);

#endif
