/* config_quant_rules.c - see config_quant_rules.h. */
#include "model/config_quant_rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

enum { MAX_RULE = 1 << 17, MAX_REGEX_LAYERS = 1 << 16, MAX_NAME_LAYERS = 1 << 23, NAME_BYTES = 160 };

/* Names behind "model.layers.N."; the second one is the fused matrix's. */
static const struct {
    const char *name, *fused;
} names[NB_QU_COUNT] = {
    [NB_QU_Q] = { "self_attn.q_proj", "self_attn.qkv_proj" },
    [NB_QU_Q_A] = { "self_attn.q_a_proj", "self_attn.fused_qkv_a_proj_with_mqa" },
    [NB_QU_Q_B] = { "self_attn.q_b_proj", NULL },
    [NB_QU_KV_A] = { "self_attn.kv_a_proj_with_mqa", "self_attn.fused_qkv_a_proj_with_mqa" },
    [NB_QU_KV_B] = { "self_attn.kv_b_proj", NULL },
    [NB_QU_K] = { "self_attn.k_proj", "self_attn.qkv_proj" },
    [NB_QU_V] = { "self_attn.v_proj", "self_attn.qkv_proj" },
    [NB_QU_O] = { "self_attn.o_proj", NULL },
    [NB_QU_DENSE] = { "mlp.gate_proj", "mlp.gate_up_proj" },
    [NB_QU_DENSE_DOWN] = { "mlp.down_proj", NULL },
    [NB_QU_SHARED] = { "mlp.shared_experts.gate_proj", "mlp.shared_experts.gate_up_proj" },
    [NB_QU_SHARED_DOWN] = { "mlp.shared_experts.down_proj", NULL },
    [NB_QU_EXPERT] = { "mlp.experts.0.gate_proj", "mlp.experts.gate_up_proj" },
    [NB_QU_EXPERT_DOWN] = { "mlp.experts.0.down_proj", "mlp.experts.down_proj" },
    [NB_QU_HEAD] = { "lm_head", NULL },
    [NB_QU_ROUTER] = { "mlp.gate", NULL },
    [NB_QU_EMBED] = { "model.embed_tokens", NULL },
    [NB_QU_K_B] = { "self_attn.k_b_proj", NULL },
    [NB_QU_V_B] = { "self_attn.v_b_proj", NULL },
};

const char *nb_quant_unit_name(nb_quant_unit u)
{
    return names[u].name;
}

bool nb_quant_unit_in(nb_quant_unit u, bool dense)
{
    return u == NB_QU_DENSE || u == NB_QU_DENSE_DOWN            ? dense
           : (u >= NB_QU_SHARED && u <= NB_QU_EXPERT_DOWN) ||
                   u == NB_QU_ROUTER                            ? !dense
                                                                : true;
}

/* Puts the file before a line about a name or pattern. */
static nb_status named(const nb_quant_rules *x, nb_status st, nb_error *err)
{
    if (st == NB_OK || !err) return st;
    const nb_error why = *err;
    return nb_fail(err, st, "%s: quantization_config: %.300s", x->file, why.msg);
}

nb_status nb_quant_rule_add(nb_quant_rules *x, nb_pattern_kind kind, const char *text,
                            unsigned char form, nb_quant_rank rank, nb_error *err)
{
    if (x->n >= MAX_RULE)
        return named(x, nb_fail(err, NB_ERR_LIMIT, "more than %d names of modules", MAX_RULE), err);
    if (NB_GROW(x->rule, x->cap, x->n) != NB_OK)
        return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    nb_quant_rule *r = &x->rule[x->n];
    NB_TRY(named(x, nb_pattern_init(&r->pattern, kind, text, err), err));
    r->form = form;
    r->rank = rank;
    x->n++;
    x->n_regex += kind >= NB_PATTERN_WILD;
    return NB_OK;
}

void nb_quant_rule_class(nb_quant_rules *x, unsigned units, unsigned char form)
{
    for (int u = 0; u < NB_QU_COUNT; u++)
        if (units >> u & 1 && !x->base[u]) x->base[u] = form;
}

void nb_quant_rules_deinit(nb_quant_rules *x)
{
    for (size_t i = 0; i < x->n; i++) nb_pattern_deinit(&x->rule[i].pattern);
    free(x->rule);
    *x = (nb_quant_rules){ 0 };
}

/* All names of a module. */
typedef struct aliases {
    char s[4][NAME_BYTES];
    size_t n;
} aliases;

static void add_alias(aliases *a, const char *name, size_t layer, bool whole, bool inner)
{
    for (int k = 0; k < (inner ? 2 : 1); k++) {
        char *s = a->s[a->n++];
        const char *before = k ? "language_model." : "";
        if (whole)
            (void)snprintf(s, NAME_BYTES, "%s%s", before, name);
        else
            (void)snprintf(s, NAME_BYTES, "%smodel.layers.%zu.%s", before, layer, name);
    }
}

static void aliases_of(int u, size_t layer, bool inner, aliases *a)
{
    const bool whole = u == NB_QU_HEAD || u == NB_QU_EMBED;
    a->n = 0;
    add_alias(a, names[u].name, layer, whole, inner);
    if (names[u].fused) add_alias(a, names[u].fused, layer, whole, inner);
}

static nb_status form_of(const nb_quant_rules *x, int u, size_t layer, bool inner,
                         unsigned char *out, nb_error *err)
{
    const nb_quant_rule *best = NULL;
    aliases a;
    aliases_of(u, layer, inner, &a);
    for (size_t i = 0; i < x->n; i++) {
        const nb_quant_rule *r = &x->rule[i];
        if (best && r->rank <= best->rank) continue;
        for (size_t k = 0; k < a.n; k++) {
            bool yes = false;
            NB_TRY(nb_pattern_match(&r->pattern, a.s[k], &yes, err));
            if (!yes) continue;
            best = r;
            break;
        }
        if (best && best->rank == NB_QR_PLAIN) break;
    }
    *out = best ? best->form : x->base[u];
    return NB_OK;
}

void nb_quant_summarise(nb_quant *q, const bool *dense, size_t n_layer,
                        const nb_quant_layer *layer)
{
    q->partly = 0;
    for (int u = 0; u < NB_QU_COUNT; u++) {
        size_t n[NB_QUANT_MAX_FORM + 1] = { 0 }, of = 0, best = 0;
        for (size_t i = 0; i < n_layer; i++) {
            if (!nb_quant_unit_in((nb_quant_unit)u, dense[i])) continue;
            n[layer[i].form[u]]++;
            of++;
        }
        for (size_t k = 1; k <= q->n_form; k++)
            if (n[k] > n[best]) best = k;
        q->of[u] = (unsigned char)best;
        if (n[best] < of) q->partly |= NB_QU_BIT(u);
    }
}

nb_status nb_quant_rules_apply(const nb_quant_rules *x, const bool *dense, size_t n_layer,
                               bool inner, nb_quant *q, nb_quant_layer *layer, nb_error *err)
{
    if (x->n_regex * n_layer > MAX_REGEX_LAYERS || x->n * n_layer > MAX_NAME_LAYERS)
        return nb_fail(err, NB_ERR_LIMIT,
                       "%s: quantization_config: %zu names and %zu patterns of modules for %zu layers: "
                       "expected at most %d and %d",
                       x->file, x->n - x->n_regex, x->n_regex, n_layer, MAX_NAME_LAYERS / (int)n_layer,
                       MAX_REGEX_LAYERS / (int)n_layer);
    for (size_t i = 0; i < n_layer; i++)
        for (int u = 0; u < NB_QU_COUNT; u++) {
            unsigned char *f = &layer[i].form[u];
            *f = 0;
            if (i > 0 && (u == NB_QU_HEAD || u == NB_QU_EMBED))
                *f = layer[0].form[u];
            else if (u < NB_QU_K_B && nb_quant_unit_in((nb_quant_unit)u, dense[i]))
                NB_TRY(named(x, form_of(x, u, i, inner, f, err), err));
        }
    nb_quant_summarise(q, dense, n_layer, layer);
    return NB_OK;
}

const nb_quant_form *nb_quant_of(const nb_quant *q, const nb_quant_layer *layer, size_t n_layer,
                                 const char *module)
{
    static const char layers[] = "model.layers.";
    size_t i = 0;
    const char *rest = module;
    if (strncmp(module, layers, sizeof layers - 1) == 0) {
        char *end;
        i = strtoul(module + sizeof layers - 1, &end, 10);
        rest = end + (*end == '.');
    }
    if (i >= n_layer) return NULL;
    char name[NAME_BYTES]; /* experts.7.up_proj -> experts.0.gate_proj */
    const char *expert = strstr(rest, ".experts."), *up = strstr(rest, "up_proj");
    const int n = (int)(expert ? expert - rest + 9 : 0);
    const char *tail = expert ? strchr(expert + 9, '.') : NULL;
    (void)snprintf(name, sizeof name, "%.*s%s%s", n, rest, expert ? "0" : "",
                   expert ? (tail ? tail : "") : rest);
    char *at = strstr(name, "up_proj");
    if (up && at && (size_t)(at - name) + 10 < sizeof name) memcpy(at, "gate_proj", 10);
    for (int u = 0; u < NB_QU_COUNT; u++)
        if (strcmp(name, names[u].name) == 0)
            return layer[i].form[u] ? &q->form[layer[i].form[u] - 1] : NULL;
    return NULL;
}
