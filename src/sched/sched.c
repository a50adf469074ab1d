/* sched.c - see sched.h; requests, queues and what the outside tells.  Plans are in
 * sched_plan.c.
 *
 * Waiting requests are queued per level; the level to admit from is found by comparing the heads.
 * Deferred ones are in a list of their own and join their queue by order of arrival.
 * Everything a plan needs is allocated by create, add and push. */
#include <math.h>
#include <stdlib.h>

#include "base/hash.h"
#include "sched/sched_internal.h"

/* ---- lists ---- */

void nb_req_list_insert(nb_req_list *l, nb_req *r, nb_req *before)
{
    r->queue_next = before;
    r->queue_prev = before ? before->queue_prev : l->tail;
    if (r->queue_prev) {
        r->queue_prev->queue_next = r;
    } else {
        l->head = r;
    }
    if (before) {
        before->queue_prev = r;
    } else {
        l->tail = r;
    }
    l->n++;
}

void nb_req_list_append(nb_req_list *l, nb_req *r)
{
    nb_req_list_insert(l, r, NULL);
}

void nb_req_list_remove(nb_req_list *l, nb_req *r)
{
    if (r->queue_prev) {
        r->queue_prev->queue_next = r->queue_next;
    } else {
        l->head = r->queue_next;
    }
    if (r->queue_next) {
        r->queue_next->queue_prev = r->queue_prev;
    } else {
        l->tail = r->queue_prev;
    }
    r->queue_prev = r->queue_next = NULL;
    l->n--;
}

static nb_req_class *find_class(nb_sched *s, int32_t level)
{
    size_t i = 0;
    while (i < s->n_cls && s->cls[i].level != level) i++;
    if (i == s->n_cls) { /* there is room: cap_cls >= n_req */
        s->cls[i] = (nb_req_class){ .level = level };
        s->n_cls++;
    }
    return &s->cls[i];
}

void nb_sched_enqueue(nb_sched *s, nb_req *r, bool head, double now)
{
    nb_req_list *q = &find_class(s, r->level)->queue;
    nb_req *before = head ? q->head : NULL;
    if (!head) { /* after those a preemption brought back, else by arrival */
        nb_req *prev = q->tail;
        while (prev && !prev->n_preempted && prev->seq > r->seq) {
            before = prev;
            prev = prev->queue_prev;
        }
    }
    r->state = NB_REQ_QUEUED;
    r->since = now;
    r->retry_at = 0;
    nb_req_list_insert(q, r, before);
    s->n_queued++;
}

void nb_sched_dequeue(nb_sched *s, nb_req *r)
{
    nb_req_class *c = find_class(s, r->level);
    nb_req_list_remove(&c->queue, r);
    if (!c->queue.n) *c = s->cls[--s->n_cls];
    s->n_queued--;
}

/* ---- ids ---- */

static size_t bucket_of(const nb_sched *s, uint64_t id)
{
    return (size_t)nb_mix64(id) & s->bucket_mask;
}

nb_req *nb_sched_find_req(const nb_sched *s, uint64_t id)
{
    nb_req *r = s->bucket[bucket_of(s, id)];
    while (r && r->r.id != id) r = r->chain;
    return r;
}

/* One more request will fit into the table of ids and into the classes. */
static nb_status grow_tables(nb_sched *s)
{
    NB_TRY(NB_GROW(s->cls, s->cap_cls, s->n_req));
    if (s->n_req <= s->bucket_mask) return NB_OK;
    if (s->bucket_mask >= SIZE_MAX / 4 / sizeof(nb_req *)) return NB_ERR_NOMEM;
    const size_t n = 2 * (s->bucket_mask + 1);
    nb_req **bucket = calloc(n, sizeof *bucket);
    if (!bucket) return NB_ERR_NOMEM;
    free(s->bucket);
    s->bucket = bucket;
    s->bucket_mask = n - 1;
    for (nb_req *r = s->all_head; r; r = r->all_next) {
        nb_req **head = &bucket[bucket_of(s, r->r.id)];
        r->chain = *head;
        *head = r;
    }
    return NB_OK;
}

/* ---- create, destroy ---- */

static nb_status check_options(const nb_sched_options *o, size_t n_block, nb_error *err)
{
    if (o->max_num_seqs == 0 || o->max_num_seqs > UINT32_MAX)
        return nb_fail(err, NB_ERR_ARG, "scheduler: %zu running requests; expected at least 1",
                       o->max_num_seqs);
    if (o->max_step_tok < o->max_num_seqs)
        return nb_fail(err, NB_ERR_ARG,
                       "scheduler: %zu tokens per step for %zu running requests; expected at least "
                       "one for each",
                       o->max_step_tok, o->max_num_seqs);
    if (o->max_chunk_tok == 0)
        return nb_fail(err, NB_ERR_ARG, "scheduler: a chunk of 0 tokens; expected at least 1");
    if (o->max_model_len == 0 || nb_n_block(o->max_model_len) > n_block)
        return nb_fail(err, NB_ERR_ARG,
                       "scheduler: a length of %zu tokens with %zu cache blocks of %d tokens; "
                       "expected 1 to %zu",
                       o->max_model_len, n_block, NB_BLOCK_TOK, n_block * NB_BLOCK_TOK);
    if (o->snap_tok % NB_BLOCK_TOK)
        return nb_fail(err, NB_ERR_ARG,
                       "scheduler: %zu tokens between snapshots; expected a multiple of %d",
                       o->snap_tok, NB_BLOCK_TOK);
    if (!(o->age_s >= 0))
        return nb_fail(err, NB_ERR_ARG, "scheduler: %g s per level; expected 0 or more", o->age_s);
    if (!isfinite(o->max_step_s) || !(o->pair_tok >= 0) || !isfinite(o->pair_tok))
        return nb_fail(
            err, NB_ERR_ARG,
            "scheduler: steps of %g s with %g tokens per pair; expected numbers, the latter not negative",
            o->max_step_s, o->pair_tok);
    return NB_OK;
}

nb_status nb_sched_create(const nb_sched_options *o, nb_kv_cache *kv, nb_sched **out, nb_error *err)
{
    nb_kv_cache_stats ks;
    nb_kv_cache_get_stats(kv, &ks);
    NB_TRY(check_options(o, ks.n_block, err));
    nb_sched *s = calloc(1, sizeof *s);
    if (!s) return nb_fail(err, NB_ERR_NOMEM, "scheduler: out of memory");
    s->o = *o;
    s->kv = kv;
    s->n_kv_block = ks.n_block;
    s->first_deadline = (double)INFINITY;
    s->pace = (nb_pace){ .max_step_s = o->max_step_s, .pair_tok = o->pair_tok };
    s->bucket_mask = 63;
    s->bucket = calloc(s->bucket_mask + 1, sizeof *s->bucket);
    s->run = calloc(o->max_num_seqs, sizeof *s->run);
    s->free_slot = calloc(o->max_num_seqs, sizeof *s->free_slot);
    s->count = calloc(ks.n_block, sizeof *s->count);
    if (!s->bucket || !s->run || !s->free_slot || !s->count) {
        nb_sched_destroy(s);
        return nb_fail(err, NB_ERR_NOMEM, "scheduler: no memory for %zu running requests",
                       o->max_num_seqs);
    }
    while (s->n_free_slot < o->max_num_seqs) {
        s->free_slot[s->n_free_slot] = o->max_num_seqs - 1 - s->n_free_slot;
        s->n_free_slot++;
    }
    *out = s;
    return NB_OK;
}

static void free_req(nb_req *r)
{
    free(r->tok);
    free(r->key);
    free(r->block);
    free(r);
}

void nb_sched_destroy(nb_sched *s)
{
    if (!s) return;
    for (nb_req *r = s->all_head, *next; r; r = next) {
        next = r->all_next;
        nb_kv_cache_release(s->kv, r->block, r->n_block);
        nb_sched_unpin(s, &r->load);
        nb_sched_unpin(s, &r->save);
        free_req(r);
    }
    free(s->bucket);
    free(s->run);
    free(s->free_slot);
    free(s->cls);
    free(s->count);
    free(s);
}

/* ---- add, push ---- */

static nb_status resize(void **p, size_t n, size_t item_bytes)
{
    if (n > SIZE_MAX / 2 / item_bytes) return NB_ERR_NOMEM;
    void *q = realloc(*p, n * item_bytes);
    if (!q) return NB_ERR_NOMEM;
    *p = q;
    return NB_OK;
}

/* Room for n_tok known tokens, their keys and blocks, and then some. */
static nb_status reserve(nb_req *r, size_t n_tok, size_t max_tok)
{
    if (n_tok <= r->cap_tok) return NB_OK;
    const size_t more = n_tok / 2 > 4 * NB_BLOCK_TOK ? n_tok / 2 : 4 * NB_BLOCK_TOK;
    const size_t cap = max_tok - n_tok > more ? n_tok + more : max_tok;
    NB_TRY(resize((void **)&r->tok, cap, sizeof *r->tok));
    NB_TRY(resize((void **)&r->key, nb_n_block(cap), sizeof *r->key));
    NB_TRY(resize((void **)&r->block, nb_n_block(cap), sizeof *r->block));
    r->cap_tok = cap;
    return NB_OK;
}

static nb_status make_req(const nb_sched *s, const nb_sched_request *q, nb_req **out)
{
    nb_req *r = calloc(1, sizeof *r);
    if (!r) return NB_ERR_NOMEM;
    nb_status st = reserve(r, q->n_prompt, s->o.max_model_len);
    if (st == NB_OK) st = nb_block_key_root(q->salt, &r->root);
    if (st != NB_OK) {
        free_req(r);
        return st;
    }
    r->r = *q;
    r->load = r->save = NB_SNAP_NONE;
    r->r.prompt = NULL;
    r->r.salt = (nb_str){ 0 };
    r->r.key = NULL;
    if (q->n_key) memcpy(r->key, q->key, q->n_key * sizeof *r->key);
    r->n_key = q->n_key;
    memcpy(r->tok, q->prompt, q->n_prompt * sizeof *r->tok);
    r->n_known = q->n_prompt;
    r->level = s->o.priority ? q->priority : 0;
    *out = r;
    return NB_OK;
}

nb_status nb_sched_add(nb_sched *s, const nb_sched_request *q, double now, nb_error *err)
{
    if (q->id == 0 || nb_sched_find_req(s, q->id))
        return nb_fail(err, NB_ERR_ARG, "request %llu: the id is in use; expected a new one, not 0",
                       (unsigned long long)q->id);
    if (q->n_prompt == 0)
        return nb_fail(err, NB_ERR_ARG, "request %llu: an empty prompt; expected 1 to %zu tokens",
                       (unsigned long long)q->id, s->o.max_model_len);
    if (q->n_prompt > s->o.max_model_len)
        return nb_fail(err, NB_ERR_LIMIT, "request %llu: a prompt of %zu tokens; expected 1 to %zu",
                       (unsigned long long)q->id, q->n_prompt, s->o.max_model_len);
    if (q->n_key > q->n_prompt / NB_BLOCK_TOK)
        return nb_fail(err, NB_ERR_ARG, "request %llu: %zu keys; expected at most %zu",
                       (unsigned long long)q->id, q->n_key, q->n_prompt / NB_BLOCK_TOK);
    if (q->background && (s->background || q->after))
        return nb_fail(
            err, NB_ERR_ARG,
            "request %llu: a second one in the background, or one that waits for another",
            (unsigned long long)q->id);
    nb_req *r = NULL;
    nb_status st = grow_tables(s);
    if (st == NB_OK) st = make_req(s, q, &r);
    if (st != NB_OK)
        return nb_fail(err, st, "request %llu: %s", (unsigned long long)q->id, nb_status_text(st));
    r->seq = s->n_seq++;
    nb_req **head = &s->bucket[bucket_of(s, q->id)];
    r->chain = *head;
    *head = r;
    r->all_prev = s->all_tail;
    if (s->all_tail) {
        s->all_tail->all_next = r;
    } else {
        s->all_head = r;
    }
    s->all_tail = r;
    s->n_req++;
    if (q->background) s->background = r;
    s->n_queued_tok += r->n_known;
    if (q->deadline < s->first_deadline) s->first_deadline = q->deadline;
    nb_req *first = q->after && q->after != q->id ? nb_sched_find_req(s, q->after) : NULL;
    if (first && !first->prompt_done) {
        first->n_dependent++;
        r->state = NB_REQ_DEFERRED;
        r->since = now;
        nb_req_list_append(&s->deferred, r);
    } else {
        nb_sched_enqueue(s, r, false, now);
    }
    return NB_OK;
}

nb_status nb_sched_push(nb_sched *s, uint64_t id, uint32_t tok)
{
    nb_req *r = nb_sched_find_req(s, id);
    if (!r) return NB_ERR_NOT_FOUND;
    if (r->n_known >= s->o.max_model_len) return NB_ERR_LIMIT;
    NB_TRY(reserve(r, r->n_known + 1, s->o.max_model_len));
    r->tok[r->n_known++] = tok;
    if (r->state != NB_REQ_RUNNING) s->n_queued_tok++;
    r->retry_at = 0;
    return NB_OK;
}

/* ---- computed ---- */

nb_status nb_req_keys(nb_req *r, size_t n)
{
    for (size_t b = r->n_key; b < n; b++) {
        NB_TRY(nb_block_key_next(b ? &r->key[b - 1] : &r->root, r->tok + b * NB_BLOCK_TOK,
                                 nb_sched_form(r->r.n_expanded, r->r.n_upload, b),
                                 nb_sched_mark(r->r.rope_from, b), &r->key[b]));
        r->n_key = b + 1;
    }
    return NB_OK;
}

/* Those who wait for r need not wait any longer. */
static void wake(nb_sched *s, nb_req *r)
{
    for (nb_req *d = s->deferred.head, *next; d && r->n_dependent; d = next) {
        next = d->queue_next;
        if (d->r.after != r->r.id) continue;
        nb_req_list_remove(&s->deferred, d);
        nb_sched_enqueue(s, d, false, d->since);
        r->n_dependent--;
    }
}

/* The blocks that are full now can be found. */
static nb_status publish(nb_sched *s, nb_req *r)
{
    const size_t n_full = r->n_computed / NB_BLOCK_TOK;
    NB_TRY(nb_req_keys(r, n_full));
    for (; r->n_pub < n_full; r->n_pub++) {
        const size_t b = r->n_pub;
        const uint32_t parent = b ? r->block[b - 1] : NB_BLOCK_NONE;
        if (b && !s->orphans) {
            nb_kv_block_info info;
            nb_kv_cache_block(s->kv, parent, &info);
            s->orphans = !info.indexed;
        }
        r->block[b] = nb_kv_cache_publish(s->kv, r->block[b], &r->key[b], parent);
        s->n_gain += s->orphans ? s->n_kv_block : 1;
    }
    return NB_OK;
}

nb_status nb_sched_computed(nb_sched *s, uint64_t id)
{
    nb_req *r = nb_sched_find_req(s, id);
    if (!r) return NB_ERR_NOT_FOUND;
    if (r->n_plan == 0) return NB_ERR_ARG;
    r->n_computed += r->n_plan;
    r->n_plan = 0;
    nb_sched_unpin(s, &r->load);
    const nb_status st = publish(s, r);
    if (st == NB_OK && r->save != NB_SNAP_NONE) {
        nb_kv_snap_give(s->kv, r->save, r->block[r->n_computed / NB_BLOCK_TOK - 1]);
        r->save = NB_SNAP_NONE;
    }
    if (!r->prompt_done && r->n_computed >= r->r.n_prompt) {
        r->prompt_done = true;
        wake(s, r);
    }
    return st;
}

/* ---- going ---- */

void nb_sched_unpin(nb_sched *s, uint32_t *snap)
{
    if (*snap != NB_SNAP_NONE) nb_kv_snap_unpin(s->kv, *snap);
    *snap = NB_SNAP_NONE;
}

void nb_sched_stop(nb_sched *s, nb_req *r)
{
    nb_sched_unpin(s, &r->load);
    nb_sched_unpin(s, &r->save);
    r->branch = 0;
    nb_kv_cache_release(s->kv, r->block, r->n_block);
    s->n_gain += r->n_block;
    s->budget += r->n_plan;
    s->free_slot[s->n_free_slot++] = r->slot;
    s->n_run--;
    for (size_t i = r->run_pos; i < s->n_run; i++) {
        s->run[i] = s->run[i + 1];
        s->run[i]->run_pos = i;
    }
    r->n_computed = r->n_block = r->n_pub = r->n_cached = r->n_plan = 0;
}

void nb_sched_remove(nb_sched *s, uint64_t id)
{
    nb_req *r = nb_sched_find_req(s, id);
    if (!r) return;
    if (r->state == NB_REQ_RUNNING) {
        nb_sched_stop(s, r);
    } else {
        s->n_queued_tok -= r->n_known;
        if (r->state == NB_REQ_QUEUED) {
            nb_sched_dequeue(s, r);
        } else {
            nb_req_list_remove(&s->deferred, r);
            nb_sched_find_req(s, r->r.after)->n_dependent--; /* it is there, or r had been woken */
        }
    }
    wake(s, r);
    nb_req **at = &s->bucket[bucket_of(s, id)];
    while (*at != r) at = &(*at)->chain;
    *at = r->chain;
    if (r->all_prev) {
        r->all_prev->all_next = r->all_next;
    } else {
        s->all_head = r->all_next;
    }
    if (r->all_next) {
        r->all_next->all_prev = r->all_prev;
    } else {
        s->all_tail = r->all_prev;
    }
    s->n_req--;
    if (s->background == r) s->background = NULL;
    free_req(r);
}

/* The first deadline is looked for when the one known is over, not whenever its request goes: that would
 * be all requests for each. */
size_t nb_sched_expired(nb_sched *s, double now, uint64_t *id, size_t cap)
{
    size_t n = 0;
    double first = (double)INFINITY;
    if (!(s->first_deadline <= now)) return 0;
    for (const nb_req *r = s->all_head; r && n < cap; r = r->all_next) {
        if (r->r.deadline <= now)
            id[n++] = r->r.id;
        else if (r->r.deadline < first)
            first = r->r.deadline;
    }
    if (n == 0) s->first_deadline = first;
    return n;
}

size_t nb_sched_n_preempted(const nb_sched *s, uint64_t id)
{
    const nb_req *r = nb_sched_find_req(s, id);
    return r ? r->n_preempted : 0;
}

void nb_sched_get_stats(const nb_sched *s, nb_sched_stats *out)
{
    *out = s->stat;
    out->n_running = s->n_run;
    out->n_waiting = s->n_queued + s->deferred.n;
    out->n_deferred = s->deferred.n;
    out->n_waiting_tok = s->n_queued_tok;
    for (size_t i = 0; i < s->n_run; i++) {
        const nb_req *r = s->run[i];
        if (r != s->background && r->n_computed < r->r.n_prompt)
            out->n_waiting_tok += r->r.n_prompt - r->n_computed;
    }
    if (!s->background) return;
    if (s->background->state == NB_REQ_RUNNING) {
        out->n_running--;
    } else {
        out->n_waiting--;
        out->n_waiting_tok -= s->background->n_known;
    }
}
