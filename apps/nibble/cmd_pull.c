/* cmd_pull.c - `nibble pull`: a model of the hub into the local hub cache. */
#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#include "cli.h"
#include "hub/pull.h"
#include "hub_setup.h"

typedef struct pull {
    const opts *o;
    hub_setup setup;
    nb_hub_pull_options options;
    nb_hub_plan plan;
} pull;

/* ---- what is said --------------------------------------------------------------- */

static void on_file(void *ctx, const nb_hub_file *f, size_t n_done, size_t n_file)
{
    const pull *p = ctx;
    char size[HUB_SIZE_BYTES];
    if (p->o->json || cli_progress_shown()) return;
    hub_size(f->n_bytes, size);
    cli_note("%zu of %zu: %s (%s%s)", n_done, n_file, f->path, size, f->there ? ", was there" : "");
}

static void on_progress(void *ctx, uint64_t done, uint64_t total)
{
    (void)ctx;
    hub_progress("downloading", done, total);
}

static void say_plan(const pull *p)
{
    char all[HUB_SIZE_BYTES], todo[HUB_SIZE_BYTES], spare[HUB_SIZE_BYTES];
    hub_size(p->plan.list.n_bytes, all);
    hub_size(p->plan.n_todo_bytes, todo);
    hub_size(p->plan.n_free_bytes, spare);
    cli_note("%s at commit %.12s: %zu files, %s; %s to download, %s free at %s", p->o->model,
             p->plan.commit, p->plan.list.n, all, todo, spare, p->setup.cache);
}

static int print_json(const pull *p)
{
    json_t *files = json_array();
    for (size_t i = 0; files && i < p->plan.list.n; i++) {
        const nb_hub_file *f = &p->plan.list.file[i];
        json_t *j = json_pack("{s:s, s:I, s:s, s:b}", "path", f->path, "bytes",
                              (json_int_t)f->n_bytes, "hash", f->hash, "was_there", f->there);
        if (json_array_append_new(files, j) != 0) {
            json_decref(files);
            files = NULL;
        }
    }
    json_t *j = json_pack("{s:s, s:s, s:s, s:s, s:b, s:I, s:I, s:I, s:o}", "id", p->options.id.repo,
                          "revision", p->options.id.revision, "commit", p->plan.commit, "path",
                          p->plan.snapshot.p, "dry_run", p->o->hub.dry_run, "bytes",
                          (json_int_t)p->plan.list.n_bytes, "bytes_to_download",
                          (json_int_t)p->plan.n_todo_bytes, "bytes_free",
                          (json_int_t)p->plan.n_free_bytes, "files", files);
    if (!j) return cli_failed("out of memory");
    (void)json_dumpf(j, stdout, JSON_COMPACT);
    (void)fputc('\n', stdout);
    json_decref(j);
    return CLI_OK;
}

static int print_result(const pull *p)
{
    if (p->o->json) return print_json(p);
    for (size_t i = 0; p->o->hub.dry_run && i < p->plan.list.n; i++) {
        const nb_hub_file *f = &p->plan.list.file[i];
        char size[HUB_SIZE_BYTES];
        hub_size(f->n_bytes, size);
        (void)printf("%-9s %9s  %s\n", f->there ? "there" : "download", size, f->path);
    }
    if (!p->o->hub.dry_run) (void)puts(p->plan.snapshot.p);
    return CLI_OK;
}

/* ---- what is done ----------------------------------------------------------------- */

/* HF_HUB_OFFLINE: what the cache has, as it is. */
static int find_offline(const pull *p)
{
    nb_error err = { 0 };
    nb_buf path = { 0 };
    const nb_status st = nb_hub_find(p->setup.cache, &p->options.id, &path, &err);
    if (st == NB_OK) {
        cli_note("HF_HUB_OFFLINE is set: this is what the cache has, not compared with the hub");
        (void)puts(path.p);
    }
    nb_buf_deinit(&path);
    if (st == NB_OK) return CLI_OK;
    return cli_failed(
        "%s: HF_HUB_OFFLINE is set, so nothing is downloaded, and it is not in the hub "
        "cache %s",
        p->o->model, p->setup.cache);
}

/* The line of an error after which the same command goes on. */
static int ended(nb_status st, const nb_error *err)
{
    if (st == NB_ERR_CANCELLED || st == NB_ERR_IO)
        return cli_failed("%s; the same command goes on with what is missing", err->msg);
    return cli_status(st, err);
}

static int download(pull *p)
{
    nb_error err = { 0 };
    const nb_status st = nb_hub_pull(&p->options, &p->plan, &err);
    cli_progress_end();
    return st == NB_OK ? CLI_OK : ended(st, &err);
}

static int run(pull *p)
{
    nb_error err = { 0 };
    if (p->setup.settings.offline) return find_offline(p);
    const nb_status st = nb_hub_plan_make(&p->options, &p->plan, &err);
    if (st != NB_OK) return cli_status(st, &err);
    if (!p->o->json) say_plan(p);
    const int code = p->o->hub.dry_run ? CLI_OK : download(p);
    return code == CLI_OK ? print_result(p) : code;
}

int cmd_pull(const opts *o)
{
    pull p = { .o = o };
    const hub_opts *h = &o->hub;
    if (!nb_hub_id_parse(o->model, &p.options.id))
        return cli_usage("%.120s: expected the id of a model on the hub, ORG/NAME or "
                         "ORG/NAME@REVISION, such as deepseek-ai/DeepSeek-V2-Lite",
                         o->model);
    int code = hub_setup_init(o, &p.setup);
    p.options.cache = p.setup.cache;
    p.options.include = (nb_hub_globs){ h->include.p, h->include.n };
    p.options.exclude = (nb_hub_globs){ h->exclude.p, h->exclude.n };
    p.options.n_job = h->n_job;
    p.options.net = p.setup.net;
    p.options.watch = (nb_hub_watch){ .file = on_file, .progress = on_progress, .ctx = &p };
    if (code == CLI_OK) code = run(&p);
    nb_hub_plan_deinit(&p.plan);
    hub_setup_deinit(&p.setup);
    return code;
}
