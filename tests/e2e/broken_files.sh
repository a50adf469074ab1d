# broken_files.sh - optional files of a model that are there and broken are errors that name them; none makes a command
# wait.  Standard descriptors that are closed.
. "$2/tests/e2e/_lib.sh"

need "$model/config.json" "no bundled model"
m=$tmp/model
model=$(cd "$model" && pwd) || exit 1 # of links

# A folder of links to the bundled model, without the file $1.
fresh() {
    rm -rf "$m"
    mkdir "$m"
    for f in "$model"/*; do
        [ "${f##*/}" = "$1" ] || ln -s "$f" "$m/"
    done
}

# refused FILE WORDS COMMAND...: fails with one line that names the file and says what it is, and does not wait.
refused() {
    local file=$1 words=$2 rc=0
    shift 2
    timeout 60 "$nibble" "$@" --kv-cache-dtype nvfp4 >"$tmp/out" 2>"$tmp/err" </dev/null || rc=$?
    [ $rc = 1 ] || die "exit code $rc, expected 1: $file ($words): $*"
    tail -n 1 "$tmp/err" | grep -q "^nibble: .*/$file: .*$words" || die "$file: expected '$words': $(tail -n 1 "$tmp/err")"
}

each_kind() { # FILE COMMAND...
    local file=$1
    shift
    fresh "$file"
    ln -s nowhere "$m/$file"
    refused "$file" "is a link that leads nowhere" "$@"
    rm "$m/$file"
    mkfifo "$m/$file"
    refused "$file" "is a fifo" "$@"
    rm "$m/$file"
    mkdir "$m/$file"
    refused "$file" "is a directory" "$@"
    rmdir "$m/$file"
    ln -s "$m/$file" "$m/$file"
    refused "$file" "is a link that leads nowhere" "$@"
    rm "$m/$file"
    python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])' "$m/$file"
    refused "$file" "is a socket" "$@"
    rm "$m/$file"
    ln -s /dev/null "$m/$file"
    refused "$file" "is a link to a device" "$@"
}

serve() { each_kind "$1" serve "$m" --port 0; }
run() { each_kind "$1" run "$m" -p Once -n 1; }

serve generation_config.json
serve tokenizer_config.json
for f in tokenizer.json tokenizer_config.json special_tokens_map.json added_tokens.json chat_template.jinja \
    hf_quant_config.json model.safetensors model.safetensors.index.json; do
    run $f
done
fresh tokenizer.json
mkfifo "$m/tiktoken.model"
refused tiktoken.model "is a fifo" run "$m" -p Once
fresh model-00002-of-00002.safetensors
mkfifo "$m/model-00002-of-00002.safetensors"
refused model-00002-of-00002.safetensors "is a fifo" run "$m" -p Once
fresh config.json
mkfifo "$m/config.json"
refused config.json "is a fifo" run "$m" -p Once

# Not JSON, or not an object.
for text in '' '{' '[]' '{"temperature": }'; do
    fresh generation_config.json
    printf '%s' "$text" >"$m/generation_config.json"
    refused generation_config.json "JSON\|expected an object" serve "$m" --port 0
done

# Absent files are no errors.
fresh generation_config.json
rm "$m/tokenizer_config.json"
ok run "$m" -p Once -n 1

# Closed descriptors are /dev/null: no file of the model takes their place and is written to.
for closed in '<&-' '>&-' '2>&-' '<&- >&-' '>&- 2>&-' '<&- >&- 2>&-'; do
    for f in config.json tokenizer.json; do cp "$model/$f" "$tmp/$f.before"; done
    eval "timeout 60 \"\$nibble\" run \"\$model\" -p Once -n 3 $closed" >"$tmp/out" 2>"$tmp/err"
    rc=$?
    case $closed in
    *' >'* | '>'*) [ $rc = 0 ] || [ $rc = 1 ] || die "exit code $rc with $closed" ;;
    *) [ $rc = 0 ] || die "exit code $rc with $closed" ;;
    esac
    for f in config.json tokenizer.json; do cmp -s "$model/$f" "$tmp/$f.before" || die "$f was written to with $closed"; done
done
"$nibble" run "$model" -p Once -n 3 <&- 2>/dev/null >"$tmp/out" || die "run without standard input"
grep -q . "$tmp/out" || die "run without standard input printed nothing"
eval '"$nibble" logits "$model" --tokens /dev/null --output "$tmp/rows" <&- >&- 2>&-' # an error that nobody sees
[ $? = 1 ] || die "no error without standard descriptors"
if [ -d /proc/self/fd ]; then
    for fd in 0 1 2; do
        python3 - "$nibble" "$model" $fd <<'END' || die "descriptor $fd of a server"
import os, subprocess, sys, time
nibble, model, fd = sys.argv[1], sys.argv[2], int(sys.argv[3])
p = subprocess.Popen([nibble, "serve", model, "--port", "0", "--kv-cache-memory-bytes", "64M"],
                     preexec_fn=lambda: os.close(fd))
try:
    deadline = time.monotonic() + 60
    def target():
        try:
            return os.readlink(f"/proc/{p.pid}/fd/{fd}")
        except OSError:
            return None
    while target() != "/dev/null": # before main a library that is being loaded may have the number
        assert time.monotonic() < deadline and p.poll() is None, target()
        time.sleep(0.01)
finally:
    p.kill()
    p.wait()
END
    done
fi
exit 0
