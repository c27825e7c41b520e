#!/usr/bin/env python3
"""Writes test/golden/tokenizer.json: a small tokenizer, variants of it, and what the reference engines make of them.

    python3 dev/oracle/tokenizer_golden.py [../shared/qwen2.5-tokenizer/templates] > test/golden/tokenizer.json

Needs the PyPI packages tokenizers and jinja2; the templates only for the chat part.
  base       a tokenizer.json
  variants   {"name", "root", "model", "cases"}: keys that replace the base's and its model's, and texts with their ids,
             the ids with special tokens as text ("literal"), and what the ids decode to without special tokens; the
             last two only where they differ from ids and text
  train      {"texts", "vocab_size", "merges"}: what BpeTrainer learns from the texts with the base's pattern
  chat       {"template", "messages", ..., "text"}: renderings by Jinja2
"""
import json
import random
import sys

from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from tokenizer_random import GPT2, LLAMA3, QWEN, WORDS, random_text

folder = sys.argv[1] if len(sys.argv) > 1 else "../shared/qwen2.5-tokenizer/templates"
rng = random.Random(7)
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}

PROSE = ["Find all $x$ such that $x^2 - 5x + 6 = 0$.\n\nWe factor: $(x-2)(x-3)=0$, so x is 2 or 3. The answer is \\boxed{2, 3}.",
         "Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May.",
         "Let's see: it's 12*12 = 144, isn't it? They'll say WE'RE RIGHT; I'd agree.",
         "def solve(n):\n    if n == 0:\n        return 1\n\n    return n * solve(n - 1)\n",
         "\u8bbe $f(x)=x^3$\uff0c\u6c42\u5bfc\u6570\u3002\u7b54\u6848\u662f $3x^2$\u3002",
         "Gr\u00f6\u00dfe, na\u00efve caf\u00e9, \u00c5ngstr\u00f6m: \u00bd \u2167 \u0663 \U0001f600\U0001f469\u200d\U0001f469"]


def split(pattern):
    return {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}, BYTES]}


def train(texts, vocab_size):
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=vocab_size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return json.loads(tok.to_str())["model"]


def added(id, content, **flags):
    return dict({"id": id, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
                 "normalized": False, "special": True}, **flags)


def cases(tokenizer, texts):
    tok = Tokenizer.from_str(json.dumps(tokenizer))
    out = []
    for text in texts:
        tok.encode_special_tokens = False
        ids = tok.encode(text, add_special_tokens=False).ids
        tok.encode_special_tokens = True
        literal = tok.encode(text, add_special_tokens=False).ids
        row = {"text": text, "ids": ids, "decoded": tok.decode(ids, skip_special_tokens=True)}
        if literal != ids:
            row["literal"] = literal
        if row["decoded"] == text:
            del row["decoded"]
        out.append(row)
    return out


corpus = PROSE * 3 + [random_text(rng) for _ in range(300)]
model = train(corpus, 480)
model["merges"] = [" ".join(m) for m in model["merges"]]
n = len(model["vocab"])
ADDED = [added(n, "<|endoftext|>"), added(n + 1, "<|im_start|>"), added(n + 2, "<|im_end|>"),
         added(n + 3, "<tool_call>", special=False)]
base = {"version": "1.0", "added_tokens": ADDED, "normalizer": {"type": "NFC"}, "pre_tokenizer": split(QWEN),
        "post_processor": BYTES, "decoder": BYTES,
        "model": {"type": "BPE", "vocab": model["vocab"], "merges": model["merges"]}}

symbols = {c: i for i, c in enumerate("0123456789+-*=()abcdef\u0120\u010a?")}
few = len(symbols)
variants = {  # name: (keys of the file, keys of its model)
    "base": ({}, {}),
    "llama3": ({"pre_tokenizer": split(LLAMA3), "normalizer": None}, {"ignore_merges": True, "merges": model["merges"][::2]}),
    "gpt2": ({"pre_tokenizer": dict(BYTES, add_prefix_space=True, use_regex=True), "normalizer": None}, {}),
    "gpt2_split": ({"pre_tokenizer": split(GPT2)}, {}),
    "no_split": ({"pre_tokenizer": BYTES}, {}),
    "merges_shuffled": ({}, {"merges": rng.sample(model["merges"], len(model["merges"]))}),
    "strip": ({"added_tokens": [added(n, "<mask>", lstrip=True), added(n + 1, "<|im_end|>", lstrip=True, rstrip=True),
                                added(n + 2, "<|im_", rstrip=True)]}, {}),
    "normalized": ({"added_tokens": [added(n, "e\u0301!", normalized=True, special=False), added(n + 1, "<|im_end|>"),
                                     added(model["vocab"].get("<|", n + 2), "<|", special=False, normalized=True)]}, {}),
}
for name, unk, fuse in (("symbols", None, False), ("symbols_unk", "?", False), ("symbols_fuse", "?", True)):
    variants[name] = ({"added_tokens": [added(few, "<|endoftext|>")]},
                      {"vocab": symbols, "merges": [], "unk_token": unk, "fuse_unk": fuse})

texts = ["", " ", "a", "<|im_end|>", "a<|im_end|>b", " <|im_end|> \n<|im_end|>", "<|im_<|im_end|>", "<mask> x <mask>",
         "e\u0301! e\u0301", "\u00e9!", "x\u0338>\u0338", "\u1112\u1161\u11ab", "\uac00\u11a8", "\u0344", "a\u0323\u0307", "a\u0307\u0323",
         "1+2=3", "12345678", "(a+b)*(c+d)", "it's IT'S it'\u017f we'LL o'l", "a  b   c", "\n\n  \n x", "\t\tx", " \r\n \r\n", "x" * 50 + "yz",
         " " * 44 + "y", "\u0000\u0001\u007f", "\u0085\u00a0\u2028\ufeff", "\U00011938\U00011935\U00011930", "\u4e2d\u6587\uff0c"]
random_texts = [random_text(rng)[:40] for _ in range(25)]

rows = []
for name, (root, inner) in variants.items():
    file = dict(base, **root)
    file["model"] = dict(file["model"], **inner)
    some = texts + PROSE + random_texts if name == "base" else texts[:24] + random_texts[:4]
    rows.append({"name": name, "root": root, "model": inner, "cases": cases(file, some)})

train_texts = PROSE + ["aaaaaaaa aaaa aaa", "abababab abab", "hello hello hello help helped"]
trained = train(train_texts, 400)

# ---- chat ----
call = {"type": "function", "function": {"name": "calc", "arguments": {"expr": "1+1", "n": 1.0, "big": 1e16, "small": 1e-05, "u": "\u00e9\"\\\n"}}}
tools = [{"type": "function", "function": {"name": "calc", "description": "It's <b>\"fast\"</b>", "parameters": {"type": "object"}}}]
U = {"role": "user", "content": "1+1=?"}
A = {"role": "assistant", "content": "<think>\nadd\n</think>\n\n2"}
conversations = [
    ([U], None), ([{"role": "system", "content": ""}, U], None), ([{"role": "system", "content": "S"}, U, A], None),
    ([U, A, U], None), ([U, {"role": "system", "content": "later"}, A], None), ([U], tools), ([{"role": "system", "content": "S"}, U], tools),
    ([U, {"role": "assistant", "content": "", "tool_calls": [call, call["function"]]}, {"role": "tool", "content": "2"},
      {"role": "tool", "content": "3"}, A], tools),
    ([U, {"role": "assistant", "content": "wait", "tool_calls": [call]}, {"role": "tool", "content": "2"}], None),
    ([U, {"role": "assistant", "content": "\n\nx<|im_end|>"}, {"role": "user", "content": "<tool_response>\n1\n</tool_response>"},
      {"role": "assistant", "content": "y", "reasoning_content": "\nr\n"}], None),
]


def render(name, **values):
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda x: json.dumps(x, ensure_ascii=False)
    with open(f"{folder}/{name}.jinja") as source:
        return environment.from_string(source.read()).render(**values)


chat = []
for name in ("qwen2.5", "qwen2.5-base", "qwen2.5-math", "qwen3"):
    for messages, with_tools in conversations if name in ("qwen2.5", "qwen3") else conversations[:2]:
        row = {"template": name, "messages": messages, "add_generation_prompt": messages[-1]["role"] != "assistant"}
        if with_tools:
            row["tools"] = with_tools
        if name == "qwen3":
            row["enable_thinking"] = rng.random() < 0.5
        values = {k: v for k, v in row.items() if k != "template"}
        chat.append(dict(row, text=render(name, **values)))

golden = {"base": base, "variants": rows,
          "train": {"texts": train_texts, "vocab_size": 400, "merges": [" ".join(m) for m in trained["merges"]]}, "chat": chat}
# One row a line, so that a change is readable.
print("{")
for i, (key, value) in enumerate(golden.items()):
    if isinstance(value, list):
        body = "[\n" + ",\n".join(json.dumps(row) for row in value) + "\n]"
    else:
        body = json.dumps(value)
    print(f"{json.dumps(key)}: {body}{',' if i + 1 < len(golden) else ''}")
print("}")
