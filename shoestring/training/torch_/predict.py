"""Predict rows with a trained model."""

from __future__ import annotations

import numpy as np
import torch

from shoestring.core.interfaces import Store
from shoestring.data.loading.samples import SampleReader
from shoestring.data.run_records import read_record
from shoestring.data.storage.blobs import open_blob
from shoestring.training.families.table_net.settings import TableNetSettings
from shoestring.training.families.text_net.settings import TextNetSettings
from shoestring.training.model_record import ModelRecord
from shoestring.training.torch_.learner import EVALUATION_ROWS, Net, from_bytes
from shoestring.training.torch_.net import Array, NetInputs, TableNet
from shoestring.training.torch_.text_net import TextNet, rows_at_once, token_losses


def load_net(store: Store, model: ModelRecord) -> Net:
    """Load the net of a model with its weights. Raises CorruptObject."""
    state = from_bytes(open_blob(store, model.weights_sha256).read_bytes())
    net: Net
    if isinstance(model.settings, TextNetSettings):
        net = TextNet(model.encoding, model.settings)
    else:
        assert isinstance(model.settings, TableNetSettings), model.settings.family
        net = TableNet(model.encoding, model.settings, torch.zeros_like(state["edges_NP1"]))
    net.load_state_dict(state)
    return net.eval()


@torch.no_grad()
def predict(store: Store, model_key: str, rows: SampleReader) -> Array:
    """Return probabilities float64[n, classes]; for regression values float64[n], in the units of y;
    of texts the nats of each row, float64[n]."""
    model = read_record(store, model_key, ModelRecord)
    net, inputs, task = load_net(store, model), NetInputs(model.encoding), model.encoding.task
    found = []
    for samples in rows.scan(rows_at_once(model.encoding, EVALUATION_ROWS)):
        out_BK = net(*inputs.features(samples))
        if task == "next_token":
            found.append(token_losses(out_BK, inputs.target(samples)).double().numpy())
            continue
        out_BK = out_BK.double()
        if task == "binary":
            positive_B = torch.sigmoid(out_BK[:, 0])
            found.append(torch.stack([1 - positive_B, positive_B], dim=1).numpy())
        elif task == "multiclass":
            found.append(torch.softmax(out_BK, dim=1).numpy())
        else:
            found.append(out_BK[:, 0].numpy() * inputs.sd + inputs.mean)
    return np.concatenate(found)
