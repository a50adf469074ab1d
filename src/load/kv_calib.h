/* kv_calib.h - the calibration file: what was measured of a model's cache, and what was chosen.
 *
 * JSON, version 1 (docs/eval.md has the fields).  Written by `nibble calibrate`, read at
 * load; unknown versions, other models' hashes, wrong lengths and numbers that are not finite
 * are refused with one line.  Limits: 64 MiB, depth 8.
 *
 * The transform of a layer's latent c (MLA):  c' = H P D (c - mean), with
 *   D = diag(2^scale_log2), (P x)[i] = x[perm[i]], H: Walsh-Hadamard of blocks of `hadamard`
 *   values, times 1/sqrt(block), Sylvester order.
 * A part that is off is the identity.  equalize is D and P together. */
#ifndef NB_LOAD_KV_CALIB_H
#define NB_LOAD_KV_CALIB_H
#include "base/arena.h"
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "num/record.h"

enum { NB_KV_CALIB_VERSION = 1, NB_KV_SCALE_LOG2_MAX = 6 }; /* D between 1/64 and 64 */

/* The ways to keep a rope key that are measured beside each other: its format, and whether its
 * four largest pairs stay in BF16. */
enum { NB_ROPE_WAYS = 5, NB_ROPE_PAIRS = 4 };
typedef struct nb_rope_way {
    const char *name; /* in the file */
    nb_rope_fmt fmt;
    size_t n_pair;
} nb_rope_way;
extern const nb_rope_way nb_rope_ways[NB_ROPE_WAYS];

typedef struct nb_kv_calib_layer {
    /* measured: of the values of segment 0 (MLA: the latent; GQA: K), in the model's own domain */
    size_t n_values;
    const float *mean, *sd, *amax;     /* [n_values] */
    float token_amax;                  /* largest |value| of a token */
    size_t n_pair;                     /* MLA: pairs of the rope key */
    const float *pair_max, *pair_mean; /* [n_pair] radii */
    /* for the transform */
    const int8_t *scale_log2; /* [n_values], |.| <= NB_KV_SCALE_LOG2_MAX; MLA */
    const uint16_t *perm;     /* [n_values], a permutation; MLA               */
    size_t hadamard;          /* block, a power of two that divides n_values; 0: none possible */
    /* chosen */
    bool use_center, use_equalize, use_hadamard;
    char kv_dtype[16], kv_mode[16]; /* "": as the command line says */
    size_t n_outlier;               /* of the 4-bit segment */
    /* MLA: the rope key's format, and its values that are kept in BF16: whole pairs as the model
     * rotates them, ascending places in the key */
    nb_rope_fmt rope;
    size_t n_rope_outlier;
    uint16_t rope_outlier[NB_MAX_OUTLIER];
    /* measured on held-out tokens with the choice, and with the plain record: relative error of
     * the attention output; bits per value of the chosen record */
    double error, plain_error, bits;
    double rope_error[NB_ROPE_WAYS]; /* MLA: of the plain record with the rope key in each way */
} nb_kv_calib_layer;

typedef struct nb_kv_calib {
    char model_hash[65];
    char family[32];
    bool is_mla;
    size_t n_layer;
    uint64_t n_tok; /* calibration tokens */
    double target_bits, mean_bits;
    nb_kv_calib_layer *layer; /* [n_layer] */
    nb_arena arena;           /* owns everything; empty for one that is only written */
} nb_kv_calib;

nb_status nb_kv_calib_read(const char *path, nb_kv_calib *out, nb_error *err);
/* From memory (tests, fuzzing); name stands in the error lines. */
nb_status nb_kv_calib_parse(const char *json, size_t n_bytes, const char *name, nb_kv_calib *out,
                            nb_error *err);
nb_status nb_kv_calib_write(const nb_kv_calib *c, const char *path, nb_error *err);
void nb_kv_calib_deinit(nb_kv_calib *c);

/* The n channels of segment 0 with the largest root mean square in the transformed domain
 * (without Hadamard), ascending places in it. */
void nb_kv_calib_outliers(const nb_kv_calib_layer *l, bool center, bool equalize, size_t n,
                          uint16_t *out);

#endif
