"""References to pods: their stored form is parsed back, in every form."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from shoestring.core.pod_ref import ClusterPod, LabelledPod, LocalProcess, PodRef
from shoestring.core.record import Record

UID = "0b5a4f6e-8a0c-4c67-9c3f-1d2e3f4a5b6c"


class RecordWithPod(Record):
    pod: PodRef


@pytest.mark.parametrize(
    ("text", "ref"),
    [
        (f"ml.{UID}.train-1.x", ClusterPod("ml", UID, "train-1.x")),
        (f"ml.{UID}.1.2", ClusterPod("ml", UID, "1.2")),
        ("ns.7.ingest-pod", ClusterPod("ns", "7", "ingest-pod")),
        ("some.host.name.1234.1700000000000", LocalProcess("some.host.name", 1234, 1700000000000)),
        ("host.1.2", LocalProcess("host", 1, 2)),
        ("a.b~0a1b2c3d~4026531836.1.2", LocalProcess("a.b", 1, 2, "0a1b2c3d", "4026531836")),
        (
            "ns?shoestring.dev/stage=train,pipeline/runid=r-1",
            LabelledPod.with_labels("ns", {"shoestring.dev/stage": "train", "pipeline/runid": "r-1"}),
        ),
    ],
)
def test_a_reference_is_parsed_back_from_its_stored_form(text: str, ref: PodRef) -> None:
    assert PodRef.parse(text) == ref
    assert str(ref) == text
    assert RecordWithPod(pod=ref).model_dump(mode="json") == {"pod": text}
    assert RecordWithPod.model_validate_json(RecordWithPod(pod=ref).model_dump_json()).pod == ref


@pytest.mark.parametrize("text", ["", "pod", "ns.uid", "..", "ns..name"])
def test_other_text_refers_to_no_pod(text: str) -> None:
    with pytest.raises(ValueError, match="refers to no pod"):
        PodRef.parse(text)
    with pytest.raises(ValidationError, match="refers to no pod"):
        RecordWithPod.model_validate({"pod": text})
