/* json_size.c - see json_size.h.
 *
 * No grammar is needed: outside of strings, opening brackets, quotes and commas say which values
 * there are.  The bytes are those of jansson 2.14 with glibc's malloc on 64 bits. */
#include "serve/json_size.h"

enum {
    OBJECT_BYTES = 256, /* with the buckets of its table */
    ARRAY_BYTES = 144,  /* with eight places */
    STRING_BYTES = 96,  /* besides its text; of a key: its pair */
    VALUE_BYTES = 48    /* a number, or a place in a larger array */
};

/* Past the string that begins at i. */
static size_t skip_string(nb_str s, size_t i)
{
    for (i++; i < s.n_bytes && s.p[i] != '"'; i++)
        if (s.p[i] == '\\') i++;
    return i + 1;
}

nb_json_size nb_json_measure(nb_str text)
{
    nb_json_size r = { 0 };
    for (size_t i = 0; i < text.n_bytes;) {
        const char c = text.p[i];
        if (c == '"') {
            const size_t end = skip_string(text, i);
            r.tree_bytes += STRING_BYTES + (end - i);
            i = end;
            continue;
        }
        if (c == '{' || c == '[') {
            r.n_container++;
            r.tree_bytes += VALUE_BYTES;
            r.tree_bytes += c == '{' ? (size_t)OBJECT_BYTES : (size_t)ARRAY_BYTES;
        }
        if (c == ',') r.tree_bytes += VALUE_BYTES;
        i++;
    }
    return r;
}
