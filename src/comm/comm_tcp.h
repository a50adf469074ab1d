/* comm_tcp.h - ends in processes of their own, on one machine or several, joined by TCP.
 *
 * Every rank has a connection to every other (rendezvous.h makes them).  What is exchanged is neither encrypted nor
 * authenticated once a connection stands: the network between ranks must be trusted. */
#ifndef NB_COMM_TCP_H
#define NB_COMM_TCP_H
#include "comm/comm.h"

/* link[k]: the connection to rank k (os/net.h); taken over, also on failure. */
nb_status nb_comm_create_tcp(size_t n_rank, size_t rank, const int *link, double limit_s, nb_comm **out, nb_error *err);

/* Rank 0's: these bytes to all others, which hear them.  Counts as a call of all ranks. */
nb_status nb_comm_tell(nb_comm *c, const void *p, size_t n_bytes, nb_error *err);
/* The others': waits for rank 0 without a limit, while its connection stands.  *n_bytes: room, then what came. */
nb_status nb_comm_hear(nb_comm *c, void *p, size_t *n_bytes, nb_error *err);
/* Between two calls: fails where a connection has gone meanwhile. */
nb_status nb_comm_look(nb_comm *c, nb_error *err);

#endif
