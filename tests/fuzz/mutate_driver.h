/* mutate_driver.h - damages fuzz inputs: the poor man's libFuzzer, for every compiler. */
#ifndef NB_TESTS_MUTATE_DRIVER_H
#define NB_TESTS_MUTATE_DRIVER_H
#include <stddef.h>
#include <stdint.h>

typedef struct nb_fuzz_input {
    char *path;    /* owned */
    uint8_t *data; /* owned, [n_bytes] */
    size_t n_bytes;
} nb_fuzz_input;

/* Writes mutation number `index` of run `seed` into out[0..cap) and returns its length in bytes.
 * The result depends on nothing but (seed, index, corpus), so that any one can be made again. */
size_t nb_fuzz_mutate(uint64_t seed, uint64_t index, const nb_fuzz_input *corpus, size_t n_corpus,
                      uint8_t *out, size_t cap);

#endif
