# weight_forms.sh - checkpoints in every published form of quantised weights: the logits are those of the same
# weights as floats.
. "$2/tests/e2e/_lib.sh"
base=$src/tests/parity/kimi_k2
writer=$src/tests/e2e/_weight_forms.py
need "$base/model.safetensors" "no parity vectors"
printf '[3,141,59,265,35,89,7,93,238,46,26,43,300,8,32,79,50,28,8,41,97,169,39,93]' >"$tmp/t.json"
logits() { ok logits "$1" --tokens "$tmp/t.json" --kv-cache-dtype f32 --device cpu --rows 0,9,23 --output "$2" $3; }

logits "$base" "$tmp/base.f32" ""
for form in $(python3 "$writer" list); do
    python3 "$writer" "$form" "$base" "$tmp/$form" || die "$form: cannot be written"
    logits "$tmp/$form/q" "$tmp/q.f32" --strict
    logits "$tmp/$form/f" "$tmp/f.f32" ""
    python3 "$writer" compare "$tmp/q.f32" "$tmp/f.f32" "$tmp/base.f32" || die "$form: wrong logits"
    [ "$form" = w4-act ] || rm -rf "${tmp:?}/$form"
done
