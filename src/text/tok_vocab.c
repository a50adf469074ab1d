/* tok_vocab.c - the tables of a tokenizer: bytes to ids, pairs to merges, names.
 *
 * Both tables are open-addressed at a load of at most one half.  Keys of up to
 * 8 bytes, which most words are, lie in the slot itself, so that a look-up
 * touches one cache line.  A file could choose keys that collide; the length
 * of a probe sequence is bounded, and beyond it the file is refused. */
#include <stdlib.h>

#include "base/utf8.h"
#include "text/tok_internal.h"

enum { MAX_PROBES = 4096 };

void nb_tok_map_deinit(nb_tok_map *m)
{
    free(m->slots);
    *m = (nb_tok_map){ 0 };
}

static nb_status map_grow(nb_tok_map *m)
{
    const size_t n = m->n_slots ? m->n_slots * 2 : 256;
    nb_tok_slot *slots = calloc(n, sizeof *slots);
    if (!slots) return NB_ERR_NOMEM;
    for (size_t i = 0; i < m->n_slots; i++) {
        const nb_tok_slot *s = &m->slots[i];
        if (!s->meta) continue;
        uint64_t h = (s->word ^ (uint64_t)(s->meta & NB_SLOT_LEN) << 56) * 0x9e3779b97f4a7c15u;
        h ^= h >> 32;
        size_t k = h & (n - 1);
        while (slots[k].meta) k = (k + 1) & (n - 1);
        slots[k] = *s;
    }
    free(m->slots);
    m->slots = slots;
    m->n_slots = n;
    return NB_OK;
}

nb_status nb_tok_map_put(nb_tok_map *m, const nb_tok_view *views, const nb_buf *blob, nb_str key,
                         uint32_t value, nb_tok_slot **slot, bool *added)
{
    if (key.n_bytes > NB_SLOT_LEN) return NB_ERR_LIMIT;
    if (2 * (m->n_used + 1) > m->n_slots) NB_TRY(map_grow(m));
    uint64_t word;
    size_t probes = 0;
    for (size_t i = nb_tok_hash(key.p, key.n_bytes, &word) & (m->n_slots - 1);;
         i = (i + 1) & (m->n_slots - 1)) {
        nb_tok_slot *s = &m->slots[i];
        *slot = s;
        if (!s->meta) {
            *s = (nb_tok_slot){ word, value, NB_SLOT_USED | (uint32_t)key.n_bytes };
            m->n_used++;
            *added = true;
            return NB_OK;
        }
        if (s->word == word && (s->meta & NB_SLOT_LEN) == key.n_bytes &&
            (key.n_bytes <= 8 || memcmp(blob->p + views[s->value].off, key.p, key.n_bytes) == 0)) {
            *added = false;
            return NB_OK;
        }
        if (++probes > MAX_PROBES) return NB_ERR_LIMIT;
    }
}

void nb_tok_merges_deinit(nb_tok_merges *m)
{
    free(m->slots);
    *m = (nb_tok_merges){ 0 };
}

static nb_tok_merge *merge_slot(nb_tok_merge *slots, size_t n, uint64_t pair, size_t *probes)
{
    uint64_t h = pair * 0x9e3779b97f4a7c15u;
    h ^= h >> 32;
    size_t k = h & (n - 1);
    for (*probes = 0; slots[k].pair != UINT64_MAX && slots[k].pair != pair; ++*probes)
        k = (k + 1) & (n - 1);
    return &slots[k];
}

nb_status nb_tok_merges_put(nb_tok_merges *m, uint32_t left, uint32_t right, uint32_t rank,
                            uint32_t id)
{
    size_t probes;
    if (2 * (m->n_used + 1) > m->n_slots) {
        const size_t n = m->n_slots ? m->n_slots * 2 : 256;
        nb_tok_merge *slots = malloc(n * sizeof *slots);
        if (!slots) return NB_ERR_NOMEM;
        memset(slots, 0xff, n * sizeof *slots);
        for (size_t i = 0; i < m->n_slots; i++)
            if (m->slots[i].pair != UINT64_MAX)
                *merge_slot(slots, n, m->slots[i].pair, &probes) = m->slots[i];
        free(m->slots);
        m->slots = slots;
        m->n_slots = n;
    }
    const uint64_t pair = (uint64_t)left << 32 | right;
    nb_tok_merge *s = merge_slot(m->slots, m->n_slots, pair, &probes);
    if (probes > MAX_PROBES) return NB_ERR_LIMIT;
    if (s->pair == UINT64_MAX) m->n_used++;
    *s = (nb_tok_merge){ pair, rank, id };
    return NB_OK;
}

nb_status nb_tok_blob_add(nb_tokenizer *t, nb_str s, nb_tok_view *out)
{
    if (s.n_bytes > UINT32_MAX - 16 || t->blob.n_bytes > UINT32_MAX - 16 - s.n_bytes)
        return NB_ERR_LIMIT;
    *out = (nb_tok_view){ (uint32_t)t->blob.n_bytes, (uint32_t)s.n_bytes };
    return nb_buf_add_str(&t->blob, s);
}

nb_status nb_tok_reserve_id(nb_tokenizer *t, uint64_t id, const char *where, nb_error *err)
{
    if (id >= NB_TOK_MAX_VOCAB)
        return nb_fail(err, NB_ERR_LIMIT, "%s: token id %llu, ids below %d expected", where,
                       (unsigned long long)id, (int)NB_TOK_MAX_VOCAB);
    if (id >= t->cap_ids) {
        size_t cap = t->cap_ids ? t->cap_ids : 1024;
        while (cap <= id) cap *= 2;
        nb_tok_view *key = realloc(t->key, cap * sizeof *key);
        if (key) t->key = key;
        nb_tok_view *out = realloc(t->out, cap * sizeof *out);
        if (out) t->out = out;
        uint8_t *flags = realloc(t->flags, cap * sizeof *flags);
        if (flags) t->flags = flags;
        if (!key || !out || !flags) return nb_fail(err, NB_ERR_NOMEM, "%s: out of memory", where);
        memset(key + t->cap_ids, 0, (cap - t->cap_ids) * sizeof *key);
        memset(out + t->cap_ids, 0, (cap - t->cap_ids) * sizeof *out);
        memset(flags + t->cap_ids, 0, (cap - t->cap_ids) * sizeof *flags);
        t->cap_ids = cap;
    }
    if (id >= t->n_ids) t->n_ids = (size_t)id + 1;
    return NB_OK;
}

nb_status nb_tok_name_add(nb_tokenizer *t, nb_str name, uint32_t id, uint32_t added_index)
{
    nb_tok_slot *slot;
    bool added;
    NB_TRY(NB_GROW(t->name, t->cap_names, t->n_names));
    NB_TRY(NB_GROW(t->name_id, t->cap_name_ids, t->n_names));
    NB_TRY(NB_GROW(t->name_added, t->cap_name_added, t->n_names));
    NB_TRY(nb_tok_map_put(&t->names, t->name, &t->blob, name, (uint32_t)t->n_names, &slot, &added));
    const uint32_t v = slot->value;
    if (added) {
        const nb_status st = nb_tok_blob_add(t, name, &t->name[v]);
        if (st != NB_OK) { /* take the slot back: it was the last one added */
            *slot = (nb_tok_slot){ 0 };
            t->names.n_used--;
            return st;
        }
        t->n_names++;
    }
    t->name_id[v] = id;
    t->name_added[v] = added_index;
    return NB_OK;
}

uint32_t nb_tok_name_index(const nb_tokenizer *t, nb_str name)
{
    const nb_tok_slot *s = nb_tok_map_get(&t->names, t->name, &t->blob, name.p, name.n_bytes);
    return s ? s->value : NB_TOK_NONE;
}

uint32_t nb_tok_name_find(const nb_tokenizer *t, nb_str name)
{
    const uint32_t v = nb_tok_name_index(t, name);
    return v == NB_TOK_NONE ? v : t->name_id[v];
}

uint32_t nb_tok_model_find(const nb_tokenizer *t, nb_str spelling)
{
    char bytes[NB_TOK_MAX_TOKEN_BYTES];
    size_t n = 0;
    if (spelling.n_bytes > sizeof bytes) return NB_TOK_NONE;
    nb_str key = spelling;
    if (t->byte_level) {
        for (size_t i = 0; i < spelling.n_bytes;) {
            uint32_t cp;
            i += nb_tok_char(spelling.p + i, &cp);
            const int b = nb_tok_standin_byte(cp);
            if (b < 0) return nb_tok_name_find(t, spelling);
            bytes[n++] = (char)b;
        }
        key = (nb_str){ bytes, n };
    }
    const nb_tok_slot *s = nb_tok_map_get(&t->keys, t->key, &t->blob, key.p, key.n_bytes);
    return s ? s->value : nb_tok_name_find(t, spelling);
}

/* GPT-2's alphabet: printable Latin-1 stands for itself, the other 68 bytes, in
 * order, are U+0100 and up. */
int nb_tok_standin_byte(uint32_t c)
{
    if ((c >= 33 && c <= 126) || (c >= 161 && c <= 172) || (c >= 174 && c <= 255)) return (int)c;
    if (c >= 256 && c < 256 + 33) return (int)(c - 256);                 /* 0..32    */
    if (c >= 256 + 33 && c < 256 + 67) return (int)(c - 256 - 33 + 127); /* 127..160 */
    return c == 256 + 67 ? 173 : -1;
}

uint32_t nb_tok_standin(unsigned char b)
{
    if (nb_tok_standin_byte(b) == b) return b;
    return b < 33 ? 256u + b : b == 173 ? 256u + 67 : 256u + 33 + b - 127;
}

nb_status nb_tok_standin_decode(nb_str s, nb_buf *out, bool *all)
{
    const size_t start = out->n_bytes;
    *all = true;
    NB_TRY(nb_buf_reserve(out, s.n_bytes));
    for (size_t i = 0; i < s.n_bytes;) {
        uint32_t cp;
        i += nb_tok_char(s.p + i, &cp);
        const int b = nb_tok_standin_byte(cp);
        if (b < 0) {
            out->n_bytes = start;
            *all = false;
            return NB_OK;
        }
        out->p[out->n_bytes++] = (char)b;
    }
    return NB_OK;
}

char *nb_tok_strdup(nb_str s)
{
    char *p = malloc(s.n_bytes + 1);
    if (!p) return NULL;
    if (s.n_bytes) memcpy(p, s.p, s.n_bytes);
    p[s.n_bytes] = 0;
    return p;
}
