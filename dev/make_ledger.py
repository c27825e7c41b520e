#!/usr/bin/env python3
"""Writes the miniature task of data/ledger: the tokenizer, the base model's config.json and four data files.

Everything follows from SEED; Python's standard library suffices; a second run writes the same bytes. Run from the
repository root: `python3 dev/make_ledger.py` (or with another folder as argument). The task's rules: data/ledger/README.md.
"""
import argparse
import json
import random
from pathlib import Path

LETTERS = "abcdefgh"  # name the operands
FILLER = "pqrstu"  # one line of the far style carries these six symbols, in this order
OPERANDS = range(3, 9)
LOCAL_SHARE = 0.25

SPECIALS = ["<eos>", "<pad>"]
SYMBOLS = "0123456789" + LETTERS + "LF+;:=" + FILLER + " \n"
RESERVED = 6  # rows that bring the vocabulary to 40

PRETRAIN, SFT, RL, VAL = 4000, 800, 1000, 300


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


def problems(rng, count, taken):
    """`count` distinct digit lists, none in `taken`, which grows; the numbers of operands alternate evenly."""
    sizes = [OPERANDS[i % len(OPERANDS)] for i in range(count)]
    rng.shuffle(sizes)
    drawn = []
    for size in sizes:
        while True:
            digits = tuple(rng.randrange(10) for _ in range(size))
            if digits not in taken:
                break
        taken.add(digits)
        drawn.append(digits)
    return drawn


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
