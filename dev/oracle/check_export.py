#!/usr/bin/env python3
"""Compares the logits of a model folder in transformers with those our programs printed for the same folder.

    /path/to/venv/bin/python dev/oracle/check_export.py FOLDER LOGITS.json [--tolerance 1e-4]

LOGITS.json: {"ids": [...], "logits": [[...], ...]}, one row per id; or a list of such objects; or one object a line.
Reads the folder as any user of transformers would (windows, ties, shards, dtypes from the files alone), runs in float32
with eager attention and prints the largest difference per text. Exit 1: too far apart, or tensors missing or left over.
"""
import argparse
import json
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, logging


def read_cases(path):
    text = Path(path).read_text(encoding="utf-8")
    try:
        cases = json.loads(text)
    except json.JSONDecodeError:
        cases = [json.loads(line) for line in text.splitlines() if line.strip()]
    return cases if isinstance(cases, list) else [cases]


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("folder")
    arguments.add_argument("logits")
    arguments.add_argument("--tolerance", type=float, default=1e-4, help="difference over the largest logit (at least 1)")
    options = arguments.parse_args()
    logging.disable_progress_bar()

    model, report = AutoModelForCausalLM.from_pretrained(
        options.folder, attn_implementation="eager", dtype=torch.float32, output_loading_info=True
    )
    problems = [f"{kind}: {sorted(names)}" for kind, names in report.items() if names]
    config = model.config
    kinds = getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers
    print(f"{config.model_type}, window {getattr(config, 'sliding_window', None)}, layers {', '.join(kinds)}")

    for number, case in enumerate(read_cases(options.logits)):
        ours = torch.tensor(case["logits"], dtype=torch.float32)
        with torch.no_grad():
            theirs = model(torch.tensor([case["ids"]])).logits[0]
        if ours.shape != theirs.shape:
            problems.append(f"text {number}: logits {list(ours.shape)}, transformers {list(theirs.shape)}")
            continue
        gap = float((ours - theirs).abs().max() / max(1.0, float(theirs.abs().max())))
        print(f"text {number}: {len(case['ids'])} tokens, relative difference {gap:.2e}")
        if not gap <= options.tolerance:  # a NaN fails too
            problems.append(f"text {number}: difference {gap:.2e} above {options.tolerance:.0e}")

    for problem in problems:
        print(f"check_export: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
