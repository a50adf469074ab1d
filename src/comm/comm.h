/* comm.h - how ranks that compute one model together exchange what they have.
 *
 * Every rank has an end (nb_comm) and makes the same calls in the same order.  A call returns on a rank when its
 * part is done: what it receives is there, and what it gave may be overwritten.  Ranks are threads of one process
 * (nb_comm_create) or processes (comm_tcp.h); nothing else here says which.
 *
 * A sum has one order whatever the number of ranks: parts of rank 0 first, each rank's own parts in their order.
 *
 * Errors.  A rank that calls something else than the others, gives other shapes, reports an error (nb_comm_fail)
 * or does not come within the limit ends the call on all ranks, with one line that names it.  An error is for
 * good: all later calls of all ranks return the first one at once.  A rank never waits longer than the limit for
 * another, and after an error it writes to no memory that a slow rank may still read, if its caller computes no
 * further.
 *
 * Groups (nb_comm_split) are for ranks that compute some things with a few others and some with all: each then has two
 * ends, and a group its own calls.  A failure is common to all ranks, in whichever group it happens: the calls of all
 * groups end, with the line that names the rank by its number among all.
 *
 * An end is used by one thread at a time.  Calls allocate nothing. */
#ifndef NB_COMM_COMM_H
#define NB_COMM_COMM_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { NB_COMM_MAX_RANK = 64 };

typedef struct nb_comm nb_comm;

/* n_row rows of row_bytes, stride bytes apart. */
typedef struct nb_comm_block {
    void *p;
    size_t n_row, row_bytes, stride;
} nb_comm_block;

/* Ends of n_rank ranks, 1 to NB_COMM_MAX_RANK; limit_s > 0: how long a rank waits for another.  spin: there is a core for every
 * rank, so that waiting begins with looking again and again, for some microseconds. */
nb_status nb_comm_create(size_t n_rank, double limit_s, bool spin, nb_comm **out, nb_error *err);
/* This rank's end in its group: the ranks of c fall into n_group groups of neighbours, of one size (n_group divides their
 * number), and have numbers from 0 on in theirs.  Once on each end of c, with the same n_group; it waits for nobody.
 * Limit and alarms are c's. */
nb_status nb_comm_split(nb_comm *c, size_t n_group, nb_comm **out, nb_error *err);
/* When no rank is in a call any more; the memory of all is freed with the last. NULL is ignored. */
void nb_comm_destroy(nb_comm *c);
size_t nb_comm_rank(const nb_comm *c);
size_t nb_comm_n_rank(const nb_comm *c);
bool nb_comm_shares_memory(const nb_comm *c); /* with the other ends: they are threads of this process */

/* Returns when all ranks have called it. */
nb_status nb_comm_barrier(nb_comm *c, nb_error *err);
/* All ranks get `send` of every rank, that of rank k in recv[k], which has its shape; p NULL: this rank does not
 * want it.  recv[own] may be `send` itself (in place). */
nb_status nb_comm_gather(nb_comm *c, const nb_comm_block *send, const nb_comm_block *recv,
                         nb_error *err);
/* send[k] goes to rank k, where it becomes recv[own]; shapes agree pairwise, blocks may be empty.  send[own] and
 * recv[own] may be the same memory. */
nb_status nb_comm_exchange(nb_comm *c, const nb_comm_block *send, const nb_comm_block *recv,
                           nb_error *err);
/* out[n] = the n_part parts [n] of rank 0, part + k * stride, added in order, then those of rank 1 and so on, in
 * float, on every rank.  out overlaps no part.  n_part may differ between ranks, and be 0. */
nb_status nb_comm_sum(nb_comm *c, const float *part, size_t n_part, size_t stride, size_t n,
                      float *out, nb_error *err);
/* NB_ERR_FAILED on all ranks if one of them has another value than rank 0; what: "decisions of a step". */
nb_status nb_comm_agree(nb_comm *c, uint64_t value, const char *what, nb_error *err);

/* Ends the calls of all ranks with this reason, which is rank who's (of c's group): the first one counts. */
void nb_comm_fail(nb_comm *c, size_t who, const char *why);
/* *word becomes 1 when any rank has failed, for devices that wait without looking at this one's calls; NULL: no more.
 * When no rank is in a call.  A failure before counts, too. */
void nb_comm_set_alarm(nb_comm *c, volatile uint32_t *word);
/* NB_ERR_FAILED and the reason, or NB_OK. */
nb_status nb_comm_check(const nb_comm *c, nb_error *err);
/* Before the first call, or between two: of all ranks. */
void nb_comm_set_limit(nb_comm *c, double limit_s);
double nb_comm_limit(const nb_comm *c); /* seconds */

#endif
