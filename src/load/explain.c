/* explain.c - see explain.h. */
#include "load/explain.h"

#include "load/gguf.h"
#include "load/hub.h"
#include "load/load_internal.h"
#include "os/file.h"

#define PULL "`nibble pull ORG/NAME` downloads a model"

typedef struct suffix_row {
    const char *suffix, *what;
} suffix_row;

static const suffix_row weights_of_others[] = {
    { ".bin", "PyTorch" },  { ".pth", "PyTorch" }, { ".pt", "PyTorch" },
    { ".ckpt", "PyTorch" }, { ".onnx", "ONNX" },
};

static bool ends_with(const char *s, const char *suffix)
{
    const size_t n = strlen(s), k = strlen(suffix);
    return n >= k && memcmp(s + n - k, suffix, k) == 0;
}

static const char *format_of(const char *path)
{
    for (size_t i = 0; i < NB_COUNT(weights_of_others); i++)
        if (ends_with(path, weights_of_others[i].suffix)) return weights_of_others[i].what;
    return NULL;
}

/* Whether a directory has a file of this name. */
static bool has_file(const char *dir, const char *name)
{
    nb_buf path = { 0 };
    const bool is = nb_path_join(&path, dir, name) == NB_OK && nb_path_is_file(path.p);
    nb_buf_deinit(&path);
    return is;
}

/* Files of a suffix in a directory. */
static size_t count(const char *dir, const char *suffix)
{
    nb_buf name = { 0 };
    size_t n = 0;
    if (nb_dir_find(dir, suffix, &name, &n, NULL) != NB_OK) n = 0;
    nb_buf_deinit(&name);
    return n;
}

/* Weights in another format that a directory has; NULL: none. */
static const char *format_in(const char *dir)
{
    for (size_t i = 0; i < NB_COUNT(weights_of_others); i++)
        if (count(dir, weights_of_others[i].suffix)) return weights_of_others[i].what;
    return NULL;
}

static nb_status explain_file(const char *model, nb_status st, nb_error *err)
{
    const nb_shown_path shown = nb_show_path(model);
    const char *format = format_of(model);
    if (nb_gguf_is(model)) return st;
    if (ends_with(model, ".gguf"))
        return nb_fail(err, NB_ERR_FORMAT, "%s is no GGUF file: it does not begin with \"GGUF\"",
                       shown.s);
    if (format)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "%s is a %s file; nibble reads Hugging Face checkpoints (a directory with "
                       "config.json and *.safetensors) and GGUF files: " PULL,
                       shown.s, format);
    if (ends_with(model, ".safetensors"))
        return nb_fail(err, NB_ERR_ARG,
                       "%s is one file of a checkpoint; expected the directory that it is in, with "
                       "its config.json",
                       shown.s);
    if (ends_with(model, ".json")) return st; /* it may be a configuration that is wrong */
    return nb_fail(err, NB_ERR_ARG,
                   "%s is not a model; expected a directory with config.json, tokenizer.json and "
                   "*.safetensors, a GGUF file, or the id of a model: " PULL,
                   shown.s);
}

static nb_status explain_dir(const char *dir, nb_status st, nb_error *err)
{
    const nb_shown_path shown = nb_show_path(dir);
    const char *format = format_in(dir);
    nb_buf folder = { 0 };
    size_t n_snapshot = 0;
    if (st != NB_ERR_NOT_FOUND || has_file(dir, "config.json") || has_file(dir, "params.json"))
        return st;
    st = nb_dir_find_folder(dir, "snapshots", &folder, &n_snapshot, NULL);
    nb_buf_deinit(&folder);
    if (st == NB_OK && n_snapshot)
        st = nb_fail(err, NB_ERR_NOT_FOUND,
                     "%s is a model's folder in a hub cache; expected the model's id, ORG/NAME, or "
                     "one of the folders in its snapshots",
                     shown.s);
    else if (has_file(dir, "adapter_config.json"))
        st = nb_fail(err, NB_ERR_UNSUPPORTED,
                     "%s holds an adapter, not a model: merge it into its base model first",
                     shown.s);
    else if (count(dir, ".safetensors") || has_file(dir, "tokenizer.json"))
        st = nb_fail(err, NB_ERR_NOT_FOUND,
                     "%s: config.json is missing: its download is not complete", shown.s);
    else if (format)
        st = nb_fail(err, NB_ERR_UNSUPPORTED,
                     "%s holds a %s model; nibble reads Hugging Face checkpoints (config.json and "
                     "*.safetensors): " PULL,
                     shown.s, format);
    else
        st = nb_fail(
            err, NB_ERR_NOT_FOUND,
            "%s is not a model: it has no config.json; expected a Hugging Face checkpoint: " PULL,
            shown.s);
    return nb_hub_missing(dir, st, err);
}

nb_status nb_explain_model(const char *model, nb_status st, nb_error *err)
{
    if (st == NB_OK || st == NB_ERR_NOMEM) return st;
    if (nb_path_is_dir(model)) return explain_dir(model, st, err);
    if (nb_path_is_file(model)) return explain_file(model, st, err);
    if (st != NB_ERR_NOT_FOUND) return st;
    if (strstr(model, "://"))
        return nb_fail(err, st,
                       "%s is a URL; expected a directory, or an id such as ORG/NAME: " PULL,
                       nb_show_path(model).s);
    return nb_fail(err, st, "%s: no such file or directory; " PULL, nb_show_path(model).s);
}

nb_status nb_explain_weights(const char *dir, nb_error *err)
{
    const char *format = format_in(dir);
    if (format)
        return nb_fail(err, NB_ERR_NOT_FOUND,
                       "%s: the weights are %s files, and nibble reads *.safetensors: take a "
                       "checkpoint that has them, or convert these",
                       nb_show_path(dir).s, format);
    return nb_fail(err, NB_ERR_NOT_FOUND,
                   "%s: no weights there; expected model.safetensors, model.safetensors.index.json "
                   "or one *.safetensors file (--load-format dummy makes random weights)",
                   nb_show_path(dir).s);
}
