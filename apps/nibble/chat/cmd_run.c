/* cmd_run.c - `nibble run`: one prompt, one text. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "../cli.h"
#include "../json_out.h"
#include "../options/opts.h"
#include "../session.h"
#include "request.h"

enum { PROMPT_MAX_BYTES = 256 << 20 };

/* What goes in: given text (data) or ids; ids in the end. */
typedef struct run_input {
    char *data;
    size_t n_bytes;
    uint32_t *ids; /* malloc, or the library's with ids_of_nb */
    size_t n_ids;
    bool ids_of_nb;
} run_input;

static void input_deinit(run_input *in)
{
    free(in->data);
    if (in->ids_of_nb)
        nb_free(in->ids);
    else
        free(in->ids);
}

/* Reads what was given, before the model is loaded. */
static int read_input(const opts *o, run_input *in)
{
    if (o->tokens) return cli_read_ids(o->tokens, &in->ids, &in->n_ids);
    if (strcmp(o->prompt, "-") == 0)
        return cli_read_file("-", PROMPT_MAX_BYTES, &in->data, &in->n_bytes);
    in->n_bytes = strlen(o->prompt);
    in->data = malloc(in->n_bytes + 1);
    if (!in->data) return cli_failed("out of memory");
    memcpy(in->data, o->prompt, in->n_bytes + 1);
    return CLI_OK;
}

static int render_chat(const opts *o, const nb_text *text, run_input *in)
{
    nb_error err = { 0 };
    rendered r = { 0 };
    json_t *messages = json_array();
    int code = messages ? CLI_OK : cli_failed("out of memory");
    if (code == CLI_OK && o->system)
        code = request_add(messages, "system", o->system, strlen(o->system));
    if (code == CLI_OK) code = request_add(messages, "user", in->data, in->n_bytes);
    if (code == CLI_OK) {
        const nb_status st = request_render(text, messages, &r, &err);
        if (st != NB_OK) code = cli_status(st, &err);
    }
    json_decref(messages);
    if (code != CLI_OK) return code;
    in->ids = r.ids;
    in->n_ids = r.n_ids;
    in->ids_of_nb = true;
    nb_free(r.text);
    return CLI_OK;
}

static int make_ids(const opts *o, const session *s, run_input *in)
{
    nb_error err = { 0 };
    if (o->tokens) return CLI_OK;
    if (!s->text)
        return cli_failed("%s: no tokenizer; give the prompt as token ids with --tokens", o->model);
    if (o->chat || o->system) return render_chat(o, s->text, in);
    const unsigned flags = (o->add_special ? (unsigned)NB_TEXT_ADD_SPECIAL : 0) |
                           (o->parse_special ? (unsigned)NB_TEXT_PARSE_SPECIAL : 0);
    const nb_status st =
        nb_text_tokenize(s->text, in->data, in->n_bytes, flags, &in->ids, &in->n_ids, &err);
    if (st != NB_OK) return cli_status(st, &err);
    in->ids_of_nb = true;
    return CLI_OK;
}

static void print_logprobs(const session_logprobs *l)
{
    const nb_token_logprob *p = l->items;
    (void)fputs(",\"logprobs\":[", stdout);
    for (size_t i = 0; i < l->n_tok; i++) {
        (void)printf("%s{\"id\":%" PRIu32 ",\"logprob\":", i ? "," : "", p->id);
        jout_logprob(stdout, p->logprob);
        (void)fputs(",\"top\":[", stdout);
        p++;
        for (size_t k = 0; k < l->n_top[i]; k++, p++) {
            (void)printf("%s{\"id\":%" PRIu32 ",\"logprob\":", k ? "," : "", p->id);
            jout_logprob(stdout, p->logprob);
            (void)fputc('}', stdout);
        }
        (void)fputs("]}", stdout);
    }
    (void)fputc(']', stdout);
}

static void print_json(const run_input *in, const nb_result *r, const session_logprobs *l)
{
    (void)fputs("{\"prompt_tokens\":", stdout);
    jout_ids(stdout, in->ids, in->n_ids);
    (void)fputs(",\"tokens\":", stdout);
    jout_ids(stdout, r->tokens, r->n_tokens);
    (void)fputs(",\"text\":", stdout);
    jout_str(stdout, r->text ? r->text : "", r->text ? r->text_bytes : 0);
    (void)fputs(",\"finish_reason\":", stdout);
    jout_str(stdout, r->finish_reason, strlen(r->finish_reason));
    if (l) print_logprobs(l);
    (void)fputs("}\n", stdout);
}

static int generate(const opts *o, session *s, const run_input *in)
{
    nb_error err = { 0 };
    nb_result r = { 0 };
    session_logprobs lp = { 0 };
    const bool want_lp = o->json && o->sampling.n_logprobs >= 0;
    const session_request rq = { .prompt = in->ids,
                                 .n_prompt = in->n_ids,
                                 .sampling = opts_sampling(o),
                                 .stream = !o->json,
                                 .logprobs = want_lp ? &lp : NULL };
    session_catch_interrupts(true);
    if (o->echo && !o->json && in->data) (void)fwrite(in->data, 1, in->n_bytes, stdout);
    const nb_status st = session_generate(s, &rq, &r, &err);
    int code = CLI_OK;
    if (st != NB_OK) {
        code = cli_status(st, &err);
    } else if (cli_out_ok()) {
        if (o->json) {
            print_json(in, &r, rq.logprobs);
        } else {
            (void)fputc('\n', stdout);
            if (o->stats) session_print_stats(s, &r, true);
        }
        if (session_interrupted()) code = cli_failed("interrupted");
    }
    if (st == NB_OK) nb_result_deinit(&r);
    session_logprobs_deinit(&lp);
    return code;
}

int cmd_run(const opts *o)
{
    if (!o->prompt == !o->tokens)
        return cli_usage("run: give the prompt with -p TEXT or with --tokens FILE%s",
                         o->prompt ? ", not both" : "");
    if (o->tokens && (o->chat || o->system))
        return cli_usage("run: --chat and --system go with -p, not with --tokens");
    if (o->prompt && o->skip_tokenizer_init)
        return cli_usage("run: -p needs the tokenizer that --skip-tokenizer-init leaves out");
    run_input in = { 0 };
    session s = { 0 };
    int code = read_input(o, &in);
    if (code == CLI_OK && o->tokens && in.n_ids == 0)
        code = cli_failed("%s: no tokens: expected at least one", o->tokens);
    if (code == CLI_OK) code = session_open(o, false, &s);
    if (code == CLI_OK) code = make_ids(o, &s, &in);
    if (code == CLI_OK && in.n_ids == 0)
        code = cli_failed("the prompt has no tokens: expected at least one");
    if (code == CLI_OK) code = generate(o, &s, &in);
    session_close(&s);
    input_deinit(&in);
    return code;
}
