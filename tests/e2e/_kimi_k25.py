"""_kimi_k25.py CASE_DIR OUT: a checkpoint as the text part of a model with vision: config under text_config,
"language_model." before every name, tensors of the vision tower beside them."""
import json, os, struct, sys
src, out = sys.argv[1:]
os.makedirs(out)
text = json.load(open(f"{src}/config.json"))
json.dump({"model_type": "kimi_k25", "architectures": ["KimiK25ForConditionalGeneration"], "text_config": text,
           "vision_config": {"model_type": "moonvit"}, "media_placeholder_token_id": 5}, open(f"{out}/config.json", "w"))
raw = open(f"{src}/model.safetensors", "rb").read()
n, = struct.unpack("<Q", raw[:8])
head = {("language_model." + k if k != "__metadata__" else k): v for k, v in json.loads(raw[8:8 + n]).items()}
data = raw[8 + n:]
for name in ("vision_tower.patch_embed.proj.weight", "mm_projector.proj.0.weight"):
    head[name] = {"dtype": "BF16", "shape": [4, 4], "data_offsets": [len(data), len(data) + 32]}
    data += bytes(32)
head = json.dumps(head).encode()
head += b" " * (-len(head) % 8)
open(f"{out}/model.safetensors", "wb").write(struct.pack("<Q", len(head)) + head + data)
