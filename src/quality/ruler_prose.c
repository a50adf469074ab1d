/* ruler_prose.c - haystacks: noise, small stories, distractors; a unit is a sentence or a line.
 *
 * The stories are simple on purpose: sentences that small models have seen, that say nothing
 * about what is planted (no numbers, no made-up words, no VAR), of heroes whose names are not asked. */
#include <stdlib.h>

#include "quality/ruler_internal.h"

/* RULER's noise (its generators, constants of niah.py and variable_tracking.py). */
static const char noise_block[] = "The grass is green. The sky is blue. The sun is yellow. Here we "
                                  "go. There and back again.";

/* H hero, P place, A animal, O thing, M what it is like */
static const char *const openings[] = {
    "Once upon a time there lived a child named $H near $P.",
    "One day, $H went for a walk with a little $A.",
    "It was a cold day, and $H sat by the window.",
    "$H lived in a small house on a hill.",
    "Everyone in the village knew $H.",
    "In the morning, $H woke up early and looked outside.",
};
static const char *const middles[] = {
    "$H found the $M $O on the path.",
    "\"Whose $O is this?\" asked $H.",
    "The $A looked at $H and did not move.",
    "$H walked and walked until the sun was low.",
    "A soft wind moved the leaves.",
    "Then $H heard a strange sound.",
    "\"Do not be afraid,\" said $H to the $A.",
    "It began to rain, but $H did not turn back.",
    "$H put the $O into a bag and went on.",
    "An old man sat on a bench and smiled.",
    "\"Where are you going?\" asked the old man.",
    "\"I am looking for a friend,\" said $H.",
    "The water was clear and very cold.",
    "$H thought about it for a long time.",
    "They ate bread and cheese under a tree.",
    "The $M $O lay on the table.",
    "The $A ran after a butterfly.",
    "$H was tired, but $H was happy too.",
    "Nobody knew where the $O came from.",
    "$H gave half of the cake to the $A.",
    "The bells of the village rang.",
    "\"Look at that!\" said $H.",
    "$H tried again and again.",
    "The others laughed, but $H did not mind.",
    "There was only dust behind the door.",
    "At last $H had an idea.",
    "$H told the $A a long story.",
    "Two boys ran by with the $O.",
    "The sky was full of small clouds.",
    "$H held the $O very tight.",
};
static const char *const closings[] = {
    "That night, $H slept well.",           "From that day on, $H was a little braver.",
    "$H and the $A were friends for ever.", "$H went home and told everyone about it.",
    "It was a day that $H never forgot.",
};

static const char *fill(nb_ruler_context *c, const char *t)
{
    nb_ruler_hay *h = &c->hay;
    nb_buf b = { 0 };
    nb_status st = NB_OK;
    for (; *t && st == NB_OK; t++) {
        if (*t != '$') {
            st = nb_buf_add_ch(&b, *t);
            continue;
        }
        const char *w = "";
        switch (*++t) {
        case 'H': w = h->hero; break;
        case 'P': w = h->place; break;
        case 'A': w = h->animal; break;
        case 'O': w = nb_ruler_pick(&c->hay_rng, NB_RULER_OBJECTS); break;
        default: w = nb_ruler_pick(&c->hay_rng, NB_RULER_MATERIALS); break;
        }
        st = nb_buf_add_c(&b, w);
    }
    if (st != NB_OK) c->failed = st;
    const char *s = nb_ruler_fmt(c, "%s", b.p ? b.p : "");
    nb_buf_deinit(&b);
    return s;
}

#define ANY(list) (list)[nb_ruler_below(&c->hay_rng, NB_COUNT(list))]

static nb_ruler_unit story_unit(nb_ruler_context *c)
{
    static const char *const place[] = { "the park",     "the river",  "the forest", "the lake",
                                         "the old mill", "the market", "the hill",   "the sea" };
    nb_ruler_hay *h = &c->hay;
    const nb_ruler_words *names = &nb_ruler_list[NB_RULER_NAMES];
    if (h->n_story == 0) { /* a new one: 9 to 14 sentences in paragraphs of 3 to 5 */
        h->hero = names->w[2 * nb_ruler_below(&c->hay_rng, names->n / 2)];
        h->place = ANY(place);
        h->animal = nb_ruler_pick(&c->hay_rng, NB_RULER_PETS);
        h->n_story = 9 + nb_ruler_below(&c->hay_rng, 6);
        h->left = 3 + nb_ruler_below(&c->hay_rng, 3);
        h->n_story--;
        h->left--;
        return (nb_ruler_unit){ fill(c, ANY(openings)), "" };
    }
    if (--h->n_story == 0) return (nb_ruler_unit){ fill(c, ANY(closings)), "\n\n" };
    const char *end = --h->left == 0 ? "\n" : "";
    if (h->left == 0) h->left = 3 + nb_ruler_below(&c->hay_rng, 3);
    return (nb_ruler_unit){ fill(c, ANY(middles)), end };
}

/* Half of the paragraphs are the five sentences of the block in order, as in training. */
static nb_ruler_unit noise_unit(nb_ruler_context *c)
{
    nb_ruler_hay *h = &c->hay;
    if (h->left == 0) {
        h->n_story = nb_ruler_below(&c->hay_rng, 2);
        h->left = h->n_story ? 5 : 4 + nb_ruler_below(&c->hay_rng, 5);
    }
    const nb_ruler_words *w = &nb_ruler_list[NB_RULER_NOISE];
    const char *s = h->n_story ? w->w[5 - h->left] : nb_ruler_pick(&c->hay_rng, NB_RULER_NOISE);
    return (nb_ruler_unit){ s, --h->left == 0 ? "\n" : "" };
}

static nb_ruler_unit next_unit(nb_ruler_context *c)
{
    switch (c->hay.kind) {
    case NB_RULER_HAY_NOISE: return noise_unit(c);
    case NB_RULER_HAY_STORY: return story_unit(c);
    case NB_RULER_HAY_LINES:
        return (nb_ruler_unit){ nb_ruler_list[NB_RULER_NOISE].w[c->hay.n % 5], "\n" };
    case NB_RULER_HAY_NEEDLES: {
        const char *k = nb_ruler_new_key(c, &c->hay_rng);
        const char *v = nb_ruler_new_number(c, &c->hay_rng, 7);
        return (nb_ruler_unit){ nb_ruler_fmt(c, NB_RULER_NEEDLE, k, v), "\n" };
    }
    case NB_RULER_HAY_BLOCK: break;
    }
    return (nb_ruler_unit){ noise_block, "\n" };
}

nb_status nb_ruler_hay_reserve(nb_ruler_context *c, size_t n)
{
    nb_ruler_hay *h = &c->hay;
    while (h->n < n && !c->failed) {
        if (NB_GROW(h->unit, h->cap, h->n) != NB_OK) {
            c->failed = NB_ERR_NOMEM;
            break;
        }
        h->unit[h->n] = next_unit(c);
        h->n++;
    }
    return c->failed;
}

void nb_ruler_context_deinit(nb_ruler_context *c)
{
    free(c->hay.unit);
    free(c->needle);
    free(c->seen.slot);
    free(c->pool);
    nb_arena_deinit(&c->arena);
    *c = (nb_ruler_context){ 0 };
}
