/* log_writer.h - lines on their way to a descriptor, written by a thread of its own.
 *
 * Putting a line never waits for its reader: lines queue in a ring of fixed size, and when the ring
 * is full the oldest make room.  The writer then says how many were lost.  A full disk, a reader that
 * has gone and a reader that has stopped reading all cost lines, never time. */
#ifndef NB_SERVE_LOG_WRITER_H
#define NB_SERVE_LOG_WRITER_H
#include <stdint.h>

#include "base/str.h"

typedef struct nb_log_writer nb_log_writer;
/* Makes a line (with its end) of what the writer has to say.  On the writer's thread. */
typedef void nb_log_note_fn(void *ctx, const char *message, nb_buf *line);

enum { NB_LOG_MAX_LINE_BYTES = 8192 }; /* longer ones count as lost */

/* Writes to `file` (appended to, created with mode 0640), or with file NULL to `fd`, which stays the
 * caller's.  NB_ERR_IO names the file and the system's reason. */
nb_status nb_log_writer_open(const char *file, int fd, nb_log_note_fn *note, void *ctx,
                             nb_log_writer **out, nb_error *err);
/* Writes what is queued for at most a second, then gives up on it.  NULL: nothing. */
void nb_log_writer_close(nb_log_writer *w);

/* Any thread.  line ends with '\n'. */
void nb_log_writer_put(nb_log_writer *w, nb_str line);
/* Any thread: waits until all that was put is written, at most `ms`; false when it is not. */
bool nb_log_writer_flush(nb_log_writer *w, unsigned ms);
/* Any thread, and signal handlers: opens `file` again, which a log rotation has moved away.  When that
 * fails the old file stays in use, and a line there names the reason. */
void nb_log_writer_reopen(nb_log_writer *w);
/* Any thread: lines dropped since it was opened. */
uint64_t nb_log_writer_dropped(nb_log_writer *w);

#endif
