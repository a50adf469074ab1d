# kimi_linear.sh - Kimi-Linear: the reference in float64 agrees with what is recorded, what does not run is refused by
# name, states are counted, and prompts are read again from snapshots.
. "$2/tests/e2e/_lib.sh"
m=$src/tests/parity/kimi_linear
need "$m/expected.safetensors" "no parity vectors"
python3 "$src/tests/parity/kimi_linear_ref.py" --check "$m" >"$tmp/out" 2>"$tmp/err" || die "the reference differs"
echo "[5, 6, 7]" >"$tmp/ids"
run="run $m --tokens $tmp/ids -n 4 --ignore-eos"
ok $run
fails 1 "kimi_linear one rank" $run --tensor-parallel-size 2
fails 1 "kv-thrift kimi_linear" $run --kv-cache-dtype nvfp4 --kv-thrift token
fails 1 "kv-transform MLA every layer" $run --kv-transform hadamard
fails 1 "checkpoint-every-n-tokens 100 multiple of 64" $run --checkpoint-every-n-tokens 100
ok info "$m"
# four layers of 3 heads x 16 x (16 + 3 x 3) floats
grep -q "state_bytes_per_request  19200" "$tmp/out" || die "info: another state"
ok plan kimi-linear-48b --json
python3 - "$tmp/out" <<'PY' || die "plan: another state"
import json, sys
c = json.load(open(sys.argv[1]))["cache"]
assert c["state_bytes"] == 20 * 4 * 32 * 128 * (128 + 9), c["state_bytes"]
PY
# every matrix of the layers but the routers, the experts' under their names, too; and it runs
ok convert "$m" "$tmp/fp8" --weight-format fp8
grep -q "182 matrices of the layers in fp8" "$tmp/out" "$tmp/err" || die "convert: other matrices"
ok run "$tmp/fp8" --tokens "$tmp/ids" -n 4 --ignore-eos
ok convert "$m" "$tmp/nvfp4" --weight-format nvfp4
ok run "$tmp/nvfp4" --tokens "$tmp/ids" -n 4 --ignore-eos
exit 0
