/* stop.c - see stop.h.
 *
 * One Knuth-Morris-Pratt automaton per string: state[i] is the length of the longest
 * prefix of string i that ends at the last byte read.  The largest of them is what
 * must be held back.  With the few strings a request has, one automaton each is
 * simpler than a joint one, and each byte costs O(strings). */
#include "sample/stop.h"

#include <stdint.h>
#include <stdlib.h>

#include "base/utf8.h"

typedef struct stop_string {
    char *p;        /* [n_bytes] */
    uint16_t *fail; /* [n_bytes + 1] length of the longest proper border of each prefix */
    size_t n_bytes, state;
} stop_string;

struct nb_stop {
    stop_string *s;
    size_t n, n_emitted; /* bytes at the start of text that were handed out */
    int found;
    nb_buf text; /* handed out last, then held back */
};

static nb_status string_init(stop_string *d, nb_str s)
{
    d->p = malloc(s.n_bytes);
    d->fail = calloc(s.n_bytes + 1, sizeof *d->fail);
    if (!d->p || !d->fail) return NB_ERR_NOMEM;
    memcpy(d->p, s.p, s.n_bytes);
    d->n_bytes = s.n_bytes;
    size_t k = 0;
    for (size_t i = 1; i < s.n_bytes; i++) {
        while (k && d->p[k] != d->p[i]) k = d->fail[k];
        if (d->p[k] == d->p[i]) k++;
        d->fail[i + 1] = (uint16_t)k;
    }
    return NB_OK;
}

static nb_status check_strings(const nb_str *strings, size_t n, nb_error *err)
{
    if (n > NB_STOP_STRINGS_MAX)
        return nb_fail(err, NB_ERR_LIMIT, "stop: %zu strings: expected at most %d", n,
                       NB_STOP_STRINGS_MAX);
    for (size_t i = 0; i < n; i++) {
        if (strings[i].n_bytes == 0)
            return nb_fail(err, NB_ERR_ARG, "stop: string %zu is empty", i);
        if (strings[i].n_bytes > NB_STOP_BYTES_MAX)
            return nb_fail(err, NB_ERR_LIMIT, "stop: string %zu has %zu bytes: expected at most %d",
                           i, strings[i].n_bytes, NB_STOP_BYTES_MAX);
        if (!nb_utf8_valid(strings[i]))
            return nb_fail(err, NB_ERR_ARG, "stop: string %zu is not UTF-8", i);
    }
    return NB_OK;
}

nb_status nb_stop_create(const nb_str *strings, size_t n, nb_stop **out, nb_error *err)
{
    NB_TRY(check_strings(strings, n, err));
    nb_stop *s = calloc(1, sizeof *s);
    if (!s) return nb_fail(err, NB_ERR_NOMEM, "no memory for stop strings");
    s->found = -1;
    s->n = n;
    s->s = calloc(n ? n : 1, sizeof *s->s);
    bool ok = s->s != NULL;
    for (size_t i = 0; ok && i < n; i++) ok = string_init(&s->s[i], strings[i]) == NB_OK;
    if (!ok) {
        nb_stop_destroy(s);
        return nb_fail(err, NB_ERR_NOMEM, "no memory for stop strings");
    }
    *out = s;
    return NB_OK;
}

void nb_stop_destroy(nb_stop *s)
{
    if (!s) return;
    for (size_t i = 0; s->s && i < s->n; i++) {
        free(s->s[i].p);
        free(s->s[i].fail);
    }
    free(s->s);
    nb_buf_deinit(&s->text);
    free(s);
}

int nb_stop_found(const nb_stop *s)
{
    return s->found;
}

static void drop_emitted(nb_stop *s)
{
    if (s->n_emitted == 0) return;
    memmove(s->text.p, s->text.p + s->n_emitted, s->text.n_bytes - s->n_emitted);
    s->text.n_bytes -= s->n_emitted;
    s->n_emitted = 0;
}

/* Moves all automata over one byte; sets s->found, returns what is to be held back. */
static size_t step(nb_stop *s, char c)
{
    size_t hold = 0;
    for (size_t i = 0; i < s->n; i++) {
        stop_string *t = &s->s[i];
        while (t->state && t->p[t->state] != c) t->state = t->fail[t->state];
        if (t->p[t->state] == c) t->state++;
        if (t->state == t->n_bytes && (s->found < 0 || t->n_bytes > s->s[s->found].n_bytes))
            s->found = (int)i;
        if (t->state > hold) hold = t->state;
    }
    return hold;
}

nb_status nb_stop_feed(nb_stop *s, nb_str piece, nb_str *emit)
{
    drop_emitted(s);
    *emit = (nb_str){ "", 0 };
    if (s->found >= 0 || piece.n_bytes == 0) return NB_OK;
    const size_t before = s->text.n_bytes;
    NB_TRY(nb_buf_add_str(&s->text, piece));
    size_t hold = before;
    for (size_t i = 0; i < piece.n_bytes && s->found < 0; i++) {
        hold = step(s, piece.p[i]);
        if (s->found < 0) continue;
        /* End the text before the stop string. */
        hold = 0;
        s->text.n_bytes = before + i + 1 - s->s[s->found].n_bytes;
    }
    s->n_emitted = s->text.n_bytes - hold;
    emit->p = s->text.p;
    emit->n_bytes = s->n_emitted;
    return NB_OK;
}

nb_str nb_stop_flush(nb_stop *s)
{
    drop_emitted(s);
    s->n_emitted = s->text.n_bytes;
    for (size_t i = 0; i < s->n; i++) s->s[i].state = 0;
    return nb_buf_view(&s->text);
}
