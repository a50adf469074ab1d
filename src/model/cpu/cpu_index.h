/* cpu_index.h - the indexer of sparse and of compressed attention on the CPU (cpu_index.c): its workspace, and the choice. */
#ifndef NB_MODEL_CPU_INDEX_H
#define NB_MODEL_CPU_INDEX_H
#include "model/backend.h"

typedef struct nb_cpu nb_cpu;
typedef struct nb_cpu_attn nb_cpu_attn;

enum {
    NB_INDEX_QUERY = 16, /* rows whose scores are in hand */
    NB_INDEX_SEG = 2     /* an indexer's keys, behind a row's two segments */
};

typedef struct nb_cpu_index {
    /* of the layer in hand: [max_tok][index_head * index_dim], [max_tok][index_head] */
    float *q, *w;
    float *pack;      /* [NB_INDEX_QUERY] packed queries */
    float *score;     /* [NB_INDEX_QUERY][stride] */
    uint32_t *chosen; /* [max_tok][index_topk], ascending, until the next layer with an indexer */
    size_t stride;    /* keys of the longest sequence, in whole 64; 0: none has more than index_topk */
} nb_cpu_index;

/* A row that chooses: its chunk, its token there, its place in the step. */
typedef struct nb_index_row {
    size_t chunk, tok, at;
} nb_index_row;

/* Keys [k0, k0 + n) as rows in page `page` of the chunk see them, n <= 64 and k0 a multiple of 64: [n][*stride].  They
 * may be in the worker's page, f->w_page. */
typedef const float *nb_index_keys_fn(const nb_cpu_attn *s, size_t page, size_t k0, size_t n, size_t worker,
                                      size_t *stride);

/* Keys that a row at this position sees: tokens, or rows of `ratio` tokens. */
static inline size_t nb_index_n_key(const nb_attn_config *a, size_t pos)
{
    return (pos + 1) / (a->ratio ? a->ratio : 1);
}
/* How many of the chunk's first tokens see all keys that there are, at most index_topk. */
size_t nb_index_n_dense(const nb_attn_config *a, const nb_chunk *c);
/* The next row after *r that sees more, in order of the pass; false: there is none.  Begin with chunk 0, tok SIZE_MAX. */
bool nb_index_next(const nb_cpu *f, const nb_pass *p, const nb_attn_config *a, nb_index_row *r);
uint32_t *nb_index_chosen(const nb_cpu *f, const nb_attn_config *a, const nb_index_row *r);
/* Chooses for all these rows: the index_topk largest scores, of equal ones the earlier. */
void nb_index_choose(nb_cpu *f, const nb_pass *p, size_t layer, nb_index_keys_fn *keys);

#endif
