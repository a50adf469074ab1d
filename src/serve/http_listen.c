/* http_listen.c - listening sockets: addresses, Unix sockets, accepting.
 *
 * A name can have several addresses (localhost: 127.0.0.1 and ::1): all are bound, with one
 * port.  Those that this machine does not have are left out as long as one is left.
 *
 * Without descriptors accept() fails, and the listener stays readable: accepting then pauses
 * for a moment, else the loop would spin. */
#define _GNU_SOURCE /* accept4 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "serve/http_internal.h"

enum {
    BACKLOG = 1024,
    ACCEPTS_PER_EVENT = 64,
    PORT_TRIES = 20,
    /* Connections over the limit that may wait for their 503. */
    OVER_LIMIT_ROOM = 256,
    /* Of a slow reader, in the system's memory: more would hide from us how slow it is. */
    UNSENT_BYTES = 128 * 1024,
    /* A client that vanished without a word (power, network) is noticed after 60 s. */
    ALIVE_IDLE_S = 30,
    ALIVE_EVERY_S = 10,
    ALIVE_PROBES = 3,
};

typedef union any_addr {
    struct sockaddr sa;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_un un;
    struct sockaddr_storage room;
} any_addr;

/* ---- addresses ---- */

static bool is_loopback(const any_addr *a)
{
    if (a->sa.sa_family == AF_UNIX) return true;
    if (a->sa.sa_family == AF_INET) return (ntohl(a->v4.sin_addr.s_addr) >> 24) == 127;
    if (a->sa.sa_family != AF_INET6) return false;
    const struct in6_addr *x = &a->v6.sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(x)) return x->s6_addr[12] == 127;
    return IN6_IS_ADDR_LOOPBACK(x);
}

static void peer_text(const any_addr *a, char *out, size_t cap)
{
    char ip[INET6_ADDRSTRLEN] = "?";
    if (a->sa.sa_family == AF_INET) {
        (void)inet_ntop(AF_INET, &a->v4.sin_addr, ip, sizeof ip);
        (void)snprintf(out, cap, "%s:%u", ip, (unsigned)ntohs(a->v4.sin_port));
    } else if (a->sa.sa_family == AF_INET6) {
        (void)inet_ntop(AF_INET6, &a->v6.sin6_addr, ip, sizeof ip);
        (void)snprintf(out, cap, "[%s]:%u", ip, (unsigned)ntohs(a->v6.sin6_port));
    } else {
        (void)snprintf(out, cap, "unix");
    }
}

/* ---- TCP ---- */

/* What the user sees of one address: the host as given. */
static nb_status fail_bind(const nb_http *h, uint16_t port, int e, nb_error *err)
{
    const char *host = h->o.host[0] ? h->o.host : "*";
    if (e == EADDRINUSE)
        return nb_fail(err, NB_ERR_IO,
                       "%s port %u: another program listens there; stop it or take another port",
                       host, (unsigned)port);
    if (e == EACCES)
        return nb_fail(err, NB_ERR_IO, "%s port %u: not permitted (ports below 1024 need rights)",
                       host, (unsigned)port);
    if (e == EADDRNOTAVAIL)
        return nb_fail(err, NB_ERR_IO, "%s port %u: this machine does not have that address", host,
                       (unsigned)port);
    return nb_fail(err, NB_ERR_IO, "%s port %u: cannot listen: %s", host, (unsigned)port,
                   strerror(e));
}

/* A listening socket, or -1 with errno. */
static int open_tcp(const struct addrinfo *ai, uint16_t port, bool only_v6)
{
    any_addr a = { 0 };
    if (ai->ai_addrlen > sizeof a) {
        errno = EINVAL;
        return -1;
    }
    memcpy(&a, ai->ai_addr, ai->ai_addrlen);
    if (ai->ai_family == AF_INET)
        a.v4.sin_port = htons(port);
    else
        a.v6.sin6_port = htons(port);
    const int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    const int one = 1, v6only = only_v6;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (ai->ai_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6only, sizeof v6only);
    if (bind(fd, &a.sa, ai->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0) return fd;
    const int e = errno;
    (void)close(fd);
    errno = e;
    return -1;
}

static uint16_t port_of(int fd)
{
    any_addr a = { 0 };
    socklen_t n = sizeof a;
    if (getsockname(fd, &a.sa, &n) != 0) return 0;
    return ntohs(a.sa.sa_family == AF_INET ? a.v4.sin_port : a.v6.sin6_port);
}

static bool is_missing_address(int e)
{
    return e == EADDRNOTAVAIL || e == EAFNOSUPPORT || e == EPROTONOSUPPORT;
}

static void close_all(nb_http *h)
{
    for (size_t i = 0; i < h->n_listen; i++) {
        if (h->listen[i].ev) event_free(h->listen[i].ev);
        (void)close(h->listen[i].fd);
    }
    h->n_listen = 0;
}

/* Binds every address of the list.  errno of the first address that failed for more than being
 * absent; of an absent one when none is left; 0: fine. */
static int open_list(nb_http *h, const struct addrinfo *list, uint16_t port)
{
    const bool all_v6 = strcmp(h->o.host, "::") == 0; /* IPv4 through it as well */
    int missing = EADDRNOTAVAIL;
    for (const struct addrinfo *ai = list; ai && h->n_listen < NB_HTTP_MAX_LISTEN;
         ai = ai->ai_next) {
        if (ai->ai_family != AF_INET && ai->ai_family != AF_INET6) continue;
        const int fd = open_tcp(ai, port, !all_v6);
        if (fd >= 0) {
            h->listen[h->n_listen++].fd = fd;
            if (port == 0) port = port_of(fd);
            any_addr a = { 0 };
            memcpy(&a, ai->ai_addr, ai->ai_addrlen);
            h->loopback_only = h->loopback_only && is_loopback(&a);
        } else if (is_missing_address(errno)) {
            missing = errno;
        } else {
            return errno;
        }
    }
    h->port = port;
    return h->n_listen ? 0 : missing;
}

static nb_status open_host(nb_http *h, nb_error *err)
{
    const struct addrinfo hints = { .ai_family = AF_UNSPEC,
                                    .ai_socktype = SOCK_STREAM,
                                    .ai_flags = AI_PASSIVE };
    struct addrinfo *list = NULL;
    const int g =
        getaddrinfo(h->o.host[0] ? h->o.host : NULL, h->o.host[0] ? NULL : "0", &hints, &list);
    if (g != 0)
        return nb_fail(err, NB_ERR_ARG, "host %s: cannot be resolved: %s", h->o.host,
                       g == EAI_SYSTEM ? strerror(errno) : gai_strerror(g));
    int e = 0;
    /* A port that the system chose for one address can be taken at another. */
    for (int i = 0; i < (h->o.any_port ? PORT_TRIES : 1); i++) {
        close_all(h);
        h->loopback_only = true;
        e = open_list(h, list, h->o.any_port ? 0 : h->o.port);
        if (e != EADDRINUSE) break;
    }
    freeaddrinfo(list);
    if (e == 0) return NB_OK;
    close_all(h);
    return fail_bind(h, h->o.port, e, err);
}

/* ---- Unix sockets ---- */

/* Makes way for our socket: a socket nobody listens on is left over from a program that died. */
static nb_status remove_stale(const char *path, const any_addr *a, nb_error *err)
{
    struct stat st;
    if (lstat(path, &st) != 0)
        return errno == ENOENT ? NB_OK : nb_fail(err, NB_ERR_IO, "%s: %s", path, strerror(errno));
    if (!S_ISSOCK(st.st_mode))
        return nb_fail(err, NB_ERR_ARG, "%s: exists and is not a socket; it is left alone", path);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return nb_fail(err, NB_ERR_IO, "%s: %s", path, strerror(errno));
    const int e = connect(fd, &a->sa, sizeof a->un) == 0 ? 0 : errno;
    (void)close(fd);
    if (e != ECONNREFUSED) /* EAGAIN: somebody listens and is busy */
        return nb_fail(err, NB_ERR_IO,
                       e == EACCES ? "%s: belongs to somebody else"
                                   : "%s: another program listens there",
                       path);
    if (unlink(path) != 0 && errno != ENOENT)
        return nb_fail(err, NB_ERR_IO, "%s: cannot remove the stale socket: %s", path,
                       strerror(errno));
    return NB_OK;
}

static nb_status open_uds(nb_http *h, nb_error *err)
{
    const char *path = h->o.uds;
    any_addr a = { .un = { .sun_family = AF_UNIX } };
    struct stat st;
    const size_t n = strlen(path);
    if (n == 0 || n >= sizeof a.un.sun_path)
        return nb_fail(err, NB_ERR_ARG,
                       "the path of the Unix socket has %zu bytes, expected 1 to %zu", n,
                       sizeof a.un.sun_path - 1);
    memcpy(a.un.sun_path, path, n);
    NB_TRY(remove_stale(path, &a, err));
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return nb_fail(err, NB_ERR_IO, "%s: %s", path, strerror(errno));
    /* The file takes the mode of the socket (and the umask): never open for others, not even for the
     * moment between bind and a chmod. */
    (void)fchmod(fd, S_IRUSR | S_IWUSR);
    if (bind(fd, &a.sa, sizeof a.un) != 0) {
        const int e = errno;
        (void)close(fd);
        return nb_fail(err, NB_ERR_IO, "%s: cannot make the socket: %s", path, strerror(e));
    }
    if (lstat(path, &st) == 0) {
        h->uds_dev = (uint64_t)st.st_dev;
        h->uds_ino = (uint64_t)st.st_ino;
    }
    h->listen[h->n_listen++].fd = fd;
    h->loopback_only = false; /* no browser gets here: Host says nothing */
    if (listen(fd, BACKLOG) == 0) return NB_OK;
    const int e = errno;
    nb_http_listen_close(h);
    return nb_fail(err, NB_ERR_IO, "%s: cannot listen: %s", path, strerror(e));
}

nb_status nb_http_listen_open(nb_http *h, nb_error *err)
{
    if (h->o.uds) return open_uds(h, err);
    if (h->o.port == 0 && !h->o.any_port)
        return nb_fail(err, NB_ERR_ARG, "port 0 is not a port to listen on");
    return open_host(h, err);
}

/* ---- accepting ---- */

static void set_options(int fd)
{
    const int one = 1, idle = ALIVE_IDLE_S, every = ALIVE_EVERY_S, probes = ALIVE_PROBES;
    const int unsent = UNSENT_BYTES;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof every);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof unsent);
}

static void pause_accepting(nb_http *h, int e)
{
    const struct timeval moment = { .tv_usec = 100 * 1000 };
    char line[160];
    for (size_t i = 0; i < h->n_listen; i++) (void)event_del(h->listen[i].ev);
    h->accept_paused = true;
    (void)evtimer_add(h->accept_again, &moment);
    if (h->accept_warned) return;
    h->accept_warned = true;
    (void)snprintf(line, sizeof line, "cannot accept connections (%s); trying on, %zu are open",
                   strerror(e), h->n_conn);
    nb_http_warn(h, line);
}

static void on_accept_again(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd;
    (void)what;
    nb_http *h = ctx;
    h->accept_paused = false;
    for (size_t i = 0; i < h->n_listen; i++) (void)event_add(h->listen[i].ev, NULL);
}

static void on_accept(evutil_socket_t listener, short what, void *ctx)
{
    (void)what;
    nb_http *h = ctx;
    for (int i = 0; i < ACCEPTS_PER_EVENT; i++) {
        any_addr a = { 0 };
        socklen_t n = sizeof a;
        char peer[NB_HTTP_PEER_BYTES];
        const int fd = accept4(listener, &a.sa, &n, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            const int e = errno;
            if (e == EMFILE || e == ENFILE || e == ENOBUFS || e == ENOMEM) pause_accepting(h, e);
            /* Other errors are of the connection that was to come; the next event tells. */
            return;
        }
        if (h->o.uds) a.sa.sa_family = AF_UNIX;
        if (h->n_conn >= h->o.max_connections + OVER_LIMIT_ROOM) {
            (void)close(fd);
            h->n_unanswered++;
            continue;
        }
        if (!h->o.uds) set_options(fd);
        peer_text(&a, peer, sizeof peer);
        nb_http_conn_create(h, fd, peer, is_loopback(&a), h->n_conn >= h->o.max_connections);
    }
}

nb_status nb_http_listen_start(nb_http *h, nb_error *err)
{
    h->accept_again = evtimer_new(h->base, on_accept_again, h);
    bool ok = h->accept_again != NULL;
    for (size_t i = 0; i < h->n_listen && ok; i++) {
        nb_http_listener *l = &h->listen[i];
        l->ev = event_new(h->base, l->fd, EV_READ | EV_PERSIST, on_accept, h);
        ok = l->ev && event_add(l->ev, NULL) == 0;
    }
    return ok ? NB_OK : nb_fail(err, NB_ERR_NOMEM, "out of memory for the listening sockets");
}

void nb_http_listen_close(nb_http *h)
{
    struct stat st;
    if (h->accept_again) event_free(h->accept_again);
    h->accept_again = NULL;
    close_all(h);
    /* Only what we made: another server may have taken the name since. */
    if (h->o.uds && h->uds_ino && lstat(h->o.uds, &st) == 0 && (uint64_t)st.st_dev == h->uds_dev &&
        (uint64_t)st.st_ino == h->uds_ino)
        (void)unlink(h->o.uds);
    h->uds_ino = 0;
}
