# plan_html.sh - `nibble plan --html`: one well-formed file that needs nothing else, with the figures of
# the JSON, whatever the model's name is; the file is written whole or not at all.
. "$2/tests/e2e/_lib.sh"

# page FILE JSON WORDS...: the page is sound and says what the JSON says.
cat >"$tmp/check.py" <<'END'
import json, re, sys
import xml.etree.ElementTree as e
page = open(sys.argv[1], encoding="utf-8").read()
j = json.load(open(sys.argv[2], encoding="utf-8"))
assert page.startswith("<!doctype html>\n")
assert not re.search(r"<script|https?://(?!www\.w3\.org/2000/svg)|<link|<img|@import|url\(|\son\w+=|src=|href=", page), "not alone"
assert not re.search(r"\b(nan|inf|null)\b|e\+\d", re.sub(r"<style>.*?</style>", "", page, flags=re.S)), "no figure"
root = e.fromstring(re.sub(r"(<meta[^>]*)>", r"\1/>", page[len("<!doctype html>"):]))
text = "".join(root.itertext())
assert all(w in text for w in sys.argv[3:]), [w for w in sys.argv[3:] if w not in text]
S = "{http://www.w3.org/2000/svg}"

heads = [h.tag for h in root.iter() if h.tag in ("h1", "h2", "h3")]
assert heads[0] == "h1" and heads.count("h1") == 1 and "h3" not in heads
ids = [x.get("id") for x in root.iter() if x.get("id")]
assert len(ids) == len(set(ids))
for table in root.iter("table"):
    assert table.find("caption").text
    columns = table.findall("thead/tr/th")
    assert all(c.get("scope") == "col" and c.text for c in columns)
    for row in table.findall("tbody/tr"):
        assert len(row) == len(columns) and row[0].tag == "th" and row[0].get("scope") == "row", e.tostring(row)
plots = root.findall(f".//{S}svg")
assert all(p.get("role") == "img" and p.find(f"{S}title").text for p in plots)
assert all(b.get("aria-label") for b in root.iter("div") if b.get("tabindex"))

def table(caption):
    t = next(t for t in root.iter("table") if t.find("caption").text == caption)
    return [["".join(c.itertext()) for c in r] for r in t.findall("tbody/tr")]
def plain(s):
    return float(s.lstrip("$").replace(",", ""))

cache = table("Cache, by record")
want = [r for r in j["cache"]["records"] if r["default_rope"] or r["marked"]]
assert [round(r["bytes_per_token"]) for r in want] == [plain(r[1]) for r in cache]
assert [r["block_bytes"] for r in want] == [plain(r[3]) for r in cache]
titles = [p.find(f"{S}title").text for p in plots]
if j["layout"] and j["layout"]["fits"]:
    fits = table("What fits, by record")
    n = len(j["capacity"][0]["contexts"])
    assert [[r["tokens"]] + [c["users"] for c in r["contexts"]] for r in j["capacity"]] == [[plain(c) for c in r[2:3 + n]] for r in fits]
    lines = next(p for p in plots if p.find(f"{S}title").text.startswith("Users at once"))
    legend = {t.text for t in lines.findall(f"{S}text")}
    assert {"bf16", "fp8", "nvfp4"} | {r["dtype"] for r in j["capacity"] if r["marked"]} <= legend, legend
if j["decode"]:
    rows = table("Generated tokens, all records")
    assert len(rows) == len(j["decode"]) and len(table("Generated tokens")) <= len(rows)
    for r, d in zip(rows, j["decode"]):
        assert r[0] == d["dtype"] and plain(r[2]) == d["concurrency"]
        for cell, key in ((r[4], "most"), (r[7], "model")):
            assert abs(plain(cell) - d[key]["tokens_per_second"]) <= 0.5, (r, d)
    assert sum(t.startswith("Generated tokens per second") for t in titles) == 2 * min(3, len({d["context"] for d in j["decode"]}))
    assert len(table("Prompts")) == len(j["prefill"]) and "Time to the first token of one prompt" in titles
assert ("Dollars for an hour of one user's place" in titles) == bool(j["cost"] and j["decode"])
assert ("Memory of one device" in titles) == bool(j["machine"])
for said in j["assumptions"] + j["notes"]:
    assert said in text, said
END
sound() {
    python3 "$tmp/check.py" "$tmp/page.html" "$tmp/out" "$@" >"$tmp/err" 2>&1 || die "the page"
}

ok plan deepseek-v3 --json --html "$tmp/page.html"
sound "deepseek-v3: sizes" "70,272" "every head (MHA), bf16"
ok plan deepseek-v3 --gpu h200 --gpus 8 --json --html "$tmp/page.html"
sound "deepseek-v3 on 8 x NVIDIA H200" "KV cache: 30.3 GiB" "\$14.16 an hour"
ok plan deepseek-v3 --gpu h200 --gpus 8 --context 1,100,8k,131072,1M --kv-cache-dtype nvfp4 --kv-rope-dtype fp8 --tokens-per-second 900 \
    --json --html "$tmp/page.html"
sound "nvfp4, rope fp8" "Measured: 900 tokens per second cost \$4.37"
ok plan deepseek-v3 --gpu h100 --gpus 4 --json --html "$tmp/page.html"
sound "Does not fit" "would do"
ok plan llama-3.1-8b --gpu h100 --kv-cache-dtype f32 --concurrency 3 --json --html "$tmp/page.html"
sound "llama-3.1-8b on NVIDIA H100" "as it is, f32"
ok plan "$model" --memory 1GiB --context 64 --json --html "$tmp/page.html"
sound "with 1.0 GiB of memory"
ok plan "$model" --memory 64GiB --bandwidth 200 --flops 3 --price 0.5 --json --html "$tmp/page.html"
sound "What it costs"

# The tables on standard output are the same with a page as without.
ok plan deepseek-v3 --gpu h200 --gpus 8
cp "$tmp/out" "$tmp/without"
ok plan deepseek-v3 --gpu h200 --gpus 8 --html "$tmp/page.html"
cmp -s "$tmp/out" "$tmp/without" || die "the page changes the tables"

# A name from outside is text: of a folder, of a device.
evil="$tmp/<img src=x onerror=alert(1)>&\"'"
mkdir "$evil" && cp "$model/config.json" "$evil"
printf '%s\n' '{"gpus": {"x": {"title": "</title><script>alert(1)</script>", "memory_mib": 8192, "bandwidth_gbs": 1000,' \
    '"bf16_tflops": 100, "price": 2, "price_source": "<b>", "source": "<script src=\"x\">&"}}}' >"$tmp/gpus.json"
ok plan "$evil" --gpu x --gpu-file "$tmp/gpus.json" --json --html "$tmp/evil.html"
grep -qF '<img src=x' "$tmp/evil.html" && die "the model's name is not escaped"
grep -qiF '<script' "$tmp/evil.html" && die "the device's name is not escaped"
grep -qF '&lt;img src=x' "$tmp/evil.html" && grep -qF '&lt;/title&gt;&lt;script&gt;' "$tmp/evil.html" || die "names are missing"
bytes="$tmp/$(printf 'a\377\033b')"
mkdir "$bytes" && cp "$model/config.json" "$bytes"
ok plan "$bytes" --memory 8GiB --html "$tmp/page.html"
python3 -c 'import sys
s = open(sys.argv[1], encoding="utf-8").read()
assert not any(ord(c) < 32 and c != "\n" for c in s)' "$tmp/page.html" || die "a name that is not text"

# Lines that lie on each other are named; figures have a unit that fits; a small machine, a small model.
ok plan deepseek-v3 --gpu h200 --gpus 8 --context 128k --html "$tmp/page.html"
for words in "bf16 (line of nvfp4, to 24)" "millions of tokens" "up to 160k" "other weights outside the experts"; do
    grep -qF "$words" "$tmp/page.html" || die "deepseek-v3: no $words"
done
ok plan llama-3.1-8b --gpu rtx4090 --context 4k --html "$tmp/page.html"
for words in "thousands of tokens" "all other weights" "weights of experts: none"; do
    grep -qF "$words" "$tmp/page.html" || die "llama-3.1-8b: no $words"
done
ok plan "$model" --memory 8GiB --bandwidth 25 --flops 0.2 --html "$tmp/page.html"
for words in "read at 25 GB/s" "15.2 million parameters"; do
    grep -qF "$words" "$tmp/page.html" || die "a small model: no $words"
done

# Written whole, or not at all, and before anything is printed.
fails 1 "none/page.html cannot be written" plan deepseek-v3 --html "$tmp/none/page.html"
mkdir "$tmp/folder"
fails 1 "folder" plan deepseek-v3 --html "$tmp/folder"
echo old >"$tmp/old.html"
fails 2 "--gpu" plan deepseek-v3 --gpu none --html "$tmp/old.html"
[ "$(cat "$tmp/old.html")" = old ] || die "a page that was there is lost"
[ -z "$(ls "$tmp" | grep -F .tmp)" ] || die "a temporary file stays"
