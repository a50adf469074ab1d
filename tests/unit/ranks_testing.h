/* ranks_testing.h - what tests of several ranks share: the GPUs they may have, and every checkpoint of tests/parity. */
#ifndef NB_TESTS_RANKS_TESTING_H
#define NB_TESTS_RANKS_TESTING_H
#include <dirent.h>

#include "engine_testing.h"

enum { MAX_MODEL = 60 };

/* The GPUs are those of the machine. */
static inline bool on_machine(void)
{
    const char *s = getenv("NB_TEST_CUDA");
    return s && *s;
}

/* Of CUDA or its emulation; NULL: there is none. */
static inline const char *library(void)
{
    const char *s = getenv(on_machine() ? "NB_TEST_CUDA" : "NB_CUDA_EMU_LIBRARY");
    return s && *s ? s : NULL;
}

/* Folders with a config.json; how many. */
static inline size_t parity_models(char name[MAX_MODEL][300])
{
    size_t n = 0;
    DIR *d = opendir(in_source("tests/parity"));
    assert_non_null(d);
    for (struct dirent *x; (x = readdir(d));) {
        assert_true(n < MAX_MODEL);
        (void)snprintf(name[n], sizeof name[n], "tests/parity/%.200s", x->d_name);
        char config[400];
        (void)snprintf(config, sizeof config, "%s/config.json", name[n]);
        if (x->d_name[0] != '.' && have_file(config)) n++;
    }
    (void)closedir(d);
    assert_true(n >= 20);
    return n;
}

#endif
