/* remote.c - see remote.h: how processes meet, what must be alike in them, and what a follower does. */
#include "engine/remote.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "comm/comm_tcp.h"
#include "comm/rendezvous.h"
#include "engine/engine_internal.h"
#include "model/fold.h"
#include "os/clock.h"

#define WAIT_S 600.0 /* for all to come, and for all to have loaded */
#define END_S 2.0

nb_status nb_remote_check(const nb_engine_options *o, size_t n_tensor, size_t n_data, nb_error *err)
{
    if (o->n_node <= 1) return NB_OK;
    if (o->node_rank >= o->n_node)
        return nb_fail(err, NB_ERR_RANGE, "--node-rank %zu: expected 0 to %zu with --nnodes %zu", o->node_rank,
                       o->n_node - 1, o->n_node);
    if (n_data > 1)
        return nb_fail(err, NB_ERR_UNSUPPORTED, "--nnodes %zu with --data-parallel-size %zu: data-parallel ranks are in "
                       "one process", o->n_node, n_data);
    if (n_tensor != o->n_node)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "--nnodes %zu with --tensor-parallel-size %zu: each process has one rank, so the two must be equal",
                       o->n_node, n_tensor);
    if (!o->master_addr || !o->master_port)
        return nb_fail(err, NB_ERR_ARG, "--nnodes %zu needs --master-addr and --master-port: where rank 0 listens",
                       o->n_node);
    return NB_OK;
}

nb_status nb_remote_pretend(nb_engine *e, const nb_engine_options *o, nb_error *err)
{
    nb_comm *c[NB_ENGINE_MAX_RANK];
    if (!e->ranks.apart) return NB_OK;
    NB_TRY(nb_comm_create(e->ranks.n_all, WAIT_S, false, c, err));
    for (size_t k = 0; k < e->ranks.n_all; k++)
        if (k != o->node_rank) nb_comm_destroy(c[k]);
    e->ranks.seat[0].comm = e->ranks.seat[0].tensor = c[o->node_rank];
    return NB_OK;
}

static void on_note(void *engine, const char *line)
{
    const nb_engine *e = engine;
    if (e->news.fn) e->news.fn(e->news.ctx, false, line);
}

nb_status nb_remote_meet(nb_engine *e, const nb_engine_options *o, nb_error *err)
{
    int link[NB_COMM_MAX_RANK];
    const nb_rendezvous r = { .n_rank = o->n_node,
                              .rank = o->node_rank,
                              .host = o->master_addr,
                              .port = o->master_port,
                              .secret = o->rendezvous_secret,
                              .version = nb_version(),
                              .limit_s = o->rendezvous_s > 0 ? o->rendezvous_s : WAIT_S,
                              .note = on_note,
                              .note_ctx = e };
    if (!e->ranks.apart) return NB_OK;
    if (o->progress) o->progress(o->progress_ctx, "waiting for the other ranks", 0, 0);
    NB_TRY(nb_rendezvous_meet(&r, link, err));
    NB_TRY(nb_comm_create_tcp(r.n_rank, r.rank, link, r.limit_s, &e->ranks.seat[0].comm, err));
    e->ranks.seat[0].tensor = e->ranks.seat[0].comm;
    return NB_OK;
}

/* ---- what must be alike ---- */

enum { FACT_BYTES = 448 };
typedef enum fact { MODEL, RECORD, NUMBERS, KERNELS, SIZES, N_FACT } fact;
static const struct {
    const char *what, *hint;
} fact_row[N_FACT] = {
    [MODEL] = { "model", "the same checkpoint and --weight-dtype are needed" },
    [RECORD] = { "KV cache record", "the same --kv-cache options are needed" },
    [NUMBERS] = { "forms of numbers", "the same --activation-dtype and --mla are needed" },
    [KERNELS] = { "kernels", "other instruction sets round differently; --cpu-caps LEVEL makes processors alike, --tune off measurements" },
    [SIZES] = { "sizes", "the same --kv-cache-memory-bytes, --max-model-len, --max-num-seqs and --max-num-batched-tokens are needed" },
};
typedef struct facts {
    char text[N_FACT][FACT_BYTES];
} facts;

static uint64_t hash_of_records(const nb_engine *e)
{
    uint64_t h = e->pages.n_sink;
    for (size_t i = 0; i < e->model.c.n_layer; i++) {
        const nb_record *r = &e->pages.record[i];
        const uint64_t v[] = { (uint64_t)r->type, r->n_values, r->n_row, e->pages.layer_off[i + 1] };
        h = nb_hash_bytes(v, sizeof v, h);
    }
    return h;
}

static nb_status fill_facts(const nb_engine *e, facts *f, nb_error *err)
{
    char digest[65];
    uint64_t acts = 0;
    NB_TRY(nb_model_hash(&e->model, digest, err));
    (void)snprintf(f->text[MODEL], FACT_BYTES, "%s %s", e->model.c.family, digest);
    (void)snprintf(f->text[RECORD], FACT_BYTES, "%s, %zu bytes a block, transform %s, layers %016llx", e->pages.kv_dtype,
                   e->pages.block_bytes, e->kvo.transform_text, (unsigned long long)hash_of_records(e));
    acts = nb_hash_bytes(e->acts.of, sizeof e->acts.of, 0);
    (void)snprintf(f->text[NUMBERS], FACT_BYTES, "weights %s, activations %08llx, form %d", e->stats.weights,
                   (unsigned long long)(acts & 0xffffffff), (int)e->step.form);
    (void)snprintf(f->text[KERNELS], FACT_BYTES, "%s measured=%08llx", e->stats.kernels,
                   (unsigned long long)(nb_hash_bytes(&e->levels, sizeof e->levels, 0) & 0xffffffff));
    (void)snprintf(f->text[SIZES], FACT_BYTES, "%zu blocks, context of %zu, steps of %zu requests and %zu tokens",
                   e->pages.n_block, e->step.max_model_len, e->step.max_num_seqs, e->step.max_step_tok);
    return NB_OK;
}

/* Where two texts begin to differ, from the word on. */
static size_t differ_at(const char *a, const char *b)
{
    size_t i = 0, word = 0;
    for (; a[i] && a[i] == b[i]; i++)
        if (a[i] == ' ') word = i + 1;
    return word;
}

nb_status nb_remote_compare(nb_engine *e, nb_error *err)
{
    nb_comm *c = e->ranks.seat[0].comm;
    nb_comm_block recv[NB_ENGINE_MAX_RANK];
    if (!e->ranks.apart) return NB_OK;
    facts *all = calloc(e->ranks.n_all, sizeof *all), *own = calloc(1, sizeof *own);
    nb_status st = all && own ? fill_facts(e, own, err) : nb_fail(err, NB_ERR_NOMEM, "out of memory");
    const nb_comm_block send = { own, 1, sizeof *own, sizeof *own };
    for (size_t k = 0; k < e->ranks.n_all; k++) recv[k] = (nb_comm_block){ &all[k], 1, sizeof *all, sizeof *all };
    if (st == NB_OK) st = nb_comm_gather(c, &send, recv, err);
    for (size_t k = 1; k < e->ranks.n_all && st == NB_OK; k++)
        for (size_t i = 0; i < N_FACT && st == NB_OK; i++) {
            const char *a = all[k].text[i], *b = all[0].text[i];
            all[k].text[i][FACT_BYTES - 1] = all[0].text[i][FACT_BYTES - 1] = 0;
            if (!strcmp(a, b)) continue;
            const size_t at = differ_at(a, b);
            st = nb_fail(err, NB_ERR_FAILED, "rank %zu does not fit rank 0: its %s: %.100s; rank 0's: %.100s (%s)", k,
                         fact_row[i].what, a + at, b + at, fact_row[i].hint);
        }
    free(all);
    free(own);
    if (st == NB_OK) nb_comm_set_limit(c, nb_ranks_limit_s());
    return st;
}

/* ---- rank 0 ---- */

nb_status nb_remote_tell(nb_ranks *r, const nb_rank_job *job, nb_error *err)
{
    return nb_comm_tell(r->seat[0].comm, r->message, nb_job_write(job, r->message), err);
}

void nb_remote_end(nb_ranks *r, const char *why)
{
    nb_comm *c = r->seat[0].comm;
    if (!r->apart || !c) return;
    if (why) {
        nb_comm_fail(c, nb_comm_rank(c), why);
    } else if (nb_comm_rank(c) == 0 && r->message) {
        nb_comm_set_limit(c, END_S);
        (void)nb_comm_tell(c, r->message, nb_job_write_end(r->message), NULL);
    }
}

/* ---- the others ---- */

static nb_job_limits limits_of(const nb_engine *e)
{
    return (nb_job_limits){ .max_chunk = e->step.max_num_seqs,
                            .max_tok = e->step.max_step_tok,
                            .max_row = e->step.max_row,
                            .max_pos = e->step.max_model_len,
                            .n_block = e->pages.n_block,
                            .n_vocab = e->model.c.n_vocab,
                            .absorbed_only = e->step.form == NB_FORM_ABSORBED };
}

nb_status nb_remote_allocate(nb_engine *e, nb_error *err)
{
    const nb_job_limits l = limits_of(e);
    if (!e->ranks.apart) return NB_OK;
    e->ranks.message = malloc(nb_job_bytes(&l));
    return e->ranks.message ? NB_OK : nb_fail(err, NB_ERR_NOMEM, "out of memory for the messages of ranks");
}

static nb_status compute(nb_engine *e, const nb_job_read *j, nb_error *err)
{
    nb_rank *r = e->rank[0].rank;
    if (j->kind == NB_JOB_LOGITS) return nb_rank_logits(r, j->tok, j->n, e->step.logits, err);
    const nb_status st = nb_rank_step(r, j->chunk, j->n, NULL, err);
    return st == NB_ERR_NONFINITE ? NB_OK : st; /* rank 0 has seen the same, and ends the request */
}

nb_status nb_engine_follow(nb_engine *e, nb_error *err)
{
    const nb_job_limits l = limits_of(e);
    nb_job_read j = { .chunk = e->step.chunk, .tok = e->step.place };
    nb_error why = { 0 };
    const char *replaced;
    nb_status st = NB_OK;
    if (!e->ranks.apart || e->ranks.first == 0)
        return nb_fail(err, NB_ERR_ARG, "rank 0 follows nobody");
    nb_dev_enter(e->dev);
    while (st == NB_OK) {
        size_t n = nb_job_bytes(&l);
        st = nb_comm_hear(e->ranks.seat[0].comm, e->ranks.message, &n, &why);
        if (st == NB_OK) st = nb_job_parse(e->ranks.message, n, &l, &j, &why);
        if (st == NB_OK && j.kind == NB_JOB_END) return NB_OK;
        if (st == NB_OK) st = compute(e, &j, &why);
        if (st == NB_OK) st = nb_watch_reads(&e->step.watch, &why);
        if (st == NB_OK) st = nb_watch_files(&e->step.watch, nb_clock_s(), &replaced, &why);
    }
    nb_remote_end(&e->ranks, why.msg);
    return nb_fail(err, st, "%s", why.msg);
}
