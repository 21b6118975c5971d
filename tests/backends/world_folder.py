"""A folder of valid world files, as ConfigMaps are mounted."""

from __future__ import annotations

from pathlib import Path

from shoestring.backends.kubernetes.world_files import file_path

FILE_TEXTS = {
    "world": """
name: lab
store: {endpoint: 127.0.0.1:1, bucket: shoestring, secure: false}
images: {train: registry.example/train:2}
""",
    "pools": """
pools:
  - name: cpu-spot
    labels: {shoestring.dev/pool: cpu-spot}
    market: spot
    machine: {cores: 4, memory_gb: 16}
    max_nodes: 3
  - name: gpu
    labels: {shoestring.dev/pool: gpu}
    taints: [{key: nvidia.com/gpu, value: present}]
    machine: {cores: 8, memory_gb: 32, gpu: NVIDIA L4, gpu_count: 1}
""",
    "prices": """
prices:
  - {pool: cpu-spot, market: spot, usd_per_hour: 0.04, as_of: 2026-07-30, source: list}
  - {pool: gpu, market: on-demand, usd_per_hour: 0.71, as_of: 2026-07-30, source: list}
""",
    "policy": "queue_delay_s: 60\n",
    "budgets": "month_usd: 12.50\nstages: {train: 2}\n",
}


def write(folder: Path, **changed: str) -> Path:
    """Write all files, some of them changed; return the folder."""
    for name, text in (FILE_TEXTS | changed).items():
        file_path(folder, name).parent.mkdir(parents=True, exist_ok=True)
        file_path(folder, name).write_text(text)
    return folder
