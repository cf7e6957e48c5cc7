"""Resources that processes use over the rounds of the age soak."""

from dataclasses import dataclass, field

DISTURBANCES = 10  # kinds of them


@dataclass(frozen=True, slots=True)
class Usage:
    """Resources of a process after a round."""

    mib: float  # resident and of no file: the kernel may drop pages of files at any time
    threads: int
    files: int


@dataclass(slots=True)
class Course:
    """Result of a soak: usage of each process, watches and duration, after each round."""

    rounds: int = 0
    seconds: list[float] = field(default_factory=list)
    watches: list[int] = field(default_factory=list)  # of all clients, and the server's own
    usage: dict[str, list[Usage]] = field(default_factory=dict)
    disturbances: list[str] = field(default_factory=list)

    @property
    def first(self) -> int:
        """Index of the round that the last one is compared with: at a tenth of the way.

        In a short run later, when each disturbance has happened once, or half of the rounds have
        passed: code that runs for the first time loads modules, makes decoders and opens
        connections.
        """
        return max(self.rounds // 10, min(DISTURBANCES, self.rounds // 2))

    def growth(self) -> dict[str, float]:
        """Return memory at the end divided by memory in the first round that counts."""
        return {name: each[-1].mib / each[self.first].mib for name, each in self.usage.items()}
