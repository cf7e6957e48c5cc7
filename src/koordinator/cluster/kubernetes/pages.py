"""Paginated lists: requests and decoding.

A page is decoded as a whole; if that fails, object by object, and objects that can't be decoded are
left out.  Items of a list have no ``apiVersion`` and ``kind``, which are in the list.
"""

import logging
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from koordinator.api.codec import decode
from koordinator.api.meta import KubeObject
from koordinator.api.nesting import cut_nesting
from koordinator.cluster.kubernetes.resources import collection_path, with_query
from koordinator.cluster.kubernetes.transport import Request, Transport
from koordinator.foundation.decoders import decode_json, decoder_of
from koordinator.foundation.errors import ClusterError, GoneError, InputError
from koordinator.foundation.lazy_dataclass import dataclass

KindT = TypeVar("KindT", bound=KubeObject)
ItemT = TypeVar("ItemT")

_RESTARTS = 3  # of a list that takes longer than the server keeps its history

log = logging.getLogger(__name__)

_JSON = "application/json"
#: Lists without the parts of objects beside their metadata; plain JSON from a server that can't.
_METADATA = f"{_JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{_JSON}"
_VERSIONS_PER_PAGE = 5000


@dataclass(frozen=True, slots=True)
class ListQuery:
    """Selection of a list: kind, namespace (None for all) and selectors."""

    kind_type: type[KubeObject]
    namespace: str | None = None
    labels: str = ""
    fields: str = ""

    @property
    def path(self) -> str:
        return collection_path(self.kind_type, self.namespace)


class _ListMeta(msgspec.Struct, frozen=True):
    resource_version: str = msgspec.field(name="resourceVersion", default="")
    next_page: str = msgspec.field(name="continue", default="")


class _ListHead(msgspec.Struct, frozen=True):
    metadata: _ListMeta = _ListMeta()


class _ItemList(msgspec.Struct, Generic[ItemT], frozen=True):
    items: tuple[ItemT, ...] | None = None  # null is what Go makes of an empty one


class _ObjectName(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""


class _NamedObject(msgspec.Struct, frozen=True):
    metadata: _ObjectName = _ObjectName()


class ObjectVersion(msgspec.Struct, frozen=True):
    """Name, UID and version of an object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = msgspec.field(name="resourceVersion", default="")


class _VersionedObject(msgspec.Struct, frozen=True):
    metadata: ObjectVersion = ObjectVersion()


_VERSIONED = decoder_of(_VersionedObject)


@dataclass(frozen=True, slots=True)
class ListPage:
    """A part of a list as the server sent it.

    ``refresh`` is the number of the relist request that this list answers.  Objects that are not in
    the list were deleted, except those whose UID is in ``kept``.  Objects that are not
    ``versioned`` may change without a new version.
    """

    body: bytes
    is_first: bool
    next_page: str = ""  # what to continue with; empty on the last one
    resource_version: str = ""  # of the whole list
    refresh: int = 0
    kept: frozenset[str] = frozenset()
    versioned: bool = True


@dataclass(frozen=True, slots=True)
class VersionList:
    """Versions of all objects of a list; ``refresh`` is the number of the answered request."""

    objects: tuple[ObjectVersion, ...]
    resource_version: str
    refresh: int


@dataclass(frozen=True, slots=True)
class UndecodedName:
    """Name of an object that can't be decoded otherwise."""

    namespace: str
    name: str


class Pager:
    """Reader of a list, page by page; starts again if the server drops the continuation.

    After some restarts it requests the whole list in one page.
    """

    def __init__(
        self, transport: Transport, selection: ListQuery, page_size: int, accept: str = _JSON
    ) -> None:
        self._transport = transport
        self._accept = accept
        self._selection = selection
        self._page_size = page_size
        self._restarts = 0

    async def next(self, last: ListPage | None) -> ListPage:
        """Return the page after ``last``; the first one for None, and perhaps also for others."""
        while True:
            try:
                return await self._fetch("" if last is None else last.next_page)
            except GoneError:
                if last is None:
                    raise
                last = None
                self._restarts += 1

    async def _fetch(self, next_page: str) -> ListPage:
        selection = self._selection
        path = with_query(
            selection.path,
            limit=self._page_size if self._restarts < _RESTARTS else None,
            labelSelector=selection.labels,
            fieldSelector=selection.fields,
            **{"continue": next_page},
        )
        body = await self._transport.call(Request("GET", path, accept=self._accept))
        body, head = read_list_head(body, f"GET {selection.path}")
        return ListPage(body, not next_page, head.next_page, head.resource_version)


async def list_versions(transport: Transport, selection: ListQuery, refresh: int) -> VersionList:
    """Return the versions of all selected objects.  Raises ClusterError."""
    pager = Pager(transport, selection, _VERSIONS_PER_PAGE, _METADATA)
    objects: list[ObjectVersion] = []
    page = None
    while page is None or page.next_page:
        page = await pager.next(page)
        if page.is_first:
            objects.clear()
        try:
            items = decode_json(page.body, _ItemList[_VersionedObject]).items or ()
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ClusterError(f"list of {selection.kind_type.PLURAL}: {error}") from None
        objects += (each.metadata for each in items)
    return VersionList(tuple(objects), page.resource_version, refresh)


def read_list_head(body: bytes, subject: str) -> tuple[bytes, _ListMeta]:
    """Return a list and its metadata; values that are nested too deep are removed.

    Raises ClusterError with ``subject``, the request, if the body is no list.
    """
    try:
        try:
            return body, decode_json(body, _ListHead).metadata
        except RecursionError:  # of one object that none of the others is to suffer from
            log.warning("list with values nested too deep", extra={"list": subject})
            body = cut_nesting(body)
            return body, decode_json(body, _ListHead).metadata
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ClusterError(f"{subject}: the answer is no list: {error}") from None


def decode_page(
    page: ListPage,
    kind_type: type[KindT],
    is_current: Callable[[ObjectVersion], bool] | None = None,
) -> tuple[list[KindT], list[UndecodedName]]:
    """Return the objects of a page, and the names of those that can't be decoded.

    Objects whose version ``is_current`` are not decoded, which would take most of the time of a
    repeated list; their names are returned, too.
    """
    if is_current is not None:
        return _decode_items(page, kind_type, is_current)
    try:
        whole: _ItemList[KindT] = decode(page.body, _ItemList[kind_type])  # type: ignore[valid-type]  # at run time
    except InputError:
        return _decode_items(page, kind_type)
    return list(whole.items or ()), []


def decode_named(raw: msgspec.Raw, kind_type: type[KindT]) -> KindT | UndecodedName | None:
    """Return an object; its name if it can't be decoded, which is logged; None without a name."""
    try:
        return decode(raw, kind_type)
    except InputError as error:
        name = _name_in(raw)
        log.warning(
            "object left out: it cannot be decoded",
            extra={"kind": kind_type.KIND, "object": f"{name.namespace}/{name.name}".lstrip("/"),
                   "error": str(error)},
        )  # fmt: skip
        return name if name.name else None


def _version_of(raw: msgspec.Raw) -> ObjectVersion | None:
    try:
        return _VERSIONED.decode(raw).metadata
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _name_in(raw: msgspec.Raw) -> UndecodedName:
    try:
        meta = decode(cut_nesting(bytes(raw)), _NamedObject).metadata
    except InputError:
        return UndecodedName("", "")
    return UndecodedName(meta.namespace, meta.name)


def _decode_items(
    page: ListPage,
    kind_type: type[KindT],
    is_current: Callable[[ObjectVersion], bool] | None = None,
) -> tuple[list[KindT], list[UndecodedName]]:
    try:
        raws = decode(page.body, _ItemList[msgspec.Raw]).items or ()
    except InputError as error:
        raise ClusterError(f"list of {kind_type.PLURAL}: {error}") from None
    objects: list[KindT] = []
    names: list[UndecodedName] = []
    for raw in raws:
        if is_current is not None and (version := _version_of(raw)) and is_current(version):
            names.append(UndecodedName(version.namespace, version.name))
            continue
        decoded = decode_named(raw, kind_type)
        if isinstance(decoded, UndecodedName):
            names.append(decoded)
        elif decoded is not None:
            objects.append(decoded)
    return objects, names
