/* remote_job.c - a job as bytes: a head, the chunks, then their blocks and tokens; or the rows of logits. */
#include <string.h>

#include "engine/remote.h"

typedef struct wire_head {
    uint64_t kind, n;
} wire_head;

typedef struct wire_chunk {
    uint64_t n_block, slot, n_tok, pos0;
    uint32_t flags, unused;
} wire_chunk;

enum { ROPE_LONG = 1, ABSORBED = 2, ALL_FLAGS = 3 };

static size_t most_blocks(const nb_job_limits *l)
{
    return l->max_pos / NB_PAGE_TOK + 2;
}

size_t nb_job_bytes(const nb_job_limits *l)
{
    const size_t step = l->max_chunk * (sizeof(wire_chunk) + most_blocks(l) * sizeof(uint32_t)) +
                        l->max_tok * sizeof(uint32_t),
                 rows = l->max_row * sizeof(uint64_t);
    return sizeof(wire_head) + (step > rows ? step : rows);
}

static unsigned char *put(unsigned char *at, const void *p, size_t n)
{
    if (n) memcpy(at, p, n);
    return at + n;
}

size_t nb_job_write_end(void *p)
{
    const wire_head h = { NB_JOB_END, 0 };
    memcpy(p, &h, sizeof h);
    return sizeof h;
}

size_t nb_job_write(const nb_rank_job *job, void *p)
{
    const wire_head h = { job->chunk ? NB_JOB_STEP : NB_JOB_LOGITS, job->n };
    unsigned char *at = put(p, &h, sizeof h);
    for (size_t i = 0; !job->chunk && i < job->n; i++) {
        const uint64_t place = job->tok[i];
        at = put(at, &place, sizeof place);
    }
    for (size_t i = 0; job->chunk && i < job->n; i++) {
        const nb_chunk *c = &job->chunk[i];
        const wire_chunk w = { c->n_block, c->slot, c->n_tok, c->pos0,
                               (c->rope_long ? ROPE_LONG : 0u) | (c->absorbed ? ABSORBED : 0u), 0 };
        NB_ASSERT(!c->thrift && !c->load && !c->save && !c->upload); /* refused with several ranks */
        at = put(at, &w, sizeof w);
    }
    for (size_t i = 0; job->chunk && i < job->n; i++) {
        at = put(at, job->chunk[i].block, job->chunk[i].n_block * sizeof *job->chunk[i].block);
        at = put(at, job->chunk[i].tok, job->chunk[i].n_tok * sizeof *job->chunk[i].tok);
    }
    return (size_t)(at - (unsigned char *)p);
}

static nb_status wrong(nb_error *err, const char *what, uint64_t value)
{
    return nb_fail(err, NB_ERR_FORMAT, "rank 0 has sent a job with a wrong %s (%llu)", what, (unsigned long long)value);
}

static nb_status take_chunk(const wire_chunk *w, const nb_job_limits *l, size_t *left_tok, nb_chunk *c, nb_error *err)
{
    if (w->n_tok == 0 || w->n_tok > *left_tok) return wrong(err, "number of tokens", w->n_tok);
    if (w->pos0 > l->max_pos || w->n_tok > l->max_pos - w->pos0) return wrong(err, "position", w->pos0);
    if (w->slot >= l->max_chunk) return wrong(err, "slot", w->slot);
    if (w->n_block > most_blocks(l) || w->n_block < (w->pos0 + w->n_tok) / NB_PAGE_TOK)
        return wrong(err, "number of blocks", w->n_block);
    if (w->flags & ~(uint32_t)ALL_FLAGS || (l->absorbed_only && !(w->flags & ABSORBED))) return wrong(err, "flag", w->flags);
    *left_tok -= (size_t)w->n_tok;
    *c = (nb_chunk){ .n_block = (size_t)w->n_block,
                     .slot = (size_t)w->slot,
                     .n_tok = (size_t)w->n_tok,
                     .pos0 = (size_t)w->pos0,
                     .rope_long = w->flags & ROPE_LONG,
                     .absorbed = w->flags & ABSORBED };
    return NB_OK;
}

/* n numbers below `end`; *p moves behind them. */
static nb_status take_ids(const unsigned char **p, size_t *left, size_t n, size_t end, const char *what,
                          const uint32_t **out, nb_error *err)
{
    const uint32_t *id = (const uint32_t *)(const void *)*p;
    if (n > *left / sizeof *id) return wrong(err, "length", *left);
    for (size_t i = 0; i < n; i++)
        if (id[i] >= end) return wrong(err, what, id[i]);
    *out = id;
    *p += n * sizeof *id;
    *left -= n * sizeof *id;
    return NB_OK;
}

static nb_status take_step(const unsigned char *p, size_t left, const nb_job_limits *l, nb_job_read *j, nb_error *err)
{
    size_t left_tok = l->max_tok;
    if (j->n == 0 || j->n > l->max_chunk || j->n > left / sizeof(wire_chunk)) return wrong(err, "number of chunks", j->n);
    for (size_t i = 0; i < j->n; i++) {
        wire_chunk w;
        memcpy(&w, p, sizeof w);
        NB_TRY(take_chunk(&w, l, &left_tok, &j->chunk[i], err));
        p += sizeof w;
        left -= sizeof w;
        for (size_t k = 0; k < i; k++)
            if (j->chunk[k].slot == j->chunk[i].slot) return wrong(err, "slot, twice", w.slot);
    }
    for (size_t i = 0; i < j->n; i++) {
        nb_chunk *c = &j->chunk[i];
        NB_TRY(take_ids(&p, &left, c->n_block, l->n_block, "block", &c->block, err));
        NB_TRY(take_ids(&p, &left, c->n_tok, l->n_vocab, "token", &c->tok, err));
    }
    return left ? wrong(err, "length", left) : NB_OK;
}

static nb_status take_rows(const unsigned char *p, size_t left, const nb_job_limits *l, nb_job_read *j, nb_error *err)
{
    if (j->n > l->max_row || left != j->n * sizeof(uint64_t)) return wrong(err, "number of rows", j->n);
    for (size_t i = 0; i < j->n; i++) {
        uint64_t place;
        memcpy(&place, p + i * sizeof place, sizeof place);
        if (place >= l->max_tok) return wrong(err, "row", place);
        j->tok[i] = (size_t)place;
    }
    return NB_OK;
}

nb_status nb_job_parse(const void *p, size_t n_bytes, const nb_job_limits *l, nb_job_read *out, nb_error *err)
{
    wire_head h;
    if (n_bytes < sizeof h) return wrong(err, "length", n_bytes);
    memcpy(&h, p, sizeof h);
    const unsigned char *at = (const unsigned char *)p + sizeof h;
    const size_t left = n_bytes - sizeof h;
    out->n = h.n <= SIZE_MAX / 16 ? (size_t)h.n : SIZE_MAX / 16;
    switch (h.kind) {
    case NB_JOB_END: out->kind = NB_JOB_END; return NB_OK;
    case NB_JOB_STEP: out->kind = NB_JOB_STEP; return take_step(at, left, l, out, err);
    case NB_JOB_LOGITS: out->kind = NB_JOB_LOGITS; return take_rows(at, left, l, out, err);
    default: return wrong(err, "kind", h.kind);
    }
}
