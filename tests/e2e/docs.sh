# docs.sh - options and metrics that the user documents name are there, every metric is documented, and the commands for
# published models are accepted up to the download.
. "$2/tests/e2e/_lib.sh"
command -v python3 >/dev/null || skip "there is no python3"
export PYTHONDONTWRITEBYTECODE=1

for c in serve run chat info pull verify convert plan logits tokenize render 'bench serve' 'bench throughput' 'bench kernel' 'bench load' 'bench tune' 'bench matrix' \
    'eval kl' 'eval ppl' 'eval compare' 'eval attn' 'eval ruler' calibrate; do
    # shellcheck disable=SC2086 # words of a command
    ok $c --help
    cat "$tmp/out" >>"$tmp/help"
done

cat >"$tmp/names.py" <<'END'
import re, sys
help_file, src, *documents = sys.argv[1:]
def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()
known = set()
for no, name in re.findall(r"--(\[no-\])?([a-z][a-z0-9-]*)", read(help_file)):
    known |= {name, "no-" + name} if no else {name}
# Options of other programs: cmake, pkg-config, start.sh, test.sh, scripts of bench and tools. nibble-check.
known |= {"install", "build-only", "chat", "story", "with-cuda", "fast", "all", "help", "version", "minutes", "runs", "list", "no-", "bench", "test",
          "cflags", "libs"}
written = read(src + "/src/serve/metrics.c") + read(src + "/src/serve/metrics_write.c")
metrics = set(re.findall(r"(?:vllm|nibble|http)[:_][a-z_]*[a-z]", written))
bad = []
for path in documents:
    text = read(path)
    bad += [f"{path}: --{o}: no command has this option" for o in sorted(set(re.findall(r"(?<![\w-])--([a-z][a-z0-9-]+)", text)) - known)]
    for name in sorted(set(re.findall(r"\b(?:vllm|nibble):[a-z_]+[a-z]\b(?!\{[a-z]+,)", text))):
        if not any(m.startswith(name) or name.startswith(m) for m in metrics):
            bad.append(f"{path}: {name}: the server has no such metric")
serving = next(read(d) for d in documents if d.endswith("serving.md"))
ours = re.findall(r'"(nibble:[a-z_]+)"', written)
bad += [f"docs/serving.md: {m} is not documented" for m in sorted(set(ours)) if m not in serving]
sys.exit("\n".join(bad) if bad else 0 if len(ours) > 10 else "no metrics in src/serve")
END
names() { python3 "$tmp/names.py" "$tmp/help" "$src" "$@" 2>"$tmp/err"; }
cd "$src" || exit 1
names README.md docs/serving.md docs/models.md docs/capacity.md docs/trace-replay.md docs/glossary.md docs/serving-page.md docs/accuracy.md docs/eval.md || die "names in the documents"

sed 's/--kv-sinks/--kv-sink-rows/; s/nibble:steps_total/nibble:step_count/' docs/serving.md >"$tmp/serving.md"
names "$tmp/serving.md" && die "names that are not there are not seen"
for w in '--kv-sink-rows' 'nibble:step_count: the server' 'nibble:steps_total is not documented'; do
    grep -qF -- "$w" "$tmp/err" || die "not named: $w"
done

# The commands that download and serve published models: nothing is wrong with them but that the model is not here.
n=0
while read -r program command id options; do
    [ "$program" = nibble ] && [ $command = serve ] || die "$program $command"
    grep -qF "    nibble pull $id" docs/models.md || die "docs/models.md serves $id and does not download it"
    # shellcheck disable=SC2086 # words of a command
    HF_HUB_CACHE=$tmp/none fails 1 "$id nibble pull $id" serve "$id" $options --port 0
    n=$((n + 1))
done <<END
$(grep -hoE '^ *nibble serve [A-Za-z0-9-]+/[A-Z].*' README.md docs/models.md)
END
[ $n -ge 8 ] || die "only $n commands were found"
exit 0
