"""Train a small transformer on the characters of a text: each predicts the next one."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

WINDOW, WIDTH, EPOCH_STEPS, BATCH = 64, 64, 100, 32


class RandomWindows(Dataset[Tensor]):
    """Windows of a text at random places. `rows`: how many of them are an epoch."""

    def __init__(self, text: Tensor, rows: int) -> None:
        self._text, self._rows = text, rows

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, index: int) -> Tensor:
        start = int(torch.randint(len(self._text) - WINDOW, ()))
        return self._text[start : start + WINDOW + 1]


class CharacterModel(nn.Module):
    def __init__(self, characters: int) -> None:
        super().__init__()
        self.characters = nn.Embedding(characters, WIDTH)
        self.positions = nn.Parameter(torch.randn(WINDOW, WIDTH) * 0.02)
        layer = nn.TransformerEncoderLayer(
            WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True, activation="gelu"
        )
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(WIDTH, characters)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(WINDOW))

    def forward(self, batch: Tensor) -> Tensor:
        """Return the mean loss of each window's characters but the first."""
        hidden = self.characters(batch[:, :-1]) + self.positions
        logits = self.out(self.layers(hidden, mask=self.get_buffer("mask"), is_causal=True))
        loss: Tensor = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        return loss


@torch.no_grad()
def validate(model: nn.Module, batches: Iterable[Tensor]) -> float:
    model.eval()
    losses = [float(model(batch)) for batch in batches]
    model.train()
    return float(np.mean(losses))


def main() -> None:
    parser = argparse.ArgumentParser(description=Path(__file__).name)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=Path, default=Path("log.txt"))
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    letters, codes = np.unique(np.array(list(args.data.read_text())), return_inverse=True)
    text = torch.from_numpy(codes.astype(np.int64))
    train, held_out = text[: len(text) * 9 // 10], text[len(text) * 9 // 10 :]
    loader = DataLoader(RandomWindows(train, EPOCH_STEPS * BATCH), batch_size=BATCH, shuffle=True)
    windows = held_out[: len(held_out) // (WINDOW + 1) * (WINDOW + 1)].reshape(-1, WINDOW + 1)
    test_batches = torch.split(windows[:: len(windows) // 1000], 100)
    model = CharacterModel(len(letters))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    warmup = max(1, args.steps // 20)

    def factor(step: int) -> float:
        done = min(1.0, max(0.0, (step - warmup) / (args.steps - warmup)))
        return float(min(1.0, (step + 1) / warmup) * 0.5 * (1 + math.cos(math.pi * done)))

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    with args.log.open("a") as log:
        for epoch in range(math.ceil(args.steps / EPOCH_STEPS)):
            for batch in islice(loader, args.steps - epoch * EPOCH_STEPS):
                optimizer.zero_grad()
                model(batch).backward()
                optimizer.step()
                print("rate", optimizer.param_groups[0]["lr"], file=log, flush=True)
                scheduler.step()
            loss = validate(model, test_batches)
            print("loss", loss, file=log, flush=True)
            print(f"epoch {epoch}: validation loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
