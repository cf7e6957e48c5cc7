"""Pages of settings: configuration files, plugins with their arguments, feature gates."""

from collections.abc import Container, Iterable, Mapping
from importlib import import_module

from docs.generate.markdown import cell, code, first_paragraph, page, table
from docs.generate.structs import field_table

from koordinator.api.kube_version import SERVED
from koordinator.api.kubescheduler import gates as scheduler_gates
from koordinator.api.kubescheduler.config import KubeSchedulerConfiguration
from koordinator.api.kubescheduler.kubernetes_gates import GateSpec, kubernetes_gates
from koordinator.descheduler.configuration import DeschedulerConfiguration
from koordinator.descheduler.profile import DESCHEDULER_PLUGINS
from koordinator.koordlet.app import options as koordlet_gates
from koordinator.manager.admission import gates as manager_gates
from koordinator.scheduler.profile import BUILTIN_PLUGINS

_STAGES: Mapping[str, str] = {
    "A": "alpha",
    "B": "beta",
    "G": "GA",
    "D": "deprecated",
}


def scheduler_configuration() -> str:
    """Return the page of the scheduler's configuration file."""
    return page(
        "KubeSchedulerConfiguration",
        "The file that `koord scheduler --config` and `koord schedule --config` read.",
        field_table(KubeSchedulerConfiguration),
    )


def scheduler_plugins() -> str:
    """Return the page of the scheduler's plugins and their arguments."""
    return page(
        "Scheduler plugins",
        "Plugins of a profile, with the fields of `pluginConfig[].args`.",
        *(
            _plugin(spec.name, spec.args, spec.build)
            for spec in sorted(BUILTIN_PLUGINS, key=lambda each: each.name)
        ),
    )


def descheduler_configuration() -> str:
    """Return the page of the descheduler's configuration file."""
    return page(
        "DeschedulerConfiguration",
        "The file that `koord descheduler --config` reads.",
        field_table(DeschedulerConfiguration),
    )


def descheduler_plugins() -> str:
    """Return the page of the descheduler's plugins and their arguments."""
    return page(
        "Descheduler plugins",
        "Plugins of a profile, with the fields of `pluginConfig[].args`.",
        *(
            _plugin(spec.name, spec.args, spec.build)
            for spec in sorted(DESCHEDULER_PLUGINS, key=lambda each: each.name)
        ),
    )


def feature_gates() -> str:
    """Return the page of feature gates by component."""
    own = _gate_rows(scheduler_gates.OF_KOORDINATOR, scheduler_gates.ON_BY_DEFAULT)
    koordlet = _gate_rows(koordlet_gates.ON | koordlet_gates.OFF, koordlet_gates.ON)
    manager = _gate_rows(manager_gates.ManagerFeature, manager_gates.DEFAULT_GATES)
    without_effect = [
        (code(name), cell(reason)) for name, reason in scheduler_gates.WITHOUT_EFFECT.items()
    ]
    head = ("gate", "default")
    levels = [str(level) for level in SERVED]
    return page(
        "Feature gates",
        "Names for `--feature-gates`. Each component refuses a name that it does not know.",
        "## koord scheduler: gates of Koordinator",
        table(head, own),
        "## koordlet",
        table(head, koordlet),
        "## koord manager",
        table(head, manager),
        "## Gates without effect",
        "Gates of the original that `koord scheduler` accepts and that switch nothing.",
        table(("gate", "reason"), sorted(without_effect)),
        "## koord scheduler: gates of Kubernetes",
        "Stage and default by compatibility level (`--emulated-version`, `--kube-version`). "
        "A locked gate cannot be changed.",
        table(("gate", *levels), _kubernetes_rows()),
    )


def _gate_rows(names: Iterable[str], is_on: Container[str]) -> list[tuple[str, str]]:
    return [(code(name), "on" if name in is_on else "off") for name in sorted(map(str, names))]


def _kubernetes_rows() -> Iterable[tuple[str, ...]]:
    tables = [kubernetes_gates(level) for level in SERVED]
    for name in sorted({name for gates in tables for name in gates}):
        yield (code(name), *(_gate_text(gates.get(name)) for gates in tables))


def _gate_text(gate: GateSpec | None) -> str:
    if gate is None:
        return ""
    state = "on" if gate.is_on else "off"
    return f"{_STAGES[gate.stage]}, {state}{', locked' if gate.is_locked else ''}"


def _plugin(name: str, args: type, build: object) -> str:
    module = import_module(getattr(build, "__module__", ""))
    return f"## {name}\n\n{first_paragraph(module.__doc__)}\n\n{field_table(args)}"
