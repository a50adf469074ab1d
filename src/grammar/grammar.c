/* grammar.c - compiling a specification; see grammar.h. */
#include "grammar/grammar.h"

#include <stdlib.h>

#include "grammar/graph.h"
#include "grammar/vocab.h"

static const char *const kind_name[] = {
    [NB_GRAMMAR_JSON_SCHEMA] = "json_schema",
    [NB_GRAMMAR_JSON_OBJECT] = "json_object",
    [NB_GRAMMAR_REGEX] = "regex",
    [NB_GRAMMAR_CHOICE] = "choice",
    [NB_GRAMMAR_GBNF] = "grammar",
    [NB_GRAMMAR_TOOLS] = "tools",
};

nb_grammar *nb_grammar_ref(nb_grammar *g)
{
    atomic_fetch_add_explicit(&g->n_ref, 1, memory_order_relaxed);
    return g;
}

void nb_grammar_unref(nb_grammar *g)
{
    if (!g || atomic_fetch_sub_explicit(&g->n_ref, 1, memory_order_acq_rel) != 1) return;
    free(g->node);
    free(g->edge);
    free(g->rule);
    free(g->count);
    free(g->cls);
    free(g->dfa);
    free(g->set);
    free(g->obj);
    free(g->trigger);
    free(g->class_memo);
    nb_buf_deinit(&g->text);
    nb_arena_deinit(&g->arena);
    free(g);
}

size_t nb_grammar_bytes(const nb_grammar *g)
{
    return sizeof *g + g->cap_node * sizeof *g->node + g->cap_edge * sizeof *g->edge +
           g->cap_rule * sizeof *g->rule + g->cap_count * sizeof *g->count +
           g->cap_cls * sizeof *g->cls + g->cap_dfa * sizeof *g->dfa + g->cap_set * sizeof *g->set +
           g->cap_obj * sizeof *g->obj + g->cap_trigger * sizeof *g->trigger + g->text.cap_bytes +
           g->arena.used_bytes;
}

const nb_vocab *nb_grammar_vocab(const nb_grammar *g)
{
    return g->vocab;
}

size_t nb_grammar_n_node(const nb_grammar *g)
{
    return g->n_node;
}

static nb_status build(nb_grammar *g, const nb_grammar_spec *spec)
{
    const nb_str text = { spec->text, spec->text_bytes };
    NB_TRY(nb_g_automata(g));
    switch (spec->kind) {
    case NB_GRAMMAR_JSON_SCHEMA: return nb_g_schema(g, text, spec->relaxed);
    case NB_GRAMMAR_JSON_OBJECT:
        g->root = nb_g_rule_of(g, nb_g_any_object(g, nb_g_ret(g)));
        return g->err.status;
    case NB_GRAMMAR_REGEX: return nb_g_regex(g, text);
    case NB_GRAMMAR_CHOICE: return nb_g_choice(g, text);
    case NB_GRAMMAR_GBNF: return nb_g_gbnf(g, text);
    case NB_GRAMMAR_TOOLS: return nb_g_tools(g, text);
    }
    return nb_g_fail(g, NB_ERR_ARG, "an unknown kind of grammar");
}

/* The starts with a thought before the grammar. */
static void add_thoughts(nb_grammar *g, const nb_grammar_spec *spec)
{
    for (size_t i = 0; i < NB_MATCH_STARTS; i++) g->start[i] = g->root;
    g->thought_open = g->thought_close = NB_GRAMMAR_NO_TOKEN;
    if (!spec->thought_open || !spec->thought_close || !nb_g_ok(g)) return;
    const nb_str open = nb_str_c(spec->thought_open), close = nb_str_c(spec->thought_close);
    const nb_gid call = nb_g_call(g, g->root, false, nb_g_ret(g));
    const nb_gid in = nb_g_free_until(g, close, false, call);
    g->thought_open = nb_vocab_marker(g->vocab, open);
    g->thought_close = nb_vocab_marker(g->vocab, close);
    g->start[NB_MATCH_IN_THOUGHT] = nb_g_rule_of(g, in);
    g->start[NB_MATCH_MAY_THINK] = nb_g_rule_of(g, nb_g_alt2(g, nb_g_marked(g, open, in), call));
}

nb_match_start nb_grammar_start(const nb_grammar *g, const uint32_t *prompt, size_t n_prompt)
{
    if (g->start[NB_MATCH_IN_THOUGHT] == g->root) return NB_MATCH_PLAIN;
    for (size_t i = n_prompt; i-- > 0;) {
        if (prompt[i] == g->thought_open) return NB_MATCH_IN_THOUGHT;
        if (prompt[i] == g->thought_close) return NB_MATCH_PLAIN;
    }
    return NB_MATCH_MAY_THINK;
}

nb_status nb_grammar_build(const nb_vocab *v, const nb_grammar_spec *spec, nb_grammar **out,
                           nb_error *err)
{
    if (spec->text_bytes > NB_GRAMMAR_MAX_TEXT)
        return nb_fail(err, NB_ERR_LIMIT, "%s: %zu bytes: expected at most %d",
                       kind_name[spec->kind], spec->text_bytes, NB_GRAMMAR_MAX_TEXT);
    nb_grammar *g = calloc(1, sizeof *g);
    if (!g) return nb_fail(err, NB_ERR_NOMEM, "no memory for a grammar");
    atomic_init(&g->n_ref, 1);
    g->vocab = v;
    g->fuel = NB_G_FUEL;
    g->compact = spec->compact;
    g->any = g->number = g->integer = NB_G_NONE;
    if (build(g, spec) == NB_OK && spec->after && spec->after[0]) {
        const nb_gid call = nb_g_call(g, g->root, false, nb_g_ret(g));
        /* Reasoning must not be the whole answer: the text cannot end in it. */
        g->root = nb_g_rule_of(g, nb_g_free_until(g, nb_str_c(spec->after), false, call));
    }
    if (nb_g_ok(g)) add_thoughts(g, spec);
    const nb_status st = nb_g_finish(g, err);
    if (st != NB_OK) {
        nb_grammar_unref(g);
        return nb_fail_prefix(err, st, "%s", kind_name[spec->kind]);
    }
    /* What has too many alternatives at its very beginning is refused here, not when it runs. */
    nb_match *m = NULL;
    const nb_status started = nb_match_create(g, NB_MATCH_PLAIN, &m, NULL);
    nb_match_destroy(m);
    if (started != NB_OK) {
        nb_grammar_unref(g);
        return nb_fail(err, started, "%s: its first character has too many alternatives",
                       kind_name[spec->kind]);
    }
    *out = g;
    return NB_OK;
}
