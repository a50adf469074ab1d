/* test_page.c - every embedded file of the page has its row in the table of routes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "serve/page.h"

static const nb_http_route *route_of(const char *path)
{
    for (size_t i = 0; i < nb_page_n_route; i++)
        if (strcmp(nb_page_route[i].path, path) == 0) return &nb_page_route[i];
    return NULL;
}

static void test_files_have_routes(void **state)
{
    (void)state;
    for (size_t i = 0; i < nb_page_n_files; i++) {
        const nb_page_file *f = &nb_page_files[i];
        const nb_http_route *r = route_of(f->path);
        if (!r) fail_msg("%s is embedded, but no route leads to it", f->path);
        assert_true(r->open); /* without the page there is nowhere to type a key */
        assert_true(f->body.n_bytes > 0);
        assert_true(f->etag[0] == '"' && strcmp(f->etag, f->gz_etag) != 0);
        assert_true(f->gz.n_bytes < f->body.n_bytes);
    }
}

static void test_routes_have_files(void **state)
{
    (void)state;
    if (nb_page_n_files == 0) skip(); /* a build without the page */
    for (size_t i = 0; i < nb_page_n_route; i++) {
        const nb_http_route *r = &nb_page_route[i];
        size_t n = 0;
        if (!r->open) { /* data */
            assert_int_equal(strncmp(r->path, "/api/", 5), 0);
            continue;
        }
        for (size_t k = 0; k < nb_page_n_files; k++) n += !strcmp(nb_page_files[k].path, r->path);
        if (n != 1) fail_msg("%s has a route and %zu files", r->path, n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files_have_routes),
        cmocka_unit_test(test_routes_have_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
