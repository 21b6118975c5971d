"""`train_process.py STORE DATA_KEY`: the train stage in its own process, on a clock that runs fast.

The fast clock makes checkpoints frequent.
"""

from __future__ import annotations

import sys
from decimal import Decimal
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent))  # in a process of its own

from clocks import BOOT_S, FastClock

from shoestring.backends.folder_store import FolderStore
from shoestring.data.recipe import Recipe, Source, Target
from shoestring.spending.meter import Meter
from shoestring.stages import train
from shoestring.stages.work import StageProgress, Work
from shoestring.training.families.table_net.settings import TableNetSettings

EPOCHS = 20
TIMES = 50.0


def report(progress: StageProgress) -> None:
    print(progress.samples, flush=True)


def work(folder: Path, data_key: str) -> Work:
    settings = TableNetSettings(max_epochs=EPOCHS, hidden=(8,), bins=2, batch_rows=32, patience=10_000)
    return Work(
        run_id="one",
        stage="train",
        attempt=1,
        seed=0,
        inputs={"data": data_key},
        recipe=Recipe(
            name="mine",
            source={"rows": Source(path=Path("rows.csv"))},
            target=Target(column="y"),
            train=settings,
        ),
        format=None,
        cores=1,
        store=FolderStore(folder),
        meter=Meter(Decimal(0), BOOT_S, Decimal(0), None),
        clock=FastClock(TIMES),
        scratch=folder,
        report_progress=report,
        should_stop=lambda: False,
    )


if __name__ == "__main__":
    print(train.run(work(Path(sys.argv[1]), sys.argv[2])).model_dump_json(), flush=True)
