/* replay_testing.h - what the tests of replays share: traces in a folder of their own. */
#ifndef NB_TESTS_REPLAY_TESTING_H
#define NB_TESTS_REPLAY_TESTING_H
#include "load_testing.h"

#include "capacity/replay.h"

static tmp_dir dir;

static inline int make_dir(void **state)
{
    (void)state;
    tmp_open(&dir);
    return 0;
}
static inline int remove_dir(void **state)
{
    (void)state;
    tmp_close(&dir);
    return 0;
}

static inline const char *write_file(const char *name, const nb_buf *text)
{
    static char path[8][400];
    static size_t n;
    char *p = path[n++ % 8];
    nb_error e = { 0 };
    (void)snprintf(p, sizeof path[0], "%s/%s", dir.path, name);
    if (nb_file_write(p, text->p, text->n_bytes, &e) != NB_OK) fail_msg("%s", e.msg);
    return p;
}

static inline void line(nb_buf *to, double t_ms, size_t n_in, size_t n_out, const uint64_t *id,
                        size_t n_id)
{
    assert_int_equal(nb_buf_printf(to,
                                   "{\"timestamp\": %.17g, \"input_length\": %zu, "
                                   "\"output_length\": %zu, \"hash_ids\": [",
                                   t_ms, n_in, n_out),
                     NB_OK);
    for (size_t i = 0; i < n_id; i++)
        assert_int_equal(nb_buf_printf(to, "%s%llu", i ? ", " : "", (unsigned long long)id[i]),
                         NB_OK);
    assert_int_equal(nb_buf_add_c(to, "]}\n"), NB_OK);
}

static inline nb_mix_options stream(const char *const *path)
{
    return (nb_mix_options){ .path = path, .n_path = 1, .speed = 1, .seed = 1 };
}

#endif
