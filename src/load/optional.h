/* optional.h - files of a model's folder that may be absent. */
#ifndef NB_LOAD_OPTIONAL_H
#define NB_LOAD_OPTIONAL_H
#include <stdbool.h>

#include "base/str.h"

/* dir/name into *path (replacing its content) and whether it is there.  What is there must be a regular
 * file: NB_ERR_IO says what it is instead, and in a snapshot of a hub cache how to download it. */
nb_status nb_optional_find(const char *dir, const char *name, nb_buf *path, bool *found,
                           nb_error *err);
/* Its bytes, appended; nothing when it is absent.  Where dir is a GGUF, or a folder with one, the text is made of
 * its metadata (gguf.h). */
nb_status nb_optional_read(const char *dir, const char *name, size_t max_bytes, nb_buf *out,
                           bool *found, nb_error *err);

#endif
