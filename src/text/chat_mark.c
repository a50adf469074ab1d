/* chat_mark.c - marks in texts of a request that spell control tokens; see chat_style.h. */
#include <stdlib.h>

#include "text/chat_style.h"
#include "text/jinja_internal.h"
#include "text/tok_internal.h"

enum { MARK_BYTES = sizeof NB_CHAT_MARK - 1 };

static bool is_think(nb_str s)
{
    return nb_str_eqc(s, "<think>") || nb_str_eqc(s, "</think>");
}

static bool is_mark(nb_str s, size_t at)
{
    return s.n_bytes - at >= MARK_BYTES && memcmp(s.p + at, NB_CHAT_MARK, MARK_BYTES) == 0;
}

/* Appends s with marks, if there is something to mark: *changed. */
static nb_status mark_text(const nb_tokenizer *tok, nb_str s, bool keep_think, nb_buf *out,
                           bool *changed)
{
    size_t n = 0, next = nb_tokenizer_find_control(tok, s, 0, &n);
    *changed = false;
    if (next == s.n_bytes && nb_j_find(s, nb_str_c(NB_CHAT_MARK), 0) == SIZE_MAX) return NB_OK;
    for (size_t i = 0; i < s.n_bytes;) {
        size_t len = 1;
        if (i == next) {
            const bool kept = keep_think && is_think(nb_j_sub(s, i, i + n));
            next = nb_tokenizer_find_control(tok, s, i + 1, &n);
            len = nb_tok_char_bytes(s.p + i);
            NB_TRY(nb_buf_add(out, s.p + i, len));
            if (!kept) NB_TRY(nb_buf_add(out, NB_CHAT_MARK, MARK_BYTES));
            *changed = *changed || !kept;
        } else if (is_mark(s, i)) {
            len = MARK_BYTES;
            *changed = true;
            NB_TRY(nb_buf_add(out, NB_CHAT_MARK NB_CHAT_MARK, 2 * MARK_BYTES));
        } else {
            NB_TRY(nb_buf_add_ch(out, s.p[i]));
        }
        i += len;
    }
    return NB_OK;
}

static nb_status mark_string(const nb_tokenizer *tok, json_t **v, bool keep_think)
{
    const nb_str s = { json_string_value(*v), json_string_length(*v) };
    nb_buf b = { 0 };
    bool changed = false;
    nb_status st = mark_text(tok, s, keep_think, &b, &changed);
    if (st == NB_OK && changed) {
        json_t *now = json_stringn_nocheck(b.p, b.n_bytes);
        st = now ? NB_OK : NB_ERR_NOMEM;
        if (now) {
            json_decref(*v);
            *v = now;
        }
    }
    nb_buf_deinit(&b);
    return st;
}

/* Keys too: names of properties are printed with their values. */
static nb_status mark_object(const nb_tokenizer *tok, json_t **v, bool keep_think)
{
    const char *key;
    json_t *member, *now = json_object();
    nb_status st = now ? NB_OK : NB_ERR_NOMEM;
    json_object_foreach(*v, key, member)
    {
        nb_buf name = { 0 };
        bool changed = false;
        json_t *copy = json_incref(member);
        if (st == NB_OK) st = mark_text(tok, nb_str_c(key), false, &name, &changed);
        if (st == NB_OK) st = nb_chat_mark(tok, &copy, keep_think);
        if (st == NB_OK && json_object_set_nocheck(now, changed ? name.p : key, copy) != 0)
            st = NB_ERR_NOMEM;
        json_decref(copy);
        nb_buf_deinit(&name);
    }
    if (st != NB_OK) {
        json_decref(now);
        return st;
    }
    json_decref(*v);
    *v = now;
    return NB_OK;
}

nb_status nb_chat_mark(const nb_tokenizer *tok, json_t **v, bool keep_think)
{
    if (json_is_string(*v)) return mark_string(tok, v, keep_think);
    if (json_is_object(*v)) return mark_object(tok, v, keep_think);
    for (size_t i = 0; i < json_array_size(*v); i++) {
        json_t *item = json_incref(json_array_get(*v, i));
        nb_status st = nb_chat_mark(tok, &item, keep_think);
        if (st == NB_OK && json_array_set(*v, i, item) != 0) st = NB_ERR_NOMEM;
        json_decref(item);
        if (st != NB_OK) return st;
    }
    return NB_OK;
}

nb_status nb_chat_mark_messages(const nb_tokenizer *tok, json_t *messages)
{
    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_t *m = json_array_get(messages, i), *copy, *member;
        const char *key, *role = json_string_value(json_object_get(m, "role"));
        const bool assistant = role && strcmp(role, "assistant") == 0;
        void *next;
        for (void *it = json_object_iter(m); it; it = next) {
            next = json_object_iter_next(m, it);
            key = json_object_iter_key(it);
            member = json_object_iter_value(it);
            if (strcmp(key, "role") == 0) continue;
            copy = json_incref(member);
            nb_status st = nb_chat_mark(tok, &copy, assistant && strcmp(key, "content") == 0);
            if (st == NB_OK && json_object_iter_set(m, it, copy) != 0) st = NB_ERR_NOMEM;
            json_decref(copy);
            if (st != NB_OK) return st;
        }
    }
    return NB_OK;
}

nb_status nb_chat_unmark(nb_buf *text, size_t **at, size_t *n)
{
    const nb_str s = nb_buf_view(text);
    size_t to = 0, cap = 0, n_mark = 0, *mark = NULL;
    for (size_t i = 0; i < s.n_bytes;) {
        const char *p = memchr(s.p + i, NB_CHAT_MARK[0], s.n_bytes - i);
        const size_t end = p ? (size_t)(p - s.p) : s.n_bytes;
        memmove(text->p + to, s.p + i, end - i);
        to += end - i;
        i = end;
        if (i == s.n_bytes) break;
        if (!is_mark(s, i)) {
            text->p[to++] = s.p[i++];
        } else if (is_mark(s, i + MARK_BYTES)) { /* the character itself */
            memmove(text->p + to, s.p + i, MARK_BYTES);
            to += MARK_BYTES;
            i += 2 * MARK_BYTES;
        } else {
            if (NB_GROW(mark, cap, n_mark) != NB_OK) {
                free(mark);
                return NB_ERR_NOMEM;
            }
            mark[n_mark++] = to;
            i += MARK_BYTES;
        }
    }
    text->n_bytes = to;
    if (text->p) text->p[to] = 0;
    *at = mark;
    *n = n_mark;
    return NB_OK;
}
