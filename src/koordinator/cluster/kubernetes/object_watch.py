"""Watch of one object, for a reader that polls it and wants to read it earlier."""

import logging
from collections.abc import Callable
from contextlib import aclosing
from typing import Final

from koordinator.api.meta import KubeObject
from koordinator.cluster.kubernetes.failures import ForbiddenError
from koordinator.cluster.kubernetes.resources import collection_path, with_query
from koordinator.cluster.kubernetes.transport import Request, Transport
from koordinator.foundation.errors import ClusterError

_TIMEOUT_S: Final = 300  # for which the server keeps a stream open
_RETRY_S: Final = 2.0
_FORBIDDEN_RETRY_S: Final = 60.0  # a role may be extended while the process runs

log = logging.getLogger(__name__)


async def watch_object(
    transport: Transport,
    kind_type: type[KubeObject],
    name: str,
    namespace: str,
    on_change: Callable[[], None],
    *,
    silence_s: float,
) -> None:
    """Call ``on_change`` after every event of an object, and when the watch begins.

    It ends when it is cancelled.  Nothing is decoded, and a failure is not raised: the caller reads
    the object also without this.
    """
    path = with_query(
        collection_path(kind_type, namespace),
        watch="true",
        fieldSelector=f"metadata.name={name}",
        timeoutSeconds=_TIMEOUT_S,
    )
    request = Request("GET", path)
    level = logging.INFO  # for the first refusal
    while True:
        delay_s = _RETRY_S
        try:
            async with aclosing(transport.stream(request, silence_s)) as chunks:
                async for _ in chunks:
                    on_change()
        except ForbiddenError as error:
            log.log(level, "watch forbidden: polling only", extra={"error": str(error)})
            level = logging.DEBUG
            delay_s = _FORBIDDEN_RETRY_S
        except ClusterError as error:
            log.debug("watch interrupted", extra={"error": str(error)})
        await transport.pause(delay_s)
