/* number.h - the types of numbers that stand in a cache page or a weight matrix: codes, scales and values.
 *
 * The traits of record formats (traits.h) name their codes and scales by these. */
#ifndef NB_NUM_NUMBER_H
#define NB_NUM_NUMBER_H
#include <stdbool.h>
#include <stddef.h>

typedef enum nb_num {
    NB_NUM_NONE, /* there is no such number */
    NB_NUM_F32,
    NB_NUM_BF16,
    NB_NUM_F16,
    NB_NUM_E4M3,
    NB_NUM_UE8M0,
    NB_NUM_INT8,
    NB_NUM_4BIT /* half a byte, the even one of a pair in the low bits; the format says what it means */
} nb_num;

/* 0 for NB_NUM_NONE. */
unsigned nb_num_bits(nb_num t);
/* Bytes of n numbers in a row: half a byte at the end is a whole one. */
size_t nb_num_bytes(nb_num t, size_t n);

/* Number i of an array, exactly; little-endian, no alignment needed.  A 4-bit code: 0..15. */
float nb_num_get(nb_num t, const void *p, size_t i);

#endif
