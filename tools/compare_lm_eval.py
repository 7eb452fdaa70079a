"""Holds lm-evaluation-harness' results against those of `moraine eval`, to the last digit that either prints.

  python tools/compare_lm_eval.py RESULTS_FOLDER CHOICE.json SCORES.jsonl TEXTS.jsonl

RESULTS_FOLDER: --output_path of lm_eval on the tasks moraine_local and moraine_text. CHOICE.json: `eval choice --json` of the
same questions. SCORES.jsonl: for each text of TEXTS.jsonl a line of `eval score --json` of the end token and the text's tokens.
"""
import glob
import json
import math
import sys

results_folder, choice_path, scores_path, texts_path = sys.argv[1:]
path = sorted(glob.glob(results_folder + "/**/results_*.json", recursive=True))[-1]
with open(path, encoding="utf-8") as file:
    theirs = json.load(file)["results"]
with open(choice_path, encoding="utf-8") as file:
    choice = json.load(file)

ours = {("moraine_local", key): choice[key] for key in ("acc", "acc_stderr", "acc_norm", "acc_norm_stderr")}
logprob = num_bytes = num_words = 0
with open(scores_path, encoding="utf-8") as scores, open(texts_path, encoding="utf-8") as texts:
    for line, text_line in zip(scores, texts, strict=True):
        logprob += json.loads(line)["total"]
        text = json.loads(text_line)["text"]
        num_bytes += len(text.encode())
        num_words += len(text.split())
ours["moraine_text", "byte_perplexity"] = math.exp(-logprob / num_bytes)
ours["moraine_text", "word_perplexity"] = math.exp(-logprob / num_words)
ours["moraine_text", "bits_per_byte"] = -logprob / num_bytes / math.log(2)

failed = 0
for (task, key), mine in ours.items():
    other = theirs[task][key + ",none"]
    same = f"{mine:.4f}" == f"{other:.4f}"
    failed += not same
    print(f"{task} {key}: eval {mine:.4f}, lm_eval {other:.4f}" + ("" if same else "  DIFFERENT"))
if not 0 < choice["acc"] < 1 or choice["acc"] == choice["acc_norm"]:
    print("the questions tell nothing apart: acc and acc_norm should differ, and acc be neither 0 nor 1")
    failed += 1
sys.exit(1 if failed else 0)
