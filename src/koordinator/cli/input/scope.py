"""Which pods a question is about: flags as kubectl has them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from koordinator.api.meta import KubeObject, LabelSelector
from koordinator.api.pod import Pod
from koordinator.api.selectors import matches, parse_label_selector
from koordinator.foundation.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeFlags:
    """The namespace and the labels of the pods that are meant."""

    namespace: Annotated[
        str,
        typer.Option(
            "--namespace",
            "-n",
            help="Only what is in this namespace; also that of names without one.",
        ),
    ] = ""
    all_namespaces: Annotated[
        bool,
        typer.Option("--all-namespaces", "-A", help="What is in any namespace, which is usual."),
    ] = False
    selector: Annotated[
        str,
        typer.Option("--selector", "-l", help="Only pods with these labels, such as app=web."),
    ] = ""

    def check(self) -> None:
        """Raise InputError for flags that contradict each other, or a selector that is none."""
        if self.namespace and self.all_namespaces:
            raise InputError("must not be given beside --all-namespaces", source="--namespace")
        self._labels()

    @property
    def is_narrow(self) -> bool:
        """Whether not all pods are meant."""
        return bool(self.namespace or self.selector)

    def keys(self, objects: Iterable[KubeObject]) -> set[str]:
        """Return the keys of the pods among the objects that are meant."""
        return {obj.key for obj in objects if isinstance(obj, Pod) and self.holds(obj)}

    def holds(self, obj: KubeObject) -> bool:
        """Return whether an object is in the namespace and has the labels."""
        meta = obj.metadata
        in_namespace = not self.namespace or meta.namespace == self.namespace
        return in_namespace and matches(self._labels(), meta.labels)

    def full_names(self, names: Sequence[str], usual: str) -> list[str]:
        """Return the names with a namespace: their own, that of the flag, or the ``usual`` one."""
        namespace = self.namespace or usual or "default"
        return [name if "/" in name else f"{namespace}/{name}" for name in names]

    def _labels(self) -> LabelSelector:
        try:
            return parse_label_selector(self.selector)
        except InputError as error:
            raise error.within(source="--selector") from None
