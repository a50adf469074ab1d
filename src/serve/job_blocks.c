/* job_blocks.c - an answer in parts: reasoning, content, calls; see job.h. */
#include <stdlib.h>

#include "serve/job.h"

/* ---- pieces of an event ---- */

static size_t with_zero(const char *s)
{
    return s ? strlen(s) + 1 : 0;
}

size_t nb_pieces_bytes(const nb_token_event *ev)
{
    size_t n = ev->n_piece ? 0 : ev->text_bytes + 1;
    for (size_t i = 0; i < ev->n_piece; i++) {
        const nb_piece *p = &ev->piece[i];
        n += p->text_bytes + with_zero(p->name) + with_zero(p->id);
    }
    return n;
}

static const char *copy_to(char **at, const char *s, size_t n)
{
    char *p = *at;
    if (!s) return NULL;
    memcpy(p, s, n);
    *at += n;
    return p;
}

size_t nb_pieces_copy(const nb_token_event *ev, nb_piece *to, char *text)
{
    if (!ev->n_piece) { /* an answer that is not taken apart */
        if (!ev->text_bytes) return 0;
        *to = (nb_piece){ .kind = NB_PIECE_CONTENT, .text_bytes = ev->text_bytes };
        to->text = copy_to(&text, ev->text, ev->text_bytes);
        return 1;
    }
    for (size_t i = 0; i < ev->n_piece; i++) {
        const nb_piece *p = &ev->piece[i];
        to[i] = *p;
        to[i].text = copy_to(&text, p->text, p->text_bytes);
        to[i].name = copy_to(&text, p->name, with_zero(p->name));
        to[i].id = copy_to(&text, p->id, with_zero(p->id));
    }
    return ev->n_piece;
}

/* ---- blocks of a whole answer ---- */

static nb_status add_block(nb_choice *c, const nb_piece *p)
{
    NB_TRY(NB_GROW(c->block, c->cap_block, c->n_block));
    nb_block *b = &c->block[c->n_block++];
    *b = (nb_block){ .kind = p->kind };
    if (p->kind != NB_PIECE_CALL) return NB_OK;
    const size_t n_name = strlen(p->name) + 1, n_id = strlen(p->id) + 1;
    b->name = malloc(n_name + n_id);
    if (!b->name) return NB_ERR_NOMEM;
    memcpy(b->name, p->name, n_name);
    b->id = memcpy(b->name + n_name, p->id, n_id);
    return NB_OK;
}

nb_status nb_blocks_add(nb_choice *c, const nb_piece *p)
{
    if (p->kind == NB_PIECE_CALL_END) return NB_OK;
    const nb_piece_kind kind = p->kind == NB_PIECE_ARGUMENTS ? NB_PIECE_CALL : p->kind;
    const bool same = c->n_block && c->block[c->n_block - 1].kind == kind;
    if (p->kind == NB_PIECE_CALL || !same) NB_TRY(add_block(c, p));
    c->shown_bytes += p->text_bytes;
    return nb_buf_add(&c->block[c->n_block - 1].text, p->text, p->text_bytes);
}

void nb_blocks_free(nb_choice *c)
{
    for (size_t i = 0; i < c->n_block; i++) {
        nb_buf_deinit(&c->block[i].text);
        free(c->block[i].name);
    }
    free(c->block);
}

bool nb_blocks_have(const nb_choice *c, nb_piece_kind kind)
{
    for (size_t i = 0; i < c->n_block; i++)
        if (c->block[i].kind == kind) return true;
    return false;
}

void nb_w_blocks(nb_writer *w, const nb_choice *c, nb_piece_kind kind)
{
    NB_W(w, "\"");
    for (size_t i = 0; i < c->n_block; i++)
        if (c->block[i].kind == kind) nb_w_escaped(w, nb_buf_view(&c->block[i].text));
    NB_W(w, "\"");
}

/* ---- what the engine is told ---- */

static nb_status copy_tool(nb_ask *a, const json_t *tool, nb_tool *out)
{
    const json_t *f = json_object_get(tool, "function"), *p = json_object_get(f, "parameters");
    const char *name = json_string_value(json_object_get(f, "name"));
    char *text = json_is_object(p) ? json_dumps(p, JSON_COMPACT) : NULL;
    const size_t n_name = with_zero(name), n_text = with_zero(text);
    char *copy = nb_ask_alloc(a, n_name + n_text + 1, 1);
    if (copy) {
        if (n_name) memcpy(copy, name, n_name);
        if (n_text) memcpy(copy + n_name, text, n_text);
        *out = (nb_tool){ copy, n_text ? copy + n_name : NULL };
    }
    free(text);
    return copy ? NB_OK : NB_ERR_NOMEM;
}

nb_status nb_ask_take_tools(nb_ask *a, const json_t *chat)
{
    const json_t *tools = json_object_get(chat, "tools"), *list = json_object_get(chat, "messages");
    nb_tool *t = nb_ask_alloc(a, json_array_size(tools) + 1, sizeof *t);
    if (!t) return NB_ERR_NOMEM;
    for (size_t i = 0; i < json_array_size(tools); i++)
        NB_TRY(copy_tool(a, json_array_get(tools, i), &t[i]));
    a->tools = t;
    a->n_tools = json_array_size(tools);
    for (size_t i = 0; i < json_array_size(list); i++)
        a->n_history_calls +=
            json_array_size(json_object_get(json_array_get(list, i), "tool_calls"));
    return NB_OK;
}
