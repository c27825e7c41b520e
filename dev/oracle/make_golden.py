#!/usr/bin/env python3
"""Writes test/golden: tiny seeded models with their logits, loss and the gradient of every parameter.

The numbers come from `forward` below, a naive float64 implementation that spells out the window as a list of keys.
They are stored only after transformers (eager attention) has given the same, and after a window one key wider or
narrower has given something else. Run from the repository root: `/path/to/venv/bin/python dev/oracle/make_golden.py`
(dev/oracle/README.md says how to make the venv). Files: test/golden/README.md.
"""
import json
import math
import shutil
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file
from torch.nn import functional as F
from transformers import AutoModelForCausalLM

ROOT = Path(__file__).resolve().parents[2] / "test" / "golden"
IGNORED = -100
# transformers keeps norms, rotations and softmax in float32 even in a float64 model
TOLERANCE = 5e-6

COMMON = {
    "bos_token_id": 0, "eos_token_id": 1, "hidden_act": "silu", "attention_dropout": 0.0, "initializer_range": 0.02,
    "max_position_embeddings": 128, "use_cache": True,
}
SLIDING, FULL = "sliding_attention", "full_attention"
CASES = {
    # Every layer slides over 7 keys; the texts have 40, 23 and 5 tokens.
    "qwen2-sliding-tied": {
        "seed": 11, "lengths": [40, 23, 5],
        "config": {
            **COMMON, "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "vocab_size": 61, "hidden_size": 32,
            "intermediate_size": 44, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
            "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
            "use_sliding_window": True, "sliding_window": 7, "max_window_layers": 0, "layer_types": [SLIDING] * 2,
        },
    },
    # Full and sliding layers mixed, listed one by one; three query heads share one key/value head.
    "qwen2-mixed-untied": {
        "seed": 12, "lengths": [37, 41],
        "config": {
            **COMMON, "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "vocab_size": 53, "hidden_size": 24,
            "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 3, "num_key_value_heads": 1,
            "rms_norm_eps": 1e-5, "rope_theta": 1000000.0, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
            "use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1,
            "layer_types": [FULL, SLIDING, SLIDING],
        },
    },
    # Norms on queries and keys; head_dim 12 where hidden_size / heads is 10.
    "qwen3-sliding-tied": {
        "seed": 13, "lengths": [40, 12, 29],
        "config": {
            **COMMON, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 67, "hidden_size": 40,
            "intermediate_size": 36, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
            "head_dim": 12, "attention_bias": False, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
            "tie_word_embeddings": True, "torch_dtype": "bfloat16",
            "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 0, "layer_types": [SLIDING] * 2,
        },
    },
    # config.json as transformers 5 writes it: rope_parameters and dtype in place of rope_theta and torch_dtype.
    "llama-full-untied": {
        "seed": 14, "lengths": [40, 18],
        "config": {
            **COMMON, "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 50, "hidden_size": 32,
            "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
            "head_dim": 8, "attention_bias": False, "mlp_bias": False, "rms_norm_eps": 1e-5,
            "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
            "tie_word_embeddings": False, "dtype": "bfloat16",
        },
    },
}


def head_dim(config):
    return config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])


def windows(config):
    """Keys that layer i sees, itself included; None is all of them."""
    kinds = config.get("layer_types", [FULL] * config["num_hidden_layers"])
    return [config["sliding_window"] if kind == SLIDING else None for kind in kinds]


def shapes(config):
    """HF name -> shape of every stored tensor."""
    d, ff, hd = config["hidden_size"], config["intermediate_size"], head_dim(config)
    q, kv = config["num_attention_heads"] * hd, config["num_key_value_heads"] * hd
    out = {"model.embed_tokens.weight": (config["vocab_size"], d), "model.norm.weight": (d,)}
    for i in range(config["num_hidden_layers"]):
        layer = {
            "input_layernorm.weight": (d,), "post_attention_layernorm.weight": (d,),
            "self_attn.q_proj.weight": (q, d), "self_attn.k_proj.weight": (kv, d), "self_attn.v_proj.weight": (kv, d),
            "self_attn.o_proj.weight": (d, q), "mlp.gate_proj.weight": (ff, d), "mlp.up_proj.weight": (ff, d),
            "mlp.down_proj.weight": (d, ff),
        }
        if config["model_type"] == "qwen2":
            layer |= {"self_attn.q_proj.bias": (q,), "self_attn.k_proj.bias": (kv,), "self_attn.v_proj.bias": (kv,)}
        if config["model_type"] == "qwen3":
            layer |= {"self_attn.q_norm.weight": (hd,), "self_attn.k_norm.weight": (hd,)}
        out |= {f"model.layers.{i}.{name}": shape for name, shape in layer.items()}
    if not config["tie_word_embeddings"]:
        out["lm_head.weight"] = (config["vocab_size"], d)
    return out


def draw_weights(config, rng):
    """Weights that BF16 holds exactly (half the bytes), large enough that no wrong mask, bias, norm or rotation hides behind a rounding error."""
    weights = {}
    for name, shape in shapes(config).items():
        value = torch.randn(shape, generator=rng)
        if name.endswith("norm.weight"):
            value = 1 + 0.3 * value
        elif name.endswith("bias"):
            value = 0.7 * value
        elif name.endswith(("q_proj.weight", "k_proj.weight")):
            value = value * 1.5 / math.sqrt(shape[1])
        else:
            value = value / math.sqrt(shape[-1])
        weights[name] = value.bfloat16().float()
    return weights


def draw_documents(config, lengths, rng):
    """(ids, targets) of every document: targets[t] is ids[t + 1], or -100 at the last token, a prefix and some others."""
    documents = []
    for length in lengths:
        ids = torch.randint(config["vocab_size"], (length,), generator=rng)
        targets = torch.cat([ids[1:], torch.tensor([IGNORED])])
        targets[: length // 5] = IGNORED
        targets[torch.rand(length, generator=rng) < 0.15] = IGNORED
        documents.append((ids, targets))
    return documents


def rms_norm(x, weight, eps):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * weight


def rotate(x, theta):
    """x (T, heads, head_dim): element j of a head turns with element j + head_dim/2 by position * theta^(-2j/head_dim)."""
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[0], dtype=x.dtype)[:, None] * theta ** (-torch.arange(half, dtype=x.dtype) / half)
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def attend(q, k, v, window):
    """q (T, heads, hd), k and v (T, kv_heads, hd): query i sees the keys i - window + 1 .. i, one at a time by index."""
    group = q.shape[1] // k.shape[1]
    rows = []
    for i in range(q.shape[0]):
        keys = list(range(0 if window is None else max(0, i - window + 1), i + 1))
        heads = []
        for h in range(q.shape[1]):
            score = k[keys, h // group] @ q[i, h] / math.sqrt(q.shape[-1])
            heads.append(score.softmax(0) @ v[keys, h // group])
        rows.append(torch.cat(heads))
    return torch.stack(rows)


def forward(config, weights, ids, layer_windows):
    """Logits (T, vocab) of one document."""
    hd, eps, length = head_dim(config), config["rms_norm_eps"], len(ids)
    theta = config["rope_theta"] if "rope_theta" in config else config["rope_parameters"]["rope_theta"]
    x = weights["model.embed_tokens.weight"][ids]
    for i, window in enumerate(layer_windows):
        layer = {name.removeprefix(f"model.layers.{i}."): w for name, w in weights.items()}

        def project(name, y):
            return F.linear(y, layer[f"{name}.weight"], layer.get(f"{name}.bias"))

        y = rms_norm(x, layer["input_layernorm.weight"], eps)
        q, k, v = (project(f"self_attn.{n}_proj", y).view(length, -1, hd) for n in "qkv")
        if "self_attn.q_norm.weight" in layer:
            q = rms_norm(q, layer["self_attn.q_norm.weight"], eps)
            k = rms_norm(k, layer["self_attn.k_norm.weight"], eps)
        x = x + project("self_attn.o_proj", attend(rotate(q, theta), rotate(k, theta), v, window))
        y = rms_norm(x, layer["post_attention_layernorm.weight"], eps)
        x = x + project("mlp.down_proj", F.silu(project("mlp.gate_proj", y)) * project("mlp.up_proj", y))
    x = rms_norm(x, weights["model.norm.weight"], eps)
    return F.linear(x, weights.get("lm_head.weight", weights["model.embed_tokens.weight"]))


def total_loss(logits, documents):
    """Sum over the target tokens of all documents, divided once by their number."""
    total = sum(
        F.cross_entropy(row, targets, ignore_index=IGNORED, reduction="sum")
        for row, (_, targets) in zip(logits, documents)
    )
    return total / sum(int((targets != IGNORED).sum()) for _, targets in documents)


def gap(a, b):
    """Largest difference, relative to the larger of 1 and the largest element."""
    a, b = a.detach(), b.detach()
    return float((a - b).abs().max() / max(1.0, float(b.abs().max())))


def check(condition, text):
    if not condition:
        raise SystemExit(f"make_golden: {text}")


def make(name, case):
    config, folder = case["config"], ROOT / name
    rng = torch.Generator().manual_seed(case["seed"])
    weights = draw_weights(config, rng)
    documents = draw_documents(config, case["lengths"], rng)

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file({key: w.bfloat16() for key, w in weights.items()}, folder / "model.safetensors", metadata={"format": "pt"})

    exact = {key: value.double().requires_grad_() for key, value in weights.items()}
    logits = [forward(config, exact, ids, windows(config)) for ids, _ in documents]
    loss = total_loss(logits, documents)
    loss.backward()

    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float64)
    their_logits = [model(ids[None]).logits[0] for ids, _ in documents]
    their_loss = total_loss(their_logits, documents)
    their_loss.backward()
    their_grads = {key: p.grad for key, p in model.named_parameters()}
    check(their_grads.keys() == exact.keys(), f"{name}: transformers has other tensors: {their_grads.keys() ^ exact.keys()}")
    gaps = {
        "logits": max(gap(a, b) for a, b in zip(their_logits, logits)),
        "loss": gap(their_loss, loss),
        "gradients": max(gap(their_grads[key], value.grad) for key, value in exact.items()),
    }
    for what, value in gaps.items():
        check(value < TOLERANCE, f"{name}: {what} differ from transformers by {value:.1e}")

    report = f"transformers differs by {max(gaps.values()):.1e}"
    if any(windows(config)):
        least = float("inf")
        for step in (-1, 1):
            moved = [w and w + step for w in windows(config)]
            with torch.no_grad():
                other = forward(config, exact, documents[0][0], moved)
            least = min(least, gap(other, logits[0]))
        check(least > 1e-2, f"{name}: a window off by one moves the logits by {least:.1e} only")
        report += f", a window off by one moves the logits by {least:.2f}"

    golden = {f"grad.{key}": value.grad.float() for key, value in exact.items()}
    for i, ((ids, targets), row) in enumerate(zip(documents, logits)):
        golden |= {f"doc{i}.ids": ids.float(), f"doc{i}.targets": targets.float(), f"doc{i}.logits": row.detach().float()}
    golden["loss"] = loss.detach().float()[None]
    save_file(golden, folder / "golden.safetensors")
    summary = {
        "documents": case["lengths"],
        "targets": [int((targets != IGNORED).sum()) for _, targets in documents],
        "loss": loss.item(),
        "windows": [w or 0 for w in windows(config)],
        "parameters": sum(w.numel() for w in weights.values()),
        "checked_with": {"torch": torch.__version__, "transformers": transformers.__version__},
    }
    (folder / "golden.json").write_text(json.dumps(summary, indent=2) + "\n")
    print(f"{name}: loss {loss.item():.6f}, {report}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    transformers.logging.disable_progress_bar()
    for case_name, golden_case in CASES.items():
        make(case_name, golden_case)
