/* settings.h - what the environment says of the hub, in huggingface_hub's variables. */
#ifndef NB_HUB_SETTINGS_H
#define NB_HUB_SETTINGS_H
#include "hub/http.h"

/* Zero-initialise, deinit in any case. */
typedef struct nb_hub_settings {
    nb_buf endpoint; /* HF_ENDPOINT, else https://huggingface.co; without '/' at the end */
    nb_buf token;    /* HF_TOKEN, else the file HF_TOKEN_PATH, else HF_HOME/token; or empty */
    nb_buf cache;    /* nb_hub_cache */
    const char *ca_file;    /* CURL_CA_BUNDLE, SSL_CERT_FILE, or NULL */
    unsigned timeout_s;     /* HF_HUB_DOWNLOAD_TIMEOUT, else 10 */
    bool offline;           /* HF_HUB_OFFLINE */
} nb_hub_settings;
/* NB_ERR_ARG names the variable that makes no sense; a token is in no error line. */
nb_status nb_hub_settings_read(nb_hub_settings *s, nb_error *err);
void nb_hub_settings_deinit(nb_hub_settings *s);
/* Borrows from s; stop and note are the caller's to add. */
nb_hub_net nb_hub_settings_net(const nb_hub_settings *s, const char *agent);

#endif
