/* main.c - `nibble`: the command and its subcommands. */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "nb_config.h"
#include "nibble/nibble.h"

#include "cli.h"
#include "model.h"
#include "options/docs.h"
#include "options/opts.h"

// clang-format off
const command commands[] = {
    { "serve", CMD_SERVE, "MODEL [options]",
      "serve a model over an OpenAI-compatible API, with a page to watch it", cmd_serve, MODEL_FILES,
      "nibble-tiny\n"
      "MODEL --kv-cache-dtype nvfp4 --max-model-len 32K --port 8080\n"
      "MODEL --host 0.0.0.0 --api-key SECRET\n"
      "--config serve.yaml" },
    { "run", CMD_RUN, "MODEL -p TEXT [options]\nMODEL --tokens FILE [options]",
      "generate text from a prompt", cmd_run, MODEL_FILES,
      "nibble-tiny -p 'Once upon a time'\n"
      "MODEL --chat -p 'What is a KV cache?' --max-tokens 200\n"
      "MODEL -p - <prompt.txt --temperature 0 --json" },
    { "chat", CMD_CHAT, "MODEL [options]",
      "talk to a model in the terminal; /help there lists its commands", cmd_chat, MODEL_FILES,
      "nibble-tiny --system 'Answer in one sentence.'" },
    { "info", CMD_INFO, "MODEL [options]",
      "print a model's shape, parameters and bytes of KV cache per token", cmd_info, MODEL_NAME,
      "nibble-tiny\nMODEL --json" },
    { "plan", CMD_PLAN, "MODEL [--gpu NAME | --memory SIZE] [options]",
      "say what fits on a machine, how fast it can be and what it costs, from a config.json", cmd_plan, MODEL_NAME,
      "deepseek-v3 --gpu h200 --gpus 8\n"
      "glm-4.7-flash --memory 64GiB --kv-cache-dtype nvfp4" },
    { "pull", CMD_PULL, "ORG/NAME[@REVISION] [options]",
      "download a model from the Hugging Face hub into the local hub cache", cmd_pull, MODEL_ID,
      "deepseek-ai/DeepSeek-V2-Lite\n"
      "ORG/NAME@v1.0 --include '*.json' --include 'tokenizer*'\n"
      "ORG/NAME --dry-run" },
    { "verify", CMD_VERIFY, "MODEL [options]",
      "check a model's files against their hashes", cmd_verify, MODEL_FILES,
      "deepseek-ai/DeepSeek-V2-Lite\n"
      "models/nibble-tiny --sha256sums SHA256SUMS" },
    { "convert", CMD_CONVERT, "MODEL OUT --weight-format NAME [options]",
      "write a model with its weights in 4 or 8 bits: a folder, or a GGUF file", cmd_convert, MODEL_AND_OUT,
      "nibble-tiny tiny-nvfp4 --weight-format nvfp4\n"
      "MODEL model.gguf --weight-format gguf:Q4_K_M" },
    { "logits", CMD_LOGITS, "MODEL --tokens FILE --output FILE [--rows LIST] [options]",
      "write the logits at chosen positions as raw float32", cmd_logits, MODEL_FILES,
      "MODEL --tokens ids.json --rows 0,17 --output rows.f32" },
    { "tokenize", CMD_TOKENIZE, "MODEL --file FILE [options]\nMODEL -p TEXT [options]\nMODEL --decode FILE [options]",
      "turn text into token ids, or ids into text", cmd_tokenize, MODEL_FILES,
      "nibble-tiny -p 'Once upon a time'" },
    { "render", CMD_RENDER, "MODEL --messages FILE [options]",
      "render messages with the chat template", cmd_render, MODEL_FILES,
      "nibble-tiny --messages request.json" },
    { "bench serve", CMD_BENCH_SERVE, "[--base-url URL] [options]",
      "send a workload to an OpenAI-compatible server and report its latencies", cmd_bench_serve, MODEL_NONE,
      "--num-prompts 100 --request-rate 4\n--base-url http://localhost:8000 --max-concurrency 8" },
    { "bench throughput", CMD_BENCH_THROUGHPUT, "MODEL [options]",
      "run the same workload through the engine, without a server", cmd_bench_throughput, MODEL_FILES,
      "MODEL --num-prompts 32 --input-len 512 --output-len 64\n"
      "MODEL --depth 512,4k,32k" },
    { "bench kernel", CMD_BENCH_KERNEL, "[--op LIST] [--context LIST] [options]",
      "time single operations beside the limits of this machine", cmd_bench_kernel, MODEL_NONE,
      "--op attn_pages --kv-cache-dtype nvfp4,bf16 --context 4k" },
    { "bench load", CMD_BENCH_LOAD, "MODEL [options]",
      "time a model from its files to the first token, cold and warm", cmd_bench_load, MODEL_FILES,
      "MODEL --repeat 3" },
    { "bench tune", CMD_BENCH_TUNE, "MODEL [options]",
      "time the kernels that a model can use on this machine, and keep the choice", cmd_bench_tune, MODEL_FILES,
      "MODEL --kv-cache-dtype nvfp4" },
    { "bench matrix", CMD_BENCH_MATRIX, "MODEL [--context LIST] [--concurrency LIST] [options]",
      "measure tokens per second and their cost by record, context and users", cmd_bench_matrix, MODEL_FILES,
      "MODEL --context 4k,32k --concurrency 1,8 --price 2.5" },
    { "eval kl", CMD_EVAL_KL, "MODEL --text FILE [--formats LIST] [options]\nMODEL --tokens FILE [--formats LIST] [options]",
      "measure how far next-token distributions are from those of a reference cache", cmd_eval_kl, MODEL_FILES,
      "MODEL --text book.txt --formats fp8,nvfp4" },
    { "eval ppl", CMD_EVAL_PPL, "MODEL --text FILE [--formats LIST] [options]\nMODEL --tokens FILE [--formats LIST] [options]",
      "measure the perplexity of a text by cache format", cmd_eval_ppl, MODEL_FILES,
      "MODEL --text book.txt --formats fp8,nvfp4" },
    { "eval compare", CMD_EVAL_COMPARE, "MODEL --text FILE -o DIR [--formats LIST] [options]",
      "run all of these and write one page", cmd_eval_compare, MODEL_FILES,
      "MODEL --text book.txt -o report" },
    { "eval attn", CMD_EVAL_ATTN, "MODEL --text FILE [--formats LIST] [options]\n--stress [--stress-set LIST] [options]",
      "measure the error of attention by layer and head, of a text or of generated tensors", cmd_eval_attn, MODEL_FILES,
      "MODEL --text book.txt --formats nvfp4\n--stress" },
    { "eval ruler", CMD_EVAL_RULER, "MODEL [--formats LIST] [options]",
      "measure retrieval from long prompts by cache format, task, length and depth", cmd_eval_ruler, MODEL_FILES,
      "MODEL --lengths 2k,8k --formats bf16,nvfp4" },
    { "calibrate", CMD_CALIBRATE, "MODEL --text FILE -o FILE [options]\nMODEL --tokens FILE -o FILE [options]",
      "find how a model's cache is best kept, for --kv-calibration", cmd_calibrate, MODEL_FILES,
      "MODEL --text book.txt -o calibration.json --target-bits 5" },
    { 0 }
};
// clang-format on

/* A line of a list of commands, wrapped at 79 columns. */
static void print_command(FILE *to, const command *c)
{
    enum { COLUMN = 20, WIDTH = 79 };
    size_t at = (size_t)fprintf(to, "  %-17s", c->name);
    for (const char *p = c->help; *p;) {
        const size_t n = strcspn(p, " ");
        if (at + 1 + n > WIDTH) at = (size_t)fprintf(to, "\n%*s", COLUMN - 1, "") - 1;
        at += (size_t)fprintf(to, " %.*s", (int)n, p);
        p += n + (p[n] == ' ');
    }
    (void)fputc('\n', to);
}

static void print_help(void)
{
    (void)puts("nibble serves language models with latent attention from a 4-bit KV cache.\n\n"
               "usage: nibble COMMAND MODEL [options]\n\n"
               "Examples\n"
               "  nibble serve nibble-tiny\n"
               "  nibble run nibble-tiny -p 'Once upon a time'\n"
               "  nibble plan deepseek-v2-lite --gpu h100\n\n"
               "Commands");
    for (const command *c = commands; c->name; c++) print_command(stdout, c);
    (void)puts("\n  nibble help COMMAND     the options of a command; also nibble COMMAND --help\n"
               "  nibble --version        version, what was built in, what this machine has\n\n"
               "Exit codes: 0 done, 1 failed, 2 wrong usage.");
}

/* The commands whose name begins with word, such as those of eval. */
static void print_group(FILE *to, const char *word)
{
    const size_t n = strlen(word);
    (void)fprintf(to, "usage: nibble %s COMMAND [options]\n\n", word);
    for (const command *c = commands; c->name; c++)
        if (strncmp(c->name, word, n) == 0 && c->name[n] == ' ') print_command(to, c);
    (void)fprintf(to, "\n  nibble help %s COMMAND   the options of a command\n", word);
}

static bool is_help(const char *s)
{
    return strcmp(s, "--help") == 0 || strcmp(s, "-h") == 0 || strcmp(s, "help") == 0;
}

static bool is_group(const char *s)
{
    const size_t n = strlen(s);
    for (const command *c = commands; c->name; c++)
        if (strncmp(c->name, s, n) == 0 && c->name[n] == ' ') return true;
    return false;
}

/* `nibble eval`, and what follows it that is no command of it. */
static int group(const char *word, int argc, char **argv)
{
    char both[64];
    if (argc < 3) {
        const int code = cli_usage("%s: a command is missing", word);
        print_group(stderr, word);
        return code;
    }
    if (is_help(argv[2])) {
        print_group(stdout, word);
        return CLI_OK;
    }
    (void)snprintf(both, sizeof both, "%s %.40s", word, argv[2]);
    const char *near = opts_nearest_command(both);
    if (near) return cli_usage("%s: unknown command; did you mean `nibble %s`?", both, near);
    return cli_usage("%s: unknown command; `nibble %s --help` lists them", both, word);
}

static void print_version(void)
{
    (void)printf("nibble %s (%s, %s)\n", nb_version(), NB_COMPILER, NB_BUILD_TYPE);
    /* Levels that kernels exist for, not all that the compiler could build. */
    (void)printf("built with:%s%s%s%s%s%s%s libevent-%s openssl-%s libcurl-%s libyaml-%s\n",
                 NB_HAVE_AVX2 ? " avx2" : "", NB_HAVE_AVXVNNI ? " avxvnni" : "", NB_HAVE_AVX512 ? " avx512" : "",
                 NB_HAVE_AVX512BF16 ? " avx512bf16" : "", NB_HAVE_AMX ? " amx" : "",
                 NB_HAVE_NEON ? " neon" : "", NB_HAVE_LIBEDIT ? " libedit" : "", NB_LIBEVENT_VERSION,
                 NB_OPENSSL_VERSION, NB_CURL_VERSION, NB_YAML_VERSION);
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

static int run_command(const command *c, int argc, char **argv)
{
    opts o;
    const char *help;
    int code = opts_parse(c, argc, argv, &o, &help);
    if (code == CLI_OK && help)
        opts_print_help(c, help);
    else if (code == CLI_OK)
        code = model_find(c, &o);
    if (code == CLI_OK && !help) code = c->main(&o);
    opts_deinit(&o);
    return code;
}

/* A first word that is no command. */
static int not_a_command(const char *word, int argc, char **argv)
{
    for (int i = 2; word[0] == '-' && i < argc; i++)
        for (const command *c = commands; c->name; c++)
            if (name_words(c, argc - i + 1, argv + i - 1))
                return cli_usage("%.60s: options come after the command: nibble %s %.60s ...", word,
                                 c->name, word);
    const char *near = opts_nearest_command(word);
    if (near) return cli_usage("%.60s: unknown command; did you mean `nibble %s`?", word, near);
    if (strchr(word, '/') || strchr(word, '.'))
        return cli_usage("%.60s: a command comes before MODEL, such as `nibble serve %.60s`", word,
                         word);
    return cli_usage("%.60s: unknown command; `nibble --help` lists them", word);
}

/* argv[0] is the program's name. */
static int dispatch(int argc, char **argv)
{
    if (argc < 2) return cli_usage("a command is missing; `nibble --help` lists them");
    const char *name = argv[1];
    if (is_help(name) && argc > 2) { /* `help serve`: as `serve --help` */
        static char help[] = "--help";
        char *words[] = { argv[0], argv[2], argc > 3 ? argv[3] : help, help, NULL };
        return dispatch(argc > 3 ? 4 : 3 + !is_group(argv[2]), words);
    }
    if (is_help(name)) {
        print_help();
        return CLI_OK;
    }
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0 || strcmp(name, "version") == 0) {
        print_version();
        return CLI_OK;
    }
    if (strcmp(name, "docs") == 0 && argc == 3) return docs_write(argv[2]); /* the build runs it */
    for (const command *c = commands; c->name; c++) {
        const int words = name_words(c, argc, argv);
        if (words) return run_command(c, argc - 1 - words, argv + 1 + words);
    }
    return is_group(name) ? group(name, argc, argv) : not_a_command(name, argc, argv);
}

/* Standard descriptors that are closed become /dev/null: else the next file that is opened takes their
 * place, and is written to as if it were a terminal. */
static void open_standard_descriptors(void)
{
    int fd;
    do {
        fd = open("/dev/null", O_RDWR);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0) (void)close(fd);
}

int main(int argc, char **argv)
{
    open_standard_descriptors();
    /* A reader that goes away is an error of write(), not the end of the process. */
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN); /* and so is a file beyond the limit of its size */
    return cli_finish(dispatch(argc, argv));
}
