# model_errors.sh - a MODEL that is not one: a line that says what it is and what to do, and what a server
# says of a model without a tokenizer or a chat template.
. "$2/tests/e2e/_lib.sh"

need "$model/config.json" "no bundled model"
model=$(cd "$model" && pwd) && cd "$tmp" || exit 1
# wrong WORDS MODEL: said by every command that reads a model, in one line, before anything else.
wrong() {
    for c in "run -p x" "serve --port 0" "logits --tokens ids.json --output rows"; do
        # shellcheck disable=SC2086
        set -- "$1" "$2" $c
        command=$3
        fails 1 "$1" "$command" "$2" "${@:4}"
    done
}
echo '[1]' >ids.json

# ---- files ----
wrong "nowhere no such file pull" nowhere
wrong "URL pull" https://example.org/org/name
printf 'GGUF\003\0\0\0' >model.gguf
wrong "model.gguf 8 bytes GGUF" model.gguf
echo hello >text.gguf
wrong "text.gguf begin GGUF" text.gguf
echo hello >README.md
wrong "README.md not directory config.json tokenizer.json" README.md
echo x >pytorch_model.bin
wrong "pytorch_model.bin PyTorch safetensors" pytorch_model.bin
wrong "model-00001-of-00002.safetensors one file directory" "$model/model-00001-of-00002.safetensors"
fails 1 "config.json not a directory dummy" serve "$model/config.json"
fails 1 "model_type gpt2 supported deepseek_v3" info "$(echo '{"model_type":"gpt2"}' >gpt2.json && echo gpt2.json)"

# ---- directories ----
mkdir empty
wrong "empty no config.json pull" empty
mkdir adapter && echo '{}' >adapter/adapter_config.json
wrong "adapter merge base" adapter
mkdir half && cp "$model"/*.safetensors half
wrong "half config.json missing complete" half
mkdir gguf && cp model.gguf gguf
wrong "gguf/model.gguf 8 bytes GGUF" gguf
cp model.gguf gguf/other.gguf
wrong "gguf 2 GGUF --gguf-file model.gguf" gguf
fails 2 "--gguf-file none.gguf no such file" info gguf --gguf-file none.gguf
fails 2 "--gguf-file not a folder" info model.gguf --gguf-file model.gguf
fails 1 "gguf/other.gguf 8 bytes" info gguf --gguf-file other.gguf
mkdir -p cache/snapshots/0123 cache/refs
wrong "cache id ORG/NAME snapshots" cache
for f in pytorch_model.bin consolidated.00.pth; do
    rm -rf weights && mkdir weights && cp "$model/config.json" weights && echo x >"weights/$f"
    fails 1 "weights are safetensors" serve weights --port 0
done
rm weights/*.pth && echo x >weights/model.gguf
fails 1 "weights/model.gguf GGUF" serve weights --port 0
rm weights/*.gguf
fails 1 "weights no weights there dummy" serve weights --port 0
cp "$model"/*.safetensors weights
fails 1 "weights 2 index.json" serve weights --port 0

# ---- no tokenizer, no template ----
cp "$model"/*.index.json weights
fails 1 "weights tokenizer --tokens" run weights -p x
fails 1 "weights tokenizer.json" tokenize weights -p x
fails 1 "README.md not directory" tokenize README.md -p x
says() {
    timeout 60 "$nibble" serve weights --port 0 --kv-cache-memory-bytes 64M "${@:2}" 2>"$tmp/err" &
    server=$!
    for _ in $(seq 600); do
        grep -q 'listening on' "$tmp/err" && break
        sleep 0.1
    done
    kill "$server"
    wait "$server"
    grep 'WARN' "$tmp/err" >"$tmp/warned"
    for word in $1; do grep -qF -- "$word" "$tmp/warned" || die "no warning with $word: $(cat "$tmp/warned")"; done
}
says "weights tokenizer token ids refused"
says "" --skip-tokenizer-init
grep -q tokenizer "$tmp/warned" && die "a warning although --skip-tokenizer-init was given"
cp "$model/tokenizer.json" weights
says "weights chat template refused --chat-template"
printf '{{ messages[0].content }}' >chat.jinja
says "" --chat-template chat.jinja
[ -s "$tmp/warned" ] && die "a warning: $(cat "$tmp/warned")"
exit 0
