/* serve_start.h - the lines that `nibble serve` logs until it listens. */
#ifndef NB_APPS_SERVE_START_H
#define NB_APPS_SERVE_START_H
#include "../cli.h"
#include "serve_setup.h"

/* One line of the log. */
void serve_say(const serve_setup *t, bool warning, const char *fmt, ...) CLI_PRINTF(3, 4);
/* Before nb_engine_create: device, memory plan, options without effect. */
void serve_say_plan(const opts *o, const serve_setup *t);
/* The engine's progress, ctx: the serve_setup.  A bar on a terminal, elsewhere a line when a phase
 * begins and every few seconds. */
nb_progress_fn serve_progress;
/* After nb_serve_create: what was allocated, and where the server listens. */
void serve_say_ready(const nb_serve *s, const opts *o, const serve_setup *t, const nb_engine *e);

#endif
