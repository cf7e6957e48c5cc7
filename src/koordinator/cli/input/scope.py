"""Flags that select pods by namespace and labels, as in kubectl, and times that users type."""

import datetime as dt
from collections.abc import Collection, Iterable, Sequence
from typing import Annotated, Final

import typer

from koordinator.api.meta import KubeObject, LabelSelector
from koordinator.api.pod import Pod
from koordinator.api.selectors import matches, parse_label_selector
from koordinator.domain.gangs import POD_GROUP_SEGMENT
from koordinator.foundation.clock import to_epoch_s
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass

_SHOWN: Final = 10  # names of gangs in an error


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeFlags:
    """Namespace and labels of the selected pods."""

    namespace: Annotated[
        str,
        typer.Option(
            "--namespace",
            "-n",
            help="Select only objects of this namespace; it is also the namespace of names "
            "without one.",
        ),
    ] = ""
    all_namespaces: Annotated[
        bool,
        typer.Option(
            "--all-namespaces", "-A", help="Select objects of all namespaces. This is the default."
        ),
    ] = False
    selector: Annotated[
        str,
        typer.Option(
            "--selector", "-l", help="Select only pods with these labels, such as app=web."
        ),
    ] = ""

    def check(self) -> None:
        """Raise InputError for contradictory flags or an invalid selector."""
        if self.namespace and self.all_namespaces:
            raise InputError("cannot be used with --all-namespaces", source="--namespace")
        self._labels()

    @property
    def is_narrow(self) -> bool:
        """Whether the flags exclude some pods."""
        return bool(self.namespace or self.selector)

    def keys(self, objects: Iterable[KubeObject]) -> set[str]:
        """Return the keys of the selected pods."""
        return {obj.key for obj in objects if isinstance(obj, Pod) and self.contains(obj)}

    def contains(self, obj: KubeObject) -> bool:
        """Return whether an object is in the namespace and has the labels."""
        meta = obj.metadata
        in_namespace = not self.namespace or meta.namespace == self.namespace
        return in_namespace and matches(self._labels(), meta.labels)

    def full_names(self, names: Sequence[str], default: str) -> list[str]:
        """Return names with namespaces; ``default`` is used if neither name nor flag has one."""
        namespace = self.namespace or default or "default"
        return [name if "/" in name else f"{namespace}/{name}" for name in names]

    def gang_name(self, name: str, gangs: Collection[str], default: str, source: str) -> str:
        """Return the gang among ``gangs`` that a user means by ``name``.

        The namespace may be left out, then ``default`` counts as in ``full_names``, and so may the
        ``podGroup`` in the name of a PodGroup of scheduling.k8s.io.  Raises InputError.
        """
        namespace = self.namespace or default or "default"
        group_namespace, _, group = name.rpartition("/")
        pod_group = f"{group_namespace or namespace}/{POD_GROUP_SEGMENT}/{group}"
        for candidate in (f"{namespace}/{name}", name, pod_group):
            if candidate in gangs:
                return candidate
        known = ", ".join(sorted(gangs)[:_SHOWN])
        accepted = f"must be one of {known}" if known else "there are no gangs"
        unknown = name if "/" in name else f"{namespace}/{name}"
        raise InputError(f"{accepted}, got {unknown!r}", source=source)

    def _labels(self) -> LabelSelector:
        try:
            return parse_label_selector(self.selector)
        except InputError as error:
            raise error.within(source="--selector") from None


def parse_time(text: str, source: str = "--now") -> float:
    """Return seconds since the epoch, which may be typed as such.  Raises InputError."""
    if text.isdecimal():
        return float(text)
    try:
        return to_epoch_s(dt.datetime.fromisoformat(text))
    except ValueError:
        accepted = "a time such as 2026-01-31T12:00:00Z, or seconds since 1970"
        raise InputError(f"must be {accepted}, got {text!r}", source=source) from None
