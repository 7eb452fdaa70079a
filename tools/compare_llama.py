#!/usr/bin/env python3
"""Compares Moraine with llama.cpp: prefill and decode of a dense model of one shape, random weights, same machine.

  compare_llama.py MORAINE LLAMA_BIN [--layers 36] [--types bf16,q8,q4] [--rounds 3] [--threads 2] [--work DIR]

LLAMA_BIN: a folder with llama-bench and llama-quantize (a release build of llama.cpp for this machine: -DGGML_NATIVE=ON). The shape is
Qwen3-4B's; --layers 12 takes a third of the disk and time. The two alternate; printed are medians of each and the median ratio of the pairs.
  prefill  a prompt of 512 tokens into an empty cache
  decode   one token at a time behind a prompt of 512, one sequence
  GB       of the file: llama.cpp's Q4_0 has 4.5 bits a weight everywhere but in the embedding; Moraine's q4 has 4.1 bits in the first
           matrices of the MLP, 6.1 in the second ones and the head, 8.1 in attention. A step of decoding reads nearly all of it.

On a machine with AMX, gcc 12 drops the tile configuration of llama.cpp, and Q8_0 and Q4_0 end with an illegal instruction, unless a line with a
memory barrier, asm volatile("" ::: "memory"), is added before _tile_loadconfig in its mmq.cpp.

Needs: pip install gguf numpy; 30 GB of disk for all 36 layers, three types.
"""

import argparse
import json
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile

import gguf
import numpy

SHAPE = dict(vocab_size=151936, hidden=2560, heads=32, kv_heads=8, head_dim=128, expert_hidden=9728)
PROMPT, NEW = 512, 24
LLAMA_TYPES = {"bf16": "BF16", "q8": "Q8_0", "q4": "Q4_0"}


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}: {done.stderr[-2000:]}")
    return done.stdout


def gigabytes(path):
    files = path.iterdir() if path.is_dir() else [path]
    return sum(f.stat().st_size for f in files) / 1e9


class Moraine:
    def __init__(self, program, folder, layers, threads):
        self.program, self.folder, self.threads = program, folder, threads
        config = folder / "config.toml"
        keys = "\n".join(f"{k} = {v}" for k, v in SHAPE.items())
        config.write_text(f'[model]\n{keys}\nlayers = {layers}\nexperts = 0\nattention = "gqa"\nresidual = "plain"\nrotary_fraction = 1.0\n'
                          'max_positions = 4096\n[data]\ntrain = "none"\n[train]\ndtype = "bf16"\nslots = 1\nsequence = 512\n'
                          "batch_tokens = 512\ntokens = 1_000_000\n")
        run(program, "import", "--random", config, "--out", folder / "ours", "--dtype", "bf16")

    def make(self, kind):
        model = self.folder / f"ours-{kind}"
        run(self.program, "quantize", "--model", self.folder / "ours", "--out", model, "--type", kind, "--no-report")
        return model

    def bench(self, *args):
        return json.loads(run(self.program, "bench", *args, "--json", "--threads", self.threads))["tokens_per_s"]

    def prefill(self, model):
        return self.bench("prefill", "--model", model, "--prompts", PROMPT)

    def decode(self, model):
        return self.bench("decode", "--model", model, "--concurrency", 1, "--context", PROMPT, "--steps", NEW)


class Llama:
    def __init__(self, programs, folder, layers, threads):
        self.programs, self.folder, self.threads = programs, folder, threads
        self.write(layers)

    # Random weights in bf16, without a tokenizer.
    def write(self, layers):
        d, h, k, w, f = (SHAPE[name] for name in ("hidden", "heads", "kv_heads", "head_dim", "expert_hidden"))
        writer = gguf.GGUFWriter(self.folder / "theirs-bf16.gguf", "qwen3")
        writer.add_context_length(4096)
        writer.add_embedding_length(d)
        writer.add_block_count(layers)
        writer.add_feed_forward_length(f)
        writer.add_head_count(h)
        writer.add_head_count_kv(k)
        writer.add_key_length(w)
        writer.add_value_length(w)
        writer.add_layer_norm_rms_eps(1e-6)
        writer.add_rope_freq_base(1e6)
        writer.add_vocab_size(SHAPE["vocab_size"])
        writer.add_tokenizer_model("no_vocab")
        writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
        random = numpy.random.default_rng(1)

        def matrix(name, rows, columns):
            values = random.standard_normal((rows, columns), dtype=numpy.float32) * numpy.float32(0.02)
            writer.add_tensor(name, (values.view(numpy.uint32) >> 16).astype(numpy.uint16), raw_dtype=gguf.GGMLQuantizationType.BF16)

        def vector(name, count):
            writer.add_tensor(name, numpy.ones(count, dtype=numpy.float32))

        matrix("token_embd.weight", SHAPE["vocab_size"], d)
        vector("output_norm.weight", d)
        for layer in range(layers):
            name = f"blk.{layer}."
            matrix(name + "attn_q.weight", h * w, d)
            matrix(name + "attn_k.weight", k * w, d)
            matrix(name + "attn_v.weight", k * w, d)
            matrix(name + "attn_output.weight", d, h * w)
            matrix(name + "ffn_gate.weight", f, d)
            matrix(name + "ffn_up.weight", f, d)
            matrix(name + "ffn_down.weight", d, f)
            for norm, count in (("attn_norm", d), ("ffn_norm", d), ("attn_q_norm", w), ("attn_k_norm", w)):
                vector(name + norm + ".weight", count)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

    def make(self, kind):
        bf16, model = self.folder / "theirs-bf16.gguf", self.folder / f"theirs-{kind}.gguf"
        if kind != "bf16":
            run(self.programs / "llama-quantize", bf16, model, LLAMA_TYPES[kind], self.threads)
        return model

    def bench(self, model, *args):
        return json.loads(run(self.programs / "llama-bench", "-m", model, *args, "-t", self.threads, "-r", 1, "-o", "json"))[0]["avg_ts"]

    def prefill(self, model):
        return self.bench(model, "-p", PROMPT, "-n", 0)

    def decode(self, model):
        return self.bench(model, "-p", 0, "-n", NEW, "-d", PROMPT)


# Before minutes and gigabytes are spent.
def check(parser, args):
    wrong = [kind for kind in args.types.split(",") if kind not in LLAMA_TYPES]
    if wrong:
        parser.error(f"--types: there is no {wrong[0]!r}; wanted {', '.join(LLAMA_TYPES)}")
    if args.layers < 1 or args.rounds < 1 or args.threads < 1:
        parser.error("--layers, --rounds and --threads: wanted 1 or more")
    if not pathlib.Path(args.moraine).is_file():
        parser.error(f"MORAINE: {args.moraine} is no program")
    for name in ("llama-bench", "llama-quantize"):
        if not (pathlib.Path(args.llama_bin) / name).is_file():
            parser.error(f"LLAMA_BIN: {args.llama_bin} has no program {name}")
    if args.work is not None and not pathlib.Path(args.work).is_dir():
        parser.error(f"--work: there is no folder {args.work}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("moraine")
    parser.add_argument("llama_bin")
    parser.add_argument("--layers", type=int, default=36)
    parser.add_argument("--types", default="bf16,q8,q4")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--work", default=None, help="folder for the models; default: one that is removed")
    args = parser.parse_args()
    check(parser, args)
    # As by Ctrl-C: the program that runs is ended, and the folder removed.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    print(f"{args.layers} layers, {args.threads} threads; tokens/s, medians of {args.rounds} alternating rounds")
    print(f"{'type':<6}{'what':<10}{'GB':>6}{'GB':>6}{'moraine':>12}{'llama.cpp':>12}{'ratio':>8}{'lowest':>8}{'highest':>8}")
    with tempfile.TemporaryDirectory(dir=args.work) as folder:
        folder = pathlib.Path(folder)
        sides = (Moraine(pathlib.Path(args.moraine).resolve(), folder, args.layers, args.threads),
                 Llama(pathlib.Path(args.llama_bin).resolve(), folder, args.layers, args.threads))
        for kind in args.types.split(","):
            models = [side.make(kind) for side in sides]
            sizes = "".join(f"{gigabytes(m):>6.2f}" for m in models)
            for what in ("prefill", "decode"):
                pairs = [[getattr(side, what)(m) for side, m in zip(sides, models)] for _ in range(args.rounds)]
                ratios = [a / b for a, b in pairs]
                a, b = (statistics.median(p[i] for p in pairs) for i in (0, 1))
                print(f"{kind:<6}{what:<10}{sizes}{a:>12.2f}{b:>12.2f}{statistics.median(ratios):>8.2f}{min(ratios):>8.2f}{max(ratios):>8.2f}",
                      flush=True)


if __name__ == "__main__":
    main()
