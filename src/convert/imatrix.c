/* imatrix.c - see imatrix.h. */
#include "convert/imatrix.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "load/gguf.h"
#include "load/json.h"
#include "num/bits.h"
#include "os/file.h"

enum { NAME_BYTES = 256, MAX_MATRIX = 65536 };
static const float LEAST = 1e-3f; /* of a weight: no column is free */

typedef struct entry {
    const char *name; /* "blk.0.attn_q.weight" */
    size_t n_mat, n_col;
    const unsigned char *sum;  /* F32 [n_mat][n_col], sums of squares; unaligned */
    const unsigned char *rows; /* F32 [n_mat], inputs that they are of; NULL: `calls` */
    float calls;
    float *own_sum, *own_rows; /* where they are made here */
} entry;

struct nb_imatrix {
    nb_arena names;
    const char *path;
    entry *e; /* sorted by name */
    size_t n, cap;
    nb_gguf *gguf;
    nb_file_map map;
};

static nb_status no_memory(nb_error *err)
{
    return nb_fail(err, NB_ERR_NOMEM, "out of memory for an importance matrix");
}

static nb_status bad(const nb_imatrix *m, const char *name, const char *what, nb_error *err)
{
    return nb_fail(err, NB_ERR_FORMAT, "%s: importance matrix%s%s%s: %s", nb_show_path(m->path).s,
                   *name ? " '" : "", nb_show_c(name).s, *name ? "'" : "", what);
}

static float f32_at(const unsigned char *p, size_t i)
{
    float x;
    nb_ggml_f32(p + 4 * i, 1, &x);
    return x;
}

/* The place of a name: where it is, or would be. */
static size_t place(const nb_imatrix *m, const char *name)
{
    size_t lo = 0, hi = m->n;
    while (lo < hi) {
        const size_t mid = (lo + hi) / 2;
        if (strcmp(m->e[mid].name, name) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static const entry *find(const nb_imatrix *m, const char *name)
{
    const size_t i = place(m, name);
    return i < m->n && strcmp(m->e[i].name, name) == 0 ? &m->e[i] : NULL;
}

nb_status nb_imatrix_create(nb_imatrix **out, nb_error *err)
{
    *out = calloc(1, sizeof **out);
    if (!*out) return no_memory(err);
    (*out)->path = "";
    return NB_OK;
}

void nb_imatrix_destroy(nb_imatrix *m)
{
    if (!m) return;
    for (size_t i = 0; i < m->n; i++) {
        free(m->e[i].own_sum);
        free(m->e[i].own_rows);
    }
    free(m->e);
    nb_gguf_close(m->gguf);
    nb_file_unmap(&m->map);
    nb_arena_deinit(&m->names);
    free(m);
}

size_t nb_imatrix_n(const nb_imatrix *m)
{
    return m->n;
}

/* ---- names ---- */

/* "blk.N.X.weight" of a matrix of a layer, and which of its matrices; false: none that counts. */
static bool gguf_name(const char *hf, nb_imatrix_part part, size_t head, char out[NAME_BYTES],
                      size_t *mat)
{
    unsigned long layer, expert;
    int used = 0, more = 0;
    char what[8];
    const char *s = strstr(hf, "model.layers.");
    *mat = 0;
    if (!s || sscanf(s, "model.layers.%6lu.%n", &layer, &used) != 1 || !used) return false;
    s += used;
    if (sscanf(s, "mlp.experts.%6lu.%7[a-z]_proj.weight%n", &expert, what, &more) == 2 && more) {
        *mat = expert;
        return snprintf(out, NAME_BYTES, "blk.%lu.ffn_%s_exps.weight", layer, what) < NAME_BYTES;
    }
    const char *name = nb_gguf_layer_name(s);
    if (!name) return false;
    if (part != NB_IMATRIX_WHOLE) {
        *mat = head;
        name = part == NB_IMATRIX_UK ? "attn_k_b.weight" : "attn_v_b.weight";
    }
    return snprintf(out, NAME_BYTES, "blk.%lu.%s", layer, name) < NAME_BYTES;
}

/* ---- a text ---- */

static bool add_entry(nb_imatrix *m, const char *name, size_t n_col, size_t at)
{
    if (NB_GROW(m->e, m->cap, m->n) != NB_OK) return false;
    const char *own = nb_arena_strdup(&m->names, nb_str_c(name));
    if (!own) return false;
    memmove(m->e + at + 1, m->e + at, (m->n - at) * sizeof *m->e);
    m->e[at] = (entry){ .name = own, .n_col = n_col };
    m->n++;
    return true;
}

/* Room for matrix `mat`, with zeros. */
static bool grow_entry(entry *e, size_t mat)
{
    const size_t n = mat + 1 > 2 * e->n_mat ? mat + 1 : 2 * e->n_mat;
    if (mat < e->n_mat) return true;
    float *sum = realloc(e->own_sum, n * e->n_col * sizeof *sum);
    if (sum) e->own_sum = sum;
    float *rows = realloc(e->own_rows, n * sizeof *rows);
    if (rows) e->own_rows = rows;
    if (!sum || !rows) return false;
    memset(sum + e->n_mat * e->n_col, 0, (n - e->n_mat) * e->n_col * sizeof *sum);
    memset(rows + e->n_mat, 0, (n - e->n_mat) * sizeof *rows);
    e->n_mat = n;
    e->sum = (const unsigned char *)sum;
    e->rows = (const unsigned char *)rows;
    return true;
}

int nb_imatrix_add(void *ctx, const nb_product *p)
{
    nb_imatrix *m = ctx;
    char name[NAME_BYTES];
    size_t mat;
    const nb_imatrix_part part = p->head == SIZE_MAX ? NB_IMATRIX_WHOLE : NB_IMATRIX_UK;
    if (!gguf_name(p->name, part, p->head, name, &mat) || mat >= MAX_MATRIX) return 0;
    const size_t at = place(m, name);
    if ((at == m->n || strcmp(m->e[at].name, name) != 0) && !add_entry(m, name, p->n_col, at))
        return 1;
    entry *e = &m->e[at];
    if (e->n_col != p->n_col) return 0;
    if (!grow_entry(e, mat)) return 1;
    float *sum = e->own_sum + mat * e->n_col;
    for (size_t t = 0; t < p->n_tok; t++)
        for (size_t i = 0; i < p->n_col; i++)
            sum[i] += p->x[t * p->stride + i] * p->x[t * p->stride + i];
    e->own_rows[mat] += (float)p->n_tok;
    return 0;
}

/* ---- files ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const entry *)a)->name, ((const entry *)b)->name);
}

static nb_status append(nb_imatrix *m, nb_str name, entry e, nb_error *err)
{
    if (memchr(name.p, 0, name.n_bytes)) return bad(m, "", "a name with a zero byte", err);
    if (NB_GROW(m->e, m->cap, m->n) != NB_OK) return no_memory(err);
    e.name = nb_arena_strdup(&m->names, name);
    if (!e.name) return no_memory(err);
    m->e[m->n++] = e;
    return NB_OK;
}

static nb_status sort(nb_imatrix *m, nb_error *err)
{
    bool layers = false;
    if (m->n) qsort(m->e, m->n, sizeof *m->e, by_name);
    for (size_t i = 0; i < m->n; i++) {
        layers |= strncmp(m->e[i].name, "blk.", 4) == 0;
        if (i && strcmp(m->e[i].name, m->e[i - 1].name) == 0)
            return bad(m, m->e[i].name, "is there twice", err);
    }
    return layers ? NB_OK : bad(m, "", "no entry is called blk.N.NAME", err);
}

static nb_status read_gguf(nb_imatrix *m, nb_error *err)
{
    static const char sums[] = ".in_sum2";
    nb_str type = { "", 0 };
    bool found;
    NB_TRY(nb_gguf_str(m->gguf, "general.type", &type, &found, err));
    if (!found || !nb_str_eqc(type, "imatrix"))
        return bad(m, "", "general.type is not \"imatrix\"", err);
    for (size_t i = 0; i < m->gguf->n_tensor; i++) {
        const nb_gguf_tensor *t = &m->gguf->tensor[i], *rows;
        char counts[NB_GGUF_MAX_NAME_BYTES + 16];
        const size_t n = t->name.n_bytes;
        if (n <= sizeof sums - 1 || memcmp(t->name.p + n - (sizeof sums - 1), sums, sizeof sums - 1))
            continue;
        const nb_str name = { t->name.p, n - (sizeof sums - 1) };
        (void)snprintf(counts, sizeof counts, "%.*s.counts", (int)name.n_bytes, name.p);
        rows = nb_gguf_find_tensor(m->gguf, counts);
        const size_t n_mat = t->n_dim > 1 ? t->dim[1] : 1;
        if (!rows || rows->type != 0 || rows->n_bytes != 4 * n_mat || t->type != 0 || t->n_dim > 2 ||
            n_mat > MAX_MATRIX || t->dim[0] == 0)
            return bad(m, nb_show(name).s, "expected F32 in_sum2 [columns, matrices] and counts for each matrix", err);
        NB_TRY(append(m, name,
                      (entry){ .n_mat = n_mat, .n_col = t->dim[0], .sum = t->data, .rows = rows->data },
                      err));
    }
    return sort(m, err);
}

/* The next i32, from lo to hi. */
static bool take_i32(nb_str *rest, int32_t lo, int32_t hi, int32_t *out)
{
    if (rest->n_bytes < 4) return false;
    *out = (int32_t)nb_le32_get((const uint8_t *)rest->p);
    *rest = (nb_str){ rest->p + 4, rest->n_bytes - 4 };
    return *out >= lo && *out <= hi;
}

static nb_status read_dat(nb_imatrix *m, nb_str rest, nb_error *err)
{
    int32_t n, len, calls, values;
    if (!take_i32(&rest, 1, 1 << 20, &n))
        return bad(m, "", "neither GGUF nor a number of entries from 1 to 1048576", err);
    for (int32_t i = 0; i < n; i++) {
        if (!take_i32(&rest, 1, NAME_BYTES - 1, &len) || (size_t)len > rest.n_bytes)
            return bad(m, "", "a name is cut off or longer than 255 bytes", err);
        const nb_str name = { rest.p, (size_t)len };
        rest = (nb_str){ rest.p + len, rest.n_bytes - (size_t)len };
        if (!take_i32(&rest, 0, INT32_MAX, &calls) || !take_i32(&rest, 1, INT32_MAX, &values) ||
            (size_t)values > rest.n_bytes / 4)
            return bad(m, nb_show(name).s, "expected calls from 0, values from 1, and that many floats", err);
        NB_TRY(append(m, name,
                      (entry){ .n_mat = 1,
                               .n_col = (size_t)values,
                               .sum = (const unsigned char *)rest.p,
                               .calls = (float)calls },
                      err));
        rest = (nb_str){ rest.p + 4 * (size_t)values, rest.n_bytes - 4 * (size_t)values };
    }
    return sort(m, err); /* what follows says how it was made */
}

static bool is_gguf(nb_str bytes)
{
    return bytes.n_bytes >= 4 && memcmp(bytes.p, "GGUF", 4) == 0;
}

static nb_status open_bytes(nb_imatrix *m, nb_str bytes, nb_error *err)
{
    if (!is_gguf(bytes)) return read_dat(m, bytes, err);
    NB_TRY(nb_gguf_open_bytes(bytes, m->path, &m->gguf, err));
    return read_gguf(m, err);
}

nb_status nb_imatrix_open_bytes(nb_str bytes, const char *name, nb_imatrix **out, nb_error *err)
{
    nb_imatrix *m = NULL;
    NB_TRY(nb_imatrix_create(&m, err));
    m->path = nb_arena_strdup(&m->names, nb_str_c(name));
    nb_status st = m->path ? open_bytes(m, bytes, err) : no_memory(err);
    if (st == NB_OK)
        *out = m;
    else
        nb_imatrix_destroy(m);
    return st;
}

nb_status nb_imatrix_open(const char *path, nb_imatrix **out, nb_error *err)
{
    nb_file_map map = { 0 };
    NB_TRY(nb_file_mmap(path, &map, err));
    const nb_status st =
        nb_imatrix_open_bytes((nb_str){ (const char *)map.p, map.n_bytes }, path, out, err);
    if (st == NB_OK)
        (*out)->map = map;
    else
        nb_file_unmap(&map);
    return st;
}

/* ---- weights ---- */

/* sum += of matrix `mat`; *rows += its inputs. */
static nb_status add_matrix(const nb_imatrix *m, const entry *e, size_t mat, size_t cols, double *sum,
                            double *rows, nb_error *err)
{
    const float n = e->rows ? f32_at(e->rows, mat) : e->calls;
    const size_t at = mat * cols;
    if (!isfinite(n) || n < 0) return bad(m, e->name, "a count is negative or not finite", err);
    for (size_t i = 0; i < cols; i++) {
        const float x = f32_at(e->sum, at + i);
        if (!isfinite(x) || x < 0) return bad(m, e->name, "a value is negative or not finite", err);
        sum[i] += (double)x;
    }
    *rows += (double)n;
    return NB_OK;
}

/* Sums of squares to weights of mean 1; false: all are 0. */
static bool normalise(const double *sum, size_t cols, float *w)
{
    double mean = 0;
    for (size_t i = 0; i < cols; i++) mean += sum[i] / (double)cols;
    if (!(mean > 0)) return false;
    for (size_t i = 0; i < cols; i++) {
        const float x = (float)(sum[i] / mean);
        w[i] = x > LEAST ? x : LEAST;
    }
    return true;
}

static nb_status weights_of(const nb_imatrix *m, const entry *e, size_t mat, size_t cols, double *sum,
                            float *w, nb_imatrix_found *found, nb_error *err)
{
    /* the older form does not say how many matrices there are */
    const size_t n_mat = e->rows ? e->n_mat : e->n_col / cols;
    double rows = 0;
    char what[96];
    if (e->n_mat * e->n_col != n_mat * cols || (mat != SIZE_MAX && mat >= n_mat)) {
        (void)snprintf(what, sizeof what, "%zu values, expected those of %zu columns for each matrix",
                       e->n_mat * e->n_col, cols);
        return bad(m, e->name, what, err);
    }
    memset(sum, 0, cols * sizeof *sum);
    if (mat != SIZE_MAX) {
        NB_TRY(add_matrix(m, e, mat, cols, sum, &rows, err));
        const bool few = n_mat > 1 && e->rows && rows < NB_IMATRIX_FEW_ROWS;
        if (!few && normalise(sum, cols, w)) {
            *found = NB_IMATRIX_OWN;
            return NB_OK;
        }
        memset(sum, 0, cols * sizeof *sum);
    }
    for (size_t i = 0; n_mat > 1 && i < n_mat; i++)
        NB_TRY(add_matrix(m, e, i, cols, sum, &rows, err));
    if (normalise(sum, cols, w)) *found = NB_IMATRIX_SHARED;
    return NB_OK;
}

nb_status nb_imatrix_weights(const nb_imatrix *m, const char *name, nb_imatrix_part part, size_t head,
                             size_t cols, float *w, nb_imatrix_found *found, nb_error *err)
{
    char own[NAME_BYTES], other[NAME_BYTES];
    size_t mat, all;
    *found = NB_IMATRIX_NONE;
    if (!cols || !gguf_name(name, part, head, own, &mat)) return NB_OK;
    const entry *e = find(m, own);
    /* Inputs of W_UV are sums of latents: the other's stand for it. */
    if (!e && part == NB_IMATRIX_UV && gguf_name(name, NB_IMATRIX_WHOLE, 0, other, &mat))
        e = find(m, other);
    if (!e && part == NB_IMATRIX_WHOLE && strstr(own, ".attn_kv_b.") &&
        gguf_name(name, NB_IMATRIX_UV, SIZE_MAX, other, &all)) {
        e = find(m, other);
        mat = SIZE_MAX;
    }
    if (!e) return NB_OK;
    double *sum = malloc(cols * sizeof *sum);
    if (!sum) return no_memory(err);
    const nb_status st = weights_of(m, e, mat, cols, sum, w, found, err);
    free(sum);
    return st;
}
