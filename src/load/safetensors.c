/* safetensors.c - the header of one file, checked whole.
 *
 * Format (github.com/huggingface/safetensors, README, "Format"): 8 bytes N, little
 * endian; N bytes of JSON that start with '{'; the data.  The JSON maps names to
 * {"dtype", "shape", "data_offsets": [begin, end)} with offsets from byte 8 + N, and
 * "__metadata__" to an object of strings.  As in the reference implementation N is at
 * most 100,000,000, and the tensors cover the data exactly: no hole, no overlap, no
 * byte after the last.  Unknown members of a tensor's object are ignored as there.
 * Stricter than the reference: duplicate keys and more than NB_TENSOR_MAX_DIM
 * dimensions are refused, and a header has at most 4 Mi JSON values, so that parsing
 * takes at most 1 GiB (100 MB of "{}," would otherwise take 8 GB). */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "load/gguf.h"
#include "load/load_internal.h"

/* All element types that safetensors names; sizes in bits, since some are below a byte. */
typedef struct dtype_row {
    const char *name;
    unsigned n_bits;
    nb_dtype dtype;
} dtype_row;
// clang-format off
static const dtype_row dtypes[] = {
    { "F32", 32, NB_DT_F32 },         { "BF16", 16, NB_DT_BF16 },
    { "F16", 16, NB_DT_F16 },         { "F8_E4M3", 8, NB_DT_F8_E4M3 },
    { "F64", 64, NB_DT_F64 },         { "I64", 64, NB_DT_I64 },
    { "I32", 32, NB_DT_I32 },         { "I16", 16, NB_DT_I16 },
    { "I8", 8, NB_DT_I8 },            { "U8", 8, NB_DT_U8 },
    { "BOOL", 8, NB_DT_BOOL },        { "F8_E5M2", 8, NB_DT_F8_E5M2 },
    { "U16", 16, NB_DT_OTHER },       { "U32", 32, NB_DT_OTHER },
    { "U64", 64, NB_DT_OTHER },       { "C64", 64, NB_DT_OTHER },
    { "F4", 4, NB_DT_OTHER },         { "F6_E2M3", 6, NB_DT_OTHER },
    { "F6_E3M2", 6, NB_DT_OTHER },    { "F8_E8M0", 8, NB_DT_F8_E8M0 },
    { "F8_E4M3FNUZ", 8, NB_DT_OTHER }, { "F8_E5M2FNUZ", 8, NB_DT_OTHER },
};
// clang-format on

const char *nb_dtype_name(nb_dtype t)
{
    for (size_t i = 0; i < NB_COUNT(dtypes); i++)
        if (dtypes[i].dtype == t && t != NB_DT_OTHER) return dtypes[i].name;
    const nb_gguf_dtype *d = nb_gguf_dtype_for(t);
    return d ? d->name : "an unusable type";
}

size_t nb_dtype_bytes(nb_dtype t)
{
    for (size_t i = 0; i < NB_COUNT(dtypes); i++)
        if (dtypes[i].dtype == t && t != NB_DT_OTHER) return dtypes[i].n_bits / 8;
    return 0;
}

void nb_dtype_block(nb_dtype t, size_t *n_value, size_t *n_bytes)
{
    const nb_gguf_dtype *d = nb_gguf_dtype_for(t);
    *n_value = d ? d->block : 1;
    *n_bytes = d ? d->block_bytes : nb_dtype_bytes(t);
}

nb_shape_text nb_shape_show(const size_t *dim, size_t n_dim)
{
    nb_shape_text r;
    size_t o = 0;
    r.s[o++] = '[';
    for (size_t i = 0; i < n_dim && i < NB_TENSOR_MAX_DIM; i++) {
        const int n = snprintf(r.s + o, sizeof r.s - o, "%s%zu", i ? ", " : "", dim[i]);
        o += n > 0 ? (size_t)n : 0; /* at most 8 * 22 bytes: always fits */
    }
    r.s[o++] = ']';
    r.s[o] = 0;
    return r;
}

/* What the checks of one header share. */
typedef struct parse {
    const char *file;
    const unsigned char *data;
    size_t n_data_bytes;
    nb_error *err;
} parse;

static nb_status bad(const parse *p, const char *tensor, const char *fmt, ...) NB_PRINTF(3, 4);
static nb_status bad(const parse *p, const char *tensor, const char *fmt, ...)
{
    char what[512];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return nb_fail(p->err, NB_ERR_FORMAT, "%s: tensor '%s': %s", nb_show_path(p->file).s,
                   nb_show_c(tensor).s, what);
}

static nb_status read_dtype(const parse *p, const char *name, const json_t *o, dtype_row *out)
{
    const json_t *v = json_object_get(o, "dtype");
    if (!json_is_string(v))
        return bad(p, name, "dtype is %s, expected a string",
                   v ? nb_json_describe(v).s : "missing");
    for (size_t i = 0; i < NB_COUNT(dtypes); i++) {
        if (strcmp(json_string_value(v), dtypes[i].name) != 0) continue;
        *out = dtypes[i];
        return NB_OK;
    }
    return bad(p, name,
               "unknown dtype '%s', expected BF16, F32, F16, F8_E4M3 or another type of "
               "the safetensors format",
               nb_show_c(json_string_value(v)).s);
}

static bool to_size(const json_t *v, size_t *out)
{
    if (!json_is_integer(v) || json_integer_value(v) < 0) return false;
    if ((uint64_t)json_integer_value(v) > SIZE_MAX) return false;
    *out = (size_t)json_integer_value(v);
    return true;
}

/* The shape, and the bytes that it asks for with n_bits per element. */
static nb_status read_shape(const parse *p, const char *name, const json_t *o, unsigned n_bits,
                            nb_tensor *t)
{
    const json_t *v = json_object_get(o, "shape");
    if (!json_is_array(v))
        return bad(p, name, "shape is %s, expected an array",
                   v ? nb_json_describe(v).s : "missing");
    t->n_dim = json_array_size(v);
    if (t->n_dim > NB_TENSOR_MAX_DIM)
        return bad(p, name, "shape has %zu dimensions, expected at most %d", t->n_dim,
                   NB_TENSOR_MAX_DIM);
    size_t n = n_bits;
    for (size_t i = 0; i < t->n_dim; i++) {
        const json_t *d = json_array_get(v, i);
        if (!to_size(d, &t->dim[i]))
            return bad(p, name, "dimension %zu is %s, expected an integer >= 0", i,
                       nb_json_describe(d).s);
        if (t->dim[i] && n > SIZE_MAX / t->dim[i])
            return bad(p, name, "shape %s has more bytes than can be addressed",
                       nb_shape_show(t->dim, i + 1).s);
        n *= t->dim[i];
    }
    if (n % 8) return bad(p, name, "shape does not fill whole bytes of %u-bit elements", n_bits);
    t->n_bytes = n / 8;
    return NB_OK;
}

static nb_status read_offsets(const parse *p, const char *name, const json_t *o, size_t *begin,
                              size_t *end)
{
    const json_t *v = json_object_get(o, "data_offsets");
    if (!json_is_array(v) || json_array_size(v) != 2)
        return bad(p, name, "data_offsets is %s, expected an array of 2 integers",
                   v ? nb_json_describe(v).s : "missing");
    size_t at[2];
    for (size_t i = 0; i < 2; i++)
        if (!to_size(json_array_get(v, i), &at[i]))
            return bad(p, name, "data_offsets[%zu] is %s, expected an integer >= 0", i,
                       nb_json_describe(json_array_get(v, i)).s);
    if (at[0] > at[1])
        return bad(p, name, "data_offsets [%zu, %zu] end before they begin", at[0], at[1]);
    if (at[1] > p->n_data_bytes)
        return bad(p, name,
                   "data_offsets [%zu, %zu] end after the file's data, which has %zu bytes "
                   "(truncated?)",
                   at[0], at[1], p->n_data_bytes);
    *begin = at[0];
    *end = at[1];
    return NB_OK;
}

static nb_status read_tensor(const parse *p, const char *name, const json_t *o, nb_tensor *t)
{
    if (!json_is_object(o))
        return bad(p, name, "is %s, expected an object with dtype, shape and data_offsets",
                   nb_json_describe(o).s);
    dtype_row row = { 0 };
    size_t begin = 0, end = 0;
    NB_TRY(read_dtype(p, name, o, &row));
    NB_TRY(read_shape(p, name, o, row.n_bits, t));
    NB_TRY(read_offsets(p, name, o, &begin, &end));
    if (end - begin != t->n_bytes)
        return bad(p, name, "%s %s has %zu bytes, but data_offsets [%zu, %zu] span %zu", row.name,
                   nb_shape_show(t->dim, t->n_dim).s, t->n_bytes, begin, end, end - begin);
    t->dtype = row.dtype;
    t->data = p->data + begin;
    return NB_OK;
}

static nb_status read_metadata(const parse *p, const json_t *o)
{
    if (json_is_null(o)) return NB_OK;
    const char *what = json_is_object(o) ? NULL : "the value";
    if (!what) {
        json_t *m = (json_t *)(uintptr_t)o; /* iterators want it mutable; nothing changes */
        for (void *it = json_object_iter(m); it; it = json_object_iter_next(m, it))
            if (!json_is_string(json_object_iter_value(it))) what = json_object_iter_key(it);
    }
    if (!what) return NB_OK;
    return nb_fail(p->err, NB_ERR_FORMAT,
                   "%s: __metadata__: %s is not of the expected type: an "
                   "object of strings",
                   nb_show_path(p->file).s, nb_show_c(what).s);
}

static int by_place(const void *a, const void *b)
{
    const nb_st_tensor *x = *(nb_st_tensor *const *)a, *y = *(nb_st_tensor *const *)b;
    const unsigned char *px = x->tensor.data, *py = y->tensor.data;
    if (px != py) return px < py ? -1 : 1;
    if (x->tensor.n_bytes != y->tensor.n_bytes)
        return x->tensor.n_bytes < y->tensor.n_bytes ? -1 : 1;
    return x < y ? -1 : x > y; /* header order */
}

/* The tensors in the order of their data must follow each other without a gap. */
static nb_status check_cover(const parse *p, nb_st_tensor *t, size_t n)
{
    nb_st_tensor **order = malloc((n ? n : 1) * sizeof *order);
    if (!order) return nb_fail(p->err, NB_ERR_NOMEM, "%s: out of memory", nb_show_path(p->file).s);
    for (size_t i = 0; i < n; i++) order[i] = &t[i];
    qsort(order, n, sizeof *order, by_place);
    size_t end = 0;
    nb_status st = NB_OK;
    for (size_t i = 0; i < n && st == NB_OK; i++) {
        const nb_tensor *x = &order[i]->tensor;
        const size_t begin = (size_t)((const unsigned char *)x->data - p->data);
        if (begin < end)
            st = bad(p, order[i]->name,
                     "begins at byte %zu of the data, inside of tensor '%s', "
                     "which ends at %zu",
                     begin, nb_show_c(order[i - 1]->name).s, end);
        else if (begin > end)
            st = bad(p, order[i]->name,
                     "begins at byte %zu of the data, expected %zu: bytes that "
                     "belong to no tensor lie between",
                     begin, end);
        end = begin + x->n_bytes;
    }
    free(order);
    if (st == NB_OK && end != p->n_data_bytes)
        st = nb_fail(p->err, NB_ERR_FORMAT,
                     "%s: has %zu bytes of data, expected %zu: nothing may follow the last tensor",
                     nb_show_path(p->file).s, p->n_data_bytes, end);
    return st;
}

/* The header's bytes, and in *p the data behind it. */
static nb_status find_header(nb_str bytes, parse *p, nb_str *header)
{
    const nb_shown_path file = nb_show_path(p->file);
    if (bytes.n_bytes < 8)
        return nb_fail(p->err, NB_ERR_FORMAT,
                       "%s: has %zu bytes, expected a safetensors file: 8 bytes of header length, "
                       "the header, the data",
                       file.s, bytes.n_bytes);
    uint64_t n = 0;
    for (size_t i = 0; i < 8; i++) n |= (uint64_t)(unsigned char)bytes.p[i] << (8 * i);
    const size_t most = NB_HEADER_LIMITS.max_bytes;
    if (n > most)
        return nb_fail(p->err, NB_ERR_FORMAT,
                       "%s: header length is %llu bytes, expected at most %zu", file.s,
                       (unsigned long long)n, most);
    if (n > bytes.n_bytes - 8)
        return nb_fail(p->err, NB_ERR_FORMAT,
                       "%s: header length is %llu bytes, but only %zu follow (truncated?)", file.s,
                       (unsigned long long)n, bytes.n_bytes - 8);
    *header = (nb_str){ bytes.p + 8, (size_t)n };
    if (n == 0 || header->p[0] != '{')
        return nb_fail(p->err, NB_ERR_FORMAT, "%s: header does not start with '{', expected JSON",
                       file.s);
    p->data = (const unsigned char *)bytes.p + 8 + n;
    p->n_data_bytes = bytes.n_bytes - 8 - (size_t)n;
    return NB_OK;
}

static nb_status read_all_tensors(const parse *p, json_t *root, size_t file, nb_arena *names,
                                  nb_st_tensor *t, size_t *n)
{
    for (void *it = json_object_iter(root); it; it = json_object_iter_next(root, it)) {
        const char *name = json_object_iter_key(it);
        if (strcmp(name, "__metadata__") == 0) {
            NB_TRY(read_metadata(p, json_object_iter_value(it)));
            continue;
        }
        nb_st_tensor *x = &t[*n];
        NB_TRY(read_tensor(p, name, json_object_iter_value(it), &x->tensor));
        x->name = nb_arena_strdup(names, nb_str_c(name));
        if (!x->name)
            return nb_fail(p->err, NB_ERR_NOMEM, "%s: out of memory", nb_show_path(p->file).s);
        x->n_name_bytes = strlen(name);
        x->file = file;
        ++*n;
    }
    return check_cover(p, t, *n);
}

nb_status nb_safetensors_parse(nb_str bytes, const char *name, size_t file, nb_arena *names,
                               nb_st_tensor **out, size_t *n, nb_error *err)
{
    parse p = { .file = name, .err = err };
    nb_str header;
    json_t *root = NULL;
    NB_TRY(find_header(bytes, &p, &header));
    const nb_json_limits lim = NB_HEADER_LIMITS;
    NB_TRY(nb_json_parse(header, name, &lim, &root, err));
    const size_t most = json_object_size(root);
    size_t count = 0;
    nb_st_tensor *t = calloc(most ? most : 1, sizeof *t);
    nb_status st = t ? read_all_tensors(&p, root, file, names, t, &count)
                     : nb_fail(err, NB_ERR_NOMEM, "%s: out of memory", nb_show_path(name).s);
    json_decref(root);
    if (st != NB_OK) {
        free(t);
        return st;
    }
    *out = t;
    *n = count;
    return NB_OK;
}
