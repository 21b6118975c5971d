"""The program of a process that cannot import torch and predicts a file with the folder of a model."""

from __future__ import annotations

PREDICT = """
import sys, time

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError("there is no torch", name="torch")

sys.meta_path.insert(0, NoTorch())
from pathlib import Path
from shoestring.models.model import model_at
from shoestring.models.predict_file import predict_file

folder, data, out = map(Path, sys.argv[1:])
began_s = time.process_time()
rows = predict_file(model_at(folder), data, out).rows
print(rows, time.process_time() - began_s)
"""
"""It takes a folder, a file of rows and a file to write, and prints the rows and the CPU-seconds."""
