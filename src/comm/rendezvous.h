/* rendezvous.h - how processes that are ranks of one model find each other, and know that it is them.
 *
 * Rank 0 listens; the others connect to it, and then to each other.  On every connection both sides first prove that they
 * know the secret: each has sent 32 random bytes, and answers with an HMAC-SHA-256 of both.  Before that nothing that
 * comes is looked at but its length; who sends something else, or nothing, is dropped and keeps nobody waiting.  The
 * secret itself is not sent.  What follows is not encrypted (comm_tcp.h). */
#ifndef NB_COMM_RENDEZVOUS_H
#define NB_COMM_RENDEZVOUS_H
#include "comm/comm.h"

enum { NB_SECRET_MIN = 16, NB_SECRET_MAX = 1024 }; /* bytes of a secret */

typedef struct nb_rendezvous {
    size_t n_rank, rank;
    const char *host; /* of rank 0 */
    unsigned port;
    const char *secret;
    const char *version; /* other versions are refused */
    double limit_s;      /* until all have come */
    void (*note)(void *ctx, const char *line); /* of who was turned away; may be NULL */
    void *note_ctx;
} nb_rendezvous;

/* link[k]: a connection to rank k, for nb_comm_create_tcp.  An error names the rank that is missing or does not fit; what
 * does not fit is the same line on both sides. */
nb_status nb_rendezvous_meet(const nb_rendezvous *r, int link[NB_COMM_MAX_RANK], nb_error *err);

#endif
