"""Train a small BERT with Hugging Face's Trainer to name the book of the Bible that a verse is of."""

from __future__ import annotations

import argparse
import json
import zlib
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

WORDS, LENGTH, BATCH = 4096, 32, 32


def read_verses(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Return words by their hashes with the number of each verse's book, and the number of books."""
    verses = [json.loads(line) for line in path.read_text().splitlines()]
    books = {name: number for number, name in enumerate(dict.fromkeys(each["book"] for each in verses))}
    rows = list[dict[str, Any]]()
    for each in verses:
        words = [1 + zlib.crc32(word.encode()) % (WORDS - 1) for word in each["text"].lower().split()][
            :LENGTH
        ]
        padding = [0] * (LENGTH - len(words))
        mask = [1] * len(words) + padding
        rows.append({"input_ids": words + padding, "attention_mask": mask, "labels": books[each["book"]]})
    return rows, len(books)


class LogRates(TrainerCallback):  # type: ignore[misc,unused-ignore]
    """Writes the rate of each step and the loss of each evaluation to a file."""

    def __init__(self, path: Path) -> None:
        self.file, self.evaluated_at = path.open("a"), -1

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        print("rate", kwargs["optimizer"].param_groups[0]["lr"], file=self.file, flush=True)

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any, **kwargs: Any) -> None:
        self.evaluated_at = state.global_step
        print("loss", metrics["eval_loss"], file=self.file, flush=True)


def model_for(books: int) -> nn.Module:
    return BertForSequenceClassification(
        BertConfig(
            vocab_size=WORDS,
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=128,
            max_position_embeddings=LENGTH,
            num_labels=books,
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=Path(__file__).name)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=Path, default=Path("log.txt"))
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    rows, books = read_verses(args.data)
    log = LogRates(args.log)
    arguments = TrainingArguments(
        output_dir=str(args.log.with_suffix(".out")),
        max_steps=args.steps,
        per_device_train_batch_size=BATCH,
        per_device_eval_batch_size=500,
        learning_rate=1e-3,
        lr_scheduler_type="cosine",
        warmup_steps=max(1, args.steps // 20),
        eval_strategy="steps",
        eval_steps=200,
        save_strategy="no",
        logging_steps=200,
        seed=args.seed,
        report_to=[],
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=model_for(books),
        args=arguments,
        train_dataset=[row for number, row in enumerate(rows) if number % 10],
        eval_dataset=rows[::30],
        callbacks=[log],
    )
    trainer.train()
    if log.evaluated_at != trainer.state.global_step:
        trainer.evaluate()


if __name__ == "__main__":
    main()
