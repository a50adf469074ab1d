/* kda_avx512.c - kda in blocks of 64 columns. */
#include "kernel/x86/vec_avx512.h"

enum { LANE = 16, VEC = 4 };
typedef __m512 v_float;
typedef __mmask16 v_mask;
#define V(op) _mm512_##op
#define V_LOAD_SOME(p, m) _mm512_maskz_loadu_ps(m, p)
#define V_STORE_SOME(p, m, x) _mm512_mask_storeu_ps(p, m, x)
#define V_MASK(n) nb_avx512_mask16(n)
#define NAME nb_kda_avx512
#include "kernel/x86/kda_columns.h"
