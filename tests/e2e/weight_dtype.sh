# weight_dtype.sh - --weight-dtype int8: text, the same with other threads and instruction sets; logits
# near those of the weights as they are; bytes in `info`; words that are refused.
. "$2/tests/e2e/_lib.sh"
need "$model/config.json" "the bundled model"
run() { ok run "$model" -p "Once upon a time" -n 24 --temperature 0 --ignore-eos "$@"; }
run --weight-dtype int8 --threads 1
cp "$tmp/out" "$tmp/int8"
[ "$(wc -c <"$tmp/int8")" -gt 40 ] || die "no text: $(cat "$tmp/int8")"
run --weight-dtype int8 --threads 2 --prefill-chunk 2
cmp -s "$tmp/out" "$tmp/int8" || die "threads or chunks change the text"
printf '[5,60,700,8,900]' >"$tmp/t.json"
logits() { ok logits "$model" --tokens "$tmp/t.json" --rows all -o "$tmp/$1" --weight-dtype "$2"; }
logits a auto
logits q int8
python3 - "$tmp/a" "$tmp/q" <<'END' || die "logits are far apart, or the same"
import array
import sys
a, q = (array.array("f", open(f, "rb").read()) for f in sys.argv[1:])
mean = sum(a) / len(a)
power = sum((x - mean) ** 2 for x in a)
error = sum((x - y) ** 2 for x, y in zip(a, q))
sys.exit(not 0 < error < 0.01 * power)
END
ok info "$model" --json
[ "$(json "$tmp/out" 'j["weight_bytes_int8"] < 0.7 * j["weight_bytes"]')" = True ] || die "$(cat "$tmp/out")"
ok eval kl "$model" --tokens "$tmp/t.json" --formats bf16,bf16:weights=int8 --bootstrap 100 --json
fails 2 "--weight-dtype int4 auto|int8|fp8" run "$model" -p x --weight-dtype int4
run --weight-dtype fp8 --threads 1
cp "$tmp/out" "$tmp/fp8"
run --weight-dtype fp8 --threads 2 --prefill-chunk 2
cmp -s "$tmp/out" "$tmp/fp8" || die "threads or chunks change the text in FP8"
ok eval kl "$model" --tokens "$tmp/t.json" --formats bf16,bf16:weights=fp8 --bootstrap 100 --json
fails 2 "weights int4 auto|int8|fp8" eval kl "$model" --tokens "$tmp/t.json" --formats bf16:weights=int4
exit 0
