/* cpu_context.h - ranks that divide the blocks of the cache (cpu_context.c, decision 070). */
#ifndef NB_MODEL_CPU_CONTEXT_H
#define NB_MODEL_CPU_CONTEXT_H
#include "model/cpu/cpu.h"

/* The bytes of a complete page; NULL: they are not here. */
unsigned char *nb_cpu_page_here(const nb_cpu_attn *s, size_t page);
/* Makes pages [first, first + n) readable on all ranks, n <= NB_WINDOW_PAGES; false: a rank has failed. */
bool nb_cpu_fetch(const nb_cpu_attn *s, size_t first, size_t n);
/* The rank with the complete pages of a split of the chunk's first token's context, or that is to compute it. */
size_t nb_cpu_split_rank(const nb_cpu_attn *s, size_t split);
/* States of a wave go to the ranks that have their heads: those of rank k are [first[k], first[k + 1]) of part_o,
 * and of part_m, where a state has a row m and a row l. */
bool nb_cpu_exchange_states(nb_cpu *f, size_t layer, const size_t *first);
/* Rows of `width` floats for each head of this rank become rows of all heads. */
bool nb_cpu_gather_heads(nb_cpu *f, size_t layer, size_t n_row, float *own, size_t width, float *all);

#endif
