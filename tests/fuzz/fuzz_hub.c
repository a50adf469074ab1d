/* fuzz_hub.c - any bytes as an answer of the hub (commit, page of files, Link header), as a list of hashes
 * and as an id: what is accepted stays inside its folder, what is refused is one line. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "hub/list.h"
#include "hub/verify.h"
#include "load/hub.h"
#include "os/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void need(int ok)
{
    if (!ok) abort();
}

static void check_line(const nb_error *e, nb_status st)
{
    const char *end = memchr(e->msg, 0, sizeof e->msg);
    need(st < 0 && end && end > e->msg && e->status == st);
    for (const char *q = e->msg; q < end; q++) need((unsigned char)*q >= 0x20 && *q != 0x7f);
}

static void check_list(nb_str text)
{
    static const char *const include[] = { "*.json", "a[!b]?", "folder/" };
    static const char *const exclude[] = { "*\\*", "[" };
    nb_hub_list l = { 0 };
    nb_error e = { 0 };
    uint64_t sum = 0;
    nb_status st = nb_hub_parse_tree(text, "fuzz", &l, &e);
    if (st == NB_OK) st = nb_hub_list_sort(&l, "fuzz", &e);
    if (st != NB_OK) check_line(&e, st);
    for (size_t i = 0; i < l.n; i++) {
        const nb_hub_file *f = &l.file[i];
        need(nb_path_is_inside(f->path) && !strchr(f->path, '\\') && strlen(f->path) <= 1000);
        need(nb_hub_is_hash(f->hash));
        need(st != NB_OK || i == 0 || strcmp(l.file[i - 1].path, f->path) < 0);
        sum += f->n_bytes;
    }
    need(sum == l.n_bytes);
    const size_t before = l.n;
    nb_hub_list_select(&l, (nb_hub_globs){ 0 }, (nb_hub_globs){ exclude, 2 });
    need(l.n <= before && l.n_bytes <= sum);
    nb_hub_list_select(&l, (nb_hub_globs){ include, 3 }, (nb_hub_globs){ 0 });
    nb_hub_list_deinit(&l);
}

static void check_sums(nb_str text)
{
    nb_hub_checks c = { 0 };
    nb_error e = { 0 };
    const nb_status st = nb_hub_checks_sums(&c, text, "fuzz", &e);
    if (st != NB_OK) check_line(&e, st);
    for (size_t i = 0; i < c.n; i++)
        need(nb_path_is_inside(c.p[i].name) && strlen(c.p[i].hash) == 64 &&
             nb_hub_is_hash(c.p[i].hash));
    nb_hub_checks_deinit(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char *p = malloc(n + 1), commit[65] = "", url[64];
    nb_error e = { 0 };
    nb_hub_id id;
    if (!p) return 0;
    if (n) memcpy(p, data, n);
    p[n] = 0;
    const nb_str text = { p, n };
    const nb_status st = nb_hub_parse_commit(text, "fuzz", commit, &e);
    if (st == NB_OK)
        need(nb_hub_is_hash(commit));
    else
        check_line(&e, st);
    check_list(text);
    check_sums(text);
    if (nb_hub_next_page(p, url, sizeof url)) need(strlen(url) > 0 && strlen(url) < sizeof url);
    if (nb_hub_id_parse(p, &id)) need(nb_path_is_inside(id.repo) && nb_path_is_inside(id.revision));
    free(p);
    return 0;
}
