#!/usr/bin/env python3
"""Do other engines' libraries read what `nibble convert` writes?  Needs PyTorch, transformers and, for its forms,
compressed-tensors; skips (exit code 77) without the first two.

  transformers_load.py NIBBLE MODEL [WORK] [FORM...]

For each form the model is converted, and the logits of a short text are computed three times: by nibble (float
activations, F32 cache); by transformers in F32 from the folder as it is; and by transformers from a plain folder whose
matrices compressed-tensors' own decompress functions have made.  `direct` needs transformers' loader for the form,
`library` only needs the library that defines it.  The bound is on the largest difference over the largest logit.
FP8 activations of the direct path are rounded by the library, so that only its decompressed weights are compared
closely.  Each line says what was done; the exit code is 1 where a comparison fails, else 77 where a form could not be compared.
"""
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import traceback

FORMS = ["bf16", "int4-g32", "int4-g128", "nvfp4", "mxfp4", "fp8", "fp8-block"]
BOUND = 2e-4           # of weights that are the same floats: sums in another order
ROUNDED = {"fp8": 0.1}  # where the library also rounds activations
IDS = [0] + [(7919 * i) % 3900 + 100 for i in range(1, 48)]


def skip(why):
    print("transformers_load: skipped: " + why)
    sys.exit(77)


def run(*a):
    subprocess.run(a, check=True, stdout=subprocess.DEVNULL)


def own_logits(nibble, folder, work):
    ids, out = os.path.join(work, "ids.json"), os.path.join(work, "rows.f32")
    with open(ids, "w", encoding="utf-8") as f:
        json.dump(IDS, f)
    run(nibble, "logits", folder, "--tokens", ids, "--rows", "all", "--output", out, "--kv-cache-dtype", "f32", "--activation-dtype", "float",
        "--device", "cpu")
    with open(out, "rb") as f:
        raw = f.read()
    return torch.tensor(struct.unpack("<%df" % (len(raw) // 4), raw)).view(len(IDS), -1)


def their_logits(folder):
    from transformers import AutoModelForCausalLM
    kw = {}
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        q = json.load(f).get("quantization_config")
    if q and q["quant_method"] == "fp8":
        from transformers import FineGrainedFP8Config
        kw["quantization_config"] = FineGrainedFP8Config(dequantize=True)
    if q and q["quant_method"] == "compressed-tensors":
        from transformers import CompressedTensorsConfig
        kw["quantization_config"] = CompressedTensorsConfig(run_compressed=False)
    m, info = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True, **kw)
    bad = {k: sorted(map(str, v))[:3] for k, v in info.items() if v}
    if bad:
        raise RuntimeError("the loader says %s" % bad)
    with torch.no_grad():
        return m.eval()(torch.tensor([IDS], device=m.device)).logits[0].float().cpu()


def decompress(folder, out):
    """A plain folder of F32 from one of compressed-tensors."""
    import glob
    from compressed_tensors.compressors.base import BaseCompressor
    from compressed_tensors.quantization import QuantizationConfig
    from safetensors.torch import load_file, save_file
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    quant = QuantizationConfig.model_validate(config.pop("quantization_config"))
    scheme = next(iter(quant.config_groups.values()))
    library = BaseCompressor.get_value_from_registry(quant.format)
    modules, plain = {}, {}
    for path in sorted(glob.glob(os.path.join(folder, "*.safetensors"))):
        for name, t in load_file(path).items():
            modules.setdefault(name.rsplit(".", 1)[0], {})[name.rsplit(".", 1)[1]] = t
    n = 0
    for module, t in modules.items():
        if any(k.startswith("weight_") for k in t):
            n += 1
            scales = {k: v.float() if k == "weight_scale" and v.dtype == torch.bfloat16 else v for k, v in t.items()}
            t = {"weight": library.decompress(scales, scheme)["weight"]}
        for k, v in t.items():
            plain[module + "." + k] = v.float().contiguous()
    os.makedirs(out)
    save_file(plain, os.path.join(out, "model.safetensors"), metadata={"format": "pt"})
    with open(os.path.join(out, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f)
    return n


def compare(what, a, b, bound):
    e = ((a - b).abs().max() / a.abs().max()).item()
    same = (a.argmax(-1) == b.argmax(-1)).float().mean().item()
    print("%-22s difference %.1e of the largest logit (bound %.0e), same best token %.1f %%" % (what, e, bound, 100 * same), flush=True)
    return e <= bound


def check(nibble, model, work, form):
    folder, plain = os.path.join(work, form), os.path.join(work, form + "-plain")
    run(nibble, "convert", model, folder, "--weight-format", form)
    own, results = own_logits(nibble, folder, work), []
    tries = [("direct", lambda: their_logits(folder), ROUNDED.get(form, BOUND))]
    if form not in ("bf16", "fp8-block"):
        def library():
            print("%-22s %d matrices decompressed" % (form + " library", decompress(folder, plain)), flush=True)
            return their_logits(plain)
        tries.append(("library", library, BOUND))
    for name, fn, bound in tries:
        try:
            theirs = fn()
        except Exception as e:  # whatever their loader raises: it is what a user would see
            print("%-22s not loaded: %s: %s" % (form + " " + name, type(e).__name__, str(e).replace("\n", " ")[:400]), flush=True)
            if os.environ.get("VERBOSE"):
                traceback.print_exc()
            continue
        results.append(compare(form + " " + name, own, theirs, bound))
    shutil.rmtree(folder)
    shutil.rmtree(plain, ignore_errors=True)
    return results


def main():
    if len(sys.argv) < 3:
        print(__doc__)
        return 2
    nibble, model = sys.argv[1:3]
    work = sys.argv[3] if len(sys.argv) > 3 else tempfile.mkdtemp()
    os.makedirs(work, exist_ok=True)
    versions = [torch.__version__, transformers.__version__]
    try:
        import compressed_tensors
        versions.append(getattr(compressed_tensors, "__version__", "?"))
    except Exception as e:
        versions.append("no compressed-tensors (%s: %s)" % (type(e).__name__, e))
    print("torch, transformers, compressed-tensors:", ", ".join(versions), flush=True)
    results = {f: check(nibble, model, work, f) for f in (sys.argv[4:] or FORMS)}
    bad, none = [f for f, r in results.items() if not all(r)], [f for f, r in results.items() if not r]
    print("transformers_load: %d of %d forms compared%s%s" % (len(results) - len(none), len(results),
          ", failed: " + " ".join(bad) if bad else "", ", not loaded: " + " ".join(none) if none else ""))
    return 1 if bad else 77 if none else 0


if __name__ == "__main__":
    try:
        import torch
        import transformers
    except ImportError as e:
        skip("%s (pip install torch transformers compressed-tensors)" % e)
    sys.exit(main())
