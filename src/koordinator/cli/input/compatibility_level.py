"""Which release of Kubernetes a command reproduces, and the feature gates that hold at it."""

import logging
from typing import TYPE_CHECKING

from koordinator.api.kube_version import (
    DEFAULT_LEVEL,
    KubeVersion,
    emulated_level,
    stated_level,
)
from koordinator.api.kubescheduler import FeatureGates, check_gate_names
from koordinator.cli.input.live import server_version
from koordinator.cli.output import warn
from koordinator.foundation.errors import ClusterError, InvalidError, NotFoundError

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
) -> FeatureGates:
    """Return the gates of a command, at the level that its flags or its cluster name.

    ``is_live`` asks the cluster also where no flag names it.

    Warns of gates without effect.  Raises InputError for flags that can't be meant, ClusterError if
    the cluster does not answer.
    """
    check_gate_names(feature_gates)
    level = emulated_level(emulated_version)
    stated = stated_level(kube_version) if kube_version else DEFAULT_LEVEL
    if level is None and (is_live or kubeconfig or context):
        level = server_version(kubeconfig, context).served()
        if kube_version and level != stated:
            warn(f"--kube-version {stated} is left out: the cluster runs Kubernetes {level}")
    gates = FeatureGates.parse(feature_gates, level or stated)
    for name, why in gates.without_effect:
        warn(f"--feature-gates {name} has no effect: {why}")
    return gates


def level_of_server(
    cluster: "KubernetesCluster", fallback: KubeVersion, patience_s: float
) -> KubeVersion | None:
    """Return the level of a cluster; the ``fallback`` if it does not tell its version.

    None, with a warning, if it can't be reached, or does not know who asks.
    """
    try:
        version = cluster.server_version(patience_s)
    except (NotFoundError, InvalidError) as error:
        log.warning(
            "the API server does not tell its version",
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
