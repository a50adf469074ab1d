# model_id.sh - MODEL as a Hugging Face id: found in the local hub cache, named when it is not there.
. "$2/tests/e2e/_lib.sh"

need "$model/config.json" "no bundled model"
commit=0123456789abcdef0123456789abcdef01234567
id=nibble-project/nibble-tiny
repo=$tmp/home/hub/models--nibble-project--nibble-tiny
mkdir -p "$repo/refs" "$repo/blobs" "$repo/snapshots/$commit"
printf %s "$commit" >"$repo/refs/main"
for f in "$model"/*; do
    cp "$f" "$repo/blobs/"
    ln -s "../../blobs/$(basename "$f")" "$repo/snapshots/$commit/"
done
unset HF_HUB_CACHE HUGGINGFACE_HUB_CACHE XDG_CACHE_HOME
export HF_HOME="$tmp/home"

# The same text by path, by id, by commit and by a shortened commit.
ok run "$model" -p "Once upon a time" -n 8 --json
cp "$tmp/out" "$tmp/by_path"
for m in "$id" "$id@main" "$id@$commit" "$id@01234"; do
    ok run "$m" -p "Once upon a time" -n 8 --json
    cmp -s "$tmp/out" "$tmp/by_path" || die "run $m: another text"
done
ok run "$id" --revision 01234 -p "Once upon a time" -n 8 --json
cmp -s "$tmp/out" "$tmp/by_path" || die "--revision: another text"
ok tokenize "$id" -p "Once upon a time"
ok info "$id"
ok plan "$id"
HF_HUB_CACHE="$tmp/home/hub" HF_HOME=/nowhere ok run "$id" -p x -n 1 --json
fails 2 "--revision already" run "$id@main" --revision main -p x

# An existing path wins over the cache.
(cd "$tmp" && mkdir -p "nibble-project" && ln -s "$model" "$id" && rm "$repo/refs/main" &&
    ok run "$id" -p "Once upon a time" -n 8 --json && cmp -s out by_path) || die "the path did not win"
ok run "$model" --revision v1 -p x -n 1 --json
grep -q "warning: --revision v1: no effect" "$tmp/err" || die "--revision of a path: no warning"

# The bundled model by its name, from anywhere; a folder of that name wins.
(cd "$tmp" && ok run nibble-tiny -p "Once upon a time" -n 8 --json && cmp -s out by_path) || die "nibble-tiny: not found"
(cd "$tmp" && mkdir nibble-tiny && fails 1 "nibble-tiny config.json" run nibble-tiny -p x) || exit 1
fails 1 nibble-tiny2 run nibble-tiny2 -p x
fails 1 ../nibble-tiny run ../nibble-tiny -p x

# Not there: one line that names the command which downloads it.
pull='`nibble pull nibble-project/other`'
for c in run serve info logits tokenize render chat; do
    fails 1 "$pull" $c nibble-project/other
done
here='`nibble pull nibble-project/nibble-tiny`'
fails 1 "revision main $here" run "$id" -p x
fails 1 'revision v9 `nibble pull nibble-project/nibble-tiny@v9`' run "$id@v9" -p x
printf %s "$commit" >"$repo/refs/main"
rm "$repo/snapshots/$commit/model-00002-of-00002.safetensors"
fails 1 "model-00002-of-00002.safetensors $here" run "$id" -p x
rm "$repo/snapshots/$commit"/model*
fails 1 "model.safetensors $here" run "$id" -p x
rm "$repo/snapshots/$commit/config.json"
fails 1 "config.json $here" run "$id" -p x
rm "$repo/snapshots/$commit/tokenizer.json"
fails 1 "tokenizer $here" tokenize "$id" -p x

# The configurations that `plan` knows by name.
ok info deepseek-v3 --json
[ "$(json "$tmp/out" '(j["n_param"], j["bundled_config"])')" = "(671026419200, 'deepseek-v3')" ] || die "info deepseek-v3"
ok info deepseek-ai/DeepSeek-V2-Lite
grep -q 'bundled configuration deepseek-v2-lite: there are no weights here' "$tmp/out" || die "info: not said"
fails 1 "deepseek-v9 bundled" info deepseek-v9
exit 0
