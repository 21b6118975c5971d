"""Every key of the store, a function or a prefix each; docs/data.md lists all. An attempt is STAGE-NUMBER."""

from __future__ import annotations

from shoestring.core.errors import StoreError

STORE_VERSION = "store.json"
BLOBS, CACHE, DATASETS = "blobs/", "cache/", "datasets/"
RUNS, LEDGER, PENDING, COMMITMENTS = "runs/", "ledger/", "pending/", "commitments/"
LEARNED_RECEIPTS = "learned/receipts/"
FINGERPRINTS = "learned/fingerprints/"
STOCK_OUTS = "learned/stock-outs/"
ROLLBACKS = "learned/policies/"
LOCAL_PROBE, FETCH_PROBE = "learned/probes/local", "learned/probes/fetch"
LAUNCHER_PROBE, REAPER_PROBE = "learned/probes/launcher", "learned/probes/reaper"
LEASE_PROBE, CLEAN_UP_PROBE = "learned/probes/lease", "learned/probes/clean-up"
CONDITIONAL_WRITE_PROOF = "learned/probes/if-none-match.json"
LEDGER_EXPORT = "ledger/export.json"
IMMUTABLE = (BLOBS, DATASETS)
"""Prefixes of objects that are named by their content and never change."""

MAX_PART_BYTES, MAX_KEY_BYTES = 200, 900
"""Of the 255 bytes of a file's name (34 for a temporary file) and the 1,024 of an S3 key (with a prefix)."""


def is_key(key: str) -> bool:
    """Return whether every store can hold an object under this key. Some S3 servers read `\\` as `/`."""
    if "\\" in key or not key.isprintable() or len(key.encode()) > MAX_KEY_BYTES:
        return False
    parts = key.split("/")
    return all(part not in ("", ".", "..") and len(part.encode()) <= MAX_PART_BYTES for part in parts)


def check_key(key: str) -> str:
    """Return `key` if every store can hold an object under it; all refuse the same. Raises StoreError."""
    if not is_key(key):
        raise StoreError(
            f"{key[:MAX_PART_BYTES]!r} cannot name an object: parts between single slashes, each of at most "
            f"{MAX_PART_BYTES} bytes and together {MAX_KEY_BYTES}, not '.' or '..', without backslashes or "
            "control characters"
        )
    return key


def check_prefix(prefix: str) -> str:
    """Return `prefix` if it can begin a key, the last part of which may be incomplete. Raises StoreError."""
    folders, slash, last = prefix.rpartition("/")
    if slash:
        check_key(folders)
    if last not in (".", ".."):
        check_key(last or "all")
    return prefix


def blob(sha256: str) -> str:
    return f"{BLOBS}{sha256}"


def cache_entry(cache_key: str) -> str:
    return f"{CACHE}{cache_key}.json"


def baseline(key: str) -> str:
    """A fitted baseline, which all evaluations on one data set share."""
    return f"{CACHE}baselines/{key}.json"


def cached_page(key: str) -> str:
    """A data page, which all runs of one recipe on the same data share."""
    return f"{CACHE}pages/{key}.json"


def increments(key: str, version: str = "") -> str:
    """The prefix of the versions of a data set, or one of them."""
    return f"{CACHE}increments/{key}/{version and f'{version}.json'}"


def sources(dataset: str) -> str:
    return f"{CACHE}sources/{dataset.removeprefix(DATASETS)}"


def leases(cache_key: str = "") -> str:
    """The prefix of the leases on one result, or of all leases."""
    return f"{CACHE}leases/{cache_key and f'{cache_key}/'}"


def lease(cache_key: str, fence: int) -> str:
    return f"{leases(cache_key)}{fence:06d}.json"


def manifest(name: str, version: str) -> str:
    return f"{DATASETS}{name}/{version}.json"


def run(run_id: str) -> str:
    return f"{RUNS}{run_id}/"


def run_record(run_id: str) -> str:
    return f"{RUNS}{run_id}/run.json"


def starts(run_id: str) -> str:
    return f"{RUNS}{run_id}/starts/"


def start(run_id: str, number: int) -> str:
    return f"{starts(run_id)}{number}.json"


def engine_end(run_id: str, start_number: int) -> str:
    return f"{RUNS}{run_id}/ends/{start_number}.json"


def refusal(run_id: str) -> str:
    return f"{RUNS}{run_id}/refusal.json"


def step_error(run_id: str) -> str:
    return f"{RUNS}{run_id}/error.json"


def profile(run_id: str) -> str:
    return f"{RUNS}{run_id}/profile.json"


def data_page(run_id: str) -> str:
    return f"{RUNS}{run_id}/data.json"


def approval_request(run_id: str) -> str:
    return f"{RUNS}{run_id}/approval-request.json"


def decisions(run_id: str, stage: str = "") -> str:
    """The prefix of a run's decisions, or of one stage's."""
    return f"{RUNS}{run_id}/decisions/{stage and f'{stage}-'}"


def decision(run_id: str, attempt: object) -> str:
    return f"{RUNS}{run_id}/decisions/{attempt}.json"


def receipts(run_id: str, stage: str = "") -> str:
    return f"{RUNS}{run_id}/receipts/{stage and f'{stage}-'}"


def receipt(run_id: str, attempt: object) -> str:
    return f"{RUNS}{run_id}/receipts/{attempt}.json"


def heartbeats(run_id: str) -> str:
    return f"{RUNS}{run_id}/heartbeats/"


def heartbeat(run_id: str, attempt: object) -> str:
    return f"{RUNS}{run_id}/heartbeats/{attempt}.json"


def overheads(run_id: str, start_number: int) -> str:
    """The prefix of the overhead records of one start of a run."""
    return f"{RUNS}{run_id}/overhead/{start_number}/"


def overhead(run_id: str, start_number: int, step: str, pod_uid: str) -> str:
    return f"{overheads(run_id, start_number)}{step}.{pod_uid}.json"


def migration_check(run_id: str, attempt: object) -> str:
    """The last check whether a running attempt should migrate."""
    return f"{RUNS}{run_id}/migration-checks/{attempt}.json"


def checkpoints(run_id: str) -> str:
    return f"{RUNS}{run_id}/checkpoints"


def checkpoint_pointer(run_id: str, stage: str = "train") -> str:
    return f"{RUNS}{run_id}/checkpoints/{stage}.json"


def curve(run_id: str) -> str:
    return f"{RUNS}{run_id}/curve.json"


def result_record(run_id: str, name: str) -> str:
    """A record of the run that is part of a stage's result: its model, curve, evaluation or predictions."""
    return f"{RUNS}{run_id}/{name}"


def model(run_id: str) -> str:
    return f"{RUNS}{run_id}/model.json"


def evaluation(run_id: str) -> str:
    return f"{RUNS}{run_id}/evaluation.json"


def summary(run_id: str) -> str:
    return f"{RUNS}{run_id}/summary.json"


def report(run_id: str) -> str:
    return f"{RUNS}{run_id}/report.html"


def account(name: str) -> str:
    """The prefix of an account's chain."""
    return f"{LEDGER}{name}/"


def ledger_entry(account_name: str, number: int) -> str:
    return f"{LEDGER}{account_name}/{number:08d}.json"


def ledger_head(account_name: str) -> str:
    return f"{LEDGER}{account_name}/head.json"


def ledger_checkpoint(account_name: str) -> str:
    return f"{LEDGER}{account_name}/checkpoint.json"


def approvals(run_id: str, sha256: str = "") -> str:
    return f"{LEDGER}{run_id}/approvals/{sha256 and f'{sha256}.json'}"


def pending_entries(account_name: str, number: int) -> str:
    return f"{PENDING}{account_name}/{number:08d}/"


def test_openings(split_sha256: str) -> str:
    """The prefix of the evaluations on one sealed test split."""
    return f"test-openings/{split_sha256}/"


def test_opening(split_sha256: str, number: int) -> str:
    return f"{test_openings(split_sha256)}{number:09d}.json"


def test_opening_of_run(split_sha256: str, run_id: str) -> str:
    return f"{test_openings(split_sha256)}runs/{run_id}.json"


def job(job_id: str) -> str:
    return f"jobs/{job_id}.json"


def commitments(name: str, month: str) -> str:
    return f"{COMMITMENTS}{name}/{month}/"


def commitment_claim(name: str, month: str, number: int) -> str:
    return f"{commitments(name, month)}{number:09d}.json"


def learned_receipt(stage: str, bucket: str, slot: int) -> str:
    return f"{LEARNED_RECEIPTS}{stage}/{bucket}-{slot:02d}.json"


def stock_out(node_pool: str, market: str) -> str:
    return f"{STOCK_OUTS}{node_pool}-{market}.json"


def engine_samples(engine: str, name: str = "") -> str:
    return f"learned/engines/{engine}/{name}"


def schemas(name: str, version: str = "") -> str:
    return f"learned/schemas/{name}/{version and f'{version}.json'}"


def rollback(policy_sha256: str) -> str:
    return f"{ROLLBACKS}{policy_sha256}.json"


def probe(volume: str) -> str:
    return f"learned/probes/{volume}.json"


def conditional_write_probe(name: str) -> str:
    return f"learned/probes/if-none-match/{name}"


def fingerprint(sha256: str) -> str:
    return f"{FINGERPRINTS}{sha256}.json"


def image_libraries(image_sha256: str, stage: str) -> str:
    return f"learned/images/{image_sha256}/{stage}.json"


def world_file(file: str) -> str:
    """The last good copy of one of a cluster's world files, such as `pools.yaml` or `lists/FILE`."""
    return f"learned/world/{file}"


def transferred(month: str, route: str = "") -> str:
    """The prefix under which a month's transfers over a route are counted."""
    return f"learned/transferred/{month}/{route and f'{route}/'}"
