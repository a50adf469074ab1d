/* net.h - TCP between processes: sockets that never block, and waiting for them.
 *
 * A socket is a number, -1: none.  Peers that vanish without a word (a machine that is switched off) are noticed by
 * the system's probes after half a minute of silence; while sent bytes wait for an answer there are no probes, and the
 * caller's own limit counts. */
#ifndef NB_OS_NET_H
#define NB_OS_NET_H
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

enum { NB_NET_HOST_BYTES = 64 }; /* a numeric address, "10.0.0.2" or "fe80::1%eth0" */

/* Port 0: any.  host: numeric addresses are bound where they are this machine's; else, and for names, all of them. */
nb_status nb_net_listen(const char *host, unsigned port, int *out, nb_error *err);
unsigned nb_net_port(int s); /* of this end; 0: unknown */
/* One try, at most that long.  NB_ERR_NOT_FOUND: nobody listens there (yet), or the name is not known (yet). */
nb_status nb_net_connect(const char *host, unsigned port, unsigned timeout_ms, int *out, nb_error *err);
int nb_net_accept(int listening); /* -1: nobody waits */
/* Numeric addresses of both ends, "" where unknown. */
void nb_net_own(int s, char host[NB_NET_HOST_BYTES]);
void nb_net_peer(int s, char host[NB_NET_HOST_BYTES]);
/* Bytes; 0: not now, -1: the connection is gone. */
long nb_net_send(int s, const void *p, size_t n_bytes);
long nb_net_recv(int s, void *p, size_t n_bytes);
bool nb_net_is_gone(int s); /* the other end has closed, whatever is still to be read */
void nb_net_close(int s);   /* -1 is ignored */

typedef struct nb_net_want {
    int s; /* -1 is ignored */
    bool read, write;
    bool ready; /* answer; also where the connection is gone */
} nb_net_want;
/* Until one is ready, at most that long. */
void nb_net_wait(nb_net_want *w, size_t n, unsigned timeout_ms);


#endif
