/* notify.c - see notify.h: one datagram to a Unix socket. */
#include "notify.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void notify(const char *state)
{
    struct sockaddr_un to = { .sun_family = AF_UNIX };
    const char *path = getenv("NOTIFY_SOCKET");
    const size_t n = path ? strlen(path) : 0;
    if (n < 2 || n >= sizeof to.sun_path) return;
    memcpy(to.sun_path, path, n);
    if (path[0] == '@') to.sun_path[0] = 0; /* the abstract namespace */
    const int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    if (fd < 0) return;
    (void)sendto(fd, state, strlen(state), 0, (const struct sockaddr *)&to,
                 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n));
    (void)close(fd);
}
