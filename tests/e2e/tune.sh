# tune.sh - kernels chosen by measuring: `bench tune` keeps a choice, --tune reads it, and no file of the cache
# folder, however broken, ends a run or decides what it may not.
. "$2/tests/e2e/_lib.sh"
command -v python3 >/dev/null || skip "there is no python3"
export XDG_CACHE_HOME=$tmp/cache
fast="--kv-cache-dtype nvfp4 --depth 64 --depth-tokens 2 --threads 1 --json"
"$nibble" bench tune "$model" --kv-cache-dtype nvfp4 --threads 1 >"$tmp/out" 2>"$tmp/err" || {
    grep -q 'one level' "$tmp/err" && skip "this machine has one level of instruction sets"
    die "bench tune"
}
file=$(head -n 1 "$tmp/out")
[ -s "$file" ] && [ "${file#"$tmp/cache/nibble/tune/"}" != "$file" ] || die "no file in the cache folder: $file"
grep -q '^linear_bf16 .*chosen$' "$tmp/out" || die "no choice for products: $(cat "$tmp/out")"
cp "$file" "$tmp/good"
ok bench tune "$model" --kv-cache-dtype nvfp4 --threads 1 --json
python3 - "$tmp/out" <<'END' || die "bench tune --json"
import json, sys
ops = json.load(open(sys.argv[1]))["operations"]
assert all(o["level"] in o["measured_us"] and len(o["measured_us"]) > 1 for o in ops.values()), ops
END

# edit PYTHON: changes the good file, as j.
edit() { python3 -c "import json; j = json.load(open('$tmp/good')); ops = j['operations']; $1; json.dump(j, open('$file', 'w'))"; }
# shellcheck disable=SC2086
uses() { # WORDS OPTIONS...: the kernels of a run
    local words=$1
    shift
    ok bench throughput "$model" $fast "$@"
    grep -q "\"kernels\": \"[^\"]* $words" "$tmp/out" || die "not with $words: $(cat "$tmp/out")"
}
# The second candidate of an operation, chosen by hand, is what a run takes; off and --cpu-caps do not look.
edit "m = ops['attn_prefill']['measured_us']; k = [l for l in m]; ops['attn_prefill']['level'] = k[-1]; print(k[0], k[-1], file=open('$tmp/levels', 'w'))"
read -r high low <"$tmp/levels"
uses "attn_prefill=$low " --tune on
uses "attn_prefill=$high " --tune off
uses "attn_prefill=$high " --cpu-caps "$high" --tune on
uses "attn_prefill=$high " # auto: this model is too small to look
# The choice is part of what another process computes: the same file, the same bits.
printf '[1,2,3,4,5,6,7,8]' >"$tmp/ids"
for i in 1 2; do ok logits "$model" --tokens "$tmp/ids" --output "$tmp/l$i" --kv-cache-dtype nvfp4 --threads 1 --tune on; done
cmp -s "$tmp/l1" "$tmp/l2" || die "two runs with one file differ"

# What is stale is measured again without a word, and replaced.
edit "j['key'] = 'nibble 0.0.0; another machine'"
uses "attn_prefill=" --tune on
[ -s "$tmp/err" ] && die "words about a stale file"
grep -q 'another machine' "$file" && die "a stale file is still there"
edit "j['version'] = 2"
uses "attn_prefill=" --tune on

# What is damaged or hostile is one warning, and is replaced.
warns() { # WORDS
    uses "attn_prefill=" --tune on
    grep -q 'kernels are timed again' "$tmp/err" && grep -q "$1" "$tmp/err" || die "no warning with '$1'"
    [ "$(wc -l <"$tmp/err")" = 1 ] || die "more than one line"
    python3 -c "import json; assert json.load(open('$file'))['operations']" || die "the file was not replaced"
}
printf '{"format": "nib' >"$file" && warns "$(basename "$file")"
: >"$file" && warns "$(basename "$file")"
printf '[]' >"$file" && warns 'bench tune'
edit "ops['attn_prefill']['level'] = 'sse9'" && warns 'no level'
edit "ops['attn_prefill'] = 7" && warns 'no level'
edit "del ops['attn_prefill']" && warns 'no level'
edit "j['version'] = 'one'" && warns 'expected format'
head -c 100000 /dev/zero >"$file" && warns ''
python3 -c "print('[' * 5000)" >"$file" && warns ''

# What cannot be replaced is not used: the order of the tables decides, and the run goes on.
keeps_order() { # WORDS
    uses "attn_prefill=$high " --tune on
    grep -q "$1" "$tmp/err" || die "no warning with '$1'"
}
rm -f "$file" && mkfifo "$file"
keeps_order 'cannot be kept\|timed again\|fifo'
rm -f "$file" && mkdir "$file"
keeps_order 'cannot be kept'
rm -rf "$tmp/cache" && : >"$tmp/cache"
keeps_order 'cannot be kept'
unset XDG_CACHE_HOME
( unset HOME; keeps_order 'order of their tables' ) || exit 1
fails 2 "--tune" bench throughput "$model" --tune maybe
fails 2 "bench tune chooses" bench tune "$model" --cpu-caps c
