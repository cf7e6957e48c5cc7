"""Base of tasks that follow a remote source and put its pages and events into a mailbox."""

import asyncio
from abc import ABC, abstractmethod

from koordinator.cluster.kubernetes.mailbox import Mailbox, WatchRefusal
from koordinator.foundation.errors import BugError


class Follower(ABC):
    """Runs until stopped; must be started on a loop.

    ``_refresh`` counts the requested relists; each page carries the number of its relist.
    """

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self._refresh = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to follow, until stopped."""
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(self._report_fault)

    def refresh(self) -> None:
        """Read everything again, now; the pages carry the number of this call."""
        self._refresh += 1
        self.stop()
        self.start()

    def stop(self) -> None:
        """End it."""
        if self._task is not None:
            self._task.cancel()

    @abstractmethod
    async def _run(self) -> None: ...

    def _report_fault(self, ended: "asyncio.Task[None]") -> None:
        """Raise an unexpected exception in the reader of the mailbox, which would wait forever."""
        if not ended.cancelled() and (error := ended.exception()) is not None:
            fault = BugError(f"{type(self).__name__} broke down: {error!r}")
            self._mailbox.put_at_once(WatchRefusal(fault))
