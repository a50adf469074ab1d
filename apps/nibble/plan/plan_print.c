/* plan_print.c - the report of `nibble plan` as tables, from its JSON alone. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../cli.h"
#include "plan.h"
#include "plan_value.h"

enum { WIDTH = 110 };

/* ---- values ---------------------------------------------------------------- */

/* In a column of w, with the digits that a reader wants. */
static void cell_count(double x, int w)
{
    char text[48];
    cli_count_text(x, text, sizeof text);
    (void)printf(" %*s", w, text);
}
static void cell_rate(double x, int w)
{
    if (!(x > 0))
        (void)printf(" %*s", w, "-");
    else if (x < 100)
        (void)printf(" %*.1f", w, x);
    else
        cell_count(x, w);
}
static void cell_money(double x, int w)
{
    if (!(x > 0))
        (void)printf(" %*s", w, "-");
    else
        (void)printf(" %*.*f", w, x < 0.1 ? 4 : x < 10 ? 3 : 2, x);
}
static void cell_bytes(double x, int w)
{
    char text[32];
    cli_bytes_text(x, text, sizeof text);
    (void)printf(" %*s", w, text);
}
void plan_context_text(double n_tok, char *out, size_t n)
{
    if (fmod(n_tok, 1024) == 0)
        (void)snprintf(out, n, "%.0fk", n_tok / 1024);
    else
        (void)snprintf(out, n, "%.0f", n_tok);
}
static void cell_context(double n, int w)
{
    char text[32];
    plan_context_text(n, text, sizeof text);
    (void)printf(" %*s", w, text);
}

/* A string of a file or of the command line, without control characters. */
static void print_plain(const char *s)
{
    for (; *s; s++) (void)fputc((unsigned char)*s < 0x20 || *s == 0x7f ? '?' : *s, stdout);
}

/* "  - text", wrapped. */
static void bullet(const char *text)
{
    size_t col = 3;
    (void)fputs("  -", stdout);
    while (*text) {
        const size_t n = strcspn(text, " ");
        if (col + 1 + n > WIDTH) {
            (void)fputs("\n   ", stdout);
            col = 3;
        }
        (void)fputc(' ', stdout);
        for (size_t i = 0; i < n; i++)
            (void)fputc((unsigned char)text[i] < 0x20 ? '?' : text[i], stdout);
        col += n + 1;
        text += n + (text[n] == ' ');
    }
    (void)fputc('\n', stdout);
}

static void bullets(const char *title, const json_t *list)
{
    size_t i;
    json_t *v;
    if (!json_array_size(list)) return;
    (void)printf("\n%s\n", title);
    json_array_foreach((json_t *)(uintptr_t)list, i, v) bullet(json_string_value(v));
}

/* ---- the model ------------------------------------------------------------- */

/* 671.0 B, 15.2 M. */
void plan_params_text(double x, char *out, size_t n)
{
    (void)snprintf(out, n, x < 1e8 ? "%.1f M" : "%.1f B", x / (x < 1e8 ? 1e6 : 1e9));
}

static void print_model(const json_t *m)
{
    char n[32], active[32];
    plan_params_text(num(m, "n_param"), n, sizeof n);
    plan_params_text(num(m, "n_param_active"), active, sizeof active);
    print_plain(str(m, "name"));
    (void)printf(" (%s): %s parameters, %s active per token\n  ", str(m, "family"), n, active);
    cli_count_text(num(m, "max_position"), n, sizeof n);
    (void)printf("%.0f layers, hidden %.0f, %.0f heads, ", num(m, "n_layer"), num(m, "hidden"),
                 num(m, "n_head"));
    if (strcmp(str(m, "attention"), "mla") == 0)
        (void)printf("latent %.0f + rope key %.0f", num(m, "kv_lora_rank"),
                     num(m, "qk_rope_head_dim"));
    else
        (void)printf("%.0f KV heads of %.0f", num(m, "n_kv_head"), num(m, "head_dim"));
    if (num(m, "index_topk") > 0)
        (void)printf(", indexers in %.0f layers choose %.0f tokens", num(m, "index_layers"),
                     num(m, "index_topk"));
    if (num(m, "n_expert") > 0)
        (void)printf(", %.0f experts, %.0f per token", num(m, "n_expert"),
                     num(m, "experts_per_token"));
    (void)printf(", context %s\n", n);
}

static void print_weights(const json_t *w)
{
    size_t i;
    json_t *t;
    (void)printf("\n%-22s %12s %18s %14s %12s %12s\n", "weights", "", "bytes", "read per token",
                 "experts", "whole on each");
    json_array_foreach(at(w, "types"), i, t)
    {
        char label[48];
        const bool own = strcmp(str(t, "dtype"), "checkpoint") == 0;
        const char *type = str(w, "checkpoint_dtype"), *bits = strchr(type, ',');
        (void)snprintf(label, sizeof label, own ? "%s (%s)" : "%s", str(t, "dtype"),
                       bits ? bits + 2 : type);
        (void)printf("%s %-20s", strcmp(str(t, "dtype"), str(w, "dtype")) == 0 ? "*" : " ", label);
        cell_bytes(num(t, "bytes"), 12);
        cell_count(num(t, "bytes"), 18);
        cell_bytes(num(t, "active_bytes"), 14);
        cell_bytes(num(t, "expert_bytes"), 12);
        cell_bytes(num(t, "replicated_bytes"), 12);
        (void)fputc('\n', stdout);
    }
}

static void print_ratio(const json_t *r, const char *key)
{
    const double x = num(r, key);
    (void)printf(" %7.*fx", x < 0.1 ? 4 : 2, x);
}

static void print_cache(const json_t *c)
{
    size_t i, k;
    json_t *r, *x;
    (void)printf("\n%-22s %11s %11s %14s %8s %8s ", "cache", "B/token", "B/tok/layer",
                 "B/block of 64", "vs bf16", "vs MHA");
    json_array_foreach(at(json_array_get(at(c, "records"), 0), "contexts"), k, x)
        cell_context(num(x, "context"), 10);
    (void)fputc('\n', stdout);
    json_array_foreach(at(c, "records"), i, r)
    {
        char label[48];
        const bool plain = is(r, "default_rope");
        if (!plain && !is(r, "marked")) continue;
        (void)snprintf(label, sizeof label, plain ? "%s" : "%s, rope %s", str(r, "dtype"),
                       str(r, "rope_dtype"));
        (void)printf("%s %-20s %11.0f %11.1f", is(r, "marked") ? "*" : " ", label,
                     num(r, "bytes_per_token"), num(r, "bytes_per_token_layer"));
        cell_count(num(r, "block_bytes"), 14);
        print_ratio(r, "vs_bf16");
        print_ratio(r, "vs_mha");
        (void)fputc(' ', stdout);
        json_array_foreach(at(r, "contexts"), k, x) cell_bytes(num(x, "bytes"), 10);
        (void)fputc('\n', stdout);
    }
    json_array_foreach(at(c, "equivalents"), i, r)
    {
        char label[48];
        (void)snprintf(label, sizeof label, "as %s in BF16", str(r, "name"));
        (void)printf("  %-20s %11.0f %11.1f %14s", label, num(r, "bytes_per_token"),
                     num(r, "bytes_per_token_layer"), "");
        print_ratio(r, "vs_bf16");
        print_ratio(r, "vs_mha");
        (void)fputc('\n', stdout);
    }
}

/* ---- the machine ------------------------------------------------------------ */

/* Experts in the memory of the host. */
static void print_host(const json_t *h)
{
    char a[32];
    if (!json_is_object(h)) return;
    cli_bytes_text(num(h, "expert_bytes"), a, sizeof a);
    (void)printf("%-12sin the host's: routed experts of %.0f layers, %s", "", num(h, "layers"), a);
    if (num(h, "upload_tokens") > 0)
        (void)printf("; sent to the GPU for prompts of %.0f tokens and more", num(h, "upload_tokens"));
    (void)fputc('\n', stdout);
    if (num(h, "bandwidth") <= 0)
        (void)printf("%-12sno rates without --ram-bandwidth\n", "");
}

static void print_why_not(const json_t *l)
{
    if (is(l, "runs")) return;
    (void)printf("%-12snibble does not run it so: ", "");
    print_plain(str(l, "why_not"));
    (void)fputc('\n', stdout);
}

static void print_machine(const json_t *j)
{
    const json_t *m = at(j, "machine"), *l = at(j, "layout"), *g = at(l, "per_gpu"),
                 *cost = at(j, "cost");
    char a[32], b[32], d[32];
    cli_bytes_text(num(m, "memory_bytes"), a, sizeof a);
    (void)printf("\n%-12s%.0f x ", "machine", num(l, "gpus"));
    print_plain(str(m, "title"));
    (void)printf(", %s each", a);
    if (num(m, "bandwidth") > 0) (void)printf(", %.4g TB/s", num(m, "bandwidth") / 1e12);
    if (num(m, "bf16_flops") > 0) (void)printf(", %.4g TFLOP/s BF16", num(m, "bf16_flops") / 1e12);
    if (json_is_object(cost)) {
        (void)printf("; $%.4g an hour (", num(cost, "price_per_hour"));
        print_plain(str(cost, "source"));
        (void)fputc(')', stdout);
    }
    (void)printf("\n%-12stensor parallel %.0f, data parallel %.0f", "layout",
                 num(l, "tensor_parallel"), num(l, "data_parallel"));
    if (num(l, "expert_parallel") > 1)
        (void)printf(", experts over %.0f", num(l, "expert_parallel"));
    if (is(l, "suggested") && num(l, "gpus") > 1) (void)printf(" (suggested)");
    cli_bytes_text(num(g, "budget_bytes"), d, sizeof d);
    if (is(l, "fits")) {
        const cli_memory_part parts[] = { { "weights", num(g, "weight_bytes") },
                                          { "reserve", num(g, "reserve_bytes") },
                                          { "cache", num(g, "cache_bytes") } };
        char text[160];
        cli_memory_text(parts, sizeof parts / sizeof *parts, text, sizeof text);
        (void)printf("\n%-12sof %s on each: %s\n", "memory", d, text);
        print_host(at(l, "host"));
        print_why_not(l);
        return;
    }
    cli_bytes_text(num(g, "weight_bytes"), a, sizeof a);
    cli_bytes_text(num(g, "reserve_bytes"), b, sizeof b);
    (void)printf("\n%-12sdoes not fit: of %s on each, weights take %s and the reserve %s\n",
                 "memory", d, a, b);
    print_why_not(l);
    const json_t *n = at(l, "needed");
    if (!json_is_object(n)) return;
    if (is(l, "runs")) print_why_not(n);
    (void)printf("%-12s%.0f of them would do%s: tensor parallel %.0f, data parallel %.0f\n", "", num(n, "gpus"),
                 is(n, "runs") ? "" : " for an engine that does", num(n, "tensor_parallel"), num(n, "data_parallel"));
}

static void print_capacity(const json_t *list)
{
    size_t i, k;
    json_t *r, *x;
    if (!json_array_size(list)) return;
    const json_t *first = at(json_array_get(list, 0), "contexts");
    (void)printf("\n%-14s %16s %16s   users of", "what fits", "tokens / replica", "tokens in all");
    json_array_foreach((json_t *)(uintptr_t)first, k, x) cell_context(num(x, "context"), 10);
    (void)printf("   $/session-hour");
    json_array_foreach((json_t *)(uintptr_t)first, k, x) cell_context(num(x, "context"), 8);
    (void)fputc('\n', stdout);
    json_array_foreach((json_t *)(uintptr_t)list, i, r)
    {
        (void)printf("%s %-12s", is(r, "marked") ? "*" : " ", str(r, "dtype"));
        cell_count(num(r, "tokens_per_replica"), 16);
        cell_count(num(r, "tokens"), 16);
        (void)printf("%11s", "");
        json_array_foreach(at(r, "contexts"), k, x) cell_count(num(x, "users"), 10);
        (void)printf("%17s", "");
        json_array_foreach(at(r, "contexts"), k, x) cell_money(num(x, "price_per_session_hour"), 8);
        (void)fputc('\n', stdout);
    }
}

/* ---- rates ------------------------------------------------------------------ */

static bool marked(const json_t *report, const char *dtype)
{
    size_t i;
    json_t *r;
    json_array_foreach(at(report, "capacity"), i, r)
    {
        if (is(r, "marked") && strcmp(str(r, "dtype"), dtype) == 0) return true;
    }
    return false;
}
bool plan_shown(const json_t *report, const char *dtype)
{
    static const char *const some[] = { "bf16", "fp8", "nvfp4" };
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        if (strcmp(some[i], dtype) == 0) return true;
    return marked(report, dtype);
}
bool plan_row_shown(const json_t *report, const json_t *row)
{
    const char *dtype = str(row, "dtype");
    return marked(report, dtype) || (is(row, "all_that_fit") && plan_shown(report, dtype));
}

void plan_bound_text(const char *bound, char *out, size_t n)
{
    const bool bytes = strcmp(bound, "weights") == 0 || strcmp(bound, "cache") == 0 ||
                       strcmp(bound, "host") == 0;
    (void)snprintf(out, n, "%s: %s", bytes ? "bandwidth" : "arithmetic", bound);
}

static void print_decode(const json_t *j)
{
    size_t i;
    json_t *r;
    if (!json_array_size(at(j, "decode"))) return;
    (void)printf("\n%-10s %8s %9s | %9s %10s %9s | %9s %10s %9s | %s\n", "decode", "context",
                 "sequences", "at most", "tok/s", "$/M", "modelled", "tok/s", "$/M", "bound by");
    json_array_foreach(at(j, "decode"), i, r)
    {
        static const char *const key[] = { "most", "model" };
        if (!plan_row_shown(j, r)) continue;
        (void)printf("  %-8s", str(r, "dtype"));
        cell_context(num(r, "context"), 8);
        cell_count(num(r, "concurrency"), 9);
        for (int k = 0; k < 2; k++) {
            const json_t *t = at(r, key[k]);
            (void)printf(" | %6.1f ms", num(t, "step_ms"));
            cell_rate(num(t, "tokens_per_second"), 10);
            cell_money(num(t, "price_per_million"), 9);
        }
        char bound[48];
        plan_bound_text(str(r, "bound"), bound, sizeof bound);
        (void)printf(" | %s\n", bound);
    }
}

static void print_prefill(const json_t *list)
{
    size_t i;
    json_t *r;
    if (!json_array_size(list)) return;
    (void)printf("\n%-10s %9s %10s | %12s %10s | %12s %10s | %s\n", "prompt", "PFLOP", "attention",
                 "TTFT at most", "tok/s", "modelled", "tok/s", "bound by");
    json_array_foreach((json_t *)(uintptr_t)list, i, r)
    {
        cell_context(num(r, "prompt"), 9);
        (void)printf(" %9.3f %9.0f%% | %9.1f ms", num(r, "flop") / 1e15,
                     100 * num(r, "attention_fraction"), num(r, "ttft_ms_most"));
        cell_rate(num(r, "tokens_per_second_most"), 10);
        (void)printf(" | %9.1f ms", num(r, "ttft_ms_model"));
        cell_rate(num(r, "tokens_per_second_model"), 10);
        const char *bound = str(r, "bound");
        (void)printf(" | %s\n", strcmp(bound, "weights") == 0 ? "bandwidth: weights"
                                : strcmp(bound, "host") == 0  ? "PCIe: experts"
                                                              : "arithmetic");
    }
}

static void print_measured(const json_t *c)
{
    if (!(num(c, "measured_tokens_per_second") > 0)) return;
    (void)printf(
        "\nmeasured    %.6g tokens/s: $%.4g a million tokens = %.4g / (%.6g * 3600) * 10^6\n",
        num(c, "measured_tokens_per_second"), num(c, "measured_price_per_million"),
        num(c, "price_per_hour"), num(c, "measured_tokens_per_second"));
}

void plan_print(const json_t *j)
{
    print_model(at(j, "model"));
    print_weights(at(j, "weights"));
    print_cache(at(j, "cache"));
    if (json_is_object(at(j, "machine"))) {
        print_machine(j);
        if (is(at(j, "layout"), "fits")) print_capacity(at(j, "capacity"));
        print_decode(j);
        print_prefill(at(j, "prefill"));
        print_measured(at(j, "cost"));
    }
    bullets("assumptions", at(j, "assumptions"));
    bullets("notes", at(j, "notes"));
}
