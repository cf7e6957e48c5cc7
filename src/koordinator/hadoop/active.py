"""Client of the active ResourceManager of a cluster with high availability."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from koordinator.hadoop.port import (
    ResourceManager,
    UnknownYarnNodeError,
    YarnError,
    YarnLimit,
    YarnNode,
)

AnswerT = TypeVar("AnswerT")


class ActiveResourceManager:
    """``port.ResourceManager`` that uses the active one of several candidates.

    The active one is determined at the first call and after every failure.  A single candidate is
    always used.
    """

    def __init__(self, candidates: Sequence[ResourceManager]) -> None:
        if not candidates:
            raise ValueError("a cluster has at least one ResourceManager")
        self._candidates = candidates
        self._active: ResourceManager | None = None

    def nodes(self) -> Sequence[YarnNode]:
        return self._ask(lambda active: active.nodes())

    def node(self, node_id: str) -> YarnNode | None:
        return self._ask(lambda active: active.node(node_id))

    def set_limit(self, limit: YarnLimit) -> None:
        self._ask(lambda active: active.set_limit(limit))

    def signal_container(self, container_id: str) -> None:
        self._ask(lambda active: active.signal_container(container_id))

    def is_active(self) -> bool:
        return self._find() is not None

    def close(self) -> None:
        for each in self._candidates:
            each.close()

    def _ask(self, question: Callable[[ResourceManager], AnswerT]) -> AnswerT:
        if self._active is None:
            self._active = self._find()
        try:
            return question(self._active)
        except UnknownYarnNodeError:
            raise
        except YarnError:
            self._active = None
            raise

    def _find(self) -> ResourceManager:
        if len(self._candidates) == 1:
            return self._candidates[0]
        problems = []
        for each in self._candidates:
            try:
                if each.is_active():
                    return each
                problems.append("stands by")
            except YarnError as error:
                problems.append(str(error))
        raise YarnError(f"no ResourceManager is active: {'; '.join(problems)}")
