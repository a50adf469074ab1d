/* notify.h - tells the service manager how far the server is (sd_notify of systemd). */
#ifndef NB_APPS_NOTIFY_H
#define NB_APPS_NOTIFY_H

/* Sends a state such as "READY=1" to the socket that NOTIFY_SOCKET names; without one it does nothing.
 * What cannot be sent is dropped: a server must not depend on who watches it. */
void notify(const char *state);

#endif
