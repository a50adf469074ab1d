/* source_gguf.c - a GGUF as a source: its tensors under the names of a Hugging Face folder (gguf.h). */
#include <stdlib.h>

#include "load/source_internal.h"

typedef struct adding {
    nb_source *s;
    const nb_gguf *g;
    size_t file0; /* of the source, that is the GGUF's first */
} adding;

static nb_status no_memory(const char *path, nb_error *err)
{
    return nb_fail(err, NB_ERR_NOMEM, "%s: out of memory", nb_show_path(path).s);
}

/* A copy of a description: the header's arrays end with the nb_gguf. */
static nb_gguf_tensor *keep(nb_arena *a, const nb_gguf_tensor *t)
{
    nb_gguf_tensor *own = t ? nb_arena_alloc(a, sizeof *own) : NULL;
    if (own) *own = *t;
    return own;
}

static nb_status keep_part(nb_source *s, const nb_gguf_part *p, nb_st_tensor *x)
{
    nb_gguf_part *own = nb_arena_alloc(&s->names, sizeof *own);
    if (!own) return NB_ERR_NOMEM;
    *own = *p;
    own->t = keep(&s->names, p->t);
    own->t2 = keep(&s->names, p->t2);
    x->part = own;
    return own->t && (own->t2 || !p->t2) ? NB_OK : NB_ERR_NOMEM;
}

static nb_status add_part(void *ctx, const nb_gguf_part *p, nb_error *err)
{
    const adding *a = ctx;
    nb_source *s = a->s;
    const nb_gguf_dtype *type = nb_gguf_dtype_of(p->t->type);
    const nb_gguf_dtype *type2 = p->t2 ? nb_gguf_dtype_of(p->t2->type) : type;
    if (NB_GROW(s->tensors, s->cap_tensor, s->n_tensor) != NB_OK) return no_memory(s->where, err);
    nb_st_tensor *x = &s->tensors[s->n_tensor];
    *x = (nb_st_tensor){ .name = p->name, .n_name_bytes = strlen(p->name) };
    x->file = a->file0 + p->t->file;
    x->tensor = (nb_tensor){ .data = p->data, .dtype = p->dtype, .n_bytes = p->n_bytes };
    x->tensor.n_dim = p->n_dim;
    memcpy(x->tensor.dim, p->dim, p->n_dim * sizeof *p->dim);
    if (type->why) type2 = type;
    x->type = type2->name;
    x->why = type2->why;
    if (p->form != NB_GGUF_AS_IT_IS && keep_part(s, p, x) != NB_OK) return no_memory(s->where, err);
    s->n_tensor++;
    s->n_bytes += p->n_bytes;
    return NB_OK;
}

/* The maps become the source's. */
static nb_status add_files(nb_source *s, nb_gguf *g, nb_error *err)
{
    for (size_t i = 0; i < g->n_file; i++) {
        if (NB_GROW(s->files, s->cap_file, s->n_file) != NB_OK) return no_memory(s->where, err);
        char *own = nb_arena_strdup(&s->names, nb_str_c(g->file[i].path));
        if (!own) return no_memory(s->where, err);
        s->files[s->n_file++] = (source_file){ .map = g->file[i].map, .path = own };
        g->file[i].map = (nb_file_map){ 0 };
    }
    return NB_OK;
}

nb_status nb_source_add_gguf(nb_source *s, const char *path, const nb_str *bytes, nb_error *err)
{
    nb_gguf *g = NULL;
    NB_TRY(bytes ? nb_gguf_open_bytes(*bytes, path, &g, err) : nb_gguf_open(path, &g, err));
    adding a = { .s = s, .g = g, .file0 = s->n_file };
    nb_status st = nb_gguf_tensors(g, &s->names, add_part, &a, err);
    if (st == NB_OK) st = add_files(s, g, err);
    nb_gguf_close(g);
    return st;
}

nb_status nb_source_make(nb_st_tensor *x, const char *path, nb_error *err)
{
    nb_tensor *t = &x->tensor;
    static const uint64_t nothing = 0;
    if (t->n_bytes == 0) t->data = &nothing;
    if (x->owned || t->n_bytes == 0) return NB_OK;
    x->owned = nb_pages_alloc(t->n_bytes);
    if (!x->owned)
        return nb_fail(err, NB_ERR_NOMEM, "%s: tensor '%s': out of memory for %zu bytes",
                       nb_show_path(path).s, nb_show_c(x->name).s, t->n_bytes);
    NB_TRY(nb_gguf_make(x->part, x->owned, err));
    t->data = x->owned;
    return NB_OK;
}

void nb_source_moved(nb_source *s, size_t file, const unsigned char *p)
{
    const unsigned char *old = s->files[file].map.p;
    for (size_t i = 0; i < s->n_tensor; i++) {
        nb_gguf_part *x = s->tensors[i].part;
        if (!x) continue;
        nb_gguf_tensor *const t[] = { (nb_gguf_tensor *)(uintptr_t)x->t,
                                      (nb_gguf_tensor *)(uintptr_t)x->t2 };
        for (size_t k = 0; k < NB_COUNT(t); k++)
            if (t[k] && s->tensors[i].file - x->t->file + t[k]->file == file)
                t[k]->data = p + (t[k]->data - old);
        if (s->tensors[i].file == file) x->data = p + (x->data - old);
    }
}
