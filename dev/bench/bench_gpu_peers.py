#!/usr/bin/env python3
"""PyTorch on the shapes of bench_gpu: attention of 32k tokens, 12 heads on 2, width 128, bfloat16, forward and backward.

    python3 dev/bench/bench_gpu_peers.py [--toy] [--seconds 140]

One line a figure: name value unit. SDPA (flash, cuDNN) has no window; flex_attention and the flash kernel inside PyTorch
have. FLOP/s count visible pairs only. What this PyTorch lacks is said on stderr and left out. --toy: sizes to see on a CPU
that the script runs.
"""
import argparse
import statistics
import sys
import time

import torch

H, G, E = 12, 2, 128


def pairs(tokens, window):
    if not window or window >= tokens:
        return tokens * (tokens + 1) / 2
    return window * (window + 1) / 2 + (tokens - window) * window


def median_seconds(body, device, repeats):
    for _ in range(3):
        body()
    times = []
    for _ in range(repeats):
        if device == "cuda":
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            body()
            end.record()
            torch.cuda.synchronize()
            times.append(start.elapsed_time(end) / 1e3)
        else:
            start = time.perf_counter()
            body()
            times.append(time.perf_counter() - start)
    return statistics.median(times)


def report(name, tokens, window, attend, q, k, v, repeats):
    flops = 4 * E * H * pairs(tokens, window)
    forward = median_seconds(lambda: attend(q.detach(), k.detach(), v.detach()), q.device.type, repeats)
    print(f"{name}_forward {flops / forward / 1e12:.1f} TFLOP/s", flush=True)
    out = attend(q, k, v)
    grad = torch.randn_like(out)

    def both():
        torch.autograd.grad(attend(q, k, v), (q, k, v), grad)

    backward = median_seconds(both, q.device.type, repeats) - forward
    if backward <= 0:
        raise RuntimeError("backward too short to measure")
    print(f"{name}_backward {2.5 * flops / backward / 1e12:.1f} TFLOP/s", flush=True)


def sdpa_with(backend):
    from torch.nn.attention import sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention as sdpa

    def attend(q, k, v):
        with sdpa_kernel(backend):
            return sdpa(q, k, v, is_causal=True, enable_gqa=True)

    return attend


def flash_window(tokens, window):
    """The flash kernel inside PyTorch; its left bound is inclusive."""

    def attend(q, k, v):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        return torch.ops.aten._flash_attention_forward(
            q, k, v, None, None, tokens, tokens, 0.0, True, False, window_size_left=window - 1, window_size_right=0
        )[0]

    return attend


def flex(tokens, window, device):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def mask(b, h, i, j):
        return (j <= i) & (j > i - window) if window else j <= i

    block_mask = create_block_mask(mask, None, None, tokens, tokens, device=device)
    compiled = torch.compile(flex_attention) if device == "cuda" else flex_attention
    return lambda q, k, v: compiled(q, k, v, block_mask=block_mask, enable_gqa=True)


def candidates(device, toy):
    """(name, tokens, window, builder), the most telling first."""
    from torch.nn.attention import SDPBackend

    if toy:
        yield "sdpa_math", 256, 0, lambda: sdpa_with(SDPBackend.MATH)
        yield "flex", 256, 32, lambda: flex(256, 32, device)
        return
    for tokens in (32768, 16384, 8192):
        yield "sdpa_flash", tokens, 0, lambda: sdpa_with(SDPBackend.FLASH_ATTENTION)
        for window in (4096, 2048, 8192):
            if window < tokens:
                yield "aten_flash", tokens, window, lambda t=tokens, w=window: flash_window(t, w)
        yield "sdpa_cudnn", tokens, 0, lambda: sdpa_with(SDPBackend.CUDNN_ATTENTION)
        for window in (4096, 0, 2048, 8192):
            if window < tokens:
                yield "flex", tokens, window, lambda t=tokens, w=window: flex(t, w, device)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--toy", action="store_true")
    parser.add_argument("--seconds", type=float, default=140)
    options = parser.parse_args()
    begin = time.perf_counter()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    for kind, tokens, window, build in candidates(device, options.toy):
        name = f"{kind}_{tokens}_{window or 'full'}"
        if time.perf_counter() - begin > options.seconds:
            print(f"{name}: left out, no time", file=sys.stderr)
            continue
        q, k, v = (torch.randn(1, h, tokens, E, device=device, dtype=dtype, requires_grad=True) for h in (H, G, G))
        try:
            report(name, tokens, window, build(), q, k, v, 1 if options.toy else 10)
        except Exception as error:  # a peer that this PyTorch lacks must not cost the others
            print(f"{name}: {str(error).splitlines()[0][:200]}", file=sys.stderr)


if __name__ == "__main__":
    main()
