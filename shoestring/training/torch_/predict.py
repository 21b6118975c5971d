"""What a trained model says of rows."""

from __future__ import annotations

import numpy as np
import torch

from shoestring.core.interfaces import Store
from shoestring.data.formats.readers import EncodedRows
from shoestring.data.run_records import read_record
from shoestring.data.storage.blobs import open_blob
from shoestring.training.model_record import ModelRecord
from shoestring.training.torch_.checkpoint import from_bytes
from shoestring.training.torch_.learner import EVALUATION_ROWS
from shoestring.training.torch_.net import Array, NetInputs, TableNet


def load_net(store: Store, record: ModelRecord) -> TableNet:
    """The net with its weights. Raises CorruptObject."""
    state = from_bytes(open_blob(store, record.weights_sha256).read_bytes())
    net = TableNet(record.encoding, record.settings, torch.zeros_like(state["edges_NP1"]))
    net.load_state_dict(state)
    return net.eval()


@torch.no_grad()
def predict(store: Store, model_key: str, rows: EncodedRows) -> Array:
    """Probabilities float64[n, classes]; a regression's values float64[n], in the units of y."""
    record = read_record(store, model_key, ModelRecord)
    net, columns, task = load_net(store, record), NetInputs(record.encoding), record.encoding.task
    found = []
    for records in rows.scan(EVALUATION_ROWS):
        out_BK = net(*columns.inputs(records)).double()
        if task == "binary":
            yes_B = torch.sigmoid(out_BK[:, 0])
            found.append(torch.stack([1 - yes_B, yes_B], dim=1).numpy())
        elif task == "multiclass":
            found.append(torch.softmax(out_BK, dim=1).numpy())
        else:
            found.append(out_BK[:, 0].numpy() * columns.sd + columns.mean)
    return np.concatenate(found)
