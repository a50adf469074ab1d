/* settings.c - see settings.h. */
#include "hub/settings.h"

#include <stdlib.h>

#include "load/hub.h"
#include "load/json.h"
#include "os/file.h"
#include "os/sys.h"

enum { TOKEN_MAX_BYTES = 4096, TIMEOUT_MAX_S = 86400, DEFAULT_TIMEOUT_S = 10 };

static nb_status no_memory(nb_error *err)
{
    return nb_fail(err, NB_ERR_NOMEM, "out of memory");
}

static nb_status read_endpoint(nb_hub_settings *s, nb_error *err)
{
    const char *value = nb_os_env("HF_ENDPOINT");
    if (!value) value = "https://huggingface.co";
    if (strncmp(value, "https://", 8) != 0 && strncmp(value, "http://", 7) != 0)
        return nb_fail(err, NB_ERR_ARG, "HF_ENDPOINT %s: expected an address with http or https",
                       nb_show_c(value).s);
    if (strcspn(value, " \t\r\n?#@") != strlen(value))
        return nb_fail(err, NB_ERR_ARG, "HF_ENDPOINT: expected a plain address such as %s",
                       "https://huggingface.co");
    size_t n = strlen(value);
    while (value[n - 1] == '/') n--;
    return nb_buf_add(&s->endpoint, value, n) == NB_OK ? NB_OK : no_memory(err);
}

/* The bytes of a token without blanks around them; it becomes part of a header. */
static nb_status take_token(nb_hub_settings *s, const char *text, const char *from, nb_error *err)
{
    text += strspn(text, " \t\r\n");
    const size_t n = strcspn(text, " \t\r\n");
    if (strspn(text + n, " \t\r\n") != strlen(text + n) || n > TOKEN_MAX_BYTES)
        return nb_fail(err, NB_ERR_ARG, "%s: expected one token", from);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)text[i] < 0x21 || (unsigned char)text[i] > 0x7e)
            return nb_fail(err, NB_ERR_ARG, "%s: a token has no such characters", from);
    return nb_buf_add(&s->token, text, n) == NB_OK ? NB_OK : no_memory(err);
}

static nb_status read_token(nb_hub_settings *s, nb_error *err)
{
    const char *value = nb_os_env("HF_TOKEN"), *path = nb_os_env("HF_TOKEN_PATH");
    nb_buf file = { 0 }, text = { 0 };
    nb_status st = NB_OK;
    if (value) return take_token(s, value, "HF_TOKEN", err);
    if (path)
        st = nb_buf_add_c(&file, path) == NB_OK ? NB_OK : no_memory(err);
    else if ((st = nb_hub_home(&file, err)) == NB_OK && nb_buf_add_c(&file, "/token") != NB_OK)
        st = no_memory(err);
    if (st == NB_ERR_NOT_FOUND) st = NB_OK; /* no home folder, no file */
    bool found = false;
    if (st == NB_OK && file.n_bytes) st = nb_path_found(file.p, &found, err);
    if (found) {
        st = nb_file_read(file.p, TOKEN_MAX_BYTES, &text, err);
        if (st == NB_OK && text.n_bytes) st = take_token(s, text.p, nb_show_path(file.p).s, err);
    }
    nb_buf_deinit(&file);
    nb_buf_deinit(&text);
    return st;
}

static nb_status read_timeout(nb_hub_settings *s, nb_error *err)
{
    const char *value = nb_os_env("HF_HUB_DOWNLOAD_TIMEOUT");
    s->timeout_s = DEFAULT_TIMEOUT_S;
    if (!value) return NB_OK;
    char *end;
    const long n = strtol(value, &end, 10);
    if (*end || n < 1 || n > TIMEOUT_MAX_S)
        return nb_fail(err, NB_ERR_ARG,
                       "HF_HUB_DOWNLOAD_TIMEOUT %s: expected seconds, from 1 to %d",
                       nb_show_c(value).s, TIMEOUT_MAX_S);
    s->timeout_s = (unsigned)n;
    return NB_OK;
}

/* As huggingface_hub: 1, ON, YES and TRUE, in any case. */
static bool is_true(const char *value)
{
    static const char *const words[] = { "1", "on", "yes", "true" };
    char low[8];
    size_t n = 0;
    if (!value || strlen(value) >= sizeof low) return false;
    for (; value[n]; n++)
        low[n] = (char)(value[n] >= 'A' && value[n] <= 'Z' ? value[n] - 'A' + 'a' : value[n]);
    low[n] = 0;
    for (size_t i = 0; i < NB_COUNT(words); i++)
        if (strcmp(low, words[i]) == 0) return true;
    return false;
}

nb_status nb_hub_settings_read(nb_hub_settings *s, nb_error *err)
{
    NB_TRY(read_endpoint(s, err));
    NB_TRY(read_token(s, err));
    NB_TRY(read_timeout(s, err));
    NB_TRY(nb_hub_cache(&s->cache, err));
    s->ca_file = nb_os_env("CURL_CA_BUNDLE");
    if (!s->ca_file) s->ca_file = nb_os_env("SSL_CERT_FILE");
    s->offline = is_true(nb_os_env("HF_HUB_OFFLINE"));
    return NB_OK;
}

void nb_hub_settings_deinit(nb_hub_settings *s)
{
    nb_buf_deinit(&s->endpoint);
    nb_buf_deinit(&s->token);
    nb_buf_deinit(&s->cache);
}

nb_hub_net nb_hub_settings_net(const nb_hub_settings *s, const char *agent)
{
    return (nb_hub_net){ .endpoint = s->endpoint.p,
                         .token = s->token.n_bytes ? s->token.p : NULL,
                         .ca_file = s->ca_file,
                         .agent = agent,
                         .timeout_s = s->timeout_s };
}
