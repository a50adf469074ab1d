/* docs.c - see docs.h. */
#include "docs.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "../cli.h"

enum { PATH_BYTES = 4096 };

/* Makes the folders of a path, whose last part is a file. */
static void make_folders(char *path)
{
    for (char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
        *p = 0;
        (void)mkdir(path, 0777); /* if it cannot be made, the file cannot be written */
        *p = '/';
    }
}

static int write_file(const char *dir, const char *name, void (*print)(FILE *, const command *),
                      const command *c)
{
    char path[PATH_BYTES];
    const int n = snprintf(path, sizeof path, "%s/%s", dir, name);
    if (n < 0 || (size_t)n >= sizeof path) return cli_failed("%.80s: too long a path", dir);
    make_folders(path);
    FILE *f = fopen(path, "w");
    if (!f) return cli_failed("%s: %s", path, strerror(errno));
    print(f, c);
    const bool bad = ferror(f) != 0;
    return fclose(f) != 0 || bad ? cli_failed("%s: cannot be written", path) : CLI_OK;
}

int docs_write(const char *dir)
{
    int code = write_file(dir, "man/man1/nibble.1", docs_man, NULL);
    for (const command *c = commands; code == CLI_OK && c->name; c++) {
        char name[96];
        (void)snprintf(name, sizeof name, "man/man1/nibble-%.60s.1", c->name);
        for (char *p = name; *p; p++)
            if (*p == ' ') *p = '-';
        code = write_file(dir, name, docs_man, c);
    }
    if (code == CLI_OK)
        code = write_file(dir, "bash-completion/completions/nibble", docs_bash, NULL);
    if (code == CLI_OK) code = write_file(dir, "zsh/site-functions/_nibble", docs_zsh, NULL);
    if (code == CLI_OK)
        code = write_file(dir, "fish/vendor_completions.d/nibble.fish", docs_fish, NULL);
    return code;
}
