/* progress.c - a bar on standard error, when that is a terminal. */
#include <string.h>
#include <unistd.h>

#include "cli.h"

enum { BAR_CELLS = 32 };
static const double REDRAW_S = 0.05, QUIET_S = 0.2; /* nothing is drawn for what is over at once */

static struct {
    bool drawn, known, terminal;
    double begun, last;
    char label[64], tail[64];
} bar;

bool cli_progress_shown(void)
{
    if (!bar.known) {
        bar.known = true;
        bar.terminal = isatty(STDERR_FILENO) == 1;
    }
    return bar.terminal;
}

void cli_progress_tail(const char *text)
{
    (void)snprintf(bar.tail, sizeof bar.tail, "%s", text);
}

void cli_progress_end(void)
{
    if (!bar.drawn) return;
    (void)fputs("\r\033[K", stderr);
    (void)fflush(stderr);
    bar.drawn = false;
}

void cli_progress(void *ctx, const char *label, uint64_t done, uint64_t total)
{
    (void)ctx;
    if (!cli_progress_shown() || total == 0) return;
    const double now = cli_seconds();
    if (strncmp(bar.label, label, sizeof bar.label - 1) != 0) {
        (void)snprintf(bar.label, sizeof bar.label, "%s", label);
        bar.begun = now;
        bar.last = 0;
    }
    if (now - bar.begun < QUIET_S || (now - bar.last < REDRAW_S && done < total)) return;
    bar.last = now;
    bar.drawn = true;
    const double frac = done < total ? (double)done / (double)total : 1;
    const int full = (int)(frac * BAR_CELLS);
    (void)fprintf(stderr, "\r%s [", bar.label);
    for (int i = 0; i < BAR_CELLS; i++) (void)fputc(i < full ? '#' : ' ', stderr);
    (void)fprintf(stderr, "] %3.0f%%%s\033[K", frac * 100, bar.tail);
    (void)fflush(stderr);
}
