/* cmd_chat.c - `nibble chat`: a conversation.
 *
 * The conversation is a list of messages that is rendered anew each turn; the engine
 * finds the pages of the beginning again by itself.  A model without a chat template is
 * used as it is: the text so far is continued. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../cli.h"
#include "../options/opts.h"
#include "../out_file.h"
#include "../session.h"
#include "line.h"
#include "request.h"

typedef struct chat {
    const opts *o;
    session s;
    line_reader *lines;
    nb_sampling sampling;
    json_t *messages; /* with a template */
    bool has_template, stats, leave;
    char *transcript; /* without: everything so far */
    size_t n_transcript, cap_transcript;
    nb_result last; /* statistics of the last answer; its texts are freed */
    bool has_last;
    int code;
} chat;

/* ---- the conversation -------------------------------------------------------- */

static bool append(chat *c, const char *s, size_t n)
{
    if (c->n_transcript + n + 1 > c->cap_transcript) {
        const size_t cap = (c->n_transcript + n + 1) * 2;
        char *p = realloc(c->transcript, cap);
        if (!p) {
            c->code = cli_failed("out of memory");
            return false;
        }
        c->transcript = p;
        c->cap_transcript = cap;
    }
    memcpy(c->transcript + c->n_transcript, s, n);
    c->n_transcript += n;
    c->transcript[c->n_transcript] = 0;
    return true;
}

static bool has_system(const chat *c)
{
    const char *role = json_string_value(json_object_get(json_array_get(c->messages, 0), "role"));
    return role && strcmp(role, "system") == 0;
}

/* Sets, replaces or (empty text) removes the system message. */
static int set_system(chat *c, const char *text)
{
    json_t *one = json_array();
    int code = one ? CLI_OK : cli_failed("out of memory");
    if (code == CLI_OK && *text) code = request_add(one, "system", text, strlen(text));
    if (code == CLI_OK) {
        if (has_system(c)) (void)json_array_remove(c->messages, 0);
        if (*text && json_array_insert(c->messages, 0, json_array_get(one, 0)) != 0)
            code = cli_failed("out of memory");
    }
    json_decref(one);
    return code;
}

static void forget(chat *c)
{
    json_t *system = has_system(c) ? json_incref(json_array_get(c->messages, 0)) : NULL;
    (void)json_array_clear(c->messages);
    if (system) (void)json_array_append_new(c->messages, system);
    c->n_transcript = 0;
}

/* Whether the model can render a conversation at all. */
static int probe_template(chat *c)
{
    nb_error err = { 0 };
    rendered r = { 0 };
    json_t *m = json_array();
    int code = m ? request_add(m, "user", "?", 1) : cli_failed("out of memory");
    if (code == CLI_OK) {
        const nb_status st = request_render(c->s.text, m, &r, &err);
        c->has_template = st == NB_OK;
        if (st == NB_ERR_NOT_FOUND)
            cli_note("%s has no chat template: your lines are continued as plain text",
                     c->o->model);
        else if (st != NB_OK)
            code = cli_status(st, &err);
        rendered_deinit(&r);
    }
    json_decref(m);
    return code;
}

/* The tokens of the conversation with a new line at its end. */
static nb_status prompt_of(chat *c, rendered *r, nb_error *err)
{
    if (c->has_template) return request_render(c->s.text, c->messages, r, err);
    return nb_text_tokenize(c->s.text, c->transcript, c->n_transcript, NB_TEXT_ADD_SPECIAL, &r->ids,
                            &r->n_ids, err);
}

/* Takes the last line back after a failure, so that the conversation can go on. */
static void take_back(chat *c, size_t n_transcript)
{
    if (c->has_template) (void)json_array_remove(c->messages, json_array_size(c->messages) - 1);
    c->n_transcript = n_transcript;
}

static void keep_answer(chat *c, nb_result *r)
{
    int code = CLI_OK;
    if (c->has_template)
        code = request_add(c->messages, "assistant", r->text, r->text_bytes);
    else if (append(c, r->text, r->text_bytes))
        (void)append(c, "\n", 1);
    if (code != CLI_OK) c->code = code;
    c->last = *r;
    c->has_last = true;
    nb_result_deinit(r);
    c->last.text = NULL;
    c->last.tokens = NULL;
}

static bool too_long(const chat *c, size_t n_prompt)
{
    if (n_prompt < c->s.info.max_model_len) return false;
    cli_note(
        "the conversation has %zu tokens, the context %zu: this line was not sent (/reset begins "
        "anew)",
        n_prompt, c->s.info.max_model_len);
    return true;
}

static void answer(chat *c, const char *line)
{
    nb_error err = { 0 };
    rendered r = { 0 };
    const size_t before = c->n_transcript;
    if (c->has_template) {
        if (request_add(c->messages, "user", line, strlen(line)) != CLI_OK) return;
    } else if (!append(c, line, strlen(line))) {
        return;
    }
    nb_status st = prompt_of(c, &r, &err);
    if (st != NB_OK || too_long(c, r.n_ids)) {
        if (st != NB_OK) c->code = cli_status(st, &err);
        take_back(c, before);
        rendered_deinit(&r);
        return;
    }
    session_request rq = {
        .prompt = r.ids, .n_prompt = r.n_ids, .sampling = c->sampling, .stream = true
    };
    const size_t room = c->s.info.max_model_len - r.n_ids;
    const bool cut = rq.sampling.max_tokens > room;
    if (cut) rq.sampling.max_tokens = room;
    if (rq.sampling.min_tokens > rq.sampling.max_tokens)
        rq.sampling.min_tokens = rq.sampling.max_tokens;
    nb_result result = { 0 };
    (void)session_interrupted();
    st = session_generate(&c->s, &rq, &result, &err);
    (void)session_interrupted(); /* it was meant for the answer */
    rendered_deinit(&r);
    if (st != NB_OK) {
        if (st == NB_ERR_CANCELLED)
            cli_note("stopped before the answer began");
        else
            c->code = cli_status(st, &err);
        cli_note("this line was not answered; /reset begins anew");
        take_back(c, before);
        return;
    }
    (void)fputc('\n', stdout);
    (void)fflush(stdout);
    if (cut && strcmp(result.finish_reason, "length") == 0)
        cli_note("the context of %zu tokens is full (/reset begins anew)", c->s.info.max_model_len);
    keep_answer(c, &result);
    if (c->stats) session_print_stats(&c->s, &c->last, false);
}

/* ---- commands ------------------------------------------------------------------- */

static void do_help(chat *c, const char *arg);

static void do_reset(chat *c, const char *arg)
{
    (void)arg;
    forget(c);
    if (line_interactive(c->lines)) (void)fputs("the conversation begins anew\n", stderr);
}

static void do_system(chat *c, const char *arg)
{
    if (!c->has_template)
        cli_note("without a chat template there are no system messages");
    else
        (void)set_system(c, arg);
}

static void do_stats(chat *c, const char *arg)
{
    if (strcmp(arg, "on") == 0 || strcmp(arg, "off") == 0)
        c->stats = arg[1] == 'n';
    else if (*arg)
        cli_note("/stats %s: expected on, off or nothing", arg);
    else if (c->has_last)
        session_print_stats(&c->s, &c->last, true);
    else
        cli_note("no answer yet");
}

static void do_seed(chat *c, const char *arg)
{
    char *end;
    errno = 0;
    const unsigned long long v = strtoull(arg, &end, 10);
    if (*arg < '0' || *arg > '9' || *end || errno)
        cli_note("/seed %s: expected an integer >= 0", arg);
    else
        c->sampling.seed = v;
}

static void do_temperature(chat *c, const char *arg)
{
    char *end;
    const double v = strtod(arg, &end);
    if (!*arg || *end || !(v >= 0 && v <= 1e30))
        cli_note("/temperature %s: expected a number >= 0", arg);
    else
        c->sampling.temperature = v;
}

static void do_save(chat *c, const char *arg)
{
    if (!*arg) {
        cli_note("/save: the name of a file is missing");
        return;
    }
    out_file out = { 0 };
    int code = out_file_open(&out, arg);
    bool ok = true;
    if (code == CLI_OK && c->has_template)
        ok = json_dumpf(c->messages, out.f, JSON_INDENT(2)) == 0 && fputc('\n', out.f) != EOF;
    else if (code == CLI_OK && c->n_transcript)
        ok = fwrite(c->transcript, 1, c->n_transcript, out.f) == c->n_transcript;
    if (!ok) code = out_file_failed(arg);
    code = out_file_close(&out, arg, code);
    if (code == CLI_OK && line_interactive(c->lines)) (void)fprintf(stderr, "saved to %s\n", arg);
}

static void do_exit(chat *c, const char *arg)
{
    (void)arg;
    c->leave = true;
}

static const struct chat_command {
    const char *name, *arg, *help;
    void (*run)(chat *c, const char *arg);
} chat_commands[] = {
    { "/help", "", "this list", do_help },
    { "/reset", "", "forget the conversation, not the system message", do_reset },
    { "/system", "TEXT", "set the system message; without TEXT remove it", do_system },
    { "/stats", "[on|off]", "statistics of the last answer, or after each answer", do_stats },
    { "/seed", "N", "seed of the answers from now on", do_seed },
    { "/temperature", "X", "temperature of the answers from now on; 0: greedy", do_temperature },
    { "/save", "FILE", "write the conversation as JSON messages", do_save },
    { "/exit", "", "leave, as Ctrl-D does", do_exit },
};

static void do_help(chat *c, const char *arg)
{
    (void)c;
    (void)arg;
    for (size_t i = 0; i < sizeof chat_commands / sizeof *chat_commands; i++)
        (void)fprintf(stderr, "%s %-*s %s\n", chat_commands[i].name,
                      (int)(22 - strlen(chat_commands[i].name)), chat_commands[i].arg,
                      chat_commands[i].help);
    (void)fputs("A line that ends with \\ goes on in the next one.  Ctrl-C stops an answer.\n",
                stderr);
}

static void command_line(chat *c, const char *line)
{
    const size_t n = strcspn(line, " \t");
    const char *arg = line + n + strspn(line + n, " \t");
    for (size_t i = 0; i < sizeof chat_commands / sizeof *chat_commands; i++) {
        if (strlen(chat_commands[i].name) != n || memcmp(line, chat_commands[i].name, n) != 0)
            continue;
        chat_commands[i].run(c, arg);
        return;
    }
    cli_note("%.*s: unknown command; /help lists them", (int)n, line);
}

/* ---- the loop --------------------------------------------------------------------- */

/* One entry: lines joined where they end with a backslash.  *entry is free()d by the caller. */
static line_kind read_entry(chat *c, char **entry)
{
    char *all = NULL;
    size_t n_all = 0;
    bool more = false;
    for (;;) {
        const char *text;
        const line_kind kind = line_read(c->lines, more, &text);
        if (kind != LINE_TEXT) {
            if (kind == LINE_END && all) break; /* what there is counts */
            free(all);
            return more && kind == LINE_INTERRUPT_EMPTY ? LINE_INTERRUPT : kind;
        }
        size_t n = strlen(text);
        more = n > 0 && text[n - 1] == '\\';
        if (more) n--;
        char *p = realloc(all, n_all + n + 2);
        if (!p) {
            free(all);
            return LINE_END;
        }
        all = p;
        memcpy(all + n_all, text, n);
        n_all += n;
        if (more) all[n_all++] = '\n';
        all[n_all] = 0;
        if (!more) break;
    }
    *entry = all;
    return LINE_TEXT;
}

static void converse(chat *c)
{
    bool warned = false;
    while (!c->leave && cli_out_ok()) {
        char *entry = NULL;
        const line_kind kind = read_entry(c, &entry);
        if (kind == LINE_END) break;
        if (kind == LINE_INTERRUPT_EMPTY) {
            if (warned || !line_interactive(c->lines)) break;
            (void)fputs("Ctrl-C again or Ctrl-D leaves\n", stderr);
        }
        warned = kind == LINE_INTERRUPT_EMPTY;
        if (kind != LINE_TEXT) continue;
        line_remember(c->lines, entry);
        if (entry[0] == '/')
            command_line(c, entry);
        else if (entry[strspn(entry, " \t\n")])
            answer(c, entry);
        free(entry);
    }
}

/* $XDG_STATE_HOME/nibble/history, made on the way; NULL when there is no place for it. */
static char *history_path(void)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    const bool xdg = state && state[0] == '/';
    const char *base = xdg ? state : home && *home ? home : NULL;
    if (!base) return NULL;
    const size_t n = strlen(base) + 64;
    char *p = malloc(n);
    if (!p) return NULL;
    (void)snprintf(p, n, xdg ? "%s/nibble/history" : "%s/.local/state/nibble/history", base);
    for (char *s = p + 1; *s; s++) {
        if (*s != '/') continue;
        *s = 0;
        (void)mkdir(p, 0700); /* where it cannot be made, there is no history */
        *s = '/';
    }
    return p;
}

static void greet(const chat *c)
{
    if (!line_interactive(c->lines)) return;
    (void)fprintf(stderr,
                  "%s, cache %s, %zu tokens of context; /help lists commands, Ctrl-D leaves\n",
                  c->s.info.family, c->s.info.kv_dtype, c->s.info.max_model_len);
}

int cmd_chat(const opts *o)
{
    chat c = { .o = o, .sampling = opts_sampling(o), .stats = o->stats };
    char *history = NULL;
    c.code = session_open(o, true, &c.s);
    if (c.code == CLI_OK && !c.s.text) c.code = cli_failed("%s: no tokenizer", o->model);
    if (c.code == CLI_OK) c.code = probe_template(&c);
    c.messages = json_array();
    if (c.code == CLI_OK && !c.messages) c.code = cli_failed("out of memory");
    if (c.code == CLI_OK && o->system && c.has_template) c.code = set_system(&c, o->system);
    if (c.code == CLI_OK) {
        history = o->history ? history_path() : NULL;
        c.lines = line_create(history);
        if (!c.lines) c.code = cli_failed("out of memory");
    }
    if (c.code == CLI_OK) {
        session_catch_interrupts(false);
        greet(&c);
        converse(&c);
        /* A person has seen what went wrong; a script looks at the exit code. */
        if (line_interactive(c.lines)) c.code = CLI_OK;
    }
    line_destroy(c.lines);
    free(history);
    json_decref(c.messages);
    free(c.transcript);
    session_close(&c.s);
    return c.code;
}
