#!/usr/bin/env python3
"""Writes the miniature task of data/ledger: the tokenizer, the base model's config.json and four data files.

Everything follows from `--seed`; Python's standard library suffices; a second run writes the same bytes. Run from the
repository root: `python3 dev/make_ledger.py` (or with another folder as argument). The task's rules: data/ledger/README.md.
"""
import argparse
import json
import random
from pathlib import Path

LETTERS = "abcdefghijklmn"  # name the operands; OPERANDS needs the first six
FILLER = "pqrstu"  # one line of the far style carries these six symbols, in this order
OPERANDS = range(3, 7)
LOCAL_SHARE = 0.25

SPECIALS = ["<eos>", "<pad>"]
SYMBOLS = "0123456789" + LETTERS + "LF+;:=" + FILLER + " \n"

PRETRAIN, SFT, RL, VAL = 3000, 1200, 600, 300


def prompt(digits):
    return "".join(letter + str(digit) for letter, digit in zip(LETTERS, digits)) + "="


def local(digits):
    """Each line: a letter, the running total up to it, and what is left to add."""
    text, total = "L", 0
    for i, digit in enumerate(digits):
        total = (total + digit) % 10
        rest = prompt(digits)[2 * i + 2 : -1]
        text += LETTERS[i] + str(total) + ("+" + rest if rest else "") + ";"
    return f"{text}:{total}"


def far(digits):
    """Each line: a letter, the running total up to it, and filler; the next digit stands only in the prompt."""
    text, total = "F", 0
    for letter, digit in zip(LETTERS, digits):
        total = (total + digit) % 10
        text += f"{letter}{total}{FILLER};"
    return f"{text}:{total}"


def problems(rng, count, avoid):
    """`count` distinct digit lists, none of them in `avoid`; every number of operands equally often."""
    sizes = [OPERANDS[i % len(OPERANDS)] for i in range(count)]
    left = 10 ** OPERANDS[0] - sum(len(digits) == OPERANDS[0] for digits in avoid)
    assert sizes.count(OPERANDS[0]) <= left, "more problems than there are"
    rng.shuffle(sizes)
    drawn = {}  # keeps the order
    for size in sizes:
        while True:
            digits = tuple(rng.randrange(10) for _ in range(size))
            if digits not in drawn and digits not in avoid:
                break
        drawn[digits] = True
    return list(drawn)


def solved(rng, count, avoid):
    """(prompt, completion) of `count` problems outside `avoid`; every fourth solution is local."""
    styles = [local if i < count * LOCAL_SHARE else far for i in range(count)]
    rng.shuffle(styles)
    return [(prompt(d), style(d)) for d, style in zip(problems(rng, count, avoid), styles)]


def tokenizer():
    """A byte-level BPE without merges: one token a byte. Blank and newline carry GPT-2's names for these bytes."""
    byte_name = {" ": "\u0120", "\n": "\u010a"}
    names = SPECIALS + [byte_name.get(symbol, symbol) for symbol in SYMBOLS]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": i, "content": name, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": True}
            for i, name in enumerate(SPECIALS)
        ],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": byte_level,
        "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
            "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False,
            "vocab": {name: i for i, name in enumerate(names)}, "merges": [],
        },
    }


CONFIG = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "vocab_size": len(SPECIALS) + len(SYMBOLS),
    "hidden_size": 64,
    "intermediate_size": 192,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_act": "silu",
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "attention_dropout": 0.0,
    "initializer_range": 0.08,
    "tie_word_embeddings": True,
    "use_sliding_window": False,
    "sliding_window": None,
    "max_window_layers": 2,
    "layer_types": ["full_attention", "full_attention"],
    "bos_token_id": None,
    "eos_token_id": 0,
    "pad_token_id": 1,
    "torch_dtype": "float32",
    "use_cache": True,
}
TOKENIZER_CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "add_bos_token": False,
    "add_prefix_space": False,
    "bos_token": None,
    "eos_token": "<eos>",
    "pad_token": "<pad>",
    "unk_token": None,
    "clean_up_tokenization_spaces": False,
    "model_max_length": 128,
}
GENERATION_CONFIG = {"eos_token_id": 0, "pad_token_id": 1, "do_sample": True, "temperature": 1.0, "max_new_tokens": 96}


def write_lines(path, rows):
    text = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    path.write_text(text, encoding="utf-8")
    print(f"{path}: {len(rows)} lines, {len(text)} bytes")


def main():
    arguments = argparse.ArgumentParser(description="Write the miniature task of data/ledger.")
    arguments.add_argument("folder", nargs="?", type=Path, default=Path("data/ledger"))
    arguments.add_argument("--seed", type=int, default=1)
    options = arguments.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)

    rng = random.Random(options.seed)
    val = problems(rng, VAL, set())
    held_out = set(val)
    for name, value in [
        ("tokenizer.json", tokenizer()),
        ("tokenizer_config.json", TOKENIZER_CONFIG),
        ("generation_config.json", GENERATION_CONFIG),
        ("config.json", CONFIG),
    ]:
        (options.folder / name).write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    for name, count in [("pretrain", PRETRAIN), ("sft", SFT)]:
        rows = [{"prompt": p, "completion": c} for p, c in solved(rng, count, held_out)]
        write_lines(options.folder / f"{name}.jsonl", rows)
    for name, drawn in [("rl", problems(rng, RL, held_out)), ("val", val)]:
        write_lines(options.folder / f"{name}.jsonl", [
            {"id": f"ledger-{name}-{i}", "problem": prompt(d), "answer": str(sum(d) % 10),
             "answer_format": "ledger", "operands": len(d)}
            for i, d in enumerate(drawn)
        ])


if __name__ == "__main__":
    main()
