/* progress.h - how far a long load is; drawing it is the caller's. */
#ifndef NB_LOAD_PROGRESS_H
#define NB_LOAD_PROGRESS_H
#include <stdint.h>

/* Called on the loading thread: first with done_bytes == 0, then at least every
 * 64 MiB, last with done_bytes == total_bytes.  label is text without control
 * characters (a file's name), valid during the call only. */
typedef void nb_source_progress_fn(void *ctx, uint64_t done_bytes, uint64_t total_bytes,
                            const char *label);

#endif
