/* door.h - the side of a connection that was accepted, as a machine that takes bytes: what a stranger can reach. */
#ifndef NB_COMM_DOOR_H
#define NB_COMM_DOOR_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NB_NONCE_BYTES = 32, NB_PROOF_BYTES = 32, NB_MAGIC_BYTES = 16, NB_HELLO_BYTES = NB_MAGIC_BYTES + NB_NONCE_BYTES };
extern const char nb_door_magic[NB_MAGIC_BYTES];

/* What a rank says of itself, once both have proved the secret. */
typedef struct nb_intro {
    uint32_t rank, n_rank;
    uint32_t port; /* where it listens; 0: it does not */
    char version[52];
} nb_intro;

typedef enum nb_door_at {
    NB_DOOR_HELLO, /* waits for magic and nonce; answers with its own */
    NB_DOOR_PROOF, /* waits for the other's proof; answers with its own, or zeros: refused */
    NB_DOOR_INTRO, /* waits for an nb_intro */
    NB_DOOR_IN,    /* intro is there */
    NB_DOOR_WRONG, /* the secret was another one */
    NB_DOOR_SHUT   /* no rank */
} nb_door_at;

typedef struct nb_door {
    nb_door_at at;
    unsigned char theirs[NB_NONCE_BYTES], own[NB_NONCE_BYTES];
    nb_intro intro;
    unsigned char in[sizeof(nb_intro)];
    size_t n_in;
} nb_door;

/* own: random bytes. */
void nb_door_open(nb_door *d, const unsigned char own[NB_NONCE_BYTES]);
size_t nb_door_wants(const nb_door *d); /* bytes that it takes next; 0: it has ended */
/* n <= nb_door_wants.  Returns the bytes of an answer. */
size_t nb_door_take(nb_door *d, const char *secret, const void *p, size_t n, unsigned char answer[NB_HELLO_BYTES]);

/* Of the side that has connected, or accepted. */
void nb_door_prove(const char *secret, bool accepted, const unsigned char connected_nonce[NB_NONCE_BYTES],
                   const unsigned char accepted_nonce[NB_NONCE_BYTES], unsigned char proof[NB_PROOF_BYTES]);
bool nb_door_same(const unsigned char a[NB_PROOF_BYTES], const unsigned char b[NB_PROOF_BYTES]);

#endif
