# unused_weights.sh - weights that config.json does not use: a warning, an error with --strict; every model of this
# repository is fine.
. "$2/tests/e2e/_lib.sh"

need "$model/config.json" "no bundled model"
model=$(cd "$model" && pwd) || exit 1
m=$tmp/model
mkdir "$m"
for f in "$model"/*; do ln -s "$f" "$m/"; done
rm "$m/config.json"
sed 's/"num_hidden_layers": *[0-9]*/"num_hidden_layers": 5/' "$model/config.json" >"$m/config.json"
cmp -s "$m/config.json" "$model/config.json" && die "config.json is the same"

words="config.json does not use [0-9]* of the [0-9]* tensors: model.layers.5.[^ ]*, model.layers.[^ ]*, .*, \.\.\."
ok run "$m" -p Once -n 1 --kv-cache-dtype nvfp4
grep -q "warning: .*$words" "$tmp/err" || die "no warning of run"
ok logits "$m" --tokens <(echo '[1,2,3]') --output "$tmp/rows"
grep -q "warning: .*$words" "$tmp/err" || die "no warning of logits"
fails 1 "model config.json not use tensors: model.layers.5." run "$m" -p Once -n 1 --strict
timeout 60 "$nibble" serve "$m" --port 0 --strict --kv-cache-memory-bytes 64M >"$tmp/out" 2>"$tmp/err" </dev/null
[ $? = 1 ] || die "serve --strict"
tail -n 1 "$tmp/err" | grep -q "^nibble: .*$words" || die "serve --strict: another line"

echo '[1,2,3]' >"$tmp/ids"
for c in "$model" "$src"/tests/parity/*/config.json; do
    c=${c%/config.json}
    ok logits "$c" --tokens "$tmp/ids" --output "$tmp/rows" --strict --threads 1
    grep -q "does not use" "$tmp/err" && die "$c"
done
exit 0
