/* opts_convert.h - the options of `nibble convert`: opts_table_hub.c. */
#ifndef NB_APPS_OPTS_CONVERT_H
#define NB_APPS_OPTS_CONVERT_H
#include <stddef.h>

typedef struct convert_opts {
    const char *out; /* the second argument */
    const char *format, *keep, *gguf_pre, *calibration, *imatrix;
    size_t max_shard_mb;
} convert_opts;

#endif
