/* opts_help.c - `nibble COMMAND --help`, from the tables in opts_table*.c, for a terminal of 80 columns. */
#include <stdio.h>
#include <string.h>

#include "../cli.h"
#include "opts_table.h"
#include "serve/serve.h"

enum { HELP_COLUMN = 27, FIELD_COLUMN = 33, HELP_WIDTH = 79, TEXT_BYTES = OPT_TEXT_BYTES };

const char *const opts_group_names[N_GROUP] = { "Input",
                                                "Output",
                                                "Sampling",
                                                "Model and engine",
                                                "Server",
                                                "Requests",
                                                "Options of vLLM, SGLang and llama.cpp" };

const char opts_model_text[] =
    "MODEL is a directory with a Hugging Face checkpoint, the id of a model in the local hub cache, "
    "such as deepseek-ai/DeepSeek-V2-Lite (`nibble pull` downloads it), or nibble-tiny, the model "
    "that comes with nibble. With dummy weights a config.json is enough; tokenize and render need "
    "the files of a tokenizer only.";

static const char *const about_model[] = { opts_model_text, NULL };
static const char *const about_pull[] = {
    "Without --include it downloads what nibble reads: the configuration, the tokenizer, *.safetensors, "
    "the licence and the README. Every file is checked against the hub's hash. After an interruption the "
    "same command goes on with what is missing.",
    "Environment: HF_TOKEN (or a file: HF_TOKEN_PATH, HF_HOME/token) for private and gated models; "
    "HF_HUB_CACHE or HF_HOME, where the cache is; HF_ENDPOINT, another hub; HF_HUB_OFFLINE; "
    "HF_HUB_DOWNLOAD_TIMEOUT, the seconds without a byte after which it tries again (10); http_proxy, "
    "https_proxy, no_proxy; CURL_CA_BUNDLE or SSL_CERT_FILE, certificates to trust.",
    NULL
};

const char *const *opts_about(const command *c)
{
    static const char *const nothing[] = { NULL };
    return c->model == MODEL_NONE ? nothing : c->model == MODEL_ID ? about_pull : about_model;
}

/* text wrapped at HELP_WIDTH, from the column where the cursor is now. */
static void print_wrapped(const char *text, size_t column)
{
    size_t at = column;
    while (*text) {
        const size_t n = strcspn(text, " ");
        if (at > column && at + 1 + n > HELP_WIDTH) {
            (void)printf("\n%*s", (int)column, "");
            at = column;
        } else if (at > column) {
            (void)fputc(' ', stdout);
            at++;
        }
        (void)fwrite(text, 1, n, stdout);
        at += n;
        text += n + (text[n] == ' ');
    }
    (void)fputc('\n', stdout);
}

void opts_head(const opt_row *r, char *out)
{
    int n = 0;
    if (r->dash)
        n = snprintf(out, OPT_TEXT_BYTES, "-%s, ", r->dash);
    else if (r->letter)
        n = snprintf(out, OPT_TEXT_BYTES, "-%c, ", r->letter);
    (void)snprintf(out + n, OPT_TEXT_BYTES - (size_t)n, "--%s%s%s%s",
                   r->type == OPT_BOOL ? "[no-]" : "", r->name, r->arg ? " " : "",
                   r->arg ? r->arg : "");
}

/* Appends remarks in brackets: "(A; B". */
typedef struct remarks {
    char *out;
    bool any;
} remarks;

static void remark(remarks *m, const char *a, const char *b)
{
    const size_t at = strlen(m->out);
    (void)snprintf(m->out + at, OPT_TEXT_BYTES - at, "%s%s%s", m->any ? "; " : " (", a, b);
    m->any = true;
}

/* "a|b|c" as "a, b, c", with `before` in front of each. */
static void list_of(const char *words, const char *before, char *out, size_t n)
{
    size_t at = 0;
    out[0] = 0;
    for (const char *p = words; *p && at < n;) {
        const size_t k = strcspn(p, "|");
        at += (size_t)snprintf(out + at, n - at, "%s%s%.*s", at ? ", " : "", before, (int)k, p);
        p += k + (p[k] == '|');
    }
}

/* "1 to 1024", "at least 1"; nothing where every sensible number is taken. */
static void range_of(const opt_row *r, char *out, size_t n)
{
    const bool any_above = r->hi >= 1e6;
    out[0] = 0;
    if (r->type != OPT_NUM && r->type != OPT_SIZE && r->type != OPT_INT) return;
    if (!any_above)
        (void)snprintf(out, n, r->lo_open ? "above %g, up to %g" : "%g to %g", r->lo, r->hi);
    else if (r->lo_open)
        (void)snprintf(out, n, "above %g", r->lo);
    else if (r->lo > 0)
        (void)snprintf(out, n, "at least %g", r->lo);
}

/* The help of an option of nibble, with its choices, range, default and other names. */
static void text_of(const opt_row *r, char *out)
{
    char words[OPT_TEXT_BYTES];
    remarks m = { .out = out };
    (void)snprintf(out, OPT_TEXT_BYTES, "%s", r->help);
    if (r->type == OPT_CHOICE) {
        list_of(r->choices, "", words, sizeof words);
        remark(&m, words, "");
    }
    range_of(r, words, sizeof words);
    if (*words && r->type != OPT_CHOICE) remark(&m, words, "");
    if (r->unset)
        remark(&m, "default: ", r->unset);
    else if (r->type == OPT_BOOL)
        remark(&m, "default: ", r->def ? "on" : "off");
    else if (r->def && *r->def)
        remark(&m, "default: ", r->def);
    else if (r->type == OPT_SIZE && r->lo <= 0)
        remark(&m, "default: ", "0");
    if (r->alias) {
        list_of(r->alias, "--", words, sizeof words);
        remark(&m, "also ", words);
    }
    if (m.any) (void)snprintf(out + strlen(out), OPT_TEXT_BYTES - strlen(out), ")");
}

/* Of an option of another server: what is accepted, and why it does nothing or is refused. */
static void foreign_text_of(const opt_row *r, char *out)
{
    const char *slash = r->choices ? strrchr(r->choices, '|') : NULL;
    if (r->type == OPT_IGNORE || r->type == OPT_IGNORE_VALUE)
        (void)snprintf(out, TEXT_BYTES, "ignored: %s", r->help);
    else if (r->type == OPT_ONLY && *r->choices)
        (void)snprintf(out, TEXT_BYTES, "only %s: %s", slash ? slash + 1 : r->choices, r->help);
    else if (r->type == OPT_ONLY_ON)
        (void)snprintf(out, TEXT_BYTES, "always on: %s", r->help);
    else
        (void)snprintf(out, TEXT_BYTES, "refused: %s", r->help);
}

void opts_text(const opt_row *r, char *out)
{
    if (r->group == GROUP_FOREIGN)
        foreign_text_of(r, out);
    else
        text_of(r, out);
}

static void print_row(const opt_row *r)
{
    char head[OPT_TEXT_BYTES], text[OPT_TEXT_BYTES];
    opts_head(r, head);
    opts_text(r, text);
    const int at = printf("%s%s", head[1] == '-' ? "      " : "  ", head);
    (void)printf(at >= HELP_COLUMN ? "\n%*s" : "%*s",
                 at >= HELP_COLUMN ? HELP_COLUMN : HELP_COLUMN - at, "");
    print_wrapped(text, HELP_COLUMN);
}

/* Whether `what` of opts_print_help asks for a row. */
static bool is_wanted(const opt_row *r, const char *what)
{
    char name[OPT_NAME_BYTES];
    if (!*what) return r->group != GROUP_FOREIGN;
    if (strcmp(what, "all") == 0) return true;
    if (!opts_canonical(what, strlen(what), name)) return false;
    return strstr(r->name, name) || (r->alias && strstr(r->alias, name)) ||
           (r->dash && strcmp(r->dash, what) == 0) || strstr(r->help, what);
}

static size_t print_options(const command *c, const char *what)
{
    const opt_row *r;
    size_t n = 0;
    for (unsigned g = 0; g < N_GROUP; g++) {
        bool any = false;
        for (size_t i = 0; (r = opts_row_at(i)) != NULL; i++) {
            if (!(r->cmds & c->bit) || r->group != g || !is_wanted(r, what)) continue;
            if (!any) (void)printf("\n%s\n", opts_group_names[g]);
            any = true;
            n++;
            print_row(r);
        }
    }
    return n;
}

/* Each line of `lines` with what goes before the first and before the others. */
static void print_lines(const char *lines, const char *first, const char *others, const char *name)
{
    for (const char *p = lines; *p;) {
        const size_t n = strcspn(p, "\n");
        (void)printf("%snibble %s %.*s\n", p == lines ? first : others, name, (int)n, p);
        p += n + (p[n] == '\n');
    }
}

/* What `serve` does with each field of a request. */
static void print_fields(void)
{
    static const struct {
        nb_field_kind kind;
        bool on_template;
        const char *title;
    } kinds[] = {
        { NB_FIELD_OBEYED, false, "Obeyed" },
        { NB_FIELD_OBEYED, true, "Obeyed where the chat template takes it" },
        { NB_FIELD_HARMLESS, false, "Ignored, as it cannot change the answer" },
        { NB_FIELD_WARNED, false, "Ignored, with one warning in the log" },
        { NB_FIELD_REFUSED, false, "Refused with status 400, unless the value asks for nothing" },
    };
    nb_serve_field f;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        (void)printf("%s%s\n", k ? "\n" : "", kinds[k].title);
        for (size_t i = 0; nb_serve_field_at(i, &f); i++) {
            const bool on_template = f.unless_shown != NB_FIELD_OBEYED;
            char text[TEXT_BYTES];
            if (f.kind != kinds[k].kind || on_template != kinds[k].on_template) continue;
            (void)snprintf(text, sizeof text, "%s%s%s%s%s%s%s%s%s%s", f.chat ? "chat" : "",
                           f.chat && f.completions ? ", " : "", f.completions ? "completions" : "",
                           f.messages && (f.chat || f.completions) ? ", " : "",
                           f.messages ? "messages" : "",
                           f.responses && (f.chat || f.completions || f.messages) ? ", " : "",
                           f.responses ? "responses" : "", *f.note || on_template ? ": " : "",
                           !on_template                         ? ""
                           : f.unless_shown == NB_FIELD_REFUSED ? "else refused: "
                                                                : "else ignored with a warning: ",
                           f.note);
            (void)printf("  %-*s", FIELD_COLUMN - 2, f.name);
            print_wrapped(text, FIELD_COLUMN);
        }
    }
    (void)puts("\nOther fields are ignored. null is the same as absent.");
}

void opts_print_help(const command *c, const char *what)
{
    if (c->bit == CMD_SERVE && strcmp(what, "fields") == 0) {
        print_fields();
        return;
    }
    const bool all = !*what || strcmp(what, "all") == 0;
    if (all) {
        char title[256];
        (void)snprintf(title, sizeof title, "nibble %s: %s", c->name, c->help);
        print_wrapped(title, 0);
        (void)fputc('\n', stdout);
        print_lines(c->forms, "usage: ", "       ", c->name);
        if (c->examples) {
            (void)puts("\nExamples");
            print_lines(c->examples, "  ", "  ", c->name);
        }
        for (const char *const *p = opts_about(c); *p; p++) {
            (void)putchar('\n');
            print_wrapped(*p, 0);
        }
    }
    const size_t n = print_options(c, what);
    if (n == 0)
        (void)printf("No option of `nibble %s` has \"%s\" in its name or help.\n", c->name, what);
    if (all && c->bit == CMD_SERVE)
        (void)printf(
            "\n`nibble serve --help=all` also lists the options of other servers that are known\n"
            "and have no effect here; `--help=TEXT` searches.\n"
            "`nibble serve --help=fields` lists the fields of requests.\n");
    if (all) (void)puts("\nExit codes: 0 done, 1 failed, 2 wrong usage.");
}
