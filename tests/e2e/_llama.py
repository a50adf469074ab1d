"""_llama.py - llama.cpp's library, from npm: greedy tokens, logits and quantisation of a GGUF file.

  _llama.py greedy   DIR MODEL.gguf TOKENS.json N      prints the prompt's next N tokens as JSON
  _llama.py logits   DIR MODEL.gguf TOKENS.json OUT    the last row of logits as float32
  _llama.py tokenize DIR MODEL.gguf TEXT_FILE          prints ids as JSON
  _llama.py quantise DIR IN.gguf OUT.gguf NAME         llama_model_quantize, NAME such as Q4_K_M
DIR has libllama and libggml-cpu-*.so.  Structures that the library passes by value are opaque here: more bytes than
they have, which the calling convention of x86-64 allows for structures in memory.
"""
import ctypes
import glob
import json
import os
import sys

FTYPE = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "Q2_K": 10, "Q3_K_S": 11,
         "Q3_K_M": 12, "Q3_K_L": 13, "Q4_K_S": 14, "Q4_K_M": 15, "Q5_K_S": 16, "Q5_K_M": 17, "Q6_K": 18, "BF16": 32}


class Opaque(ctypes.Structure):
    _fields_ = [("b", ctypes.c_uint8 * 1024)]


LOG = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
QUIET = LOG(lambda level, text, ctx: None)
P = ctypes.c_void_p


def library(folder):
    names = [n for n in sorted(os.listdir(folder)) if n.startswith("libllama.") or n.startswith("libggml")]
    lib = None
    for start in ("libggml-base", "libggml.", "libllama."):
        for n in names:
            if n.startswith(start):
                lib = ctypes.CDLL(os.path.join(folder, n), mode=ctypes.RTLD_GLOBAL)
    for name, result, args in (
            ("llama_model_default_params", Opaque, []), ("llama_context_default_params", Opaque, []),
            ("llama_model_quantize_default_params", Opaque, []), ("llama_batch_get_one", Opaque, [P, ctypes.c_int32]),
            ("llama_model_load_from_file", P, [ctypes.c_char_p, Opaque]), ("llama_init_from_model", P, [P, Opaque]),
            ("llama_decode", ctypes.c_int32, [P, Opaque]), ("llama_model_get_vocab", P, [P]),
            ("llama_vocab_n_tokens", ctypes.c_int32, [P]),
            ("llama_get_logits_ith", ctypes.POINTER(ctypes.c_float), [P, ctypes.c_int32]),
            ("llama_tokenize", ctypes.c_int32, [P, ctypes.c_char_p, ctypes.c_int32, P, ctypes.c_int32, ctypes.c_bool,
                                                ctypes.c_bool]),
            ("llama_model_quantize", ctypes.c_uint32, [ctypes.c_char_p, ctypes.c_char_p, P])):
        f = getattr(lib, name)
        f.restype, f.argtypes = result, args
    lib.llama_log_set(QUIET, None)
    ggml = next(n for n in names if n.startswith("libggml."))
    ctypes.CDLL(os.path.join(folder, ggml)).ggml_backend_load_all_from_path(folder.encode())
    lib.llama_backend_init()
    return lib


def open_model(lib, path):
    params = lib.llama_model_default_params()
    assert params.b[74] == 1 # use_extra_bufts: weights in tiles, with which llama.cpp aborts where there is AMX
    params.b[74] = 0
    model = lib.llama_model_load_from_file(path.encode(), params)
    assert model, path + ": llama.cpp does not load it"
    return model


class Session:
    def __init__(self, lib, path):
        self.lib, self.model = lib, open_model(lib, path)
        params = lib.llama_context_default_params()
        field = ctypes.cast(ctypes.byref(params), ctypes.POINTER(ctypes.c_int32))
        assert field[26:28] == [1, 1] # type_k, type_v: F16, which logits would show
        field[26], field[27], field[13] = 0, 0, 0 # F32, and no flash attention
        self.ctx = lib.llama_init_from_model(self.model, params)
        assert self.ctx, path + ": no context"
        lib.llama_set_n_threads(P(self.ctx), 1, 1) # its threads spin while they wait
        self.vocab = lib.llama_model_get_vocab(self.model)
        self.n = lib.llama_vocab_n_tokens(self.vocab)

    def step(self, ids):
        a = (ctypes.c_int32 * len(ids))(*ids)
        assert self.lib.llama_decode(self.ctx, self.lib.llama_batch_get_one(a, len(ids))) == 0
        return self.lib.llama_get_logits_ith(self.ctx, -1)[:self.n]


def main():
    what, folder, model = sys.argv[1:4]
    lib = library(folder)
    if what == "quantise":
        params = lib.llama_model_quantize_default_params()
        ctypes.cast(ctypes.byref(params), ctypes.POINTER(ctypes.c_int32))[1] = FTYPE[sys.argv[5]]
        assert lib.llama_model_quantize(model.encode(), sys.argv[4].encode(), ctypes.byref(params)) == 0
        return
    if what == "tokenize":
        with open(sys.argv[4], "rb") as f:
            text = f.read()
        vocab, out = lib.llama_model_get_vocab(open_model(lib, model)), (ctypes.c_int32 * (len(text) + 8))()
        n = lib.llama_tokenize(vocab, text, len(text), out, len(out), True, False)
        print(json.dumps(out[:n]))
        return
    s = Session(lib, model)
    with open(sys.argv[4]) as f:
        ids = json.load(f)
    row = s.step(ids)
    if what == "logits":
        with open(sys.argv[5], "wb") as f:
            f.write(bytes((ctypes.c_float * s.n)(*row)))
        return
    got = []
    for _ in range(int(sys.argv[5])):
        got.append(max(range(s.n), key=lambda i: row[i]))
        row = s.step(got[-1:])
    print(json.dumps(got))


if __name__ == "__main__":
    main()
