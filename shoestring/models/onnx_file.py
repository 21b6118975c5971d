"""Write a model as a file of ONNX, from encoded rows to calibrated predictions, and check it.

Shape suffixes: B rows; K classes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from shoestring.core.datasets import Encoding, Use
from shoestring.core.errors import DataError, UsageError
from shoestring.core.record import Record
from shoestring.data.formats.dictionaries import read_dictionaries
from shoestring.data.loading.record_columns import column_of
from shoestring.data.loading.samples import Samples
from shoestring.models.data_files import whole_file
from shoestring.models.folder.record import DICTIONARIES_FILE
from shoestring.models.model import PREDICTION, FittedModel
from shoestring.training.families.registry import family_of
from shoestring.training.losses.scores import SMALLEST, class_weights

if TYPE_CHECKING:
    from shoestring.training.families.onnx_graph import OnnxGraph

Array = np.ndarray[Any, np.dtype[Any]]

PROBABILITIES = "probabilities"
MOST_DIFFERENCE, CHECKED_ROWS, SINGLE_ROWS = 1e-4, 1000, 200


class OnnxFile(Record):
    """A written file of ONNX, compared with the model and timed on one thread of this machine.

    `largest_difference`: of a probability, or of a number over the standard deviation of the target in train,
    over `CHECKED_ROWS` random rows.
    """

    size_bytes: int
    largest_difference: float
    row_ms: float = Field(description="median milliseconds of a call with one row")
    rows_us: float = Field(description="median microseconds a row of a call with all of them")


def write_onnx(model: FittedModel, out: Path) -> OnnxFile:
    """Write the model to `out`, once it predicts random rows as the model itself does.

    Raises UsageError: onnx or onnxruntime is missing, or the family of the model has no graph; DataError: the
    predictions differ by more than `MOST_DIFFERENCE`.
    """
    try:
        import onnxruntime

        from shoestring.training.families.onnx_graph import OnnxGraph
    except ModuleNotFoundError as error:
        raise UsageError(f"an export to ONNX needs {error.name}: pip install 'shoestring[onnx]'") from None
    data = _graph_of(OnnxGraph(), model).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    samples = random_samples(model.encoding, CHECKED_ROWS)
    found = _run(session, samples)
    difference = float(np.abs(found - model.predict_samples(samples)).max())
    if not model.encoding.classes:
        difference /= model.encoding.train_prior[1] or 1.0
    if not difference <= MOST_DIFFERENCE:
        raise DataError(
            f"the graph and the model differ by {difference:.1e}, and at most {MOST_DIFFERENCE:.0e} is a "
            "matter of rounding: nothing is written"
        )
    with whole_file(out) as unfinished:
        unfinished.write_bytes(data)
    one = samples.part(0, 1)
    return OnnxFile(
        size_bytes=len(data),
        largest_difference=difference,
        row_ms=1e3 * _seconds(lambda: _run(session, one), SINGLE_ROWS),
        rows_us=1e6 * _seconds(lambda: _run(session, samples), 10) / CHECKED_ROWS,
    )


def _run(session: Any, samples: Samples) -> Array:
    """Return what the session predicts, as `Predictor` does."""
    inputs = {each.name: samples[each.name] for each in session.get_inputs()}
    return np.asarray(session.run([session.get_outputs()[-1].name], inputs)[0])


def _seconds(call: Callable[[], object], times: int) -> float:
    taken = []
    for _ in range(times):
        began_s = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began_s)
    return float(np.median(taken))


def random_samples(encoding: Encoding, rows: int) -> Samples:
    """Return samples with every code as likely as the next, and numbers of a standard normal distribution."""
    draw = np.random.default_rng(0)
    sizes = [each.cardinality for each in encoding.features if each.kind == "categorical"]
    fields: dict[Use, Array] = {
        "code": draw.integers(0, np.array(sizes, np.int64), (rows, len(sizes)), np.int32),
        "number": draw.standard_normal((rows, len(encoding.features) - len(sizes)), np.float32),
    }
    for image in encoding.of_use("image"):
        fields[image.use] = draw.integers(0, 256, (rows, *image.shape), np.uint8)
    return Samples(fields)


def _graph_of(graph: OnnxGraph, model: FittedModel) -> Any:
    encoding, record, folder = model.encoding, model.record.model, model.folder
    weights = family_of(record.settings).from_files(folder.weights)
    predicted = graph.add_model(record.settings, encoding, weights)
    outputs: dict[str, tuple[str, tuple[int, ...]]] = {}
    if encoding.classes:
        predicted = judged = _calibrated(graph, predicted, encoding, record.inverse_temperature)
        if encoding.loss.balanced:
            judged = graph.scaled(predicted, class_weights(encoding))
        chosen = graph.add("ArgMax", judged, axis=1, keepdims=0)
        outputs[graph.named(chosen, PREDICTION)] = "int64", ()
        predicted = graph.cast(predicted, "float32")
        outputs[graph.named(predicted, PROBABILITIES)] = "float32", (len(encoding.classes),)
    else:
        outputs[graph.named(predicted, PREDICTION)] = "float64", ()
    notes = {"classes": [*encoding.classes], "features": _features(model), "run": record.run_id}
    return graph.model(encoding, outputs, {name: json.dumps(each) for name, each in notes.items()})


def _calibrated(graph: OnnxGraph, predicted_BK: str, encoding: Encoding, inverse_temperature: float) -> str:
    """Add what `losses.scores.calibrated` computes."""
    if inverse_temperature == 1 and not encoding.loss.balanced:
        return predicted_BK
    priors_K = np.log(np.clip(encoding.train_prior, SMALLEST, 1.0)) if encoding.loss.balanced else 0.0
    return graph.softmax(graph.scaled(graph.logs(predicted_BK), inverse_temperature, priors_K))


def _features(model: FittedModel) -> dict[str, list[dict[str, Any]]]:
    """Return how the columns of each input are computed from raw ones, for a program without Shoestring."""
    dictionaries = read_dictionaries(model.folder.path / DICTIONARIES_FILE)
    codes, numbers = list[dict[str, Any]](), list[dict[str, Any]]()
    for each in model.encoding.features:
        column = column_of(each)
        if each.kind == "numeric":
            numbers.append(
                {
                    "column": column,
                    "mean": each.mean,
                    "sd": each.sd,
                    "marks_missing": each.marks_missing,
                }
            )
            continue
        known = dictionaries.get(column)
        pairs = zip(known.values, known.model_codes.tolist(), strict=True) if known else ()
        codes.append({"column": column, "codes": {value: code for value, code in pairs if code}})
    return {"code": codes, "number": numbers}
