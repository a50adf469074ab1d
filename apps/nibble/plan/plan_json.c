/* plan_json.c - the report of `nibble plan` as one JSON object; its keys are in
 * src/capacity/README.md.  What the tables and the page show is in it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "plan.h"

/* Every put takes the value; one that is missing for lack of memory makes the whole fail. */
typedef struct maker {
    bool bad;
} maker;

static void put(maker *k, json_t *o, const char *key, json_t *v)
{
    if (!o || !v || json_object_set_new(o, key, v) != 0) {
        if (!o) json_decref(v);
        k->bad = true;
    }
}
static void push(maker *k, json_t *a, json_t *v)
{
    if (!a || !v || json_array_append_new(a, v) != 0) {
        if (!a) json_decref(v);
        k->bad = true;
    }
}
static void put_int(maker *k, json_t *o, const char *key, double x)
{
    put(k, o, key, fabs(x) < 9e18 ? json_integer((json_int_t)x) : json_null());
}
static void put_num(maker *k, json_t *o, const char *key, double x)
{
    put(k, o, key, isfinite(x) ? json_real(x) : json_null());
}
/* 0 stands for unknown. */
static void put_known(maker *k, json_t *o, const char *key, double x)
{
    put(k, o, key, x > 0 && isfinite(x) ? json_real(x) : json_null());
}
static void put_str(maker *k, json_t *o, const char *key, const char *s)
{
    put(k, o, key, plan_string(s));
}

/* ---- the model ------------------------------------------------------------ */

/* Sparse attention; index_layers: with an indexer of their own. */
static void put_indexer(maker *k, json_t *j, const nb_model_config *c)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n_layer; i++) n += !nb_layer_attn(c, i)->index_shared;
    put_int(k, j, "index_n_heads", (double)c->attn[0].index_head);
    put_int(k, j, "index_head_dim", (double)c->attn[0].index_dim);
    put_int(k, j, "index_topk", (double)c->attn[0].index_topk);
    put_int(k, j, "index_layers", (double)n);
}

static json_t *model_json(maker *k, const plan *p)
{
    const nb_model_config *c = p->config;
    json_t *j = json_object();
    put_str(k, j, "name", p->o->model);
    put_str(k, j, "family", c->family);
    put_str(k, j, "attention", p->sizes.is_mla ? "mla" : "gqa");
    put_int(k, j, "n_param", (double)p->sizes.n_param);
    put_int(k, j, "n_param_active", (double)p->sizes.n_param_active);
    put_int(k, j, "n_layer", (double)c->n_layer);
    put_int(k, j, "hidden", (double)c->hidden);
    put_int(k, j, "n_head", (double)c->attn[0].n_head);
    put_int(k, j, "vocab", (double)c->n_vocab);
    put_int(k, j, "max_position", (double)c->max_pos);
    if (p->sizes.is_mla) {
        put_int(k, j, "kv_lora_rank", (double)c->attn[0].kv_lora);
        put_int(k, j, "qk_rope_head_dim", (double)c->attn[0].d_rope);
        put_int(k, j, "qk_nope_head_dim", (double)c->attn[0].d_nope);
        put_int(k, j, "v_head_dim", (double)c->attn[0].d_v);
        if (p->sizes.attn_most_pairs > 0) put_indexer(k, j, c);
    } else {
        put_int(k, j, "n_kv_head", (double)c->attn[0].n_kv_head);
        put_int(k, j, "head_dim", (double)c->attn[0].head_dim);
    }
    put_int(k, j, "moe_layers", (double)p->sizes.n_moe_layer);
    put_int(k, j, "n_expert", (double)p->sizes.n_expert);
    put_int(k, j, "experts_per_token", (double)(p->sizes.n_expert ? p->sizes.top_k : 0));
    return j;
}

/* "fp8", "bfloat16", "compressed-tensors, 4 bits". */
static void put_checkpoint(maker *k, json_t *j, const nb_model_config *c)
{
    char text[64];
    if (!c->quant.method[0]) {
        put_str(k, j, "checkpoint_dtype", c->fp8 ? "fp8" : c->dtype);
        return;
    }
    (void)snprintf(text, sizeof text, "%s", c->quant.method);
    const nb_quant_form *f = nb_quant_main(&c->quant);
    if (f->bits)
        (void)snprintf(text, sizeof text, "%s, %zu bits", c->quant.method, f->bits);
    if (f->block) (void)snprintf(text, sizeof text, "%s, %s", c->quant.method, f->name);
    put_str(k, j, "checkpoint_dtype", text);
}

static json_t *weights_json(maker *k, const plan *p)
{
    const nb_sizes *s = &p->sizes;
    json_t *j = json_object(), *types = json_array();
    put_str(k, j, "dtype", plan_wtype_name(p->demand.wtype));
    put_checkpoint(k, j, p->config);
    for (int i = 0; i < NB_SIZES_N_WTYPE; i++) {
        const nb_weight_size *w = &s->weight[i];
        if (i == NB_SIZES_CHECKPOINT && s->checkpoint_unknown) continue;
        json_t *t = json_object();
        put_str(k, t, "dtype", plan_wtype_name((nb_sizes_wtype)i));
        put_int(k, t, "bytes", (double)w->bytes);
        put_int(k, t, "active_bytes", (double)w->active);
        put_int(k, t, "expert_bytes", (double)w->expert);
        put_int(k, t, "replicated_bytes", (double)w->replicated);
        put_int(k, t, "embedding_bytes", (double)w->embed);
        put_int(k, t, "kv_b_bytes", (double)w->kv_b);
        push(k, types, t);
    }
    put(k, j, "types", types);
    put_int(k, j, "absorbed_copy_bytes", (double)s->absorbed_copy_bytes);
    put_int(k, j, "absorbed_nibble_cpu_bytes", 0);
    put_int(k, j, "absorbed_nibble_gpu_bytes", (double)s->gpu_absorbed_bytes);
    return j;
}

/* ---- the cache ------------------------------------------------------------ */

static double mha_bytes(const plan *p)
{
    for (size_t i = 0; i < p->sizes.n_equivalent; i++)
        if (strcmp(p->sizes.equivalent[i].name, "mha") == 0)
            return p->sizes.equivalent[i].bytes_tok;
    return 0;
}

static json_t *record_json(maker *k, const plan *p, const nb_record_size *r, double bf16,
                           double mha)
{
    json_t *j = json_object(), *contexts = json_array();
    put_str(k, j, "dtype", r->name);
    put(k, j, "rope_dtype", p->sizes.is_mla ? json_string(nb_rope_fmt_name(r->rope)) : json_null());
    put(k, j, "default_rope", json_boolean(r == nb_sizes_find(&p->sizes, r->name)));
    put(k, j, "marked", json_boolean(r == p->marked));
    put_int(k, j, "page_bytes", (double)r->page_bytes);
    put_int(k, j, "block_bytes", (double)r->block_bytes);
    put_num(k, j, "bytes_per_token_layer", r->bytes_tok_layer);
    put_num(k, j, "bytes_per_token", r->bytes_tok);
    put_num(k, j, "read_per_token", r->attn_bytes_tok);
    put_known(k, j, "vs_bf16", bf16 / r->bytes_tok);
    put_known(k, j, "vs_mha", mha / r->bytes_tok);
    for (size_t i = 0; i < p->context.n; i++) {
        json_t *c = json_object();
        const double n = (double)p->context.count[i];
        put_int(k, c, "context", n);
        put_int(k, c, "bytes", ceil(n / NB_PAGE_TOK) * (double)r->block_bytes);
        push(k, contexts, c);
    }
    put(k, j, "contexts", contexts);
    return j;
}

static json_t *cache_json(maker *k, const plan *p)
{
    const nb_record_size *bf16 = nb_sizes_find(&p->sizes, "bf16");
    const double mha = mha_bytes(p), base = bf16 ? bf16->bytes_tok : 0;
    json_t *j = json_object(), *records = json_array(), *equivalents = json_array();
    put_int(k, j, "block_tokens", NB_PAGE_TOK);
    put_int(k, j, "open_page_bytes", (double)p->sizes.tail_bytes_seq);
    if (p->sizes.state_bytes) put_int(k, j, "state_bytes", (double)p->sizes.state_bytes);
    for (size_t i = 0; i < p->sizes.n_record; i++)
        push(k, records, record_json(k, p, &p->sizes.record[i], base, mha));
    put(k, j, "records", records);
    for (size_t i = 0; i < p->sizes.n_equivalent; i++) {
        const nb_attn_equivalent *e = &p->sizes.equivalent[i];
        json_t *o = json_object();
        put_str(k, o, "name", e->name);
        put_int(k, o, "n_kv_head", (double)e->n_kv_head);
        put_num(k, o, "bytes_per_token_layer", e->bytes_tok_layer);
        put_num(k, o, "bytes_per_token", e->bytes_tok);
        put_known(k, o, "vs_bf16", base / e->bytes_tok);
        put_known(k, o, "vs_mha", mha / e->bytes_tok);
        push(k, equivalents, o);
    }
    put(k, j, "equivalents", equivalents);
    return j;
}

/* ---- the machine and what fits --------------------------------------------- */

static json_t *machine_json(maker *k, const plan *p)
{
    const nb_machine *m = &p->machine;
    if (!p->has_machine) return json_null();
    json_t *j = json_object();
    put_str(k, j, "name", m->name);
    put_str(k, j, "title", m->title);
    put(k, j, "cpu", json_boolean(m->cpu));
    put_int(k, j, "memory_bytes", m->memory_bytes);
    put_known(k, j, "bandwidth", m->bandwidth);
    put_known(k, j, "bf16_flops", m->bf16);
    put_known(k, j, "fp8_flops", m->fp8);
    put_known(k, j, "fp4_flops", m->fp4);
    put_known(k, j, "link", m->link);
    put_known(k, j, "price_per_hour", m->price);
    put_str(k, j, "price_source", m->price_source);
    put_str(k, j, "source", m->source);
    return j;
}

static void put_runs(maker *k, json_t *j, const nb_error *why_not)
{
    put(k, j, "runs", json_boolean(!*why_not->msg));
    if (*why_not->msg)
        put_str(k, j, "why_not", why_not->msg);
    else
        put(k, j, "why_not", json_null());
}

static json_t *needed_json(maker *k, const plan *p)
{
    if (p->fits || !p->needed) return json_null();
    json_t *j = json_object();
    put_int(k, j, "gpus", (double)p->needed);
    put_int(k, j, "tensor_parallel", (double)p->needed_layout.tp);
    put_int(k, j, "data_parallel", (double)p->needed_layout.dp);
    put_int(k, j, "expert_parallel", (double)p->needed_layout.ep);
    put_runs(k, j, &p->needed_why_not);
    return j;
}

/* Experts in the memory of the host. */
static json_t *host_json(maker *k, const plan *p)
{
    const nb_layout *l = &p->layout;
    if (!l->host_layers) return json_null();
    json_t *j = json_object();
    put_int(k, j, "layers", (double)l->host_layers);
    put_int(k, j, "expert_bytes", p->place.host);
    put_int(k, j, "upload_tokens", nb_layout_upload_tok(&p->demand));
    put_known(k, j, "bandwidth", l->host_bandwidth);
    put_known(k, j, "link", l->host_link);
    return j;
}

static json_t *layout_json(maker *k, const plan *p)
{
    const nb_layout *l = &p->layout;
    if (!p->has_machine) return json_null();
    json_t *j = json_object(), *gpu = json_object();
    put_int(k, j, "gpus", (double)l->n_gpu);
    put_int(k, j, "tensor_parallel", (double)l->tp);
    put_int(k, j, "data_parallel", (double)l->dp);
    put_int(k, j, "expert_parallel", (double)l->ep);
    put_int(k, j, "decode_context_parallel", p->place.n_part);
    put(k, j, "suggested", json_boolean(p->suggested));
    put_int(k, j, "cache_copies", (double)l->tp / p->place.n_part);
    put_num(k, j, "utilization", l->utilization);
    put(k, j, "fits", json_boolean(p->fits));
    put_runs(k, j, &p->why_not);
    put(k, j, "needed", needed_json(k, p));
    put_int(k, gpu, "budget_bytes", p->place.budget);
    put_int(k, gpu, "replicated_bytes", p->place.replicated);
    put_int(k, gpu, "dense_bytes", p->place.dense);
    put_int(k, gpu, "embedding_bytes", p->place.embed);
    put_int(k, gpu, "expert_bytes", p->place.expert);
    put_int(k, gpu, "absorbed_bytes", p->place.absorbed);
    put_int(k, gpu, "weight_bytes", p->place.weights);
    put_int(k, gpu, "reserve_bytes", l->reserve_bytes);
    put_int(k, gpu, "cache_bytes", p->place.cache);
    put(k, j, "per_gpu", gpu);
    put(k, j, "host", host_json(k, p));
    return j;
}

/* Users of the whole machine. */
static double users_of(const plan *p, const nb_record_size *r, size_t n_tok)
{
    const double u = nb_place_users(&p->place, r, (double)p->sizes.tail_bytes_seq, n_tok);
    return u * (double)p->layout.dp;
}

static json_t *capacity_json(maker *k, const plan *p)
{
    json_t *j = json_array();
    const nb_record_size *r;
    for (size_t i = 0; p->has_machine && (r = plan_next_record(p, &i)) != NULL;) {
        const double blocks = nb_place_blocks(&p->place, r), dp = (double)p->layout.dp;
        json_t *o = json_object(), *contexts = json_array();
        put_str(k, o, "dtype", r->name);
        put(k, o, "marked", json_boolean(r == p->marked));
        put_str(k, o, "arithmetic", plan_arithmetic(p, r->type));
        put_int(k, o, "block_bytes_per_gpu", (double)r->block_bytes);
        put_int(k, o, "blocks_per_replica", blocks);
        put_int(k, o, "tokens_per_replica", blocks * NB_PAGE_TOK);
        put_int(k, o, "tokens", blocks * NB_PAGE_TOK * dp);
        for (size_t c = 0; c < p->context.n; c++) {
            const double users = users_of(p, r, p->context.count[c]);
            json_t *u = json_object();
            put_int(k, u, "context", (double)p->context.count[c]);
            put_int(k, u, "users_per_replica", users / dp);
            put_int(k, u, "users", users);
            put_known(k, u, "price_per_session_hour", users > 0 ? p->price_hour / users : 0);
            push(k, contexts, u);
        }
        put(k, o, "contexts", contexts);
        push(k, j, o);
    }
    return j;
}

/* ---- rates ----------------------------------------------------------------- */

static void put_time(maker *k, json_t *o, const char *key, const plan *p, const nb_time *t,
                     double concurrency)
{
    json_t *j = json_object();
    put_num(k, j, "step_ms", t->total_s * 1e3);
    put_num(k, j, "products_ms", t->products_s * 1e3);
    put_num(k, j, "attention_ms", t->attention_s * 1e3);
    put_num(k, j, "host_ms", t->host_s * 1e3);
    put_num(k, j, "other_ms", t->other_s * 1e3);
    put_num(k, j, "tokens_per_second", t->tok_s);
    put_num(k, j, "tokens_per_second_user", t->tok_s / concurrency);
    put_known(k, j, "price_per_million", nb_cost_million(p->price_hour, t->tok_s));
    put(k, o, key, j);
}

static json_t *step_json(maker *k, const plan *p, const nb_record_size *r, double concurrency,
                         double context, bool all)
{
    nb_step s;
    json_t *o = json_object();
    nb_step_of(&p->demand, &p->layout, r, &p->efficiency, concurrency, context, &s);
    put_str(k, o, "dtype", r->name);
    put_int(k, o, "context", context);
    put_int(k, o, "concurrency", concurrency);
    put(k, o, "all_that_fit", json_boolean(all));
    put_int(k, o, "sequences_per_replica", s.n_seq);
    put_num(k, o, "experts_read", s.experts_read);
    put_int(k, o, "weight_bytes", s.weight_bytes);
    put_int(k, o, "host_bytes", s.host_bytes);
    put_int(k, o, "cache_bytes", s.cache_bytes);
    put_num(k, o, "product_flop", s.product_flop);
    put_num(k, o, "attention_flop", s.attention_flop);
    put_str(k, o, "bound", nb_bound_name(s.bound));
    put_time(k, o, "most", p, &s.most, concurrency);
    put_time(k, o, "model", p, &s.model, concurrency);
    return o;
}

/* The concurrencies that fit, then as many as fit. */
static json_t *decode_json(maker *k, const plan *p)
{
    json_t *j = json_array();
    const nb_record_size *r;
    for (size_t i = 0; p->has_rates && p->fits && (r = plan_next_record(p, &i)) != NULL;) {
        for (size_t c = 0; c < p->context.n; c++) {
            const double context = (double)p->context.count[c];
            const double users = users_of(p, r, p->context.count[c]);
            for (size_t n = 0; n < p->concurrency.n; n++) {
                const double x = (double)p->concurrency.count[n];
                if (x < users) push(k, j, step_json(k, p, r, x, context, false));
            }
            if (users > 0) push(k, j, step_json(k, p, r, users, context, true));
        }
    }
    return j;
}

static json_t *prefill_json(maker *k, const plan *p)
{
    json_t *j = json_array();
    for (size_t i = 0; p->has_rates && p->fits && i < p->prompt.n; i++) {
        nb_prefill f;
        json_t *o = json_object();
        nb_prefill_of(&p->demand, &p->layout, &p->efficiency, (double)p->prompt.count[i],
                      (double)p->o->plan.chunk, &f);
        put_int(k, o, "prompt", (double)p->prompt.count[i]);
        put_num(k, o, "flop", f.flop);
        put_num(k, o, "attention_fraction", f.attention_fraction);
        put_str(k, o, "bound", f.sends_experts ? "host" : f.reads_weights ? "weights" : "arithmetic");
        put_num(k, o, "ttft_ms_most", f.most_s * 1e3);
        put_num(k, o, "ttft_ms_model", f.model_s * 1e3);
        put_num(k, o, "tokens_per_second_most", f.most_tok_s);
        put_num(k, o, "tokens_per_second_model", f.model_tok_s);
        put_known(k, o, "price_per_million_model", nb_cost_million(p->price_hour, f.model_tok_s));
        push(k, j, o);
    }
    return j;
}

static json_t *cost_json(maker *k, const plan *p)
{
    if (!p->has_machine || p->price_hour <= 0) return json_null();
    const double tok_s = p->o->plan.tok_s;
    json_t *j = json_object();
    put_str(k, j, "currency", "USD");
    put_num(k, j, "price_per_hour", p->price_hour);
    put_str(k, j, "source", p->machine.price_source);
    put_str(k, j, "per_million", "price_per_hour / (tokens_per_second * 3600) * 1000000");
    put_str(k, j, "per_session_hour", "price_per_hour / users");
    put_known(k, j, "measured_tokens_per_second", tok_s);
    put_known(k, j, "measured_price_per_million", nb_cost_million(p->price_hour, tok_s));
    return j;
}

json_t *plan_json(const plan *p)
{
    maker k = { false };
    json_t *j = json_object();
    put_str(&k, j, "nibble", nb_version());
    put(&k, j, "model", model_json(&k, p));
    put(&k, j, "weights", weights_json(&k, p));
    put(&k, j, "cache", cache_json(&k, p));
    put(&k, j, "machine", machine_json(&k, p));
    put(&k, j, "layout", layout_json(&k, p));
    put(&k, j, "capacity", capacity_json(&k, p));
    put(&k, j, "decode", decode_json(&k, p));
    put(&k, j, "prefill", prefill_json(&k, p));
    put(&k, j, "cost", cost_json(&k, p));
    put(&k, j, "assumptions", plan_assumptions(p));
    put(&k, j, "notes", plan_notes(p));
    if (k.bad) {
        json_decref(j);
        return NULL;
    }
    return j;
}
