/* cpu_state.c - states per sequence: where they come from before a step, and their snapshots after it. */
#include <string.h>

#include "model/cpu/cpu_state.h"

enum { PIECE = 1 << 16 }; /* floats of a task */

typedef struct move {
    nb_cpu *f;
    const nb_pass *p;
    size_t n_piece; /* of a sequence's states */
    bool end;
} move;

static void move_piece(void *ctx, size_t task, size_t worker)
{
    const move *m = ctx;
    const nb_kv_pool *kv = &m->f->r.pool;
    const size_t i = task / m->n_piece, at = task % m->n_piece * PIECE;
    const size_t left = kv->state_floats - at, n = left < PIECE ? left : PIECE;
    const nb_chunk *c = &m->p->chunk[i];
    const uint32_t which = m->end ? c->save : c->load;
    float *state = kv->tail + c->slot * kv->tail_floats + kv->state0 + at;
    float *snap = which ? kv->snap + (which - 1) * kv->state_floats + at : NULL;
    (void)worker;
    if (m->end && snap && !m->f->chunk_bad[i]) memcpy(snap, state, n * sizeof *snap);
    if (!m->end && snap) memcpy(state, snap, n * sizeof *snap);
    if (!m->end && !snap && c->pos0 == 0) memset(state, 0, n * sizeof *state);
}

static void run(nb_cpu *f, const nb_pass *p, bool end)
{
    move m = { f, p, (f->r.pool.state_floats + PIECE - 1) / PIECE, end };
    bool any = false;
    for (size_t i = 0; i < p->n_chunk; i++)
        any |= end ? p->chunk[i].save : p->chunk[i].load || p->chunk[i].pos0 == 0;
    if (any && m.n_piece) nb_dev_run(f->r.o.dev, move_piece, &m, p->n_chunk * m.n_piece);
}

void nb_cpu_states_begin(nb_cpu *f, const nb_pass *p)
{
    run(f, p, false);
}

void nb_cpu_states_end(nb_cpu *f, const nb_pass *p)
{
    run(f, p, true);
}
