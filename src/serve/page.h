/* page.h - the page at /: its routes, its embedded files, and the thread that asks the engine
 * for what the page draws.
 *
 * The files are built from web/ and embedded by cmake/NbWeb.cmake (a generated
 * page_files.c); where the page was not built the table is empty and / answers a plain text. */
#ifndef NB_SERVE_PAGE_H
#define NB_SERVE_PAGE_H
#include "serve/serve_internal.h"

/* Rows for the table of routes (files need no key, data do); left out with no_page. */
extern const nb_http_route nb_page_route[];
extern const size_t nb_page_n_route;

/* One embedded file; all pointers are static. */
typedef struct nb_page_file {
    const char *path;  /* of the route: "/app.js"; "/" is the document        */
    const char *type;  /* Content-Type                                        */
    const char *etag;  /* strong, quoted: of the contents                     */
    const char *gz_etag; /* of the gzip form                                  */
    nb_str body, gz;   /* gz.n_bytes 0: only the plain form                   */
} nb_page_file;
extern const nb_page_file nb_page_files[]; /* generated */
extern const size_t nb_page_n_files;

/* Ends the helper thread, if there is one: before the engine and s->http go.  Answers that
 * it still owed are not sent. */
void nb_page_stop(nb_serve *s);

#endif
