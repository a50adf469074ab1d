/* configs.c - see configs.h. */
#include "capacity/configs.h"

#include <string.h>

#include "capacity/embedded.h"
#include "os/file.h"

enum { MAX_NAME = 96, LIST_BYTES = 800 };

/* Other names of the same geometry. */
static const struct {
    const char *alias, *name;
} aliases[] = {
    { "deepseek-v2.5", "deepseek-v2" },
    { "deepseek-coder-v2", "deepseek-v2" },
    { "deepseek-coder-v2-lite", "deepseek-v2-lite" },
    { "deepseek-r1", "deepseek-v3" },
    { "deepseek-r1-zero", "deepseek-v3" },
    { "deepseek-v3.1", "deepseek-v3" },
    { "moonlight-16b-a3b", "moonlight-16b" },
    { "moonlight", "moonlight-16b" },
    { "llama-3.3-70b", "llama-3.1-70b" },
    { "meta-llama-3.1-8b", "llama-3.1-8b" },
    { "meta-llama-3.1-70b", "llama-3.1-70b" },
    { "meta-llama-3.1-405b", "llama-3.1-405b" },
    { "minicpm3", "minicpm3-4b" },
    { "youtu-llm", "youtu-llm-2b" },
};

static const struct {
    const char *name, *note;
} notes[] = {
    { "kimi-k2-thinking",
      "published with INT4 experts (compressed-tensors), which nibble does not read: its weights are "
      "counted in BF16" },
    { "deepseek-v3",
      "the published files also hold a layer for multi-token prediction (11.6 G parameters "
      "beside copies of embedding and head), which nibble does not load" },
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

static void fill(const nb_embedded *e, nb_bundled_config *out)
{
    *out = (nb_bundled_config){ .name = e->name, .json = { (const char *)e->p, e->n_bytes } };
    for (size_t i = 0; i < NB_COUNT(notes); i++)
        if (!strcmp(notes[i].name, e->name)) out->note = notes[i].note;
}

static const nb_embedded *find_exact(const char *name)
{
    for (const nb_embedded *e = nb_embedded_configs; e->name; e++)
        if (same(e->name, name)) return e;
    return NULL;
}

static const nb_embedded *find(const char *given)
{
    char name[MAX_NAME];
    if (!tidy(given, name)) return NULL;
    do {
        const nb_embedded *e = find_exact(name);
        for (size_t i = 0; !e && i < NB_COUNT(aliases); i++)
            if (same(aliases[i].alias, name)) e = find_exact(aliases[i].name);
        if (e) return e;
    } while (cut_suffix(name));
    return NULL;
}

/* ---- what there is ---- */

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
    const char *like = nearest(given);
    return nb_fail(err, NB_ERR_NOT_FOUND,
                   "%s: no directory, no config.json and no bundled model%s%s (bundled: %s)", shown,
                   like ? "; the nearest name is " : "", like ? like : "", list);
}

nb_status nb_capacity_config(const char *name, nb_bundled_config *out, nb_error *err)
{
    const nb_embedded *e = find(name);
    if (!e) return refuse(name, err);
    fill(e, out);
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
    fill(e, out);
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
        return nb_model_config_read_path(model, c, err);
    NB_TRY(nb_capacity_config(model, &b, err));
    NB_TRY(nb_doc_parse(b.json, b.name, &doc, err));
    const nb_status st = nb_model_config_read(doc, c, err);
    nb_doc_destroy(doc);
    if (st == NB_OK && note) *note = b.note;
    return st;
}
