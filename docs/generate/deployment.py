"""Pages of an installation: values of the chart, rights of the components, webhooks."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml
from docs.generate.markdown import code, page, table

from koordinator.manager.admission.gates import DEFAULT_GATES
from koordinator.manager.admission.hooks import HookOptions, all_hooks

_ROOT: Final = Path(__file__).parents[2]
_VALUES: Final = _ROOT / "charts/koordinator/values.yaml"
_MANIFESTS: Final = _ROOT / "deploy/koordinator.yaml"
_ROLES: Final = frozenset({"ClusterRole", "Role"})
_READING: Final = frozenset({"get", "list", "watch"})
_WRITING: Final = frozenset({"create", "update", "patch", "delete"})


def chart_values() -> str:
    """Return the page of the chart's values: the commented file itself."""
    return page(
        "Values of the chart",
        "The file `charts/koordinator/values.yaml`: every value with its default. The values of "
        "Koordinator's own chart are accepted, too: "
        "[Migrate from the original](../../how-to/move-from-the-original.md).",
        f"```yaml\n{_VALUES.read_text('utf-8').strip()}\n```",
    )


def components_with_rights(group: str, plural: str) -> Iterator[tuple[str, str]]:
    """Yield what components have the right to do with objects, and the names of these."""
    for title, verbs, resource in (
        ("read by", _READING, plural),
        ("written by", _WRITING, plural),
        ("status written by", _WRITING, f"{plural}/status"),
    ):
        components = {
            role["metadata"]["name"]
            for role in _roles()
            for rule in role["rules"]
            if group in rule.get("apiGroups", ())
            and resource in rule.get("resources", ())
            and not verbs.isdisjoint(rule["verbs"])
        }
        if components:
            yield title, ", ".join(sorted(components))
        elif verbs is _READING:
            yield title, "no component, with the default values of the chart"


def rights() -> str:
    """Return the page of the roles that the chart installs with its default values."""
    return page(
        "Rights",
        "Roles of the ServiceAccounts, as the chart installs them with its default values; values "
        "such as `koordlet.podsFromKubelet` add rights. `koord doctor cluster` checks each right. "
        "The purpose of the scheduler's rights is in "
        "[Install](../../how-to/install.md#what-the-rights-are-for), the rights of the agent on "
        "its machine are in [Run the node agent](../../how-to/run-the-node-agent.md#rights).",
        *(
            f"## {role['kind']} {role['metadata']['name']}\n\n"
            + table(("API group", "resources", "verbs", "only the names"), _rules(role))
            for role in _roles()
        ),
    )


def webhooks() -> str:
    """Return the page of webhooks."""
    policies = yaml.load(_VALUES.read_text("utf-8"), yaml.CSafeLoader)["webhookConfiguration"]
    rows = [
        (
            code(hook.path),
            "mutating" if hook.mutate is not None else "validating",
            _listed(hook.resources),
            _listed(entry.operations),
            "" if entry.label is None else code("=".join(entry.label)),
            f"{code(hook.gate)} ({'on' if hook.gate in DEFAULT_GATES else 'off'})",
            f"{code(hook.policy)} ({policies['failurePolicy'][hook.policy]})",
        )
        for hook in all_hooks(HookOptions(gates=DEFAULT_GATES))
        for entry in hook.entries
    ]
    return page(
        "Webhooks",
        "Reviews that koord-manager answers on its webhook port. The feature gate enables a "
        "webhook; the failure policy is a value of the chart below "
        "`webhookConfiguration.failurePolicy`. Defaults are in parentheses.",
        table(
            ("path", "type", "objects", "operations", "only with label", "gate", "failure policy"),
            rows,
        ),
    )


@cache
def _roles() -> Sequence[Any]:
    documents = yaml.load_all(_MANIFESTS.read_text("utf-8"), yaml.CSafeLoader)
    return [each for each in documents if each and each["kind"] in _ROLES]


def _rules(role: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    for rule in role["rules"]:
        groups = [each or "core" for each in rule.get("apiGroups", ())]
        objects = rule.get("resources") or rule.get("nonResourceURLs", ())
        names = _listed(rule.get("resourceNames", ()))
        yield _listed(groups), _listed(objects), ", ".join(rule["verbs"]), names


def _listed(words: Sequence[str]) -> str:
    return ", ".join(map(code, words))
