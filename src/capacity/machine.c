/* machine.c - see machine.h. */
#include "capacity/machine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "capacity/embedded.h"
#include "load/doc.h"

enum { AT_BYTES = 48, PATH_BYTES = 96 };

/* ---- reading ------------------------------------------------------------ */

static const struct field {
    const char *key;
    size_t offset;
    double unit, hi; /* of the number in the file */
    bool needed;
} numbers[] = {
    { "memory_mib", offsetof(nb_machine, memory_bytes), 1048576.0, 1e9, true },
    { "bandwidth_gbs", offsetof(nb_machine, bandwidth), 1e9, 1e7, true },
    { "bf16_tflops", offsetof(nb_machine, bf16), 1e12, 1e7, true },
    { "fp8_tflops", offsetof(nb_machine, fp8), 1e12, 1e7, false },
    { "fp4_tflops", offsetof(nb_machine, fp4), 1e12, 1e7, false },
    { "link_gbs", offsetof(nb_machine, link), 1e9, 1e7, false },
    { "price", offsetof(nb_machine, price), 1, 1e6, false },
};
static const struct text_field {
    const char *key;
    size_t offset, n_bytes;
    bool needed;
} texts[] = {
    { "title", offsetof(nb_machine, title), sizeof((nb_machine *)0)->title, false },
    { "price_source", offsetof(nb_machine, price_source), sizeof((nb_machine *)0)->price_source,
      false },
    { "source", offsetof(nb_machine, source), sizeof((nb_machine *)0)->source, true },
};
enum { N_NUMBERS = sizeof numbers / sizeof *numbers, N_TEXTS = sizeof texts / sizeof *texts };

static bool name_fits(const char *s)
{
    const size_t n = strlen(s);
    return n > 0 && n < NB_MACHINE_NAME && strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == n;
}

static bool known_key(const char *key)
{
    for (size_t i = 0; i < N_NUMBERS; i++)
        if (strcmp(numbers[i].key, key) == 0) return true;
    for (size_t i = 0; i < N_TEXTS; i++)
        if (strcmp(texts[i].key, key) == 0) return true;
    return false;
}

static nb_status read_numbers(nb_doc *d, const char *at, nb_machine *m, nb_error *err)
{
    for (size_t i = 0; i < N_NUMBERS; i++) {
        const struct field *f = &numbers[i];
        char path[PATH_BYTES];
        double x;
        (void)snprintf(path, sizeof path, "%.*s.%s", AT_BYTES - 1, at, f->key);
        if (!nb_doc_f64(d, path, &x)) {
            NB_TRY(nb_doc_check(d, err));
            if (!f->needed) continue;
            return nb_fail(err, NB_ERR_FORMAT, "%s: %s is missing", nb_doc_name(d), path);
        }
        if (!isfinite(x) || x <= 0 || x > f->hi)
            return nb_fail(err, NB_ERR_FORMAT, "%s: %s is %g, expected a number in (0, %g]",
                           nb_doc_name(d), path, x, f->hi);
        const double v = x * f->unit;
        memcpy((char *)m + f->offset, &v, sizeof v);
    }
    return NB_OK;
}

static nb_status read_texts(nb_doc *d, const char *at, nb_machine *m, nb_error *err)
{
    for (size_t i = 0; i < N_TEXTS; i++) {
        const struct text_field *f = &texts[i];
        char path[PATH_BYTES];
        const char *s;
        (void)snprintf(path, sizeof path, "%.*s.%s", AT_BYTES - 1, at, f->key);
        if (!nb_doc_str(d, path, &s)) {
            NB_TRY(nb_doc_check(d, err));
            if (!f->needed) continue;
            return nb_fail(err, NB_ERR_FORMAT, "%s: %s is missing: where the figures are from",
                           nb_doc_name(d), path);
        }
        if (strlen(s) >= f->n_bytes)
            return nb_fail(err, NB_ERR_LIMIT, "%s: %s has %zu bytes, at most %zu are kept",
                           nb_doc_name(d), path, strlen(s), f->n_bytes - 1);
        memcpy((char *)m + f->offset, s, strlen(s) + 1);
    }
    return NB_OK;
}

static nb_status read_row(nb_doc *d, const char *name, nb_machine *m, nb_error *err)
{
    const char *key[32];
    char at[AT_BYTES];
    if (!name_fits(name))
        return nb_fail(err, NB_ERR_FORMAT,
                       "%s: gpus has a row \"%s\"; names are 1 to %d of a-z, 0-9 and -",
                       nb_doc_name(d), name, NB_MACHINE_NAME - 1);
    (void)snprintf(at, sizeof at, "gpus.%s", name);
    if (!nb_doc_is_object(d, at))
        return nb_fail(err, NB_ERR_FORMAT, "%s: %s is no object", nb_doc_name(d), at);
    const size_t n = nb_doc_keys(d, at, key, sizeof key / sizeof *key);
    for (size_t i = 0; i < n && i < sizeof key / sizeof *key; i++)
        if (!known_key(key[i]))
            return nb_fail(err, NB_ERR_FORMAT, "%s: %s has the unknown field \"%s\"",
                           nb_doc_name(d), at, key[i]);
    *m = (nb_machine){ 0 };
    memcpy(m->name, name, strlen(name) + 1);
    memcpy(m->title, name, strlen(name) + 1);
    NB_TRY(read_numbers(d, at, m, err));
    return read_texts(d, at, m, err);
}

/* ---- the list ----------------------------------------------------------- */

static nb_machine *row_of(const nb_machines *ms, const char *name)
{
    for (size_t i = 0; i < ms->n; i++)
        if (strcmp(ms->m[i].name, name) == 0) return &ms->m[i];
    return NULL;
}

static nb_status put(nb_machines *ms, const nb_machine *m, nb_error *err)
{
    nb_machine *old = row_of(ms, m->name);
    if (!old) {
        if (ms->n == NB_MAX_MACHINE)
            return nb_fail(err, NB_ERR_LIMIT, "more than %d GPUs", NB_MAX_MACHINE);
        if (NB_GROW(ms->m, ms->cap, ms->n) != NB_OK)
            return nb_fail(err, NB_ERR_NOMEM, "out of memory");
        old = &ms->m[ms->n++];
    }
    *old = *m;
    return NB_OK;
}

/* Into a copy first, so that a file with a mistake changes nothing. */
static nb_status add_doc(nb_machines *ms, nb_doc *d, nb_error *err)
{
    const char **key = NULL;
    nb_machines copy = { 0 };
    nb_status st = NB_OK;
    if (!nb_doc_is_object(d, "gpus"))
        return nb_fail(err, NB_ERR_FORMAT, "%s: expected {\"gpus\": {\"NAME\": {...}}}",
                       nb_doc_name(d));
    for (size_t i = 0; i < ms->n && st == NB_OK; i++) st = put(&copy, &ms->m[i], err);
    key = calloc(NB_MAX_MACHINE + 1, sizeof *key);
    if (!key && st == NB_OK) st = nb_fail(err, NB_ERR_NOMEM, "out of memory");
    if (st != NB_OK) goto out;
    const size_t n = nb_doc_keys(d, "gpus", key, NB_MAX_MACHINE + 1);
    if (n > NB_MAX_MACHINE)
        st = nb_fail(err, NB_ERR_LIMIT, "%s: more than %d GPUs", nb_doc_name(d), NB_MAX_MACHINE);
    for (size_t i = 0; i < n && st == NB_OK; i++) {
        nb_machine m;
        st = read_row(d, key[i], &m, err);
        if (st == NB_OK) st = put(&copy, &m, err);
    }
    if (st == NB_OK) {
        free(ms->m);
        *ms = copy;
        copy = (nb_machines){ 0 };
    }
out:
    free((void *)key);
    nb_machines_deinit(&copy);
    return st;
}

nb_status nb_machines_add(nb_machines *ms, nb_str json, const char *name, nb_error *err)
{
    nb_doc *d = NULL;
    NB_TRY(nb_doc_parse(json, name, &d, err));
    const nb_status st = add_doc(ms, d, err);
    nb_doc_destroy(d);
    return st;
}

nb_status nb_machines_read(nb_machines *ms, const char *path, nb_error *err)
{
    nb_doc *d = NULL;
    NB_TRY(nb_doc_read(path, &d, err));
    const nb_status st = add_doc(ms, d, err);
    nb_doc_destroy(d);
    return st;
}

nb_status nb_machines_builtin(nb_machines *out, nb_error *err)
{
    const nb_embedded *e = &nb_embedded_gpus[0];
    *out = (nb_machines){ 0 };
    return nb_machines_add(out, (nb_str){ (const char *)e->p, e->n_bytes }, "gpus.json", err);
}

void nb_machines_deinit(nb_machines *ms)
{
    free(ms->m);
    *ms = (nb_machines){ 0 };
}

/* ---- by name ------------------------------------------------------------ */

/* Lower case, without '-', '_' and ' '. */
static void fold(const char *s, char out[NB_MACHINE_NAME])
{
    size_t n = 0;
    for (; *s && n + 1 < NB_MACHINE_NAME; s++) {
        if (*s == '-' || *s == '_' || *s == ' ') continue;
        out[n++] = (char)(*s >= 'A' && *s <= 'Z' ? *s - 'A' + 'a' : *s);
    }
    out[n] = 0;
}

const nb_machine *nb_machines_find(const nb_machines *ms, const char *name)
{
    char want[NB_MACHINE_NAME], have[NB_MACHINE_NAME];
    if (strlen(name) >= NB_MACHINE_NAME) return NULL;
    fold(name, want);
    for (size_t i = 0; i < ms->n; i++) {
        fold(ms->m[i].name, have);
        if (strcmp(want, have) == 0) return &ms->m[i];
    }
    return NULL;
}

/* Edit distance (Levenshtein). */
static size_t distance(const char *a, const char *b)
{
    size_t row[NB_MACHINE_NAME];
    const size_t n = strlen(a), m = strlen(b);
    for (size_t j = 0; j <= m; j++) row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            const size_t up = row[j];
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            if (up + 1 < best) best = up + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            diagonal = up;
            row[j] = best;
        }
    }
    return row[m];
}

const nb_machine *nb_machines_nearest(const nb_machines *ms, const char *name)
{
    char want[NB_MACHINE_NAME], have[NB_MACHINE_NAME];
    const nb_machine *best = NULL;
    size_t best_d = 0;
    fold(name, want);
    for (size_t i = 0; i < ms->n; i++) {
        fold(ms->m[i].name, have);
        /* "nvidia-h200-sxm" holds "h200": nearer than any number of wrong letters */
        const size_t d = strstr(want, have) ? 0 : distance(want, have);
        if (!best || d < best_d) {
            best = &ms->m[i];
            best_d = d;
        }
    }
    return best;
}
