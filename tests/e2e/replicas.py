"""Several ``koord scheduler`` with leader election, and the audit log of the API server."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from tests.e2e.controlplane import ApiError, ControlPlane
from tests.e2e.controlplane.audit import BindRequest
from tests.e2e.controlplane.endpoint import Endpoint
from tests.e2e.koord_process import KOORD
from tests.e2e.scheduler_process import SchedulerProcess
from tests.e2e.waiting import eventually
from tests.e2e.witness import pods

#: Short enough to be waited for, long enough for a busy machine.
LEASE_S, RENEW_S, RETRY_S = 5.0, 3.5, 0.5
NOTICED_S = 1.2 * RETRY_S + 0.5  # by the longest retry, and the longest pause of the loop

_LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"
_MASTER = 'leader_election_master_status{name="kube-scheduler"}'


class Replica(SchedulerProcess):
    """A candidate; to the API server it is a user of its own unless it has a kubeconfig.

    ``binds_per_s`` keeps a machine from being done before the test has begun; 0 is unlimited.
    """

    def __init__(
        self,
        controlplane: ControlPlane,
        user: str,
        *,
        binds_per_s: int = 0,
        profile: Mapping[str, Any] | None = None,
        kubeconfig: Path | None = None,
        program: Sequence[str] = (str(KOORD),),
    ) -> None:
        self.user = user
        election = {
            "leaderElect": True,
            "leaseDuration": f"{LEASE_S}s",
            "renewDeadline": f"{RENEW_S}s",
            "retryPeriod": f"{RETRY_S}s",
        }
        configuration: dict[str, Any] = {
            "leaderElection": election,
            "clientConnection": {"qps": binds_per_s, "burst": max(binds_per_s // 10, 1)},
            "profiles": [profile or {}],
        }
        super().__init__(
            controlplane,
            configuration,
            name=user,
            kubeconfig=kubeconfig or controlplane.kubeconfig(user, ("system:masters",)),
            program=program,
        )
        self.log.unlink(missing_ok=True)  # of an earlier test's replica of that name

    @property
    def leads(self) -> bool:
        """Whether its metric reports it."""
        return self.metric(_MASTER) == 1

    @property
    def logged(self) -> str:
        """Log lines of the replica so far."""
        return self.log.read_text()

    def status_of_service(self, path: str) -> int:
        """Return the HTTP status of a page that only the leader shows."""
        try:
            Endpoint(self.port).request("GET", path)
        except ApiError as refusal:
            return refusal.status
        return 200


@contextmanager
def running(*candidates: Replica) -> Iterator[tuple[Replica, ...]]:
    """Start them all together; the one that has come to lead is the first of those returned."""
    with ExitStack() as cleanup:
        for candidate in candidates:
            candidate.start(wait=False)
            cleanup.callback(candidate.kill)
        for candidate in candidates:
            eventually(lambda it=candidate: it.get("/readyz") == "ok", 60)  # type: ignore[misc]
        leader = eventually(lambda: next((it for it in candidates if it.leads), None))
        assert leader is not None
        yield (leader, *(it for it in candidates if it is not leader))


def lease(api: Endpoint) -> Any:
    """Return the spec of the lease that the replicas compete for."""
    return api.request("GET", _LEASE)["spec"]


def epoch_s(text: str) -> float:
    """Return a time of the API as seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp()


def check_binds(controlplane: ControlPlane, since_byte: int) -> list[list[BindRequest]]:
    """Return the requests to bind pods since then, reign by reign.

    Raises AssertionError unless every pod that has a node was bound once and is where that put it,
    and no replica tried to bind anything before the last one had done or after the next one began.
    A bind that the server answered with a timeout may have been done.
    """
    binds = controlplane.audit.binds(since_byte)
    reigns = [list(reign) for _, reign in groupby(binds, key=lambda bind: bind.user)]
    rulers = [reign[0].user for reign in reigns]
    assert len(rulers) == len(set(rulers)), f"they took turns: {rulers}"
    for reign, following in pairwise(reigns):
        assert max(bind.ended_s for bind in reign) < following[0].began_s
    done = [(bind.pod, bind.node) for bind in binds if bind.succeeded]
    assert len(done) == len(dict(done)), "a pod was bound twice"
    placed = {
        (f"{it['metadata']['namespace']}/{it['metadata']['name']}", it["spec"]["nodeName"])
        for it in pods(controlplane.api)
        if "nodeName" in it["spec"]
    }
    assert set(done) <= placed
    assert placed - set(done) <= {(bind.pod, bind.node) for bind in binds if bind.timed_out}
    return reigns
