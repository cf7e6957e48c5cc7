"""Values of the original's Helm charts 1.4 to 1.8, and their counterparts in this chart.

Source: koordinator-sh/charts versions/v1.4.1 to v1.8.0, values.yaml and templates.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from koordinator.api.kubescheduler import FeatureGates, did_you_mean
from koordinator.cli.descheduler.flags import parse_gates as parse_descheduler_gates
from koordinator.cli.migrate.documents import Document, FindingStatus, MigrationFinding
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.koordlet.app.options import gates_of
from koordinator.koordlet.app.options import parse_gates as parse_agent_gates
from koordinator.manager.admission.gates import parse_gates as parse_manager_gates

VALUES: Final = "values"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Meaning of a value of the original's charts, and of every value below it, in this chart.

    ``target`` is the path of the value in this chart, with the rest of the original's path behind
    it; empty if it has no counterpart.  A ``harmless`` value needs no attention, since it means
    the same as the behaviour of this chart.
    """

    target: str = ""
    status: FindingStatus = FindingStatus.SAME
    message: str = ""
    action: str = ""
    harmless: Sequence[object] = ()
    gates: Callable[[str], object] | None = None  # parser of the value, a list of feature gates


def _same(*paths: str) -> dict[str, Setting]:
    return {path: Setting(target=path) for path in paths}


def _component(name: str, *settings: str) -> dict[str, Setting]:
    common = ("log", "nodeAffinity", "resources")
    image = Setting(
        status=FindingStatus.IGNORED,
        message="image.repository and image.tag set the image of all programs",
    )
    paths = (f"{name}.{setting}" for setting in (*common, *settings))
    return {**_same(*paths), f"{name}.image": image}


_DEPLOYMENT: Final = ("hostNetwork", "nodeSelector", "replicas", "tolerations")
_AUTHORIZED: Final = "HTTPS; metrics require a bearer token that may get /metrics"
_GRANT: Final = "grant the ClusterRole koord-metrics-reader to the scraper"
_SCRAPE: Final = "adjust scrapers; monitorEnabled=true installs a ServiceMonitor"
_SUPPORTED: Final = Setting(
    status=FindingStatus.IGNORED, message="Kubernetes 1.33 to 1.37 are supported"
)


def _page(port: int) -> Setting:
    message = f"health and metrics are served over HTTPS on port {port}"
    return Setting(status=FindingStatus.DIFFERS, message=message, action=_SCRAPE)


def _agent_gates(text: str) -> object:
    return gates_of(parse_agent_gates(text))


#: Settings of the original by path; one covers all paths below it.
SETTINGS: Final[Mapping[str, Setting]] = MappingProxyType(
    {
        "crds": Setting(
            status=FindingStatus.DIFFERS,
            message="Helm installs all CRDs of a chart, or none",
            action="install with --skip-crds, and apply CRDs yourself: koord crds prints them",
            harmless=(True,),
        ),
        "installation.namespace": Setting(target="installation.namespace"),
        "installation.roleListGroups": Setting(
            status=FindingStatus.IGNORED,
            message="the roles of this chart have the rights that are used",
        ),
        "featureGates": Setting(
            target="manager.featureGates",
            status=FindingStatus.CONVERTED,
            harmless=("",),
            gates=parse_manager_gates,
        ),
        "imageRepositoryHost": Setting(
            status=FindingStatus.DIFFERS,
            message="the original's images are not used: one image has all programs",
            action="set image.repository to yours: docs/how-to/install.md",
        ),
        **_same(
            "imagePullSecrets",
            "serviceAccount.annotations",
            "webhookConfiguration.failurePolicy.elasticquotas",
            "webhookConfiguration.failurePolicy.nodeStatus",
            "webhookConfiguration.failurePolicy.nodes",
            "webhookConfiguration.failurePolicy.pods",
            "webhookConfiguration.failurePolicy.reservations",
            "webhookConfiguration.timeoutSeconds",
        ),
        **_component("koordlet", "runtimeClassName"),
        **_same(
            "koordlet.hostDirs.kubeletLibDir",
            "koordlet.hostDirs.podResourcesProxyPath",
            "koordlet.hostDirs.predictionCheckpointDir",
        ),
        "koordlet.hostDirs.kubeletConfigDir": Setting(
            status=FindingStatus.IGNORED, message="no file of this folder is read"
        ),
        "koordlet.hostDirs.koordProxyRegisterDir": Setting(
            status=FindingStatus.IGNORED, message="a container runtime calls the agent through NRI"
        ),
        "koordlet.hostDirs.koordletSockDir": Setting(
            status=FindingStatus.IGNORED, message="a container runtime calls the agent through NRI"
        ),
        "koordlet.hostDirs.koordletTSDBDir": Setting(
            status=FindingStatus.IGNORED, message="samples are kept in memory"
        ),
        "koordlet.features": Setting(
            target="koordlet.featureGates",
            status=FindingStatus.CONVERTED,
            harmless=("",),
            gates=_agent_gates,
        ),
        "koordlet.metrics.port": Setting(
            target="koordlet.port", status=FindingStatus.DIFFERS, message=_AUTHORIZED, action=_GRANT
        ),
        "koordlet.enableServiceMonitor": Setting(
            target="koordlet.monitorEnabled", status=FindingStatus.CONVERTED
        ),
        **_component("manager", *_DEPLOYMENT, "healthProbe.port", "webhook.port"),
        "manager.metrics.addr": Setting(
            status=FindingStatus.DIFFERS,
            message="metrics are served on all addresses",
            action="restrict access with networkPolicy",
            harmless=("", "0.0.0.0"),  # noqa: S104 -- the default of the original
        ),
        "manager.metrics.port": Setting(
            target="manager.metrics.port",
            status=FindingStatus.DIFFERS,
            message=_AUTHORIZED,
            action=_GRANT,
        ),
        "manager.resyncPeriod": Setting(
            status=FindingStatus.IGNORED,
            message="watches miss no event, and failed reconciliations are retried",
        ),
        **_component(
            "scheduler",
            *_DEPLOYMENT,
            "deviceShare.gpuShareUnsupportedModels",
            "enableJobPreemption",
            "monitorEnabled",
        ),
        "scheduler.featureGates": Setting(
            target="scheduler.featureGates", gates=FeatureGates.parse
        ),
        "scheduler.compatible122FeatureGates": _SUPPORTED,
        "scheduler.compatibleBelow122FeatureGates": _SUPPORTED,
        "scheduler.port": _page(10259),
        **_component("descheduler", *_DEPLOYMENT, "monitorEnabled"),
        "descheduler.featureGates": Setting(
            target="descheduler.featureGates", gates=parse_descheduler_gates
        ),
        "descheduler.port": _page(10258),
        **_component("deviceDaemon"),
    }
)
_ROOTS: Final = frozenset(path.partition(".")[0] for path in SETTINGS)

#: Defaults that differ: path, message and action where the values do not set it.
_DEFAULTS: Final = (
    (
        "webhookConfiguration.failurePolicy.elasticquotas",
        "the default is Fail here, Ignore in the original",
        "set Ignore to keep it",
    ),
    (
        "scheduler.enableJobPreemption",
        "the default is false here, true in the charts 1.7 and 1.8",
        "set true to keep it",
    ),
    (
        "deviceDaemon",
        "is not installed by default; the charts 1.7 and 1.8 always install it",
        "set deviceDaemon.enabled=true for nodes with NPUs, MLUs, XPUs or MetaX GPUs",
    ),
)
#: Limits of CPU that the original's charts set and this chart does not.
_LIMITS: Final = tuple(f"{name}.resources.limits.cpu" for name in ("koordlet", "scheduler"))
#: Types of settings by their last name.  The original's templates print numbers and booleans, and
#: therefore accept their text; the schema of this chart does not.
TYPES: Final[Mapping[str, type]] = MappingProxyType(
    {
        **dict.fromkeys(("level", "port", "replicas", "timeoutSeconds"), int),
        **dict.fromkeys(
            ("enableJobPreemption", "enableServiceMonitor", "hostNetwork", "monitorEnabled"), bool
        ),
        **dict.fromkeys(("featureGates", "features", "runtimeClassName"), str),
        **dict.fromkeys(("annotations", "log", "nodeAffinity", "nodeSelector", "resources"), dict),
        **dict.fromkeys(("gpuShareUnsupportedModels", "tolerations"), list),
    }
)
_TYPE_NAMES: Final[Mapping[type, str]] = MappingProxyType(
    {int: "an integer", bool: "true or false", str: "text", dict: "a mapping", list: "a list"}
)
#: A top-level value of each of the original's other charts.
_OTHER_CHARTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "daemon": "hami-daemon",
        "hadoopVersion": "hadoop-yarn",
        "koordYarnOperator": "koordinator-yarn-copilot",
        "oversellrate": "koord-queue",
    }
)


def is_values(document: Document) -> bool:
    """Return whether a document contains values of the original's chart.

    Raises InputError if it contains values of another chart of the original.
    """
    if document.kind or document.api_version:
        return False
    for root, chart in _OTHER_CHARTS.items():
        if root in document.data:
            raise InputError(
                f"must be values of the original's chart koordinator, got values of {chart}",
                source=document.source,
            )
    return bool(document.data.keys() & _ROOTS)


def settings_in(values: Mapping[str, Any]) -> Iterator[tuple[str, Any, Setting | None]]:
    """Yield path and value of every setting, and its meaning; None for an unknown one."""
    yield from _settings(values, "")


def target_of(path: str, value: Any) -> tuple[str, Any] | None:
    """Return path and value in this chart; None if there is nothing to set, or no valid value."""
    covering = _covering(path)
    setting = SETTINGS.get(covering)
    if setting is None or not setting.target or value is None:
        return None
    try:
        value = _typed(path, value)
    except InputError:
        return None
    if setting.gates is not None:
        value = ",".join(part.strip() for part in value.split(",") if part.strip())
        if not value and setting.target != path:
            return None
    if value is None or (path == "imagePullSecrets" and not value):
        return None
    return setting.target + path.removeprefix(covering), value


def check_values(document: Document) -> Iterator[MigrationFinding]:
    """Yield the findings about values of the original's chart."""
    for path, value, setting in settings_in(document.data):
        if setting is None:
            yield _finding(document, path, *_unknown(path, value))
        else:
            yield _finding(document, path, *_judged(path, value, setting))
    if "deviceDaemon" in document.data:
        message = "the DaemonSet is installed, as the charts 1.7 and 1.8 do always"
        yield _finding(document, "deviceDaemon.enabled", FindingStatus.CONVERTED, message, "")
    for path in _LIMITS:
        if _has(document.data, path):
            message = "this chart sets no limit of CPU: throttled, a component reacts late"
            yield _finding(document, path, FindingStatus.DIFFERS, message, "remove the limit")
    for path, message, action in _DEFAULTS:
        if not _has(document.data, path):
            yield _finding(document, path, FindingStatus.DIFFERS, message, action)


def _unknown(path: str, value: Any) -> tuple[FindingStatus, str, str]:
    """Return status, message and action of a path that is no setting."""
    known = ""
    for name in path.split("."):
        inner = [each.removeprefix(known) for each in SETTINGS if each.startswith(known)]
        names = sorted({each.partition(".")[0] for each in inner})
        if name not in names:
            message = f"not a value of the original's charts 1.4 to 1.8{did_you_mean(name, names)}"
            return FindingStatus.ACTION, message, "remove or correct it"
        known += f"{name}."
    return FindingStatus.ACTION, f"must be a mapping, got {value!r}", "correct it"


def _typed(path: str, value: Any) -> Any:
    """Return a value in the type of its setting; None for an empty one of another type.

    Raises InputError if it has another type.
    """
    wanted = TYPES.get(path.rpartition(".")[2])
    if wanted is None or type(value) is wanted:
        return value
    if isinstance(value, str):
        if wanted is int and value.isdecimal():
            return int(value)
        if wanted is bool and value in ("true", "false"):
            return value == "true"
    if not value and wanted in (dict, list):  # the original's templates leave it out
        return None
    raise InputError(f"must be {_TYPE_NAMES[wanted]}, got {value!r}")


def _judged(path: str, value: Any, setting: Setting) -> tuple[FindingStatus, str, str]:
    """Return status, message and action of a setting."""
    if value in setting.harmless or value is None:
        return FindingStatus.SAME, "", ""
    try:
        value_here = _typed(path, value)
    except InputError as error:
        return FindingStatus.ACTION, error.problem, "correct it"
    if setting.gates is not None:
        try:
            setting.gates(value_here)
        except InputError as error:
            return FindingStatus.ACTION, error.problem, "remove or correct the feature gate"
    target = target_of(path, value)
    if target is None or target == (path, value):
        return setting.status, setting.message, setting.action
    if target[0] != path:
        message = "; ".join(filter(None, (setting.message, f"here {target[0]}")))
        return setting.status, message, setting.action
    status = FindingStatus.CONVERTED if setting.status is FindingStatus.SAME else setting.status
    return status, f"here {_shown(target[1])}", setting.action


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return f"the boolean {str(value).lower()}"
    return f"the number {value}" if isinstance(value, int) else str(value)


def _finding(
    document: Document, path: str, status: FindingStatus, message: str, action: str
) -> MigrationFinding:
    return MigrationFinding(
        kind=VALUES,
        object="of the chart",
        source=document.source,
        field=path,
        status=status,
        message=message,
        action=action,
    )


def _settings(tree: Any, path: str) -> Iterator[tuple[str, Any, Setting | None]]:
    covering = _covering(path)
    if isinstance(tree, dict) and tree and not (covering and _is_whole(covering)):
        for key, value in tree.items():
            yield from _settings(value, f"{path}.{key}" if path else str(key))
    elif covering or not _is_empty_group(path, tree):
        yield path, tree, SETTINGS.get(covering)


def _is_empty_group(path: str, tree: Any) -> bool:
    return not tree and (not path or any(each.startswith(f"{path}.") for each in SETTINGS))


def _covering(path: str) -> str:
    """Return the path of the setting that covers a path; empty if there is none."""
    while path and path not in SETTINGS:
        path = path.rpartition(".")[0]
    return path


def _is_whole(path: str) -> bool:
    """Return whether the part below a setting is one value, such as an affinity."""
    return path.rpartition(".")[2] not in ("crds", "log")


def _has(tree: Any, path: str) -> bool:
    for key in path.split("."):
        if not isinstance(tree, dict) or key not in tree:
            return False
        tree = tree[key]
    return True
