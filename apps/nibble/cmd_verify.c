/* cmd_verify.c - `nibble verify`: the files of a model against their hashes.
 *
 * The hashes are those of the hub (a snapshot's links name them, --online asks), or of a list. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli.h"
#include "hub/pull.h"
#include "hub/verify.h"
#include "hub_setup.h"

enum { SUMS_MAX_BYTES = 64 << 20, PATH_BYTES = 4096 };

typedef struct verify {
    const opts *o;
    const atomic_bool *stop;
    nb_hub_checks checks;
    char sums[PATH_BYTES]; /* the list that is read, or "" */
} verify;

static int read_sums(verify *v)
{
    char *text = NULL;
    size_t n_bytes = 0;
    nb_error err = { 0 };
    int code = cli_read_file(v->sums, SUMS_MAX_BYTES, &text, &n_bytes);
    if (code != CLI_OK) return code;
    const nb_status st = nb_hub_checks_sums(&v->checks, (nb_str){ text, n_bytes }, v->sums, &err);
    free(text);
    return st == NB_OK ? CLI_OK : cli_status(st, &err);
}

/* --sha256sums, or SHA256SUMS in the folder. */
static int find_sums(verify *v)
{
    struct stat st;
    const char *given = v->o->hub.sums;
    const int n = given ? snprintf(v->sums, sizeof v->sums, "%s", given)
                        : snprintf(v->sums, sizeof v->sums, "%s/SHA256SUMS", v->o->path);
    if (n < 0 || (size_t)n >= sizeof v->sums)
        return cli_usage("%.80s...: too long a path", v->sums);
    if (given || (stat(v->sums, &st) == 0 && S_ISREG(st.st_mode))) return read_sums(v);
    v->sums[0] = 0;
    return CLI_OK;
}

static int ask_hub(verify *v)
{
    nb_hub_id id;
    nb_error err = { 0 };
    nb_hub_list list = { 0 };
    hub_setup s;
    char commit[65];
    if (!nb_hub_id_parse(v->o->hub.online, &id))
        return cli_usage("--online %.120s: expected the id of a model on the hub, ORG/NAME or "
                         "ORG/NAME@REVISION",
                         v->o->hub.online);
    int code = hub_setup_init(v->o, &s);
    if (code == CLI_OK && s.settings.offline)
        code = cli_failed("--online: HF_HUB_OFFLINE is set, so the hub is not asked");
    if (code == CLI_OK) {
        nb_status st = nb_hub_list_files(&s.net, &id, commit, &list, &err);
        if (st == NB_OK) st = nb_hub_checks_list(&v->checks, &list, &err);
        if (st != NB_OK) code = cli_status(st, &err);
    }
    nb_hub_list_deinit(&list);
    hub_setup_deinit(&s);
    return code;
}

static void on_progress(void *ctx, uint64_t done, uint64_t total)
{
    (void)ctx;
    hub_progress("verifying", done, total);
}

static int compare(verify *v)
{
    nb_error err = { 0 };
    const nb_status st = nb_hub_checks_run(&v->checks, v->o->path, v->o->hub.n_job, v->stop,
                                           on_progress, NULL, &err);
    cli_progress_end();
    return st == NB_OK ? CLI_OK : cli_status(st, &err);
}

static size_t count(const verify *v, nb_hub_verdict verdict)
{
    size_t n = 0;
    for (size_t i = 0; i < v->checks.n; i++) n += v->checks.p[i].verdict == verdict;
    return n;
}

static int print_json(const verify *v)
{
    static const char *const words[] = { "good", "bad", "no_hash" };
    json_t *files = json_array();
    for (size_t i = 0; files && i < v->checks.n; i++) {
        const nb_hub_check *x = &v->checks.p[i];
        json_t *j =
            json_pack("{s:s, s:s, s:s?, s:s?}", "path", x->name, "verdict", words[x->verdict],
                      "hash", x->hash[0] ? x->hash : NULL, "error", x->why);
        if (json_array_append_new(files, j) != 0) {
            json_decref(files);
            files = NULL;
        }
    }
    json_t *j =
        json_pack("{s:s, s:I, s:I, s:I, s:o}", "path", v->o->path, "good",
                  (json_int_t)count(v, NB_HUB_GOOD), "bad", (json_int_t)count(v, NB_HUB_BAD),
                  "no_hash", (json_int_t)count(v, NB_HUB_UNHASHED), "files", files);
    if (!j) return cli_failed("out of memory");
    (void)json_dumpf(j, stdout, JSON_COMPACT);
    (void)fputc('\n', stdout);
    json_decref(j);
    return CLI_OK;
}

/* Names come from folders and lists: one line each, whatever is in them. */
static void print_bad(const nb_hub_check *x)
{
    char line[1500];
    (void)snprintf(line, sizeof line, "%s: %s", x->name, x->why);
    for (char *p = line; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) *p = '?';
    (void)puts(line);
}

static int print_result(const verify *v)
{
    const size_t good = count(v, NB_HUB_GOOD), bad = count(v, NB_HUB_BAD);
    const size_t unhashed = count(v, NB_HUB_UNHASHED);
    if (v->o->json) {
        const int code = print_json(v);
        return code == CLI_OK && bad ? CLI_FAILED : code;
    }
    for (size_t i = 0; i < v->checks.n; i++)
        if (v->checks.p[i].verdict == NB_HUB_BAD) print_bad(&v->checks.p[i]);
    (void)printf("%s: %zu files: %zu have the expected hash, %zu are bad, %zu have no known hash\n",
                 v->o->path, v->checks.n, good, bad, unhashed);
    if (good + bad == 0 || (good == 0 && unhashed))
        (void)puts(
            "No hashes are known here, so only the structure of safetensors files was checked. "
            "--sha256sums FILE or --online ORG/NAME says what is expected.");
    return bad ? CLI_FAILED : CLI_OK;
}

int cmd_verify(const opts *o)
{
    verify v = { .o = o, .stop = hub_catch_signals() };
    nb_error err = { 0 };
    struct stat st;
    if (stat(o->path, &st) != 0 || !S_ISDIR(st.st_mode))
        return cli_failed("%s: expected a model's folder, or the id of one in the hub cache",
                          o->model);
    if (o->hub.sums && o->hub.online)
        return cli_usage("verify: --sha256sums and --online do not go together");
    const nb_status walked = nb_hub_checks_walk(&v.checks, o->path, &err);
    int code = walked == NB_OK ? CLI_OK : cli_status(walked, &err);
    if (code == CLI_OK) code = o->hub.online ? ask_hub(&v) : find_sums(&v);
    if (code == CLI_OK) code = compare(&v);
    if (code == CLI_OK) code = print_result(&v);
    nb_hub_checks_deinit(&v.checks);
    return code;
}
