"""A GPT trained on bytes by a loop of its own, which imports nothing of aiperf: to compare it with.

    python benchmarks/text/loop.py FILE STEPS SEED

Four blocks of four heads and width 128 at a context of 64, batch 12, AdamW at 1e-3 with betas (0.9, 0.95),
weight decay 0.1, clipping at 1, a warm-up of 5 % and a cosine to zero: what nanoGPT's README trains on a
processor, there with betas up to 0.99 and a last rate of 1e-4. Trains on the file's first 90 %, validates on
the next 5 %, and prints JSON: nats per byte, and seconds of the steps.
"""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

BLOCKS, HEADS, WIDTH, CONTEXT, BATCH, PEAK, WARMUP = 4, 4, 128, 64, 12, 1e-3, 0.05


class Block(nn.Module):
    """Attention and MLP, each with a norm before it and a way around it."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        n, t, _ = x.shape
        parts = self.qkv(self.norms[0](x)).view(n, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(n, t, WIDTH))
        return x + self.narrow(functional.gelu(self.wide(self.norms[1](x))))


class Gpt(nn.Module):
    """The network with its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.symbols, self.places = nn.Embedding(256, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks, self.norm = nn.Sequential(*[Block() for _ in range(BLOCKS)]), nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 256, bias=False)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)  # as nanoGPT; torch's own are random

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        hidden = self.norm(self.blocks(self.symbols(x) + self.places.weight))
        return functional.cross_entropy(self.head(hidden).flatten(0, 1), y.flatten())


def main() -> None:
    path, steps, seed = Path(sys.argv[1]), *map(int, sys.argv[2:4])
    torch.manual_seed(seed)
    text = torch.from_numpy(np.fromfile(path, np.uint8).astype(np.int64))
    train, held_out = (
        text[int(len(text) * low) : int(len(text) * high)] for low, high in ((0, 0.9), (0.9, 0.95))
    )
    model = Gpt()
    matrices = [each for each in model.parameters() if each.ndim > 1]
    vectors = [each for each in model.parameters() if each.ndim == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, PEAK, (0.9, 0.95), fused=True)
    began, warmup = time.perf_counter(), int(WARMUP * steps)
    for step in range(steps):
        starts = torch.randint(len(train) - 1 - CONTEXT, (BATCH,)).tolist()
        x, y = (torch.stack([train[i + by : i + by + CONTEXT] for i in starts]) for by in (0, 1))
        done = (step - warmup) / (steps - warmup)
        rate = (step + 1) / warmup if step < warmup else (1 + math.cos(math.pi * done)) / 2
        for group in optimizer.param_groups:
            group["lr"] = PEAK * rate
        loss = model(x, y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    seconds = time.perf_counter() - began
    model.eval()
    places = range(0, len(held_out) - CONTEXT - 1, CONTEXT)
    with torch.inference_mode():
        parts = [[held_out[i + by : i + by + CONTEXT] for i in places] for by in (0, 1)]
        nats = model(*map(torch.stack, parts)).item()
    print(json.dumps({"nats": nats, "seconds": seconds}))


if __name__ == "__main__":
    main()
