"""What the ablation measures: variants of the cache that differ from the default in one factor.

A variant is (word, factor, where): the word for `nibble eval --formats` (CAL stands for the model's
calibration file), the factor that differs from `nvfp4`, and the runs it belongs to: q --quick,
f --full on the bundled model, h --full on hard variants and further seeds."""

BASE = "nvfp4"
PART = 16  # variants per call; each call computes the reference and the default again
VARIANTS = [
    ("fp8", "format", "qfh"),
    ("fp8:rope=fp8", "rope", "fh"),
    ("nvfp4:mode=basic", "encoder", "qfh"),
    ("nvfp4:mode=search", "encoder", "qfh"),
    ("if4", "format", "qfh"),
    ("mxfp4", "format", "qfh"),
    ("int4", "format", "f"),
    ("nvfp4:transform=center:calibration=CAL", "transform", "f"),
    ("nvfp4:transform=equalize:calibration=CAL", "transform", "f"),
    ("nvfp4:transform=center+equalize:calibration=CAL", "transform", "qfh"),
    ("nvfp4:transform=hadamard:calibration=CAL", "transform", "fh"),
    ("nvfp4:transform=center+equalize+hadamard:calibration=CAL", "transform", "f"),
    ("nvfp4:calibration=CAL", "transform", "qfh"),
    ("if4:transform=center+equalize:calibration=CAL", "transform", "fh"),
    ("mxfp4:transform=center+equalize:calibration=CAL", "transform", "f"),
    ("mxfp4:transform=hadamard:calibration=CAL", "transform", "f"),
    ("int4:transform=hadamard:calibration=CAL", "transform", "f"),
    ("nvfp4:rope=bf16", "rope", "qfh"),
    ("nvfp4:rope=fp8", "rope", "qfh"),
    ("if4:rope=fp8", "rope", "fh"),
    ("if4:sinks=4", "sinks", "fh"),
    ("nvfp4:transform=none:outliers=4:calibration=CAL", "outliers", "fh"),
    ("nvfp4:transform=none:outliers=16:calibration=CAL", "outliers", "f"),
    ("nvfp4:sinks=4", "sinks", "qfh"),
    ("nvfp4:sinks=64", "sinks", "f"),
    ("nvfp4:skip=0", "layers", "f"),
]
# Computed token by token, as in generation: Thrift mode applies only there.
THRIFT = [
    ("nvfp4:thrift=token:fraction=0.005", "q"),
    ("nvfp4:thrift=token:fraction=0.05", "f"),
    ("nvfp4:thrift=block-mean:fraction=0.05", "q"),
    ("nvfp4:thrift=quest:fraction=0.05", "f"),
    ("nvfp4:thrift=block-prob:fraction=0.05", "f"),
    ("nvfp4:thrift=block-prob:fraction=0.25", "f"),
    ("fp8", "f"),
]
RULER = ["nvfp4", "if4", "nvfp4:calibration=CAL", "mxfp4"]
# Each of 16 heads has its own target and the latent is shared, so a cap of 0.5 % holds all targets only
# from 3,200 tokens on.
STRESS_FORMATS = "fp8,nvfp4,nvfp4:mode=basic,nvfp4:mode=search,if4,mxfp4,int4"
STRESS_METHODS = "token,token-top,block-mean,quest,block-prob,local,paper-fp4"
# name, parameters of the generator, runs; plain: channels of like size, as in the predictions; 2: several seeds.
STRESS = [
    ("plain peaky", "preset=plain,preset=peaky", "qf2"),
    ("plain diffuse", "preset=plain,preset=diffuse", "f"),
    ("plain medium", "preset=plain,preset=medium", "f"),
    ("hard peaky", "preset=peaky", "f2"),
    ("hard diffuse", "preset=diffuse", "f"),
]
HARD = {
    "outliers": ["--outliers", "4:16"],
    "spread": ["--spread", "1"],
    "rope": ["--rope", "2:32"],
    "all": ["--outliers", "4:16", "--spread", "1", "--rope", "2:32", "--permute"],
}
SIZES = {  # tokens of a window and in all, of the calibration, decoded one by one; prompts of retrieval
    "quick": {"context": 2048, "n": 2048, "calibrate": 4096, "decode": 512, "lengths": "1k", "samples": 4,
              "stress": "n_layer=1,n_tok=4096,n_query=8", "seeds": 1},
    "full": {"context": 2048, "n": 6144, "calibrate": 8192, "decode": 1536, "lengths": "2k", "samples": 10,
             "stress": "n_layer=2,n_tok=4096,n_query=12", "seeds": 2},
}


def split(words, n):
    """Lists of at most n words, each led by the default, with which the others are paired."""
    return [[BASE] + words[i:i + n] for i in range(0, len(words), n)]


def of_model(kind, size, samples=0):
    """Cells of a model.  kind: q, f or h -> [(name, arguments after MODEL)]"""
    s = SIZES[size]
    text = ["--text", "TEXT", "--context", str(s["context"])]
    cells = [("calibrate", ["calibrate", "MODEL", "--text", "CALTEXT", "--context", str(s["context"]),
                            "--n-tokens", str(s["calibrate"]), "-o", "CAL"])]
    words = [w for w, _, where in VARIANTS if kind in where]
    for i, part in enumerate(split(words, PART)):
        cells.append((f"kl {i}", ["eval", "kl", "MODEL", *text, "--n-tokens", str(s["n"]), "--formats", ",".join(part)]))
    if kind != "h":
        words = [w for w, where in THRIFT if kind == "f" or kind in where]
        cells.append(("thrift", ["eval", "kl", "MODEL", "--decode", "--text", "TEXT", "--context", str(s["decode"]),
                                 "--n-tokens", str(s["decode"]), "--formats", ",".join([BASE] + words)]))
    words = RULER if kind == "f" else RULER[:3] if kind == "h" else RULER[:2]
    samples = samples or (s["samples"] if kind != "h" else s["samples"] // 2)
    cells.append(("ruler", ["eval", "ruler", "MODEL", "--formats", ",".join(words), "--lengths", s["lengths"],
                            "--samples", str(samples)]))
    if kind == "f":
        cells.append(("attn", ["eval", "attn", "MODEL", "--text", "TEXT", "--context", "2048", "--n-tokens", "2048", "--queries", "16",
                               "--formats", "nvfp4,fp8,nvfp4:mode=basic,nvfp4:mode=search,if4,mxfp4,int4"]))
    return cells


def of_stress(size):
    s, kind = SIZES[size], size[0]
    cells = []
    for name, what, where in STRESS:
        for seed in range(1, 1 + (s["seeds"] if "2" in where else 1)) if kind in where else []:
            cells.append((f"{name}, seed {seed}", [
                "eval", "attn", "--stress", "--stress-set", what + "," + s["stress"], "--seed", str(seed), "--formats", STRESS_FORMATS,
                "--methods", STRESS_METHODS, "--fractions", "0.001,0.0025,0.005,0.02,0.05,0.1,0.25"]))
    return cells
