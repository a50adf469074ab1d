# mistral_params.sh - params.json and consolidated.safetensors are the same model as config.json and model.safetensors, bit
# for bit: in one file, in shards, and in FP8 with one scale for a matrix.  What is wrong is named in its own words.
. "$2/tests/e2e/_lib.sh"
m=$src/tests/parity/mistral4
need "$m/expected.safetensors" "no parity vectors"
python3 "$src/tests/e2e/_mistral_params.py" "$m" "$tmp" || die "cannot make the checkpoints"
python3 "$src/tests/e2e/_expected.py" "$m/expected.safetensors" list tokens >"$tmp/t.json" || die "no tokens"
for x in hf own shards hf8 own8; do
    ok logits "$tmp/$x" --tokens "$tmp/t.json" --rows all --output "$tmp/$x.f32"
    grep -i "not used\|unused\|ignored" "$tmp/err" && die "$x: a tensor is left over"
done
cmp "$tmp/hf.f32" "$tmp/own.f32" || die "consolidated.safetensors has other logits"
cmp "$tmp/hf.f32" "$tmp/shards.f32" || die "shards have other logits"
cmp "$tmp/hf8.f32" "$tmp/own8.f32" || die "FP8 has other logits"
cmp -s "$tmp/hf.f32" "$tmp/own8.f32" && die "FP8 changes nothing"
ok info "$tmp/own"
grep -q "family *mistral4" "$tmp/out" || die "info: no family"
ok plan "$tmp/own8" --gpu h100
ok logits "$tmp/own" --load-format dummy --tokens "$tmp/t.json" --output "$tmp/x.f32"

sed 's/"dim": [0-9]*/"dimension": 72/' "$tmp/own/params.json" >"$tmp/p" && cp "$tmp/p" "$tmp/own/params.json"
fails 1 "params.json dim missing" info "$tmp/own"
printf '{' >"$tmp/own/params.json"
fails 1 "params.json" logits "$tmp/own" --tokens "$tmp/t.json" --output "$tmp/x.f32"
rm "$tmp/own/params.json"
fails 1 "config.json missing" info "$tmp/own"
rm "$tmp/shards/consolidated-00002-of-00002.safetensors"
fails 1 "consolidated-00002-of-00002" logits "$tmp/shards" --tokens "$tmp/t.json" --output "$tmp/x.f32"
exit 0
