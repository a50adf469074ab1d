/* map_guard.h - mapped memory whose file may be truncated, or whose disk may fail.
 *
 * Reading such a page raises SIGBUS, which ends a process.  In guarded ranges it does not: from the
 * page on the range reads as zeros, the fault is remembered, and the reader goes on.  Whoever uses
 * the bytes asks afterwards, and throws away what it made of them. */
#ifndef NB_OS_MAP_GUARD_H
#define NB_OS_MAP_GUARD_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct nb_map_guard nb_map_guard;

/* [p, p + n_bytes) is a private, read-only mapping of a file; p is aligned to a page.  With the first
 * range a handler of SIGBUS is installed, with the last one the handler from before comes back; a
 * SIGBUS elsewhere goes to that one.  NB_ERR_NOMEM, NB_ERR_IO. */
nb_status nb_map_guard_add(const void *p, size_t n_bytes, nb_map_guard **out);
void nb_map_guard_remove(nb_map_guard *g); /* before the range is unmapped; NULL: nothing */

/* Faults in guarded ranges so far: while it is the same, none had one. */
uint64_t nb_map_guard_n_fault(void);
/* Whether reading has failed in this range, and at which offset first. */
bool nb_map_guard_fault(const nb_map_guard *g, size_t *at);

#endif
