/* fetch.c - one file: locked, downloaded or continued, checked, linked.
 *
 * HASH.incomplete holds the first bytes of the content.  A later try reads them again for the hash
 * and asks for the rest.  The content decides in the end, not the server's ETag: a content delivery
 * network has ETags of its own, so If-Range goes to the hub itself only. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "hub/digest.h"
#include "hub/pull_internal.h"
#include "load/json.h"

typedef struct transfer {
    nb_hub_run *r;
    nb_hub_http *http;
    const nb_hub_file *f;
    nb_hub_digest digest;
    int fd;
    uint64_t at;       /* bytes that are there and in the digest */
    uint64_t furthest; /* the largest `at` of any try; only more is progress */
    bool begun;        /* the current answer's body */
    bool continued;    /* some of the bytes are of an earlier run */
    nb_status st;      /* why the sink ended the body */
    nb_error err;
} transfer;

static void count(nb_hub_run *r, uint64_t n)
{
    atomic_fetch_add(&r->n_done_bytes, n);
}

/* ---- bytes ------------------------------------------------------------------ */

/* From the first byte again. */
static nb_status start_anew(transfer *t, nb_error *err)
{
    count(t->r, (uint64_t)0 - t->at);
    t->at = 0;
    t->continued = false;
    if (ftruncate(t->fd, 0) != 0)
        return nb_fail(err, NB_ERR_IO, "%s: cannot truncate: %s", t->f->path, strerror(errno));
    return nb_hub_digest_begin(&t->digest, t->f->hash, t->f->n_bytes, err);
}

static nb_status wrong_size(transfer *t, uint64_t n_bytes, const nb_hub_answer *a)
{
    return nb_fail(&t->err, NB_ERR_FORMAT,
                   "%s: %s sends %s%" PRIu64 " bytes, expected %" PRIu64 " as the hub lists it",
                   t->f->path, a->host, n_bytes == UINT64_MAX ? "more than " : "",
                   n_bytes == UINT64_MAX ? t->f->n_bytes : n_bytes, t->f->n_bytes);
}

/* The headers of a body, before its first byte is used. */
static nb_status begin_body(transfer *t, const nb_hub_answer *a)
{
    t->begun = true;
    if (a->status == 206 && a->from == t->at) {
        if (a->total != UINT64_MAX && a->total != t->f->n_bytes) return wrong_size(t, a->total, a);
        return NB_OK;
    }
    if (a->status == 206 && t->at == 0) /* a part that nobody asked for */
        return nb_fail(&t->err, NB_ERR_FORMAT,
                       "%s: %s sends a part of the file, expected all of it", t->f->path, a->host);
    if (a->status == 206) /* another part: better the whole, next time */
        return nb_fail(&t->err, NB_ERR_RANGE, "%s: %s sends another part than was asked for",
                       t->f->path, a->host);
    if (a->n_bytes != UINT64_MAX && a->n_bytes != t->f->n_bytes)
        return wrong_size(t, a->n_bytes, a);
    return t->at ? start_anew(t, &t->err) : NB_OK; /* the server does not know ranges */
}

static nb_status write_error(transfer *t)
{
    const uint64_t rest = t->f->n_bytes - t->at;
    const bool full = errno == ENOSPC || errno == EDQUOT || errno == EFBIG;
    return nb_fail(&t->err, NB_ERR_IO, "%s: cannot write to %s: %s%s", t->f->path,
                   nb_show_path(t->r->store.blobs.p).s, strerror(errno),
                   full && rest ? " (make room; the same command goes on)" : "");
}

static bool take_bytes(void *ctx, const nb_hub_answer *a, const char *p, size_t n)
{
    transfer *t = ctx;
    if (!t->begun) t->st = begin_body(t, a);
    if (t->st == NB_OK && n > t->f->n_bytes - t->at) t->st = wrong_size(t, UINT64_MAX, a);
    for (size_t done = 0; t->st == NB_OK && done < n;) {
        const ssize_t w = pwrite(t->fd, p + done, n - done, (off_t)(t->at + done));
        if (w < 0 && errno == EINTR) continue;
        if (w <= 0)
            t->st = write_error(t);
        else
            done += (size_t)w;
    }
    if (t->st != NB_OK) return false;
    nb_hub_digest_add(&t->digest, p, n);
    t->at += n;
    count(t->r, n);
    return true;
}

/* What an earlier run left. */
static nb_status read_partial(transfer *t, nb_error *err)
{
    struct stat st;
    NB_TRY(nb_hub_digest_begin(&t->digest, t->f->hash, t->f->n_bytes, err));
    if (fstat(t->fd, &st) != 0)
        return nb_fail(err, NB_ERR_IO, "%s: %s", t->f->path, strerror(errno));
    if ((uint64_t)st.st_size > t->f->n_bytes) return start_anew(t, err);
    const uint64_t n = (uint64_t)st.st_size;
    NB_TRY(nb_hub_digest_fd(&t->digest, t->fd, t->f->path, n, t->r->net.stop, NULL, err));
    t->at = n;
    t->continued = n > 0;
    count(t->r, n);
    return NB_OK;
}

/* ---- requests ------------------------------------------------------------------ */

/* ENDPOINT/ORG/NAME/resolve/COMMIT/PATH, the path's names percent-encoded. */
static nb_status file_url(const transfer *t, nb_buf *out, nb_error *err)
{
    nb_status st = nb_buf_printf(out, "%s/%s/resolve/%s/", t->r->net.endpoint, t->r->o->id.repo,
                                 t->r->plan->commit);
    for (const char *p = t->f->path; st == NB_OK && *p; p++) {
        const char c = *p;
        const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                           (c >= '0' && c <= '9') || strchr("-_.~/", c) != NULL;
        st = plain ? nb_buf_add_ch(out, c) : nb_buf_printf(out, "%%%02X", (unsigned char)c);
    }
    return st == NB_OK ? NB_OK : nb_fail(err, NB_ERR_NOMEM, "out of memory");
}

/* One request for the bytes that are missing.  *again: another may do better. */
static nb_status try_once(transfer *t, const char *url, nb_hub_patience *patience, bool *again,
                          nb_error *err)
{
    const nb_hub_ask ask = { .from = t->at, .if_range = t->f->hash, .sink = take_bytes, .ctx = t };
    nb_hub_answer a = { 0 };
    nb_error why = { 0 };
    t->begun = false;
    t->st = NB_OK;
    *again = false;
    nb_status st = nb_hub_get(t->http, url, &ask, &a, &why);
    if (t->at > t->furthest) {
        t->furthest = t->at;
        *patience = (nb_hub_patience){ 0 };
    }
    if (t->at == t->f->n_bytes && t->st == NB_OK) return NB_OK;
    const bool no_such_part = st == NB_OK && (a.status == 416 || t->st == NB_ERR_RANGE);
    if (no_such_part && t->at) NB_TRY(start_anew(t, err));
    if (t->st != NB_OK && !no_such_part) return nb_fail(err, t->st, "%s", t->err.msg);
    if (st == NB_OK && (a.status == 200 || a.status == 206 || no_such_part))
        st = nb_fail(&why, NB_ERR_IO, "%s ended after %" PRIu64 " of %" PRIu64 " bytes", a.host,
                     t->at, t->f->n_bytes);
    *again = nb_hub_again(t->http, patience, t->f->path, st, &a, &why);
    if (*again) return NB_OK;
    if (nb_hub_stopped(&t->r->net)) return nb_fail(err, NB_ERR_CANCELLED, "interrupted");
    if (st != NB_OK) return nb_fail(err, st, "%s: %s", t->f->path, why.msg);
    st = nb_hub_refusal(&t->r->net, t->r->o->id.repo, t->r->plan->commit, &a, err);
    return nb_fail_prefix(err, st, "%s", t->f->path);
}

static nb_status download(transfer *t, nb_error *err)
{
    nb_buf url = { 0 };
    nb_hub_patience patience = { 0 };
    bool again = true;
    nb_status st = file_url(t, &url, err);
    while (st == NB_OK && again && t->at < t->f->n_bytes)
        st = try_once(t, url.p, &patience, &again, err);
    nb_buf_deinit(&url);
    return st;
}

/* ---- one blob -------------------------------------------------------------------- */

static nb_status check_hash(transfer *t, bool *good, nb_error *err)
{
    char hex[65];
    nb_hub_digest_end(&t->digest, hex);
    *good = strcmp(hex, t->f->hash) == 0;
    if (*good) return NB_OK;
    const bool git = strlen(t->f->hash) == 40;
    return nb_fail(err, NB_ERR_FORMAT, "%s: its %s is %s, expected %s: what was sent is damaged",
                   t->f->path, git ? "SHA-1" : "SHA-256", hex, t->f->hash);
}

/* With the lock held. */
static nb_status make_blob(transfer *t, nb_error *err)
{
    bool good = false;
    NB_TRY(read_partial(t, err));
    NB_TRY(download(t, err));
    nb_status st = check_hash(t, &good, err);
    if (!good && t->continued) { /* the earlier bytes may be at fault */
        char line[300];
        (void)snprintf(line, sizeof line, "%s: what an earlier run left is damaged; starting anew",
                       nb_show_c(t->f->path).s);
        t->r->net.note(t->r->net.note_ctx, line);
        NB_TRY(start_anew(t, err));
        t->furthest = 0;
        NB_TRY(download(t, err));
        st = check_hash(t, &good, err);
    }
    if (good) return nb_hub_store_keep(&t->r->store, t->f->hash, t->fd, err);
    count(t->r, (uint64_t)0 - t->at);
    nb_hub_store_drop(&t->r->store, t->f->hash);
    return st;
}

/* Waits for the lock of a blob; *fd -1: the blob is there. */
static nb_status lock_blob(nb_hub_run *r, const nb_hub_file *f, int *fd, nb_error *err)
{
    const struct timespec step = { 0, 100000000 };
    for (unsigned n = 0;; n++) {
        NB_TRY(nb_hub_store_lock(&r->store, f->hash, fd, err));
        if (nb_hub_store_has(&r->store, f->hash, f->n_bytes)) {
            nb_hub_store_unlock(*fd);
            *fd = -1;
            return NB_OK;
        }
        if (*fd >= 0) return NB_OK;
        if (nb_hub_stopped(&r->net)) return nb_fail(err, NB_ERR_CANCELLED, "interrupted");
        if (n == 10) {
            char line[300];
            (void)snprintf(line, sizeof line, "%s: waiting for another download of it",
                           nb_show_c(f->path).s);
            r->net.note(r->net.note_ctx, line);
        }
        (void)nanosleep(&step, NULL);
    }
}

nb_status nb_hub_fetch(nb_hub_run *r, nb_hub_http *h, const nb_hub_file *f, nb_error *err)
{
    int lock = -1;
    if (!nb_hub_store_has(&r->store, f->hash, f->n_bytes)) NB_TRY(lock_blob(r, f, &lock, err));
    if (lock < 0) {
        count(r, f->n_bytes);
        return nb_hub_store_link(&r->store, r->plan->commit, f->path, f->hash, err);
    }
    transfer t = { .r = r, .http = h, .f = f, .fd = -1 };
    nb_status st = nb_hub_store_open(&r->store, f->hash, &t.fd, err);
    if (st == NB_OK) st = make_blob(&t, err);
    if (st == NB_OK) st = nb_hub_store_link(&r->store, r->plan->commit, f->path, f->hash, err);
    nb_hub_digest_deinit(&t.digest);
    if (t.fd >= 0) (void)close(t.fd);
    nb_hub_store_unlock(lock);
    return st;
}
