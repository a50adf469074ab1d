/* log_writer.c - see log_writer.h.
 *
 * The thread sleeps in poll: on a pipe that wakes it (from a signal handler too), and on the
 * descriptor while there is something to write.  Writes have at most PIPE_BUF bytes, which a pipe
 * that polls as writable takes without blocking.  A descriptor that was inherited is never made
 * non-blocking: other processes share that flag. */
#include "serve/log_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/clock.h"
#include "os/thread.h"

enum {
    RING_BYTES = 1 << 20,
    CHUNK_BYTES = 2 * NB_LOG_MAX_LINE_BYTES,
    PIECE_BYTES = PIPE_BUF < 4096 ? PIPE_BUF : 4096,
    CLOSE_MS = 1000, /* for the rest of the queue */
};

struct nb_log_writer {
    char *file; /* NULL: fd was given */
    int fd, wake_fd[2];
    bool is_socket;
    nb_log_note_fn *note;
    void *note_ctx;
    nb_thread *thread;
    atomic_bool reopen;

    /* guarded by lock */
    nb_mutex *lock;
    nb_cond *written; /* the queue is empty and its last chunk is written */
    char *ring;
    size_t head, n; /* bytes [head, head + n) of the ring hold whole lines */
    bool busy;      /* a chunk is being written */
    bool awake;     /* a byte is in the pipe already */
    bool stop;
    uint64_t n_dropped;

    /* the thread's */
    nb_buf chunk;                 /* whole lines; [at, n_bytes) is still to be written */
    size_t at, note_bytes;        /* of the chunk: what tells of lost lines */
    uint64_t n_told, told_before; /* of n_dropped: said by this chunk, by those before it */
    bool torn;                    /* the last write left half a line */
};

/* ---- the queue: with the lock held ---- */

static char ring_at(const nb_log_writer *w, size_t i)
{
    return w->ring[(w->head + i) % RING_BYTES];
}

/* Bytes of the oldest line. */
static size_t first_line(const nb_log_writer *w)
{
    size_t i = 0;
    while (i < w->n && ring_at(w, i) != '\n') i++;
    return i < w->n ? i + 1 : w->n;
}

static void take(nb_log_writer *w, size_t n_bytes)
{
    w->head = (w->head + n_bytes) % RING_BYTES;
    w->n -= n_bytes;
}

static void put_bytes(nb_log_writer *w, nb_str s)
{
    const size_t at = (w->head + w->n) % RING_BYTES, room = RING_BYTES - at;
    const size_t n = s.n_bytes < room ? s.n_bytes : room;
    memcpy(w->ring + at, s.p, n);
    memcpy(w->ring, s.p + n, s.n_bytes - n);
    w->n += s.n_bytes;
}

static void wake(const nb_log_writer *w)
{
    const int e = errno; /* of a signal handler's victim */
    const ssize_t n = write(w->wake_fd[1], "", 1);
    (void)n; /* full: it will wake anyway */
    errno = e;
}

void nb_log_writer_put(nb_log_writer *w, nb_str line)
{
    nb_mutex_lock(w->lock);
    if (line.n_bytes > NB_LOG_MAX_LINE_BYTES) {
        w->n_dropped++;
    } else {
        while (RING_BYTES - w->n < line.n_bytes) {
            take(w, first_line(w));
            w->n_dropped++;
        }
        put_bytes(w, line);
    }
    if (!w->awake) wake(w);
    w->awake = true;
    nb_mutex_unlock(w->lock);
}

bool nb_log_writer_flush(nb_log_writer *w, unsigned ms)
{
    const uint64_t end = nb_clock_ns() + (uint64_t)ms * 1000000;
    nb_mutex_lock(w->lock);
    while ((w->n || w->busy) && nb_clock_ns() < end)
        nb_cond_wait_for(w->written, w->lock, ms / 8 + 1);
    const bool done = !w->n && !w->busy;
    nb_mutex_unlock(w->lock);
    return done;
}

void nb_log_writer_reopen(nb_log_writer *w)
{
    atomic_store_explicit(&w->reopen, true, memory_order_release);
    wake(w);
}

uint64_t nb_log_writer_dropped(nb_log_writer *w)
{
    nb_mutex_lock(w->lock);
    const uint64_t n = w->n_dropped;
    nb_mutex_unlock(w->lock);
    return n;
}

/* ---- the thread ---- */

static size_t n_left(const nb_log_writer *w)
{
    return w->chunk.n_bytes - w->at;
}

static void count_dropped(nb_log_writer *w, uint64_t n)
{
    nb_mutex_lock(w->lock);
    w->n_dropped += n;
    nb_mutex_unlock(w->lock);
}

/* Lines move from the ring to the chunk, after one that says how many did not get this far. */
static void fill_chunk(nb_log_writer *w)
{
    w->chunk.n_bytes = w->at = 0;
    nb_mutex_lock(w->lock);
    w->awake = false;
    const uint64_t n_dropped = w->n_dropped;
    w->busy = w->n > 0;
    if (!w->busy) nb_cond_broadcast(w->written);
    nb_mutex_unlock(w->lock);
    if (!w->busy) return;
    nb_buf *c = &w->chunk;
    if (w->torn) c->p[c->n_bytes++] = '\n';
    w->told_before = w->n_told;
    if (n_dropped != w->n_told) {
        char line[64];
        (void)snprintf(line, sizeof line, "%llu log lines dropped",
                       (unsigned long long)(n_dropped - w->n_told));
        w->note(w->note_ctx, line, c);
        w->n_told = n_dropped;
    }
    w->note_bytes = c->n_bytes;
    nb_mutex_lock(w->lock);
    size_t line;
    while (w->n && (line = first_line(w)) + c->n_bytes <= CHUNK_BYTES) {
        for (size_t i = 0; i < line; i++) c->p[c->n_bytes++] = ring_at(w, i);
        take(w, line);
    }
    nb_mutex_unlock(w->lock);
}

/* The chunk cannot be written: its lines are lost, and the next chunk says so. */
static void drop_chunk(nb_log_writer *w)
{
    uint64_t n = 0;
    if (w->at < w->note_bytes) w->n_told = w->told_before;
    for (size_t i = w->at > w->note_bytes ? w->at : w->note_bytes; i < w->chunk.n_bytes; i++)
        n += w->chunk.p[i] == '\n';
    w->torn = w->at > 0 ? w->chunk.p[w->at - 1] != '\n' : w->torn;
    w->at = w->chunk.n_bytes;
    count_dropped(w, n);
}

static void write_piece(nb_log_writer *w)
{
    const char *p = w->chunk.p + w->at;
    const size_t n = n_left(w) < PIECE_BYTES ? n_left(w) : PIECE_BYTES;
    const ssize_t r =
        w->is_socket ? send(w->fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL) : write(w->fd, p, n);
    if (r >= 0) {
        w->at += (size_t)r;
        if (n_left(w) == 0) w->torn = false;
    } else if (errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK) {
        drop_chunk(w);
    }
}

static nb_status open_file(const char *file, int *fd, nb_error *err)
{
    /* Non-blocking: a FIFO without a reader is an error, and one that is full is no reason to wait. */
    const int got = open(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK,
                         S_IRUSR | S_IWUSR | S_IRGRP);
    if (got < 0)
        return nb_fail(err, NB_ERR_IO, "%s: cannot open the log file: %s", file, strerror(errno));
    *fd = got;
    return NB_OK;
}

static bool wants_reopen(const nb_log_writer *w)
{
    return atomic_load_explicit(&w->reopen, memory_order_acquire);
}

static void reopen(nb_log_writer *w)
{
    nb_error err = { 0 };
    int fd = -1;
    atomic_store_explicit(&w->reopen, false, memory_order_relaxed);
    if (!w->file) return;
    if (open_file(w->file, &fd, &err) != NB_OK) {
        nb_buf line = { 0 };
        w->note(w->note_ctx, err.msg, &line);
        nb_log_writer_put(w, nb_buf_view(&line));
        nb_buf_deinit(&line);
        return;
    }
    (void)close(w->fd);
    w->fd = fd;
    while (w->at > 0 && w->chunk.p[w->at - 1] != '\n') w->at--; /* whole lines go to the new one */
    w->torn = false;
}

/* Sleeps until there is something to do. */
static void wait_for_work(nb_log_writer *w, int ms)
{
    struct pollfd p[2] = { { .fd = w->wake_fd[0], .events = POLLIN },
                           { .fd = w->fd, .events = POLLOUT } };
    char sink[64];
    if (poll(p, n_left(w) ? 2 : 1, ms) < 0) return;
    if (p[0].revents)
        while (read(w->wake_fd[0], sink, sizeof sink) == (ssize_t)sizeof sink) continue;
    if (n_left(w) && p[1].revents)
        write_piece(w);
    else if (n_left(w) && wants_reopen(w))
        reopen(w); /* the old file takes nothing now */
}

static void run(void *arg)
{
    nb_log_writer *w = arg;
    uint64_t end = 0; /* of the time for the rest; 0: not stopping */
    for (;;) {
        const bool again = wants_reopen(w); /* what was put before is written to the old file */
        if (n_left(w) == 0) fill_chunk(w);
        if (again && n_left(w) == 0) reopen(w);
        nb_mutex_lock(w->lock);
        const bool stop = w->stop;
        nb_mutex_unlock(w->lock);
        if (stop && n_left(w) == 0) return;
        if (stop && !end) end = nb_clock_ns() + (uint64_t)CLOSE_MS * 1000000;
        const uint64_t now = nb_clock_ns();
        if (end && now >= end) return;
        wait_for_work(w, end ? (int)((end - now) / 1000000) + 1 : -1);
    }
}

/* ---- life ---- */

static bool make_pipe(int fd[2])
{
    if (pipe(fd) != 0) {
        fd[0] = fd[1] = -1;
        return false;
    }
    for (int i = 0; i < 2; i++)
        if (fcntl(fd[i], F_SETFL, O_NONBLOCK) != 0 || fcntl(fd[i], F_SETFD, FD_CLOEXEC) != 0)
            return false;
    return true;
}

static nb_status create(nb_log_writer *w, const char *file, nb_error *err)
{
    struct stat st;
    if (file) {
        const size_t n = strlen(file) + 1;
        w->fd = -1;
        w->file = malloc(n);
        if (!w->file) return nb_fail(err, NB_ERR_NOMEM, "out of memory for the log");
        memcpy(w->file, file, n);
        NB_TRY(open_file(file, &w->fd, err));
    }
    w->is_socket = fstat(w->fd, &st) == 0 && S_ISSOCK(st.st_mode);
    w->ring = malloc(RING_BYTES);
    if (!w->ring || nb_buf_reserve(&w->chunk, CHUNK_BYTES) != NB_OK ||
        nb_mutex_create(&w->lock) != NB_OK || nb_cond_create(&w->written) != NB_OK)
        return nb_fail(err, NB_ERR_NOMEM, "out of memory for the log");
    if (!make_pipe(w->wake_fd))
        return nb_fail(err, NB_ERR_IO, "cannot make a pipe for the log: %s", strerror(errno));
    return nb_thread_create(run, w, &w->thread, err);
}

static void destroy(nb_log_writer *w)
{
    for (int i = 0; i < 2; i++)
        if (w->wake_fd[i] >= 0) (void)close(w->wake_fd[i]);
    if (w->file && w->fd >= 0) (void)close(w->fd);
    nb_mutex_destroy(w->lock);
    nb_cond_destroy(w->written);
    nb_buf_deinit(&w->chunk);
    free(w->ring);
    free(w->file);
    free(w);
}

nb_status nb_log_writer_open(const char *file, int fd, nb_log_note_fn *note, void *ctx,
                             nb_log_writer **out, nb_error *err)
{
    nb_log_writer *w = calloc(1, sizeof *w);
    if (!w) return nb_fail(err, NB_ERR_NOMEM, "out of memory for the log");
    w->fd = fd;
    w->wake_fd[0] = w->wake_fd[1] = -1;
    w->note = note;
    w->note_ctx = ctx;
    const nb_status st = create(w, file, err);
    if (st == NB_OK)
        *out = w;
    else
        destroy(w);
    return st;
}

void nb_log_writer_close(nb_log_writer *w)
{
    if (!w) return;
    nb_mutex_lock(w->lock);
    w->stop = true;
    nb_mutex_unlock(w->lock);
    wake(w);
    nb_thread_join(w->thread);
    destroy(w);
}
