/* hub_setup.c - see hub_setup.h. */
#include "hub_setup.h"

#include <signal.h>
#include <string.h>

#include "cli.h"

static atomic_bool interrupted;
static const double LINE_S = 10, SLOW_S = 1; /* a rate of less time than that means nothing */

static void on_signal(int sig)
{
    (void)sig;
    atomic_store(&interrupted, true);
}

const atomic_bool *hub_catch_signals(void)
{
    struct sigaction a;
    memset(&a, 0, sizeof a);
    (void)sigemptyset(&a.sa_mask);
    a.sa_handler = on_signal;
    a.sa_flags = (int)SA_RESETHAND;
    (void)sigaction(SIGINT, &a, NULL);
    (void)sigaction(SIGTERM, &a, NULL);
    (void)signal(SIGXFSZ, SIG_IGN); /* a limit on the size of files is an error of write() */
    return &interrupted;
}

static void on_note(void *ctx, const char *line)
{
    (void)ctx;
    cli_note("%s", line);
}

static bool is_near(const char *endpoint)
{
    static const char *const near[] = { "http://localhost", "http://127.", "http://[::1]" };
    for (size_t i = 0; i < sizeof near / sizeof *near; i++)
        if (strncmp(endpoint, near[i], strlen(near[i])) == 0) return true;
    return false;
}

int hub_setup_init(const opts *o, hub_setup *s)
{
    static char agent[64];
    nb_error err = { 0 };
    memset(s, 0, sizeof *s);
    const nb_status st = nb_hub_settings_read(&s->settings, &err);
    if (st != NB_OK) return st == NB_ERR_ARG ? cli_usage("%s", err.msg) : cli_status(st, &err);
    (void)snprintf(agent, sizeof agent, "nibble/%s", nb_version());
    s->net = nb_hub_settings_net(&s->settings, agent);
    s->net.stop = hub_catch_signals();
    s->net.note = on_note;
    s->cache = o->hub.cache_dir ? o->hub.cache_dir : s->settings.cache.p;
    if (!*s->cache) return cli_usage("--cache-dir: an empty path");
    if (s->net.token && strncmp(s->net.endpoint, "http://", 7) == 0 && !is_near(s->net.endpoint))
        cli_note("warning: %s is not encrypted, and the token is sent to it", s->net.endpoint);
    return CLI_OK;
}

void hub_setup_deinit(hub_setup *s)
{
    nb_hub_settings_deinit(&s->settings);
}

void hub_size(uint64_t n_bytes, char out[HUB_SIZE_BYTES])
{
    static const char *const unit[] = { "B", "kB", "MB", "GB", "TB" };
    double x = (double)n_bytes;
    size_t i = 0;
    for (; x >= 1000 && i + 1 < sizeof unit / sizeof *unit; i++) x /= 1000;
    (void)snprintf(out, HUB_SIZE_BYTES, i ? "%.1f %s" : "%.0f %s", x, unit[i]);
}

void hub_progress(const char *what, uint64_t done, uint64_t total)
{
    static double begun, line_at;
    static uint64_t first;
    const double now = cli_seconds();
    char text[64], a[HUB_SIZE_BYTES], b[HUB_SIZE_BYTES];
    if (begun <= 0 || done < first) {
        begun = line_at = now;
        first = done;
    }
    const double rate = now - begun > SLOW_S ? (double)(done - first) / (now - begun) : 0;
    if (cli_progress_shown() && rate > 0) {
        const double left = (double)(total - done) / rate;
        const unsigned long left_s = left < 1e6 ? (unsigned long)left : 999999;
        hub_size((uint64_t)rate, a);
        (void)snprintf(text, sizeof text, "  %s/s, %lu:%02lu left", a, left_s / 60, left_s % 60);
        cli_progress_tail(text);
    }
    cli_progress(NULL, what, done, total);
    if (cli_progress_shown() || now - line_at < LINE_S) return;
    line_at = now;
    hub_size(done, a);
    hub_size(total, b);
    cli_note("%s: %s of %s", what, a, b);
}
