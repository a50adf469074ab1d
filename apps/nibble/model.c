/* model.c - see model.h. */
#include "model.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"

enum { MODEL_BYTES = 4096 };

static int join_revision(const command *c, opts *o)
{
    char both[MODEL_BYTES];
    if (c->model != MODEL_ID && access(o->model, F_OK) == 0) {
        cli_note("warning: --revision %s: no effect, %s is a path", o->revision, o->model);
        return CLI_OK;
    }
    if (strchr(o->model, '@'))
        return cli_usage("--revision %s: MODEL %s names a revision already", o->revision, o->model);
    const int n = snprintf(both, sizeof both, "%s@%s", o->model, o->revision);
    if (n < 0 || (size_t)n >= sizeof both)
        return cli_usage("--revision %.80s: too long", o->revision);
    o->model = opts_keep(o, both);
    return o->model ? CLI_OK : cli_failed("out of memory");
}

/* The id without its revision. */
static int keep_id(opts *o)
{
    char id[MODEL_BYTES];
    (void)snprintf(id, sizeof id, "%.*s", (int)strcspn(o->model, "@"), o->model);
    o->id = opts_keep(o, id);
    return o->id ? CLI_OK : cli_failed("out of memory");
}

/* The file of --gguf-file becomes the model. */
static int take_gguf(opts *o)
{
    char file[MODEL_BYTES];
    nb_error err = { 0 };
    char *path = NULL;
    struct stat is;
    const nb_status st = nb_model_find(o->model, &path, &err);
    if (st != NB_OK) return cli_status(st, &err);
    const bool folder = stat(path, &is) == 0 && S_ISDIR(is.st_mode);
    const int n = snprintf(file, sizeof file, "%s/%s", path, o->gguf_file);
    nb_free(path);
    if (!folder)
        return cli_usage("--gguf-file %.80s: MODEL %s is not a folder", o->gguf_file, o->model);
    if (n < 0 || (size_t)n >= sizeof file || stat(file, &is) != 0 || !S_ISREG(is.st_mode))
        return cli_usage("--gguf-file %.80s: there is no such file in %s", o->gguf_file, o->model);
    o->model = opts_keep(o, file);
    return o->model ? CLI_OK : cli_failed("out of memory");
}

int model_find(const command *c, opts *o)
{
    nb_error err = { 0 };
    char *path = NULL;
    if (c->model == MODEL_NONE || !o->model) return CLI_OK;
    int code = o->revision ? join_revision(c, o) : CLI_OK;
    if (code == CLI_OK && o->gguf_file) code = take_gguf(o);
    if (code != CLI_OK || (c->model != MODEL_FILES && c->model != MODEL_AND_OUT)) return code;
    const nb_status st = nb_model_find(o->model, &path, &err);
    if (st != NB_OK) return cli_status(st, &err);
    o->path = opts_keep(o, path);
    nb_free(path);
    if (!o->path) return cli_failed("out of memory");
    return strcmp(o->path, o->model) == 0 ? CLI_OK : keep_id(o);
}
