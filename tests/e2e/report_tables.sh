# report_tables.sh - the tables of docs/gpu.md, docs/several-gpus.md, docs/performance.md, docs/decisions/025 and bench/accuracy/RESULTS.md are what
# their scripts write from bench/results, and a changed figure on either side is seen.
. "$2/tests/e2e/_lib.sh"
command -v python3 >/dev/null || skip "there is no python3"
export PYTHONDONTWRITEBYTECODE=1

w8a8=docs/decisions/025-fp8-weights-float-activations.md
pages="docs/gpu.md docs/performance.md docs/several-gpus.md $w8a8 bench/accuracy/RESULTS.md"

# copy: a tree with the scripts, the results and the pages.
copy() {
    rm -rf "$tmp/root"
    mkdir -p "$tmp/root/docs/decisions"
    cp -R "$src/bench" "$tmp/root/"
    for p in $pages; do cp "$src/$p" "$tmp/root/$p"; done
}
# compare: renders the copy; its pages differ from their state before: exit code 1, and the difference in $tmp/out.
compare() {
    rm -rf "$tmp/before"
    cp -R "$tmp/root" "$tmp/before"
    (cd "$tmp/root" && python3 bench/gpu/report.py render docs/gpu.md && python3 bench/gpu/report.py render $w8a8 &&
        python3 bench/gpu/report.py render docs/several-gpus.md &&
        python3 bench/cpu/report.py render docs/performance.md &&
        python3 bench/accuracy/report.py bench/results/accuracy.json) >/dev/null 2>"$tmp/err" || die "a script: $(tail -n 3 "$tmp/err")"
    for p in $pages; do diff "$tmp/before/$p" "$tmp/root/$p" || return 1; done >"$tmp/out"
}
# seen WHAT WORD: the difference names the word.
seen() {
    compare && die "not seen: $1"
    grep -q -- "$2" "$tmp/out" || die "$1: $(head -n 10 "$tmp/out")"
}
# edit FILE STATEMENT: of the object j.
edit() {
    python3 -c 'import json, sys
with open(sys.argv[1], encoding="utf-8") as f:
    j = json.load(f)
exec(sys.argv[2])
with open(sys.argv[1], "w", encoding="utf-8") as f:
    json.dump(j, f)' "$tmp/root/bench/results/$1" "$2"
}

copy
compare || die "tables are out of date: bench/gpu/report.py, bench/cpu/report.py and bench/accuracy/report.py write them
$(head -n 20 "$tmp/out")"

copy
sed 's/| nvfp4 | 34 | /| nvfp4 | 36 | /' "$src/docs/gpu.md" >"$tmp/root/docs/gpu.md"
seen "a figure of docs/gpu.md" "nvfp4 | 36"
copy
edit gpu_h100.json 'for r in j["steps"]["rows"]: r["tokens_per_s"] *= 1.1'
seen "faster steps" "4,096"
copy
edit flashmla_h100.json 'for r in j["rows"]: r["median_us"] *= 1 + (r["who"] == "nibble")'
seen "slower attention" "131,072"
copy
edit gpu2_h100.json 'j["runs"]["six_d2"]["decode"][0]["median_ms"] *= 2'
seen "slower data-parallel ranks" "one more with experts"
copy
edit serve_overhead.json 'j["rows"][0]["server_tok_per_s"] = 900'
seen "a slower server" "900 tokens/s"
copy
edit w8a8_h100.json 'for r in j["rows"]: r["median_us"] *= 2'
seen "slower products" "7,168 x 16,384"
copy
edit accuracy.json 'for v in j["models"]["nibble-tiny"]["kl 0"]["result"]["variants"]:
    if v["name"] == "mxfp4": v["kl"]["mean"]["value"] *= 3'
seen "an error of mxfp4" "mxfp4"
exit 0
