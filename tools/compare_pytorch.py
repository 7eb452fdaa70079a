#!/usr/bin/env python3
"""Compares Moraine with the public implementation under PyTorch: training step, prefill, decode; same shape, weights and machine.

  compare_pytorch.py MORAINE [--shapes demo,100m,1b] [--rounds 3] [--threads 2] [--what train,prefill,decode]
                     [--dtype bf16|f32] [--work DIR]

The two alternate; printed are medians of each and the median ratio of the pairs. Both compute in one type, bf16 unless told: on a machine
with AVX2 alone PyTorch has no fast products of bf16, and who uses it there takes f32.
  train    forward, backward and one optimizer step of a batch; AdamW on both sides (torch.optim.AdamW, fused where there is it), without a
           learning rate that would change anything. Of bf16, weights and activations of the public model are so; Moraine keeps f32 masters.
  prefill  a prompt of 512 tokens into an empty cache, logits of its last token
  decode   one token at a time behind a prompt of 512, one sequence

Needs: pip install torch==2.13.0 transformers safetensors (a transformers that has the block-structured `zaya` model).
"""

import argparse
import ctypes
import gc
import json
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import torch
from transformers import AutoModelForCausalLM

SHAPES = {  # ZAYA1's proportions: 16 experts, attention half as wide as the model
    "demo": dict(hidden=256, layers=6, heads=4, kv_heads=2, head_dim=64, experts=8, expert_hidden=256, router_hidden=64, vocab_size=4096),
    "100m": dict(hidden=512, layers=12, heads=4, kv_heads=1, head_dim=64, experts=16, expert_hidden=384, router_hidden=64, vocab_size=16384),
    "1b": dict(hidden=1024, layers=16, heads=4, kv_heads=1, head_dim=128, experts=16, expert_hidden=1024, router_hidden=128, vocab_size=32768),
}
SEQUENCE, BATCH, PROMPT = 512, 4, 512
TORCH_TYPES = {"bf16": torch.bfloat16, "f32": torch.float32}


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}: {done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


class Moraine:
    def __init__(self, program, folder, shape, threads, dtype):
        self.program, self.model, self.threads = program, folder / "model", threads
        self.config = folder / "config.toml"
        keys = "\n".join(f"{k} = {v}" for k, v in shape.items())
        self.config.write_text(
            f'[model]\n{keys}\nmax_positions = 2048\ninit_std = 0.05\n[data]\ntrain = "none"\n[train]\ndtype = "{dtype}"\nslots = 1\n'
            f'sequence = {SEQUENCE}\nbatch_tokens = {SEQUENCE * BATCH}\ntokens = 1_000_000\n[optimizer]\nmatrices = "adamw"\n')
        run(program, "import", "--random", self.config, "--out", self.model, "--dtype", dtype)
        run(program, "export", "--model", self.model, "--layout", "native", "--out", folder / "native", "--dtype", dtype)

    def bench(self, *args):
        return run(self.program, "bench", *args, "--json", "--threads", self.threads)

    def train(self):
        return self.bench("train", "--config", self.config, "--steps", 3)[0]["tokens_per_s"]

    def prefill(self):
        return self.bench("prefill", "--model", self.model, "--prompts", PROMPT)[0]["tokens_per_s"]

    def decode(self):
        return self.bench("decode", "--model", self.model, "--concurrency", 1, "--context", PROMPT)[0]["tokens_per_s"]


class PyTorch:
    def __init__(self, folder, vocabulary, dtype):
        self.model = AutoModelForCausalLM.from_pretrained(folder / "native", dtype=TORCH_TYPES[dtype])
        self.vocabulary = vocabulary

    def ids(self, rows, columns):
        return torch.randint(0, self.vocabulary, (rows, columns))

    def train(self):
        self.model.train()
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.0, fused=True)
        seconds = []
        for _ in range(3):
            ids, begin = self.ids(BATCH, SEQUENCE), time.perf_counter()
            self.model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            seconds.append(time.perf_counter() - begin)
        # Moraine's turn needs the memory: at 1 B 18 GB.
        del optimizer
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        return BATCH * SEQUENCE / statistics.median(seconds)

    @torch.no_grad()
    def prefill(self):
        self.model.eval()
        seconds = []
        for _ in range(3):
            ids, begin = self.ids(1, PROMPT), time.perf_counter()
            self.model(input_ids=ids, use_cache=True, logits_to_keep=1)
            seconds.append(time.perf_counter() - begin)
        return PROMPT / statistics.median(seconds)

    @torch.no_grad()
    def decode(self):
        self.model.eval()
        cache, seconds = self.model(input_ids=self.ids(1, PROMPT), use_cache=True, logits_to_keep=1).past_key_values, []
        for _ in range(24):
            ids, begin = self.ids(1, 1), time.perf_counter()
            cache = self.model(input_ids=ids, past_key_values=cache, use_cache=True).past_key_values
            seconds.append(time.perf_counter() - begin)
        return 1 / statistics.median(seconds)


# Before minutes are spent.
def check(parser, args):
    what = ("train", "prefill", "decode")
    for flag, given, known in (("--shapes", args.shapes, SHAPES), ("--what", args.what, what)):
        wrong = [name for name in given.split(",") if name not in known]
        if wrong:
            parser.error(f"{flag}: there is no {wrong[0]!r}; wanted {', '.join(known)}")
    if args.rounds < 1 or args.threads < 1:
        parser.error("--rounds and --threads: wanted 1 or more")
    if not pathlib.Path(args.moraine).is_file():
        parser.error(f"MORAINE: {args.moraine} is no program")
    if args.work is not None and not pathlib.Path(args.work).is_dir():
        parser.error(f"--work: there is no folder {args.work}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("moraine")
    parser.add_argument("--shapes", default="demo,100m")
    parser.add_argument("--what", default="train,prefill,decode")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", default="bf16", choices=TORCH_TYPES)
    parser.add_argument("--work", default=None, help="folder for the models; default: one that is removed")
    args = parser.parse_args()
    check(parser, args)
    # As by Ctrl-C: the program that runs is ended, and the folder removed.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    torch.set_num_threads(args.threads)
    program = pathlib.Path(args.moraine).resolve()
    print(f"torch {torch.__version__}, {args.threads} threads, {args.dtype}; tokens/s, medians of {args.rounds} alternating rounds")
    print(f"{'shape':<8}{'what':<10}{'moraine':>12}{'pytorch':>12}{'ratio':>8}{'lowest':>8}{'highest':>8}")
    for name in args.shapes.split(","):
        with tempfile.TemporaryDirectory(dir=args.work) as folder:
            folder = pathlib.Path(folder)
            ours = Moraine(program, folder, SHAPES[name], args.threads, args.dtype)
            theirs = PyTorch(folder, SHAPES[name]["vocab_size"], args.dtype)
            for what in args.what.split(","):
                pairs = [(getattr(ours, what)(), getattr(theirs, what)()) for _ in range(args.rounds)]
                ratios = [a / b for a, b in pairs]
                a, b = (statistics.median(p[i] for p in pairs) for i in (0, 1))
                print(f"{name:<8}{what:<10}{a:>12.1f}{b:>12.1f}{statistics.median(ratios):>8.2f}{min(ratios):>8.2f}{max(ratios):>8.2f}", flush=True)


if __name__ == "__main__":
    main()
