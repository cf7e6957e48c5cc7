"""Named checks, and the texts in which Kubernetes reports them.

Source: k8s.io/apiserver pkg/server/healthz/healthz.go; k8s.io/component-base
metrics/prometheus/slis/metrics.go.
"""

import logging
import threading
from collections.abc import Callable, Collection, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge

from koordinator.foundation.lazy_dataclass import dataclass

LEASE_GRACE_S = 20.0  # how long after its lease a leader that can't renew passes as healthy

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Check:
    """Condition that must hold.

    ``problem`` returns a text, empty if all is well.  It runs in the server's thread and must
    not block.  ``is_public``: the text has no secrets and is sent without authorization.
    """

    name: str
    problem: Callable[[], str]
    is_public: bool = False


PING = Check("ping", lambda: "")


def shutdown_check(stopping: threading.Event) -> Check:
    """Return a check that fails once the process is asked to stop."""
    return Check("shutdown", lambda: "process is shutting down" if stopping.is_set() else "")


def leader_election_check(lease: str, overdue_s: Callable[[], float]) -> Check:
    """Return a check that fails if this process leads and its lease has long been due for renewal.

    ``overdue_s`` returns the seconds since the lease ran out; 0 or less before that and for a
    process that doesn't lead.
    Source: client-go tools/leaderelection/healthzadaptor.go; the grace is kube-scheduler's.
    """

    def problem() -> str:
        late = overdue_s() > LEASE_GRACE_S
        return f"failed election to renew leadership on lease {lease}" if late else ""

    return Check("leaderElection", problem)


class Indicators:
    """Counters of passed and failed checks, for /metrics/slis."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._healthy = Gauge(
            "kubernetes_healthcheck",
            "This metric records the result of a single healthcheck.",
            ("name", "type"),
            registry=self.registry,
        )
        self._total = Counter(
            "kubernetes_healthchecks",
            "This metric records the results of all healthcheck.",
            ("name", "type", "status"),
            registry=self.registry,
        )

    def observe(self, check: str, endpoint: str, *, passed: bool) -> None:
        """Count one result."""
        self._healthy.labels(check, endpoint).set(1 if passed else 0)
        self._total.labels(check, endpoint, "success" if passed else "error").inc()


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """Outcome of the checks, and the text of the response."""

    healthy: bool
    text: str


class HealthEndpoint:
    """The checks behind one of healthz, livez and readyz."""

    def __init__(self, name: str, checks: Sequence[Check], indicators: Indicators) -> None:
        self.name = name
        self.checks = tuple(checks) or (PING,)
        self._indicators = indicators

    def report(self, excluded: Collection[str] = (), *, verbose: bool = False) -> ProbeResult:
        """Run the checks that are not excluded; a failure lists all of them.

        The reason of a failure is withheld and logged unless the check is public, since this
        endpoint needs no authorization.
        """
        lines, failed = [], False
        for check in self.checks:
            if check.name in excluded:
                lines.append(f"[+]{check.name} excluded: ok")
                continue
            problem = check.problem()
            self._indicators.observe(check.name, self.name, passed=not problem)
            if problem:
                failed = True
                reason = problem if check.is_public else "reason withheld"
                lines.append(f"[-]{check.name} failed: {reason}")
                log.info(
                    "health check failed",
                    extra={"endpoint": self.name, "check": check.name, "error": problem},
                )
            else:
                lines.append(f"[+]{check.name} ok")
        unknown = sorted(set(excluded) - {check.name for check in self.checks})
        if unknown:
            names = ",".join(f'"{name}"' for name in unknown)
            lines.append(f"warn: some health checks cannot be excluded: no matches for {names}")
        if not failed and not verbose:
            return ProbeResult(healthy=True, text="ok")
        outcome = "failed" if failed else "passed"
        lines.append(f"{self.name} check {outcome}")
        return ProbeResult(not failed, "".join(f"{line}\n" for line in lines))

    def report_one(self, check: Check) -> ProbeResult:
        """Run one check and return its reason: the path of a single check needs authorization."""
        problem = check.problem()
        if problem:
            return ProbeResult(healthy=False, text=f"internal server error: {problem}\n")
        return ProbeResult(healthy=True, text="ok")
