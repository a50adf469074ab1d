/* opts_table_eval.c - the options of `nibble eval ...` and `nibble calibrate`. */
#include "opts_table.h"

#define AT(field) offsetof(opts, eval.field)
#define IN .group = GROUP_INPUT
#define OUT .group = GROUP_OUTPUT
#define MANY (CMD_EVAL_KL | CMD_EVAL_PPL | CMD_EVAL_RULER | CMD_EVAL_COMPARE)
#define TEXT (CMD_EVAL_ATTN | CMD_EVAL_KL | CMD_EVAL_PPL | CMD_EVAL_COMPARE | CMD_CALIBRATE)

// clang-format off
static const opt_row rows[] = {
    { .name = "text", .arg = "FILE", .type = OPT_STR, .offset = AT(text), .cmds = TEXT, IN,
      .help = "file with the text to measure on" },
    { .name = "tokens", .arg = "FILE", .type = OPT_STR, .offset = AT(tokens), .cmds = TEXT, IN,
      .help = "file with a JSON array of token ids to measure on" },
    { .name = "formats", .arg = "LIST", .type = OPT_STR, .offset = AT(formats), .cmds = MANY | CMD_EVAL_ATTN, IN,
      .help = "cache formats to measure, separated by commas, each DTYPE[:KEY=VALUE]..., such as fp8,nvfp4:mode=search,if4:transform=center+equalize", .unset = "the one that the other options give" },
    { .name = "reference", .arg = "FORMAT", .type = OPT_STR, .offset = AT(reference), .def = "bf16", .cmds = MANY, IN,
      .help = "format to compare with" },
    { .name = "context", .arg = "N", .type = OPT_SIZE, .offset = AT(context), .lo = 2, .hi = 1e9,
      .cmds = CMD_EVAL_KL | CMD_EVAL_PPL | CMD_EVAL_ATTN | CMD_CALIBRATE | CMD_CONVERT | CMD_EVAL_COMPARE, IN,
      .help = "tokens of a window of the text", .unset = "2048, or what the model takes" },
    { .name = "stride", .arg = "N", .type = OPT_SIZE, .offset = AT(stride), .lo = 1, .hi = 1e9, .cmds = CMD_EVAL_KL | CMD_EVAL_PPL, IN,
      .help = "tokens from one window to the next", .unset = "a window" },
    { .name = "n-tokens", .arg = "N", .type = OPT_SIZE, .offset = AT(n_tok), .lo = 1, .hi = 1e12, .cmds = TEXT | CMD_CONVERT, IN,
      .help = "tokens of the text to use at most", .unset = "eval 16384, calibrate and convert 32768" },
    { .name = "decode", .type = OPT_FLAG, .offset = AT(decode), .cmds = CMD_EVAL_KL | CMD_EVAL_PPL | CMD_EVAL_COMPARE, IN,
      .help = "compute the text token by token, as generated tokens are (absorbed form, Thrift); slower" },
    { .name = "seed", .arg = "N", .type = OPT_U64, .offset = AT(seed), .def = "1", .cmds = CMD_EVAL | CMD_CALIBRATE, IN,
      .help = "seed of resampling and of generated input" },
    { .name = "bootstrap", .arg = "N", .type = OPT_SIZE, .offset = AT(n_round), .def = "2000", .lo = 100, .hi = 1e6,
      .cmds = CMD_EVAL, IN, .help = "resamplings for the 95% intervals" },
    { .name = "plot", .arg = "FILE", .type = OPT_STR, .offset = AT(plot), .cmds = CMD_EVAL_ATTN | CMD_EVAL_KL | CMD_EVAL_PPL | CMD_EVAL_RULER, OUT,
      .help = "draw the result as SVG" },
    { .name = "detailed", .type = OPT_FLAG, .offset = AT(detailed), .cmds = CMD_EVAL, OUT,
      .help = "with --json: every position or prompt, not only the summary" },
    { .name = "out", .letter = 'o', .arg = "DIR", .type = OPT_STR, .offset = AT(out_dir), .cmds = CMD_EVAL_COMPARE, OUT,
      .help = "folder for the page (HTML), its plots and its JSON" },

    /* ---- eval attn ---- */
    { .name = "stress", .type = OPT_FLAG, .offset = AT(stress), .cmds = CMD_EVAL_ATTN, IN,
      .help = "measure generated tensors that are hard for few bits, instead of a text; needs no MODEL" },
    { .name = "stress-set", .arg = "LIST", .type = OPT_STR, .offset = AT(stress_set), .cmds = CMD_EVAL_ATTN, IN,
      .help = "parameters of the generator, name=value separated by commas; a wrong name lists them; "
              "preset=diffuse, medium, peaky, sharp, plain, quick" },
    { .name = "layers", .arg = "LIST", .type = OPT_STR, .offset = AT(layers), .cmds = CMD_EVAL_ATTN, IN,
      .help = "layers to measure, such as 0,3-5", .unset = "all" },
    { .name = "methods", .arg = "LIST", .type = OPT_STR, .offset = AT(methods), .cmds = CMD_EVAL_ATTN, IN,
      .help = "selections of Thrift mode to try on the first 4-bit format: none, token, token-top, block-mean, block-mean-causal, quest, local, block-prob, oracle, oracle-token (each also with :head, :fp8, :bf16), paper-fp4, or all", .unset = "token,block-mean,block-prob" },
    { .name = "fractions", .arg = "LIST", .type = OPT_STR, .offset = AT(fractions), .cmds = CMD_EVAL_ATTN, IN,
      .help = "of tokens or blocks that a selection may refine, such as 0.005,0.05" },
    { .name = "tau", .arg = "P", .type = OPT_NUM, .offset = AT(tau), .def = "0.001", .lo = 0, .hi = 1, .lo_open = true, .cmds = CMD_EVAL_ATTN, IN,
      .help = "token: probability from which on a token is refined" },
    { .name = "queries", .arg = "N", .type = OPT_SIZE, .offset = AT(n_query), .def = "64", .lo = 1, .hi = 65536, .cmds = CMD_EVAL_ATTN, IN,
      .help = "positions whose queries are measured" },
    { .name = "dump", .arg = "DIR", .type = OPT_STR, .offset = AT(dump), .cmds = CMD_EVAL_ATTN, OUT,
      .help = "write the tensors as raw float32 with a description, to check the figures elsewhere" },

    /* ---- eval ruler ---- */
    { .name = "tasks", .arg = "LIST", .type = OPT_STR, .offset = AT(tasks), .cmds = CMD_EVAL_RULER | CMD_EVAL_COMPARE, IN,
      .help = "tasks to run: niah_single, niah_multikey, niah_multivalue, niah_multiquery, vt, cwe, fwe", .unset = "all of the dialect" },
    { .name = "lengths", .arg = "LIST", .type = OPT_STR, .offset = AT(lengths), .cmds = CMD_EVAL_RULER | CMD_EVAL_COMPARE, IN,
      .help = "tokens of prompt and answer, such as 512,2k,4k", .unset = "a quarter, a half and all of the context" },
    { .name = "samples", .arg = "N", .type = OPT_SIZE, .offset = AT(n_sample), .def = "20", .lo = 1, .hi = 1e6, .cmds = CMD_EVAL_RULER | CMD_EVAL_COMPARE, IN,
      .help = "prompts per task and length" },
    { .name = "depths", .arg = "N", .type = OPT_SIZE, .offset = AT(n_depth), .def = "5", .lo = 1, .hi = 100, .cmds = CMD_EVAL_RULER, IN,
      .help = "positions of the needle, from the beginning to the end" },
    { .name = "dialect", .arg = "NAME", .type = OPT_CHOICE, .offset = AT(dialect), .def = "auto", .choices = "auto|ruler|plain",
      .cmds = CMD_EVAL_RULER | CMD_EVAL_COMPARE, IN,
      .help = "wording of the prompts: RULER's, or short questions for small models; auto is plain for models under 1 B parameters" },
    { .name = "prompts", .arg = "FILE", .type = OPT_STR, .offset = AT(prompts), .cmds = CMD_EVAL_RULER, IN,
      .help = "take prompts from a file: a JSON array of {prompt, answer, kind}" },
    { .name = "write-prompts", .arg = "FILE", .type = OPT_STR, .offset = AT(write_prompts), .cmds = CMD_EVAL_RULER, OUT,
      .help = "write the prompts, with token ids and answers, to check the scores elsewhere" },
    { .name = "batch", .arg = "N", .type = OPT_SIZE, .offset = AT(batch), .def = "8", .lo = 1, .hi = 1024, .cmds = CMD_EVAL_RULER | CMD_EVAL_COMPARE, IN,
      .help = "prompts computed at once" },

    /* ---- calibrate ---- */
    { .name = "target-bits", .arg = "B", .type = OPT_NUM, .offset = AT(target_bits), .lo = 4, .hi = 16, .cmds = CMD_CALIBRATE, IN,
      .help = "choose the best that fits into this many bits per cached value, on average over the layers" },
    { .name = "max-error", .arg = "E", .type = OPT_NUM, .offset = AT(max_error), .lo = 0, .hi = 10, .lo_open = true, .cmds = CMD_CALIBRATE, IN,
      .help = "choose the smallest records that keep this relative error of a layer's attention output" },
    { .name = "held-out", .arg = "F", .type = OPT_NUM, .offset = AT(held_out), .def = "0.25", .lo = 0.01, .hi = 0.9, .cmds = CMD_CALIBRATE, IN,
      .help = "share of the windows to choose by; they do not count in the statistics" },
    { .name = "candidates", .arg = "LIST", .type = OPT_STR, .offset = AT(candidates), .cmds = CMD_CALIBRATE, IN,
      .help = "transforms to choose from", .unset = "none, center, equalize, center+equalize, hadamard, center+equalize+hadamard" },
};
// clang-format on
const opt_table opt_table_eval = { rows, sizeof rows / sizeof *rows };
