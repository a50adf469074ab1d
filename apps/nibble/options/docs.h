/* docs.h - manual pages and shell completions, made from the tables of commands and options. */
#ifndef NB_APPS_DOCS_H
#define NB_APPS_DOCS_H
#include <stdio.h>

#include "opts.h"

/* `nibble docs DIR`, which the build runs: writes all files below DIR as they lie below share/.
 * CLI_OK, or CLI_FAILED after an error line. */
int docs_write(const char *dir);

/* docs_man.c: nibble.1, or the page of one command. */
void docs_man(FILE *f, const command *c); /* NULL: nibble.1 */

/* docs_shell.c */
void docs_bash(FILE *f, const command *unused);
void docs_zsh(FILE *f, const command *unused);
void docs_fish(FILE *f, const command *unused);

#endif
