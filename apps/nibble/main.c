/* main.c - `nibble`: the command and its subcommands. */
#include <signal.h>
#include <string.h>

#include "nb_config.h"
#include "nibble/nibble.h"

#include "cli.h"
#include "opts.h"

// clang-format off
const command commands[] = {
    { "run", CMD_RUN, "MODEL -p TEXT [options]\nMODEL --tokens FILE [options]",
      "generates text from a prompt", cmd_run },
    { "chat", CMD_CHAT, "MODEL [options]",
      "a conversation; /help there lists its commands", cmd_chat },
    { "info", CMD_INFO, "MODEL [options]",
      "geometry, parameters and bytes of KV cache per token of a model", cmd_info },
    { "logits", CMD_LOGITS, "MODEL --tokens FILE --output FILE [--rows LIST] [options]",
      "writes the logits at chosen positions as raw float32", cmd_logits },
    { "tokenize", CMD_TOKENIZE, "MODEL --file FILE [options]\nMODEL -p TEXT [options]\nMODEL --decode FILE [options]",
      "turns text into token ids, or ids into text", cmd_tokenize },
    { "render", CMD_RENDER, "MODEL --messages FILE [options]",
      "renders messages with the chat template", cmd_render },
    { 0 }
};
// clang-format on

static void print_help(void)
{
    (void)puts("nibble serves language models with latent attention from a 4-bit "
               "KV cache.\n\n"
               "usage: nibble COMMAND MODEL [options]\n");
    for (const command *c = commands; c->name; c++) (void)printf("  %-10s %s\n", c->name, c->help);
    (void)puts("\n  nibble COMMAND --help   the options of a command\n"
               "  nibble --version        version, what was built in, what this "
               "machine has\n\n"
               "Exit codes: 0 done, 1 failed, 2 wrong usage.");
}

static void print_version(void)
{
    (void)printf("nibble %s (%s, %s)\n", nb_version(), NB_COMPILER, NB_BUILD_TYPE);
    /* Levels that kernels exist for, not all that the compiler could build. */
    (void)printf("built with:%s%s\n", NB_HAVE_AVX2 ? " avx2" : "",
                 NB_HAVE_LIBEDIT ? " libedit" : "");
    (void)printf("this machine: %s\n", nb_cpu_levels());
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) return cli_usage("a command is missing; `nibble --help` lists them");
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        print_help();
        return CLI_OK;
    }
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) {
        print_version();
        return CLI_OK;
    }
    for (const command *c = commands; c->name; c++) {
        if (strcmp(name, c->name) != 0) continue;
        opts o;
        bool help;
        int code = opts_parse(c, argc - 2, argv + 2, &o, &help);
        if (code == CLI_OK && help)
            opts_print_help(c);
        else if (code == CLI_OK)
            code = c->main(&o);
        opts_deinit(&o);
        return code;
    }
    const char *near = opts_nearest_command(name);
    if (near) return cli_usage("%s: unknown command; did you mean `nibble %s`?", name, near);
    return cli_usage("%s: unknown command; `nibble --help` lists them", name);
}

int main(int argc, char **argv)
{
    /* A reader that goes away is an error of write(), not the end of the process.
   */
    (void)signal(SIGPIPE, SIG_IGN);
    return cli_finish(dispatch(argc, argv));
}
