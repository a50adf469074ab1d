/* plan_page_plot.c - the plots of `nibble plan --html`, from its JSON alone. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../cli.h"
#include "plan_page.h"
#include "plan_value.h"

enum { MAX_LINE = 16, MAX_POINT = 64, MAX_BAR = 32 };

typedef struct lines {
    nb_svg_series s[MAX_LINE];
    char name[MAX_LINE][48];
    double x[MAX_LINE][MAX_POINT], y[MAX_LINE][MAX_POINT];
    size_t n;
} lines;

/* A point of the line of this name; 0 is unknown, and no point of a logarithmic plot. */
static void add_point(lines *l, const char *name, double x, double y)
{
    size_t i = 0;
    if (!(x > 0) || !(y > 0)) return;
    while (i < l->n && strcmp(l->name[i], name) != 0) i++;
    if (i == MAX_LINE || (i < l->n && l->s[i].n == MAX_POINT)) return;
    if (i == l->n) {
        (void)snprintf(l->name[i], sizeof l->name[i], "%s", name);
        l->s[i] = (nb_svg_series){ .name = l->name[i], .x = l->x[i], .y = l->y[i] };
        l->n++;
    }
    l->x[i][l->s[i].n] = x;
    l->y[i][l->s[i].n++] = y;
}

/* The height of a line at x, as it is drawn between its points on logarithmic axes; 0: it is not there. */
static double height(const nb_svg_series *s, double x)
{
    for (size_t i = 0; i < s->n; i++) {
        if (s->x[i] == x) return s->y[i];
        if (i == 0 || s->x[i - 1] >= x || s->x[i] <= x) continue;
        const double t = log(x / s->x[i - 1]) / log(s->x[i] / s->x[i - 1]);
        return s->y[i - 1] * pow(s->y[i] / s->y[i - 1], t);
    }
    return 0;
}

/* The legend says of a line that lies under a later one whose line it is, and where it ends. */
static void name_hidden(lines *l)
{
    for (size_t i = 0; i < l->n; i++) {
        const nb_svg_series *s = &l->s[i], *over = NULL;
        for (size_t k = l->n - 1; k > i && !over; k--) {
            size_t p = 0;
            while (p < s->n && fabs(height(&l->s[k], s->x[p]) / s->y[p] - 1) < 0.015) p++;
            if (p == s->n) over = &l->s[k];
        }
        if (!over) continue;
        char end[24];
        const size_t at = strlen(l->name[i]);
        plan_context_text(s->x[s->n - 1], end, sizeof end);
        (void)snprintf(l->name[i] + at, sizeof l->name[i] - at, " (line of %.12s, to %s)",
                       over->name, end);
    }
}

static nb_status put_lines(nb_buf *to, const nb_svg_axes *a, const lines *l)
{
    nb_buf svg = { 0 };
    nb_status st = l->n ? nb_svg_lines(&svg, a, l->s, l->n) : NB_OK;
    if (st == NB_OK && l->n) st = nb_html_plot(to, a->title, &svg);
    nb_buf_deinit(&svg);
    return st;
}

typedef void collect(lines *l, const json_t *report, const void *what);
static nb_status plot(nb_buf *to, const nb_svg_axes *a, const json_t *report, collect *f,
                      const void *what)
{
    lines *l = calloc(1, sizeof *l);
    if (!l) return NB_ERR_NOMEM;
    f(l, report, what);
    if (a->log_x && a->log_y) name_hidden(l);
    const nb_status st = put_lines(to, a, l);
    free(l);
    return st;
}

/* ---- bytes of a token ------------------------------------------------------- */

typedef struct bars {
    char text[MAX_BAR][64];
    const char *label[MAX_BAR];
    double y[MAX_BAR];
    size_t n;
} bars;

static void add_bar(bars *b, const char *name, const char *more, double y)
{
    if (b->n == MAX_BAR || !(y > 0)) return;
    (void)snprintf(b->text[b->n], sizeof b->text[b->n], "%s%s", name, more);
    b->label[b->n] = b->text[b->n];
    b->y[b->n++] = y;
}

static nb_status put_bars(nb_buf *to, const nb_svg_axes *a, const bars *b)
{
    nb_buf svg = { 0 };
    nb_status st = b->n ? nb_svg_bars(&svg, a, b->label, b->y, NULL, NULL, b->n) : NB_OK;
    if (st == NB_OK && b->n) st = nb_html_plot(to, a->title, &svg);
    nb_buf_deinit(&svg);
    return st;
}

static void add_records(bars *b, const json_t *report, bool all, const char *before)
{
    size_t i;
    json_t *r;
    json_array_foreach(at(at(report, "cache"), "records"), i, r)
    {
        char name[64], rope[24] = "";
        if (!is(r, "default_rope") && !is(r, "marked")) continue;
        if (!all && !is(r, "marked") && !plan_shown(report, str(r, "dtype"))) continue;
        if (!is(r, "default_rope"))
            (void)snprintf(rope, sizeof rope, ", rope %s", str(r, "rope_dtype"));
        (void)snprintf(name, sizeof name, "%s%s", before, str(r, "dtype"));
        add_bar(b, name, rope, num(r, "bytes_per_token") / 1024);
    }
}

nb_status plan_plot_cache(nb_buf *to, const json_t *report)
{
    const nb_svg_axes own = { .title = "Cache of one token, by record", .y_label = "KiB a token" };
    const nb_svg_axes other = {
        .title = "Beside the same model with other attention",
        .y_label = "KiB a token, logarithmic",
        .log_y = 1,
    };
    static const char *const long_name[][2] = {
        { "mha", "every head (MHA), bf16" },
        { "gqa8", "8 groups (GQA-8), bf16" },
        { "mqa", "one head (MQA), bf16" },
    };
    bars b = { .n = 0 };
    size_t i;
    json_t *e;
    add_records(&b, report, true, "");
    NB_TRY(put_bars(to, &own, &b));
    b.n = 0;
    const bool mla = strcmp(str(at(report, "model"), "attention"), "mla") == 0;
    add_records(&b, report, false, mla ? "latent (MLA), " : "as it is, ");
    json_array_foreach(at(at(report, "cache"), "equivalents"), i, e)
    {
        const char *name = str(e, "name");
        if (strcmp(name, str(at(report, "model"), "attention")) == 0) continue;
        for (size_t k = 0; k < NB_COUNT(long_name); k++)
            if (strcmp(name, long_name[k][0]) == 0) name = long_name[k][1];
        add_bar(&b, name, "", num(e, "bytes_per_token") / 1024);
    }
    return put_bars(to, &other, &b);
}

/* ---- memory ------------------------------------------------------------------ */

nb_status plan_plot_memory(nb_buf *to, const json_t *report)
{
    const json_t *g = at(at(report, "layout"), "per_gpu");
    const double memory = num(at(report, "machine"), "memory_bytes");
    const bool experts = num(at(report, "model"), "n_expert") > 0;
    const struct {
        const char *key, *name;
    } known[] = {
        { "replicated_bytes", "weights that every device holds whole" },
        { "dense_bytes", experts ? "other weights outside the experts" : "all other weights" },
        { "expert_bytes", "weights of experts" },
        { "absorbed_bytes", "W_UK and W_UV once more, for attention on latents" },
        { "reserve_bytes", "reserve for what the engine computes with" },
        { "cache_bytes", "KV cache" },
    };
    double part[NB_COUNT(known) + 1], sum = 0;
    char text[NB_COUNT(known) + 1][128], size[32];
    const char *label[NB_COUNT(known) + 1];
    size_t n = 0;
    /* those of no size, too: a colour then means the same on every page */
    for (size_t i = 0; i <= NB_COUNT(known); i++) {
        const bool rest = i == NB_COUNT(known);
        const char *name = rest ? "left to others (--gpu-memory-utilization)" : known[i].name;
        part[n] = rest ? memory - sum : num(g, known[i].key);
        if (part[n] > 0) {
            sum += part[n];
            cli_bytes_text(part[n], size, sizeof size);
            (void)snprintf(text[n], sizeof text[n], "%s: %s (%.1f%%)", name, size,
                           100 * part[n] / memory);
        } else {
            part[n] = 0;
            (void)snprintf(text[n], sizeof text[n], "%s: none", name);
        }
        label[n] = text[n];
        n++;
    }
    if (!(memory > 0) || n == 0) return NB_OK;
    char mark[64];
    cli_bytes_text(memory, size, sizeof size);
    (void)snprintf(mark, sizeof mark, "%s", size);
    const nb_svg_axes a = { .title = "Memory of one device", .x_label = mark };
    nb_buf svg = { 0 };
    nb_status st = nb_svg_parts(&svg, &a, label, part, memory, n);
    if (st == NB_OK) st = nb_html_plot(to, a.title, &svg);
    nb_buf_deinit(&svg);
    return st;
}

/* ---- users, cost --------------------------------------------------------------- */

/* A line for each record over the lengths of context; what: a key. */
static void of_capacity(lines *l, const json_t *report, const void *what)
{
    size_t i, k;
    json_t *r, *c;
    json_array_foreach(at(report, "capacity"), i, r)
    {
        if (!plan_shown(report, str(r, "dtype"))) continue;
        json_array_foreach(at(r, "contexts"), k, c)
            add_point(l, str(r, "dtype"), num(c, "context"), num(c, what));
    }
}

/* What the x axis is; its last point has no tick where it is no power of two, so it is said. */
static void context_label(const json_t *by_context, char *out, size_t n)
{
    const json_t *c = at(json_array_get(at(by_context, "capacity"), 0), "contexts");
    char last[32];
    plan_context_text(num(json_array_get(c, json_array_size(c) - 1), "context"), last, sizeof last);
    (void)snprintf(out, n, "tokens of a user, prompt and answer (1k = 1,024), up to %s", last);
}

nb_status plan_plot_users(nb_buf *to, const json_t *by_context)
{
    char x_label[128];
    const nb_svg_axes users = {
        .title = "Users at once, by length of context",
        .x_label = x_label,
        .y_label = "users of the whole machine",
        .log_x = 2,
        .log_y = 1,
    };
    nb_svg_axes tokens = { .title = "Tokens of cache in all, by record" };
    bars b = { .n = 0 };
    size_t i;
    json_t *r;
    double most = 0;
    if (!is(at(by_context, "layout"), "fits")) return NB_OK;
    context_label(by_context, x_label, sizeof x_label);
    NB_TRY(plot(to, &users, by_context, of_capacity, "users"));
    json_array_foreach(at(by_context, "capacity"), i, r) most = fmax(most, num(r, "tokens"));
    const double unit = most >= 1e6 ? 1e6 : most >= 1e4 ? 1e3 : 1;
    tokens.y_label = unit == 1e6   ? "millions of tokens"
                     : unit == 1e3 ? "thousands of tokens"
                                   : "tokens";
    json_array_foreach(at(by_context, "capacity"), i, r)
        add_bar(&b, str(r, "dtype"), "", num(r, "tokens") / unit);
    return put_bars(to, &tokens, &b);
}

/* what: "most" or "model". */
static void of_cost(lines *l, const json_t *report, const void *what)
{
    size_t i;
    json_t *r;
    json_array_foreach(at(report, "decode"), i, r)
    {
        if (is(r, "all_that_fit") && plan_shown(report, str(r, "dtype")))
            add_point(l, str(r, "dtype"), num(r, "context"), num(at(r, what), "price_per_million"));
    }
}

nb_status plan_plot_cost(nb_buf *to, const json_t *by_context)
{
    char x_label[128];
    const nb_svg_axes million = {
        .title = "Dollars for a million generated tokens, all users that fit, modelled",
        .x_label = x_label,
        .y_label = "dollars",
        .log_x = 2,
        .log_y = 1,
    };
    nb_svg_axes hour = million;
    context_label(by_context, x_label, sizeof x_label);
    hour.title = "Dollars for an hour of one user's place";
    NB_TRY(plot(to, &million, by_context, of_cost, "model"));
    return plot(to, &hour, by_context, of_capacity, "price_per_session_hour");
}

/* ---- rates ------------------------------------------------------------------- */

typedef struct at_context {
    double context;
    const char *key;
} at_context;

static void of_decode(lines *l, const json_t *report, const void *what)
{
    const at_context *w = what;
    size_t i;
    json_t *r;
    json_array_foreach(at(report, "decode"), i, r)
    {
        if (num(r, "context") == w->context && plan_shown(report, str(r, "dtype")))
            add_point(l, str(r, "dtype"), num(r, "concurrency"),
                      num(at(r, w->key), "tokens_per_second"));
    }
}

nb_status plan_plot_decode(nb_buf *to, const json_t *by_users, double context)
{
    static const char *const key[2] = { "model", "most" }, *const word[2] = { "modelled",
                                                                              "at most" };
    char title[96], n_tok[32];
    plan_context_text(context, n_tok, sizeof n_tok);
    for (int i = 0; i < 2; i++) {
        const at_context w = { context, key[i] };
        (void)snprintf(title, sizeof title, "Generated tokens per second, context %s: %s", n_tok,
                       word[i]);
        const nb_svg_axes a = {
            .title = title,
            .x_label =
                "sequences that generate at once (1k = 1,024); the end of a line: all that fit",
            .y_label = "tokens per second in all",
            .log_x = 2,
            .log_y = 1,
        };
        NB_TRY(plot(to, &a, by_users, of_decode, &w));
    }
    return NB_OK;
}

/* what: the beginning of the keys. */
static void of_prefill(lines *l, const json_t *report, const void *what)
{
    const bool time = strcmp(what, "ttft_ms") == 0;
    size_t i;
    json_t *r;
    json_array_foreach(at(report, "prefill"), i, r)
    {
        const double x = num(r, "prompt"), unit = time ? 1e-3 : 1;
        add_point(l, "modelled", x,
                  unit * num(r, time ? "ttft_ms_model" : "tokens_per_second_model"));
        add_point(l, time ? "at least" : "at most", x,
                  unit * num(r, time ? "ttft_ms_most" : "tokens_per_second_most"));
    }
}

nb_status plan_plot_prefill(nb_buf *to, const json_t *by_context)
{
    const json_t *list = at(by_context, "prefill");
    char last[32], x_label[128];
    plan_context_text(num(json_array_get(list, json_array_size(list) - 1), "prompt"), last,
                      sizeof last);
    (void)snprintf(x_label, sizeof x_label,
                   "tokens of the prompt, none of them cached (1k = 1,024), up to %s", last);
    nb_svg_axes a = {
        .title = "Time to the first token of one prompt",
        .x_label = x_label,
        .y_label = "seconds",
        .log_x = 2,
        .log_y = 1,
    };
    NB_TRY(plot(to, &a, by_context, of_prefill, "ttft_ms"));
    a.title = "Prompt tokens per second";
    a.y_label = "tokens per second";
    return plot(to, &a, by_context, of_prefill, "tokens_per_second");
}
