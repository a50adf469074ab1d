/* index_score_avx2.c - scores of an indexer: 16 heads x 6 tokens at a time. */
#include "kernel/x86/vec_avx2.h"

enum { LANE = 8, MANY = 6, SOME = 4 };
typedef __m256 v_float;
#define V(op) _mm256_##op
#define V_JOIN nb_avx2_join
#include "kernel/x86/index_score_tile.h"

void nb_index_score_avx2(const nb_index_score_args *a)
{
    score(a);
}
