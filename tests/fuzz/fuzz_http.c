/* fuzz_http.c - any bytes as the stream of one connection: heads, then bodies.
 *
 * The bytes are read twice, in pieces of two sizes, by the same steps as the server takes; both
 * readings must end with the same status at the same place and with the same body.  Every view
 * must lie in the bytes, and what was accepted must be free of what the parser promises to
 * refuse. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "serve/http_parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { MAX_REQUESTS = 64, MAX_HEAD = 8192 };

/* What a reading has come to. */
typedef struct reading {
    int status;   /* 0: wants more */
    size_t at;    /* bytes taken by whole requests */
    uint64_t sum; /* of the bodies */
    size_t n_request;
} reading;

static void inside(nb_str v, const char *p, size_t n)
{
    if (v.n_bytes == 0) return;
    if (v.p < p || v.n_bytes > n || (size_t)(v.p - p) > n - v.n_bytes) abort();
}

static void no_breaks(nb_str v)
{
    for (size_t i = 0; i < v.n_bytes; i++)
        if (v.p[i] == '\r' || v.p[i] == '\n' || v.p[i] == 0) abort();
}

static void check_head(const nb_http_head *h, const char *p, size_t n)
{
    size_t n_host = 0, n_length = 0, n_coding = 0, n_out = 0;
    inside(h->method, p, n);
    inside(h->query, p, n);
    inside(h->host, p, n);
    if (h->path.n_bytes != 1) inside(h->path, p, n);
    if (!nb_http_is_token(h->method) || h->path.n_bytes == 0) abort();
    if (h->n_field > NB_HTTP_MAX_FIELDS) abort();
    for (size_t i = 0; i < h->n_field; i++) {
        const nb_http_field *f = &h->field[i];
        inside(f->name, p, n);
        inside(f->value, p, n);
        no_breaks(f->value);
        if (!nb_http_is_token(f->name) || !nb_http_is_value(f->value)) abort();
        n_host += nb_http_same(f->name, nb_str_c("host"));
        n_length += nb_http_same(f->name, nb_str_c("content-length"));
        n_coding += nb_http_same(f->name, nb_str_c("transfer-encoding"));
    }
    if (n_host > 1 || n_length + n_coding > 1 || (h->minor > 0 && n_host == 0)) abort();
    if (h->has_length != (n_length == 1) || h->chunked != (n_coding == 1)) abort();
    char *out = malloc(h->path.n_bytes + h->query.n_bytes + 1);
    if (!out) return;
    if (nb_http_decode(h->path, false, out, &n_out)) {
        if (n_out > h->path.n_bytes) abort();
        no_breaks((nb_str){ out, n_out });
    }
    if (nb_http_query_find(h->query, "name", out, &n_out) && n_out > h->query.n_bytes) abort();
    free(out);
}

/* One body from p[0..n) in pieces; bytes used, or SIZE_MAX with r->status when refused or when there
 * is more to come (0). */
static size_t read_chunks(const char *p, size_t n, size_t step, reading *r)
{
    nb_http_chunks c = { 0 };
    const char *why = "";
    size_t at = 0, seen = 0;
    while (seen < n && !c.done) {
        seen = step < n - seen ? seen + step : n;
        for (size_t used = 1; at < seen && used && !c.done; at += used) {
            nb_str piece;
            r->status = nb_http_chunks_next(&c, p + at, seen - at, &used, &piece, &why);
            if (r->status) return SIZE_MAX;
            inside(piece, p + at, seen - at);
            if (used > seen - at || used < piece.n_bytes) abort();
            for (size_t i = 0; i < piece.n_bytes; i++)
                r->sum = r->sum * 31 + (unsigned char)piece.p[i];
        }
        if (at < seen && !c.done) abort(); /* it stopped without a reason */
    }
    return c.done ? at : SIZE_MAX;
}

static reading read_all(const char *p, size_t n, size_t step)
{
    static nb_http_head head;
    reading r = { 0 };
    while (r.n_request < MAX_REQUESTS) {
        const char *why = "";
        const char *q = p + r.at;
        size_t have = 0, scanned = 0, n_head = 0;
        const size_t left = n - r.at;
        while (n_head == 0 && have < left && r.status == 0 && have < MAX_HEAD) {
            have = step < left - have ? have + step : left;
            r.status = nb_http_head_end(q, have, &scanned, &n_head, &why);
            if (scanned > have || n_head > have) abort();
        }
        if (r.status || n_head == 0) return r;
        r.status = nb_http_head_parse(q, n_head, &head, &why);
        if (r.status) return r;
        check_head(&head, q, n_head);
        size_t n_body = head.length < left - n_head ? (size_t)head.length : SIZE_MAX;
        if (head.length == left - n_head) n_body = left - n_head;
        if (head.chunked) n_body = read_chunks(q + n_head, left - n_head, step, &r);
        if (n_body == SIZE_MAX) return r;
        r.at += n_head + n_body;
        r.n_request++;
    }
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char *p = calloc(n + 1, 1);
    if (!p) return 0;
    if (n) memcpy(p, data, n);
    const size_t step = n ? 1 + data[n - 1] % 61 : 1;
    const reading a = read_all(p, n, n + 1), b = read_all(p, n, step);
    /* Bytes beyond the longest head may be looked at or not, by the size of the pieces. */
    if (n <= MAX_HEAD && (a.status != b.status || a.at != b.at || a.n_request != b.n_request))
        abort();
    if (n <= MAX_HEAD && a.status == 0 && a.sum != b.sum) abort();
    free(p);
    return 0;
}
