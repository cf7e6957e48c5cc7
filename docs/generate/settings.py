"""Pages of settings: configuration files, plugins with their arguments, feature gates."""

from collections.abc import Container, Iterable, Mapping
from importlib import import_module

from docs.generate.dated import ABOUT_SINCE, SINCE, Row, dated_table, deprecation
from docs.generate.declarations import declarations, element_comments, member_comments
from docs.generate.markdown import cell, code, first_paragraph, page, table
from docs.generate.structs import field_table
from msgspec import Struct

from koordinator.api.kube_version import SERVED
from koordinator.api.kubescheduler import gates as scheduler_gates
from koordinator.api.kubescheduler.config import KubeSchedulerConfiguration
from koordinator.api.kubescheduler.decoder import FORMER_VERSIONS
from koordinator.api.kubescheduler.kubernetes_gates import GateSpec, kubernetes_gates
from koordinator.api.kubescheduler.structs import API_VERSION
from koordinator.cli.descheduler import flags as descheduler_gates
from koordinator.descheduler.configuration import DeschedulerConfiguration
from koordinator.descheduler.profile import DESCHEDULER_PLUGINS
from koordinator.koordlet.app import options as koordlet_gates
from koordinator.manager.admission import gates as manager_gates
from koordinator.scheduler.contract.profile import points_of
from koordinator.scheduler.profile import builtin_plugins

#: Fields that may be in the arguments of every plugin.
_OF_EVERY_ARGUMENT = frozenset({"apiVersion", "kind"})
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
        "The file that `koord scheduler --config` and `koord schedule --config` read. "
        f"{ABOUT_SINCE}",
        "## Versions",
        table(
            ("version", "read", "deprecated by"),
            [
                (code(API_VERSION), "as it is", ""),
                *(
                    (code(version), "with a warning, converted", code(API_VERSION))
                    for version in FORMER_VERSIONS
                ),
            ],
        ),
        "## Fields",
        field_table(KubeSchedulerConfiguration, "configuration KubeSchedulerConfiguration"),
    )


def scheduler_plugins() -> str:
    """Return the page of the scheduler's plugins and their arguments."""
    return page(
        "Scheduler plugins",
        f"Plugins of a profile, with the fields of `pluginConfig[].args`. {ABOUT_SINCE}",
        *(
            _plugin("scheduler", spec.name, spec.args, spec.build, points_of(spec))
            for spec in sorted(builtin_plugins(), key=lambda each: each.name)
        ),
    )


def descheduler_configuration() -> str:
    """Return the page of the descheduler's configuration file."""
    return page(
        "DeschedulerConfiguration",
        f"The file that `koord descheduler --config` reads. {ABOUT_SINCE}",
        field_table(DeschedulerConfiguration, "configuration DeschedulerConfiguration"),
    )


def descheduler_plugins() -> str:
    """Return the page of the descheduler's plugins and their arguments."""
    return page(
        "Descheduler plugins",
        f"Plugins of a profile, with the fields of `pluginConfig[].args`. {ABOUT_SINCE}",
        *(
            _plugin("descheduler", spec.name, spec.args, spec.build, spec.points)
            for spec in sorted(DESCHEDULER_PLUGINS, key=lambda each: each.name)
        ),
    )


def feature_gates() -> str:
    """Return the page of feature gates by component."""
    of_scheduler = {
        str(getattr(scheduler_gates, each.name)): each.comment
        for each in declarations(scheduler_gates)
    }
    of_koordlet = {
        **element_comments(koordlet_gates, "ON"),
        **element_comments(koordlet_gates, "OFF"),
    }
    of_descheduler = element_comments(descheduler_gates, "GATES")
    of_manager = {
        manager_gates.ManagerFeature[name].value: comment
        for name, comment in member_comments(manager_gates.ManagerFeature).items()
    }
    without_effect = [
        *(("koord-scheduler", *each) for each in scheduler_gates.WITHOUT_EFFECT.items()),
        *(("koordlet", *each) for each in koordlet_gates.MEANINGLESS.items()),
        *(("koord-manager", name, "always on") for name in manager_gates.ALWAYS_ON),
        *(("koord-manager", name, "of koord-descheduler") for name in manager_gates.OF_DESCHEDULER),
    ]
    head = ("gate", "default", "meaning")
    levels = [str(level) for level in SERVED]
    return page(
        "Feature gates",
        "Names for `--feature-gates`. Each component refuses a name that it does not know. "
        f"{ABOUT_SINCE}",
        "## koord scheduler: gates of Koordinator",
        dated_table(
            "gate koord-scheduler",
            head,
            _gate_rows(scheduler_gates.OF_KOORDINATOR, scheduler_gates.ON_BY_DEFAULT, of_scheduler),
        ),
        "## koordlet",
        dated_table("gate koordlet", head, _gate_rows(of_koordlet, koordlet_gates.ON, of_koordlet)),
        "## koord manager",
        dated_table(
            "gate koord-manager",
            head,
            _gate_rows(manager_gates.ManagerFeature, manager_gates.DEFAULT_GATES, of_manager),
        ),
        "## koord descheduler",
        dated_table("gate koord-descheduler", head, _gate_rows(of_descheduler, (), of_descheduler)),
        "## Gates without effect",
        "Gates of the original that a component accepts and that switch nothing.",
        dated_table(
            "gate without effect",
            ("component", "gate", "reason"),
            [
                Row(name, (each, code(name), cell(reason)))
                for each, name, reason in sorted(without_effect)
            ],
        ),
        "## koord scheduler: gates of Kubernetes",
        "Stage and default by compatibility level (`--emulated-version`, `--kube-version`). "
        "A locked gate cannot be changed.",
        table(("gate", *levels), _kubernetes_rows()),
    )


def _gate_rows(
    names: Iterable[str], is_on: Container[str], meanings: Mapping[str, str]
) -> Iterable[Row]:
    for name in sorted(map(str, names)):
        meaning, replacement = deprecation(meanings.get(name, ""))
        yield Row(name, (code(name), "on" if name in is_on else "off", cell(meaning)), replacement)


def _kubernetes_rows() -> Iterable[tuple[str, ...]]:
    tables = [kubernetes_gates(level) for level in SERVED]
    for name in sorted({name for gates in tables for name in gates}):
        yield (code(name), *(_gate_text(gates.get(name)) for gates in tables))


def _gate_text(gate: GateSpec | None) -> str:
    if gate is None:
        return ""
    state = "on" if gate.is_on else "off"
    return f"{_STAGES[gate.stage]}, {state}{', locked' if gate.is_locked else ''}"


def _plugin(
    component: str, name: str, args: type[Struct], build: object, points: Iterable[str]
) -> str:
    module = import_module(getattr(build, "__module__", ""))
    if module.__name__.endswith(".plugin"):  # its package describes the plugin
        module = import_module(module.__name__.rpartition(".")[0])
    listed = ", ".join(map(code, sorted(points)))
    return "\n\n".join(
        (
            f"## {name}",
            first_paragraph(module.__doc__),
            f"Extension points: {listed}. Since: {SINCE.release(component, name)}.",
            field_table(args, f"{component} args of {name}", hidden=_OF_EVERY_ARGUMENT)
            if args.__struct_fields__
            else "",
        )
    )
