#!/usr/bin/env python3
"""./tokenizer train beside Hugging Face's BpeTrainer: the same merges, and the written file loads there with equal ids.

    python3 dev/oracle/tokenizer_train.py [--program ./tokenizer] [--jsonl FILE --field KEY]

Trains on generated texts (and on FILE) with several sizes and patterns; exit code 1 on a difference.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from tokenizer_random import GPT2, LLAMA3, QWEN, random_text

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def compare(name, texts, split, pattern, vocab_size, program, folder):
    with open(f"{folder}/texts.jsonl", "w") as out:
        out.writelines(json.dumps({"text": text}) + "\n" for text in texts)
    written = f"{folder}/{name}_{split}_{vocab_size}"
    subprocess.run([program, "train", "--out", written, "--split", split, "--vocab-size", str(vocab_size + len(SPECIAL)),
                    "--jsonl", f"{folder}/texts.jsonl", *[f"--special={token}" for token in SPECIAL]],
                   check=True, capture_output=True)
    path = f"{written}/tokenizer.json"
    with open(path) as file:
        ours = json.load(file)["model"]
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=vocab_size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    theirs = json.loads(tok.to_str())["model"]
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in theirs["merges"]]
    same = merges == ours["merges"] and theirs["vocab"] == ours["vocab"]
    loaded = Tokenizer.from_file(path)
    rng = random.Random(3)
    probe = texts[:200] + [random_text(rng) for _ in range(500)]
    with open(f"{folder}/texts.jsonl", "w") as out:
        out.writelines(json.dumps({"text": text}) + "\n" for text in probe)
    encoded = subprocess.run([program, "encode", "--tokenizer", written, "--jsonl", f"{folder}/texts.jsonl", "--quiet"],
                             check=True, capture_output=True, text=True).stdout
    ids = [json.loads(line)["ids"] for line in encoded.split("\n") if line]
    differ = sum(a != b.ids for a, b in zip(ids, loaded.encode_batch(probe)))
    print(f"{name} {split} {vocab_size}: {len(ours['merges'])} merges {'equal' if same else 'DIFFER'}, "
          f"{differ} of {len(probe)} encodings differ", flush=True)
    return not same or differ > 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default="./tokenizer")
    parser.add_argument("--jsonl")
    parser.add_argument("--field", default="text")
    args = parser.parse_args()
    rng = random.Random(11)
    corpora = {"mixed": [random_text(rng) for _ in range(4000)],
               # Few letters: many ties, overlapping pairs, pieces that become one token.
               "few_letters": ["".join(rng.choice("ab ") for _ in range(rng.randrange(1, 40))) for _ in range(3000)],
               "runs": ["a" * rng.randrange(1, 60) + " " * rng.randrange(9) for _ in range(500)]}
    if args.jsonl:
        with open(args.jsonl) as lines:
            corpora["file"] = [json.loads(line)[args.field] for line in lines]
    # We cut special tokens out of the text before learning, the reference does not.
    for texts in corpora.values():
        texts[:] = [text for text in texts if not any(token in text for token in SPECIAL)]
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for name, texts in corpora.items():
            for split, pattern in (("qwen", QWEN), ("llama3", LLAMA3), ("gpt2", GPT2)):
                for vocab_size in (256, 300, 2000, 20000):
                    failed |= compare(name, texts, split, pattern, vocab_size, args.program, folder)
    sys.exit(failed)


main()
