/* cpu_dsa.h - sparse attention on the CPU (cpu_dsa.c): its workspace, and what it uses of dense attention. */
#ifndef NB_MODEL_CPU_DSA_H
#define NB_MODEL_CPU_DSA_H
#include "model/backend.h"

typedef struct nb_cpu nb_cpu;

typedef struct nb_cpu_sparse {
    /* [n_worker][gather_bytes]: pages made of chosen tokens; 0: the records do not allow it */
    unsigned char *gather;
    size_t gather_bytes;
} nb_cpu_sparse;

/* Parts of nb_cpu_attend, for attention that computes some rows in its own way: the first n_tok tokens of chunk i; whether
 * chunk i is a single token that reads the cached rows; and the end: what stays open, and chunks that have failed. */
void nb_cpu_attend_first(nb_cpu *f, const nb_pass *p, size_t i, size_t layer, size_t n_tok);
bool nb_cpu_is_decode(const nb_cpu *f, const nb_pass *p, size_t i, const nb_attn_config *attn);
void nb_cpu_close_chunks(nb_cpu *f, const nb_pass *p, size_t layer);

#endif
