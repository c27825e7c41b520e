#!/usr/bin/env python3
"""Random strings through ./tokenizer and through Hugging Face's tokenizers: ids, texts and errors must agree.

    python3 dev/oracle/tokenizer_random.py [--strings 100000] [--seed 1] [--tokenizer DIR]

Besides the given tokenizer (default ../shared/qwen2.5-tokenizer), small variants are made that exercise what the
file format allows: other patterns, added tokens with strip flags or `normalized`, unk_token, missing bytes,
ignore_merges, merges as pairs. Needs the PyPI package tokenizers; prints one line per variant, exit code 1 on a difference.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+")
LLAMA3 = QWEN.replace(r"\p{N}|", r"\p{N}{1,3}|", 1)
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

RANGES = [(0x20, 0x7E)] * 8 + [(0, 0x1F), (0x80, 0x24F), (0x300, 0x36F), (0x370, 0x5FF), (0x600, 0x6FF),
          (0x900, 0xDFF), (0xE00, 0xFFF), (0x1100, 0x11FF), (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x2070, 0x2BFF),
          (0x3000, 0x30FF), (0x4E00, 0x9FFF), (0xA000, 0xABFF), (0xAC00, 0xD7A3), (0xF900, 0xFAFF), (0xFB00, 0xFFFD),
          (0x10000, 0x10FFF), (0x11000, 0x11FFF), (0x16D00, 0x16DFF), (0x1D100, 0x1D7FF), (0x1F000, 0x1FAFF),
          (0x20000, 0x2FA1F), (0xE0000, 0xE01EF), (0x0, 0x10FFFF)]
WORDS = ["'s", "'S", "'T", "'re", "'VE", "'ll", "'LL", "'d", "'M", "'\u017f", "'r", "'l", "''", " ", "  ", "   ", "\n", "\r\n", "\n\n", "\t", " \n",
         "\n ", "\u00a0", "\u3000", "\u0085", "\u2028", "\ufeff", "123", "007", "1,000", "\u0663", "\u00bd", "\u2167", "a", "the", " the", "The",
         "HELLO", "x^2", "\\frac{1}{2}", "\\boxed{", "}", "$$", "...", "!!!", "__", "==", "<|im_end|>", "<|im_start|>", "<|endoftext|>",
         "<|im_", "|>", "<", "<|", "<tool_call>", "</tool_call>", "<think>", "<s>", "</s>", "<mask>", "\u00e9", "e\u0301", "\u1112\u1161\u11ab",
         "\uac00\u11a8", "\u0915\u093f", "\u0e01\u0e33", "\u05d0\u05b0", "\u4e2d\u6587", "\u65e5\u672c\u8a9e", "\U0001f469\u200d\U0001f469", "\u0344",
         "\u212b", "\u2126", "=\u0338", ">\u0338", "\u0041\u030a", "q\u0307\u0323", "\u1e0b\u0323", "import os\n", "def f(x):\n    return x\n"]


def random_text(rng):
    out = []
    for _ in range(rng.choice([1, 2, 3, 5, 8, 13, 30])):
        kind = rng.random()
        if kind < 0.5:
            out.append(rng.choice(WORDS) * (rng.randrange(1, 40) if rng.random() < 0.05 else 1))
        else:
            first, last = rng.choice(RANGES)
            for _ in range(rng.randrange(1, 8)):
                c = rng.randrange(first, last + 1)
                if not 0xD800 <= c < 0xE000:
                    out.append(chr(c))
    return "".join(out)


def variants(rng):
    """Small tokenizers as JSON objects, by name."""
    texts = [random_text(rng) for _ in range(3000)] + WORDS * 20

    def trained(pre, normalizer=None, size=700):
        tok = Tokenizer(models.BPE())
        if normalizer:
            tok.normalizer = normalizer
        tok.pre_tokenizer = pre
        tok.decoder = decoders.ByteLevel()
        tok.train_from_iterator(texts, trainers.BpeTrainer(
            vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
        return tok

    def split(pattern):
        return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])

    def added(tok):
        tok.add_special_tokens(["<|im_end|>", "<|im_start|>", "<|endoftext|>"])
        tok.add_tokens(["<tool_call>"])
        return tok

    out = {}
    out["llama3"] = added(trained(split(LLAMA3)))
    out["qwen_nfc"] = added(trained(split(QWEN), normalizers.NFC()))
    out["gpt2"] = added(trained(pre_tokenizers.ByteLevel(add_prefix_space=False)))
    out["gpt2_prefix_space"] = added(trained(pre_tokenizers.ByteLevel(add_prefix_space=True)))
    out["gpt2_as_split"] = added(trained(split(GPT2)))
    out["no_split"] = added(trained(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)))
    strip = trained(split(QWEN), normalizers.NFC())
    strip.add_special_tokens([AddedToken("<mask>", lstrip=True, rstrip=False, normalized=False),
                              AddedToken("<|im_end|>", lstrip=True, rstrip=True, normalized=False),
                              AddedToken("<|im_", rstrip=True, normalized=False)])
    out["strip"] = strip
    normalized = trained(split(QWEN), normalizers.NFC())
    normalized.add_tokens([AddedToken("e\u0301", normalized=True), AddedToken("the", normalized=True),
                           AddedToken("<|", normalized=False), AddedToken("<|im_end|>", normalized=True),
                           AddedToken("\u212b", normalized=True), AddedToken("==", normalized=True, rstrip=True)])
    out["normalized"] = normalized
    out = {name: json.loads(tok.to_str()) for name, tok in out.items()}

    def copy(name):
        return json.loads(json.dumps(out[name]))

    old = copy("qwen_nfc")
    old["model"]["merges"] = [" ".join(m) for m in old["model"]["merges"]]
    out["merges_as_text"] = old
    whole = copy("llama3")
    whole["model"]["ignore_merges"] = True
    whole["model"]["merges"] = whole["model"]["merges"][::2]
    keep = whole["model"]["vocab"]
    whole["model"]["merges"] = [m for m in whole["model"]["merges"] if m[0] in keep and m[1] in keep]
    out["ignore_merges"] = whole
    shuffled = copy("qwen_nfc")
    rng.shuffle(shuffled["model"]["merges"])
    out["merges_shuffled"] = shuffled
    # One token per symbol, as a miniature task has it; bytes that are no token.
    symbols = "0123456789+-*=() abcdefghijklmnop\u0120\u010a"
    for name, unk, fuse in (("symbols", None, False), ("symbols_unk", "?", False), ("symbols_fuse", "?", True)):
        tiny = copy("qwen_nfc")
        vocab = {c: i for i, c in enumerate(dict.fromkeys(symbols))}
        if unk:
            vocab[unk] = len(vocab)
        tiny["added_tokens"] = [dict(a, id=len(vocab) + i) for i, a in enumerate(tiny["added_tokens"])]
        tiny["model"].update(vocab=vocab, merges=[], unk_token=unk, fuse_unk=fuse)
        out[name] = tiny
    return out


def compare(name, path, program, texts, literal):
    reference = Tokenizer.from_file(path)
    reference.encode_special_tokens = literal
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", delete=False) as lines:
        for text in texts:
            lines.write(json.dumps({"text": text}) + "\n")
    command = [program, "encode", "--tokenizer", path, "--jsonl", lines.name, "--quiet"] + ["--literal"] * literal
    ours = subprocess.run(command, capture_output=True, text=True)
    if ours.returncode:
        sys.exit(f"{name}: {ours.stderr}")
    ids = [json.loads(line)["ids"] for line in ours.stdout.split("\n") if line]
    wanted = [e.ids for e in reference.encode_batch(texts, add_special_tokens=False)]
    bad = [i for i in range(len(texts)) if ids[i] != wanted[i]]
    with open(lines.name, "w") as out:
        for row in wanted:
            out.write(json.dumps({"ids": row}) + "\n")
    bad_text = 0
    for skip in (False, True):
        command = [program, "decode", "--tokenizer", path, "--jsonl", lines.name] + ["--skip-special"] * skip
        decoded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")
        expected = [reference.decode(row, skip_special_tokens=skip) for row in wanted]
        bad_text += sum(json.loads(a)["text"] != b for a, b in zip(decoded, expected))
    os.unlink(lines.name)
    print(f"{name:20} {'literal ' if literal else ''}{len(texts)} strings, {sum(map(len, wanted))} tokens: "
          f"{len(bad)} encodings and {bad_text} decodings differ", flush=True)
    for i in bad[:3]:
        print("   ", ascii(texts[i][:80]), "\n      ours", ids[i][:40], "\n      reference", wanted[i][:40])
    return bool(bad or bad_text)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--strings", type=int, default=100000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tokenizer", default="../shared/qwen2.5-tokenizer")
    parser.add_argument("--program", default="./tokenizer")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    texts = [random_text(rng) for _ in range(args.strings)]
    failed = compare("given", os.path.join(args.tokenizer, "tokenizer.json"), args.program, texts, False)
    failed |= compare("given", os.path.join(args.tokenizer, "tokenizer.json"), args.program, texts[:5000], True)
    with tempfile.TemporaryDirectory() as folder:
        for name, tokenizer in variants(rng).items():
            path = os.path.join(folder, name + ".json")
            with open(path, "w") as out:
                json.dump(tokenizer, out)
            for literal in (False, True):
                failed |= compare(name, path, args.program, texts[: max(100, args.strings // 10)], literal)
    sys.exit(failed)


if __name__ == "__main__":
    main()
