/* kda_avx2.c - kda in blocks of 32 columns. */
#include "kernel/x86/vec_avx2.h"

enum { LANE = 8, VEC = 4 };
typedef __m256 v_float;
typedef __m256i v_mask;
#define V(op) _mm256_##op
#define V_LOAD_SOME(p, m) _mm256_maskload_ps(p, m)
#define V_STORE_SOME(p, m, x) _mm256_maskstore_ps(p, m, x)
#define V_MASK(n) nb_avx2_mask(n)
#define NAME nb_kda_avx2
#include "kernel/x86/kda_columns.h"
