/* cpu_csa.h - buffers of compressed attention on the CPU (cpu_csa.c), and its indexer (cpu_csa_index.c). */
#ifndef NB_MODEL_CPU_CSA_H
#define NB_MODEL_CPU_CSA_H
#include "model/attn_csa.h"
#include "model/cpu/cpu.h"

enum {
    NB_CSA_TILE = 16,    /* queries whose rows are chosen together */
    NB_CSA_INDEX_SEG = 2 /* the indexer's keys, behind a row's two segments */
};

/* One chunk in one layer. */
typedef struct nb_csa {
    nb_cpu_attn s;
    nb_csa_state at; /* places in the state */
    float *state;
    size_t n_row;      /* values of a row, in f->kv and in pages */
    size_t row_floats; /* of a page's rows in s.own */
} nb_csa;

/* Segment seg of compressed rows [w, w + n) as a query in page `page` reads them, decoded or as they were made:
 * out [n][stride]. */
void nb_csa_rows(const nb_csa *x, size_t page, size_t w, size_t n, size_t seg, float *out,
                 size_t stride);
/* Compressed rows that the query at pos may attend to. */
static inline size_t nb_csa_n_row(const nb_attn_config *a, size_t pos)
{
    return a->ratio ? (pos + 1) / a->ratio : 0;
}

/* Chooses rows for tokens [tok, tok + n) of the chunk, n <= NB_CSA_TILE: ascending, in f->csa.pick + i * max_top, as
 * many as f->csa.n_pick[i]. */
void nb_csa_choose(const nb_csa *x, size_t tok, size_t n);

#endif
