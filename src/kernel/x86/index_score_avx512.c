/* index_score_avx512.c - scores of an indexer: 32 heads x 8 tokens at a time. */
#include "kernel/x86/vec_avx512.h"

enum { LANE = 16, MANY = 8, SOME = 4 };
typedef __m512 v_float;
#define V(op) _mm512_##op
#define V_JOIN nb_avx512_join
#include "kernel/x86/index_score_tile.h"

void nb_index_score_avx512(const nb_index_score_args *a)
{
    score(a);
}
