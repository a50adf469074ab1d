/* line.h - reading the lines of a conversation: with editing and history on a terminal
 * (libedit), plain lines elsewhere. */
#ifndef NB_APPS_LINE_H
#define NB_APPS_LINE_H
#include <stdbool.h>
#include <stddef.h>

typedef enum line_kind {
    LINE_TEXT,
    LINE_END, /* end of the input, Ctrl-D */
    LINE_INTERRUPT /* Ctrl-C with something typed: the line is dropped */,
    LINE_INTERRUPT_EMPTY /* Ctrl-C on an empty line */
} line_kind;

typedef struct line_reader line_reader;

/* history_path: file to load and keep the history in, or NULL.  NULL when out of memory. */
line_reader *line_create(const char *history_path);
void line_destroy(line_reader *r);
/* Whether a person is typing: then there is a prompt, and notices make sense. */
bool line_interactive(const line_reader *r);
/* *text: the line without its end, valid until the next call; set with LINE_TEXT only.
 * more: the line continues the one before. */
line_kind line_read(line_reader *r, bool more, const char **text);
/* Remembers a whole entry. */
void line_remember(line_reader *r, const char *text);

#endif
