/* net.c - see net.h. */
#define _GNU_SOURCE /* accept4, POLLRDHUP */
#include "os/net.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "os/clock.h"

enum { BACKLOG = 128, PROBE_AFTER_S = 15, PROBE_EVERY_S = 5, PROBES = 3, MAX_WAIT = 128 };

static void set(int s, int level, int name, int value)
{
    (void)setsockopt(s, level, name, &value, sizeof value); /* a hint, or checked by what follows */
}

static void tune(int s)
{
    set(s, IPPROTO_TCP, TCP_NODELAY, 1);
    set(s, SOL_SOCKET, SO_KEEPALIVE, 1);
    set(s, IPPROTO_TCP, TCP_KEEPIDLE, PROBE_AFTER_S);
    set(s, IPPROTO_TCP, TCP_KEEPINTVL, PROBE_EVERY_S);
    set(s, IPPROTO_TCP, TCP_KEEPCNT, PROBES);
}

static nb_status resolve(const char *host, unsigned port, int flags, struct addrinfo **out, nb_error *err)
{
    const struct addrinfo hints = { .ai_flags = flags | AI_NUMERICSERV,
                                    .ai_family = AF_UNSPEC,
                                    .ai_socktype = SOCK_STREAM };
    char service[16];
    (void)snprintf(service, sizeof service, "%u", port);
    const int e = getaddrinfo(host, service, &hints, out);
    if (e == 0) return NB_OK;
    *out = NULL;
    return nb_fail(err, NB_ERR_NOT_FOUND, "%.200s: %s", host ? host : "any address", gai_strerror(e));
}

/* ---- listening ---- */

static int bound(const struct addrinfo *a)
{
    const int s = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s < 0) return -1;
    set(s, SOL_SOCKET, SO_REUSEADDR, 1);
    if (a->ai_family == AF_INET6) set(s, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    if (bind(s, a->ai_addr, a->ai_addrlen) == 0 && listen(s, BACKLOG) == 0) return s;
    const int e = errno;
    (void)close(s);
    errno = e;
    return -1;
}

/* IPv6 first: such a socket takes IPv4 too. */
static int bound_to_any(unsigned port)
{
    struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = in6addr_any };
    struct sockaddr_in four = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    const struct addrinfo a[] = {
        { .ai_family = AF_INET6, .ai_addr = (struct sockaddr *)&six, .ai_addrlen = sizeof six },
        { .ai_family = AF_INET, .ai_addr = (struct sockaddr *)&four, .ai_addrlen = sizeof four }
    };
    const int s = bound(&a[0]);
    return s >= 0 || errno == EADDRINUSE || errno == EACCES ? s : bound(&a[1]);
}

nb_status nb_net_listen(const char *host, unsigned port, int *out, nb_error *err)
{
    struct addrinfo *a = NULL;
    int s = -1;
    if (port > 65535) return nb_fail(err, NB_ERR_RANGE, "port %u: expected at most 65535", port);
    errno = EADDRNOTAVAIL;
    if (host && resolve(host, port, AI_NUMERICHOST, &a, NULL) == NB_OK) s = bound(a);
    if (a) freeaddrinfo(a);
    if (s < 0 && errno == EADDRNOTAVAIL) s = bound_to_any(port);
    if (s < 0) return nb_fail(err, NB_ERR_IO, "port %u cannot be listened on: %s", port, strerror(errno));
    *out = s;
    return NB_OK;
}

unsigned nb_net_port(int s)
{
    struct sockaddr_storage a = { 0 };
    socklen_t n = sizeof a;
    if (getsockname(s, (struct sockaddr *)&a, &n) != 0) return 0;
    return ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port : ((struct sockaddr_in *)&a)->sin_port);
}

int nb_net_accept(int listening)
{
    const int s = accept4(listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (s >= 0) tune(s);
    return s;
}

/* ---- connecting ---- */

/* Whether a socket has come to its own port, as happens where nobody listens on one that the system deals out. */
static bool is_itself(int s)
{
    struct sockaddr_storage a = { 0 }, b = { 0 };
    socklen_t n_a = sizeof a, n_b = sizeof b;
    return getsockname(s, (struct sockaddr *)&a, &n_a) == 0 && getpeername(s, (struct sockaddr *)&b, &n_b) == 0 &&
           n_a == n_b && memcmp(&a, &b, n_a) == 0;
}

/* errno of an attempt that has ended; 0: connected. */
static int attempt(const struct addrinfo *a, double until, int *out)
{
    int e = 0;
    socklen_t n = sizeof e;
    const int s = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s < 0) return errno;
    tune(s);
    if (connect(s, a->ai_addr, a->ai_addrlen) != 0) e = errno;
    if (e == EINPROGRESS || e == EINTR) {
        nb_net_want w = { .s = s, .write = true };
        const double left = until - nb_clock_s();
        nb_net_wait(&w, 1, left > 0 ? (unsigned)(left * 1e3) : 0);
        if (!w.ready)
            e = ETIMEDOUT;
        else if (getsockopt(s, SOL_SOCKET, SO_ERROR, &e, &n) != 0)
            e = errno;
    }
    if (e == 0 && is_itself(s)) e = ECONNREFUSED;
    if (e == 0)
        *out = s;
    else
        (void)close(s);
    return e;
}

nb_status nb_net_connect(const char *host, unsigned port, unsigned timeout_ms, int *out, nb_error *err)
{
    struct addrinfo *list;
    int e = ECONNREFUSED;
    const double until = nb_clock_s() + timeout_ms * 1e-3;
    if (port == 0 || port > 65535) return nb_fail(err, NB_ERR_RANGE, "port %u: expected 1 to 65535", port);
    NB_TRY(resolve(host, port, 0, &list, err));
    for (const struct addrinfo *a = list; a && e; a = a->ai_next) e = attempt(a, until, out);
    freeaddrinfo(list);
    if (e == 0) return NB_OK;
    return nb_fail(err, NB_ERR_NOT_FOUND, "%.200s port %u: %s", host, port, strerror(e));
}

/* ---- a connection ---- */

typedef int name_fn(int s, struct sockaddr *a, socklen_t *n);

static void name_of(int s, name_fn *fn, char host[NB_NET_HOST_BYTES])
{
    struct sockaddr_storage a = { 0 };
    socklen_t n = sizeof a;
    if (fn(s, (struct sockaddr *)&a, &n) != 0 ||
        getnameinfo((struct sockaddr *)&a, n, host, NB_NET_HOST_BYTES, NULL, 0, NI_NUMERICHOST) != 0)
        host[0] = 0;
    if (!strncmp(host, "::ffff:", 7) && strchr(host, '.')) memmove(host, host + 7, strlen(host + 7) + 1);
}

static int own_name(int s, struct sockaddr *a, socklen_t *n)
{
    return getsockname(s, a, n);
}

static int peer_name(int s, struct sockaddr *a, socklen_t *n)
{
    return getpeername(s, a, n);
}

void nb_net_own(int s, char host[NB_NET_HOST_BYTES])
{
    name_of(s, own_name, host);
}

void nb_net_peer(int s, char host[NB_NET_HOST_BYTES])
{
    name_of(s, peer_name, host);
}

static long outcome(ssize_t n)
{
    if (n > 0) return (long)n;
    return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) ? 0 : -1;
}

long nb_net_send(int s, const void *p, size_t n_bytes)
{
    return outcome(send(s, p, n_bytes, MSG_NOSIGNAL));
}

long nb_net_recv(int s, void *p, size_t n_bytes)
{
    return outcome(recv(s, p, n_bytes, 0));
}

bool nb_net_is_gone(int s)
{
    struct pollfd p = { .fd = s, .events = POLLRDHUP };
    return poll(&p, 1, 0) > 0;
}

void nb_net_close(int s)
{
    if (s >= 0) (void)close(s);
}

void nb_net_wait(nb_net_want *w, size_t n, unsigned timeout_ms)
{
    struct pollfd p[MAX_WAIT];
    NB_ASSERT(n <= MAX_WAIT);
    for (size_t i = 0; i < n; i++)
        p[i] = (struct pollfd){ .fd = w[i].s,
                                .events = (short)((w[i].read ? POLLIN : 0) | (w[i].write ? POLLOUT : 0)) };
    const int found = poll(p, n, timeout_ms > 1000000 ? 1000000 : (int)timeout_ms);
    for (size_t i = 0; i < n; i++) w[i].ready = found > 0 && p[i].revents != 0;
}
