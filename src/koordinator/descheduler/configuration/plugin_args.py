"""What arguments of the descheduler's plugins have in common.

Source: koordinator pkg/descheduler/apis/config/v1alpha2/types.go, types_loadaware.go.
"""

from collections.abc import Sequence
from typing import Any, Final, TypeVar

from koordinator.api.codec import without_nulls
from koordinator.api.kubescheduler import decode_struct
from koordinator.api.kubescheduler.structs import ConfigStruct
from koordinator.api.meta import LabelSelector
from koordinator.api.selector_validation import check_label_selector
from koordinator.api.syntax import join_path, refusal
from koordinator.foundation.errors import InputError

DESCHEDULER_API_VERSION: Final = "descheduler/v1alpha2"

ArgsT = TypeVar("ArgsT", bound="DeschedulerPluginArgs")


class DeschedulerPluginArgs(ConfigStruct, frozen=True, kw_only=True):
    """The arguments of one plugin; a subclass is called like the ``kind`` in the file."""

    def validate(self) -> None:
        """Check what types don't say.

        Raises InputError whose path starts at the arguments.
        """


class NamespaceLists(ConfigStruct, frozen=True, kw_only=True):
    """Namespaces that are meant alone, or that are not meant; empty lists mean all."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def covers(self, namespace: str) -> bool:
        """Return whether a namespace is meant."""
        if self.include and namespace not in self.include:
            return False
        return namespace not in self.exclude


class NamedPodSelector(ConfigStruct, frozen=True, kw_only=True):
    """Pods with certain labels.  Without a selector none is meant, with an empty one all are."""

    name: str = ""
    selector: LabelSelector | None = None


def decode_plugin_args(args_type: type[ArgsT], data: object, path: str, source: str) -> ArgsT:
    """Return the arguments of a plugin with defaults; ``path`` is where they stand in the file.

    ``apiVersion`` and ``kind`` may be left out.
    Raises InputError with source and path.
    """
    try:
        fields = take_header({} if data is None else data, args_type.__name__, required=False)
        args = decode_struct(fields, args_type, "")
        args.validate()
    except InputError as error:
        raise error.within(source=source, path=path) from None
    return args


def take_header(data: object, kind: str, *, required: bool) -> dict[str, Any]:
    """Return the fields of an object without nulls, ``apiVersion`` and ``kind``.

    Raises InputError if it is no object, or these two are not as they should be.
    """
    left = without_nulls(data)
    if not isinstance(left, dict):
        raise refusal("", left, "an object")
    for name, accepted in (("apiVersion", DESCHEDULER_API_VERSION), ("kind", kind)):
        found = left.pop(name, None)
        if found is None and required:
            raise InputError(f"is required and must be {accepted}", path=name)
        if found is not None and found != accepted:
            raise refusal(name, found, accepted)
    return left


def field_error(path: str, found: object, message: str) -> InputError:
    """Return the error of a field in the original's words."""
    return InputError(f"{message}, got {found!r}", path=path)


def check_namespaces(namespaces: NamespaceLists | None, path: str) -> None:
    """Raise InputError if namespaces are both included and excluded."""
    if namespaces is not None and namespaces.include and namespaces.exclude:
        found = {"include": list(namespaces.include), "exclude": list(namespaces.exclude)}
        raise field_error(path, found, "only one of Include/Exclude namespaces can be set")


def check_selector(selector: LabelSelector | None, path: str) -> None:
    """Raise InputError for a selector that the API server would refuse."""
    check_label_selector(selector, path)


def check_pod_selectors(selectors: Sequence[NamedPodSelector], path: str) -> None:
    """Raise InputError for the first selector that the API server would refuse."""
    for index, each in enumerate(selectors):
        check_label_selector(each.selector, join_path(f"{path}[{index}]", "selector"))
