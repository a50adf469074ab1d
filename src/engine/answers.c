/* answers.c - see answers.h. */
#include <string.h>

#include "engine/engine_internal.h"
#include "sched/sched_look.h"

enum {
    MAX_TEXT = 256,
    MAX_TOK = 1 << 20, /* 4 MiB */
    STEP_PART = 8      /* a chunk is this part of a step: an arriving request waits for it */
};

nb_status nb_engine_create_answers(nb_engine *e, const nb_engine_options *o, nb_error *err)
{
    if (!o->cache_answers || o->no_prefix_caching || e->n_shard > 1) return NB_OK;
    const size_t n_block = e->step.max_step_tok / STEP_PART / NB_BLOCK_TOK;
    const nb_refill_options ro = { .max_text = MAX_TEXT,
                                   .max_tok = e->step.max_model_len > MAX_TOK
                                                  ? e->step.max_model_len
                                                  : MAX_TOK,
                                   .chunk_tok = (n_block ? n_block : 1) * NB_BLOCK_TOK,
                                   .quiet_s = NB_REFILL_QUIET_MS / 1000.0 };
    return nb_refill_create(&ro, e->shard[0].sched, e->shard[0].cache, &e->answers.refill, err);
}

bool nb_engine_has_forms(const nb_engine *e)
{
    return nb_attn_any_latent(&e->model.c) ||
           (e->rank[0].device.kind->own_memory && nb_attn_any(&e->model.c, NB_ATTN_CSA));
}

nb_prompt_form nb_engine_prompt_form(const nb_engine *e, size_t n_prompt)
{
    const size_t sw = e->model.c.attn[0].rope.switch_tok;
    /* A token's form depends on what it is, never on the step it falls into: decisions/002.
     * Where there is one form only, all tokens have it. */
    size_t n_expanded = n_prompt;
    /* In Thrift mode generated tokens differ from a prompt's also where both are absorbed. */
    if (e->step.form == NB_FORM_ABSORBED && e->pages.thrift.kind == NB_THRIFT_OFF) n_expanded = 0;
    if (e->step.form == NB_FORM_EXPANDED || !nb_engine_has_forms(e))
        n_expanded = SIZE_MAX;
    /* longrope: the reference chooses the table for every forward call by its last position,
     * so a text that grows beyond the limit changes over; earlier keys stay as they are. */
    const size_t rope_from = !sw ? SIZE_MAX : n_prompt > sw ? 0 : sw;
    /* Units that the prompt fills, counted from its first token: what is found in the cache changes nothing. */
    const size_t unit = e->step.upload_tok, n_upload = unit && n_expanded ? n_prompt / unit * unit : 0;
    return (nb_prompt_form){ n_expanded, n_upload, rope_from };
}

void nb_answers_add(nb_engine *e, const nb_run *r)
{
    nb_sched_look_at v;
    /* A request that was cancelled or failed has nobody who would go on with it. */
    if (!e->answers.refill || r->st != NB_OK || r->sink || r->out.n_tokens == 0 ||
        strcmp(r->out.finish_reason, "cancelled") == 0 ||
        strcmp(r->out.finish_reason, "timeout") == 0)
        return;
    /* The last token was sampled, not computed; in a text that fills the context it is left out. */
    (void)nb_sched_push(nb_sched_of(e, r), r->id, r->out.tokens[r->out.n_tokens - 1]);
    if (!nb_sched_look(nb_sched_of(e, r), r->id, &v)) return;
    const nb_prompt_form form = nb_engine_prompt_form(e, v.n_known);
    const nb_refill_text t = { .tok = v.tok,
                               .n_tok = v.n_known,
                               .n_prompt = r->n_prompt,
                               .n_expanded = form.n_expanded,
                               .n_upload = form.n_upload,
                               .rope_from = form.rope_from,
                               .salt = nb_str_c(r->salt) };
    (void)nb_refill_add(e->answers.refill, &t); /* without memory it is dropped, and counted */
}

void nb_answers_yield(nb_engine *e, const nb_run *r, double now)
{
    if (!e->answers.refill) return;
    e->answers.t_busy = now;
    nb_refill_yield(e->answers.refill, r->prompt, r->n_prompt, nb_str_c(r->salt));
}

bool nb_answers_pending(const nb_engine *e)
{
    nb_refill_stats s;
    if (!e->answers.refill) return false;
    nb_refill_get_stats(e->answers.refill, &s);
    return s.n_text != 0;
}

void nb_answers_clear(nb_engine *e)
{
    if (e->answers.refill) nb_refill_clear(e->answers.refill);
}

void nb_answers_count(nb_engine *e)
{
    nb_refill_stats f;
    nb_engine_stats *c = &e->stats.count;
    if (!e->answers.refill) return;
    nb_refill_get_stats(e->answers.refill, &f);
    c->n_refill_waiting = f.n_text;
    c->refill_waiting_tok = f.n_waiting_tok;
    c->refill_tok = f.n_tok;
    c->n_refill_done = f.n_done;
    c->n_refill_dropped = f.n_dropped;
    if (!nb_refill_active(e->answers.refill)) return;
    c->n_block_once += c->n_block_held; /* anybody who needs them gets them */
    c->n_block_held = 0;
}
