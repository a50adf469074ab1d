/* tune_file.c - see tune_file.h. */
#include "engine/tune_file.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "kernel/linear/packed.h"
#include "load/json.h"
#include "nb_config.h"
#include "os/cpu.h"
#include "os/file.h"
#include "os/sys.h"

enum { VERSION = 1, MAX_BYTES = 64 << 10 };
static const char format[] = "nibble tune";

/* ---- names ---- */

static nb_status find_folder(nb_buf *out, nb_error *err)
{
    const char *cache = nb_os_env("XDG_CACHE_HOME"), *home = nb_os_env("HOME");
    if (!cache && !home)
        return nb_fail(err, NB_ERR_NOT_FOUND, "neither XDG_CACHE_HOME nor HOME is set: no folder keeps what "
                                              "kernels were timed");
    const nb_status st = cache ? nb_buf_printf(out, "%s/nibble/tune", cache) :
                                 nb_buf_printf(out, "%s/.cache/nibble/tune", home);
    return st == NB_OK ? NB_OK : nb_fail(err, NB_ERR_NOMEM, "out of memory");
}

/* Machine and shapes: what the file's name depends on. */
static nb_status put_place(nb_buf *b, const nb_tune *t, nb_caps caps, size_t n_thread)
{
    char cpu[128];
    nb_cpu_model(cpu, sizeof cpu);
    NB_TRY(nb_buf_printf(b, "%s; ", cpu));
    NB_TRY(nb_cpu_caps_name(caps, b));
    NB_TRY(nb_buf_printf(b, "; %zu threads", n_thread));
    for (size_t i = 0; i < t->n; i++) {
        const nb_tune_op *op = &t->op[i];
        NB_TRY(nb_buf_printf(b, "; %s", op->name));
        if (op->kind == NB_TUNE_LINEAR)
            NB_TRY(nb_buf_printf(b, " %zux%zu %s", op->n_row, op->n_col, op->level[0].act));
        else
            NB_TRY(nb_buf_printf(b, " %s %zu heads", nb_kv_type_name(op->record->type), op->n_head));
    }
    return NB_OK;
}

/* A new version, or other candidates, make a file stale. */
static nb_status put_key(nb_buf *b, const nb_tune *t, const char *place)
{
    NB_TRY(nb_buf_printf(b, "nibble %s; %s", NB_VERSION, place));
    for (size_t i = 0; i < t->n; i++)
        for (size_t k = 0; k < t->op[i].n; k++)
            NB_TRY(nb_buf_printf(b, "%s%s", k ? "," : "; ", t->op[i].level[k].name));
    return NB_OK;
}

nb_status nb_tune_name(nb_tune *t, nb_caps caps, size_t n_thread, nb_error *err)
{
    nb_buf place = { 0 };
    NB_TRY(find_folder(&t->folder, err));
    nb_status st = put_place(&place, t, caps, n_thread);
    if (st == NB_OK) st = put_key(&t->key, t, place.p);
    if (st == NB_OK)
        st = nb_buf_printf(&t->path, "%s/%016llx.json", t->folder.p,
                           (unsigned long long)nb_hash_bytes(place.p, place.n_bytes, 0));
    nb_buf_deinit(&place);
    return st == NB_OK ? NB_OK : nb_fail(err, NB_ERR_NOMEM, "out of memory");
}

void nb_tune_deinit(nb_tune *t)
{
    nb_buf_deinit(&t->folder);
    nb_buf_deinit(&t->path);
    nb_buf_deinit(&t->key);
}

/* ---- reading ---- */

static nb_status damaged(const nb_tune *t, const char *why, nb_error *err)
{
    return nb_fail(err, NB_ERR_FORMAT, "%s: not what `nibble bench tune` writes: %s", nb_show_path(t->path.p).s,
                   why);
}

static nb_status take(nb_tune *t, const json_t *j, bool *found, nb_error *err)
{
    const char *name = json_string_value(json_object_get(j, "format"));
    const json_t *version = json_object_get(j, "version"), *key = json_object_get(j, "key"),
                 *ops = json_object_get(j, "operations");
    size_t chosen[NB_TUNE_MAX_OP];
    if (!name || strcmp(name, format) != 0 || !json_is_integer(version) || !json_is_string(key) ||
        !json_is_object(ops))
        return damaged(t, "expected format, version, key and operations", err);
    if (json_integer_value(version) != VERSION || strcmp(json_string_value(key), t->key.p) != 0)
        return NB_OK; /* of another version or machine */
    for (size_t i = 0; i < t->n; i++) {
        const nb_tune_op *op = &t->op[i];
        const char *level = json_string_value(json_object_get(json_object_get(ops, op->name), "level"));
        size_t k = 0;
        while (level && k < op->n && strcmp(op->level[k].name, level) != 0) k++;
        if (!level || k == op->n) return damaged(t, "an operation has no level of this machine", err);
        chosen[i] = k;
    }
    for (size_t i = 0; i < t->n; i++) t->op[i].chosen = chosen[i];
    *found = true;
    return NB_OK;
}

nb_status nb_tune_read(nb_tune *t, bool *found, nb_error *err)
{
    static const nb_json_limits lim = { .max_bytes = MAX_BYTES, .max_depth = 8, .max_values = 1000 };
    nb_buf text = { 0 };
    json_t *j = NULL;
    bool there = false;
    *found = false;
    NB_TRY(nb_path_found(t->path.p, &there, err));
    if (!there) return NB_OK;
    nb_status st = nb_file_read(t->path.p, MAX_BYTES, &text, err);
    if (st == NB_OK) st = nb_json_parse(nb_buf_view(&text), nb_show_path(t->path.p).s, &lim, &j, err);
    if (st == NB_OK) st = take(t, j, found, err);
    json_decref(j);
    nb_buf_deinit(&text);
    return st;
}

/* ---- writing ---- */

static json_t *measured(const nb_tune_op *op)
{
    json_t *j = json_object();
    for (size_t k = 0; j && k < op->n; k++)
        if (json_object_set_new(j, op->level[k].name,
                                json_pack("[f, f]", op->level[k].few_us, op->level[k].many_us)) != 0) {
            json_decref(j);
            return NULL;
        }
    return j;
}

static char *text_of(const nb_tune *t)
{
    json_t *ops = json_object();
    bool ok = ops != NULL;
    for (size_t i = 0; i < t->n && ok; i++) {
        const nb_tune_op *op = &t->op[i];
        json_t *m = measured(op);
        ok = m && json_object_set_new(ops, op->name,
                                      json_pack("{s:s, s:o}", "level", op->level[op->chosen].name,
                                                "measured_us", m)) == 0;
    }
    json_t *j = ok ? json_pack("{s:s, s:i, s:s, s:O}", "format", format, "version", (int)VERSION, "key",
                               t->key.p, "operations", ops)
                   : NULL;
    char *text = j ? json_dumps(j, JSON_INDENT(1) | JSON_REAL_PRECISION(6)) : NULL;
    json_decref(j);
    json_decref(ops);
    return text;
}

nb_status nb_tune_write(const nb_tune *t, nb_error *err)
{
    NB_TRY(nb_dir_make(t->folder.p, err));
    if (nb_path_is_other(t->path.p)) /* nothing of ours: a fifo would not even let itself be opened */
        return nb_fail(err, NB_ERR_IO, "%s: not a regular file", nb_show_path(t->path.p).s);
    char *text = text_of(t);
    if (!text) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    const nb_status st = nb_file_replace(t->path.p, text, strlen(text), err);
    free(text);
    return st;
}
