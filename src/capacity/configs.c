/* configs.c - see configs.h. */
#include "capacity/configs.h"

#include <stdio.h>
#include <string.h>

#include "capacity/embedded.h"
#include "load/hub.h"
#include "os/file.h"

enum { MAX_NAME = 96, LIST_BYTES = 800 };

#define VISION "the text model only; the published files also hold a vision tower"

#define MTP_V4                                                                                     \
    "the published files also hold a layer for multi-token prediction, which nibble does not load"

/* Other names of the same geometry; note: beside those of the name, or NULL. */
static const struct {
    const char *alias, *name, *note;
} aliases[] = {
    { "deepseek-v2.5", "deepseek-v2", NULL },
    { "deepseek-coder-v2", "deepseek-v2", NULL },
    { "deepseek-coder-v2-lite", "deepseek-v2-lite", NULL },
    { "deepseek-r1", "deepseek-v3", NULL },
    { "deepseek-r1-zero", "deepseek-v3", NULL },
    { "deepseek-v3.1", "deepseek-v3", NULL },
    { "deepseek-v3.2-exp", "deepseek-v3.2", NULL },
    { "deepseek-v3.2-speciale", "deepseek-v3.2", NULL },
    { "glm-5.1", "glm-5", NULL },
    { "kimi-k2-instruct-0905", "kimi-k2-0905", NULL },
    { "kimi-k2.5", "kimi-k2-thinking", VISION },
    { "kimi-k2.6", "kimi-k2-thinking", VISION },
    { "kimi-k2.7", "kimi-k2-thinking", VISION },
    { "kimi-linear-48b-a3b", "kimi-linear-48b", NULL },
    { "moonlight-16b-a3b", "moonlight-16b", NULL },
    { "moonlight", "moonlight-16b", NULL },
    { "gigachat3-10b-a1.8b", "gigachat3-10b", NULL },
    { "gigachat3.1-10b-a1.8b", "gigachat3-10b", NULL },
    { "llama-3.3-70b", "llama-3.1-70b", NULL },
    { "longcat-flash-thinking", "longcat-flash", NULL },
    { "meta-llama-3.1-8b", "llama-3.1-8b", NULL },
    { "meta-llama-3.1-70b", "llama-3.1-70b", NULL },
    { "meta-llama-3.1-405b", "llama-3.1-405b", NULL },
    { "minicpm3", "minicpm3-4b", NULL },
    { "qwen3-4b-instruct-2507", "qwen3-4b-2507", NULL },
    { "qwen3-4b-thinking-2507", "qwen3-4b-2507", NULL },
    { "youtu-llm", "youtu-llm-2b", NULL },
    { "mistral-small-4-119b", "mistral-small-4", NULL },
    { "mistral-large-3-675b", "mistral-large-3", NULL },
};

#define EXPERTS "grouped-query attention with routed experts"
#define LINEAR "linear attention in most layers, whose state is no cache of tokens"
#define WINDOWS "windows of attention in some layers"

/* Known models that nibble does not count, and what they have that it lacks.  '*' is any text. */
static const struct {
    const char *pattern, *why;
} not_supported[] = {
    { "glm-5-3*", LINEAR },
    { "kimi-k3*", LINEAR },
    { "longcat*", "parts that LongCat-Flash does not have (n-gram embeddings, sparse attention, sound)" },
    { "gigachat3*", "a configuration that is not bundled: give its config.json" },
    { "glm-4-7-flash*", NULL },
    { "glm-4*", EXPERTS " or a partly rotated key" },
    { "qwen3-next*", LINEAR },
    { "qwen3-5*", LINEAR },
    { "qwen3-6*", LINEAR },
    { "qwen3-coder*", EXPERTS },
    { "qwen3-*b-a*b*", EXPERTS },
    { "mistral*", "a configuration of Mistral's own" },
    { "ministral*", "a configuration of Mistral's own" },
    { "mixtral*", EXPERTS },
    { "magistral*", "a configuration of Mistral's own" },
    { "devstral*", "a configuration of Mistral's own" },
    { "gpt-oss*", WINDOWS " and attention sinks" },
    { "gemma*", WINDOWS },
    { "llama-4*", EXPERTS " and chunks of attention" },
    { "minimax*", EXPERTS },
    { "phi*", "a configuration of Phi's own" },
};

static const struct {
    const char *name, *note;
} notes[] = {
    { "deepseek-v3",
      "the published files also hold a layer for multi-token prediction (11.6 G parameters "
      "beside copies of embedding and head), which nibble does not load" },
    { "deepseek-v3.2",
      "the published files also hold a layer for multi-token prediction, which nibble does not load" },
    { "glm-5",
      "the published files also hold a layer for multi-token prediction (9.95 G parameters), which "
      "nibble does not load" },
    { "glm-5.2",
      "the published files also hold a layer for multi-token prediction, which nibble does not load" },
    { "gigachat3-10b",
      "the published files also hold a layer for multi-token prediction, which nibble does not load" },
    { "longcat-flash",
      "28 layers with two attentions each count as 56; a token's 12 choices are counted as 12 experts, fewer where the "
      "router picks zero experts; the published files also hold a layer for multi-token prediction, which nibble does "
      "not load" },
    { "deepseek-v4-flash", MTP_V4 },
    { "deepseek-v4-pro", MTP_V4 },
    { "mistral-small-4", VISION },
    { "mistral-large-3",
      VISION ", under Mistral's own names and with params.json in place of config.json" },
    { "glm-4.7-flash",
      "the published files also hold a layer for multi-token prediction (0.64 G parameters), which "
      "nibble does not load" },
};

/* Ends of names that say how a model was trained on or released, not what it is. */
static const char *const suffixes[] = {
    "-instruct", "-chat", "-base", "-terminus", "-0324", "-0528"
};

/* ---- names ---- */

static char plain(char ch)
{
    if (ch >= 'A' && ch <= 'Z') return (char)(ch - 'A' + 'a');
    return ch == '_' || ch == '.' ? '-' : ch;
}

static bool same(const char *a, const char *b)
{
    for (; *a && plain(*a) == plain(*b); a++) b++;
    return *a == *b;
}

/* Of a name given: without its organisation, plain; false when that is no name. */
static bool tidy(const char *given, char out[MAX_NAME])
{
    const char *slash = strchr(given, '/');
    const char *p = slash && slash != given && !strchr(slash + 1, '/') ? slash + 1 : given;
    const size_t n = strlen(p);
    if (n == 0 || n >= MAX_NAME) return false;
    for (size_t i = 0; i <= n; i++) out[i] = plain(p[i]);
    return true;
}

static bool cut_suffix(char *name)
{
    const size_t n = strlen(name);
    for (size_t i = 0; i < NB_COUNT(suffixes); i++) {
        const size_t k = strlen(suffixes[i]);
        if (n <= k || strcmp(name + n - k, suffixes[i]) != 0) continue;
        name[n - k] = 0;
        return true;
    }
    return false;
}

static void fill(const nb_embedded *e, const char *note, nb_bundled_config *out)
{
    *out = (nb_bundled_config){ .name = e->name,
                                .json = { (const char *)e->p, e->n_bytes },
                                .note = note };
    for (size_t i = 0; i < NB_COUNT(notes); i++)
        if (!note && !strcmp(notes[i].name, e->name)) out->note = notes[i].note;
}

static const nb_embedded *find_exact(const char *name)
{
    for (const nb_embedded *e = nb_embedded_configs; e->name; e++)
        if (same(e->name, name)) return e;
    return NULL;
}

/* *note: of the alias that it was found by, or NULL. */
static const nb_embedded *find(const char *given, const char **note)
{
    char name[MAX_NAME];
    *note = NULL;
    if (!tidy(given, name)) return NULL;
    do {
        const nb_embedded *e = find_exact(name);
        for (size_t i = 0; !e && i < NB_COUNT(aliases); i++)
            if (same(aliases[i].alias, name)) {
                e = find_exact(aliases[i].name);
                *note = aliases[i].note;
            }
        if (e) return e;
    } while (cut_suffix(name));
    return NULL;
}

/* ---- what there is ---- */

/* '*' is any text, also none. */
static bool matches(const char *pattern, const char *s)
{
    const char *star = NULL, *from = s; /* the last '*', and where it ends in s */
    while (*s) {
        if (*pattern == '*') {
            star = pattern++;
            from = s;
        } else if (*pattern == *s) {
            pattern++;
            s++;
        } else if (star) {
            pattern = star + 1;
            s = ++from;
        } else {
            return false;
        }
    }
    while (*pattern == '*') pattern++;
    return !*pattern;
}

/* Why a model that is known is not supported, or NULL. */
static const char *reason(const char *given)
{
    char name[MAX_NAME];
    if (!tidy(given, name)) return NULL;
    for (size_t i = 0; i < NB_COUNT(not_supported); i++)
        if (matches(not_supported[i].pattern, name)) return not_supported[i].why;
    return NULL;
}

/* Levenshtein distance of plain names. */
static size_t distance(const char *a, const char *b)
{
    size_t row[MAX_NAME + 1];
    const size_t n = strlen(b);
    if (n > MAX_NAME) return SIZE_MAX;
    for (size_t j = 0; j <= n; j++) row[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t corner = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            const size_t change = corner + (plain(a[i - 1]) != plain(b[j - 1]));
            const size_t one = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            corner = row[j];
            row[j] = change < one ? change : one;
        }
    }
    return row[n];
}

/* The name most like the given one, or NULL when none is like it. */
static const char *nearest(const char *given)
{
    char name[MAX_NAME];
    const char *best = NULL;
    size_t least = SIZE_MAX;
    if (!tidy(given, name)) return NULL;
    for (const nb_embedded *e = nb_embedded_configs; e->name; e++) {
        const size_t d = distance(name, e->name);
        if (d < least) {
            least = d;
            best = e->name;
        }
    }
    for (size_t i = 0; i < NB_COUNT(aliases); i++) {
        const size_t d = distance(name, aliases[i].alias);
        if (d < least) {
            least = d;
            best = aliases[i].alias;
        }
    }
    return least <= strlen(name) / 2 ? best : NULL;
}

static nb_status refuse(const char *given, nb_error *err)
{
    char list[LIST_BYTES] = "", shown[64];
    size_t at = 0, n = 0;
    for (const nb_embedded *e = nb_embedded_configs; e->name && at + MAX_NAME < sizeof list; e++) {
        const size_t k = strlen(e->name);
        if (at) {
            memcpy(list + at, ", ", 2);
            at += 2;
        }
        memcpy(list + at, e->name, k + 1);
        at += k;
    }
    for (const char *p = given; *p && n + 1 < sizeof shown; p++)
        shown[n++] = *p >= 0x20 && *p < 0x7f ? *p : '?';
    shown[n] = 0;
    const char *why = reason(given), *like = nearest(given);
    if (why)
        return nb_fail(err, NB_ERR_NOT_FOUND, "%s: not supported: it has %s (bundled: %s)", shown,
                       why, list);
    nb_hub_id id;
    char pull[440] = "";
    if (nb_hub_id_parse(given, &id))
        (void)snprintf(pull, sizeof pull, "; `nibble pull %s` downloads it", given);
    return nb_fail(err, NB_ERR_NOT_FOUND,
                   "%s: no directory, no config.json, not in the hub cache and no bundled "
                   "model%s%s%s (bundled: %s)",
                   shown, pull, like ? "; the nearest name is " : "", like ? like : "", list);
}

nb_status nb_capacity_config(const char *name, nb_bundled_config *out, nb_error *err)
{
    const char *note;
    const nb_embedded *e = find(name, &note);
    if (!e) return refuse(name, err);
    fill(e, note, out);
    return NB_OK;
}

bool nb_capacity_config_at(size_t i, nb_bundled_config *out)
{
    const nb_embedded *e = nb_embedded_configs;
    while (e->name && i > 0) {
        e++;
        i--;
    }
    if (!e->name) return false;
    fill(e, NULL, out);
    return true;
}

nb_status nb_capacity_read_config(const char *model, nb_model_config *c, const char **note,
                                  nb_error *err)
{
    nb_bundled_config b;
    nb_doc *doc = NULL;
    if (!model || !*model) return nb_fail(err, NB_ERR_ARG, "no model given");
    if (note) *note = NULL;
    if (nb_path_is_dir(model) || nb_path_is_file(model) || nb_path_is_other(model))
        return nb_model_config_read_path_any(model, c, err);
    nb_buf path = { 0 };
    nb_status st = nb_hub_model_path(model, &path, err);
    const bool cached = st == NB_OK && strcmp(path.p, model) != 0;
    if (cached) st = nb_model_config_read_path_any(path.p, c, err);
    nb_buf_deinit(&path);
    if (cached || (st != NB_OK && st != NB_ERR_NOT_FOUND)) return st;
    NB_TRY(nb_capacity_config(model, &b, err));
    NB_TRY(nb_doc_parse(b.json, b.name, &doc, err));
    st = nb_model_config_read_any(doc, c, err);
    nb_doc_destroy(doc);
    if (st == NB_OK && note) *note = b.note;
    return st;
}
