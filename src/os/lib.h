/* lib.h - shared objects that are loaded when they are there, and where the files of an installation are. */
#ifndef NB_OS_LIB_H
#define NB_OS_LIB_H
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef struct nb_lib nb_lib;

/* Loads a file with all that it needs.  NB_ERR_NOT_FOUND when there is no such file, NB_ERR_UNSUPPORTED
 * with the loader's reason when it cannot be used.  Its code stays mapped until the process ends, since
 * what it registered may be called at exit. */
nb_status nb_lib_open(const char *path, nb_lib **out, nb_error *err);
void nb_lib_close(nb_lib *l); /* NULL: nothing */

typedef void nb_lib_fn(void);
nb_lib_fn *nb_lib_function(nb_lib *l, const char *name); /* NULL: it is not in there */

/* The folder of the running program, without a slash at the end; false when it cannot be told. */
bool nb_program_folder(char *out, size_t n_bytes);

/* The path of a file or folder that is part of nibble: first in the build folder of the running program, then
 * where `cmake --install` puts it, seen from the program and from libnibble.so.  false: it is not there. */
typedef enum nb_place {
    NB_PLACE_LIB, /* shared objects that are loaded at run time */
    NB_PLACE_DATA /* share/nibble                               */
} nb_place;
bool nb_installed_path(nb_place place, const char *name, char *out, size_t n_bytes);

#endif
