/* gguf_sizes.c - the types of a GGUF's tensors under the names of a Hugging Face folder, as a quantization_config that
 * src/model/config_quant.c reads, so that `nibble plan` counts each tensor. */
#include <stdio.h>

#include "load/gguf.h"
#include "load/load_internal.h"

/* More modules than a layer of any model has are names that nothing reads. */
enum { MAX_TYPE = 31, MAX_LAYER = 1024, MAX_MODULE = 64 };
typedef struct counting {
    json_t *types, *tensors; /* "Q4_K 256 144"; module -> for each layer 1 + its type, or 0 */
    size_t n_layer;
    bool packed;
} counting;

static size_t type_index(const counting *c, const nb_gguf_dtype *d)
{
    char text[64];
    (void)snprintf(text, sizeof text, "%s %zu %zu", d->name, d->block, d->block_bytes);
    const size_t n = json_array_size(c->types);
    for (size_t i = 0; i < n; i++)
        if (!strcmp(json_string_value(json_array_get(c->types, i)), text)) return i + 1;
    return n < MAX_TYPE && json_array_append_new(c->types, json_string(text)) == 0 ? n + 1 : 0;
}

/* The list of a module, one number for each layer. */
static json_t *list_of(const counting *c, const char *module)
{
    json_t *list = json_object_get(c->tensors, module);
    if (list || json_object_size(c->tensors) >= MAX_MODULE) return list;
    list = json_array();
    for (size_t i = 0; list && i < c->n_layer; i++) (void)json_array_append_new(list, json_integer(0));
    (void)json_object_set_new(c->tensors, module, list);
    return json_object_get(c->tensors, module);
}

static nb_status count_part(void *ctx, const nb_gguf_part *p, nb_error *err)
{
    static const char weight[] = ".weight";
    counting *c = ctx;
    char module[160];
    unsigned long layer = 0;
    int used = 0;
    const size_t n = strlen(p->name), k = sizeof weight - 1;
    const nb_gguf_dtype *d = nb_gguf_dtype_of(p->t->type); /* a type that is not read keeps its size */
    if (p->n_dim != 2 || n <= k || n - k >= sizeof module || strcmp(p->name + n - k, weight) != 0)
        return NB_OK;
    (void)snprintf(module, sizeof module, "%.*s", (int)(n - k), p->name);
    const char *name = module;
    if (sscanf(module, "model.layers.%5lu.%n", &layer, &used) == 1 && used) name += used;
    if (layer >= c->n_layer || (strncmp(name, "mlp.experts.", 12) == 0 && strncmp(name + 12, "0.", 2) != 0))
        return NB_OK;
    json_t *list = list_of(c, name);
    if (list && json_array_set_new(list, layer, json_integer((json_int_t)type_index(c, d))) != 0)
        return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    c->packed |= d->block > 1;
    return NB_OK;
}

nb_status nb_gguf_types(const nb_gguf *g, size_t n_layer, json_t **out, nb_error *err)
{
    nb_arena names = { 0 };
    counting c = { .types = json_array(),
                   .tensors = json_object(),
                   .n_layer = n_layer <= MAX_LAYER ? n_layer : 0 };
    nb_status st = NB_OK;
    *out = NULL;
    if (!c.types || !c.tensors) st = nb_fail(err, NB_ERR_NOMEM, "out of memory");
    if (st == NB_OK) st = nb_gguf_tensors(g, &names, count_part, &c, err);
    nb_arena_deinit(&names);
    if (st == NB_OK && c.packed) {
        *out = json_pack("{s:s, s:o, s:o}", "quant_method", "gguf", "types", c.types, "tensors",
                         c.tensors);
        return *out ? NB_OK : nb_fail(err, NB_ERR_NOMEM, "out of memory");
    }
    json_decref(c.types);
    json_decref(c.tensors);
    return st;
}
