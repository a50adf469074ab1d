/* plan_page.c - `nibble plan --html`: the report as a page for somebody who has never seen nibble.
 *
 * Tables have the figures of the JSON; the curves between them come from the same plan with more
 * lengths of context and more sequences. */
#include "plan_page.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../cli.h"
#include "../eval/cmd_eval.h"
#include "plan_value.h"

enum { MAX_COLUMN = 2 * BENCH_MAX_LIST + 8 };

/* Headers that name a length of context: "at 128k", "users at 128k". */
typedef struct columns {
    char text[MAX_COLUMN][48];
    const char *name[MAX_COLUMN];
    size_t n;
} columns;
static void add_column(columns *c, const char *before, const char *after)
{
    if (c->n == MAX_COLUMN) return;
    (void)snprintf(c->text[c->n], sizeof c->text[0], "%s%s", before, after);
    c->name[c->n] = c->text[c->n];
    c->n++;
}
static void add_contexts(columns *c, const char *before, const json_t *contexts)
{
    char n_tok[24];
    for (size_t i = 0; i < json_array_size(contexts); i++) {
        plan_context_text(num(json_array_get(contexts, i), "context"), n_tok, sizeof n_tok);
        add_column(c, before, n_tok);
    }
}

/* ---- in short ------------------------------------------------------------------ */

static nb_status card(nb_buf *to, const char *what, const char *value, const char *more)
{
    NB_TRY(nb_buf_add_c(to, "<div><dt>"));
    NB_TRY(nb_html_text(to, what));
    NB_TRY(nb_buf_add_c(to, "</dt><dd class=\"big\">"));
    NB_TRY(nb_html_text(to, value));
    NB_TRY(nb_buf_add_c(to, "</dd><dd class=\"small\">"));
    NB_TRY(nb_html_text(to, more));
    return nb_buf_add_c(to, "</dd></div>\n");
}

const json_t *plan_record_of(const json_t *list, const char *dtype)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *r = json_array_get(list, i);
        if (strcmp(str(r, "dtype"), dtype) == 0 &&
            (!at(r, "default_rope") || is(r, "default_rope")))
            return r;
    }
    return NULL;
}
static const json_t *marked_of(const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (is(json_array_get(list, i), "marked")) return json_array_get(list, i);
    return NULL;
}
static const json_t *last_of(const json_t *list)
{
    const size_t n = json_array_size(list);
    return n ? json_array_get(list, n - 1) : NULL;
}

/* All users that fit, with the record at the last length of context; NULL: none fit. */
static const json_t *full_step(const json_t *j, const char *dtype, double context)
{
    const json_t *list = at(j, "decode");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *r = json_array_get(list, i);
        if (is(r, "all_that_fit") && num(r, "context") == context &&
            strcmp(str(r, "dtype"), dtype) == 0)
            return r;
    }
    return NULL;
}

static nb_status size_cards(nb_buf *to, const json_t *j, const json_t *own, const json_t *other)
{
    const json_t *m = at(j, "model"),
                 *w = plan_record_of(at(at(j, "weights"), "types"), str(at(j, "weights"), "dtype"));
    char what[96], value[48], more[160], size[32], n_tok[24];
    const bool small = num(m, "n_param") < 1e8;
    const double unit = small ? 1e6 : 1e9;
    cli_bytes_text(num(w, "bytes"), value, sizeof value);
    (void)snprintf(more, sizeof more, "%.1f %s parameters, of which a token uses %.1f",
                   num(m, "n_param") / unit, small ? "million" : "billion",
                   num(m, "n_param_active") / unit);
    NB_TRY(card(to, "Weights, once", w ? value : "unknown", more));
    cli_bytes_text(num(own, "bytes_per_token"), value, sizeof value);
    cli_bytes_text(num(other, "bytes_per_token"), size, sizeof size);
    (void)snprintf(more, sizeof more, "as %s; as %s %s", str(own, "dtype"), str(other, "dtype"),
                   size);
    NB_TRY(card(to, "Cache of a token", value, more));
    const json_t *a = last_of(at(own, "contexts")), *b = last_of(at(other, "contexts"));
    plan_context_text(num(a, "context"), n_tok, sizeof n_tok);
    (void)snprintf(what, sizeof what, "Cache of a user with %s tokens", n_tok);
    cli_bytes_text(num(a, "bytes"), value, sizeof value);
    cli_bytes_text(num(b, "bytes"), size, sizeof size);
    (void)snprintf(more, sizeof more, "as %s; as %s %s", str(own, "dtype"), str(other, "dtype"),
                   size);
    return card(to, what, value, more);
}

static nb_status rate_cards(nb_buf *to, const json_t *j, const char *own, const char *other)
{
    const json_t *c = last_of(at(plan_record_of(at(j, "capacity"), own), "contexts")),
                 *d = last_of(at(plan_record_of(at(j, "capacity"), other), "contexts"));
    char what[96], value[48], more[160], text[48], n_tok[24];
    if (!is(at(j, "layout"), "fits") || !c || !d) return NB_OK;
    const double context = num(c, "context");
    plan_context_text(context, n_tok, sizeof n_tok);
    (void)snprintf(what, sizeof what, "Users at once with %s tokens each", n_tok);
    cli_count_text(num(c, "users"), value, sizeof value);
    cli_count_text(num(d, "users"), text, sizeof text);
    (void)snprintf(more, sizeof more, "as %s; as %s %s", own, other, text);
    NB_TRY(card(to, what, value, more));
    const json_t *a = full_step(j, own, context), *b = full_step(j, other, context);
    if (!a || !b) return NB_OK;
    plan_rate_text(num(at(a, "model"), "tokens_per_second"), value, sizeof value);
    plan_rate_text(num(at(b, "model"), "tokens_per_second"), text, sizeof text);
    (void)snprintf(more, sizeof more, "modelled, as %s; as %s %s", own, other, text);
    NB_TRY(card(to, "Tokens per second of all of them", value, more));
    if (!(num(at(a, "model"), "price_per_million") > 0)) return NB_OK;
    plan_money_text(num(at(a, "model"), "price_per_million"), value, sizeof value);
    plan_money_text(num(at(b, "model"), "price_per_million"), text, sizeof text);
    (void)snprintf(more, sizeof more, "modelled, as %s; as %s %s", own, other, text);
    return card(to, "A million generated tokens", value, more);
}

static nb_status add_short(nb_buf *to, const json_t *j)
{
    const json_t *records = at(at(j, "cache"), "records"), *own = marked_of(records);
    if (!own) own = plan_record_of(records, "bf16");
    const json_t *other =
        plan_record_of(records, strcmp(str(own, "dtype"), "nvfp4") ? "nvfp4" : "bf16");
    if (!other) other = own;
    NB_TRY(nb_buf_add_c(to, "<dl class=\"cards\">\n"));
    NB_TRY(size_cards(to, j, own, other));
    NB_TRY(rate_cards(to, j, str(own, "dtype"), str(other, "dtype")));
    return nb_buf_add_c(to, "</dl>\n");
}

/* "8 x NVIDIA H200", of one device its name alone. */
static nb_status add_devices(nb_buf *to, const json_t *j)
{
    const double n = num(at(j, "layout"), "gpus");
    if (n > 1) NB_TRY(nb_buf_printf(to, "%.0f x ", n));
    return nb_buf_add_c(to, str(at(j, "machine"), "title"));
}

static nb_status add_head(nb_buf *to, const json_t *j)
{
    nb_buf title = { 0 };
    const bool has = json_is_object(at(j, "machine"));
    nb_status st = nb_buf_printf(&title, has ? "%s on " : "%s: sizes", str(at(j, "model"), "name"));
    if (st == NB_OK && has) st = add_devices(&title, j);
    if (st == NB_OK) st = nb_html_begin(to, title.p);
    nb_buf_deinit(&title);
    NB_TRY(st);
    NB_TRY(nb_buf_add_c(to, "<p class=\"dim\">A plan by nibble "));
    NB_TRY(nb_html_text(to, str(j, "nibble")));
    NB_TRY(nb_buf_add_c(to, ", computed from the model's configuration; nothing was run. "
                            "GiB is 2<sup>30</sup> bytes; 1k tokens are 1,024.</p>\n"));
    NB_TRY(nb_html_para(
        to, "A machine holds the weights of a model once. For every user it also keeps some "
            "numbers of each token that was read or written: the KV cache, which an answer "
            "looks at again for every new token. What is left beside the weights, divided "
            "by the cache of a user, is how many users fit at once; what must be read and "
            "multiplied for a step decides how fast their answers come."));
    NB_TRY(nb_html_para(
        to, "A record is the form in which the numbers of a token are kept: bf16 as they were "
            "computed (16 bits), fp8 in about half of that, nvfp4, if4, mxfp4 and int4 in 4 "
            "bits and scales. Shaded rows are the record that was asked for."));
    const json_t *l = at(j, "layout");
    if (json_is_object(l) && !is(l, "fits")) {
        NB_TRY(nb_buf_add_c(to, "<p class=\"note\">"));
        NB_TRY(nb_html_text(to, json_string_value(json_array_get(at(j, "notes"), 0))));
        NB_TRY(nb_buf_add_c(to, "</p>\n"));
    }
    return add_short(to, j);
}

/* ---- the model, its cache --------------------------------------------------------- */

static nb_status add_model(nb_buf *to, const json_t *j)
{
    char sparse[96] = "";
    static const char *const column[] = {
        "type", "size", "bytes", "of it experts", "read for one token", "whole on every device"
    };
    const json_t *m = at(j, "model"), *w = at(j, "weights"), *types = at(w, "types");
    char n[32], text[480], attention[192], experts[96] = "";
    cli_count_text(num(m, "max_position"), n, sizeof n);
    if (num(m, "index_topk") > 0)
        (void)snprintf(sparse, sizeof sparse, "; a token attends to %.0f others at most",
                       num(m, "index_topk"));
    if (strcmp(str(m, "attention"), "mla") == 0)
        (void)snprintf(attention, sizeof attention,
                       "latent attention (MLA): %.0f numbers and a rope key of %.0f a layer%s",
                       num(m, "kv_lora_rank"), num(m, "qk_rope_head_dim"), sparse);
    else
        (void)snprintf(attention, sizeof attention, "%.0f KV heads of %.0f", num(m, "n_kv_head"),
                       num(m, "head_dim"));
    if (num(m, "n_expert") > 0)
        (void)snprintf(experts, sizeof experts, ", %.0f experts of which a token uses %.0f",
                       num(m, "n_expert"), num(m, "experts_per_token"));
    (void)snprintf(text, sizeof text,
                   "Family %s: %.0f layers of width %.0f with %.0f heads, %s%s. It was made for up "
                   "to %s tokens of context.",
                   str(m, "family"), num(m, "n_layer"), num(m, "hidden"), num(m, "n_head"),
                   attention, experts, n);
    NB_TRY(nb_html_section(to, "model", "The model"));
    NB_TRY(nb_html_para(to, text));
    NB_TRY(
        nb_html_table(to, "Weights, by the type that they are kept in", column, NB_COUNT(column)));
    for (size_t i = 0; i < json_array_size(types); i++) {
        const json_t *t = json_array_get(types, i);
        const bool own = strcmp(str(t, "dtype"), "checkpoint") == 0;
        (void)snprintf(text, sizeof text, own ? "%s (%s)" : "%s", str(t, "dtype"),
                       str(w, "checkpoint_dtype"));
        NB_TRY(nb_html_row(to, text, strcmp(str(t, "dtype"), str(w, "dtype")) == 0));
        NB_TRY(plan_cell_bytes(to, num(t, "bytes")));
        NB_TRY(plan_cell_count(to, num(t, "bytes")));
        NB_TRY(plan_cell_bytes(to, num(t, "expert_bytes")));
        NB_TRY(plan_cell_bytes(to, num(t, "active_bytes")));
        NB_TRY(plan_cell_bytes(to, num(t, "replicated_bytes")));
        NB_TRY(nb_html_row_end(to));
    }
    NB_TRY(nb_html_table_end(to));
    return nb_buf_add_c(to, "</section>\n");
}

static nb_status add_record_row(nb_buf *to, const json_t *r)
{
    const json_t *contexts = at(r, "contexts");
    char text[64];
    const bool plain = is(r, "default_rope");
    (void)snprintf(text, sizeof text, plain ? "%s" : "%s, rope %s", str(r, "dtype"),
                   str(r, "rope_dtype"));
    NB_TRY(nb_html_row(to, text, is(r, "marked")));
    NB_TRY(plan_cell_count(to, num(r, "bytes_per_token")));
    NB_TRY(plan_cell_tenths(to, num(r, "bytes_per_token_layer")));
    NB_TRY(plan_cell_count(to, num(r, "block_bytes")));
    NB_TRY(plan_cell_ratio(to, num(r, "vs_bf16")));
    NB_TRY(plan_cell_ratio(to, num(r, "vs_mha")));
    for (size_t i = 0; i < json_array_size(contexts); i++)
        NB_TRY(plan_cell_bytes(to, num(json_array_get(contexts, i), "bytes")));
    return nb_html_row_end(to);
}

static nb_status add_equivalents(nb_buf *to, const json_t *list)
{
    static const char *const column[] = { "attention", "KV heads", "bytes a token",
                                          "bytes a token and layer", "times smaller than MHA" };
    NB_TRY(nb_html_table(to, "The same model with other attention, in BF16", column,
                         NB_COUNT(column)));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *e = json_array_get(list, i);
        NB_TRY(nb_html_row(to, str(e, "name"), false));
        NB_TRY(plan_cell_count(to, num(e, "n_kv_head")));
        NB_TRY(plan_cell_count(to, num(e, "bytes_per_token")));
        NB_TRY(plan_cell_tenths(to, num(e, "bytes_per_token_layer")));
        NB_TRY(plan_cell_ratio(to, num(e, "vs_mha")));
        NB_TRY(nb_html_row_end(to));
    }
    return nb_html_table_end(to);
}

static nb_status add_cache(nb_buf *to, const json_t *j)
{
    const json_t *c = at(j, "cache"), *records = at(c, "records");
    columns h = { .n = 0 };
    add_column(&h, "record", "");
    add_column(&h, "bytes a token", "");
    add_column(&h, "bytes a token and layer", "");
    add_column(&h, "bytes a block of 64 tokens", "");
    add_column(&h, "times smaller than bf16", "");
    add_column(&h, "times smaller than MHA", "");
    add_contexts(&h, "a user of ", at(json_array_get(records, 0), "contexts"));
    NB_TRY(nb_html_section(to, "cache", "What a token costs"));
    NB_TRY(nb_html_para(
        to, "Bytes are what the engine allocates: all layers, scales and padding included. A user "
            "holds whole blocks of 64 tokens. MHA would keep keys and values of every head, GQA-8 "
            "of 8 groups of heads, MQA of one; latent attention (MLA) keeps one short vector and "
            "a rope key for all heads."));
    NB_TRY(nb_buf_add_c(to, "<div class=\"plots\">\n"));
    NB_TRY(plan_plot_cache(to, j));
    NB_TRY(nb_buf_add_c(to, "</div>\n"));
    NB_TRY(nb_html_table(to, "Cache, by record", h.name, h.n));
    for (size_t i = 0; i < json_array_size(records); i++) {
        const json_t *r = json_array_get(records, i);
        if (is(r, "default_rope") || is(r, "marked")) NB_TRY(add_record_row(to, r));
    }
    NB_TRY(nb_html_table_end(to));
    NB_TRY(add_equivalents(to, at(c, "equivalents")));
    return nb_buf_add_c(to, "</section>\n");
}

/* ---- the machine, users ------------------------------------------------------------- */

static nb_status add_layout(nb_buf *to, const json_t *l)
{
    char text[400], experts[64] = "";
    if (!(num(l, "gpus") > 1)) return NB_OK;
    if (num(l, "expert_parallel") > 1)
        (void)snprintf(experts, sizeof experts, ", experts dealt over %.0f",
                       num(l, "expert_parallel"));
    (void)snprintf(text, sizeof text,
                   "Layout%s: tensor parallel %.0f (devices that compute one token together), data "
                   "parallel %.0f (replicas of the attention, with users of their own)%s.",
                   is(l, "suggested") ? ", suggested as the one that holds the most" : "",
                   num(l, "tensor_parallel"), num(l, "data_parallel"), experts);
    return nb_html_para(to, text);
}

static nb_status add_machine(nb_buf *to, const json_t *j)
{
    const json_t *m = at(j, "machine"), *l = at(j, "layout"), *cost = at(j, "cost");
    char size[32], text[64];
    cli_bytes_text(num(m, "memory_bytes"), size, sizeof size);
    NB_TRY(nb_html_section(to, "machine", "The machine"));
    nb_buf name = { 0 };
    nb_status st = add_devices(&name, j);
    if (st == NB_OK) st = nb_buf_add_c(to, "<p>Computed for ");
    if (st == NB_OK) st = nb_html_text(to, name.p);
    nb_buf_deinit(&name);
    NB_TRY(st);
    NB_TRY(nb_buf_printf(to, ",%s with %s of memory", num(l, "gpus") > 1 ? " each" : "", size));
    if (num(m, "bandwidth") > 0)
        NB_TRY(num(m, "bandwidth") < 1e12
                   ? nb_buf_printf(to, " read at %.4g GB/s", num(m, "bandwidth") / 1e9)
                   : nb_buf_printf(to, " read at %.4g TB/s", num(m, "bandwidth") / 1e12));
    if (num(m, "bf16_flops") > 0)
        NB_TRY(nb_buf_printf(to, " and %.4g TFLOP/s in BF16", num(m, "bf16_flops") / 1e12));
    if (json_is_object(cost)) {
        plan_money_text(num(cost, "price_per_hour"), text, sizeof text);
        NB_TRY(nb_buf_printf(to, "; %s an hour in all (", text));
        NB_TRY(nb_html_text(to, str(cost, "source")));
        NB_TRY(nb_buf_add_c(to, ")"));
    }
    NB_TRY(nb_buf_add_c(to, ".</p>\n"));
    NB_TRY(add_layout(to, l));
    NB_TRY(plan_plot_memory(to, j));
    return nb_buf_add_c(to, "</section>\n");
}

static nb_status add_users(nb_buf *to, const json_t *j, const json_t *by_context)
{
    const json_t *list = at(j, "capacity"), *first = at(json_array_get(list, 0), "contexts");
    const bool priced = json_is_object(at(j, "cost"));
    columns h = { .n = 0 };
    if (!is(at(j, "layout"), "fits") || !first) return NB_OK;
    add_column(&h, "record", "");
    add_column(&h, "tokens of a replica", "");
    add_column(&h, "tokens in all", "");
    add_contexts(&h, "users of ", first);
    if (priced) add_contexts(&h, "price of an hour, ", first);
    NB_TRY(nb_html_section(to, "users", "How many users fit"));
    NB_TRY(nb_html_para(
        to,
        "The room for cache, divided by what a user of that many tokens holds. A user is counted "
        "with all of its context, prompt and answer, and no two share a prefix: where they do, "
        "more fit."));
    NB_TRY(nb_buf_add_c(to, "<div class=\"plots\">\n"));
    NB_TRY(plan_plot_users(to, by_context));
    NB_TRY(nb_buf_add_c(to, "</div>\n"));
    NB_TRY(nb_html_table(to, "What fits, by record", h.name, h.n));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *r = json_array_get(list, i), *c = at(r, "contexts");
        NB_TRY(nb_html_row(to, str(r, "dtype"), is(r, "marked")));
        NB_TRY(plan_cell_count(to, num(r, "tokens_per_replica")));
        NB_TRY(plan_cell_count(to, num(r, "tokens")));
        for (size_t k = 0; k < json_array_size(c); k++)
            NB_TRY(plan_cell_count(to, num(json_array_get(c, k), "users")));
        for (size_t k = 0; priced && k < json_array_size(c); k++)
            NB_TRY(plan_cell_money(to, num(json_array_get(c, k), "price_per_session_hour")));
        NB_TRY(nb_html_row_end(to));
    }
    NB_TRY(nb_html_table_end(to));
    return nb_buf_add_c(to, "</section>\n");
}

/* ---- all of it ------------------------------------------------------------------------- */

static nb_status add_list(nb_buf *to, const char *id, const char *title, const json_t *list)
{
    if (json_array_size(list) == 0) return NB_OK;
    NB_TRY(nb_html_section(to, id, title));
    NB_TRY(nb_buf_add_c(to, "<ul>\n"));
    for (size_t i = 0; i < json_array_size(list); i++) {
        NB_TRY(nb_buf_add_c(to, "<li>"));
        NB_TRY(nb_html_text(to, json_string_value(json_array_get(list, i))));
        NB_TRY(nb_buf_add_c(to, "</li>\n"));
    }
    return nb_buf_add_c(to, "</ul>\n</section>\n");
}

static size_t largest(const bench_counts *c)
{
    size_t x = 0;
    for (size_t i = 0; i < c->n; i++)
        if (c->count[i] > x) x = c->count[i];
    return x;
}

/* Powers of two up to hi, and hi. */
static void powers(size_t lo, size_t hi, bench_counts *out)
{
    out->n = 0;
    while (hi / lo > (size_t)1 << (BENCH_MAX_LIST - 1)) lo *= 2;
    for (size_t x = lo; x < hi && out->n + 1 < BENCH_MAX_LIST; x *= 2) out->count[out->n++] = x;
    out->count[out->n++] = hi;
}

/* The same plan at more lengths of context and prompt, or with more sequences. */
static json_t *curves(const plan *p, bool users)
{
    enum { LEAST = 1024 };
    plan d = *p;
    d.marked = d.sizes.record + (p->marked - p->sizes.record);
    const size_t asked = largest(&p->context), longest = largest(&p->prompt);
    if (users) {
        powers(1, (size_t)1 << (BENCH_MAX_LIST - 1), &d.concurrency);
        return plan_json(&d);
    }
    const size_t made_for = p->config->max_pos < (1u << 20) ? p->config->max_pos : 1u << 20;
    const size_t hi = asked > made_for ? asked : made_for;
    powers(hi > LEAST ? LEAST : 1, hi, &d.context);
    powers(longest > LEAST ? LEAST : 1, longest > made_for ? longest : made_for, &d.prompt);
    d.concurrency.n = 0;
    return plan_json(&d);
}

static nb_status build(nb_buf *to, const plan *p, const json_t *j, const json_t *by_context,
                       const json_t *by_users)
{
    NB_TRY(add_head(to, j));
    NB_TRY(add_cache(to, j));
    if (json_is_object(at(j, "machine"))) NB_TRY(add_machine(to, j));
    NB_TRY(add_users(to, j, by_context));
    NB_TRY(plan_add_decode(to, p, j, by_users));
    NB_TRY(plan_add_prefill(to, j, by_context));
    NB_TRY(plan_add_cost(to, j, by_context));
    NB_TRY(add_model(to, j));
    NB_TRY(add_list(to, "assumptions", "Assumptions", at(j, "assumptions")));
    NB_TRY(add_list(to, "notes", "Notes", at(j, "notes")));
    return nb_html_end(to);
}

int plan_page(const plan *p, const json_t *report, const char *path)
{
    nb_buf page = { 0 };
    json_t *by_context = curves(p, false), *by_users = curves(p, true);
    const nb_status st =
        by_context && by_users ? build(&page, p, report, by_context, by_users) : NB_ERR_NOMEM;
    const int code = st == NB_OK ? out_file_write(path, page.p, page.n_bytes)
                                 : cli_failed("%s: %s", path, nb_status_text(st));
    json_decref(by_context);
    json_decref(by_users);
    nb_buf_deinit(&page);
    return code;
}
