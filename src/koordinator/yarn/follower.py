"""Client of one YARN cluster, which reads its nodes and sends limits.

A separate thread calls ``round``, so that a slow ResourceManager does not delay other clusters; the
operator's loop only takes news and adds requests.  A round sends limits before it reads nodes, so
the read state is never older than the sent limits.
"""

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import field

from koordinator.foundation.clock import Clock
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.hadoop.amounts import YarnResource
from koordinator.hadoop.port import (
    ResourceManager,
    UnknownYarnNodeError,
    YarnError,
    YarnLimit,
    YarnNode,
    YarnRefusedError,
)

log = logging.getLogger(__name__)

#: Time for which a sent limit without an answer may still take effect.
UNCONFIRMED_LIMIT_S = 30.0
#: Problem of a cluster while another replica leads.
STANDS_BY = "another operator leads"
#: A limit becomes visible shortly after the answer: interval of the checks, and their total time.
READ_BACK_S = 0.02
READ_BACK_WITHIN_S = 5.0
_READ_SINGLY = 16  # NodeManagers read one by one; above it all are read together
_NEVER_S = float("-inf")


@dataclass(frozen=True, slots=True)
class YarnChanges:
    """Changes since the last call: nodes by id, None for a removed node.

    ``settled`` are nodes with a completed request, ``failed`` nodes whose request may still take
    effect.  ``refused`` has the errors of requests.
    """

    changed: Mapping[str, YarnNode | None] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    settled: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()
    problem: str = ""  # current read error
    is_known: bool = False  # the cluster has been read at least once


@dataclass(slots=True)
class _Findings:
    changed: dict[str, YarnNode | None] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    settled: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)

    def add(self, later: "_Findings") -> None:
        self.changed |= later.changed
        self.refused |= later.refused
        self.settled |= later.settled
        self.failed |= later.failed

    def __bool__(self) -> bool:
        return bool(self.changed or self.refused or self.settled or self.failed)


class YarnFollower:
    """Follower of one cluster; the thread that runs ``round`` calls ``connect``."""

    def __init__(
        self,
        cluster_id: str,
        connect: Callable[[], ResourceManager],
        clock: Clock,
        *,
        interval_s: float = 1.0,
        may_write: Callable[[], bool] = lambda: True,
    ) -> None:
        self.cluster_id = cluster_id
        self._connect, self._clock = connect, clock
        self._interval_s, self._may_write = interval_s, may_write
        self._manager: ResourceManager | None = None
        self._nodes: dict[str, YarnNode] = {}
        self._read_s = _NEVER_S
        self._awaited: dict[str, tuple[YarnResource, float]] = {}  # sent limit, deadline to show
        self._lock = threading.Lock()
        self._has_work = threading.Event()
        self._requests: dict[str, YarnLimit] = {}
        self._findings = _Findings()
        self._problem, self._is_known, self._has_changes = "", False, False

    # -- called by the loop ------------------------------------------------------------------

    def request(self, limit: YarnLimit) -> None:
        """Queue a limit to send; the news report its outcome."""
        with self._lock:
            self._requests[limit.node_id] = limit
        self._has_work.set()

    def take_changes(self) -> YarnChanges | None:
        """Return the changes since the last call; None without any."""
        with self._lock:
            if not self._has_changes:
                return None
            findings, self._findings = self._findings, _Findings()
            self._has_changes = False
            return YarnChanges(
                findings.changed,
                findings.refused,
                frozenset(findings.settled),
                frozenset(findings.failed),
                self._problem,
                self._is_known,
            )

    # -- called by the thread ----------------------------------------------------------------

    def run(self, stopping: threading.Event) -> None:
        """Run rounds until ``stopping`` is set."""
        while not stopping.is_set():
            try:
                self.round()
            except Exception:
                log.exception("round failed", extra={"cluster": self.cluster_id})
            self._has_work.wait(READ_BACK_S if self._awaited else self._interval_s)
            self._has_work.clear()
        if self._manager is not None:
            self._manager.close()

    def round(self) -> None:
        """Send queued limits, check their effect, and read the nodes if that is due."""
        with self._lock:
            requests, self._requests = self._requests, {}
        if not self._may_write():
            self._stand_by(requests)
            return
        findings, problem = _Findings(), ""
        try:
            problem = self._exchange(requests, findings)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            raise
        finally:
            self._publish(requests, findings, problem)

    def _exchange(self, requests: Mapping[str, YarnLimit], findings: _Findings) -> str:
        """Send, read back, and read; return the read error."""
        if self._manager is None:
            self._manager = self._connect()
        must_read = self._send_all(self._manager, requests, findings)
        must_read |= self._clock.now_s() - self._read_s >= self._interval_s
        read = set() if must_read else self._read_back(self._manager, findings.changed)
        must_read |= not read.issuperset(self._awaited)
        problem = self._problem
        if must_read:
            problem = self._read(self._manager, findings.changed)
            read = set(self._awaited) if not problem else read
        self._compare(findings, read)
        return problem

    def _publish(
        self, requests: Mapping[str, YarnLimit], findings: _Findings, problem: str
    ) -> None:
        """Add to the news; requests with an unknown outcome count as failed."""
        findings.failed |= requests.keys() - findings.settled - self._awaited.keys()
        with self._lock:
            is_news = bool(findings) or problem != self._problem
            if not problem and self._read_s > _NEVER_S and not self._is_known:
                self._is_known = is_news = True
            self._findings.add(findings)
            self._problem = problem
            self._has_changes |= is_news

    def _stand_by(self, requests: Mapping[str, YarnLimit]) -> None:
        """Discard requests while another replica leads."""
        self._read_s = _NEVER_S
        with self._lock:
            self._findings.settled |= requests.keys()
            self._findings.failed |= self._awaited.keys()
            self._awaited.clear()
            self._has_changes |= bool(requests) or self._problem != STANDS_BY
            self._problem = STANDS_BY

    def _send_all(
        self, manager: ResourceManager, requests: Mapping[str, YarnLimit], findings: _Findings
    ) -> bool:
        """Send limits; return whether all nodes must be read to find their effect.

        Stops at a connection error; the remaining limits are not sent.
        """
        must_read = is_lost = False
        for limit in requests.values():
            node_id = limit.node_id
            if is_lost or not self._may_write():
                findings.settled.add(node_id)
                continue
            try:
                manager.set_limit(limit)
            except YarnRefusedError as error:
                findings.refused[node_id] = str(error)
                findings.settled.add(node_id)
                must_read |= isinstance(error, UnknownYarnNodeError)
                continue
            except YarnError as error:
                findings.refused[node_id] = str(error)
                findings.failed.add(node_id)
                must_read = is_lost = True
                continue
            except Exception as error:  # must not affect the other NodeManagers
                log.exception("limit not sent", extra={"node_manager": node_id})
                findings.refused[node_id] = f"{type(error).__name__}: {error}"
                findings.failed.add(node_id)
                continue
            self._awaited[node_id] = limit.resource, self._clock.now_s() + READ_BACK_WITHIN_S
        return must_read

    def _read_back(self, manager: ResourceManager, changed: dict[str, YarnNode | None]) -> set[str]:
        """Read the nodes with sent limits one by one, if they are few; return the read ones.

        The answer to a change is not reliable: it may have the requested or the previous limit.
        """
        read: set[str] = set()
        if len(self._awaited) > _READ_SINGLY:
            return read
        for node_id in self._awaited:
            try:
                node = manager.node(node_id)
            except YarnError:
                return read
            if node is None:
                return read
            if self._nodes.get(node_id) != node:
                self._nodes[node_id] = changed[node_id] = node
            read.add(node_id)
        return read

    def _compare(self, findings: _Findings, read: Collection[str]) -> None:
        """Settle requests whose limit is visible, and fail requests after their deadline."""
        now_s = self._clock.now_s()
        for node_id, (wanted, until_s) in tuple(self._awaited.items()):
            known = self._nodes.get(node_id)
            if node_id not in read or known is None or known.limit != wanted:
                if now_s < until_s:
                    continue
                has = _text(known.limit) if known is not None else "no such NodeManager"
                findings.refused[node_id] = f"requested {_text(wanted)}, got {has}"
                findings.failed.add(node_id)
            else:
                findings.settled.add(node_id)
            del self._awaited[node_id]

    def _read(self, manager: ResourceManager, changed: dict[str, YarnNode | None]) -> str:
        """Read all nodes; return the error if that fails."""
        self._read_s = self._clock.now_s()
        try:
            reported = manager.nodes()
        except YarnError as error:
            if str(error) != self._problem:
                extra = {"cluster": self.cluster_id, "error": str(error)}
                log.warning("cluster not readable", extra=extra)
            return str(error)
        nodes = {node.node_id: node for node in reported}
        known = self._nodes
        changed |= {i: node for i, node in nodes.items() if known.get(i) != node}
        changed |= dict.fromkeys(known.keys() - nodes.keys())
        self._nodes = nodes
        return ""


def _text(resource: YarnResource) -> str:
    return f"{resource.vcores} vcores, {resource.memory_mb} MB"
