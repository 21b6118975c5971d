"""The placement reaches KFP's driver in the types it reads; it ignores other types silently."""

from __future__ import annotations

import json
import re
from importlib.metadata import version

import pytest
from hypothesis import given
from hypothesis import strategies as st
from routing_cases import CPU_1, EVALUATE, TRAIN, laptop_question, quote

from shoestring.config.world import IMAGES
from shoestring.core.types import Market, MarketTerms, Need, Pool, Toleration
from shoestring.routing.decide import decide
from shoestring.routing.placement import argo_patch, driver_outputs, place_stage

L4 = Pool(name="gpu", cores=8, memory_gb=30.5, gpu_count=2, gpu_tflops=121, gpu_memory_gb=24)
OURS = "registry.example.com/ours:1"
QUANTITY = re.compile(r"^[1-9][0-9]*M?$")
"""Of a cpu or a memory, as KFP's SDK and Kubernetes both read it."""

words = st.text("abcdefgh-./0123456789", min_size=1, max_size=20)
maybe = st.one_of(st.none(), words)
toleration = st.builds(
    Toleration, key=words, operator=st.sampled_from(["Exists", "Equal"]), value=maybe, effect=maybe
)
terms = st.builds(
    MarketTerms,
    node_selector=st.dictionaries(words, words, max_size=3),
    tolerations=st.lists(toleration, max_size=3).map(tuple),
)
pools = st.builds(
    Pool,
    name=st.text("abcdefgh0123456789", min_size=1, max_size=20),
    cores=st.integers(1, 256),
    memory_gb=st.floats(0.3, 4000),
    gpu_count=st.integers(0, 8),
    gpu_tflops=st.sampled_from([0.0, 65.0]),
    gpu_memory_gb=st.sampled_from([0.0, 16.0]),
    markets=st.fixed_dictionaries({Market.SPOT: terms}),
)


@given(pools)
def test_driver_outputs_are_a_dict_a_list_a_dict_and_strings(pool: Pool) -> None:
    decision = decide(
        laptop_question((TRAIN,), "100000", pools=(pool,), quotes=(quote(pool.name, "0.5", Market.SPOT),))
    )
    outputs = driver_outputs(decision, "runs/1/decisions/train-1.json")
    texts = {"cpu", "memory", "accelerator", "accelerator_count", "image", "decision_key"}
    assert set(outputs) == {"node_selector", "tolerations", "affinity"} | texts
    assert all(type(outputs[name]) is str for name in texts)
    assert (
        type(outputs["node_selector"]) is dict
        and type(outputs["tolerations"]) is list
        and outputs["affinity"] == {}
    )
    assert all(type(value) is str for value in outputs["node_selector"].values())
    assert all(type(value) is str for toleration in outputs["tolerations"] for value in toleration.values())
    assert QUANTITY.match(outputs["cpu"]) and QUANTITY.match(outputs["memory"]) and outputs["image"]
    assert (outputs["accelerator"], outputs["accelerator_count"]) in (("", ""), ("nvidia.com/gpu", "1"))
    assert json.loads(json.dumps(outputs)) == outputs


@given(pools)
def test_the_argo_patch_holds_what_the_driver_outputs_hold(pool: Pool) -> None:
    decision = decide(
        laptop_question((TRAIN,), "100000", pools=(pool,), quotes=(quote(pool.name, "0.5", Market.SPOT),))
    )
    outputs, patch = driver_outputs(decision, ""), json.loads(argo_patch(decision))
    (container,) = patch["containers"]
    requested = {"cpu": outputs["cpu"], "memory": outputs["memory"]}
    gpu = {outputs["accelerator"]: outputs["accelerator_count"]} if outputs["accelerator"] else {}
    assert container == {
        "name": "main",
        "image": outputs["image"],
        "resources": {"requests": requested | gpu, "limits": requested | gpu},
    }
    assert (
        patch.get("nodeSelector", {}) == outputs["node_selector"]
        and patch.get("tolerations", []) == outputs["tolerations"]
    )
    assert {} not in patch.values() and [] not in patch.values()


def test_a_gpu_is_requested_only_where_the_stage_uses_one() -> None:
    with_gpu, without = (
        place_stage(L4, Market.ON_DEMAND, TRAIN, IMAGES),
        place_stage(L4, Market.ON_DEMAND, EVALUATE, IMAGES),
    )
    assert (with_gpu.accelerator, with_gpu.accelerator_count) == ("nvidia.com/gpu", "1")
    assert (without.accelerator, without.accelerator_count) == ("", "")
    assert (with_gpu.cpu, with_gpu.memory) == ("8", "30500M")


def test_as_many_gpus_are_requested_as_the_stage_can_use() -> None:
    pool = Pool(name="gpu", cores=4, memory_gb=16, gpu="L4", gpu_count=4, gpu_memory_gb=24, gpu_tflops=121)
    requested = [
        place_stage(
            pool, Market.ON_DEMAND, Need(stage="s", gpu="must", max_gpus=most), IMAGES
        ).accelerator_count
        for most in (1, 2, 8)
    ]
    assert requested == ["1", "2", "4"]


def test_an_image_name_is_resolved_by_the_world_and_a_gpu_has_its_own_image() -> None:
    needs = {image: TRAIN.model_copy(update={"image": image}) for image in ("base", "train", OURS)}
    images = IMAGES | {"train-gpu": "registry.example.com/train-gpu:2"}
    placed = {
        (pool.name, name): place_stage(pool, Market.ON_DEMAND, need, images).image
        for pool in (CPU_1, L4)
        for name, need in needs.items()
    }
    assert placed == {
        ("cpu-1", "base"): IMAGES["base"],
        ("cpu-1", "train"): IMAGES["train"],
        ("cpu-1", OURS): OURS,
        ("gpu", "base"): IMAGES["base"],
        ("gpu", "train"): "registry.example.com/train-gpu:2",
        ("gpu", OURS): OURS,
    }


def test_the_question_holds_the_images() -> None:
    images = {"train": "registry.example.com/train:2"}
    need = TRAIN.model_copy(update={"image": "train"})
    assert driver_outputs(decide(laptop_question((need,), images=images)), "key")["image"] == images["train"]


def test_the_placement_has_the_terms_of_the_chosen_market() -> None:
    spot = MarketTerms(
        node_selector={"kind": "spot"}, tolerations=(Toleration(key="spot", effect="NoSchedule"),)
    )
    pool = CPU_1.model_copy(
        update={
            "markets": {Market.ON_DEMAND: MarketTerms(node_selector={"kind": "standard"}), Market.SPOT: spot}
        }
    )
    decision = decide(
        laptop_question(
            (TRAIN,), pools=(pool,), quotes=(quote("cpu-1", "0.04"), quote("cpu-1", "0.01", Market.SPOT))
        )
    )
    outputs = driver_outputs(decision, "key")
    assert outputs["node_selector"] == {"kind": "spot"}
    assert outputs["tolerations"] == [{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}]


def test_the_images_are_of_this_version() -> None:
    assert all(image.endswith(f":{version('shoestring')}") for image in IMAGES.values())


def test_a_refusal_cannot_be_placed() -> None:
    with pytest.raises(ValueError, match="chose nothing"):
        driver_outputs(decide(laptop_question(budget_usd="0")), "key")
    with pytest.raises(ValueError, match="chose nothing"):
        argo_patch(decide(laptop_question(budget_usd="0")))
