/* main.c - `nibble`: the command and its subcommands. */
#include <signal.h>
#include <string.h>

#include "nb_config.h"
#include "nibble/nibble.h"

#include "cli.h"
#include "opts.h"

// clang-format off
const command commands[] = {
    { "serve", CMD_SERVE, "MODEL [options]",
      "an OpenAI-compatible server with a page to watch it", cmd_serve, false },
    { "run", CMD_RUN, "MODEL -p TEXT [options]\nMODEL --tokens FILE [options]",
      "generates text from a prompt", cmd_run, false },
    { "chat", CMD_CHAT, "MODEL [options]",
      "a conversation; /help there lists its commands", cmd_chat, false },
    { "info", CMD_INFO, "MODEL [options]",
      "geometry, parameters and bytes of KV cache per token of a model", cmd_info, false },
    { "plan", CMD_PLAN, "MODEL [--gpu NAME | --memory SIZE] [options]",
      "what fits on a machine, how fast it can be, what it costs: from a config.json alone", cmd_plan, false },
    { "logits", CMD_LOGITS, "MODEL --tokens FILE --output FILE [--rows LIST] [options]",
      "writes the logits at chosen positions as raw float32", cmd_logits, false },
    { "tokenize", CMD_TOKENIZE, "MODEL --file FILE [options]\nMODEL -p TEXT [options]\nMODEL --decode FILE [options]",
      "turns text into token ids, or ids into text", cmd_tokenize, false },
    { "render", CMD_RENDER, "MODEL --messages FILE [options]",
      "renders messages with the chat template", cmd_render, false },
    { "bench serve", CMD_BENCH_SERVE, "[--base-url URL] [options]",
      "sends a workload to an OpenAI-compatible server and reports its latencies", cmd_bench_serve, true },
    { "bench throughput", CMD_BENCH_THROUGHPUT, "MODEL [options]",
      "runs the same workload through the engine, without a server", cmd_bench_throughput, false },
    { "bench kernel", CMD_BENCH_KERNEL, "[--op LIST] [--context LIST] [options]",
      "times single operations beside the floors of this machine", cmd_bench_kernel, true },
    { "bench load", CMD_BENCH_LOAD, "MODEL [options]",
      "how long a model takes from its files to the first token, cold and warm", cmd_bench_load, false },
    { "bench matrix", CMD_BENCH_MATRIX, "MODEL [--context LIST] [--concurrency LIST] [--price X] [options]",
      "tokens per second and their cost, by record, context and users", cmd_bench_matrix, false },
    { "eval kl", CMD_EVAL_KL, "MODEL --text FILE [--formats LIST] [options]\nMODEL --tokens FILE [--formats LIST] [options]",
      "distance of next-token distributions from a reference cache, by position", cmd_eval_kl, false },
    { "eval ppl", CMD_EVAL_PPL, "MODEL --text FILE [--formats LIST] [options]\nMODEL --tokens FILE [--formats LIST] [options]",
      "perplexity of a text, by cache format", cmd_eval_ppl, false },
    { "eval compare", CMD_EVAL_COMPARE, "MODEL --text FILE -o DIR [--formats LIST] [options]",
      "all of these, on one page", cmd_eval_compare, false },
    { "eval attn", CMD_EVAL_ATTN, "MODEL --text FILE [--formats LIST] [--methods LIST] [options]\n--stress [--stress-set LIST] [options]",
      "attention-output error by layer and head, of a text or of generated tensors", cmd_eval_attn, false },
    { "eval ruler", CMD_EVAL_RULER, "MODEL [--formats LIST] [options]",
      "retrieval from long prompts, by cache format, task, length and depth", cmd_eval_ruler, false },
    { "calibrate", CMD_CALIBRATE, "MODEL --text FILE -o FILE [options]\nMODEL --tokens FILE -o FILE [options]",
      "measures how the model's cache is best kept, for --kv-calibration", cmd_calibrate, false },
    { 0 }
};
// clang-format on

static void print_help(void)
{
    (void)puts("nibble serves language models with latent attention from a 4-bit "
               "KV cache.\n\n"
               "usage: nibble COMMAND MODEL [options]\n");
    for (const command *c = commands; c->name; c++) (void)printf("  %-17s %s\n", c->name, c->help);
    (void)puts("\n  nibble COMMAND --help   the options of a command\n"
               "  nibble --version        version, what was built in, what this "
               "machine has\n\n"
               "Exit codes: 0 done, 1 failed, 2 wrong usage.");
}

/* The commands whose name begins with word, such as those of eval. */
static void print_group(FILE *to, const char *word)
{
    const size_t n = strlen(word);
    (void)fprintf(to, "usage: nibble %s COMMAND [options]\n\n", word);
    for (const command *c = commands; c->name; c++)
        if (strncmp(c->name, word, n) == 0 && c->name[n] == ' ')
            (void)fprintf(to, "  %-17s %s\n", c->name, c->help);
    (void)fprintf(to, "\n  nibble %s COMMAND --help   the options of a command\n", word);
}

static bool is_help(const char *s)
{
    return strcmp(s, "--help") == 0 || strcmp(s, "-h") == 0 || strcmp(s, "help") == 0;
}

/* `nibble eval`, and what follows it that is no command of it. */
static int group(const char *word, int argc, char **argv)
{
    if (argc < 3) {
        const int code = cli_usage("%s: a command is missing", word);
        print_group(stderr, word);
        return code;
    }
    if (!is_help(argv[2]))
        return cli_usage("%s %s: unknown command; `nibble %s --help` lists them", word, argv[2],
                         word);
    print_group(stdout, word);
    return CLI_OK;
}

static void print_version(void)
{
    (void)printf("nibble %s (%s, %s)\n", nb_version(), NB_COMPILER, NB_BUILD_TYPE);
    /* Levels that kernels exist for, not all that the compiler could build. */
    (void)printf("built with:%s%s libevent-%s openssl-%s libyaml-%s\n", NB_HAVE_AVX2 ? " avx2" : "",
                 NB_HAVE_LIBEDIT ? " libedit" : "", NB_LIBEVENT_VERSION, NB_OPENSSL_VERSION,
                 NB_YAML_VERSION);
    (void)printf("this machine: %s\n", nb_cpu_levels());
}

/* How many of the arguments are the words of c's name: 0 when they are another's. */
static int name_words(const command *c, int argc, char **argv)
{
    const size_t n = strcspn(c->name, " ");
    if (argc < 2 || strlen(argv[1]) != n || memcmp(argv[1], c->name, n) != 0) return 0;
    if (!c->name[n]) return 1;
    return argc > 2 && strcmp(argv[2], c->name + n + 1) == 0 ? 2 : 0;
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) return cli_usage("a command is missing; `nibble --help` lists them");
    const char *name = argv[1];
    if (is_help(name)) {
        print_help();
        return CLI_OK;
    }
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) {
        print_version();
        return CLI_OK;
    }
    for (const command *c = commands; c->name; c++) {
        const int words = name_words(c, argc, argv);
        if (words == 0) continue;
        opts o;
        bool help;
        int code = opts_parse(c, argc - 1 - words, argv + 1 + words, &o, &help);
        if (code == CLI_OK && help)
            opts_print_help(c);
        else if (code == CLI_OK)
            code = c->main(&o);
        opts_deinit(&o);
        return code;
    }
    if (strcmp(name, "bench") == 0 || strcmp(name, "eval") == 0) return group(name, argc, argv);
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
