"""Check of rights: each right of the shipped roles, reviewed by the API server.

The roles are read from ``deploy/koordinator.yaml``, which the package contains.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import yaml

from koordinator.api.control_plane import (
    ResourceAttributes,
    SelfSubjectAccessReview,
    SelfSubjectAccessReviewSpec,
    SubjectAccessReview,
    SubjectAccessReviewSpec,
    SubjectAccessReviewStatus,
)
from koordinator.cli.doctor.findings import CheckResult, Finding, unreadable
from koordinator.foundation.errors import ClusterError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.process.authorization import ReviewClient

CHECK: Final = "rights"
_MANIFEST: Final = "koordinator.yaml"
_SHIPPED_NAMESPACE: Final = "koordinator-system"


@dataclass(frozen=True, slots=True)
class Right:
    """Right of a component's ServiceAccount."""

    account: str
    attributes: ResourceAttributes

    @property
    def resource(self) -> str:
        """Resource as ``kubectl auth can-i`` writes it: resource.group/name --subresource."""
        it = self.attributes
        group = f".{it.group}" if it.group else ""
        name = f"/{it.name}" if it.name else ""
        below = f" --subresource={it.subresource}" if it.subresource else ""
        return f"{it.resource}{group}{name}{below}"


def shipped_rights(namespace: str) -> Sequence[Right]:
    """Return the rights of the shipped roles, installed in a namespace, by account."""
    return list(rights_of(_shipped_manifests(), namespace))


@cache
def _shipped_manifests() -> Sequence[Mapping[str, Any]]:
    candidates = (
        files("koordinator.cli").joinpath("data", _MANIFEST),
        Path(__file__).parents[4] / "deploy" / _MANIFEST,  # of a source tree
    )
    text = next(each for each in candidates if each.is_file()).read_text("utf-8")
    return tuple(yaml.load_all(text, yaml.CSafeLoader))


def rights_of(manifests: Iterable[Mapping[str, Any]], namespace: str) -> Iterator[Right]:
    """Yield the rights that roles of manifests grant to their ServiceAccounts."""
    by_name = {(it["kind"], it["metadata"]["name"]): it for it in manifests if it}
    for (kind, _), binding in by_name.items():
        if kind not in ("ClusterRoleBinding", "RoleBinding"):
            continue
        role = by_name[binding["roleRef"]["kind"], binding["roleRef"]["name"]]
        binding_namespace = binding["metadata"].get("namespace", "")
        inside = namespace if binding_namespace == _SHIPPED_NAMESPACE else binding_namespace
        for subject in binding["subjects"]:
            for attributes in _attributes(role["rules"], inside):
                yield Right(subject["name"], attributes)


def _attributes(rules: Iterable[Mapping[str, Any]], namespace: str) -> Iterator[ResourceAttributes]:
    for rule in rules:
        for group in rule.get("apiGroups", ()):
            for path in rule["resources"]:
                resource, _, subresource = path.partition("/")
                for name in rule.get("resourceNames", ("",)):
                    for verb in rule["verbs"]:
                        yield ResourceAttributes(
                            namespace=namespace,
                            verb=verb,
                            group=group,
                            resource=resource,
                            subresource=subresource,
                            name=name,
                        )


def check_rights(
    reviewer: ReviewClient, rights: Sequence[Right], namespace: str, *, as_self: str = ""
) -> CheckResult:
    """Review rights of ServiceAccounts, or the rights of component ``as_self`` for this user.

    The API server is asked about each right: SelfSubjectAccessReviews need no right themselves,
    SubjectAccessReviews need ``create subjectaccessreviews``.
    """
    denied: dict[tuple[str, str], list[str]] = {}
    findings: list[Finding] = []
    for right in rights:
        try:
            status = _review(reviewer, right, namespace, as_self=as_self)
        except ClusterError as error:
            findings.append(unreadable(CHECK, "subjectaccessreviews", error))
            break
        if not status.allowed or status.denied:
            denied.setdefault((right.account, right.resource), []).append(right.attributes.verb)
    for (account, resource), verbs in denied.items():
        who = f"this user, as {account}," if as_self else account
        findings.append(
            Finding(
                check=CHECK,
                about=f"serviceaccounts/{account}",
                problem=f"{who} may not {', '.join(verbs)} {resource}",
                remedy="apply the roles of this version: helm upgrade koordinator "
                "charts/koordinator, or kubectl apply --server-side -f deploy/koordinator.yaml",
            )
        )
    accounts = sorted({right.account for right in rights})
    summary = f"{len(rights)} rights of {', '.join(accounts) or 'no component'}"
    return CheckResult(name=CHECK, summary=summary, findings=tuple(findings))


def _review(
    reviewer: ReviewClient, right: Right, namespace: str, *, as_self: str
) -> SubjectAccessReviewStatus:
    if as_self:
        own = SelfSubjectAccessReviewSpec(resource_attributes=right.attributes)
        return reviewer.create(SelfSubjectAccessReview(spec=own)).status
    spec = SubjectAccessReviewSpec(
        resource_attributes=right.attributes,
        user=f"system:serviceaccount:{namespace}:{right.account}",
        groups=(
            "system:serviceaccounts",
            f"system:serviceaccounts:{namespace}",
            "system:authenticated",
        ),
    )
    return reviewer.create(SubjectAccessReview(spec=spec)).status
