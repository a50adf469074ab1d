/* caps.h - instruction-set levels as bits.  A level is a written set of
 * features, not one CPUID flag; os/cpu.h detects them, kernels name what they
 * need, and --cpu-caps masks them down. */
#ifndef NB_BASE_CAPS_H
#define NB_BASE_CAPS_H
#include <stdint.h>

typedef uint32_t nb_caps;
enum {
    NB_CAP_AVX2 = 1u << 0,       /* AVX2, FMA, F16C, BMI1/2, with OS support for YMM            */
    NB_CAP_AVX512 = 1u << 1,     /* + AVX-512 F, BW, DQ, VL, VNNI, with OS support for ZMM      */
    NB_CAP_AMX = 1u << 2,        /* + AMX-TILE, -INT8, -BF16, with the kernel's permission      */
    NB_CAP_NEON = 1u << 3,       /* AArch64 NEON with dot products                              */
    NB_CAP_AVX512BF16 = 1u << 4, /* AVX512 + AVX512-BF16, -VBMI, -VBMI2; AMX stands above it   */
    NB_CAP_AVXVNNI = 1u << 5,    /* AVX2 + AVX-VNNI: byte products of 256 bits without AVX-512     */
    NB_CAP_SM80 = 1u << 16,      /* CUDA compute capability >= 8.0                              */
    NB_CAP_SM90 = 1u << 17       /* CUDA compute capability 9.0 (Hopper instructions)           */
};
#define NB_CAPS_ALL 0xffffffffu

#endif
