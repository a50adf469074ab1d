# calibrate.sh - `nibble calibrate`: measures the bundled model on a text, its file is loaded by
# --kv-calibration, and refused for another model or when it is damaged.
. "$2/tests/e2e/_lib.sh"
need "$model/config.json" "the bundled model"
text=$tmp/text
for i in 1 2 3 4 5 6; do
    printf 'Once upon a time there was a little fox with %s red apples. ' "$i"
    printf 'One day the fox went to the river to find a friend. "Hello," said the frog, "what is in your bag?" '
    printf 'The fox gave the frog %s apples, and they sat by the water and ate them all. ' "$i"
    printf 'Then the rain came, and they ran home to the old tree, where it was warm and dry.\n\n'
done >"$text"
small="--context 160 --n-tokens 480 --candidates none,center"

# The default: the record stays, a transform only where it is surely better.
# shellcheck disable=SC2086
ok calibrate "$model" --text "$text" -o "$tmp/c.json" $small
grep -q '^layer ' "$tmp/out" || die "no table: $(cat "$tmp/out")"
[ "$(grep -c 'nvfp4 4over6' "$tmp/out")" = 7 ] || die "not 7 layers in nvfp4: $(cat "$tmp/out")"
[ "$(json "$tmp/c.json" '(j["version"], j["n_layer"], len(j["layers"][6]["mean"]))')" = "(1, 7, 512)" ] ||
    die "the file: $(head -c 300 "$tmp/c.json")"
[ -e "$tmp/c.json.tmp" ] && die "a temporary file is left"

# A budget, as JSON; the same input gives the same file.
for i in 1 2; do
    # shellcheck disable=SC2086
    ok calibrate "$model" --text "$text" -o "$tmp/b$i.json" --target-bits 5.5 --json $small
done
[ "$(json "$tmp/out" '4.6 < j["mean_bits_per_value"] <= 5.5 and len(j["layers"]) == 7')" = True ] ||
    die "budget: $(cat "$tmp/out")"
cmp -s "$tmp/b1.json" "$tmp/b2.json" || die "another file from the same text"
[ "$(json "$tmp/b1.json" 'j["target_bits"]')" = 5.5 ] || die "target_bits"

# It is loaded: auto takes the records of the file, a name on the command line wins.
gen() { ok run "$model" -p "Once upon a time" -n 8 --temperature 0 --json "$@"; }
gen --kv-calibration "$tmp/b1.json"
gen --kv-calibration "$tmp/b1.json" --kv-cache-dtype if4 --kv-transform center+equalize
gen --kv-calibration "$tmp/c.json" --kv-transform center+equalize+hadamard --kv-cache-dtype bf16
cp "$tmp/out" "$tmp/folded"
gen --kv-cache-dtype bf16
[ "$(json "$tmp/folded" 'j["text"]')" = "$(json "$tmp/out" 'j["text"]')" ] ||
    die "a transform changed the greedy text of a bf16 cache: $(cat "$tmp/folded")"

# Another model's, and damaged files: one line each.
sed 's/"model_hash": "./"model_hash": "f/; t' "$tmp/c.json" >"$tmp/f.json"
cmp -s "$tmp/c.json" "$tmp/f.json" && sed 's/"model_hash": "./"model_hash": "e/' "$tmp/c.json" >"$tmp/f.json"
fails 1 "another model" run "$model" -p x -n 1 --kv-calibration "$tmp/f.json"
printf '[1,2,3]' >"$tmp/ids"
fails 1 "calibration" run "$src/tests/parity/v3" --tokens "$tmp/ids" -n 1 --kv-calibration "$tmp/c.json"
sed 's/"version": 1/"version": 2/' "$tmp/c.json" >"$tmp/v.json"
fails 1 "v.json version" run "$model" -p x -n 1 --kv-calibration "$tmp/v.json"
head -c 20000 "$tmp/c.json" >"$tmp/cut.json"
fails 1 "cut.json JSON" run "$model" -p x -n 1 --kv-calibration "$tmp/cut.json"
fails 1 "missing.json" run "$model" -p x -n 1 --kv-calibration "$tmp/missing.json"

# Wrong usage.
fails 2 "--output" calibrate "$model" --text "$text"
fails 2 "--text" calibrate "$model" -o "$tmp/x.json"
fails 2 "--target-bits --max-error" calibrate "$model" --text "$text" -o "$tmp/x.json" --target-bits 5 --max-error 0.1
fails 2 "--kv-transform" calibrate "$model" --text "$text" -o "$tmp/x.json" --kv-transform hadamard
fails 1 "--candidates centre" calibrate "$model" --text "$text" -o "$tmp/x.json" --context 160 --candidates centre
fails 1 "no/such" calibrate "$model" --text "$text" -o "$tmp/no/such/x.json"
fails 1 "two" calibrate "$model" --text "$text" -o "$tmp/x.json"
fails 1 "--target-bits" calibrate "$model" --text "$text" -o "$tmp/x.json" --context 160 --n-tokens 480 --candidates none --target-bits 4
[ -e "$tmp/x.json" ] && die "a refused calibration left a file"
[ -z "$(find "$tmp" -name '*.tmp')" ] || die "a trial left a file"

# A fifo is written to, not waited for.
mkfifo "$tmp/fifo"
timeout 120 cat "$tmp/fifo" >"$tmp/through" &
# shellcheck disable=SC2086
timeout 120 "$nibble" calibrate "$model" --text "$text" -o "$tmp/fifo" $small >"$tmp/out" 2>"$tmp/err" || die "a fifo: exit code $?"
wait
cmp -s "$tmp/through" "$tmp/c.json" && [ -p "$tmp/fifo" ] || die "a fifo got something else"
exit 0
