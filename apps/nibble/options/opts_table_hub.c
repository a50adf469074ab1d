/* opts_table_hub.c - the options of `nibble pull`, `nibble verify` (names are those of `hf download`) and
 * `nibble convert`. */
#include "opts_table.h"

#define AT(field) offsetof(opts, hub.field)
#define CAT(field) offsetof(opts, convert.field)

// clang-format off
static const opt_row rows[] = {
    { .name = "include", .arg = "GLOB", .type = OPT_STRS, .offset = AT(include), .cmds = CMD_PULL, .group = GROUP_INPUT,
      .help = "download the files that match, such as '*.json', instead of those that nibble uses; * also matches /; may be repeated" },
    { .name = "exclude", .arg = "GLOB", .type = OPT_STRS, .offset = AT(exclude), .cmds = CMD_PULL, .group = GROUP_INPUT,
      .help = "leave out the files that match; may be repeated" },
    { .name = "revision", .arg = "REV", .type = OPT_STR, .offset = offsetof(opts, revision), .cmds = CMD_PULL, .group = GROUP_INPUT,
      .help = "the branch, tag or commit, as in ORG/NAME@REV (default: main)" },
    { .name = "cache-dir", .arg = "DIR", .type = OPT_STR, .offset = AT(cache_dir), .cmds = CMD_PULL, .group = GROUP_OUTPUT,
      .help = "the hub cache (default: HF_HUB_CACHE, else HF_HOME/hub, else ~/.cache/huggingface/hub)" },
    { .name = "jobs", .alias = "max-workers", .letter = 'j', .arg = "N", .type = OPT_SIZE, .offset = AT(n_job), .def = "4", .lo = 1, .hi = 64,
      .cmds = CMD_PULL | CMD_VERIFY, .group = GROUP_OUTPUT, .help = "files at a time" },
    { .name = "dry-run", .type = OPT_FLAG, .offset = AT(dry_run), .cmds = CMD_PULL, .group = GROUP_OUTPUT,
      .help = "list the files and what would be downloaded, and write nothing" },
    { .name = "sha256sums", .arg = "FILE", .type = OPT_STR, .offset = AT(sums), .cmds = CMD_VERIFY, .group = GROUP_INPUT,
      .help = "check against this list, as sha256sum writes it (default: SHA256SUMS in the folder, if there is one)" },
    { .name = "online", .arg = "ID", .type = OPT_STR, .offset = AT(online), .cmds = CMD_VERIFY, .group = GROUP_INPUT,
      .help = "ask the hub for the hashes of this id, such as ORG/NAME or ORG/NAME@REV" },
    { .name = "weight-format", .arg = "NAME", .type = OPT_CHOICE, .offset = CAT(format), .cmds = CMD_CONVERT, .group = GROUP_OUTPUT,
      .choices = "int4-g32|int4-g128|nvfp4|mxfp4|fp8|fp8-block|modelopt-nvfp4|modelopt-fp8|bf16|gguf:F32|gguf:F16|gguf:BF16|gguf:Q8_0|gguf:Q4_0|gguf:Q4_1|"
                 "gguf:Q5_0|gguf:Q5_1|gguf:Q2_K|gguf:Q3_K_S|gguf:Q3_K_M|gguf:Q3_K_L|gguf:Q4_K_S|gguf:Q4_K_M|gguf:Q5_K_S|"
                 "gguf:Q5_K_M|gguf:Q6_K",
      .help = "what the matrices of the layers become; gguf: OUT is a file with llama.cpp's mixture of that name, else a folder" },
    { .name = "calibration-text", .arg = "FILE", .type = OPT_STR, .offset = CAT(calibration), .cmds = CMD_CONVERT, .group = GROUP_INPUT,
      .help = "run the model over this text first, and let the errors of columns count by the mean square of their inputs" },
    { .name = "imatrix", .arg = "FILE", .type = OPT_STR, .offset = CAT(imatrix), .cmds = CMD_CONVERT, .group = GROUP_INPUT,
      .help = "the same from an importance matrix of llama.cpp, in GGUF or in the older .dat form" },
    { .name = "keep", .arg = "LIST", .type = OPT_STR, .offset = CAT(keep), .cmds = CMD_CONVERT, .group = GROUP_OUTPUT,
      .help = "leave the matrices whose name has one of these words as they are, such as kv_b_proj,self_attn" },
    { .name = "max-shard-size", .arg = "MB", .type = OPT_SIZE, .offset = CAT(max_shard_mb), .lo = 1, .hi = 1e6, .cmds = CMD_CONVERT,
      .group = GROUP_OUTPUT, .help = "largest file of weights in a folder, in megabytes", .unset = "5000" },
    { .name = "gguf-pre", .arg = "NAME", .type = OPT_STR, .offset = CAT(gguf_pre), .cmds = CMD_CONVERT, .group = GROUP_OUTPUT,
      .help = "how llama.cpp splits text before merging (tokenizer.ggml.pre); none leaves the tokenizer out",
      .unset = "by the patterns of tokenizer.json" },
    { .name = "json", .type = OPT_FLAG, .offset = offsetof(opts, json), .cmds = CMD_PULL | CMD_VERIFY | CMD_CONVERT, .group = GROUP_OUTPUT,
      .help = "print one line of JSON" },
};
// clang-format on
const opt_table opt_table_hub = { rows, sizeof rows / sizeof *rows };
