# eval_kl.sh - `nibble eval kl` and `eval ppl`: figures computed again from logits, windows,
# perplexity against the one of transformers, repeatable output, plots, refusals.
. "$2/tests/e2e/_lib.sh"
m=$src/tests/parity/v3
need "$m/expected.safetensors" "no parity vectors"
python3 "$src/tests/e2e/_expected.py" "$m/expected.safetensors" list tokens >"$tmp/t.json" || die "no tokens"
check() { # REPORT REFERENCE VARIANT...
    python3 "$src/tests/e2e/_eval_check.py" "$nibble" "$m" "$@" || die "$1: figures differ"
}
kl() { ok eval kl "$m" --bootstrap 200 "$@"; }

# Windows of a list of ids: whole, cut, overlapping; and those that the file says itself.
kl --tokens "$tmp/t.json" --formats fp8,nvfp4 --json --detailed
cp "$tmp/out" "$tmp/a.json"
check "$tmp/a.json" bf16 fp8 nvfp4
[ "$(json "$tmp/a.json" '[(w["n_tok"], w["skip"]) for w in j["windows"]]')" = "[(150, 0)]" ] || die "windows"
kl --tokens "$tmp/t.json" --context 100 --stride 60 --formats bf16,nvfp4 --json --detailed
check "$tmp/out" bf16 bf16 nvfp4
[ "$(json "$tmp/out" '[(w["n_tok"], w["skip"]) for w in j["windows"]]')" = \
    "[(100, 0), (90, 40)]" ] || die "overlapping windows: $(cat "$tmp/out")"
[ "$(json "$tmp/out" 'j["n_scored"]')" = 149 ] || die "a token is scored twice, or not at all"
kl --tokens "$tmp/t.json" --context 100 --n-tokens 140 --formats fp8 --reference nvfp4 --json --detailed
check "$tmp/out" nvfp4 fp8
[ "$(json "$tmp/out" '[w["n_tok"] for w in j["windows"]]')" = "[100, 40]" ] || die "--n-tokens"
python3 -c 'import json, sys
t = json.load(open(sys.argv[1]))
json.dump([t[:70], t[70:80], t[20:150]], open(sys.argv[2], "w"))' "$tmp/t.json" "$tmp/w.json"
kl --tokens "$tmp/w.json" --formats nvfp4 --json --detailed
check "$tmp/out" bf16 nvfp4
[ "$(json "$tmp/out" '[w["n_tok"] for w in j["windows"]]')" = "[70, 10, 130]" ] || die "windows of the file"

# The same on every run, with any number of threads and any steps; another seed moves intervals only.
kl --tokens "$tmp/t.json" --formats fp8,nvfp4 --json --detailed --threads 2 --prefill-chunk 37
cmp -s "$tmp/out" "$tmp/a.json" || die "threads or steps change the report"
python3 -c 'import json, sys
t = json.load(open(sys.argv[1]))
json.dump([t[i:i + 130] for i in range(0, 20, 4)], open(sys.argv[2], "w"))' "$tmp/t.json" "$tmp/many.json"
for seed in 1 2; do
    kl --tokens "$tmp/many.json" --formats nvfp4 --json --seed $seed
    json "$tmp/out" 'j["variants"][0]["kl"]["mean"]["value"]' >>"$tmp/means"
    json "$tmp/out" 'j["variants"][0]["kl"]["mean"]["lo"]' >>"$tmp/ends"
done
[ "$(sort -u "$tmp/means" | wc -l)" = 1 ] || die "the seed changes a mean"
[ "$(sort -u "$tmp/ends" | wc -l)" = 2 ] || die "the seed changes nothing"

# Without --formats: what the options say. --decode: other sums, nearly the same figures.
kl --tokens "$tmp/t.json" --kv-cache-dtype nvfp4 --json
[ "$(json "$tmp/out" 'j["variants"][0]["name"], j["variants"][0]["kl"] == json.load(open("'"$tmp"'/a.json"))["variants"][1]["kl"]')" = \
    "('nvfp4', True)" ] || die "the variant of the options"
kl --tokens "$tmp/t.json" --formats nvfp4 --decode --json --detailed
[ "$(json "$tmp/out" 'j["computed"], j["floor"]["kl"]["max"], j["n_scored"]')" = "('decode', 0.0, 149)" ] || die "--decode"
near=$(json "$tmp/out" 'max(abs(a - b) for a, b in zip(j["reference"]["detail"]["nll"], json.load(open("'"$tmp"'/a.json"))["reference"]["detail"]["nll"])) < 0.05')
[ "$near" = True ] || die "--decode: the reference's losses are far from those of prompts"

# Table and plots.
kl --tokens "$tmp/t.json" --formats fp8,nvfp4:mla=absorbed --plot "$tmp/p.svg"
for word in floor fp8 nvfp4:mla=absorbed "16.0 bits per value" perplexity "resamplings of blocks of 64"; do
    grep -qF -- "$word" "$tmp/out" || die "the table does not say: $word"
done
python3 -c 'import sys, xml.etree.ElementTree as e
root = e.parse(sys.argv[1]).getroot()
assert root.tag.endswith("svg") and "nvfp4:mla=absorbed" in "".join(root.itertext())' "$tmp/p.svg" || die "the plot"
ok eval ppl "$m" --tokens "$tmp/t.json" --formats fp8 --plot "$tmp/p.svg"
grep -q "dNLL" "$tmp/out" || die "eval ppl: no dNLL"

# Refusals: one line, nothing on standard output.
fails 2 "--text --tokens" eval kl "$m"
fails 2 "--text --tokens" eval kl "$m" --text x --tokens y
fails 1 "nowhere" eval kl "$m" --tokens "$tmp/nowhere.json"
fails 2 "nvfp5 nvfp4" eval kl "$m" --tokens "$tmp/t.json" --formats nvfp5
fails 2 "--reference colour" eval kl "$m" --tokens "$tmp/t.json" --reference bf16:colour=red
fails 2 "twice" eval kl "$m" --tokens "$tmp/t.json" --formats fp8,fp8
fails 2 "--context" eval kl "$m" --tokens "$tmp/t.json" --context 99999999
fails 2 "--stride" eval kl "$m" --tokens "$tmp/t.json" --context 8 --stride 9
fails 2 "--context" eval kl "$m" --tokens "$tmp/w.json" --context 8
for bad in '{}' '[]' '[1]' '[1,-2,3]' '[1,2.5]' '[[1,2],3]' '[[1,2],[3]]' '[1,2' '[["a","b"]]'; do
    printf '%s' "$bad" >"$tmp/bad.json"
    fails 1 "" eval kl "$m" --tokens "$tmp/bad.json"
done
printf '[1,2,99999]' >"$tmp/bad.json"
fails 1 "99999" eval kl "$m" --tokens "$tmp/bad.json"
# A plot that cannot be written is refused before anything is measured; what is there stays.
fails 1 "no/such cannot be written" eval kl "$m" --tokens "$tmp/t.json" --plot "$tmp/no/such/p.svg"
fails 1 "Is a directory" eval kl "$m" --tokens "$tmp/t.json" --plot "$tmp"
mkdir "$tmp/keep"
printf old >"$tmp/keep/p.svg"
fails 1 "nowhere" eval ppl "$m" --tokens "$tmp/nowhere.json" --plot "$tmp/keep/p.svg"
fails 1 "nowhere" eval kl "$m" --tokens "$tmp/nowhere.json" --plot "$tmp/keep/new.svg"
[ "$(ls "$tmp/keep")" = p.svg ] && [ "$(cat "$tmp/keep/p.svg")" = old ] || die "the trial of an output: $(ls "$tmp/keep")"
kl --tokens "$tmp/t.json" --formats fp8 --plot /dev/null
[ -c /dev/null ] || die "/dev/null is no device any more"
ln -s p.svg "$tmp/keep/link"
kl --tokens "$tmp/t.json" --formats fp8 --plot "$tmp/keep/link"
[ -L "$tmp/keep/link" ] && grep -q '</svg>' "$tmp/keep/p.svg" || die "a link is not written through"
# Where only the end tells: the report is printed all the same.
if [ -w /dev/full ]; then
    rc=0
    "$nibble" eval kl "$m" --tokens "$tmp/t.json" --plot /dev/full >"$tmp/out" 2>"$tmp/err" || rc=$?
    [ "$rc" -eq 1 ] && grep -q /dev/full "$tmp/err" && grep -q nats "$tmp/out" || die "a full disk: exit code $rc"
fi

# The bundled model: perplexity of transformers on the same windows; a text's windows begin with
# the beginning-of-text token.
need "$model/config.json" "no bundled model"
python3 -c 'import json, sys
j = json.load(open(sys.argv[1]))
json.dump([j["windows"][0]["ids"][:400]], open(sys.argv[2], "w"))' \
    "$src/tests/parity/nibble-tiny/expected.json" "$tmp/w.json" || die "no windows"
ok eval ppl "$model" --tokens "$tmp/w.json" --formats f32 --json --detailed --bootstrap 200
python3 -c 'import json, sys
j, e = json.load(open(sys.argv[1])), json.load(open(sys.argv[2]))
got = j["variants"][0]["detail"]["nll"][:8]
assert all(abs(a - b) < 1e-3 for a, b in zip(got, e["windows"][0]["nll_first_8"])), got' \
    "$tmp/out" "$src/tests/parity/nibble-tiny/expected.json" || die "not the losses of transformers"
printf 'It was a dark night, and the wind blew about the old house. Nobody slept; the dog least of all.' >"$tmp/text"
ok eval ppl "$model" --text "$tmp/text" --context 16 --formats fp8 --json --detailed
[ "$(json "$tmp/out" 'j["bos"], {w["ids"][0] for w in j["windows"]}, len(j["windows"]) > 1')" = "(0, {0}, True)" ] || die "windows of a text"
exit 0
