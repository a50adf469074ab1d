/* peak.h - what one core can do at a level: loops that only load, or only multiply and add.
 *
 * Not part of any model: `nibble bench kernel` measures them in the same run as the kernels, so
 * that a time can be told as a ratio to a floor of the same machine, minute and clock.  One row for
 * each level, best first; a NULL function means that the level adds no such instruction, and
 * that a row below has the best there is. */
#ifndef NB_KERNEL_PEAK_H
#define NB_KERNEL_PEAK_H
#include "kernel/kernel.h"

/* Loads every byte of p[0..n_bytes) once, in order; n_bytes is a multiple of NB_PEAK_READ.  The
 * result depends on all of them, so that no load can be left out. */
enum { NB_PEAK_READ = 512 };
typedef uint64_t nb_peak_read_fn(const void *p, size_t n_bytes);
/* Runs n_round rounds on registers and returns how many operations that were (a multiplication
 * and an addition are two); *sink gets something that depends on all of them. */
typedef double nb_peak_ops_fn(size_t n_round, float *sink);

nb_peak_read_fn nb_peak_read_c, nb_peak_read_avx2, nb_peak_read_avx512;
nb_peak_ops_fn nb_peak_f32_c, nb_peak_f32_avx2, nb_peak_f32_avx512;
/* Sums of products of BF16 pairs; of signed bytes (AVX2: of 16-bit integers, which is what products
 * of bytes are widened to there). */
nb_peak_ops_fn nb_peak_bf16_amx, nb_peak_int8_avx2, nb_peak_int8_avxvnni, nb_peak_int8_avx512, nb_peak_int8_amx;

typedef struct nb_peak_variant {
    const char *name;
    nb_space space;
    nb_caps need;
    nb_peak_read_fn *read;
    nb_peak_ops_fn *f32, *bf16, *int8;
} nb_peak_variant;
extern const nb_peak_variant nb_peak_variants[];
#endif
