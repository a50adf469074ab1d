/* page.c - the files of the page at /, embedded in the program.
 *
 * Names are stable (/app.js), so browsers ask each time and get a 304 while nothing has
 * changed: Cache-Control: no-cache with an ETag of the contents.  The page needs nothing
 * from elsewhere, and the policy below lets it have nothing from elsewhere. */
#include "serve/page.h"

#define DATA(path, fn) { "GET", path, fn, false }
#define FILE_ROW(path) { "GET", path, nb_page_asset, true }

/* The files need no key: without them there would be nowhere to type it. */
const nb_http_route nb_page_route[] = {
    { "GET", "/", nb_page_index, true },
    FILE_ROW("/app.js"),
    FILE_ROW("/app.css"),
    FILE_ROW("/scene.js"),
    FILE_ROW("/icon.svg"),
    FILE_ROW("/sans.woff2"),
    FILE_ROW("/mono.woff2"),
    FILE_ROW("/mono-500.woff2"),
    FILE_ROW("/serif.woff2"),
    FILE_ROW("/THIRD-PARTY.txt"),
    DATA("/api/config", nb_page_config),
    DATA("/api/stats", nb_page_stats),
    DATA("/api/cache", nb_page_cache),
    DATA("/api/block", nb_page_block),
};
const size_t nb_page_n_route = NB_COUNT(nb_page_route);

static const char csp[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

static const char not_built[] =
    "nibble serves its API here; the page for browsers is not in this build.\n"
    "\n"
    "To have it, install Node.js 18 or newer with npm, and build again where npm can reach\n"
    "its registry (or has the packages in its cache): the build then makes web/ and puts it\n"
    "into the program.\n"
    "\n"
    "GET /v1/models lists the models, GET /health says whether they are served.\n";

static const nb_page_file *find_file(nb_str path)
{
    for (size_t i = 0; i < nb_page_n_files; i++)
        if (nb_str_eqc(path, nb_page_files[i].path)) return &nb_page_files[i];
    return NULL;
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

/* One item of a list header, without the blanks around it; moves *list behind its comma. */
static nb_str next_item(nb_str *list)
{
    nb_str item = *list;
    size_t n = 0;
    while (n < list->n_bytes && list->p[n] != ',') n++;
    const size_t skip = n < list->n_bytes ? n + 1 : n;
    list->p += skip;
    list->n_bytes -= skip;
    item.n_bytes = n;
    while (item.n_bytes && (*item.p == ' ' || *item.p == '\t')) item.p++, item.n_bytes--;
    while (item.n_bytes && (item.p[item.n_bytes - 1] == ' ' || item.p[item.n_bytes - 1] == '\t'))
        item.n_bytes--;
    return item;
}

/* Does Accept-Encoding name gzip, and not with the weight 0? */
static bool takes_gzip(nb_str header)
{
    while (header.p && header.n_bytes) {
        const nb_str item = next_item(&header);
        static const char name[] = "gzip";
        if (item.n_bytes < 4) continue;
        bool same = true;
        for (size_t i = 0; i < 4; i++) same = same && lower(item.p[i]) == name[i];
        if (!same || (item.n_bytes > 4 && item.p[4] != ';' && item.p[4] != ' ')) continue;
        for (size_t i = 4; i + 1 < item.n_bytes; i++) {
            if (lower(item.p[i]) != 'q' || item.p[i + 1] != '=') continue;
            bool zero = i + 2 < item.n_bytes; /* 0, 0.0, 0.000: refused */
            for (size_t k = i + 2; k < item.n_bytes; k++)
                zero = zero && (item.p[k] == '0' || item.p[k] == '.');
            return !zero;
        }
        return true;
    }
    return false;
}

/* If-None-Match: *, or a list with this tag; weak tags compare equal to strong ones. */
static bool matches(nb_str header, const char *etag)
{
    while (header.p && header.n_bytes) {
        nb_str item = next_item(&header);
        if (nb_str_eqc(item, "*")) return true;
        if (item.n_bytes > 2 && item.p[0] == 'W' && item.p[1] == '/') {
            item.p += 2;
            item.n_bytes -= 2;
        }
        if (nb_str_eqc(item, etag)) return true;
    }
    return false;
}

static nb_status add_headers(nb_http_ex *ex, const nb_page_file *f, bool gz)
{
    NB_TRY(nb_http_add_header(ex, "Cache-Control", "no-cache"));
    NB_TRY(nb_http_add_header(ex, "Referrer-Policy", "no-referrer"));
    NB_TRY(nb_http_add_header(ex, "Content-Security-Policy", csp));
    if (!f) return NB_OK;
    NB_TRY(nb_http_add_header(ex, "ETag", gz ? f->gz_etag : f->etag));
    if (f->gz.n_bytes) NB_TRY(nb_http_add_header(ex, "Vary", "Accept-Encoding"));
    return NB_OK;
}

static void send_file(nb_http_ex *ex, const nb_page_file *f)
{
    const bool gz = f->gz.n_bytes && takes_gzip(nb_http_header(ex, "accept-encoding"));
    const bool same = matches(nb_http_header(ex, "if-none-match"), gz ? f->gz_etag : f->etag);
    nb_status st = add_headers(ex, f, gz);
    if (st == NB_OK && gz && !same) st = nb_http_add_header(ex, "Content-Encoding", "gzip");
    if (st != NB_OK)
        nb_reply_error(ex, 500, NULL, "out of memory");
    else if (same)
        nb_http_reply_static(ex, 304, NULL, (nb_str){ "", 0 });
    else
        nb_http_reply_static(ex, 200, f->type, gz ? f->gz : f->body);
}

void nb_page_index(nb_http_ex *ex, void *ctx)
{
    (void)ctx;
    const nb_page_file *f = find_file(nb_str_c("/"));
    if (f)
        send_file(ex, f);
    else if (add_headers(ex, NULL, false) != NB_OK)
        nb_reply_error(ex, 500, NULL, "out of memory");
    else
        nb_http_reply_static(ex, 200, "text/plain; charset=utf-8",
                             (nb_str){ not_built, sizeof not_built - 1 });
}

void nb_page_asset(nb_http_ex *ex, void *ctx)
{
    (void)ctx;
    const nb_page_file *f = find_file(nb_http_path(ex));
    if (f)
        send_file(ex, f);
    else
        nb_reply_error(ex, 404, NULL, "the page is not in this build");
}
