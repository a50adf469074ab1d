/* serve_signals.h - the signals of `nibble serve`, taken by a thread of their own.
 *
 *   SIGINT, SIGTERM, SIGQUIT   no new connections, running requests finish; a second one ends at once
 *   SIGHUP                     API keys, TLS certificate and log file are read again; when the terminal
 *                              that the server was started in has gone, as SIGTERM
 *   SIGUSR1                    the log file is opened again
 *   SIGUSR2, SIGPIPE           ignored
 *
 * Before there is a server the first three end the program at once. */
#ifndef NB_APPS_SERVE_SIGNALS_H
#define NB_APPS_SERVE_SIGNALS_H
#include "serve/serve.h"

/* Before any other thread is started: all of them inherit that these signals are blocked.  They wait
 * for serve_signals_start. */
void serve_signals_block(void);
nb_status serve_signals_start(nb_serve_log *log, nb_error *err);
/* From now on signals are for s.  NULL: server and log end; what still comes is ignored. */
void serve_signals_attach(nb_serve *s);
/* As SIGTERM, from any thread. */
void serve_signals_stop(void);

#endif
