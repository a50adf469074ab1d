# cli_usage.sh - help, version, wrong usage: exit codes and error lines that name what is wrong.
. "$2/tests/e2e/_lib.sh"

# Wrong usage ends before anything is read, so the model need not exist.
wrong() { fails 2 "$@"; }

ok --help
for c in serve run chat info logits tokenize render; do
    grep -q "^  $c " "$tmp/out" || die "--help does not list $c"
done
ok --version
grep -q '^nibble [0-9]' "$tmp/out" || die "--version: no version"
cp "$tmp/out" "$tmp/version"
ok version
cmp -s "$tmp/out" "$tmp/version" || die "version differs from --version"
grep -q '^built with:' "$tmp/out" || die "--version: nothing about the build"
grep -q '^built with:.* libevent-.* openssl-.* libcurl-.* libyaml-' "$tmp/out" || die "--version: no libraries"
grep -q '^this machine:' "$tmp/out" || die "--version: nothing about the machine"

for c in serve run chat info logits tokenize render; do
    ok $c --help
    grep -q "^usage: nibble $c MODEL" "$tmp/out" || die "$c --help: no usage line"
    grep -q -- '--model ' "$tmp/out" || die "$c --help: no options"
    cp "$tmp/out" "$tmp/help"
    ok $c missing-model -h
    cmp -s "$tmp/out" "$tmp/help" || die "$c -h differs from $c --help"
    wrong "$c MODEL" $c
    wrong "$c MODEL" $c ""
    wrong "--no-such-option unknown" $c m --no-such-option
    wrong "unexpected two" $c one two
done
for c in pull verify; do
    ok --help
    grep -q "^  $c " "$tmp/out" || die "--help does not list $c"
    wrong "$c MODEL" $c
    wrong "--jobs" $c a/b --jobs 0
done
ok pull --help
for w in HF_TOKEN HF_ENDPOINT HF_HUB_OFFLINE http_proxy --include --dry-run; do
    grep -q -- "$w" "$tmp/out" || die "pull --help does not have $w"
done
wrong "ORG/NAME" pull not-an-id
wrong "no-such unknown" pull a/b --no-such
for g in "eval kl ppl attn ruler compare" "bench serve throughput kernel load tune matrix"; do
    # shellcheck disable=SC2086
    set -- $g
    group=$1
    shift
    ok "$group" --help
    cp "$tmp/out" "$tmp/help"
    wrong "command missing" "$group"
    wrong "$group zzz unknown" "$group" zzz
    for c in "$@"; do
        grep -q "^  $group $c  *[a-z]" "$tmp/help" || die "$group --help does not list $c"
        wrong "$group $c" "$group"
    done
    [ "$(grep -c "^  $group " "$tmp/help")" = $# ] || die "$group --help lists others"
done
# Help pages fit a terminal of 80 columns, begin with examples and are the same by every way to ask.
"$nibble" --help | sed -n 's/^  \([a-z]*\( [a-z]*\)\{0,1\}\)  .*/\1/p' | grep -v -- -- >"$tmp/commands"
[ "$(wc -l <"$tmp/commands")" -ge 19 ] || die "--help lists few commands: $(cat "$tmp/commands")"
while read -r c; do
    # shellcheck disable=SC2086
    ok help $c
    cp "$tmp/out" "$tmp/help"
    awk 'length > 80 { exit 1 }' "$tmp/help" || die "help $c: wider than 80 columns"
    grep -q '^Examples$' "$tmp/help" || die "help $c: no examples"
    # shellcheck disable=SC2086
    ok $c --help
    cmp -s "$tmp/out" "$tmp/help" || die "$c --help differs from help $c"
done <"$tmp/commands"
for what in all fields parallel; do
    ok serve --help=$what
    awk 'length > 80 { exit 1 }' "$tmp/out" || die "serve --help=$what: wider than 80 columns"
done
ok -h
cp "$tmp/out" "$tmp/help"
ok help
cmp -s "$tmp/out" "$tmp/help" || die "help differs from -h"
ok help eval
cp "$tmp/out" "$tmp/help"
ok eval -h
cmp -s "$tmp/out" "$tmp/help" || die "help eval differs from eval -h"
ok calibrate --help
for o in kv-thrift-fraction kv-thrift-pool target-bits max-error; do
    sed -n "/ --$o /,/ --/p" "$tmp/out" | sed '$d' >"$tmp/option"
    grep -Eq '[0-9] to|up to' "$tmp/option" || die "calibrate --help does not have --$o, or no range"
    grep -q 'default: 0)' "$tmp/option" && die "--$o: 0 is not its default: $(cat "$tmp/option")"
done
set --
ok run --help
sed -n '/ --min-p /,/ --rep/p' "$tmp/out" | grep -q 'default: 0)' || die "run --help: no default of --min-p"
for o in -p -n --tokens --json --temperature --top-k --top-p --min-p --repetition-penalty --seed \
    --presence-penalty --frequency-penalty --logit-bias --stop --stop-token-ids --min-tokens \
    --ignore-eos --logprobs --kv-cache-dtype --max-num-batched-tokens --mla --threads --cpu-affinity --cpu-caps; do
    grep -q -- "$o" "$tmp/out" || die "run --help does not have $o"
done

wrong "command missing"
wrong "rum run" rum
wrong "eval comapre" eval comapre
wrong "did you mean compare" eval comapre
wrong "serve --port after the command" --port 1 serve m
wrong "a command comes before MODEL serve models/x" models/x
wrong "unknown" help zzz
wrong "--kv-cache-dtype nvfp did you mean nvfp4?" run m -p x --kv-cache-dtype nvfp
wrong "--mem-fractoin did you mean --mem-fraction-static?" serve m --mem-fractoin 1
wrong "-c llama.cpp --max-model-len" run m -p x -c 4096
wrong "--max-model-len 1e6 4096, 4k" run m -p x --max-model-len 1e6
wrong "--memory 80 MiB 80GiB" plan deepseek-v2-lite --memory 80
wrong "--max-model-len -1 4096, 4k" run m -p x --max-model-len -1
wrong "unknown command" zzzzzzzz m
wrong "--temprature --temperature" run m -p x --temprature 1
wrong "--no-add-specail --no-add-special" run m -p x --no-add-specail
wrong "--rows logits" run m -p x --rows 1
wrong "-q unknown" run m -p x -q
wrong "--top-p missing" run m -p x --top-p
wrong "--json value" run m -p x --json=1
wrong "--tokens -p" run m
wrong "--tokens -p both" run m -p x --tokens f
wrong "--chat --tokens" run m --tokens f --chat
wrong "--skip-tokenizer-init" run m -p x --skip-tokenizer-init
wrong "--output" logits m --tokens f
wrong "--tokens" logits m --output f
wrong "--rows 0,,1" logits m --tokens f --output f --rows 0,,1
wrong "--rows -1" logits m --tokens f --output f --rows -1
wrong "--file --decode" tokenize m
wrong "--file --decode" tokenize m -p x --file f
wrong "--messages" render m

# Values outside their range: the option, the value, the range.
range() { wrong "$1 $2 $3" run m -p x "$1" "$2"; }
range --temperature -1 '>= 0'
range --temperature nan '>= 0'
range --temperature 1x '>= 0'
range --top-p 0 '(0, 1]'
range --top-p 1.01 '(0, 1]'
range --min-p -0.1 '[0, 1]'
range --repetition-penalty 0 '>= 1e-06'
range --repetition-penalty 1e-38 '>= 1e-06'
range --presence-penalty 2.5 '[-2, 2]'
range --frequency-penalty -2.5 '[-2, 2]'
range --top-k -2 '>= -1'
range --top-k 1.5 integer
range -n 0 '>= 1'
range --seed -1 '0..18446744073709551615'
range --seed 18446744073709551616 '0..18446744073709551615'
range --logprobs 21 '[-1, 20]'
range --logit-bias 5 'ID=X'
range --logit-bias 5=101 '[-100, 100]'
range --logit-bias 4294967296=1 'ID=X'
range --stop-token-ids 1,,2 'token ids'
range --kv-cache-dtype fp3 nvfp4
range --mla yes absorbed
range --kv-thrift-fraction 0 '(0, 1]'
range --kv-thrift-pool 0 '(0, 1]'
range --threads 0 '[1, 1024]'
range --prefill-chunk 0 '[1, 65536]'

# Dashes or underscores, and both ways to give a value.
for o in "--top_p 2" "--top_p=2" "--top-p=2"; do
    # shellcheck disable=SC2086
    wrong "--top-p 2 (0, 1]" run m -p x $o
done

# What is wrong with files and models: exit code 1, one line.
fails 1 "nowhere" run "$tmp/nowhere" -p x
fails 1 "nowhere" chat "$tmp/nowhere"
fails 1 "nowhere" info "$tmp/nowhere"
fails 1 "nowhere" tokenize "$tmp/nowhere" -p x
printf '[]' >"$tmp/messages.json"
fails 1 "nowhere" render "$tmp/nowhere" --messages "$tmp/messages.json"
bad_ids() {
    printf '%s' "$1" >"$tmp/ids.json"
    fails 1 "ids.json $2" run m --tokens "$tmp/ids.json"
    fails 1 "ids.json $2" logits m --tokens "$tmp/ids.json" --output "$tmp/rows.f32"
    [ -e "$tmp/rows.f32" ] && die "logits left an output file after a failure"
}
bad_ids '' line
bad_ids '[1,2' line
bad_ids '{"a":1}' array
bad_ids '[1,-1]' 'element 1'
bad_ids '[4294967296]' 'element 0'
bad_ids '[1,2.0]' 'element 1'
bad_ids '["1"]' 'element 0'
bad_ids '[]' 'no tokens'
fails 1 "cannot be opened" run m --tokens "$tmp/nowhere.json"
fails 1 "cannot be read" run m --tokens "$tmp"

# Standard output that cannot be written is a failure.
if [ -w /dev/full ]; then
    "$nibble" --help >/dev/full 2>"$tmp/err"
    [ $? = 1 ] || die "a full disk did not make exit code 1"
    grep -q 'standard output cannot be written' "$tmp/err" || die "a full disk is not named"
fi
( set -o pipefail; "$nibble" run --help 2>"$tmp/err" | true )
case $? in 0 | 1) ;; *) die "a closed pipe made exit code $?" ;; esac
exit 0
