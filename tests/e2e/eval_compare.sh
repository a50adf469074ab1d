# eval_compare.sh - `nibble eval compare`: the page is well-formed and needs nothing else, its JSON
# is what the parts say alone, a part that fails leaves a hole.
. "$2/tests/e2e/_lib.sh"
need "$model/config.json" "no bundled model"
printf 'The old house stood at the end of the lane. %s' \
    'Nobody had lived in it since the captain went to sea, and the boys of the village said that at night a light went from room to room. ' \
    'Tom did not believe it. He had been there once with his sister, in the middle of the day, and had seen nothing but dust and a broken chair. ' \
    'But he had not gone up the stairs, and he had not stayed long. ' >"$tmp/text"
run() {
    ok eval compare "$model" --text "$tmp/text" --n-tokens 100 --context 100 --tasks niah_single \
        --lengths 256 --samples 1 --bootstrap 100 --threads 1 "$@"
}

run --formats nvfp4,fp8:mla=absorbed -o "$tmp/page"
for word in "== Summary" nvfp4 fp8:mla=absorbed "KL, nats" "index.html"; do
    grep -qF -- "$word" "$tmp/out" || die "the text does not say: $word"
done
python3 - "$tmp/page/index.html" <<'END' || die "the page"
import re
import sys
import xml.etree.ElementTree as e
page = open(sys.argv[1], encoding="utf-8").read()
assert page.startswith("<!doctype html>\n")
assert not re.search(r"<script|https?://(?!www\.w3\.org/2000/svg)|<link|<img|@import|url\(", page)
root = e.fromstring(re.sub(r"(<meta[^>]*)>", r"\1/>", page[len("<!doctype html>"):]))
text = "".join(root.itertext())
assert all(w in text for w in ("nvfp4", "fp8:mla=absorbed", "niah_single", "perplexity")), "words"
rows = root.findall(".//tbody/tr")
assert [r[0].text for r in rows] == ["bf16", "nvfp4", "fp8:mla=absorbed"]
assert all(float(r[3].text) > 0 and float(r[6].text) > 0 for r in rows[1:]), "empty cells"
assert len(root.findall(".//{http://www.w3.org/2000/svg}svg")) >= 4
assert "prefers-color-scheme" in page
END
ok eval kl "$model" --text "$tmp/text" --n-tokens 100 --context 100 --bootstrap 100 --threads 1 \
    --formats nvfp4,fp8:mla=absorbed --json
python3 -c 'import json, sys
c, k = (json.load(open(f)) for f in sys.argv[1:])
assert c["what"] == "compare" and c["kl"] == k, "kl differs"
assert [v["name"] for v in c["attn"]["variants"]] and [v["name"] for v in c["ruler"]["variants"]] == ["nvfp4", "fp8:mla=absorbed"]' \
    "$tmp/page/compare.json" "$tmp/out" || die "compare.json"

fails 2 "--text --tokens" eval compare "$model"
fails 2 "nvfp5" eval compare "$model" --text "$tmp/text" --formats nvfp5
fails 2 "eval compare" eval
printf x >"$tmp/file"
fails 1 "file directory" eval compare "$model" --text "$tmp/text" --formats fp8 -o "$tmp/file"
fails 1 "no/such" eval compare "$model" --text "$tmp/text" --formats fp8 -o "$tmp/no/such"
exit 0
