/* hub_setup.h - what `nibble pull` and `nibble verify` share: the environment, Ctrl-C, progress. */
#ifndef NB_APPS_HUB_SETUP_H
#define NB_APPS_HUB_SETUP_H
#include "hub/http.h"
#include "hub/settings.h"
#include "options/opts.h"

typedef struct hub_setup {
    nb_hub_settings settings;
    nb_hub_net net;    /* of settings; stops at Ctrl-C, notes go to standard error */
    const char *cache; /* --cache-dir, or that of settings */
} hub_setup;

/* CLI_OK, or another code after an error line; deinit in any case. */
int hub_setup_init(const opts *o, hub_setup *s);
void hub_setup_deinit(hub_setup *s);

/* From now on Ctrl-C and SIGTERM set this; a second one ends the process. */
const atomic_bool *hub_catch_signals(void);

enum { HUB_SIZE_BYTES = 32 };
/* "31.4 GB", in powers of 1000 as the hub shows them. */
void hub_size(uint64_t n_bytes, char out[HUB_SIZE_BYTES]);

/* The bar, with a rate and the time that is left; without a terminal, a line every ten seconds.
 * what: "downloading". */
void hub_progress(const char *what, uint64_t done, uint64_t total);

#endif
