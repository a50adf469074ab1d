/* hash.h - a 64-bit hash of bytes for in-memory tables (not for files, not
 * against an adversary who knows the seed: callers bound their chains). */
#ifndef NB_BASE_HASH_H
#define NB_BASE_HASH_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/rng.h"

static inline uint64_t nb_hash_bytes(const void *p, size_t n_bytes, uint64_t seed)
{
    const unsigned char *s = p;
    uint64_t h = seed ^ (n_bytes * 0x9e3779b97f4a7c15u), w;
    for (; n_bytes >= 8; n_bytes -= 8, s += 8) {
        memcpy(&w, s, 8);
        h = nb_mix64(h ^ w);
    }
    if (n_bytes) {
        w = 0;
        memcpy(&w, s, n_bytes);
        h = nb_mix64(h ^ w);
    }
    return h;
}

#endif
