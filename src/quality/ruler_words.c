/* ruler_words.c - the words of generated prompts, and drawing them without repetition.
 *
 * The lists are those of train/retrieval.py and train/stories.py, some longer: the bundled model
 * knows the words, and other models know them anyway. */
#include <stdarg.h>
#include <stdlib.h>

#include "base/hash.h"
#include "quality/ruler_internal.h"

static const char *const adjectives[] = {
    "brave",  "quiet", "clever", "lazy",   "happy", "wild",   "gentle", "proud", "sleepy",
    "hungry", "cold",  "warm",   "bright", "dark",  "swift",  "slow",   "soft",  "loud",
    "round",  "thin",  "kind",   "grand",  "plain", "rare",   "young",  "sharp", "sweet",
    "bitter", "empty", "early",  "late",   "royal", "humble", "lucky",  "merry", "noble",
};
static const char *const nouns[] = {
    "otter",    "river",    "castle",   "window",   "garden",   "meadow", "lantern", "wagon",
    "mountain", "ribbon",   "harbor",   "candle",   "forest",   "bridge", "kitten",  "sparrow",
    "orchard",  "pillow",   "basket",   "thunder",  "cottage",  "island", "pebble",  "saddle",
    "compass",  "blanket",  "chimney",  "feather",  "hammer",   "ladder", "market",  "needle",
    "oyster",   "palace",   "rabbit",   "shadow",   "temple",   "valley", "walnut",  "acorn",
    "barrel",   "copper",   "dragon",   "engine",   "falcon",   "goblet", "helmet",  "insect",
    "jacket",   "kettle",   "lizard",   "mirror",   "nutmeg",   "onion",  "parrot",  "quilt",
    "rocket",   "silver",   "turnip",   "velvet",   "whisper",  "yarn",   "zebra",   "anchor",
    "butter",   "circus",   "dinner",   "elbow",    "fiddle",   "guitar", "honey",   "arrow",
    "bottle",   "button",   "camel",    "canyon",   "carpet",   "cliff",  "cloud",   "clover",
    "desert",   "donkey",   "drawer",   "eagle",    "envelope", "farmer", "ferry",   "flame",
    "flute",    "fountain", "glacier",  "glove",    "hedge",    "heron",  "hinge",   "hornet",
    "igloo",    "jewel",    "juniper",  "kernel",   "lagoon",   "lemon",  "locket",  "magnet",
    "marble",   "mitten",   "napkin",   "notebook", "ocean",    "olive",  "panther", "pepper",
    "pigeon",   "planet",   "pocket",   "puzzle",   "quarry",   "raven",  "ruler",   "sailor",
    "saucer",   "scarf",    "shovel",   "spoon",    "squirrel", "statue", "sugar",   "tailor",
    "tiger",    "tunnel",   "umbrella", "vase",     "violin",   "wallet", "willow",  "wizard",
    "zipper",
};
static const char *const names[] = {
    "Abel",   "Adam",   "Akinyi", "Alex",   "Alice",  "Amina",  "Amy",   "Anil",   "Anjali",
    "Anna",   "Arjun",  "Arthur", "Asha",   "Baraka", "Basil",  "Bella", "Ben",    "Beth",
    "Bibi",   "Bob",    "Carl",   "Chipo",  "Clara",  "Cora",   "Cyril", "Daisy",  "Dan",
    "David",  "Dick",   "Dora",   "Edgar",  "Eli",    "Ella",   "Elsie", "Emma",   "Eric",
    "Esi",    "Fay",    "Felix",  "Finn",   "Flora",  "Frank",  "Fred",  "George", "Gilbert",
    "Gopal",  "Grace",  "Greta",  "Gus",    "Hana",   "Harry",  "Heidi", "Henry",  "Hetty",
    "Holly",  "Hugo",   "Ian",    "Ida",    "Iris",   "Isaac",  "Ivan",  "Ivy",    "Jack",
    "Jane",   "Jim",    "Joe",    "Jonas",  "Julia",  "Juma",   "June",  "Kabir",  "Kamau",
    "Karl",   "Kate",   "Kavya",  "Ken",    "Kitty",  "Kofi",   "Lars",  "Leila",  "Lena",
    "Leo",    "Liam",   "Lila",   "Lily",   "Lotte",  "Lucy",   "Luke",  "Mabel",  "Mark",
    "Martha", "Mary",   "Max",    "Maya",   "Meena",  "Mia",    "Milo",  "Mohan",  "Molly",
    "Moses",  "Nandi",  "Nat",    "Ned",    "Neema",  "Nell",   "Nick",  "Nina",   "Noah",
    "Nora",   "Olive",  "Oliver", "Opal",   "Oscar",  "Otis",   "Owen",  "Paul",   "Pearl",
    "Penny",  "Percy",  "Peter",  "Polly",  "Priya",  "Quinn",  "Ralph", "Ravi",   "Ray",
    "Rita",   "Robert", "Robin",  "Rosa",   "Ruby",   "Rufus",  "Sam",   "Sana",   "Sara",
    "Sid",    "Simon",  "Sipho",  "Sophie", "Stan",   "Stella", "Susie", "Tara",   "Tau",
    "Ted",    "Tess",   "Thea",   "Theo",   "Tilly",  "Tim",    "Toby",  "Tom",    "Una",
    "Vera",   "Victor", "Vince",  "Violet", "Walter", "Wanja",  "Wendy", "Wes",    "Will",
    "Willa",  "Yara",   "Yusuf",  "Zack",   "Zane",   "Zelda",  "Zoe",   "Zuri",
};
static const char *const places[] = {
    "in the old barn",  "under the bridge",  "behind the church", "in the attic",
    "by the river",     "in the garden",     "under the stairs",  "on the roof",
    "in the cellar",    "near the mill",     "in the cave",       "beside the lake",
    "in the tower",     "behind the school", "in the red box",    "under the bed",
    "in the library",   "at the station",    "in the tall tree",  "on the small island",
    "in the blue boat", "at the market",     "in the bakery",     "by the well",
    "in the forest",    "behind the wall",   "in the kitchen",    "under the table",
    "in the shed",      "on the hill",       "at the farm",       "inside the clock",
    "in the castle",    "near the fountain", "in the stable",     "under a white stone",
};
static const char *const objects[] = {
    "key", "ring",    "map",    "letter",  "coin",   "lamp",   "book",  "bell",   "drum",  "hat",
    "cup", "knife",   "mirror", "rope",    "shell",  "flute",  "crown", "scarf",  "clock", "box",
    "pen", "whistle", "mask",   "feather", "button", "basket", "spoon", "candle", "sword", "violin",
};
static const char *const materials[] = {
    "silver", "golden", "wooden", "old",   "red",   "blue",  "green", "small", "broken", "shiny",
    "black",  "white",  "brass",  "glass", "paper", "stone", "rusty", "heavy", "tiny",   "yellow",
};
static const char *const noise[] = {
    "The grass is green.",
    "The sky is blue.",
    "The sun is yellow.",
    "Here we go.",
    "There and back again.",
    "The water is cold.",
    "The wind is soft today.",
    "A bird sings in the tree.",
    "The road is long.",
    "The leaves are falling.",
    "The clouds move slowly.",
    "It is a quiet day.",
    "The river runs to the sea.",
    "The moon is round.",
    "Snow is white.",
    "The night is dark.",
    "The bread is warm.",
    "A dog barks far away.",
    "The hills are high.",
    "The stars are bright.",
    "Rain falls on the roof.",
    "The fields are wide.",
    "The door is closed.",
    "Time goes by.",
};
static const char *const animals[] = {
    "dog",   "cat",    "rabbit",  "hen",  "pony", "parrot",
    "puppy", "kitten", "hamster", "goat", "duck", "mouse",
};
static const char *const syllables[] = {
    "ba", "be", "bo", "da", "de", "do", "fa", "fe", "ga", "go", "ka", "ki", "ko", "la", "le",
    "li", "lo", "ma", "me", "mi", "mo", "na", "ne", "no", "pa", "pe", "po", "ra", "re", "ri",
    "ro", "sa", "se", "so", "ta", "te", "to", "va", "ve", "vi", "wa", "wi", "zo", "zu",
};

const nb_ruler_words nb_ruler_list[NB_RULER_N_LIST] = {
    [NB_RULER_ADJECTIVES] = { adjectives, NB_COUNT(adjectives) },
    [NB_RULER_NOUNS] = { nouns, NB_COUNT(nouns) },
    [NB_RULER_NAMES] = { names, NB_COUNT(names) },
    [NB_RULER_PLACES] = { places, NB_COUNT(places) },
    [NB_RULER_OBJECTS] = { objects, NB_COUNT(objects) },
    [NB_RULER_MATERIALS] = { materials, NB_COUNT(materials) },
    [NB_RULER_NOISE] = { noise, NB_COUNT(noise) },
    [NB_RULER_PETS] = { animals, NB_COUNT(animals) },
    [NB_RULER_SYLLABLES] = { syllables, NB_COUNT(syllables) },
};

/* ---- what was used -------------------------------------------------------- */

/* A collision of hashes only means that one more word is drawn. */
static bool seen_put(nb_ruler_seen *s, uint64_t h)
{
    size_t i = (size_t)h & (s->cap - 1);
    for (; s->slot[i]; i = (i + 1) & (s->cap - 1))
        if (s->slot[i] == h) return false;
    s->slot[i] = h;
    s->n++;
    return true;
}

nb_status nb_ruler_seen_add(nb_ruler_seen *s, const char *word)
{
    const uint64_t h = nb_hash_bytes(word, strlen(word), 1) | 1;
    if (2 * (s->n + 1) > s->cap) {
        nb_ruler_seen big = { .cap = s->cap ? 2 * s->cap : 256 };
        big.slot = calloc(big.cap, sizeof *big.slot);
        if (!big.slot) return NB_ERR_NOMEM;
        for (size_t i = 0; i < s->cap; i++)
            if (s->slot[i]) (void)seen_put(&big, s->slot[i]);
        free(s->slot);
        *s = big;
    }
    return seen_put(s, h) ? NB_OK : NB_ERR_ARG;
}

/* ---- strings -------------------------------------------------------------- */

const char *nb_ruler_fmt(nb_ruler_context *c, const char *fmt, ...)
{
    va_list ap;
    if (c->failed) return "";
    va_start(ap, fmt);
    const int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *s = n < 0 ? NULL : nb_arena_alloc(&c->arena, (size_t)n + 1);
    if (!s) {
        c->failed = NB_ERR_NOMEM;
        return "";
    }
    va_start(ap, fmt);
    (void)vsnprintf(s, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return s;
}

const char *nb_ruler_join(nb_ruler_context *c, const char *const *w, size_t n,
                          enum nb_ruler_join how)
{
    static const char *const between[] = { ", ", ", ", " and ", " " };
    nb_buf b = { 0 };
    nb_status st = NB_OK;
    for (size_t i = 0; st == NB_OK && i < n; i++) {
        const bool last = i + 1 == n;
        if (i) st = nb_buf_add_c(&b, n == 2 && how == NB_RULER_COMMAS_AND ? " and " : between[how]);
        if (st == NB_OK && last && n > 2 && how == NB_RULER_COMMAS_AND)
            st = nb_buf_add_c(&b, "and ");
        if (st == NB_OK) st = nb_buf_add_c(&b, w[i]);
    }
    if (st != NB_OK) c->failed = st;
    const char *s = nb_ruler_fmt(c, "%s", b.p ? b.p : "");
    nb_buf_deinit(&b);
    return s;
}

const char *const *nb_ruler_keep(nb_ruler_context *c, const char *const *w, size_t n)
{
    const char **p = nb_arena_array(&c->arena, n ? n : 1, sizeof *p);
    if (!p) {
        c->failed = NB_ERR_NOMEM;
        return NULL;
    }
    memcpy(p, w, n * sizeof *p);
    return p;
}

/* ---- drawing -------------------------------------------------------------- */

const char *nb_ruler_pick(nb_ruler_rng *r, enum nb_ruler_list list)
{
    return nb_ruler_list[list].w[nb_ruler_below(r, nb_ruler_list[list].n)];
}

/* Whether the word is new, or nothing can be done about it any more. */
static bool take(nb_ruler_context *c, const char *word)
{
    if (c->failed) return true;
    const nb_status st = nb_ruler_seen_add(&c->seen, word);
    if (st == NB_ERR_NOMEM) c->failed = st;
    return st != NB_ERR_ARG;
}

/* After some draws in vain the words become longer: there always is a new one. */
enum { PATIENCE = 16 };

const char *nb_ruler_new_key(nb_ruler_context *c, nb_ruler_rng *r)
{
    for (size_t i = 0;; i++) {
        const char *a = nb_ruler_pick(r, NB_RULER_ADJECTIVES),
                   *n = nb_ruler_pick(r, NB_RULER_NOUNS);
        const char *s =
            i < PATIENCE ? nb_ruler_fmt(c, "%s-%s", a, n)
                         : nb_ruler_fmt(c, "%s-%s-%s", a, nb_ruler_pick(r, NB_RULER_ADJECTIVES), n);
        if (take(c, s)) return s;
    }
}

const char *nb_ruler_new_name(nb_ruler_context *c)
{
    const nb_ruler_words *w = &nb_ruler_list[NB_RULER_NAMES];
    for (size_t i = 0; i < 8 * PATIENCE; i++) { /* odd places: heroes of stories have even ones */
        const char *s = w->w[2 * nb_ruler_below(&c->rng, w->n / 2) + 1];
        if (take(c, s)) return s;
    }
    return nb_ruler_new_made(c);
}

const char *nb_ruler_new_number(nb_ruler_context *c, nb_ruler_rng *r, size_t n_digit)
{
    for (size_t i = 0;; i++) {
        char d[24];
        const size_t n = n_digit + i / PATIENCE < 20 ? n_digit + i / PATIENCE : 20;
        for (size_t k = 0; k < n; k++)
            d[k] = (char)('0' + (k ? nb_ruler_below(r, 10) : 1 + nb_ruler_below(r, 9)));
        d[n] = 0;
        const char *s = nb_ruler_fmt(c, "%s", d);
        if (take(c, s)) return s;
    }
}

const char *nb_ruler_new_made(nb_ruler_context *c)
{
    for (size_t i = 0;; i++) {
        char w[40] = "";
        const size_t n = 3 + i / PATIENCE < 16 ? 3 + i / PATIENCE : 16;
        for (size_t k = 0; k < n; k++)
            memcpy(w + 2 * k, nb_ruler_pick(&c->rng, NB_RULER_SYLLABLES), 3);
        w[0] = (char)(w[0] - 'a' + 'A');
        const char *s = nb_ruler_fmt(c, "%s", w);
        if (take(c, s)) return s;
    }
}

const char *nb_ruler_new_letters(nb_ruler_context *c, size_t n_letter)
{
    static const char letters[] = "ABCDEFGHJKLMNPQRSTUVWXYZ"; /* no I, no O */
    for (size_t i = 0;; i++) {
        char w[24];
        const size_t n = n_letter + i / PATIENCE < 20 ? n_letter + i / PATIENCE : 20;
        for (size_t k = 0; k < n; k++) w[k] = letters[nb_ruler_below(&c->rng, sizeof letters - 1)];
        w[n] = 0;
        const char *s = nb_ruler_fmt(c, "%s", w);
        if (take(c, s)) return s;
    }
}
