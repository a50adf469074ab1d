/* fuzz_config.c - any bytes as a config.json: the document's getters with every path
 * that the input has, then the reading of a model's configuration and its sizes; and as the name of a
 * bundled one. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "capacity/configs.h"
#include "capacity/sizes.h"
#include "load/doc.h"
#include "model/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check_error(const nb_error *e)
{
    const char *end = memchr(e->msg, 0, sizeof e->msg);
    if (!end || end == e->msg || e->status == NB_OK) abort();
    for (const char *p = e->msg; p < end; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) abort();
}

static void measure(const nb_model_config *c)
{
    nb_model_size n;
    nb_error e = { 0 };
    nb_sizes *s = malloc(sizeof *s);
    nb_model_config_size(c, &n);
    if (s && nb_sizes_of(c, s, &e) == NB_OK) {
        if (s->n_record == 0 || s->weight_bytes == 0 || s->active_bytes > s->weight_bytes) abort();
        for (size_t i = 0; i < s->n_record && c->n_attn == 1; i++) /* pages of one size */
            if (s->record[i].block_bytes != c->n_layer * s->record[i].page_bytes) abort();
    } else if (s) {
        check_error(&e);
    }
    free(s);
}

static void look_up(const uint8_t *data, size_t n)
{
    nb_bundled_config b;
    nb_error e = { 0 };
    char *name = malloc(n + 1);
    if (!name) return;
    if (n) memcpy(name, data, n);
    name[n] = 0;
    if (nb_capacity_config(name, &b, &e) != NB_OK) check_error(&e);
    free(name);
}

enum { MAX_KEY = 24 };

static void getters(nb_doc *d, const char *path)
{
    uint64_t u, us[3];
    double f, fs[3];
    bool b;
    const char *s, *ss[3];
    size_t z, count;
    (void)nb_doc_has(d, path);
    (void)nb_doc_is_object(d, path);
    (void)nb_doc_is_bool(d, path);
    if (nb_doc_u64(d, path, 2, 1000, &u) && (u < 2 || u > 1000)) abort();
    (void)nb_doc_size(d, path, 0, SIZE_MAX, &z);
    if (nb_doc_f64(d, path, &f) && !(f - f == 0)) abort(); /* finite */
    (void)nb_doc_bool(d, path, &b);
    if (nb_doc_str(d, path, &s) && strlen(s) > (size_t)1 << 24) abort();
    if (nb_doc_u64s(d, path, 77, us, 3, &count) && count > 3) abort();
    if (nb_doc_f64s(d, path, fs, 3, &count) && count > 3) abort();
    if (nb_doc_strs(d, path, ss, 3, &count) && count > 3) abort();
}

static void walk(nb_doc *d, const char *path, int depth)
{
    const char *keys[MAX_KEY];
    getters(d, path);
    const size_t n = nb_doc_keys(d, path, keys, MAX_KEY);
    for (size_t i = 0; i < n && i < MAX_KEY && depth < 3; i++) {
        const size_t a = strlen(path), b = strlen(keys[i]);
        if (a + b > 200) continue;
        char deeper[220];
        memcpy(deeper, path, a);
        if (a) deeper[a] = '.';
        memcpy(deeper + a + (a > 0), keys[i], b + 1);
        walk(d, deeper, depth + 1);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const nb_str json = { (const char *)data, n };
    nb_doc *d = NULL;
    nb_error e;
    look_up(data, n);
    if (nb_doc_parse(json, "config.json", &d, &e) != NB_OK) {
        check_error(&e);
        return 0;
    }
    walk(d, "", 0);
    nb_doc_at(d, "text_config");
    walk(d, "", 0);
    if (nb_doc_check(d, &e) != NB_OK) check_error(&e);
    nb_doc_destroy(d);
    /* The first error stays with a document, so the configuration gets a fresh one. */
    if (nb_doc_parse(json, "config.json", &d, &e) != NB_OK) {
        check_error(&e); /* only when an allocation was made to fail */
        return 0;
    }
    nb_model_config *c = malloc(sizeof *c);
    bool read = false;
    if (c && nb_model_config_read(d, c, &e) == NB_OK) {
        read = true;
        measure(c);
    } else if (c) {
        check_error(&e);
    }
    nb_doc_destroy(d);
    /* Again for the planner, which counts more than the engine runs. */
    d = NULL;
    if (c && nb_doc_parse(json, "config.json", &d, &e) == NB_OK) {
        if (nb_model_config_read_any(d, c, &e) == NB_OK) {
            measure(c);
        } else {
            check_error(&e);
            if (read && e.status != NB_ERR_NOMEM) abort();
        }
    }
    free(c);
    nb_doc_destroy(d);
    return 0;
}
