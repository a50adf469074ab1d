/* cpu_parts.h - parts of the CPU backend with files of their own: the residual (cpu_streams.c), the buffers of
 * compressed attention (cpu_csa.c), and what several files need of others. */
#ifndef NB_MODEL_CPU_PARTS_H
#define NB_MODEL_CPU_PARTS_H
#include "model/backend.h"

typedef struct nb_cpu nb_cpu;

/* A page that a step writes to: page i of a chunk's pages. */
typedef struct nb_cpu_page {
    uint32_t chunk, i;
} nb_cpu_page;

/* What ranks that divide the blocks of the cache have of each other (cpu_context.c).  Chunks of several tokens get pages,
 * a window of the context at a time; single tokens get queries, and the states of splits. */
enum { NB_WINDOW_PAGES = 64 };
typedef struct nb_cpu_context {
    unsigned char *page;           /* [NB_WINDOW_PAGES] those of rank 0 first, stride bytes apart */
    size_t stride, first, n;       /* the window is pages [first, first + n) of a context */
    uint8_t slot[NB_WINDOW_PAGES]; /* where they are */
    float *q;                      /* [NB_DECODE_MAX] absorbed queries of all heads */
    bool lost; /* a rank has failed, for good: nothing more is computed */
} nb_cpu_context;

/* Compressed attention (cpu_csa.c). */
typedef struct nb_cpu_csa {
    float *comp, *icomp; /* [max_tok][2][width]: kv and gate of rows, and of the indexer's keys */
    float *ones;            /* [max_dim]: weights of a norm that has none */
    float *w_row, *w_state; /* per worker: rows [64][max_dim]; a query's state, max_state floats */
    unsigned char *bad;     /* [max_seq] */
    size_t max_dim, max_state;
} nb_cpu_csa;

/* How branches are added, and what the next sublayer reads (backend.h: add_norm); last: token tok's normalised row for
 * the head, y [hidden]. */
typedef struct nb_cpu_residual {
    void (*add_norm)(nb_rank *r, nb_pass *p, size_t layer, nb_norm_at at);
    void (*last)(nb_cpu *f, size_t tok, float *y);
} nb_cpu_residual;
const nb_cpu_residual *nb_cpu_residual_of(const nb_model_config *c);
/* Floats of a token in nb_cpu.h: of all its streams. */
static inline size_t nb_cpu_stream_width(const nb_model_config *c)
{
    return (c->n_stream ? c->n_stream : 1) * c->hidden;
}

/* The hidden state of a chunk becomes zeros: one with a value that cannot be stored. */
void nb_cpu_blank(nb_cpu *f, const nb_pass *p, size_t i);
/* Where the parts of n columns begin, of the ranks that compute the same tokens, and the end (cpu_meet.c). */
void nb_cpu_cuts(const nb_cpu *f, size_t n, size_t first[NB_COMM_MAX_RANK + 1]);
/* Cosines and sines of one position: row[rope.dim]. */
void nb_cpu_rotary_row(const nb_rope_config *r, bool rope_long, size_t pos, float *row);

#endif
