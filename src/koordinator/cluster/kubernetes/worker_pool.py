"""Tasks that work side by side for as long as there is work."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class WorkerPool:
    """Runs ``work`` several times at once; each run ends when it finds nothing to do."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._work = work
        self._tasks: set[asyncio.Task[None]] = set()
        self.size = 0  # exact, unlike the number of tasks: one that has ended is there a bit longer

    def hire(self, wanted: int) -> None:
        """See to it that at least so many are at work."""
        while self.size < wanted:
            self.size += 1
            task = asyncio.create_task(self._run())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self) -> None:
        try:
            await self._work()
        finally:
            self.size -= 1
