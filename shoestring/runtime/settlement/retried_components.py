"""The pod of an external component that its engine creates again after the run has ended, as Kubeflow's Retry
does. It has no code of Shoestring that could begin the run's next start, so the reaper does it.
"""

from __future__ import annotations

from dataclasses import replace

from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.errors import BudgetTooSmall, Refused, StageFailed
from shoestring.core.receipt import Receipt
from shoestring.core.types import StageOutcome
from shoestring.data.run_records import read_record
from shoestring.routing.decision import Decision
from shoestring.runtime.admission.retried_start import begin_retry, continue_text
from shoestring.runtime.records.run_setup import has_ended
from shoestring.runtime.route_step.external_components import announce_pod
from shoestring.runtime.route_step.second_pod import admit_second_pod
from shoestring.runtime.settlement.running_pods import UnpaidPod


def why_unpaid(world: World, unpaid: UnpaidPod) -> str:
    """Return why a pod that no attempt pays for must end; empty: it has an attempt of its own now, in the
    next start of its run, by the recorded decision of the first one.
    """
    if not is_retried(world, unpaid):
        return unpaid.reason
    own, run = replace(world, pod=unpaid.pod.ref), unpaid.run
    key = store_layout.decision(run.run_id, unpaid.name)
    first = read_record(world.store, key, Decision)
    try:
        run = begin_retry(own, run)
        admitted = admit_second_pod(own, run, first, key, unpaid.pod.lifetime.started_at)
    except BudgetTooSmall as error:
        return f"{error.reasons}; {continue_text(run)}"
    except (Refused, StageFailed) as error:
        return str(error)
    if isinstance(admitted, StageOutcome):
        return unpaid.reason
    announce_pod(own, admitted[0], unpaid.labels)
    return ""


def is_retried(world: World, unpaid: UnpaidPod) -> bool:
    """Return whether a pod was created after the attempt that it would belong to, in a run that has ended."""
    key = store_layout.receipt(unpaid.run.run_id, unpaid.name)
    if not has_ended(world, unpaid.run) or not any(world.store.list(key)):
        return False
    return unpaid.pod.since > read_record(world.store, key, Receipt).finished_at
