/* ruler_tasks.c - what is planted and what is asked: the tasks in both dialects.
 *
 * A context is filled in the order of its tasks from one stream of random numbers; needles get a
 * place in 0..1 of the haystack.  The asked needle of a question (or one of several) is at the
 * question's depth; what belongs together in order, the values of a key or a chain, is drawn over
 * the whole haystack with one of its places at that depth. */
#include <stdlib.h>

#include "quality/ruler_internal.h"

/* ---- needles and questions ------------------------------------------------- */

static void plant(nb_ruler_context *c, const char *text, double at)
{
    if (c->failed) return;
    if (NB_GROW(c->needle, c->cap_needle, c->n_needle) != NB_OK) {
        c->failed = NB_ERR_NOMEM;
        return;
    }
    c->needle[c->n_needle] = (nb_ruler_needle){ text, at, c->n_needle };
    c->n_needle++;
}

static double place_of(const nb_ruler_context *c, size_t depth)
{
    return c->o->n_depth > 1 ? (double)depth / (double)(c->o->n_depth - 1) : 0.5;
}

static nb_ruler_question *ask(nb_ruler_context *c, nb_ruler_task task, size_t sample)
{
    nb_ruler_question *q = &c->q[c->n_q++];
    *q = (nb_ruler_question){ .task = task, .depth = sample % c->o->n_depth };
    return q;
}

static void one_ref(nb_ruler_context *c, nb_ruler_question *q, const char *ref)
{
    q->refs = nb_ruler_keep(c, &ref, 1);
    q->n_ref = 1;
}
static void many_refs(nb_ruler_context *c, nb_ruler_question *q, const char *const *ref, size_t n)
{
    q->refs = nb_ruler_keep(c, ref, n);
    q->n_ref = n;
}

/* n places in ascending order, one of them the given; its index. */
static size_t draw_places(nb_ruler_context *c, double given, size_t n, double *out)
{
    size_t mine = 0;
    for (size_t i = 0; i + 1 < n; i++) {
        const double x = nb_ruler_random(&c->rng);
        size_t k = i;
        for (; k > 0 && out[k - 1] > x; k--) out[k] = out[k - 1];
        out[k] = x;
    }
    while (mine + 1 < n && out[mine] < given) mine++;
    for (size_t k = n - 1; k > mine; k--) out[k] = out[k - 1];
    out[mine] = given;
    return mine;
}

/* A chain x0 = value, x1 = x0, ...; the names of its variables in `var`. */
static void plant_chain(nb_ruler_context *c, nb_ruler_question *q, size_t n_var, size_t n_letter,
                        const char *end, const char *value, const char **var)
{
    double at[NB_RULER_MAX_VALUES];
    const size_t mine = draw_places(c, place_of(c, q->depth), n_var, at);
    for (size_t i = 0; i < n_var; i++) {
        var[i] = nb_ruler_new_letters(c, n_letter);
        const char *s = i ? nb_ruler_fmt(c, "VAR %s = VAR %s%s", var[i], var[i - 1], end)
                          : nb_ruler_fmt(c, "VAR %s = %s%s", var[i], value, end);
        plant(c, s, at[i]);
        if (i == mine) q->needle = s;
    }
}

/* ---- plain ----------------------------------------------------------------- */

static void plain_question(nb_ruler_context *c, nb_ruler_question *q, const char *text,
                           const char *answer)
{
    q->text = nb_ruler_fmt(c, "Question: %s\nAnswer:", text);
    q->answer = nb_ruler_fmt(c, " %s\n", answer);
}

static void plain_single(nb_ruler_context *c, size_t first, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        nb_ruler_question *q = ask(c, NB_RULER_SINGLE, first + i);
        const char *who = NULL, *v = NULL, *what;
        switch ((first + i) % 4) { /* four forms, so that no two of a text are confused */
        case 0:
            who = nb_ruler_new_name(c);
            v = nb_ruler_new_number(c, &c->rng, 5);
            q->needle = nb_ruler_fmt(c, "The secret number of %s is %s.", who, v);
            what = nb_ruler_fmt(c, "What is the secret number of %s?", who);
            break;
        case 1:
            who = nb_ruler_new_name(c);
            v = nb_ruler_new_made(c);
            q->needle = nb_ruler_fmt(c, "%s lives in the town of %s.", who, v);
            what = nb_ruler_fmt(c, "In which town does %s live?", who);
            break;
        case 2:
            who = nb_ruler_new_key(c, &c->rng);
            v = nb_ruler_new_made(c);
            q->needle = nb_ruler_fmt(c, "The password for %s is %s.", who, v);
            what = nb_ruler_fmt(c, "What is the password for %s?", who);
            break;
        default: {
            const char *pet = nb_ruler_pick(&c->rng, NB_RULER_PETS);
            who = nb_ruler_new_name(c);
            v = nb_ruler_new_made(c);
            q->needle = nb_ruler_fmt(c, "%s has a %s named %s.", who, pet, v);
            what = nb_ruler_fmt(c, "What is the name of the %s of %s?", pet, who);
            break;
        }
        }
        plain_question(c, q, what, v);
        one_ref(c, q, v);
        plant(c, q->needle, place_of(c, q->depth));
    }
}

/* Keys of a small grid of words: each shares its adjective with some and its noun with others. */
static const char *grid_key(nb_ruler_context *c, const char *const *a, const char *const *b,
                            size_t n)
{
    for (size_t i = 0; i < 64; i++) {
        const char *s =
            nb_ruler_fmt(c, "%s-%s", a[nb_ruler_below(&c->rng, n)], b[nb_ruler_below(&c->rng, n)]);
        if (c->failed || nb_ruler_seen_add(&c->seen, s) == NB_OK) return s;
    }
    return nb_ruler_new_key(c, &c->rng);
}

enum { GRID = 8 };
static void draw_words(nb_ruler_context *c, enum nb_ruler_list list, const char **out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool new = false;
        while (!new) {
            out[i] = nb_ruler_pick(&c->rng, list);
            new = true;
            for (size_t k = 0; k < i; k++) new = new &&strcmp(out[k], out[i]) != 0;
        }
    }
}

static void plain_multikey(nb_ruler_context *c, size_t first, size_t n)
{
    const char *a[GRID], *b[GRID];
    const size_t want = c->length / 96, n_key = want < 8 ? 8 : want < 40 ? want : 40;
    const size_t side = n_key <= 12 ? 4 : n_key <= 28 ? 6 : GRID;
    draw_words(c, NB_RULER_ADJECTIVES, a, side);
    draw_words(c, NB_RULER_NOUNS, b, side);
    for (size_t i = 0; i < n_key || i < n; i++) {
        const char *k = grid_key(c, a, b, side), *v = nb_ruler_new_number(c, &c->rng, 5);
        const char *s = nb_ruler_fmt(c, "The magic number for %s is %s.", k, v);
        if (i >= n) {
            plant(c, s, nb_ruler_random(&c->rng));
            continue;
        }
        nb_ruler_question *q = ask(c, NB_RULER_MULTIKEY, first + i);
        q->needle = s;
        plain_question(c, q, nb_ruler_fmt(c, "What is the magic number for %s?", k), v);
        one_ref(c, q, v);
        plant(c, s, place_of(c, q->depth));
    }
}

static void plain_multivalue(nb_ruler_context *c, size_t first, size_t n)
{
    enum { N_VALUE = 3 };
    for (size_t i = 0; i < n; i++) {
        nb_ruler_question *q = ask(c, NB_RULER_MULTIVALUE, first + i);
        const char *k = nb_ruler_new_key(c, &c->rng), *v[NB_RULER_MAX_VALUES];
        double at[NB_RULER_MAX_VALUES];
        const size_t mine = draw_places(c, place_of(c, q->depth), N_VALUE, at);
        for (size_t j = 0; j < N_VALUE; j++) {
            v[j] = nb_ruler_new_number(c, &c->rng, 5);
            const char *s = nb_ruler_fmt(c, NB_RULER_NEEDLE, k, v[j]);
            plant(c, s, at[j]);
            if (j == mine) q->needle = s;
        }
        plain_question(c, q, nb_ruler_fmt(c, "What are all the special magic numbers for %s?", k),
                       nb_ruler_join(c, v, N_VALUE, NB_RULER_COMMAS));
        many_refs(c, q, v, N_VALUE);
    }
}

static void plain_multiquery(nb_ruler_context *c, size_t first, size_t n)
{
    enum { ASKED = 3, MAX = 16 };
    const size_t n_key = n < 3 ? 6 : 4 * n < MAX ? 4 * n : MAX;
    const char *who[MAX], *v[MAX], *s[MAX];
    double at[MAX];
    for (size_t i = 0; i < n_key; i++) {
        who[i] = nb_ruler_new_name(c);
        v[i] = nb_ruler_new_number(c, &c->rng, 5);
        s[i] = nb_ruler_fmt(c, "%s's lucky number is %s.", who[i], v[i]);
        at[i] = nb_ruler_random(&c->rng);
    }
    for (size_t i = 0; i < n; i++) {
        nb_ruler_question *q = ask(c, NB_RULER_MULTIQUERY, first + i);
        const char *asked[ASKED], *value[ASKED];
        size_t k[ASKED] = { i % n_key }; /* the first of a question is its own */
        at[k[0]] = place_of(c, q->depth);
        q->needle = s[k[0]];
        for (size_t j = 1; j < ASKED; j++) {
            do k[j] = nb_ruler_below(&c->rng, n_key);
            while (k[j] == k[0] || (j == 2 && k[2] == k[1]));
        }
        const size_t turn = nb_ruler_below(&c->rng, ASKED);
        for (size_t j = 0; j < ASKED; j++) {
            asked[j] = who[k[(j + turn) % ASKED]];
            value[j] = v[k[(j + turn) % ASKED]];
        }
        plain_question(c, q,
                       nb_ruler_fmt(c, "What are the lucky numbers of %s?",
                                    nb_ruler_join(c, asked, ASKED, NB_RULER_ANDS)),
                       nb_ruler_join(c, value, ASKED, NB_RULER_COMMAS));
        many_refs(c, q, value, ASKED);
    }
    for (size_t i = 0; i < n_key; i++) plant(c, s[i], at[i]);
}

/* At least two chains: one alone needs no following. */
static void plain_vt(nb_ruler_context *c, size_t first, size_t n)
{
    enum { VARS = 3 };
    const char *var[NB_RULER_MAX_VALUES];
    for (size_t i = 0; i < n || i < 2; i++) {
        nb_ruler_question other = { .depth = nb_ruler_below(&c->rng, c->o->n_depth) };
        nb_ruler_question *q = i < n ? ask(c, NB_RULER_VT, first + i) : &other;
        const char *v = nb_ruler_new_number(c, &c->rng, 5);
        plant_chain(c, q, VARS, 3, ".", v, var);
        plain_question(c, q, nb_ruler_fmt(c, "Which variables hold the value %s?", v),
                       nb_ruler_join(c, var, VARS, NB_RULER_COMMAS));
        many_refs(c, q, var, VARS);
    }
}

void nb_ruler_plain_context(nb_ruler_context *c, unsigned tasks, size_t n_question, size_t first)
{
    static void (*const make[])(nb_ruler_context *, size_t, size_t) = {
        [NB_RULER_SINGLE] = plain_single,
        [NB_RULER_MULTIKEY] = plain_multikey,
        [NB_RULER_MULTIVALUE] = plain_multivalue,
        [NB_RULER_MULTIQUERY] = plain_multiquery,
        [NB_RULER_VT] = plain_vt,
    };
    c->intro = "";
    c->hay.kind = nb_ruler_below(&c->rng, 2) ? NB_RULER_HAY_STORY : NB_RULER_HAY_NOISE;
    for (size_t t = 0; t < NB_COUNT(make); t++)
        if (tasks & 1u << t) make[t](c, first, n_question);
}

/* ---- ruler ----------------------------------------------------------------- */

static void nb_ruler_niah(nb_ruler_context *c, nb_ruler_task task, size_t sample)
{
    enum { MANY = 4 };
    nb_ruler_question *q = ask(c, task, sample);
    const bool many = task == NB_RULER_MULTIVALUE || task == NB_RULER_MULTIQUERY;
    const size_t n = many ? MANY : 1, n_key = task == NB_RULER_MULTIQUERY ? MANY : 1;
    const char *key[MANY], *value[MANY];
    double at[MANY] = { 0 };
    size_t mine = 0;
    if (task == NB_RULER_SINGLE)
        c->hay.kind = NB_RULER_HAY_BLOCK;
    else
        c->hay.kind = task == NB_RULER_MULTIKEY ? NB_RULER_HAY_NEEDLES : NB_RULER_HAY_STORY;
    mine = draw_places(c, place_of(c, q->depth), n, at);
    for (size_t i = 0; i < n; i++) {
        key[i] = i < n_key ? nb_ruler_new_key(c, &c->rng) : key[0];
        value[i] = nb_ruler_new_number(c, &c->rng, 7);
        const char *s = nb_ruler_fmt(c, NB_RULER_NEEDLE, key[i], value[i]);
        plant(c, s, at[i]);
        if (i == mine) q->needle = s;
    }
    const char *keys = nb_ruler_join(c, key, n_key, NB_RULER_COMMAS_AND);
    c->intro = many
                   ? "Some special magic numbers are hidden in the text below. Remember them: you "
                     "will be asked about them afterwards.\n"
                   : "A special magic number is hidden in the text below. Remember it: you will be "
                     "asked about it afterwards.\n";
    q->text =
        many ? nb_ruler_fmt(c,
                            "What are all the special magic numbers for %s that the text above "
                            "mentions?\nThe special magic numbers for %s that the text above "
                            "mentions are",
                            keys, keys)
             : nb_ruler_fmt(c,
                            "What is the special magic number for %s that the text above "
                            "mentions?\nThe special magic number for %s that the text above "
                            "mentions is",
                            keys, keys);
    q->answer = nb_ruler_fmt(c, " %s.", nb_ruler_join(c, value, n, NB_RULER_COMMAS_AND));
    many_refs(c, q, value, n);
    q->max_tok = 128;
}

/* An example with letters and a value of its own comes first, as in RULER. */
static const char *vt_example(nb_ruler_context *c, const char *form)
{
    enum { VARS = 5 };
    const char *var[VARS], *v = nb_ruler_new_number(c, &c->rng, 5), *line[3 * VARS];
    size_t n = 0;
    for (size_t i = 0; i < VARS; i++) {
        var[i] = nb_ruler_new_letters(c, 5);
        line[n++] = i ? nb_ruler_fmt(c, "VAR %s = VAR %s\n", var[i], var[i - 1])
                      : nb_ruler_fmt(c, "VAR %s = %s\n", var[i], v);
        line[n++] = nb_ruler_list[NB_RULER_NOISE].w[i % 5];
        line[n++] = "\n";
    }
    const char *all = "";
    for (size_t i = 0; i < n; i++) all = nb_ruler_fmt(c, "%s%s", all, line[i]);
    const char *ask_it = nb_ruler_fmt(c, form, v, v);
    return nb_ruler_fmt(c, "%s%s %s\n\n", all, ask_it,
                        nb_ruler_join(c, var, VARS, NB_RULER_SPACES));
}

static void nb_ruler_vt(nb_ruler_context *c, size_t sample)
{
    enum { VARS = 5 };
    static const char intro[] =
        "Follow the chain of variable assignments that is hidden in the text "
        "below.\n\n";
    nb_ruler_question *q = ask(c, NB_RULER_VT, sample);
    const char *var[NB_RULER_MAX_VALUES], *v = nb_ruler_new_number(c, &c->rng, 5);
    c->hay.kind = NB_RULER_HAY_LINES;
    plant_chain(c, q, VARS, 5, "", v, var);
#define VT_FORM                                                                                    \
    "Question: Find all variables that are assigned the value %s in the text above.\nAnswer: "     \
    "According to the chain of assignments in the text above, 5 variables are assigned the value " \
    "%s, they are:"
    c->intro = nb_ruler_fmt(c, "%s%s%s", intro, vt_example(c, VT_FORM), intro);
    q->text = nb_ruler_fmt(c, VT_FORM, v, v);
    q->answer = nb_ruler_fmt(c, " %s", nb_ruler_join(c, var, VARS, NB_RULER_SPACES));
    many_refs(c, q, var, VARS);
    q->max_tok = 30;
}

void nb_ruler_ruler_context(nb_ruler_context *c, nb_ruler_task task, size_t sample)
{
    if (task == NB_RULER_VT)
        nb_ruler_vt(c, sample);
    else if (task == NB_RULER_CWE)
        nb_ruler_cwe_context(c);
    else if (task == NB_RULER_FWE)
        nb_ruler_fwe_context(c);
    else
        nb_ruler_niah(c, task, sample);
}
