/* choice.c - one of a list of texts. */
#include <jansson.h>

#include "base/utf8.h"
#include "grammar/graph.h"
#include "load/json.h"

enum { MAX_CHOICE = 1000, MAX_CHOICE_BYTES = 64 << 10 };

nb_status nb_g_choice(nb_grammar *g, nb_str text)
{
    json_t *list = nb_g_parse(g, text, "choice");
    if (!list) return g->err.status;
    const size_t n = json_array_size(list);
    nb_str *s = nb_g_alloc(g, n, sizeof *s);
    size_t bytes = 0;
    if (!json_is_array(list) || n == 0 || n > MAX_CHOICE)
        (void)nb_g_fail(g, NB_ERR_LIMIT, "choice is %s: expected an array of 1 to %d strings",
                        nb_json_describe(list).s, MAX_CHOICE);
    for (size_t i = 0; s && i < n && nb_g_ok(g); i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_string(v)) {
            (void)nb_g_fail(g, NB_ERR_FORMAT, "choice %zu is %s: expected a string", i,
                            nb_json_describe(v).s);
            break;
        }
        s[i] = nb_g_copy(g, (nb_str){ json_string_value(v), json_string_length(v) });
        bytes += s[i].n_bytes;
    }
    if (nb_g_ok(g) && bytes == 0)
        (void)nb_g_fail(g, NB_ERR_RANGE,
                        "choice has empty strings only: nothing would be generated");
    if (bytes > MAX_CHOICE_BYTES)
        (void)nb_g_fail(g, NB_ERR_LIMIT, "choice has %zu bytes: expected at most %d", bytes,
                        MAX_CHOICE_BYTES);
    if (nb_g_ok(g)) g->root = nb_g_rule_of(g, nb_g_set(g, s, n, nb_g_ret(g)));
    json_decref(list);
    return g->err.status;
}
