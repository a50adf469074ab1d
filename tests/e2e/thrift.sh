# thrift.sh - `nibble run --kv-thrift`: the line of --stats, the same bytes for any number of threads
# and any pool, the default where it is off, and what is refused.
. "$2/tests/e2e/_lib.sh"
need "$src/tests/parity/v3/config.json" "no parity checkpoints"
v3=$src/tests/parity/v3
python3 -c 'print([7 + i * i % 300 for i in range(200)])' >"$tmp/ids.json"
run() { ok run "$v3" --tokens "$tmp/ids.json" --ignore-eos -n 30 --temperature 0 --json --logprobs 2 --max-model-len 256 "$@"; }
stats() { ok run "$v3" --tokens "$tmp/ids.json" --ignore-eos -n 30 --max-model-len 256 --stats "$@"; }

run --kv-cache-dtype nvfp4
cp "$tmp/out" "$tmp/plain"
stats --kv-cache-dtype nvfp4
grep -q '^thrift' "$tmp/err" && die "statistics of Thrift mode where it is off"
run --kv-cache-dtype nvfp4 --kv-thrift off
cmp -s "$tmp/out" "$tmp/plain" || die "off is not the default"
run --kv-cache-dtype nvfp4 --kv-thrift token --kv-thrift-tau 1
cmp -s "$tmp/out" "$tmp/plain" || die "tau 1 refines something"
stats --kv-cache-dtype nvfp4 --kv-thrift token --kv-thrift-tau 1
grep -q '^thrift  token: 0.000% of tokens refined (0.000% over the cap)' "$tmp/err" || die "tau 1: no such line"

for kind in token block-mean quest block-prob; do
    how="--kv-cache-dtype nvfp4 --kv-thrift $kind --kv-thrift-tau 1e-6 --kv-thrift-fraction 0.4"
    # shellcheck disable=SC2086
    stats $how
    grep -Eq "^thrift  $kind: [1-9][0-9.]*% of tokens refined .* [0-9.]+ MiB of planes$" "$tmp/err" ||
        die "$kind: no line of statistics"
    # shellcheck disable=SC2086
    run $how --threads 1
    cmp -s "$tmp/out" "$tmp/plain" && die "$kind changes nothing"
    cp "$tmp/out" "$tmp/first"
    for more in "--threads 3" "--threads 2 --prefill-chunk 7" "--threads 1 --kv-thrift-pool 1"; do
        # shellcheck disable=SC2086
        run $how $more
        cmp -s "$tmp/out" "$tmp/first" || die "$kind: $more changes the output"
    done
done

fails 1 "--kv-thrift --kv-cache-dtype bf16" run "$v3" --tokens "$tmp/ids.json" --kv-thrift token --kv-cache-dtype bf16
fails 1 "--kv-thrift --mla auto" run "$v3" --tokens "$tmp/ids.json" --kv-thrift token --kv-cache-dtype nvfp4 --mla expanded
fails 1 "--kv-thrift latent" run "$src/tests/parity/llama3" --tokens "$tmp/ids.json" --kv-thrift quest --kv-cache-dtype nvfp4
fails 2 "--kv-thrift tokens" run "$v3" --tokens "$tmp/ids.json" --kv-thrift tokens
fails 2 "--kv-thrift-tau" run "$v3" --tokens "$tmp/ids.json" --kv-thrift token --kv-thrift-tau 0
fails 2 "--kv-thrift-fraction" run "$v3" --tokens "$tmp/ids.json" --kv-thrift token --kv-thrift-fraction 1.5
