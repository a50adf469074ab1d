/* fuzz_params.c - any bytes as a params.json: what is made of it is a JSON document, from which a configuration is
 * read or refused in one line; and any bytes as the name of a tensor in Mistral's layout. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "load/doc.h"
#include "load/params.h"
#include "model/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check_error(const nb_error *e)
{
    const char *end = memchr(e->msg, 0, sizeof e->msg);
    if (!end || end == e->msg || e->status == NB_OK) abort();
    for (const char *p = e->msg; p < end; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) abort();
}

static void read_config(nb_str text)
{
    nb_error e = { 0 };
    nb_doc *d = NULL;
    nb_model_config *c = malloc(sizeof *c);
    if (c && nb_doc_parse(text, "params.json", &d, &e) != NB_OK) {
        if (e.status != NB_ERR_NOMEM && e.status != NB_ERR_LIMIT) abort(); /* it was made here */
    } else if (c && nb_model_config_read(d, c, &e) != NB_OK) {
        check_error(&e);
    }
    nb_doc_destroy(d);
    free(c);
}

static void read_name(const uint8_t *data, size_t n)
{
    char out[300], *name = malloc(n + 1);
    if (!name) return;
    if (n) memcpy(name, data, n);
    name[n] = 0;
    memset(out, 0x55, sizeof out);
    const size_t room = n % sizeof out;
    if (nb_params_tensor(name, out, room) && (!memchr(out, 0, room) || !strchr(out, '.'))) abort();
    for (size_t i = room; i < sizeof out; i++)
        if (out[i] != 0x55) abort();
    free(name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    nb_error e = { 0 };
    nb_buf text = { 0 };
    const nb_str s = { n ? (const char *)data : "", n };
    if (nb_params_config(s, "params.json", &text, &e) == NB_OK)
        read_config(nb_buf_view(&text));
    else
        check_error(&e);
    nb_buf_deinit(&text);
    read_name(data, n);
    return 0;
}
