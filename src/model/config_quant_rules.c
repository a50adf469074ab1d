/* config_quant_rules.c - see config_quant_rules.h. */
#include "model/config_quant_rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

enum { MAX_RULE = 1 << 17, MAX_REGEX_LAYERS = 1 << 16, MAX_NAME_LAYERS = 1 << 23, NAME_BYTES = 160 };
/* Of names of experts against expressions that may tell them apart. */
enum { MAX_REGEX_EXPERTS = 1 << 22 };

/* Names behind "model.layers.N."; the second one is the fused matrix's, the third DeepSeek V4's. */
static const struct {
    const char *name, *fused, *v4;
} names[NB_QU_COUNT] = {
    [NB_QU_Q] = { "self_attn.q_proj", "self_attn.qkv_proj", NULL },
    [NB_QU_Q_A] = { "self_attn.q_a_proj", "self_attn.fused_qkv_a_proj_with_mqa", NULL },
    [NB_QU_Q_B] = { "self_attn.q_b_proj", NULL, NULL },
    [NB_QU_KV_A] = { "self_attn.kv_a_proj_with_mqa", "self_attn.fused_qkv_a_proj_with_mqa",
                       "self_attn.kv_proj" },
    [NB_QU_KV_B] = { "self_attn.kv_b_proj", NULL, NULL },
    [NB_QU_K] = { "self_attn.k_proj", "self_attn.qkv_proj", NULL },
    [NB_QU_V] = { "self_attn.v_proj", "self_attn.qkv_proj", NULL },
    [NB_QU_O] = { "self_attn.o_proj", NULL, "self_attn.o_b_proj" },
    [NB_QU_O_A] = { "self_attn.o_a_proj", NULL, NULL },
    [NB_QU_INDEX_Q] = { "self_attn.compressor.indexer.q_b_proj", NULL, NULL },
    [NB_QU_DENSE] = { "mlp.gate_proj", "mlp.gate_up_proj", NULL },
    [NB_QU_DENSE_UP] = { "mlp.up_proj", "mlp.gate_up_proj", NULL },
    [NB_QU_DENSE_DOWN] = { "mlp.down_proj", NULL, NULL },
    [NB_QU_SHARED] = { "mlp.shared_experts.gate_proj", "mlp.shared_experts.gate_up_proj", NULL },
    [NB_QU_SHARED_UP] = { "mlp.shared_experts.up_proj", "mlp.shared_experts.gate_up_proj", NULL },
    [NB_QU_SHARED_DOWN] = { "mlp.shared_experts.down_proj", NULL, NULL },
    [NB_QU_EXPERT] = { "mlp.experts.0.gate_proj", "mlp.experts.gate_up_proj", NULL },
    [NB_QU_EXPERT_UP] = { "mlp.experts.0.up_proj", "mlp.experts.gate_up_proj", NULL },
    [NB_QU_EXPERT_DOWN] = { "mlp.experts.0.down_proj", "mlp.experts.down_proj", NULL },
    [NB_QU_HEAD] = { "lm_head", NULL, NULL },
    [NB_QU_ROUTER] = { "mlp.gate", NULL, NULL },
    [NB_QU_EMBED] = { "model.embed_tokens", NULL, NULL },
    [NB_QU_K_B] = { "self_attn.k_b_proj", NULL, NULL },
    [NB_QU_V_B] = { "self_attn.v_b_proj", NULL, NULL },
};

const char *nb_quant_unit_name(nb_quant_unit u)
{
    return names[u].name;
}

bool nb_quant_unit_in(nb_quant_unit u, bool dense)
{
    return u >= NB_QU_DENSE && u <= NB_QU_DENSE_DOWN            ? dense
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

/* The number behind `word` in a name or a part of one, a whole component; -1: there is none. */
static long number_behind(const char *text, const char *word, bool may_go_on)
{
    const char *p = strstr(text, word);
    char *end = NULL;
    if (!p || p[strlen(word)] < '0' || p[strlen(word)] > '9') return -1;
    const long n = strtol(p + strlen(word), &end, 10);
    return *end == '.' || (*end == 0 && !may_go_on) ? n : -1;
}

/* Which modules a rule can match at all.  Names of the experts of a layer differ in the digits behind "experts."; a
 * part of a name without digits, or one that names a layer and no expert, matches all of them or none.  So does a
 * pattern of letters, escaped points and ".*" ("*" in a shell pattern), since only the latter match digits. */
static void find_reach(nb_quant_rule *r, const char *text)
{
    const nb_pattern_kind kind = r->pattern.kind;
    r->layer = r->expert = -1;
    if (kind >= NB_PATTERN_WILD) {
        const char *p = text;
        for (; *p; p++) {
            if ((*p | 32) >= 'a' && (*p | 32) <= 'z') continue;
            if (kind == NB_PATTERN_WILD ? strchr("_.*", *p) != NULL : strchr("_()|^$", *p) != NULL) continue;
            if (kind == NB_PATTERN_WILD) break;
            if (!(*p == '\\' && p[1] == '.') && !(*p == '.' && p[1] == '*')) break;
            p++;
        }
        r->tells = *p != 0;
        return;
    }
    r->layer = number_behind(text, "layers.", kind == NB_PATTERN_SUBSTR);
    r->expert = number_behind(text, ".experts.", kind == NB_PATTERN_SUBSTR);
    r->tells = strpbrk(text, "0123456789") && (r->layer < 0 || strstr(text, "experts"));
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
    find_reach(r, text);
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
    char s[6][NAME_BYTES];
    size_t n, n_own; /* the first n_own are the module's own, the others the fused matrix's */
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

static void aliases_of(int u, size_t layer, size_t expert, bool inner, aliases *a)
{
    const bool whole = u == NB_QU_HEAD || u == NB_QU_EMBED;
    char own[NAME_BYTES];
    const char *name = names[u].name;
    if (expert) {
        (void)snprintf(own, sizeof own, "mlp.experts.%zu%s", expert, strrchr(name, '.'));
        name = own;
    }
    a->n = 0;
    add_alias(a, name, layer, whole, inner);
    if (names[u].v4) add_alias(a, names[u].v4, layer, whole, inner);
    a->n_own = a->n;
    if (names[u].fused) add_alias(a, names[u].fused, layer, whole, inner);
}

/* Rules that can match something in a layer, in their order. */
typedef struct near_rules {
    const nb_quant_rule **rule;
    size_t n, n_tell;
} near_rules;

static void near_layer(const nb_quant_rules *x, size_t layer, near_rules *out)
{
    out->n = out->n_tell = 0;
    for (size_t i = 0; i < x->n; i++) {
        if (x->rule[i].layer >= 0 && x->rule[i].layer != (long)layer) continue;
        out->rule[out->n++] = &x->rule[i];
        out->n_tell += x->rule[i].tells;
    }
}

/* The form of a module; of experts, of number `expert`. */
static nb_status form_of(const nb_quant_rules *x, const near_rules *near, int u, size_t layer,
                         size_t expert, bool inner, unsigned char *out, nb_error *err)
{
    const nb_quant_rule *best = NULL;
    aliases a;
    aliases_of(u, layer, expert, inner, &a);
    for (size_t i = 0; i < near->n; i++) {
        const nb_quant_rule *r = near->rule[i];
        if (r->expert >= 0 && r->expert != (long)expert) continue;
        if (best && r->rank <= best->rank) continue;
        /* AWQ's parts of names: "mlp.gate" is in "mlp.gate_up_proj", which no such file has */
        const size_t n = r->pattern.kind == NB_PATTERN_SUBSTR ? a.n_own : a.n;
        for (size_t k = 0; k < n; k++) {
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

/* Experts after the first, where rules tell them apart. */
static nb_status count_odd(const nb_quant_rules *x, const near_rules *near, const nb_quant_model *m,
                           int u, size_t layer, unsigned char first, nb_quant *q, nb_error *err)
{
    unsigned short n[NB_QUANT_MAX_FORM + 1] = { 0 };
    for (size_t j = 1; j < m->n_expert; j++) {
        unsigned char form = 0;
        NB_TRY(form_of(x, near, u, layer, j, m->inner, &form, err));
        n[form]++;
    }
    for (size_t k = 0; k <= q->n_form; k++) {
        if (k == first || !n[k]) continue;
        if (q->n_odd == NB_QUANT_MAX_ODD)
            return nb_fail(err, NB_ERR_LIMIT, "experts have too many different forms (expected at most %d)",
                           NB_QUANT_MAX_ODD);
        q->odd[q->n_odd++] =
            (nb_quant_odd){ (unsigned short)layer, n[k], (unsigned char)u, (unsigned char)k };
    }
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

static nb_status apply_layer(const nb_quant_rules *x, const near_rules *near, const nb_quant_model *m,
                             size_t i, nb_quant *q, nb_quant_layer *layer, nb_error *err)
{
    for (int u = 0; u < NB_QU_COUNT; u++) {
        unsigned char *f = &layer[i].form[u];
        const bool expert = u >= NB_QU_EXPERT && u <= NB_QU_EXPERT_DOWN;
        *f = 0;
        if (i > 0 && (u == NB_QU_HEAD || u == NB_QU_EMBED))
            *f = layer[0].form[u];
        else if (u < NB_QU_K_B && nb_quant_unit_in((nb_quant_unit)u, m->dense[i]))
            NB_TRY(form_of(x, near, u, i, 0, m->inner, f, err));
        if (expert && near->n_tell && !m->dense[i])
            NB_TRY(count_odd(x, near, m, u, i, *f, q, err));
    }
    return NB_OK;
}

static nb_status check_work(const nb_quant_rules *x, const nb_quant_model *m, nb_error *err)
{
    size_t n_tell = 0;
    for (size_t i = 0; i < x->n; i++) n_tell += x->rule[i].pattern.kind >= NB_PATTERN_WILD && x->rule[i].tells;
    if (x->n_regex * m->n_layer > MAX_REGEX_LAYERS || x->n * m->n_layer > MAX_NAME_LAYERS)
        return nb_fail(err, NB_ERR_LIMIT,
                       "%s: quantization_config: %zu names and %zu patterns of modules for %zu layers: "
                       "expected at most %d and %d",
                       x->file, x->n - x->n_regex, x->n_regex, m->n_layer,
                       MAX_NAME_LAYERS / (int)m->n_layer, MAX_REGEX_LAYERS / (int)m->n_layer);
    if (n_tell * m->n_layer * m->n_expert > MAX_REGEX_EXPERTS)
        return nb_fail(err, NB_ERR_LIMIT,
                       "%s: quantization_config: %zu patterns for %zu layers of %zu experts: expected at most %zu",
                       x->file, n_tell, m->n_layer, m->n_expert,
                       MAX_REGEX_EXPERTS / (m->n_layer * m->n_expert));
    return NB_OK;
}

nb_status nb_quant_rules_apply(const nb_quant_rules *x, const nb_quant_model *m, nb_quant *q,
                               nb_quant_layer *layer, nb_error *err)
{
    nb_status st = check_work(x, m, err);
    NB_TRY(st);
    near_rules near = { .rule = malloc((x->n + 1) * sizeof *near.rule) };
    if (!near.rule) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    q->n_expert = m->n_expert;
    q->n_odd = 0;
    for (size_t i = 0; i < m->n_layer && st == NB_OK; i++) {
        near_layer(x, i, &near);
        st = named(x, apply_layer(x, &near, m, i, q, layer, err), err);
    }
    free((void *)near.rule);
    NB_TRY(st);
    nb_quant_summarise(q, m->dense, m->n_layer, layer);
    for (size_t i = 0; i < q->n_odd; i++) q->partly |= NB_QU_BIT(q->odd[i].unit);
    return NB_OK;
}

/* The form of expert j: those of other forms than the first are the last ones. */
static unsigned char form_of_expert(const nb_quant *q, const nb_quant_layer *layer, size_t i, int u,
                                    size_t j)
{
    size_t end = q->n_expert;
    for (size_t k = 0; k < q->n_odd; k++) {
        const nb_quant_odd *o = &q->odd[k];
        if (o->layer != i || o->unit != u) continue;
        end -= o->n;
        if (j >= end) return o->form;
    }
    return layer[i].form[u];
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
    char name[NAME_BYTES]; /* experts.7.up_proj -> experts.0.up_proj */
    const char *expert = strstr(rest, ".experts.");
    const int n = (int)(expert ? expert - rest + 9 : 0);
    const char *tail = expert ? strchr(expert + 9, '.') : NULL;
    (void)snprintf(name, sizeof name, "%.*s%s%s", n, rest, expert ? "0" : "",
                   expert ? (tail ? tail : "") : rest);
    for (int u = 0; u < NB_QU_COUNT; u++) {
        if (strcmp(name, names[u].name) != 0 && (!names[u].v4 || strcmp(name, names[u].v4) != 0)) continue;
        const size_t form =
            expert ? form_of_expert(q, layer, i, u, strtoul(expert + 9, NULL, 10)) : layer[i].form[u];
        return form ? &q->form[form - 1] : NULL;
    }
    return NULL;
}
