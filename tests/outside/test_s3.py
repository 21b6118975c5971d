"""S3 when it is not as it should be: refused at the door, waited for when it is away; a lost answer is not an object too many."""

from __future__ import annotations

import io
import os
import resource
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from pydantic import ValidationError
from s3_server import ADMIN, BUCKET, STAGE, S3Server, environment
from small_s3 import SmallS3, small_s3
from store_places import FORKS, Place

from shoestring.errors import NotInStore, StoreError, StoreFull, UsageError
from shoestring.local import FolderStore, WallClock
from shoestring.outside.s3 import PROVEN_FOR, S3Place, S3Store, open_s3_store
from shoestring.outside.s3_wire import MOST_BYTES
from shoestring.spending.ledger import Ledger
from shoestring.spending.verify import verify


class QuickClock(WallClock):
    """Sleeps are over at once, and count."""

    def __init__(self) -> None:
        self.slept_s = 0.0
        self.meanwhile: Callable[[], None] = lambda: None

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.slept_s

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.slept_s)

    def sleep(self, seconds: float) -> None:
        self.slept_s += seconds
        self.meanwhile()


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment(ADMIN).items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def small() -> Iterator[SmallS3]:
    with small_s3() as server:
        yield server


@pytest.fixture
def clock() -> QuickClock:
    return QuickClock()


@pytest.fixture
def store(small: SmallS3, tmp_path: Path, clock: QuickClock) -> S3Store:
    found = open_s3_store(small.place(), tmp_path / "scratch", clock)
    small.asked.clear()
    return found


def test_a_server_that_ignores_the_condition_is_refused(tmp_path: Path) -> None:
    with small_s3("ignored") as small:
        for _ in range(2):
            with pytest.raises(StoreError, match=r"let 4 of 4 writers write one new object.*two runs could spend the same dollar"):
                open_s3_store(small.place(), tmp_path, WallClock())


def test_a_server_that_looks_first_and_writes_later_is_refused(tmp_path: Path) -> None:
    with small_s3("looked at") as small, pytest.raises(StoreError, match=r"let \d of 4 writers"):
        open_s3_store(small.place(), tmp_path, WallClock())


def test_a_server_is_put_to_the_proof_once_a_day(small: SmallS3, tmp_path: Path, clock: QuickClock) -> None:
    def requests() -> int:
        small.asked.clear()
        open_s3_store(small.place(), tmp_path / "scratch", clock)
        return len(small.asked)

    assert (requests(), requests()) == (6, 1)
    clock.sleep(PROVEN_FOR.total_seconds())
    assert (requests(), requests()) == (6, 1)
    # A bucket that came here from another server.
    proof = small.objects["learned/probes/if-none-match.json"]
    small.objects["learned/probes/if-none-match.json"] = proof.replace(b"127.0.0.1", b"10.0.0.1")
    assert requests() == 6


def test_without_credentials_nothing_is_asked(small: SmallS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(UsageError, match=r"AWS_SECRET_ACCESS_KEY is not set.*shoestring-s3"):
        open_s3_store(small.place(), tmp_path, WallClock())
    assert small.asked == []


@pytest.mark.parametrize("identity", [("admin", "wrong"), ("nobody", "wrong")])
def test_wrong_credentials_are_said_at_once(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, identity: tuple[str, str]
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", identity[0])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", identity[1])
    with pytest.raises(UsageError, match=rf"does not know the credentials of access key '{identity[0]}'.*correct AWS_ACCESS_KEY_ID"):
        open_s3_store(s3_server.place(), tmp_path, WallClock())


def test_a_missing_bucket_is_not_made_but_named_with_the_command_that_makes_it(s3_server: S3Server, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no bucket elsewhere.*`aws --endpoint-url http://127.0.0.1:\d+ s3 mb s3://elsewhere`"):
        open_s3_store(s3_server.place(bucket="elsewhere"), tmp_path, WallClock())
    assert not s3_server.minio().bucket_exists("elsewhere")


def test_what_the_credentials_may_not_do_is_named(s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment(STAGE).items():
        monkeypatch.setenv(name, value)
    s3_server.minio().make_bucket("not-theirs")
    with pytest.raises(StoreError, match=r"GET not-theirs/learned/\S+ at http://\S+: access key 'stage' may not \(403 AccessDenied"):
        open_s3_store(s3_server.place(bucket="not-theirs"), tmp_path, WallClock())


def test_a_server_that_does_not_come_back_is_named_with_how_long_it_was_waited_for(tmp_path: Path, clock: QuickClock) -> None:
    with small_s3() as small:
        place = small.place()
    with pytest.raises(StoreError, match=rf"at http://{place.endpoint}: no answer after \d+ tries in 1[12]\d s.*Connection refused"):
        open_s3_store(place, tmp_path, clock)
    assert clock.slept_s < 120


def test_a_host_that_nobody_knows_is_not_waited_for_as_long(tmp_path: Path, clock: QuickClock) -> None:
    with pytest.raises(StoreError, match=r"nowhere\.invalid.* tries in 1\d s"):
        open_s3_store(S3Place(endpoint="nowhere.invalid", bucket="shoestring"), tmp_path, clock)


def test_https_to_a_server_without_is_said_so(small: SmallS3, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is `secure` right"):
        open_s3_store(small.place().model_copy(update={"secure": True}), tmp_path, WallClock())


@pytest.mark.parametrize(
    "wrong", [{"endpoint": "http://here:9000"}, {"bucket": "No"}, {"prefix": "/a"}, {"prefix": "a/../b"}, {"region": ""}]
)
def test_what_cannot_be_a_place_is_refused_at_the_door(wrong: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        S3Place(**{"endpoint": "here:9000", "bucket": "shoestring"} | wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ["", "/a", "a//b", "a/", "../a", "a/./b", "a\\b", "a\nb"])
def test_a_key_that_would_leave_its_folder_is_refused(store: S3Store, key: str) -> None:
    with pytest.raises(StoreError, match="cannot name an object"):
        store.put(key, b"")
    with pytest.raises(StoreError, match="cannot name an object"):
        store.fetch(key)


@pytest.mark.parametrize("mishap", ["PUT lost", "PUT late", "PUT unheard", "PUT 503", "PUT 409", "PUT 500"])
def test_a_write_whose_answer_was_lost_is_still_ours_and_there_once(store: S3Store, small: SmallS3, mishap: str) -> None:
    small.mishaps = [mishap]
    assert store.put("ledger/run/00000001.json", b"ours", if_absent=True)
    assert not store.put("ledger/run/00000001.json", b"theirs", if_absent=True)
    assert small.objects["ledger/run/00000001.json"] == b"ours"


def test_a_write_whose_answer_was_lost_is_not_ours_when_somebody_else_had_written(store: S3Store, small: SmallS3, tmp_path: Path) -> None:
    small.objects["ledger/run/00000001.json"] = b"theirs"
    for ours in (b"ours", b"yours!"):
        small.mishaps = ["PUT lost"]
        (tmp_path / "ours").write_bytes(ours)
        assert not store.put("ledger/run/00000001.json", ours, if_absent=True)
        small.mishaps = ["PUT unheard"]
        assert not store.put("ledger/run/00000001.json", tmp_path / "ours", if_absent=True)


def test_equal_bytes_of_somebody_else_are_theirs_when_no_answer_was_lost(store: S3Store, small: SmallS3) -> None:
    small.objects["learned/it"] = b"same"
    assert not store.put("learned/it", b"same", if_absent=True)


def test_a_ledger_whose_answers_are_lost_again_and_again_has_every_entry_once(
    store: S3Store, small: SmallS3, clock: QuickClock, tmp_path: Path
) -> None:
    ledger = Ledger(store, clock)
    ledger.open("run", Decimal(1))
    for number in range(20):
        small.mishaps = ["PUT lost", "PUT unheard"] if number % 2 else ["PUT unheard", "PUT lost", "PUT lost"]
        ledger.reserve("run", f"work-{number}", "work", number, Decimal("0.01"))
        small.mishaps = []
    state = Ledger(store, clock).state("run")
    assert (state.entries, state.held_usd) == (21, Decimal("0.20"))
    there = FolderStore(tmp_path / "there")
    for key, data in small.objects.items():
        there.put(key, data)
    assert verify(there, {"run": (state.head_hash,)}).entries == 21 + 2


def test_a_download_that_is_cut_short_is_made_again(store: S3Store, small: SmallS3, tmp_path: Path) -> None:
    small.objects["blobs/it"] = b"x" * 3_000_000
    small.mishaps = ["GET cut", "GET unheard", "GET 503"]
    assert store.fetch("blobs/it").read_bytes() == b"x" * 3_000_000
    assert [path.name for path in (tmp_path / "scratch/blobs").iterdir()] == ["it"]


def test_what_is_named_by_its_content_is_fetched_once_and_a_miss_is_asked_again(store: S3Store, small: SmallS3) -> None:
    with pytest.raises(NotInStore):
        store.fetch("blobs/it")
    small.objects |= {"blobs/it": b"x", "ledger/run/head.json": b"y"}
    for _ in range(3):
        store.fetch("blobs/it")
        store.fetch("ledger/run/head.json")
    assert small.asked == ["GET blobs/it", "GET blobs/it", *["GET ledger/run/head.json"] * 3]


def test_a_file_that_is_there_already_is_not_sent(store: S3Store, small: SmallS3, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * 5_000_000)
    assert store.put("blobs/it", tmp_path / "large", if_absent=True)
    assert not store.put("blobs/it", tmp_path / "large", if_absent=True)
    assert small.asked == ["HEAD blobs/it", "PUT blobs/it", "HEAD blobs/it"]


def test_a_server_that_is_away_for_a_minute_is_waited_for_and_nothing_is_lost(store: S3Store, small: SmallS3, clock: QuickClock) -> None:
    small.mishaps = ["PUT 503"] * 10_000

    def come_back_after_a_minute() -> None:
        if clock.slept_s > 60:
            small.mishaps = []

    clock.meanwhile = come_back_after_a_minute
    assert store.put("runs/r/curve.json", b"points")
    assert small.objects["runs/r/curve.json"] == b"points"
    assert 60 < clock.slept_s < 70


def test_a_server_that_is_full_says_so_and_nothing_of_it_is_there(store: S3Store, small: SmallS3) -> None:
    small.mishaps = ["PUT 507"]
    with pytest.raises(StoreFull, match=r'PUT shoestring/blobs/it at http://\S+: no space left \(507 SomePut of "507"\)'):
        store.put("blobs/it", b"x")
    assert "blobs/it" not in small.objects


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def put_sparse(place: S3Place, folder: Path) -> None:
    os.environ |= environment(ADMIN)
    store = open_s3_store(place, folder / "scratch", WallClock())
    before = peak_bytes()
    store.put("blobs/large", folder / "large", if_absent=True)
    assert peak_bytes() - before < 32_000_000


def test_a_large_file_is_streamed(small: SmallS3, tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(400_000_000)
    process = FORKS.Process(target=put_sparse, args=(small.place(), tmp_path))
    process.start()
    process.join()
    assert process.exitcode == 0


def test_a_file_that_s3_would_not_take_is_refused_before_it_is_sent(store: S3Store, small: SmallS3, tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(StoreError, match=f"has {MOST_BYTES + 1} bytes, and S3 takes {MOST_BYTES} in one piece"):
        store.put("blobs/it", tmp_path / "large")
    assert small.asked == []


def test_more_keys_than_a_server_lists_at_once_are_listed_and_folders_of_a_console_are_not(s3_server: S3Server, s3_place: Place) -> None:
    store = s3_place.open()
    assert s3_place.s3
    s3_server.minio().put_object(BUCKET, f"{s3_place.s3.root}runs/folder/", io.BytesIO(b""), 0)
    keys = [f"runs/{number:04d}" for number in range(1_010)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda key: store.put(key, b""), keys))
    assert list(store.list("runs/")) == keys
