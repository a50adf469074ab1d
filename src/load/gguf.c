/* gguf.c - see gguf.h: reading and checking the header of a GGUF file, and finding the shards of a split one.
 *
 * A reader walks the bytes and remembers its first failure.  Every count is compared with the bytes that are left
 * before anything is allocated for it: a description of a tensor has at least 24 bytes, a key with its value 13. */
#include "load/gguf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "load/load_internal.h"

enum { MIN_KV_BYTES = 13, MIN_TENSOR_BYTES = 32, MAX_KEY_BYTES = 65535, MAX_ALIGNMENT = 1 << 20 };

/* Bytes of a value; 0: a string or a list. */
static const unsigned char value_bytes[NB_GGUF_TYPES] = {
    [NB_GGUF_U8] = 1,  [NB_GGUF_I8] = 1,  [NB_GGUF_U16] = 2, [NB_GGUF_I16] = 2,
    [NB_GGUF_U32] = 4, [NB_GGUF_I32] = 4, [NB_GGUF_F32] = 4, [NB_GGUF_BOOL] = 1,
    [NB_GGUF_U64] = 8, [NB_GGUF_I64] = 8, [NB_GGUF_F64] = 8,
};

typedef struct reader {
    const unsigned char *p;
    size_t at, n; /* n: bytes of the file */
    const char *file;
    nb_error *err;
} reader;

static nb_status bad(const reader *r, const char *fmt, ...) NB_PRINTF(2, 3);
static nb_status bad(const reader *r, const char *fmt, ...)
{
    char what[400];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return nb_fail(r->err, NB_ERR_FORMAT, "%s: %s", nb_show_path(r->file).s, what);
}

static nb_status no_memory(const char *file, nb_error *err)
{
    return nb_fail(err, NB_ERR_NOMEM, "%s: out of memory", nb_show_path(file).s);
}

static uint64_t load(const unsigned char *p, size_t n_bytes)
{
    uint64_t v = 0;
    for (size_t i = 0; i < n_bytes; i++) v |= (uint64_t)p[i] << (8 * i);
    return v;
}

static nb_status read_int(reader *r, size_t n_bytes, uint64_t *out)
{
    if (n_bytes > r->n - r->at)
        return bad(r, "ends inside of its header, at byte %zu (truncated?)", r->n);
    *out = load(r->p + r->at, n_bytes);
    r->at += n_bytes;
    return NB_OK;
}

static nb_status read_str(reader *r, const char *what, nb_str *out)
{
    uint64_t n = 0;
    NB_TRY(read_int(r, 8, &n));
    if (n > r->n - r->at)
        return bad(r, "%s has %llu bytes, but only %zu follow (truncated?)", what,
                   (unsigned long long)n, r->n - r->at);
    *out = (nb_str){ (const char *)r->p + r->at, (size_t)n };
    r->at += (size_t)n;
    return NB_OK;
}

/* ---- metadata ---- */

/* The items of kv from the reader's place on. */
static nb_status read_items(reader *r, nb_gguf_kv *kv)
{
    const nb_shown key = nb_show(kv->key);
    const size_t begin = r->at, each = value_bytes[kv->type], least = each ? each : 8;
    kv->p = r->p + begin;
    if (kv->n > (r->n - r->at) / least)
        return bad(
            r, "metadata '%s': %llu items do not fit into the %zu bytes that follow (truncated?)",
            key.s, (unsigned long long)kv->n, r->n - r->at);
    if (each) r->at += (size_t)kv->n * each;
    for (uint64_t i = 0; !each && i < kv->n; i++) {
        nb_str item;
        NB_TRY(read_str(r, "a string of the metadata", &item));
    }
    kv->n_bytes = r->at - begin;
    for (uint64_t i = 0; kv->type == NB_GGUF_BOOL && i < kv->n; i++)
        if (kv->p[i] > 1)
            return bad(r, "metadata '%s': the bool is %u, expected 0 or 1", key.s,
                       (unsigned)kv->p[i]);
    return NB_OK;
}

static nb_status read_kv(reader *r, nb_gguf_kv *kv)
{
    uint64_t type = 0;
    NB_TRY(read_str(r, "a key of the metadata", &kv->key));
    const nb_shown key = nb_show(kv->key);
    if (kv->key.n_bytes == 0 || kv->key.n_bytes > MAX_KEY_BYTES)
        return bad(r, "a key of the metadata has %zu bytes, expected 1 to %d", kv->key.n_bytes,
                   MAX_KEY_BYTES);
    NB_TRY(read_int(r, 4, &type));
    kv->n = 1;
    kv->is_array = type == NB_GGUF_ARRAY;
    if (kv->is_array) {
        NB_TRY(read_int(r, 4, &type));
        NB_TRY(read_int(r, 8, &kv->n));
        if (type == NB_GGUF_ARRAY)
            return bad(r, "metadata '%s': lists of lists are not part of GGUF", key.s);
    }
    if (type >= NB_GGUF_TYPES)
        return bad(r, "metadata '%s': unknown type %llu, expected 0 to %d", key.s,
                   (unsigned long long)type, NB_GGUF_TYPES - 1);
    kv->type = (nb_gguf_type)type;
    return read_items(r, kv);
}

static int order(nb_str a, nb_str b)
{
    const size_t n = a.n_bytes < b.n_bytes ? a.n_bytes : b.n_bytes;
    const int c = n ? memcmp(a.p, b.p, n) : 0;
    return c ? c : (a.n_bytes > b.n_bytes) - (a.n_bytes < b.n_bytes);
}

static int by_key(const void *a, const void *b)
{
    return order(((const nb_gguf_kv *)a)->key, ((const nb_gguf_kv *)b)->key);
}

static int by_name(const void *a, const void *b)
{
    return order(((const nb_gguf_tensor *)a)->name, ((const nb_gguf_tensor *)b)->name);
}

static nb_status read_metadata(reader *r, nb_gguf *g, nb_gguf_file *f, uint64_t n)
{
    if (n > (r->n - r->at) / MIN_KV_BYTES)
        return bad(r, "%llu keys of metadata do not fit into its %zu bytes", (unsigned long long)n,
                   r->n);
    f->kv0 = g->n_kv;
    f->n_kv = (size_t)n;
    if (n == 0) return NB_OK;
    if (NB_GROW(g->kv, g->cap_kv, g->n_kv + f->n_kv - 1) != NB_OK)
        return no_memory(r->file, r->err);
    nb_gguf_kv *kv = g->kv + f->kv0;
    memset(kv, 0, f->n_kv * sizeof *kv);
    for (size_t i = 0; i < f->n_kv; i++) NB_TRY(read_kv(r, &kv[i]));
    qsort(kv, f->n_kv, sizeof *kv, by_key);
    for (size_t i = 1; i < f->n_kv; i++)
        if (by_key(&kv[i - 1], &kv[i]) == 0)
            return bad(r, "metadata '%s' is there twice", nb_show(kv[i].key).s);
    g->n_kv += f->n_kv;
    return NB_OK;
}

static const nb_gguf_kv *find_in(const nb_gguf *g, const nb_gguf_file *f, const char *key)
{
    const nb_gguf_kv want = { .key = nb_str_c(key) };
    return f->n_kv ? bsearch(&want, g->kv + f->kv0, f->n_kv, sizeof want, by_key) : NULL;
}

/* ---- tensors ---- */

static nb_status bad_tensor(const reader *r, const nb_gguf_tensor *t, const char *fmt, ...)
    NB_PRINTF(3, 4);
static nb_status bad_tensor(const reader *r, const nb_gguf_tensor *t, const char *fmt, ...)
{
    char what[300];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return bad(r, "tensor '%s': %s", nb_show(t->name).s, what);
}

static nb_status tensor_bytes(const reader *r, nb_gguf_tensor *t)
{
    const nb_gguf_dtype *d = nb_gguf_dtype_of(t->type);
    if (!d) return bad_tensor(r, t, "unknown type %u", (unsigned)t->type);
    if (d->block == 0)
        return nb_fail(r->err, NB_ERR_UNSUPPORTED, "%s: tensor '%s': type %s is not supported: %s",
                       nb_show_path(r->file).s, nb_show(t->name).s, d->name, d->why);
    if (t->dim[0] % d->block)
        return bad_tensor(r, t, "%zu columns are not whole blocks of %zu, as %s has them",
                          t->dim[0], d->block, d->name);
    size_t n = t->dim[0] / d->block;
    bool fits = n <= SIZE_MAX / d->block_bytes;
    n *= d->block_bytes;
    for (size_t i = 1; fits && i < t->n_dim; i++) {
        fits = t->dim[i] == 0 || n <= SIZE_MAX / t->dim[i];
        n *= t->dim[i];
    }
    if (!fits) return bad_tensor(r, t, "has more bytes than can be addressed");
    t->n_bytes = n;
    return NB_OK;
}

/* *end: where the tensor before ended, with its padding. */
static nb_status read_tensor(reader *r, nb_gguf_tensor *t, size_t alignment, size_t *end)
{
    uint64_t v = 0, offset = 0;
    NB_TRY(read_str(r, "a tensor's name", &t->name));
    if (t->name.n_bytes == 0 || t->name.n_bytes > NB_GGUF_MAX_NAME_BYTES ||
        memchr(t->name.p, 0, t->name.n_bytes))
        return bad_tensor(r, t, "the name has %zu bytes, expected 1 to %d without a 0",
                          t->name.n_bytes, NB_GGUF_MAX_NAME_BYTES);
    NB_TRY(read_int(r, 4, &v));
    if (v > NB_GGUF_MAX_DIM)
        return bad_tensor(r, t, "has %llu dimensions, expected at most %d", (unsigned long long)v,
                          NB_GGUF_MAX_DIM);
    t->n_dim = (size_t)v;
    for (size_t i = 0; i < t->n_dim; i++) {
        NB_TRY(read_int(r, 8, &v));
        if (v > INT64_MAX || v > SIZE_MAX) return bad_tensor(r, t, "dimension %zu is negative", i);
        t->dim[i] = (size_t)v;
    }
    if (t->n_dim == 0) t->dim[t->n_dim++] = 1;
    NB_TRY(read_int(r, 4, &v));
    t->type = (uint32_t)v;
    NB_TRY(read_int(r, 8, &offset));
    NB_TRY(tensor_bytes(r, t));
    if (offset != *end)
        return bad_tensor(
            r, t,
            "begins at byte %llu of the data, expected %zu: tensors follow each other, padded to "
            "%zu bytes",
            (unsigned long long)offset, *end, alignment);
    if (t->n_bytes > SIZE_MAX - alignment || *end > SIZE_MAX - alignment - t->n_bytes)
        return bad_tensor(r, t, "ends behind what can be addressed");
    t->data = r->p + *end; /* the data's beginning is added once it is known */
    *end += (t->n_bytes + alignment - 1) / alignment * alignment;
    return NB_OK;
}

static nb_status read_alignment(const reader *r, const nb_gguf *g, const nb_gguf_file *f,
                                size_t *out)
{
    const nb_gguf_kv *kv = find_in(g, f, "general.alignment");
    *out = 32;
    if (!kv) return NB_OK;
    const uint64_t v = kv->type == NB_GGUF_U32 && !kv->is_array ? load(kv->p, 4) : 0;
    if (v == 0 || v > MAX_ALIGNMENT || (v & (v - 1)))
        return bad(r, "metadata 'general.alignment': expected a power of two as u32, at most %d",
                   MAX_ALIGNMENT);
    *out = (size_t)v;
    return NB_OK;
}

static nb_status read_tensors(reader *r, nb_gguf *g, nb_gguf_file *f, uint64_t n)
{
    size_t alignment = 0, end = 0;
    if (n > (r->n - r->at) / MIN_TENSOR_BYTES)
        return bad(r, "%llu tensors do not fit into its %zu bytes", (unsigned long long)n, r->n);
    NB_TRY(read_alignment(r, g, f, &alignment));
    f->tensor0 = g->n_tensor;
    f->n_tensor = (size_t)n;
    if (n == 0) return NB_OK;
    if (NB_GROW(g->tensor, g->cap_tensor, g->n_tensor + f->n_tensor - 1) != NB_OK)
        return no_memory(r->file, r->err);
    nb_gguf_tensor *t = g->tensor + f->tensor0;
    memset(t, 0, f->n_tensor * sizeof *t);
    for (size_t i = 0; i < f->n_tensor; i++) {
        t[i].file = g->n_file;
        NB_TRY(read_tensor(r, &t[i], alignment, &end));
    }
    const size_t data = (r->at + alignment - 1) / alignment * alignment,
                 have = r->n > data ? r->n - data : 0;
    for (size_t i = 0; i < f->n_tensor; i++) {
        const size_t begin = (size_t)(t[i].data - r->p);
        if (begin > have || t[i].n_bytes > have - begin)
            return bad_tensor(r, &t[i], "ends at byte %zu of the data, which has %zu (truncated?)",
                              begin + t[i].n_bytes, have);
        t[i].data = r->p + data + begin;
    }
    g->n_tensor += f->n_tensor;
    return NB_OK;
}

/* ---- a file ---- */

static nb_status parse(reader *r, nb_gguf *g, nb_gguf_file *f)
{
    uint64_t magic = 0, version = 0, n_tensor = 0, n_kv = 0;
    if (r->n < 24) return bad(r, "has %zu bytes, expected a GGUF file", r->n);
    NB_TRY(read_int(r, 4, &magic));
    NB_TRY(read_int(r, 4, &version));
    if (magic != 0x46554747) return bad(r, "does not begin with \"GGUF\"");
    if (version && !(version & 0xffff))
        return nb_fail(r->err, NB_ERR_UNSUPPORTED,
                       "%s: is a big-endian GGUF file, which is not supported",
                       nb_show_path(r->file).s);
    if (version != 2 && version != 3)
        return nb_fail(r->err, NB_ERR_UNSUPPORTED,
                       "%s: GGUF version %llu is not supported (2 and 3 are)",
                       nb_show_path(r->file).s, (unsigned long long)version);
    NB_TRY(read_int(r, 8, &n_tensor));
    NB_TRY(read_int(r, 8, &n_kv));
    NB_TRY(read_metadata(r, g, f, n_kv));
    return read_tensors(r, g, f, n_tensor);
}

static nb_status add_bytes(nb_gguf *g, nb_str bytes, const nb_file_map *map, const char *path,
                           nb_error *err)
{
    nb_gguf_file f = { 0 };
    reader r = { (const unsigned char *)bytes.p, 0, bytes.n_bytes, path, err };
    f.path = nb_arena_strdup(&g->names, nb_str_c(path));
    if (!f.path || NB_GROW(g->file, g->cap_file, g->n_file) != NB_OK) return no_memory(path, err);
    NB_TRY(parse(&r, g, &f));
    if (map) f.map = *map;
    g->file[g->n_file++] = f;
    return NB_OK;
}

static nb_status add_file(nb_gguf *g, const char *path, nb_error *err)
{
    nb_file_map map = { 0 };
    NB_TRY(nb_file_mmap(path, &map, err));
    const nb_str bytes = { map.p ? (const char *)map.p : "", map.n_bytes };
    const nb_status st = add_bytes(g, bytes, &map, path, err);
    if (st != NB_OK) nb_file_unmap(&map);
    return st;
}

/* An integer of a shard's metadata; absent where it is not there or is none. */
static uint64_t shard_int(const nb_gguf *g, size_t file, const char *key, uint64_t absent)
{
    const nb_gguf_kv *kv = find_in(g, &g->file[file], key);
    const bool is_int = kv && !kv->is_array && value_bytes[kv->type] && kv->type != NB_GGUF_F32 &&
                        kv->type != NB_GGUF_F64 && kv->type != NB_GGUF_BOOL;
    return is_int ? load(kv->p, value_bytes[kv->type]) : absent;
}

/* ---- shards ---- */

size_t nb_gguf_split_name(const char *path, unsigned *no, unsigned *count)
{
    static const char suffix[] = "-00001-of-00003.gguf";
    const size_t n = strlen(path), k = sizeof suffix - 1;
    char tail[8] = "";
    int used = 0;
    if (n < k) return 0;
    const int got = sscanf(path + n - k, "-%5u-of-%5u.%5s%n", no, count, tail, &used);
    return got == 3 && used == (int)k && strcmp(tail, "gguf") == 0 ? n - k : 0;
}

static nb_status check_shard(const nb_gguf *g, size_t i, uint64_t count, nb_error *err)
{
    const uint64_t no = shard_int(g, i, "split.no", UINT64_MAX),
                   n = shard_int(g, i, "split.count", 0);
    if (no == i && n == count) return NB_OK;
    return nb_fail(err, NB_ERR_FORMAT,
                   "%s: split.no %lld and split.count %llu, expected %zu and %llu",
                   nb_show_path(g->file[i].path).s, (long long)no, (unsigned long long)n, i,
                   (unsigned long long)count);
}

static nb_status add_shards(nb_gguf *g, const char *path, nb_error *err)
{
    const uint64_t count = shard_int(g, 0, "split.count", 0), no = shard_int(g, 0, "split.no", 0);
    unsigned name_no = 0, name_count = 0;
    if (count <= 1) return NB_OK;
    const size_t stem = nb_gguf_split_name(path, &name_no, &name_count);
    if (no != 0)
        return nb_fail(
            err, NB_ERR_ARG,
            "%s: is shard %llu of %llu of a split GGUF; expected its first, with the name "
            "NAME-00001-of-%05llu.gguf",
            nb_show_path(path).s, (unsigned long long)no + 1, (unsigned long long)count,
            (unsigned long long)count);
    if (count > NB_GGUF_MAX_SHARD)
        return nb_fail(err, NB_ERR_LIMIT, "%s: split.count %llu, expected at most %d",
                       nb_show_path(path).s, (unsigned long long)count, NB_GGUF_MAX_SHARD);
    if (!stem || name_no != 1 || name_count != count)
        return nb_fail(err, NB_ERR_FORMAT,
                       "%s: is the first of %llu shards; expected the name "
                       "NAME-00001-of-%05llu.gguf, to find the others by",
                       nb_show_path(path).s, (unsigned long long)count, (unsigned long long)count);
    nb_status st = check_shard(g, 0, count, err);
    nb_buf shard = { 0 };
    for (size_t i = 1; st == NB_OK && i < count; i++) {
        shard.n_bytes = 0;
        st = nb_buf_printf(&shard, "%.*s-%05zu-of-%05u.gguf", (int)stem, path, i + 1, name_count);
        if (st != NB_OK) (void)no_memory(path, err);
        if (st == NB_OK) st = add_file(g, shard.p, err);
        if (st == NB_ERR_NOT_FOUND) /* or it would be the model that is not found */
            st = nb_fail(err, NB_ERR_IO, "%s: shard %zu of %u is missing", nb_show_path(shard.p).s,
                         i + 1, name_count);
        if (st == NB_OK) st = check_shard(g, i, count, err);
    }
    nb_buf_deinit(&shard);
    const uint64_t n = shard_int(g, 0, "split.tensors.count", g->n_tensor);
    if (st == NB_OK && n != g->n_tensor)
        st = nb_fail(err, NB_ERR_FORMAT,
                     "%s: split.tensors.count is %llu, but the shards have %zu tensors",
                     nb_show_path(path).s, (unsigned long long)n, g->n_tensor);
    return st;
}

static nb_status finish(nb_gguf *g, nb_error *err)
{
    if (g->n_tensor) qsort(g->tensor, g->n_tensor, sizeof *g->tensor, by_name);
    for (size_t i = 1; i < g->n_tensor; i++)
        if (by_name(&g->tensor[i - 1], &g->tensor[i]) == 0)
            return nb_fail(err, NB_ERR_FORMAT, "%s: tensor '%s' is there twice",
                           nb_show_path(g->file[g->tensor[i].file].path).s,
                           nb_show(g->tensor[i].name).s);
    return NB_OK;
}

nb_status nb_gguf_open(const char *path, nb_gguf **out, nb_error *err)
{
    nb_gguf *g = calloc(1, sizeof *g);
    if (!g) return no_memory(path, err);
    nb_status st = add_file(g, path, err);
    if (st == NB_OK) st = add_shards(g, path, err);
    if (st == NB_OK) st = finish(g, err);
    if (st == NB_OK)
        *out = g;
    else
        nb_gguf_close(g);
    return st;
}

nb_status nb_gguf_open_bytes(nb_str bytes, const char *name, nb_gguf **out, nb_error *err)
{
    nb_gguf *g = calloc(1, sizeof *g);
    if (!g) return no_memory(name, err);
    nb_status st = add_bytes(g, bytes, NULL, name, err);
    if (st == NB_OK) st = finish(g, err);
    if (st == NB_OK)
        *out = g;
    else
        nb_gguf_close(g);
    return st;
}

void nb_gguf_close(nb_gguf *g)
{
    if (!g) return;
    for (size_t i = 0; i < g->n_file; i++) nb_file_unmap(&g->file[i].map);
    free(g->file);
    free(g->kv);
    free(g->tensor);
    nb_arena_deinit(&g->names);
    free(g);
}

const char *nb_gguf_name(const nb_gguf *g)
{
    return g->file[0].path;
}

const nb_gguf_kv *nb_gguf_find(const nb_gguf *g, const char *key)
{
    return find_in(g, &g->file[0], key);
}

const nb_gguf_tensor *nb_gguf_find_tensor(const nb_gguf *g, const char *name)
{
    const nb_gguf_tensor want = { .name = nb_str_c(name) };
    return g->n_tensor ? bsearch(&want, g->tensor, g->n_tensor, sizeof want, by_name) : NULL;
}
