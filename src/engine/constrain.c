/* constrain.c - a request's grammar: what its next token may be.
 *
 * A match is made with the first token, not with the request: it takes some hundred KiB, and a request may
 * wait for long.  Its masks are made by the tasks that draw the tokens, so in parallel, and depend on the
 * request's text alone. */
#include <stdlib.h>
#include <string.h>

#include "engine/engine_internal.h"

nb_status nb_run_constrain(const nb_engine *e, nb_run *r, nb_grammar *g, nb_error *err)
{
    const nb_vocab *v;
    if (!g) return NB_OK;
    if (!e->text) return nb_fail(err, NB_ERR_ARG, "a grammar needs the model's tokenizer");
    NB_TRY(nb_grammars_vocab(nb_text_grammars(e->text), &v, err));
    if (nb_grammar_vocab(g) != v)
        return nb_fail(err, NB_ERR_ARG, "the grammar was compiled for another tokenizer");
    r->grammar = nb_grammar_ref(g);
    r->match_start = nb_grammar_start(g, r->prompt, r->n_prompt);
    return NB_OK;
}

void nb_run_unconstrain(nb_run *r)
{
    nb_match_destroy(r->match);
    nb_grammar_unref(r->grammar);
    free(r->mask);
}

static nb_status make_match(nb_run *r)
{
    if (r->match) return NB_OK;
    const size_t n_word = nb_vocab_mask_words(nb_grammar_vocab(r->grammar));
    if (!r->mask) r->mask = calloc(n_word, sizeof *r->mask);
    if (!r->mask) return NB_ERR_NOMEM;
    return nb_match_create(r->grammar, r->match_start, &r->match, NULL);
}

bool nb_run_is_free(const nb_run *r)
{
    return !r->grammar || (r->match && nb_match_free(r->match));
}

/* Whether id ends the text: not a token of it. */
static bool is_end(const nb_run *r, uint32_t id)
{
    for (size_t i = 0; i < r->n_end; i++)
        if (r->end_id[i] == id) return true;
    return false;
}

nb_status nb_run_mask(nb_run *r, nb_sample_mask *mask, bool *need)
{
    *need = false;
    if (!r->grammar) return NB_OK;
    NB_TRY(make_match(r));
    if (nb_match_free(r->match)) return NB_OK;
    const nb_vocab *v = nb_grammar_vocab(r->grammar);
    const size_t n_word = nb_vocab_mask_words(v);
    const uint64_t *bits;
    NB_TRY(nb_match_mask(r->match, &bits));
    memcpy(r->mask, bits, n_word * sizeof *bits);
    const bool accepting = nb_match_accepting(r->match);
    for (size_t i = 0; i < r->n_end; i++) {
        const uint32_t id = r->end_id[i];
        if (id >= nb_vocab_size(v)) continue;
        const uint64_t bit = 1ull << (id & 63);
        /* An end of text is one in no other sense; a stop token may also be a part of the text. */
        if (accepting)
            r->mask[id >> 6] |= bit;
        else if (i < r->n_eos)
            r->mask[id >> 6] &= ~bit;
    }
    uint64_t any = 0;
    for (size_t i = 0; i < n_word; i++) any |= r->mask[i];
    if (!any) return accepting ? NB_ERR_NOT_FOUND : NB_ERR_INTERNAL;
    *mask = (nb_sample_mask){ r->mask, nb_vocab_size(v) };
    *need = true;
    return NB_OK;
}

nb_status nb_run_note(nb_run *r, uint32_t id)
{
    if (!r->match || (is_end(r, id) && nb_match_accepting(r->match))) return NB_OK;
    const nb_status st = nb_match_accept(r->match, id);
    if (st != NB_ERR_ARG) return st;
    /* In free text a stop token ends the request whatever the grammar says. */
    return is_end(r, id) ? NB_OK : NB_ERR_INTERNAL;
}

void nb_engine_formats(const nb_engine *e, const char **calls, const char **thought_open,
                       const char **thought_close)
{
    const nb_text_formats *f = e->text ? nb_text_formats_of(e->text) : NULL;
    *calls = f && f->calls ? nb_call_format_name(f->calls) : NULL;
    *thought_open = f && f->thought ? nb_thought_format_open(f->thought).p : NULL;
    *thought_close = f && f->thought ? nb_thought_format_close(f->thought).p : NULL;
}
