"""A real S3 server, SeaweedFS, on separate ports. It can be killed and restarted with its data."""

from __future__ import annotations

import io
import json
import random
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import urllib3
from minio import Minio

from shoestring.backends.s3.location import S3Location

BUCKET = "shoestring"
ADMIN = ("admin", "admins-secret")
DATA_KEYS = ("keys-of-ann", "secret-of-ann")
STAGE = ("stage", "stages-secret")
WEED = Path(sys.executable).parent / "weed"
# A stage may read, write and list, but not delete. SeaweedFS's own action "Write" would allow deletion, too.
STAGE_POLICY = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Action": ["s3:GetObject", "s3:PutObject"],
            "Resource": [f"arn:aws:s3:::{BUCKET}/*"],
        },
        {"Effect": "Allow", "Action": ["s3:ListBucket"], "Resource": [f"arn:aws:s3:::{BUCKET}"]},
    ],
}
READER = ("reader", "readers-secret")
READER_POLICY = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Action": ["s3:GetObject"], "Resource": [f"arn:aws:s3:::{BUCKET}/*"]},
        {"Effect": "Allow", "Action": ["s3:ListBucket"], "Resource": [f"arn:aws:s3:::{BUCKET}"]},
    ],
}
VISION = ("vision", "visions-secret")
_CLUSTER_PAGE = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text(encoding="utf-8")
# The policy that the docs show for one of several teams.
VISION_POLICY = json.loads(_CLUSTER_PAGE.partition("```json\n")[2].partition("```")[0])
IDENTITIES: dict[str, list[dict[str, Any]]] = {
    "identities": [
        {
            "name": "admin",
            "credentials": [{"accessKey": ADMIN[0], "secretKey": ADMIN[1]}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        },
        {
            "name": "stage",
            "credentials": [{"accessKey": STAGE[0], "secretKey": STAGE[1]}],
            "actions": [],
            "policyNames": ["stage"],
        },
        {
            "name": "reader",
            "credentials": [{"accessKey": READER[0], "secretKey": READER[1]}],
            "actions": [],
            "policyNames": ["reader"],
        },
        {
            "name": "vision",
            "credentials": [{"accessKey": VISION[0], "secretKey": VISION[1]}],
            "actions": [],
            "policyNames": ["vision"],
        },
    ],
    "policies": [
        {"name": "stage", "content": json.dumps(STAGE_POLICY)},
        {"name": "reader", "content": json.dumps(READER_POLICY)},
        {"name": "vision", "content": json.dumps(VISION_POLICY)},
    ],
}


def environment(identity: tuple[str, str]) -> dict[str, str]:
    return {"AWS_ACCESS_KEY_ID": identity[0], "AWS_SECRET_ACCESS_KEY": identity[1]}


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return probe.connect_ex(("127.0.0.1", port)) != 0


def _free_ports(count: int) -> list[int]:
    """Return ports that are free together with the port 10,000 above, which SeaweedFS uses for gRPC.

    Both are below the range of ephemeral ports, from which any client may take one at any moment.
    """
    found: list[int] = []
    while len(found) < count:
        port = random.SystemRandom().randrange(12_000, 22_000)
        if port not in found and _is_free(port) and _is_free(port + 10_000):
            found.append(port)
    return found


@dataclass
class S3Server:
    """A SeaweedFS server with a capacity of `volumes` x 16 MiB. `admin`: its administrator's keys.
    `certificate`: with its key, in one file, for another port with https.
    """

    folder: Path
    volumes: int = 16
    admin: tuple[str, str] = ADMIN
    certificate: Path | None = None
    ports: list[int] = field(default_factory=lambda: _free_ports(5))
    process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.ports[0]}"

    def location(self, prefix: str = "", bucket: str = BUCKET) -> S3Location:
        return S3Location(endpoint=self.endpoint, bucket=bucket, prefix=prefix, secure=False)

    def minio(self, identity: tuple[str, str] | None = None) -> Minio:
        pool = urllib3.PoolManager(retries=False)
        return Minio(
            self.endpoint, *(identity or self.admin), secure=False, region="us-east-1", http_client=pool
        )

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        keys = {"accessKey": self.admin[0], "secretKey": self.admin[1]}
        admin, *others = IDENTITIES["identities"]
        identities = IDENTITIES | {"identities": [admin | {"credentials": [keys]}, *others]}
        (self.folder / "s3.json").write_text(json.dumps(identities))
        s3, filer, volume, master, s3_https = self.ports
        pem = self.certificate
        # A new master elects itself at once; one that was killed waits for an answer to its
        # election.
        election = "200ms" if self.process else "10s"
        command = [
            *(
                WEED,
                "-logtostderr=true",
                "server",
                f"-dir={self.folder}",
                "-ip=127.0.0.1",
                "-ip.bind=127.0.0.1",
                "-master.telemetry=false",
            ),
            *(
                f"-master.port={master}",
                f"-master.electionTimeout={election}",
                "-master.volumeSizeLimitMB=16",
                f"-volume.port={volume}",
                f"-volume.max={self.volumes}",
            ),
            *("-filer", f"-filer.port={filer}"),
            *("-s3", f"-s3.port={s3}", f"-s3.config={self.folder}/s3.json"),
            *("-s3.port.iceberg=0", "-s3.port.lance=0"),
            *([f"-s3.port.https={s3_https}", f"-s3.cert.file={pem}", f"-s3.key.file={pem}"] if pem else []),
        ]
        with (self.folder / "weed.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._wait()

    def _wait(self) -> None:
        assert self.process
        until_s = time.monotonic() + 60
        while True:
            try:
                if not self.minio().bucket_exists(BUCKET):
                    self.minio().make_bucket(BUCKET)
                self.minio().put_object(BUCKET, "started", io.BytesIO(b"1"), 1)
                return
            except Exception:
                log = (self.folder / "weed.log").read_text()[-2000:]
                assert self.process.poll() is None and time.monotonic() < until_s, log
                time.sleep(0.05)

    def kill(self) -> None:
        """End the server by SIGKILL, so that it finishes no request."""
        assert self.process
        self.process.kill()
        self.process.wait()
        for port in self.ports:
            for left in (
                *Path("/tmp").glob(f"seaweedfs-*-{port}.sock"),
                *Path("/tmp").glob(f"seaweedfs-*-grpc-{port + 10_000}.sock"),
            ):
                left.unlink()


def start_server(folder: Path, attempts: int = 3, **settings: Any) -> S3Server:
    """Start a server. Try again on other ports where another process took one of them in the meantime."""
    for attempt in range(1, attempts + 1):
        server = S3Server(folder / str(attempt), **settings)
        try:
            server.start()
            return server
        except AssertionError:
            server.kill()
            if attempt == attempts:
                raise
    raise AssertionError("no attempt was allowed")
