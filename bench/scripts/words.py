"""Train an LSTM to predict the next word of a text, with one rate for all steps, in a loop like that of
PyTorch's word_language_model.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

import torch
from torch import Tensor, nn

WORDS, WIDTH, LENGTH, BATCH, VALIDATE_STEPS = 4000, 64, 35, 20, 100
State = tuple[Tensor, Tensor]


class WordModel(nn.Module):
    def __init__(self, words: int) -> None:
        super().__init__()
        self.words, self.drop = nn.Embedding(words, WIDTH), nn.Dropout(0.2)
        self.layers = nn.LSTM(WIDTH, WIDTH, 2, dropout=0.2)
        self.out = nn.Linear(WIDTH, words)
        self.out.weight = self.words.weight
        nn.init.uniform_(self.words.weight, -0.1, 0.1)

    def forward(self, batch: Tensor, state: State | None) -> tuple[Tensor, State]:
        hidden, state = self.layers(self.drop(self.words(batch)), state)
        return self.out(self.drop(hidden)).flatten(0, 1), state


def read_columns(path: Path) -> tuple[Tensor, int]:
    """Return the text's words as numbers, in columns of a batch, and the number of known words."""
    text = path.read_text().lower().split()
    known = {word: number for number, (word, _) in enumerate(Counter(text).most_common(WORDS - 1), 1)}
    numbers = torch.tensor([known.get(word, 0) for word in text])
    return numbers[: len(numbers) // BATCH * BATCH].reshape(BATCH, -1).t().contiguous(), len(known) + 1


def batch_at(columns: Tensor, start: int) -> tuple[Tensor, Tensor]:
    return columns[start : start + LENGTH], columns[start + 1 : start + 1 + LENGTH].flatten()


@torch.no_grad()
def validate(model: nn.Module, columns: Tensor) -> float:
    model.eval()
    total, state = 0.0, None
    starts = range(0, len(columns) - LENGTH - 1, LENGTH)
    for start in starts:
        words, targets = batch_at(columns, start)
        out, state = model(words, state)
        total += float(nn.functional.cross_entropy(out, targets))
    model.train()
    return total / len(starts)


def main() -> None:
    parser = argparse.ArgumentParser(description=Path(__file__).name)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=Path, default=Path("log.txt"))
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    columns, words = read_columns(args.data)
    train, held_out = columns[: len(columns) * 9 // 10], columns[len(columns) * 9 // 10 :][:1100]
    starts = range(0, len(train) - LENGTH - 1, LENGTH)
    model = WordModel(words)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    state: State | None = None
    with args.log.open("a") as log:
        for step in range(args.steps):
            batch, targets = batch_at(train, starts[step % len(starts)])
            state = None if state is None else (state[0].detach(), state[1].detach())
            out, state = model(batch, state)
            optimizer.zero_grad()
            nn.functional.cross_entropy(out, targets).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            optimizer.step()
            print("rate", optimizer.param_groups[0]["lr"], file=log, flush=True)
            if (step + 1) % VALIDATE_STEPS == 0:
                loss = validate(model, held_out)
                print("loss", loss, file=log, flush=True)
                print(f"step {step + 1}: validation loss {loss:.4f}", flush=True)
        if args.steps % VALIDATE_STEPS:
            print("loss", validate(model, held_out), file=log, flush=True)


if __name__ == "__main__":
    main()
