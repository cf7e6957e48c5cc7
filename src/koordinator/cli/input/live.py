"""Objects and release of a live cluster, read once; feature gates of a Kubernetes release."""

import logging
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from koordinator.api.core import Namespace
from koordinator.api.dynamic_resources import ResourceClaimTemplate
from koordinator.api.kube_version import (
    DEFAULT_LEVEL,
    KubeVersion,
    emulated_level,
    stated_level,
)
from koordinator.api.kubescheduler import FeatureGates, check_gate_names
from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.policy import PriorityClass
from koordinator.cli.input.scope import ScopeFlags
from koordinator.cli.output import warn
from koordinator.foundation.clock import SystemClock
from koordinator.foundation.errors import ClusterError, InputError, InvalidError, NotFoundError
from koordinator.foundation.feature_gates import SOURCE
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.profile import SELECTORS, WATCHED
from koordinator.simulator.manifests.reader import read_manifests

if TYPE_CHECKING:
    from koordinator.cluster.kubernetes.cluster import KubernetesCluster
    from koordinator.cluster.kubernetes.connection import Connection

#: Pods last: the objects that they refer to exist by then.
KINDS: Sequence[type[KubeObject]] = (
    Namespace,
    PriorityClass,
    Node,
    ResourceClaimTemplate,
    *WATCHED,
    Pod,
)


@dataclass(frozen=True, slots=True)
class LiveObjects:
    """Objects of a cluster that the user may read, and objects of manifests."""

    objects: Sequence[KubeObject]
    namespace: str  # of the context
    unreadable: tuple[type[KubeObject], ...] = ()  # kinds that the user may not read everywhere

    @property
    def has_no_nodes(self) -> bool:
        """Whether nodes can't be read, so that no scheduler can be run on a copy."""
        return Node in self.unreadable


def is_live(files: Sequence[str] | None, kubeconfig: str, context: str) -> bool:
    """Return whether a command asks a cluster: a flag names one, or there are no files."""
    return bool(kubeconfig or context or not files)


def with_cluster(
    given: Sequence[KubeObject],
    kubeconfig: str,
    context: str,
    kinds: Sequence[type[KubeObject]] = KINDS,
    selectors: Mapping[type[KubeObject], str] = SELECTORS,
) -> Sequence[KubeObject]:
    """Return a cluster's objects of some kinds; given objects replace others of the same name.

    ``selectors`` are field selectors: of these kinds only some objects are read.

    Raises InputError if there is no way to the cluster, ClusterError if it can't be read.
    """
    replaced = {(type(obj), obj.key) for obj in given}
    with connected(find_cluster(kubeconfig, context)) as cluster:
        existing = [
            obj
            for kind in kinds
            for obj in cluster.list(kind, field_selector=selectors.get(kind, "")).items
        ]
    return [*(o for o in existing if (type(o), o.key) not in replaced), *given]


def readable_objects(
    given: Sequence[KubeObject],
    kubeconfig: str,
    context: str,
    namespace: str = "",
    kinds: Sequence[type[KubeObject]] = KINDS,
) -> LiveObjects:
    """Return the readable objects: of forbidden kinds those in one namespace.

    That is ``namespace``, or the namespace of the context.  Raises as ``with_cluster`` does, and
    ForbiddenError where not even pods of the namespace may be read.
    """
    from koordinator.cluster.kubernetes.failures import ForbiddenError  # noqa: PLC0415 -- as below

    connection = find_cluster(kubeconfig, context)
    own = namespace or connection.namespace or "default"
    existing: list[KubeObject] = []
    unreadable: list[type[KubeObject]] = []
    with connected(connection) as cluster:
        for kind in kinds:
            selector = SELECTORS.get(kind, "")
            try:
                existing += cluster.list(kind, field_selector=selector).items
            except ForbiddenError:
                unreadable.append(kind)
                if not kind.NAMESPACED:
                    continue
                try:
                    listing = cluster.list(kind, namespace=own, field_selector=selector)
                except ForbiddenError:
                    if kind is Pod:
                        raise
                else:
                    existing += listing.items
    replaced = {(type(obj), obj.key) for obj in given}
    unchanged = [obj for obj in existing if (type(obj), obj.key) not in replaced]
    return LiveObjects([*unchanged, *given], own, tuple(unreadable))


def read_objects(
    files: Sequence[str] | None,
    kubeconfig: str,
    context: str,
    scope: ScopeFlags,
    kinds: Sequence[type[KubeObject]] = KINDS,
) -> LiveObjects:
    """Return the objects of manifests and the readable objects of the cluster.

    Raises InputError if neither is given.
    """
    scope.check()
    given = read_manifests(files, sys.stdin.buffer, on_notice=warn) if files else ()
    if not is_live(files, kubeconfig, context):
        return LiveObjects(given, "")
    return readable_objects(given, kubeconfig, context, scope.namespace, kinds)


def server_version(kubeconfig: str, context: str) -> KubeVersion:
    """Return the release of a cluster's API server.

    Raises InputError if there is no way to the cluster, ClusterError if it does not answer.
    """
    with connected(find_cluster(kubeconfig, context)) as cluster:
        return cluster.server_version()


def find_cluster(kubeconfig: str, context: str, *, or_files: bool = True) -> "Connection":
    """Return the cluster of the flags, or of KUBECONFIG or the usual file as kubectl finds it.

    Raises InputError if there is none; it proposes -f for a command that reads files, too.
    """
    from koordinator.cluster.kubernetes.connection import (  # noqa: PLC0415 -- loading it takes a
        NoClusterError,  # quarter of a second that manifests alone should not pay
        find_connection,
    )

    try:
        return find_connection(kubeconfig, context)
    except NoClusterError as error:
        if context:
            raise InputError(str(error), source="--context") from None
        flags = "-f or --kubeconfig" if or_files else "--kubeconfig"
        raise InputError(
            f"is required: set {flags}, or a cluster named by the variable KUBECONFIG or the file "
            "~/.kube/config",
            source=flags.partition(" ")[0],
        ) from None


def connected(connection: "Connection") -> "KubernetesCluster":
    """Return a client of the cluster, to be closed."""
    from koordinator.cluster.kubernetes.cluster import KubernetesCluster  # noqa: PLC0415 -- as above
    from koordinator.cluster.kubernetes.credentials import Credentials  # noqa: PLC0415

    clock = SystemClock()
    return KubernetesCluster(Credentials(connection, clock), clock)


if TYPE_CHECKING:
    from koordinator.cluster.kubernetes.cluster import KubernetesCluster

log = logging.getLogger(__name__)

_PATIENCE_S = 5.0


def read_gates(
    feature_gates: str,
    kube_version: str = "",
    *,
    emulated_version: str = "",
    kubeconfig: str = "",
    context: str = "",
    is_live: bool = False,
    source: str = SOURCE,
) -> FeatureGates:
    """Return the gates of a command, at the level that its flags or its cluster name.

    ``is_live`` asks the cluster also where no flag names it; ``source`` is the flag of the gates.

    Warns of gates without effect.  Raises InputError for flags that can't be meant, ClusterError if
    the cluster does not answer.
    """
    check_gate_names(feature_gates, source)
    level = emulated_level(emulated_version)
    stated = stated_level(kube_version) if kube_version else DEFAULT_LEVEL
    if level is None and (is_live or kubeconfig or context):
        level = server_version(kubeconfig, context).served()
        if kube_version and level != stated:
            warn(f"--kube-version {stated} is left out: the cluster runs Kubernetes {level}")
    gates = FeatureGates.parse(feature_gates, level or stated, source=source)
    for name, why in gates.without_effect:
        warn(f"{source} {name} has no effect: {why}")
    return gates


def gates_of_component(
    feature_gates: str, level: KubeVersion, source: str = SOURCE
) -> FeatureGates:
    """Return the gates of a running component, and log those without effect.

    Raises InputError for flags that can't be meant.
    """
    gates = FeatureGates.parse(feature_gates, level, source=source)
    for gate, why in gates.without_effect:
        log.warning("feature gate without effect", extra={"flag": source, "gate": gate, "why": why})
    return gates


def level_of_server(
    cluster: "KubernetesCluster", fallback: KubeVersion, patience_s: float
) -> KubeVersion | None:
    """Return the level of a cluster; ``fallback`` if it does not report its version.

    Return None, with a warning, if it can't be reached or rejects the credentials.
    """
    try:
        version = cluster.server_version(patience_s)
    except (NotFoundError, InvalidError) as error:
        log.warning(
            "the API server does not report its version",
            extra={"level": str(fallback), "reason": str(error)},
        )
        return fallback
    except ClusterError as error:
        log.warning("the version of the API server is not known yet: %s", error)
        return None
    level = version.served()
    if version != level:
        log.warning(
            "the API server is of a release that is not reproduced",
            extra={"version": str(version), "level": str(level)},
        )
    return level


def level_now(cluster: "KubernetesCluster") -> KubeVersion:
    """Return the level of a cluster that is only followed; the default if it can't be reached."""
    return level_of_server(cluster, DEFAULT_LEVEL, _PATIENCE_S) or DEFAULT_LEVEL
