#!/usr/bin/env python3
"""PyTorch's speed on the training step of `make bench`, shape (a): a 4-layer Qwen2 of width 256, 16 sequences of 256 tokens.

    /path/to/venv/bin/python dev/bench/peer_train_step.py [--threads 2] [--seconds 20]

Forward, backward and AdamW in float32, no clipping, no dropout, SDPA attention. The network is measured as transformers
builds it and with as few calls as plain PyTorch allows; the faster one counts. The float32 matmul ceiling (torch.mm) comes
from the same run. tokens/s are medians over steps; they mean something on a quiet machine only.
"""
import argparse
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F
from transformers import Qwen2Config, Qwen2ForCausalLM

LAYERS, D, FF, HEADS, KV_HEADS, VOCAB, T, BATCH = 4, 256, 768, 4, 2, 4096, 256, 16
HEAD_DIM = D // HEADS


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(D, eps=1e-6), nn.RMSNorm(D, eps=1e-6)
        self.qkv = nn.Linear(D, (HEADS + 2 * KV_HEADS) * HEAD_DIM)
        self.out = nn.Linear(HEADS * HEAD_DIM, D, bias=False)
        self.gate_up = nn.Linear(D, 2 * FF, bias=False)
        self.down = nn.Linear(FF, D, bias=False)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        qkv = self.qkv(self.norm1(x)).view(b, t, HEADS + 2 * KV_HEADS, HEAD_DIM).transpose(1, 2)
        qk, v = qkv.split([HEADS + KV_HEADS, KV_HEADS], 1)
        first, second = qk.chunk(2, -1)
        qk = torch.cat([first * cos - second * sin, second * cos + first * sin], -1)
        q, k = qk.split([HEADS, KV_HEADS], 1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, -1))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, D)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(D, eps=1e-6)
        half = HEAD_DIM // 2
        angle = torch.outer(torch.arange(T), 10000.0 ** (-torch.arange(half) / half))
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return F.linear(self.norm(x), self.embed.weight)


def transformers_model():
    return Qwen2ForCausalLM(Qwen2Config(
        vocab_size=VOCAB, hidden_size=D, intermediate_size=FF, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS, max_position_embeddings=T, tie_word_embeddings=True, use_cache=False,
        attn_implementation="sdpa",
    ))


def make_step(model, logits_of):
    """One training step as a function; the data is drawn once, as no trainer would wait for it."""
    ids = torch.randint(VOCAB, (BATCH, T))
    targets = torch.cat([ids[:, 1:], torch.full((BATCH, 1), -100)], 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), fused=True)

    def step():
        loss = F.cross_entropy(logits_of(ids).flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return step


def seconds_per_call(function, seconds):
    """Median time of a call; at least three are made after one for warming up."""
    function()
    times, start = [], time.perf_counter()
    while len(times) < 3 or time.perf_counter() - start < seconds:
        before = time.perf_counter()
        function()
        times.append(time.perf_counter() - before)
    return statistics.median(times)


def matmul_ceiling(seconds):
    """Best GFLOP/s of torch.mm over squares and over the step's own shape (tokens x width times width x vocabulary)."""
    best = 0.0
    for m, k, n in [(1024, 1024, 1024), (2048, 2048, 2048), (BATCH * T, D, VOCAB)]:
        a, b = torch.randn(m, k), torch.randn(k, n)
        out = torch.empty(m, n)
        best = max(best, 2e-9 * m * k * n / seconds_per_call(lambda: torch.mm(a, b, out=out), seconds / 3))
    return best


def flops_per_token():
    """Multiply-adds counted as two, forward and backward (three times forward), causal half of attention."""
    linear = LAYERS * (D * (HEADS + 2 * KV_HEADS) * HEAD_DIM + D * HEADS * HEAD_DIM + 3 * D * FF) + D * VOCAB
    attention = LAYERS * 2 * HEADS * HEAD_DIM * (T + 1) / 2
    return 6 * (linear + attention)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--seconds", type=float, default=20, help="measured per version")
    options = arguments.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)

    ceiling = matmul_ceiling(3)
    print(f"torch {torch.__version__}, {options.threads} threads, torch.mm float32: {ceiling:.0f} GFLOP/s")
    theirs, ours = transformers_model(), Model()
    assert sum(p.numel() for p in theirs.parameters()) == sum(p.numel() for p in ours.parameters())
    for name, step in [
        ("transformers", make_step(theirs, lambda ids: theirs(ids).logits)),
        ("plain modules", make_step(ours, ours)),
    ]:
        rate = BATCH * T / seconds_per_call(step, options.seconds)
        share = rate * flops_per_token() * 1e-9 / ceiling
        print(f"{name}: {rate:.0f} tokens/s, {rate * flops_per_token() * 1e-9:.0f} GFLOP/s, {share:.0%} of the ceiling")


if __name__ == "__main__":
    main()
