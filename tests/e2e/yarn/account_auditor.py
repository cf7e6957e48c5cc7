"""Watches a node's account from outside: what YARN may hand out and what pods are shown."""

import json
import threading
import time
from dataclasses import dataclass
from typing import Any, Self

from tests.e2e.controlplane import ControlPlane
from tests.e2e.yarn.real_yarn import RealYarn

ORIGIN = "node.koordinator.sh/originExtendedAllocatable"
CPU, MEMORY = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"
_SUFFIXES = {"k": 10**3, "M": 10**6, "G": 10**9, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}


@dataclass(frozen=True)
class AccountSample:
    """Milli-CPU and bytes: what the manager calculated, what pods see, what YARN may hand out."""

    at_s: float
    origin: tuple[int, int]
    shown: tuple[int, int]
    limit: tuple[int, int]

    @property
    def is_given_twice(self) -> bool:
        """Whether pods are shown what YARN may hand out."""
        terms = zip(self.shown, self.limit, self.origin, strict=True)
        return any(shown and shown + limit > has for shown, limit, has in terms)


def amount(text: str) -> int:
    """Return a whole quantity."""
    suffix = text.lstrip("0123456789")
    return int(text.removesuffix(suffix)) * (_SUFFIXES[suffix] if suffix else 1)


class AccountAuditor:
    """Takes samples as fast as it can in a thread; ``with`` starts and stops it."""

    def __init__(self, controlplane: ControlPlane, yarn: RealYarn, node: str) -> None:
        self.samples: list[AccountSample] = []
        self._api, self._yarn = controlplane.api, yarn
        self._path = f"/api/v1/nodes/{node}"
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        """Begin to take samples."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Take no more samples."""
        self._stopping.set()
        self._thread.join(30)

    def violations(self) -> list[AccountSample]:
        """Return the samples in which something was promised to both sides."""
        return [each for each in self.samples if each.is_given_twice]

    def _run(self) -> None:
        while not self._stopping.wait(0.02):
            try:
                before = self._node()
                limit = self._yarn.limit()
                after = self._node()
            except Exception:  # noqa: BLE001, S112 -- a server that is killed on purpose
                continue
            if limit is None or before != after:
                continue  # not one moment
            origin, shown = after
            yarn = (limit.vcores * 1000, limit.memory_mb << 20)
            self.samples.append(AccountSample(time.monotonic(), origin, shown, yarn))

    def _node(self) -> tuple[tuple[int, int], tuple[int, int]]:
        node = self._api.request("GET", self._path)
        noted = node["metadata"].get("annotations", {}).get(ORIGIN)
        shown = node["status"]["allocatable"]
        origin = json.loads(noted)["resources"] if noted else shown
        return _amounts(origin), _amounts(shown)


def _amounts(resources: dict[str, Any]) -> tuple[int, int]:
    return amount(resources.get(CPU, "0")), amount(resources.get(MEMORY, "0"))
