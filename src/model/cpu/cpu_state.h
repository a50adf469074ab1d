/* cpu_state.h - layers that keep a state per sequence, on the CPU: where it is, and when it is copied. */
#ifndef NB_MODEL_CPU_STATE_H
#define NB_MODEL_CPU_STATE_H
#include "model/cpu/cpu.h"

size_t nb_cpu_kda_scratch(const nb_attn_config *a); /* bytes of a worker */
/* A layer's state in the slot of a chunk. */
static inline float *nb_cpu_state(const nb_cpu *f, const nb_chunk *c, size_t layer)
{
    const nb_kv_pool *kv = &f->r.pool;
    return kv->tail + c->slot * kv->tail_floats + kv->state0 + kv->state_off[layer];
}
/* Before the layers: states of new sequences are zeros, those of chunks that name a snapshot come from it.
 * Afterwards: snapshots of chunks that name one; not of bad chunks. */
void nb_cpu_states_begin(nb_cpu *f, const nb_pass *p);
void nb_cpu_states_end(nb_cpu *f, const nb_pass *p);

/* A chunk with a value that cannot be stored goes on as zeros, so that what follows stays finite (cpu_attn.c). */
void nb_cpu_blank_chunk(nb_cpu *f, const nb_pass *p, size_t i, size_t layer);

#endif
