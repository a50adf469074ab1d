/* door.c - see door.h. */
#include "comm/door.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>

#include "base/status.h"

const char nb_door_magic[NB_MAGIC_BYTES] = "nibble ranks 1\n";

_Static_assert(sizeof(nb_intro) == 64 && (int)NB_HELLO_BYTES <= (int)sizeof(nb_intro), "a door has room for each");

void nb_door_open(nb_door *d, const unsigned char own[NB_NONCE_BYTES])
{
    *d = (nb_door){ .at = NB_DOOR_HELLO };
    memcpy(d->own, own, sizeof d->own);
}

static size_t length_of(const nb_door *d)
{
    switch (d->at) {
    case NB_DOOR_HELLO: return NB_HELLO_BYTES;
    case NB_DOOR_PROOF: return NB_PROOF_BYTES;
    case NB_DOOR_INTRO: return sizeof d->intro;
    default: return 0;
    }
}

size_t nb_door_wants(const nb_door *d)
{
    return length_of(d) - d->n_in;
}

/* The sides' texts differ, so that a proof that was overheard is not the other side's. */
void nb_door_prove(const char *secret, bool accepted, const unsigned char connected_nonce[NB_NONCE_BYTES],
                   const unsigned char accepted_nonce[NB_NONCE_BYTES], unsigned char proof[NB_PROOF_BYTES])
{
    static const char side[2][NB_MAGIC_BYTES] = { "has connected", "has accepted" };
    unsigned char text[NB_MAGIC_BYTES + 2 * NB_NONCE_BYTES];
    unsigned n = 0;
    memcpy(text, side[accepted], NB_MAGIC_BYTES);
    memcpy(text + NB_MAGIC_BYTES, connected_nonce, NB_NONCE_BYTES);
    memcpy(text + NB_MAGIC_BYTES + NB_NONCE_BYTES, accepted_nonce, NB_NONCE_BYTES);
    const bool ok = HMAC(EVP_sha256(), secret, (int)strlen(secret), text, sizeof text, proof, &n) != NULL;
    NB_ASSERT(ok && n == NB_PROOF_BYTES);
}

bool nb_door_same(const unsigned char a[NB_PROOF_BYTES], const unsigned char b[NB_PROOF_BYTES])
{
    return CRYPTO_memcmp(a, b, NB_PROOF_BYTES) == 0;
}

static size_t hello(nb_door *d, unsigned char *answer)
{
    if (memcmp(d->in, nb_door_magic, NB_MAGIC_BYTES) != 0) {
        d->at = NB_DOOR_SHUT;
        return 0;
    }
    memcpy(d->theirs, d->in + NB_MAGIC_BYTES, NB_NONCE_BYTES);
    memcpy(answer, nb_door_magic, NB_MAGIC_BYTES);
    memcpy(answer + NB_MAGIC_BYTES, d->own, NB_NONCE_BYTES);
    d->at = NB_DOOR_PROOF;
    return NB_HELLO_BYTES;
}

static size_t proof(nb_door *d, const char *secret, unsigned char *answer)
{
    unsigned char want[NB_PROOF_BYTES];
    nb_door_prove(secret, false, d->theirs, d->own, want);
    if (nb_door_same(want, d->in)) {
        nb_door_prove(secret, true, d->theirs, d->own, answer);
        d->at = NB_DOOR_INTRO;
    } else {
        memset(answer, 0, NB_PROOF_BYTES);
        d->at = NB_DOOR_WRONG;
    }
    return NB_PROOF_BYTES;
}

size_t nb_door_take(nb_door *d, const char *secret, const void *p, size_t n, unsigned char answer[NB_HELLO_BYTES])
{
    size_t n_answer = 0;
    NB_ASSERT(n <= nb_door_wants(d));
    memcpy(d->in + d->n_in, p, n);
    d->n_in += n;
    if (d->n_in < length_of(d)) return 0;
    d->n_in = 0;
    switch (d->at) {
    case NB_DOOR_HELLO: n_answer = hello(d, answer); break;
    case NB_DOOR_PROOF: n_answer = proof(d, secret, answer); break;
    default:
        memcpy(&d->intro, d->in, sizeof d->intro);
        d->at = memchr(d->intro.version, 0, sizeof d->intro.version) ? NB_DOOR_IN : NB_DOOR_SHUT;
    }
    return n_answer;
}
