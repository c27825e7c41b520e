#!/usr/bin/env python3
"""Our encoder beside Hugging Face tokenizers, tiktoken and bpe-qwen: same texts, same run, one thread each.

    python3 dev/bench/bench_tokenizer.py [--shared ../shared] [--rounds 5]

Needs the PyPI packages tokenizers, tiktoken and bpe-qwen, and build/bench/bench_tokenizer (make bench builds it). Each
engine encodes the list of texts `rounds` times, in turns with the others; the fastest round counts, in processor
seconds. The last column says on how many texts an engine's ids differ from those of tokenizers.
"""
import argparse
import json
import os
import re
import subprocess
import tempfile
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import bpe_qwen
import tiktoken
from tokenizers import Tokenizer


def byte_of_character():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    return {**{chr(b): b for b in printable}, **{chr(256 + i): b for i, b in enumerate(others)}}


def engines(folder):
    path = os.path.join(folder, "tokenizer.json")
    with open(path) as file:
        content = json.load(file)
    vocab, merges = content["model"]["vocab"], content["model"]["merges"]
    table = byte_of_character()
    tik = tiktoken.Encoding(
        "qwen2.5", pat_str=content["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"],
        mergeable_ranks={bytes(table[c] for c in token): id for token, id in vocab.items()},
        special_tokens={token["content"]: token["id"] for token in content["added_tokens"]})
    files = tempfile.mkdtemp()
    with open(os.path.join(files, "vocab.json"), "w") as out:
        json.dump(vocab, out, ensure_ascii=False)
    with open(os.path.join(files, "merges.txt"), "w") as out:
        out.writelines(merge + "\n" for merge in merges)
    linear = bpe_qwen.QwenTokenizer(files)
    reference = Tokenizer.from_file(path)
    return {"tokenizers": lambda texts: [e.ids for e in reference.encode_batch_fast(texts, add_special_tokens=False)],
            "tiktoken": lambda texts: [tik.encode_ordinary(text) for text in texts],
            "bpe-qwen": lambda texts: [linear.encode(text) for text in texts]}


def texts_of(path):
    with open(path) as lines:
        rows = [json.loads(line) for line in lines]
    return [row.get("text") or row.get("problem", "") + "\n" + row.get("solution", "") for row in rows]


def ours(path, shared):
    out = subprocess.run(["build/bench/bench_tokenizer", path], capture_output=True, text=True, check=True,
                         env=dict(os.environ, SWARR_SHARED=shared)).stdout
    return float(re.search(r"^ *encode +([0-9.]+) ms", out, re.M).group(1)) / 1000


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shared", default="../shared")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    peers = engines(os.path.join(args.shared, "qwen2.5-tokenizer"))
    for name in ("data/math_train.jsonl", "mixed"):
        path = os.path.join(args.shared, name)
        if name == "mixed":  # the reference strings of ordinary kinds: English, code, Chinese, a hundred languages
            kinds = ("english", "code", "math_zh", "script", "script_intl", "emoji", "math_latex", "solver_out")
            with open(os.path.join(args.shared, "tokenizer/encodings.jsonl")) as lines:
                rows = [line for line in lines if json.loads(line)["cat"] in kinds]
            with tempfile.NamedTemporaryFile("w", suffix=".jsonl", delete=False) as out:
                out.writelines(rows)
            path = out.name
        texts = texts_of(path)
        size = sum(len(text.encode()) for text in texts)
        seconds, ids = {"ours": ours(path, args.shared)}, {}
        for _ in range(args.rounds):
            for peer, encode in peers.items():
                start = time.process_time()
                ids[peer] = encode(texts)
                seconds[peer] = min(seconds.get(peer, 1e9), time.process_time() - start)
            seconds["ours"] = min(seconds["ours"], ours(path, args.shared))
        fastest = min(s for peer, s in seconds.items() if peer != "ours")
        print(f"{name}: {len(texts)} texts, {size} bytes")
        for peer, s in sorted(seconds.items(), key=lambda item: item[1]):
            wrong = sum(a != b for a, b in zip(ids.get(peer, ids["tokenizers"]), ids["tokenizers"]))
            note = "checked by test_tokenizer" if peer == "ours" else f"{wrong} texts differ"
            print(f"  {peer:12} {size / 1e6 / s:8.1f} MB/s  {fastest / s:6.2f} x as fast as the fastest peer   {note}")


main()
