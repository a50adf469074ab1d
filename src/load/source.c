/* source.c - see source.h.
 *
 * Opening: map each file, check its header (safetensors.c), append its tensors to one
 * array, then build one hash table over the names.  With an index the weight_map is a
 * second set of claims that is checked against the tensors found.  The table is open
 * addressing at a load of at most one half; its seed comes from where the loader put
 * us in memory, so that a file cannot be made whose names collide, and nothing but the
 * table's layout depends on it. */
#include "load/source.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "load/explain.h"
#include "load/hub.h"
#include "load/optional.h"
#include "load/params.h"
#include "load/source_internal.h"

enum { MAX_SHARDS = 10000, MAX_INDEX_BYTES = 100000000, TOUCH_BYTES = 16 << 20, TOUCH_TASKS = 16 };

static nb_status no_memory(const char *where, nb_error *err)
{
    return nb_fail(err, NB_ERR_NOMEM, "%s: out of memory", nb_show_path(where).s);
}

static nb_status source_create(const char *where, nb_source **out, nb_error *err)
{
    nb_source *s = calloc(1, sizeof *s);
    if (!s) return no_memory(where, err);
    s->where = nb_arena_strdup(&s->names, nb_str_c(where));
    s->cursor = nb_arena_alloc(&s->names, sizeof *s->cursor);
    s->hash_seed = nb_mix64((uint64_t)(uintptr_t)s ^ nb_mix64((uint64_t)(uintptr_t)&out));
    if (!s->where || !s->cursor) {
        nb_source_close(s);
        return no_memory(where, err);
    }
    *out = s;
    return NB_OK;
}

void nb_source_close(nb_source *s)
{
    if (!s) return;
    nb_dummy_destroy(s->dummy);
    for (size_t i = 0; s->tensors && i < s->n_tensor; i++) /* a dummy counts, but has none */
        nb_pages_free(s->tensors[i].owned, s->tensors[i].tensor.n_bytes);
    for (size_t i = 0; i < s->n_file; i++) {
        nb_file_unmap(&s->files[i].map);
        nb_pages_free(s->files[i].copy, s->files[i].copy_bytes);
    }
    free(s->tensors);
    free(s->files);
    free(s->table);
    nb_arena_deinit(&s->names);
    free(s);
}

/* ------------------------------------------------------------- table of names */

/* A tensor by its whole name. */
static nb_st_tensor *find_whole(const nb_source *s, const char *name)
{
    if (!s->table) return NULL;
    const size_t n = strlen(name);
    size_t i = (size_t)nb_hash_bytes(name, n, s->hash_seed) & s->table_mask;
    for (; s->table[i]; i = (i + 1) & s->table_mask) {
        nb_st_tensor *t = &s->tensors[s->table[i] - 1];
        if (t->n_name_bytes == n && memcmp(t->name, name, n) == 0) return t;
    }
    return NULL;
}

enum { WHOLE_BYTES = 512 };

/* The name in the files of a name that is asked for; false: too long. */
static bool whole_name(const nb_source *s, const char *name, char out[WHOLE_BYTES])
{
    static const char model[] = "model.";
    const size_t n_model = sizeof model - 1;
    const char *prefix = s->prefix ? s->prefix : "";
    if (strncmp(prefix, model, n_model) == 0) { /* it stands for "model." */
        if (strncmp(name, model, n_model) == 0)
            name += n_model;
        else
            prefix = "";
    }
    const int n = snprintf(out, WHOLE_BYTES, "%s%s", prefix, name);
    return n > 0 && n < WHOLE_BYTES;
}

static nb_st_tensor *find_tensor(const nb_source *s, const char *name)
{
    char whole[WHOLE_BYTES];
    if (s->rename) return s->rename(name, whole, sizeof whole) ? find_whole(s, whole) : NULL;
    if (!s->prefix) return find_whole(s, name);
    return whole_name(s, name, whole) ? find_whole(s, whole) : NULL;
}

/* Puts tensor `index` into the table; returns an earlier tensor of the same name
 * (whose place is kept), or NULL. */
static nb_st_tensor *table_put(nb_source *s, size_t index)
{
    const nb_st_tensor *x = &s->tensors[index];
    size_t i = (size_t)nb_hash_bytes(x->name, x->n_name_bytes, s->hash_seed) & s->table_mask;
    for (; s->table[i]; i = (i + 1) & s->table_mask) {
        nb_st_tensor *t = &s->tensors[s->table[i] - 1];
        if (t->n_name_bytes == x->n_name_bytes && memcmp(t->name, x->name, x->n_name_bytes) == 0)
            return t;
    }
    s->table[i] = index + 1;
    return NULL;
}

static nb_status table_create(nb_source *s, nb_error *err)
{
    size_t cap = 16;
    while (cap < 2 * s->n_tensor) cap *= 2;
    free(s->table);
    s->table = calloc(cap, sizeof *s->table);
    if (!s->table) return no_memory(s->where, err);
    s->table_mask = cap - 1;
    return NB_OK;
}

/* ---------------------------------------------------------------- one file */

static nb_status add_bytes(nb_source *s, nb_str bytes, const nb_file_map *map, const char *path,
                           nb_error *err)
{
    NB_TRY(NB_GROW(s->files, s->cap_file, s->n_file) == NB_OK ? NB_OK : no_memory(path, err));
    char *own = nb_arena_strdup(&s->names, nb_str_c(path));
    if (!own) return no_memory(path, err);
    nb_st_tensor *t = NULL;
    size_t n = 0;
    NB_TRY(nb_safetensors_parse(bytes, path, s->n_file, &s->names, &t, &n, err));
    /* The first file's array is taken over, later ones are appended. */
    if (s->n_tensor == 0) {
        free(s->tensors);
        s->tensors = t;
        s->cap_tensor = s->n_tensor = n;
    } else if (n > 0) {
        const nb_status st = NB_GROW(s->tensors, s->cap_tensor, s->n_tensor + n - 1);
        if (st == NB_OK) memcpy(s->tensors + s->n_tensor, t, n * sizeof *t);
        free(t);
        if (st != NB_OK) return no_memory(path, err);
        s->n_tensor += n;
    } else {
        free(t);
    }
    source_file *f = &s->files[s->n_file++];
    *f = (source_file){ .path = own };
    for (size_t i = s->n_tensor - n; i < s->n_tensor; i++)
        s->n_bytes += s->tensors[i].tensor.n_bytes;
    if (map) f->map = *map;
    return NB_OK;
}

static nb_status add_file(nb_source *s, const char *path, nb_error *err)
{
    nb_file_map map = { 0 };
    if (nb_gguf_is(path)) return nb_source_add_gguf(s, path, NULL, err);
    NB_TRY(nb_file_mmap(path, &map, err));
    const nb_str bytes = { map.p ? (const char *)map.p : "", map.n_bytes };
    const nb_status st = add_bytes(s, bytes, &map, path, err);
    if (st != NB_OK) nb_file_unmap(&map);
    return st;
}

/* All names of a single file.  Those of safetensors are unique, the JSON parser saw to it; two names of a
 * GGUF may become the same one. */
static nb_status finish_single(nb_source *s, nb_error *err)
{
    NB_TRY(table_create(s, err));
    for (size_t i = 0; i < s->n_tensor; i++)
        if (table_put(s, i))
            return nb_fail(err, NB_ERR_FORMAT, "%s: tensor '%s' is there twice",
                           nb_show_path(s->where).s, nb_show_c(s->tensors[i].name).s);
    return NB_OK;
}

nb_status nb_source_open_bytes(nb_str bytes, const char *name, nb_source **out, nb_error *err)
{
    nb_source *s = NULL;
    NB_TRY(source_create(name, &s, err));
    const bool gguf = bytes.n_bytes >= 4 && memcmp(bytes.p, "GGUF", 4) == 0;
    nb_status st =
        gguf ? nb_source_add_gguf(s, name, &bytes, err) : add_bytes(s, bytes, NULL, name, err);
    if (st == NB_OK) st = finish_single(s, err);
    if (st == NB_OK)
        *out = s;
    else
        nb_source_close(s);
    return st;
}

nb_status nb_source_open_file(const char *path, nb_source **out, nb_error *err)
{
    nb_source *s = NULL;
    NB_TRY(source_create(path, &s, err));
    nb_status st = add_file(s, path, err);
    if (st == NB_OK) st = finish_single(s, err);
    if (st == NB_OK)
        *out = s;
    else
        nb_source_close(s);
    return st;
}

nb_status nb_source_open_dummy(uint64_t seed, double stddev, nb_source **out, nb_error *err)
{
    nb_source *s = NULL;
    NB_TRY(source_create("dummy weights", &s, err));
    const nb_status st = nb_dummy_create(seed, stddev, &s->dummy, err);
    if (st == NB_OK)
        *out = s;
    else
        nb_source_close(s);
    return st;
}

/* ------------------------------------------------------- a directory, an index */

/* weight_map: tensor name -> shard.  The index's claims while the shards are opened. */
typedef struct claims {
    const char *path; /* of the index */
    const char *dir;
    json_t *root, *map;
    json_t *shard_of; /* shard name -> index into source.files */
} claims;

static nb_status open_shard(nb_source *s, claims *c, const char *tensor, const json_t *v,
                            nb_error *err)
{
    if (!json_is_string(v))
        return nb_fail(err, NB_ERR_FORMAT, "%s: tensor '%s': shard is %s, expected a string",
                       nb_show_path(c->path).s, nb_show_c(tensor).s, nb_json_describe(v).s);
    const char *shard = json_string_value(v);
    if (json_object_get(c->shard_of, shard)) return NB_OK;
    if (!nb_path_is_inside(shard))
        return nb_fail(err, NB_ERR_FORMAT,
                       "%s: tensor '%s': shard '%s' is not a file name inside "
                       "of the model's directory",
                       nb_show_path(c->path).s, nb_show_c(tensor).s, nb_show_c(shard).s);
    if (s->n_file >= MAX_SHARDS)
        return nb_fail(err, NB_ERR_LIMIT, "%s: more shards than the limit of %d",
                       nb_show_path(c->path).s, MAX_SHARDS);
    nb_buf path = { 0 };
    nb_status st = nb_path_join(&path, c->dir, shard);
    if (st != NB_OK)
        (void)no_memory(c->path, err);
    else
        st = nb_hub_missing(c->dir, add_file(s, path.p, err), err);
    nb_buf_deinit(&path);
    if (st == NB_OK &&
        json_object_set_new(c->shard_of, shard, json_integer((json_int_t)s->n_file - 1)) != 0)
        st = no_memory(c->path, err);
    return st;
}

/* Which tensors count: those in the shard that the index names for them, and those
 * that it does not list at all.  Others are removed; order is kept. */
static nb_status drop_shadowed(nb_source *s, const claims *c, nb_error *err)
{
    size_t kept = 0;
    for (size_t i = 0; i < s->n_tensor; i++) {
        const char *shard = json_string_value(json_object_get(c->map, s->tensors[i].name));
        const json_t *file = shard ? json_object_get(c->shard_of, shard) : NULL;
        if (file && (size_t)json_integer_value(file) != s->tensors[i].file) {
            s->n_bytes -= s->tensors[i].tensor.n_bytes;
            continue;
        }
        if (kept != i) s->tensors[kept] = s->tensors[i];
        kept++;
    }
    s->n_tensor = kept;
    NB_TRY(table_create(s, err));
    for (size_t i = 0; i < s->n_tensor; i++) {
        const nb_st_tensor *first = table_put(s, i);
        if (first)
            return nb_fail(err, NB_ERR_FORMAT,
                           "%s: tensor '%s': is also in %s, and the index does not say which one "
                           "is meant",
                           nb_show_path(s->files[s->tensors[i].file].path).s,
                           nb_show_c(first->name).s, nb_show_path(s->files[first->file].path).s);
    }
    return NB_OK;
}

static nb_status read_claims(nb_source *s, claims *c, nb_error *err)
{
    c->map = json_object_get(c->root, "weight_map");
    if (!json_is_object(c->map))
        return nb_fail(err, NB_ERR_FORMAT,
                       "%s: weight_map is %s, expected an object from tensor names to shards",
                       nb_show_path(c->path).s, c->map ? nb_json_describe(c->map).s : "missing");
    c->shard_of = json_object();
    if (!c->shard_of) return no_memory(c->path, err);
    for (void *it = json_object_iter(c->map); it; it = json_object_iter_next(c->map, it))
        NB_TRY(open_shard(s, c, json_object_iter_key(it), json_object_iter_value(it), err));
    NB_TRY(drop_shadowed(s, c, err));
    for (void *it = json_object_iter(c->map); it; it = json_object_iter_next(c->map, it)) {
        if (find_tensor(s, json_object_iter_key(it))) continue;
        return nb_fail(err, NB_ERR_FORMAT,
                       "%s: tensor '%s': expected in shard '%s', which does not have it",
                       nb_show_path(c->path).s, nb_show_c(json_object_iter_key(it)).s,
                       nb_show_c(json_string_value(json_object_iter_value(it))).s);
    }
    return NB_OK;
}

static nb_status add_index(nb_source *s, const char *dir, const char *path, nb_error *err)
{
    nb_buf text = { 0 };
    claims c = { .path = path, .dir = dir };
    const nb_json_limits lim = NB_HEADER_LIMITS;
    nb_status st = nb_file_read(path, MAX_INDEX_BYTES, &text, err);
    if (st == NB_OK) st = nb_json_parse(nb_buf_view(&text), path, &lim, &c.root, err);
    nb_buf_deinit(&text);
    if (st == NB_OK) st = read_claims(s, &c, err);
    json_decref(c.shard_of);
    json_decref(c.root);
    return st;
}

/* Names of Mistral's own layout become those of a Hugging Face folder; what has none there keeps its own. */
static nb_status rename_all(nb_source *s, nb_error *err)
{
    char name[WHOLE_BYTES];
    for (size_t i = 0; i < s->n_tensor; i++) {
        nb_st_tensor *x = &s->tensors[i];
        if (!nb_params_tensor(x->name, name, sizeof name)) continue;
        x->name = nb_arena_strdup(&s->names, nb_str_c(name));
        if (!x->name) return no_memory(s->where, err);
        x->n_name_bytes = strlen(name);
    }
    return finish_single(s, err);
}

/* consolidated.safetensors or shards of it; *found: they are there. */
static nb_status add_consolidated(nb_source *s, const char *dir, bool *found, nb_error *err)
{
    nb_buf path = { 0 };
    nb_status st = nb_optional_find(dir, "consolidated.safetensors", &path, found, err);
    if (st == NB_OK && *found) {
        st = add_file(s, path.p, err);
    } else if (st == NB_OK) {
        st = nb_optional_find(dir, "consolidated.safetensors.index.json", &path, found, err);
        if (st == NB_OK && *found) st = add_index(s, dir, path.p, err);
    }
    nb_buf_deinit(&path);
    return st == NB_OK && *found ? rename_all(s, err) : st;
}

static nb_status add_dir(nb_source *s, const char *dir, nb_error *err)
{
    nb_buf path = { 0 }, name = { 0 };
    size_t n = 0;
    bool found;
    nb_status st = nb_gguf_resolve(dir, &path, &found, err);
    if (st == NB_OK && found) st = nb_source_add_gguf(s, path.p, NULL, err);
    if (st == NB_OK && found) st = finish_single(s, err);
    if (st != NB_OK || found) goto out;
    st = nb_optional_find(dir, "model.safetensors", &path, &found, err);
    if (st == NB_OK && found) {
        st = add_file(s, path.p, err);
        if (st == NB_OK) st = finish_single(s, err);
        goto out;
    }
    if (st == NB_OK) st = nb_optional_find(dir, "model.safetensors.index.json", &path, &found, err);
    if (st == NB_OK && found) st = add_index(s, dir, path.p, err);
    if (st == NB_OK && !found) st = add_consolidated(s, dir, &found, err);
    if (st != NB_OK || found) goto out;
    NB_TRY_OUT(nb_dir_find(dir, ".safetensors", &name, &n, err));
    if (n == 0) {
        st = nb_hub_missing(dir, nb_explain_weights(dir, err), err);
        goto out;
    }
    if (n > 1) {
        st = nb_fail(err, NB_ERR_NOT_FOUND,
                     "%s: %zu *.safetensors files and no model.safetensors.index.json, which says "
                     "what is in them",
                     nb_show_path(dir).s, n);
        goto out;
    }
    st = nb_path_join(&path, dir, name.p);
    if (st != NB_OK) {
        (void)no_memory(dir, err);
        goto out;
    }
    NB_TRY_OUT(add_file(s, path.p, err));
    st = finish_single(s, err);
out:
    nb_buf_deinit(&path);
    nb_buf_deinit(&name);
    return st;
}

nb_status nb_source_open_dir(const char *dir, nb_source **out, nb_error *err)
{
    nb_source *s = NULL;
    NB_TRY(source_create(dir, &s, err));
    const nb_status st = add_dir(s, dir, err);
    if (st == NB_OK)
        *out = s;
    else
        nb_source_close(s);
    return st;
}

/* ------------------------------------------------------------------- taking */

bool nb_source_has(const nb_source *s, const char *name)
{
    return s->dummy || find_tensor(s, name) != NULL;
}

bool nb_source_peek(const nb_source *s, const char *name, nb_tensor *out)
{
    const nb_st_tensor *x = s->dummy ? NULL : find_tensor(s, name);
    if (!x) return false;
    *out = x->tensor;
    out->data = NULL;
    return true;
}

void nb_source_set_names(nb_source *s, nb_source_names_fn *fn)
{
    s->rename = fn;
}

void nb_source_set_prefix(nb_source *s, const char *prefix)
{
    s->prefix = prefix;
}

/* The bit of a type in nb_tensor_want.dtypes: all blocks of GGUF share one. */
static unsigned dtype_bit(nb_dtype t)
{
    return t > NB_DT_Q8_0 ? NB_DT_Q8_0 : t;
}

/* "BF16 or F32 [2048, any]" */
static void show_want(const nb_tensor_want *w, char *out, size_t cap)
{
    size_t o = 0;
    const char *sep = "";
    out[0] = 0;
    for (unsigned t = 0; t <= NB_DT_Q8_0; t++) {
        if (!(w->dtypes >> t & 1)) continue;
        o += (size_t)snprintf(out + o, cap - o, "%s%s", sep,
                              t == NB_DT_Q8_0 ? "blocks of GGUF" : nb_dtype_name((nb_dtype)t));
        sep = " or ";
    }
    o += (size_t)snprintf(out + o, cap - o, " [");
    for (size_t i = 0; i < w->n_dim && i < NB_TENSOR_MAX_DIM; i++)
        o += w->dim[i] ? (size_t)snprintf(out + o, cap - o, "%s%zu", i ? ", " : "", w->dim[i])
                       : (size_t)snprintf(out + o, cap - o, "%sany", i ? ", " : "");
    (void)snprintf(out + o, cap - o, "]");
}

static bool fits(const nb_tensor_want *w, const nb_tensor *t)
{
    size_t n = 1;
    if (t->dtype == NB_DT_OTHER || !(w->dtypes >> dtype_bit(t->dtype) & 1)) return false;
    for (size_t i = 0; i < t->n_dim; i++) n *= t->dim[i]; /* fits: its bytes do */
    if (w->any_shape) return n == w->dim[0];
    if (w->n_dim != t->n_dim) return false;
    for (size_t i = 0; i < t->n_dim; i++)
        if (w->dim[i] && w->dim[i] != t->dim[i]) return false;
    return true;
}

static nb_status take_dummy(nb_source *s, const nb_tensor_want *want, nb_tensor *out, nb_error *err)
{
    if (want->dummy_dtype >= NB_DT_OTHER || !(want->dtypes >> want->dummy_dtype & 1))
        return nb_fail(err, NB_ERR_ARG, "dummy weights: tensor '%s': type %s is not wanted",
                       nb_show_c(want->name).s, nb_dtype_name(want->dummy_dtype));
    NB_TRY(nb_dummy_make(s->dummy, want, out, err));
    s->n_tensor++;
    s->n_bytes += out->n_bytes;
    return NB_OK;
}

/* Makes the data's address fit its type. */
static nb_status align(nb_st_tensor *x, const char *path, nb_error *err)
{
    static const uint64_t nothing = 0; /* an aligned address for empty tensors */
    nb_tensor *t = &x->tensor;
    const size_t elem = nb_dtype_bytes(t->dtype);
    if (t->n_bytes == 0) t->data = &nothing;
    if (elem == 0 || (uintptr_t)t->data % elem == 0) return NB_OK;
    x->owned = nb_pages_alloc(t->n_bytes);
    if (!x->owned)
        return nb_fail(err, NB_ERR_NOMEM,
                       "%s: tensor '%s': out of memory for an aligned copy of "
                       "%zu bytes",
                       nb_show_path(path).s, nb_show_c(x->name).s, t->n_bytes);
    memcpy(x->owned, t->data, t->n_bytes);
    t->data = x->owned;
    return NB_OK;
}

nb_status nb_source_take(nb_source *s, const nb_tensor_want *want, nb_tensor *out, nb_error *err)
{
    char wanted[512];
    if (s->dummy) return take_dummy(s, want, out, err);
    nb_st_tensor *x = find_tensor(s, want->name);
    if (!x) {
        char whole[WHOLE_BYTES];
        (void)whole_name(s, want->name, whole);
        show_want(want, wanted, sizeof wanted);
        return nb_fail(err, NB_ERR_NOT_FOUND, "%s: tensor '%s': missing, expected %s",
                       nb_show_path(s->where).s, nb_show_c(whole).s, wanted);
    }
    const char *path = s->files[x->file].path;
    if (!fits(want, &x->tensor)) {
        show_want(want, wanted, sizeof wanted);
        if (x->why)
            return nb_fail(err, NB_ERR_UNSUPPORTED, "%s: tensor '%s': type %s is not supported: %s",
                           nb_show_path(path).s, nb_show_c(x->name).s, x->type, x->why);
        return nb_fail(err, NB_ERR_FORMAT, "%s: tensor '%s': is %s %s, expected %s",
                       nb_show_path(path).s, nb_show_c(x->name).s, nb_dtype_name(x->tensor.dtype),
                       nb_shape_show(x->tensor.dim, x->tensor.n_dim).s, wanted);
    }
    NB_TRY(x->part ? nb_source_make(x, path, err) : align(x, path, err));
    x->taken = true;
    *s->cursor = (leftover_cursor){ 0 };
    *out = x->tensor;
    return NB_OK;
}

size_t nb_source_n_tensor(const nb_source *s)
{
    return s->n_tensor;
}

size_t nb_source_bytes(const nb_source *s)
{
    return s->n_bytes;
}

const char *nb_source_leftover(const nb_source *s, size_t i)
{
    if (s->dummy) return NULL;
    leftover_cursor c = *s->cursor;
    if (i < c.i) c = (leftover_cursor){ 0 };
    for (; c.at < s->n_tensor; c.at++) {
        if (s->tensors[c.at].taken) continue;
        if (c.i == i) break;
        c.i++;
    }
    *s->cursor = c;
    return c.at < s->n_tensor ? s->tensors[c.at].name : NULL;
}

static const char *file_name(const source_file *f)
{
    const char *slash = strrchr(f->path, '/');
    return slash ? slash + 1 : f->path;
}

bool nb_source_is_mapped(const nb_source *s)
{
    bool any = false;
    for (size_t i = 0; i < s->n_file; i++) any |= s->files[i].map.p != NULL;
    return any;
}

void nb_source_expect_whole(const nb_source *s)
{
    for (size_t i = 0; i < s->n_file; i++)
        nb_pages_prefer_huge((void *)(uintptr_t)s->files[i].map.p, s->files[i].map.n_bytes);
}

typedef struct touching {
    const unsigned char *p;
    size_t n_bytes;
} touching;

static void touch_task(void *ctx, size_t task, size_t worker)
{
    (void)worker;
    const touching *t = ctx;
    const size_t at = task * TOUCH_BYTES, rest = t->n_bytes - at;
    nb_pages_touch(t->p + at, rest < TOUCH_BYTES ? rest : TOUCH_BYTES);
}

static void run_here(void *run_ctx, nb_source_task_fn *task, void *ctx, size_t n_task)
{
    (void)run_ctx;
    for (size_t i = 0; i < n_task; i++) task(ctx, i, 0);
}

void nb_source_prefault(const nb_source *s, nb_source_run_fn *run, void *run_ctx, nb_source_progress_fn *report, void *ctx)
{
    uint64_t total = 0, done = 0;
    for (size_t i = 0; i < s->n_file; i++) total += s->files[i].map.n_bytes;
    if (total == 0) return;
    for (size_t i = 0; i < s->n_file; i++) {
        const nb_file_map *m = &s->files[i].map;
        const nb_shown label = nb_show_c(file_name(&s->files[i]));
        const size_t piece = (size_t)TOUCH_BYTES * TOUCH_TASKS;
        if (i == 0 && report) report(ctx, 0, total, label.s);
        for (size_t at = 0; at < m->n_bytes; at += piece) {
            const size_t rest = m->n_bytes - at;
            touching t = { m->p + at, rest < piece ? rest : piece };
            (run ? run : run_here)(run_ctx, touch_task, &t, (t.n_bytes + TOUCH_BYTES - 1) / TOUCH_BYTES);
            done += t.n_bytes;
            if (report) report(ctx, done, total, label.s);
        }
    }
}

/* ------------------------------------------------------------- files in memory */

typedef struct copying {
    nb_source_progress_fn *report;
    void *ctx;
    uint64_t done, total;
    const char *label;
} copying;

static void report_piece(void *ctx, size_t n_bytes)
{
    copying *c = ctx;
    c->done += n_bytes;
    if (c->report) c->report(c->ctx, c->done, c->total, c->label);
}

static nb_status copy_file(nb_source *s, size_t index, copying *c, nb_error *err)
{
    source_file *f = &s->files[index];
    const size_t n = f->map.n_bytes;
    const nb_shown label = nb_show_c(file_name(f));
    if (!f->map.p) return NB_OK;
    char *p = nb_pages_alloc(n);
    if (!p)
        return nb_fail(err, NB_ERR_NOMEM, "%s: no memory for its %zu bytes",
                       nb_show_path(f->path).s, n);
    nb_pages_prefer_huge(p, n);
    c->label = label.s;
    nb_status st = nb_file_read_into(f->path, p, n, report_piece, c, err);
    /* The header that was checked is the mapping's: it has to be this file's. */
    bool replaced = false;
    if (st == NB_OK) st = nb_file_map_check(&f->map, f->path, &replaced, err);
    if (st == NB_OK && replaced)
        st = nb_fail(err, NB_ERR_IO, "%s: was replaced while it was read", nb_show_path(f->path).s);
    if (st != NB_OK) {
        nb_pages_free(p, n);
        return st;
    }
    for (size_t i = 0; i < s->n_tensor; i++) {
        nb_tensor *t = &s->tensors[i].tensor;
        if (s->tensors[i].file == index) t->data = p + ((const unsigned char *)t->data - f->map.p);
    }
    nb_source_moved(s, index, (const unsigned char *)p);
    nb_file_unmap(&f->map);
    f->copy = p;
    f->copy_bytes = n;
    return NB_OK;
}

nb_status nb_source_copy(nb_source *s, nb_source_progress_fn *report, void *ctx, nb_error *err)
{
    copying c = { .report = report, .ctx = ctx };
    for (size_t i = 0; i < s->n_file; i++) c.total += s->files[i].map.n_bytes;
    if (c.total && report) report(ctx, 0, c.total, file_name(&s->files[0]));
    for (size_t i = 0; i < s->n_file; i++) NB_TRY(copy_file(s, i, &c, err));
    return NB_OK;
}

nb_status nb_source_check(nb_source *s, const char **replaced, nb_error *err)
{
    if (replaced) *replaced = NULL;
    for (size_t i = 0; i < s->n_file; i++) {
        source_file *f = &s->files[i];
        bool other = false;
        if (f->map.p) NB_TRY(nb_file_map_check(&f->map, f->path, &other, err));
        if (other && replaced && !*replaced) *replaced = f->path;
    }
    return NB_OK;
}

bool nb_source_watch(nb_source *s)
{
    bool any = false;
    for (size_t i = 0; i < s->n_file; i++) {
        if (!s->files[i].map.p) continue;
        nb_file_map_sample(&s->files[i].map);
        any = true;
    }
    return any;
}

nb_status nb_source_check_reads(const nb_source *s, nb_error *err)
{
    for (size_t i = 0; i < s->n_file; i++)
        NB_TRY(nb_file_map_fault(&s->files[i].map, s->files[i].path, err));
    return NB_OK;
}

void nb_source_drop(const nb_source *s, const void *p, size_t n_bytes)
{
    const uintptr_t at = (uintptr_t)p;
    for (size_t i = 0; i < s->n_file; i++) {
        const nb_file_map *m = &s->files[i].map;
        const uintptr_t begin = (uintptr_t)m->p;
        if (m->p && at >= begin && at - begin < m->n_bytes) nb_pages_drop(p, n_bytes);
    }
}
