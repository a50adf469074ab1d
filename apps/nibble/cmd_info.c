/* cmd_info.c - `nibble info`: what a model is and what its cache costs.
 *
 * The library describes the model as JSON; here it becomes a table.  Fields that have
 * no line of their own in the list below are printed under their JSON name, so that
 * nothing is kept back. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "capacity/configs.h"
#include "cli.h"
#include "options/opts.h"

enum { LABEL_WIDTH = 24 };

typedef enum info_unit { UNIT_PLAIN, UNIT_COUNT, UNIT_BYTES } info_unit;

static const struct info_field {
    const char *key, *label;
    info_unit unit;
} fields[] = {
    { "family", "family", UNIT_PLAIN },
    { "n_param", "parameters", UNIT_COUNT },
    { "n_param_active", "  active per token", UNIT_COUNT },
    { "weight_bytes", "weights", UNIT_BYTES },
    { "weight_bytes_int8", "  as INT8", UNIT_BYTES },
    { "n_layer", "layers", UNIT_PLAIN },
    { "hidden", "hidden size", UNIT_PLAIN },
    { "n_head", "heads", UNIT_PLAIN },
    { "vocab", "vocabulary", UNIT_PLAIN },
    { "max_position", "context", UNIT_PLAIN },
    { "attention", "attention", UNIT_PLAIN },
};

/* 671.0 B, 16.4 M: thousands, not 1024s. */
static void print_count(double x)
{
    static const char *const unit[] = { "", " K", " M", " B", " T" };
    size_t i = 0;
    double y = x;
    for (; y >= 1000 && i + 1 < sizeof unit / sizeof *unit; i++) y /= 1000;
    if (i == 0)
        (void)printf("%.0f", x);
    else
        (void)printf("%.1f%s (%.0f)", y, unit[i], x);
}

static void print_bytes(double x)
{
    static const char *const unit[] = { "B", "KiB", "MiB", "GiB", "TiB" };
    size_t i = 0;
    double y = x;
    for (; y >= 1024 && i + 1 < sizeof unit / sizeof *unit; i++) y /= 1024;
    if (i == 0)
        (void)printf("%.0f B", x);
    else
        (void)printf("%.1f %s (%.0f)", y, unit[i], x);
}

static void print_scalar(const json_t *v)
{
    if (json_is_string(v))
        (void)fputs(json_string_value(v), stdout);
    else if (json_is_integer(v))
        (void)printf("%" JSON_INTEGER_FORMAT, json_integer_value(v));
    else if (json_is_real(v))
        (void)printf("%g", json_real_value(v));
    else if (json_is_boolean(v))
        (void)fputs(json_is_true(v) ? "yes" : "no", stdout);
    else
        (void)fputc('-', stdout);
}

static void print_field(const char *label, const json_t *v, info_unit unit)
{
    (void)printf("%-*s ", LABEL_WIDTH, label);
    if (unit == UNIT_COUNT && json_is_number(v))
        print_count(json_number_value(v));
    else if (unit == UNIT_BYTES && json_is_number(v))
        print_bytes(json_number_value(v));
    else
        print_scalar(v);
    (void)fputc('\n', stdout);
}

static bool known_key(const char *key)
{
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (strcmp(fields[i].key, key) == 0) return true;
    return strcmp(key, "records") == 0 || strcmp(key, "notes") == 0;
}

static void print_rest(const json_t *j)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)j, key, v)
    {
        if (known_key(key)) continue;
        if (json_is_object(v)) {
            const char *sub;
            json_t *w;
            json_object_foreach(v, sub, w)
            {
                if (!json_is_object(w) && !json_is_array(w)) print_field(sub, w, UNIT_PLAIN);
            }
        } else if (!json_is_array(v)) {
            print_field(key, v, UNIT_PLAIN);
        }
    }
}

static double number(const json_t *j, const char *key)
{
    return json_number_value(json_object_get(j, key));
}

/* The records, with the size of a whole context of n_tok tokens. */
static void print_records(const json_t *records, double n_tok, const char *marked)
{
    size_t i;
    json_t *r;
    if (!json_array_size(records)) return;
    (void)printf("\n  %-12s %12s %12s %10s %8s %12s %10s\n", "cache record", "B/token",
                 "B/tok/layer", "page B", "vs bf16", "tokens/GiB", "context");
    json_array_foreach(records, i, r)
    {
        const char *name = json_string_value(json_object_get(r, "dtype"));
        const double per_tok = number(r, "bytes_per_token");
        const bool mark = marked && name && strcmp(marked, name) == 0;
        (void)printf("%s %-12s %12.0f %12.1f %10.0f %7.2fx %12.0f %6.2f GiB\n", mark ? "*" : " ",
                     name ? name : "?", per_tok, number(r, "bytes_per_token_layer"),
                     number(r, "page_bytes"), number(r, "vs_bf16"), number(r, "tokens_per_gib"),
                     per_tok * n_tok / (1 << 30));
    }
    (void)printf("\n  context: %.0f tokens%s\n", n_tok,
                 marked && strcmp(marked, "auto") != 0 ? "; *: --kv-cache-dtype" : "");
}

static void print_table(const opts *o, const json_t *j)
{
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const json_t *v = json_object_get(j, fields[i].key);
        if (v) print_field(fields[i].label, v, fields[i].unit);
    }
    print_rest(j);
    const double n_tok = o->max_model_len ? (double)o->max_model_len : number(j, "max_position");
    print_records(json_object_get(j, "records"), n_tok, opts_engine(o).kv_cache_dtype);
    const char *notes = json_string_value(json_object_get(j, "notes"));
    if (notes && *notes) (void)printf("\n%s\n", notes);
}

/* The files of MODEL, else the bundled configuration of that name; b->name says which. */
static nb_status describe(const char *model, char **json, nb_bundled_config *b, nb_error *err)
{
    char *path = NULL;
    nb_status st = nb_model_find(model, &path, err);
    const bool is_id = st == NB_OK && strcmp(path, model) != 0;
    if (st == NB_OK && (is_id || access(path, F_OK) == 0)) {
        st = nb_model_describe(path, json, err);
    } else if (st == NB_OK || st == NB_ERR_NOT_FOUND) {
        st = nb_capacity_config(model, b, err);
        if (st == NB_OK)
            st = nb_model_describe_config(b->json.p, b->json.n_bytes, b->name, json, err);
    }
    nb_free(path);
    return st;
}

int cmd_info(const opts *o)
{
    nb_error err = { 0 };
    char *json = NULL;
    nb_bundled_config b = { 0 };
    const nb_status st = describe(o->model, &json, &b, &err);
    if (st != NB_OK) return cli_status(st, &err);
    int code = CLI_OK;
    json_error_t e;
    json_t *j = json_loads(json, 0, &e);
    nb_free(json);
    if (!json_is_object(j))
        code = cli_failed("%s: its description cannot be read: %s", o->model, e.text);
    else if (b.name && json_object_set_new(j, "bundled_config", json_string(b.name)) != 0)
        code = cli_failed("out of memory");
    else if (o->json && json_dumpf(j, stdout, JSON_COMPACT | JSON_REAL_PRECISION(10)) == 0)
        (void)fputc('\n', stdout);
    else if (!o->json)
        print_table(o, j);
    if (code == CLI_OK && b.name && !o->json)
        (void)printf("\nThis is the bundled configuration %s: there are no weights here.%s%s\n",
                     b.name, b.note ? "\nNote: " : "", b.note ? b.note : "");
    json_decref(j);
    return code;
}
