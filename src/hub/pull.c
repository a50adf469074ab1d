/* pull.c - see pull.h. */
#include "hub/pull.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "hub/pull_internal.h"
#include "load/json.h"

enum { MAX_PAGES = 1000 };

void nb_hub_plan_deinit(nb_hub_plan *p)
{
    nb_hub_list_deinit(&p->list);
    nb_buf_deinit(&p->snapshot);
    *p = (nb_hub_plan){ 0 };
}

/* ---- what the hub has ---------------------------------------------------------- */

/* A revision in an address: one part of the path, so '/' is encoded too. */
static void encode(const char *revision, char out[3 * sizeof((nb_hub_id *)0)->revision])
{
    size_t n = 0;
    for (const char *p = revision; *p; p++)
        if (strchr("/+", *p))
            n += (size_t)snprintf(out + n, 4, "%%%02X", (unsigned char)*p);
        else
            out[n++] = *p;
    out[n] = 0;
}

static nb_status get(nb_hub_http *h, const nb_hub_net *net, const nb_hub_id *id, const char *url,
                     nb_buf *json, nb_hub_answer *a, nb_error *err)
{
    NB_TRY(nb_hub_get_json(h, id->repo, url, json, a, err));
    if (a->status == 200) return NB_OK;
    return nb_hub_refusal(net, id->repo, id->revision, a, err);
}

static nb_status get_pages(nb_hub_http *h, const nb_hub_net *net, const nb_hub_id *id,
                           const char *commit, nb_hub_list *l, nb_error *err)
{
    char url[NB_HUB_URL_BYTES];
    nb_hub_answer a;
    nb_buf json = { 0 };
    (void)snprintf(url, sizeof url, "%s/api/models/%s/tree/%s?recursive=true&expand=false",
                   net->endpoint, id->repo, commit);
    nb_status st = NB_OK;
    bool more = true;
    for (int i = 0; st == NB_OK && more; i++) {
        if (i == MAX_PAGES)
            st = nb_fail(err, NB_ERR_LIMIT, "%s: more than %d pages of files", id->repo, MAX_PAGES);
        if (st == NB_OK) st = get(h, net, id, url, &json, &a, err);
        if (st == NB_OK) st = nb_hub_parse_tree(nb_buf_view(&json), id->repo, l, err);
        char next[NB_HUB_URL_BYTES];
        more = st == NB_OK && nb_hub_next_page(a.next, next, sizeof next);
        if (more && strcmp(next, url) == 0)
            st = nb_fail(err, NB_ERR_FORMAT, "%s: the list of files has no end", id->repo);
        if (more) memcpy(url, next, strlen(next) + 1);
    }
    nb_buf_deinit(&json);
    if (st == NB_OK) st = nb_hub_list_sort(l, id->repo, err);
    return st;
}

nb_status nb_hub_list_files(const nb_hub_net *net, const nb_hub_id *id, char commit[65],
                            nb_hub_list *l, nb_error *err)
{
    char url[NB_HUB_URL_BYTES], revision[3 * sizeof id->revision];
    nb_hub_http *h = NULL;
    nb_hub_answer a;
    nb_buf json = { 0 };
    encode(id->revision, revision);
    const int n = snprintf(url, sizeof url, "%s/api/models/%s/revision/%s", net->endpoint, id->repo,
                           revision);
    if (n < 0 || (size_t)n >= sizeof url - 100)
        return nb_fail(err, NB_ERR_ARG, "%.80s...: too long an address of a hub", net->endpoint);
    NB_TRY(nb_hub_http_start(err));
    NB_TRY(nb_hub_http_create(net, &h, err));
    nb_status st = get(h, net, id, url, &json, &a, err);
    if (st == NB_OK) st = nb_hub_parse_commit(nb_buf_view(&json), id->repo, commit, err);
    if (st == NB_OK) st = get_pages(h, net, id, commit, l, err);
    nb_buf_deinit(&json);
    nb_hub_http_destroy(h);
    return st;
}

/* ---- what there is to do -------------------------------------------------------- */

static bool ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

/* After the usual files were chosen: are there weights that nibble reads? */
static nb_status need_weights(const nb_hub_pull_options *o, const nb_hub_list *all, size_t n_all,
                              nb_error *err)
{
    for (size_t i = 0; i < all->n; i++)
        if (ends_with(all->file[i].path, ".safetensors")) return NB_OK;
    return nb_fail(
        err, NB_ERR_NOT_FOUND,
        "%s: none of its %zu files is *.safetensors at the top, so nibble cannot run it; "
        "--include '*' downloads it all the same",
        o->id.repo, n_all);
}

typedef struct by_hash {
    const char *hash;
    size_t i;
} by_hash;

static int compare_hash(const void *a, const void *b)
{
    return strcmp(((const by_hash *)a)->hash, ((const by_hash *)b)->hash);
}

/* Looks for the blobs; of files with the same content one is counted. */
static nb_status look(const nb_hub_store *s, nb_hub_plan *p, nb_error *err)
{
    by_hash *b = calloc(p->list.n ? p->list.n : 1, sizeof *b);
    if (!b) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < p->list.n; i++) b[i] = (by_hash){ p->list.file[i].hash, i };
    qsort(b, p->list.n, sizeof *b, compare_hash);
    for (size_t i = 0; i < p->list.n; i++) {
        nb_hub_file *f = &p->list.file[b[i].i];
        f->there = nb_hub_store_has(s, f->hash, f->n_bytes);
        if (f->there || (i && compare_hash(&b[i - 1], &b[i]) == 0)) continue;
        const uint64_t n = nb_hub_store_partial(s, f->hash);
        p->n_todo_bytes += n > f->n_bytes ? f->n_bytes : f->n_bytes - n;
    }
    free(b);
    return NB_OK;
}

nb_status nb_hub_plan_make(const nb_hub_pull_options *o, nb_hub_plan *out, nb_error *err)
{
    nb_hub_store s = { 0 };
    nb_status st = nb_hub_store_init(&s, o->cache, o->id.repo, err);
    if (st == NB_OK) st = nb_hub_list_files(&o->net, &o->id, out->commit, &out->list, err);
    const size_t n_all = out->list.n;
    if (st == NB_OK) {
        nb_hub_list_select(&out->list, o->include, o->exclude);
        if (o->include.n == 0 && o->exclude.n == 0)
            st = need_weights(o, &out->list, n_all, err);
        else if (out->list.n == 0)
            st = nb_fail(err, NB_ERR_NOT_FOUND,
                         "%s: none of its %zu files is chosen by --include and --exclude",
                         o->id.repo, n_all);
    }
    if (st == NB_OK) st = look(&s, out, err);
    if (st == NB_OK) st = nb_hub_store_free(&s, &out->n_free_bytes, err);
    if (st == NB_OK) st = nb_hub_store_snapshot(&s, out->commit, &out->snapshot, err);
    nb_hub_store_deinit(&s);
    return st;
}

/* ---- doing it -------------------------------------------------------------------- */

/* Of any worker. */
static void on_note(void *ctx, const char *line)
{
    nb_hub_run *r = ctx;
    nb_mutex_lock(r->crew.lock);
    if (r->o->net.note) r->o->net.note(r->o->net.note_ctx, line);
    nb_mutex_unlock(r->crew.lock);
}

static void on_watch(void *ctx)
{
    nb_hub_run *r = ctx;
    if (r->o->watch.progress)
        r->o->watch.progress(r->o->watch.ctx, atomic_load(&r->n_done_bytes), r->plan->list.n_bytes);
}

static nb_status work(void *ctx, size_t item, size_t worker, nb_error *err)
{
    nb_hub_run *r = ctx;
    const nb_hub_file *f = &r->plan->list.file[item];
    if (!r->http[worker]) NB_TRY(nb_hub_http_create(&r->net, &r->http[worker], err));
    NB_TRY(nb_hub_fetch(r, r->http[worker], f, err));
    nb_mutex_lock(r->crew.lock);
    r->n_done_file++;
    if (r->o->watch.file) r->o->watch.file(r->o->watch.ctx, f, r->n_done_file, r->plan->list.n);
    nb_mutex_unlock(r->crew.lock);
    return NB_OK;
}

static nb_status check_space(const nb_hub_plan *p, const nb_hub_store *s, nb_error *err)
{
    if (p->n_todo_bytes <= p->n_free_bytes) return NB_OK;
    const double unit = p->n_todo_bytes < 1000000000 ? 1e6 : 1e9;
    return nb_fail(
        err, NB_ERR_LIMIT,
        "%s: %.2f %s are to be downloaded and %.2f are free: make room, or choose another "
        "place with --cache-dir or HF_HUB_CACHE",
        nb_show_path(s->cache.p).s, (double)p->n_todo_bytes / unit, unit < 1e9 ? "MB" : "GB",
        (double)p->n_free_bytes / unit);
}

nb_status nb_hub_pull(const nb_hub_pull_options *o, nb_hub_plan *p, nb_error *err)
{
    nb_hub_run r = { .o = o, .plan = p, .net = o->net };
    r.crew.n_item = p->list.n;
    r.crew.n_worker = o->n_job;
    r.crew.work = work;
    r.crew.watch = on_watch;
    r.crew.ctx = &r;
    r.crew.interrupt = o->net.stop;
    r.net.stop = &r.crew.stop;
    r.net.note = on_note;
    r.net.note_ctx = &r;
    nb_status st = nb_hub_crew_init(&r.crew, err);
    r.http = calloc(o->n_job, sizeof(nb_hub_http *));
    if (st == NB_OK && !r.http) st = nb_fail(err, NB_ERR_NOMEM, "out of memory");
    if (st == NB_OK) st = nb_hub_store_init(&r.store, o->cache, o->id.repo, err);
    if (st == NB_OK) st = check_space(p, &r.store, err);
    if (st == NB_OK) st = nb_hub_store_make(&r.store, err);
    if (st == NB_OK) st = nb_hub_crew_run(&r.crew, err);
    if (st == NB_OK) st = nb_hub_store_ref(&r.store, o->id.revision, p->commit, err);
    for (size_t i = 0; r.http && i < o->n_job; i++) nb_hub_http_destroy(r.http[i]);
    free(r.http);
    nb_hub_store_deinit(&r.store);
    nb_hub_crew_deinit(&r.crew);
    return st;
}
