# serve_flags.sh - options of `nibble serve`: names, values, refusals with their reasons, the
# configuration file.  No server comes up here: every line ends before, or at a model that is not there.
. "$2/tests/e2e/_lib.sh"

unset VLLM_API_KEY NIBBLE_API_KEY VLLM_SERVER_DEV_MODE
wrong() { fails 2 "$1" serve "$tmp/none" "${@:2}"; }
# The options are fine: what is missing is the model.
fine() { fails 1 "/none: no such" serve "$tmp/none" "$@"; }

ok serve --help
for o in --host --port --uds --api-key --ssl-certfile --ssl-keyfile --ssl-ca-certs --allowed-origins \
    --served-model-name --max-model-len --gpu-memory-utilization --kv-cache-memory-bytes --block-size \
    --enable-prefix-caching --max-num-seqs --max-num-batched-tokens \
    --long-prefill-token-threshold --scheduling-policy --max-num-queued-reqs \
    --max-num-queued-tokens --kv-cache-dtype --dtype --seed --max-logprobs \
    --generation-config --override-generation-config --default-chat-template-kwargs \
    --chat-template-content-format --memory-utilization --chat-template --disable-log-requests --log-format --config --load-format \
    --enable-request-id-headers --enable-force-include-usage --max-connections --drain-timeout; do
    grep -q -- "$o\\|\[no-\]${o#--}" "$tmp/out" || die "serve --help does not have $o"
done
grep -q -- --pipeline-parallel-size "$tmp/out" && die "serve --help lists options of other servers"
ok serve --help=all
for o in --prefix-caching-hash-algo --enable-chunked-prefill --pipeline-parallel-size --enforce-eager --ctx-size; do
    grep -q -- "$o" "$tmp/out" || die "serve --help=all does not have $o"
done
ok serve --help=parallel
grep -q -- --pipeline-parallel-size "$tmp/out" || die "--help=parallel does not find an option"
grep -q -- --port "$tmp/out" && die "--help=parallel finds too much"
ok serve --help=zzz
grep -q 'No option' "$tmp/out" || die "--help=zzz finds something"

# vLLM's command lines: every spelling is taken.
fine --host 0.0.0.0 --port 0 --served-model-name a b c --api-key k1 k2 --api-key k3
fine --max_model_len 2k --gpu_memory_utilization=0.9 --max-num-seqs 32 --max-num-batched-tokens 2K
fine --max-model-len auto --max-model-len -1 --max-model-len 25.6k --kv-cache-memory-bytes 512M
fine -tp 2 -dcp 2 --device cpu
fine -tp 1 -pp 1 -dp 1 -dcp=1 --tensor-parallel-size 1 --no-enable-expert-parallel --api-server-count 1
fine -dp 4 -ep
fine -tp 2 --enable-expert-parallel --tp-size 8
fine --no-enable-prefix-caching --enable-chunked-prefill --prefix-caching-hash-algo sha256 --block-size 64
fine --enable-prompt-tokens-details --enable-request-id-headers --enable-force-include-usage
fine --enforce-eager --trust-remote-code --disable-log-stats --uvicorn-log-level warning --swap-space 4
fine --dtype auto --dtype bfloat16 --dtype half --device cpu --device auto --quantization None --seed 7
fine --scheduling-policy priority --priority-age 5 --max-step-ms 40 --max-num-queued-reqs 100 --max-num-queued-tokens 100k
fine --disable-log-requests --no-log-requests --log-requests --enable-log-requests --log-format json
fine --allowed-origins '["https://a.example", "http://b.example:8080"]' --allowed-origins '*'
fine --allowed-origins https://a.example http://b.example --generation-config vllm --kv-cache-dtype fp8
fine --max-header-bytes 64K --max-body-bytes 1M --max-connections 10 --read-timeout 0.5 --idle-timeout 1 \
    --write-timeout 2 --drain-timeout 3 --max-logprobs 5 --long-prefill-token-threshold 100 --root-path ''
fine --uds "$tmp/socket" --no-page --dev-endpoints --skip-tokenizer-init -t 2 --max-n 4 --max-stop 2

# What cannot be is refused with the reason.
wrong "--tensor-parallel-size 9 [1, 8]" --tensor-parallel-size 9
wrong "-tp 0 [1, 8]" -tp 0
wrong "-tp 9 [1, 8]" -tp=9
wrong "-dcp 9 [1, 8]" -dcp 9
wrong "-dpl 4 router" -dpl 4
wrong "-pp 2 supported" -pp 2
wrong "--no-enable-chunked-prefill always" --no-enable-chunked-prefill
wrong "--prefix-caching-hash-algo xxhash SHA-256" --prefix-caching-hash-algo xxhash
wrong "--dtype fp8 checkpoint --kv-cache-dtype" --dtype fp8
wrong "--dtype fp8_e4m3 checkpoint" --dtype fp8_e4m3
wrong "--dtype int7 bfloat16" --dtype int7
wrong "--block-size 16 64" --block-size 16
wrong "--quantization fp8 checkpoint" --quantization fp8
wrong "--kv-cache-dtype fp3 nvfp4" --kv-cache-dtype fp3
wrong "--kv-transfer-config not supported" --kv-transfer-config.role x
wrong "--kv-transfer-config not supported" --kv-transfer-config '{"kv_role": "x"}'
fine --enable-auto-tool-choice --tool-call-parser hermes --reasoning-parser deepseek_r1
wrong "--tool-call-parser none deepseek_v3" --tool-call-parser nonsense
wrong "--tokenizer other not" --tokenizer other
wrong "--root-path /x proxy" --root-path /x
wrong "--max-num-batched-tokens 16 --max-num-seqs 32" --max-num-batched-tokens 16 --max-num-seqs 32
wrong "--ssl-certfile --ssl-keyfile both" --ssl-certfile a
wrong "--ssl-ca-certs --ssl-keyfile" --ssl-ca-certs a
wrong "--allowed-origins a.example https" --allowed-origins a.example
wrong "--allowed-origins JSON" --allowed-origins '["https://a.example"'
wrong "--allowed-origins element 1" --allowed-origins '["https://a.example", 2]'
wrong "--api-key empty" --api-key ''
wrong "--served-model-name empty" --served-model-name ''
wrong "--enforce-eager value" --enforce-eager=1
# An error names the option as it was written.
wrong "--page-size 16 64" --page-size 16
wrong "--tokenizer-path other not" --tokenizer-path other
wrong "--chunked-prefill-size 16 --max-num-seqs" --chunked-prefill-size 16
wrong "--max-num-sequences --max-num-seqs" --max-num-sequences 3
wrong "--temperature run" --temperature 1
fails 2 "MODEL" serve

# Numbers.
range() { wrong "$1 $2 $3" "$1" "$2"; }
range --port 65536 '[0, 65535]'
range --port -1 '[0, 65535]'
range --gpu-memory-utilization 1.1 '[0, 1]'
range --gpu-memory-utilization -0.1 '[0, 1]'
range --max-num-seqs 0 '[1, 4096]'
range --max-num-batched-tokens 65537 65536
for v in 0 -2 1.5 1.5K 1kk k 4x 1e3 ' 5' 99999999999999999999 0x10; do range --max-model-len "$v" 4K; done
range --max-logprobs 0 '[1, 20]'
range --max-logprobs 21 '[1, 20]'
range --seed -1 18446744073709551615
range --drain-timeout -1 '>= 0'
range --log-format xml 'text|json'
range --scheduling-policy lifo 'fcfs|priority'

# ---- the configuration file ----
conf() { cat >"$tmp/c.yaml"; }
wrong_conf() { fails 2 "c.yaml:$1" serve --config "$tmp/c.yaml" "${@:2}"; }

printf 'model: %s/none\nport: 9000\nmax_model_len: 2k\napi-key: [a, "b"]\nserved-model-name:\n  - x\n  - y\n' \
    "$tmp" | conf
printf 'enforce-eager: true\nenable-prefix-caching: false\nlog_requests: no\nskip-tokenizer-init: off\n' >>"$tmp/c.yaml"
fails 1 "/none: no such" serve --config "$tmp/c.yaml"
fails 1 "/none: no such" serve --config="$tmp/c.yaml" --port 1
# The command line wins, the model too.
fails 1 "/other: no such" serve "$tmp/other" --config "$tmp/c.yaml"
fails 1 "/other: no such" serve --config "$tmp/c.yaml" --model "$tmp/other"
fails 2 "unexpected two" serve --model one two --config "$tmp/c.yaml"
printf 'block-size: 16\n' | conf
fails 1 "/none: no such" serve "$tmp/none" --config "$tmp/c.yaml" --block-size 64
fails 2 "--block-size 16" serve "$tmp/none" --config "$tmp/c.yaml"
printf '# nothing\n' | conf
fails 1 "/none: no such" serve "$tmp/none" --config "$tmp/c.yaml"

# Errors name file, line and key.
printf 'port: 1\nport: 2\n' | conf; wrong_conf "2: port twice"
printf 'port: 1\n\nmax-model-lem: 2\n' | conf; wrong_conf "3: max-model-lem --max-model-len"
printf 'port: x\n' | conf; wrong_conf "1: port x [0, 65535]"
printf 'port: [1, 2]\n' | conf; wrong_conf "1: port list"
printf 'port:\n' | conf; wrong_conf "1: port no value"
printf 'port: {a: b}\n' | conf; wrong_conf "1: port mapping"
printf 'a: 1\n' | conf; wrong_conf "1: a unknown"
printf 'host: &x h\nuds: *x\n' | conf; wrong_conf "2: uds alias"
printf 'pipeline-parallel-size: 8\n' | conf; wrong_conf "1: pipeline-parallel-size 8 not supported"
printf 'enable-prefix-caching: perhaps\n' | conf; wrong_conf "1: enable-prefix-caching perhaps true"
printf 'kv-events-config:\n  enable: true\n' | conf; wrong_conf "1: kv-events-config not supported"
printf 'config: other.yaml\n' | conf; wrong_conf "1: config not"
printf 'api-key: [a, [b]]\n' | conf; wrong_conf "1: api-key list"
printf -- '- port\n' | conf; wrong_conf "1: option"
printf 'port: 1\n---\nport: 2\n' | conf; wrong_conf "2: second"
printf 'port: "1\n' | conf; wrong_conf "2: YAML"
printf 'a\0b: 1\n' | conf; wrong_conf "1:"
printf '\377\376\000' | conf; wrong_conf "1:"
printf '[%.0s' $(seq 5000) | conf; wrong_conf "1:"
fails 1 "nowhere.yaml" serve m --config "$tmp/nowhere.yaml"

# ---- what the model or the machine cannot do: refused before weights are read ----
need "$model/config.json" "no bundled model"
fails 2 "--max-model-len 9999999 maximum" serve "$model" --max-model-len 9999999
fails 2 "--dtype float32 bfloat16" serve "$model" --dtype float32
fails 1 "KV estimated maximum length" serve "$model" --kv-cache-memory-bytes 20K --kv-cache-dtype bf16
fails 1 "estimated maximum 64" serve "$model" --num-gpu-blocks-override 1
fails 1 "block 64" serve "$model" --kv-cache-memory-bytes 100 --max-model-len auto
fails 1 "--memory-utilization memory weights" serve "$model" --memory-utilization 1e-9
fails 1 "memory estimated" serve "$model" --kv-cache-memory-bytes 900T
exit 0
