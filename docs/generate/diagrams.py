"""Diagrams of the concept pages: boxes in a grid, and arrows between them, as SVG.

``python -m docs.generate.diagrams`` draws all of them into ``docs/images/concepts`` again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parents[1] / "images/concepts"

_WIDTH, _HEIGHT = 170, 58  # of a box
_GAP_X, _GAP_Y = 90, 44
_MARGIN = 14
_FONT = 'font-family="sans-serif" font-size="12"'
_ARROW_HEAD = (
    '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" '
    'markerHeight="8" orient="auto"><path d="M0 0 8 4 0 8z" fill="#5b6b7f"/></marker></defs>'
)
_LINE = 15  # from one line of text to the next


@dataclass(frozen=True, slots=True)
class Box:
    """A box at a column and a row of the grid; the first line of its text is its title."""

    column: int
    row: int
    text: str
    is_outside: bool = False  # drawn dashed: not a part of koordinator

    @property
    def corner(self) -> tuple[int, int]:
        """The upper left corner, in pixels."""
        return (
            _MARGIN + self.column * (_WIDTH + _GAP_X),
            _MARGIN + self.row * (_HEIGHT + _GAP_Y),
        )


@dataclass(frozen=True, slots=True)
class Arrow:
    """An arrow from one box to another, by their names, with a label."""

    source: str
    target: str
    label: str = ""


@dataclass(frozen=True, slots=True)
class Diagram:
    """Boxes by name, and arrows; ``title`` is read aloud by a screen reader."""

    title: str
    boxes: Mapping[str, Box]
    arrows: tuple[Arrow, ...]

    def svg(self) -> str:
        """Return the picture; its colours suit a light and a dark page."""
        width = max(box.corner[0] for box in self.boxes.values()) + _WIDTH + _MARGIN
        height = max(box.corner[1] for box in self.boxes.values()) + _HEIGHT + _MARGIN
        body = [line for box in self.boxes.values() for line in _box_lines(box)]
        for arrow in self.arrows:
            body += _arrow_lines(self.boxes[arrow.source], self.boxes[arrow.target], arrow.label)
        size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" {_FONT}>',
            f"<title>{escape(self.title)}</title>",
            _ARROW_HEAD,
            *body,
            "</svg>",
        ]
        return "".join(f"{line}\n" for line in lines)


def _box_lines(box: Box) -> Iterable[str]:
    x, y = box.corner
    dash = ' stroke-dasharray="5 3"' if box.is_outside else ""
    yield (
        f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="6" fill="#eef3fa" '
        f'stroke="#3b6ea5"{dash}/>'
    )
    lines = box.text.split("\n")
    first = y + _HEIGHT // 2 - (len(lines) - 1) * _LINE // 2 + 4
    for number, line in enumerate(lines):
        weight = ' font-weight="bold"' if number == 0 else ""
        yield (
            f'<text x="{x + _WIDTH // 2}" y="{first + number * _LINE}" text-anchor="middle" '
            f'fill="#16283c"{weight}>{escape(line)}</text>'
        )


def _arrow_lines(source: Box, target: Box, label: str) -> Iterable[str]:
    (x1, y1), (x2, y2) = _ends(source, target)
    yield (
        f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#5b6b7f" stroke-width="1.5" '
        'marker-end="url(#head)"/>'
    )
    is_level = y1 == y2
    lines = label.split("\n") if label else []
    x, y = (x1 + x2) // 2, (y1 + y2) // 2
    for number, line in enumerate(lines):
        if is_level:
            place = f'x="{x}" y="{y - 6 - (len(lines) - 1 - number) * _LINE}" text-anchor="middle"'
        elif x1 == x2:
            place = f'x="{x + 6}" y="{y + 4 + number * _LINE}"'
        else:
            side = 12 if x2 > x1 else -12
            anchor = "start" if x2 > x1 else "end"
            place = f'x="{x + side}" y="{y - 4 + number * _LINE}" text-anchor="{anchor}"'
        yield f'<text {place} fill="#5b6b7f" font-size="11">{escape(line)}</text>'


def _ends(source: Box, target: Box) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return where an arrow leaves one box and meets the other, side to side or top to bottom."""
    (x1, y1), (x2, y2) = source.corner, target.corner
    middle1, middle2 = y1 + _HEIGHT // 2, y2 + _HEIGHT // 2
    if source.row == target.row:
        if source.column < target.column:
            return (x1 + _WIDTH, middle1), (x2, middle2)
        return (x1, middle1), (x2 + _WIDTH, middle2)
    centre1, centre2 = x1 + _WIDTH // 2, x2 + _WIDTH // 2
    if source.row < target.row:
        return (centre1, y1 + _HEIGHT), (centre2, y2)
    return (centre1, y1), (centre2, y2 + _HEIGHT)


def _arrows(text: str) -> tuple[Arrow, ...]:
    """Read lines of the form ``source > target: label``."""
    made = []
    for line in text.strip().splitlines():
        ends, _, label = line.partition(":")
        source, target = ends.split(">")
        made.append(Arrow(source.strip(), target.strip(), label.strip().replace(" / ", "\n")))
    return tuple(made)


DIAGRAMS: Final[Mapping[str, Diagram]] = {
    "qos-classes": Diagram(
        "Priority bands and QoS classes of the pods on a node",
        {
            "prod": Box(0, 0, "prod\n9000 to 9999"),
            "mid": Box(0, 1, "mid\n7000 to 7999"),
            "batch": Box(0, 2, "batch\n5000 to 5999"),
            "cpuset": Box(1, 0, "LSE, LSR\nCPUs of their own"),
            "shared": Box(2, 0, "LS\nshared CPUs"),
            "midls": Box(1, 1, "LS\nmid resources"),
            "be": Box(1, 2, "BE\nbatch resources"),
        },
        _arrows("prod > cpuset\ncpuset > shared\nmid > midls\nbatch > be"),
    ),
    "batch-and-mid": Diagram(
        "Computation of batch and mid resources of a node",
        {
            "kubelet": Box(0, 0, "kubelet\npods, capacity", is_outside=True),
            "koordlet": Box(0, 1, "koordlet\nusage, prediction"),
            "metric": Box(1, 1, "NodeMetric"),
            "manager": Box(2, 1, "koord manager\ncolocation-config"),
            "node": Box(2, 0, "Node status\nbatch-cpu, mid-cpu, …"),
            "scheduler": Box(1, 0, "scheduler"),
        },
        _arrows(
            "kubelet > koordlet\nkoordlet > metric: reports\nmetric > manager: usage\n"
            "manager > node: patches\nnode > scheduler: allocatable"
        ),
    ),
    "gangs": Diagram(
        "Life of a gang from its pods to the bind",
        {
            "pods": Box(0, 0, "Pods\nof one gang"),
            "gate": Box(1, 0, "Queue\nuntil minMember exist"),
            "cycle": Box(2, 0, "One cycle\nall members together"),
            "permit": Box(2, 1, "Permit\nuntil the group is whole"),
            "bind": Box(1, 1, "Bind\nevery member"),
            "back": Box(3, 0, "Rejected\nnothing is kept"),
        },
        _arrows(
            "pods > gate\ngate > cycle\ncycle > permit: enough fit\npermit > bind: whole\n"
            "cycle > back: too few fit"
        ),
    ),
    "quotas": Diagram(
        "A tree of elastic quotas and the flow of a pod's request",
        {
            "root": Box(1, 0, "Root\nall nodes' resources"),
            "a": Box(0, 1, "research\nmin 40, max 80"),
            "b": Box(2, 1, "serving\nmin 60, max 100"),
            "a1": Box(0, 2, "training\nmin 30, max 80"),
            "pod": Box(1, 2, "Pod\nlabel quota-name"),
        },
        _arrows(
            "root > a: runtime, by weight\nroot > b: runtime\na > a1: runtime\npod > a1: request"
        ),
    ),
    "reservations": Diagram(
        "Life of a Reservation and of the pod that uses it",
        {
            "made": Box(0, 0, "Reservation\nPending"),
            "place": Box(1, 0, "Scheduler\nas for a pod"),
            "ready": Box(2, 0, "Reservation\nAvailable on a node"),
            "pod": Box(2, 1, "Pod\nmatches an owner"),
            "done": Box(3, 0, "Succeeded\nallocateOnce, used"),
            "expired": Box(3, 1, "Failed\nExpired"),
        },
        _arrows(
            "made > place\nplace > ready\npod > ready: takes its room\nready > done\n"
            "ready > expired: ttl"
        ),
    ),
    "devices": Diagram(
        "Reporting, allocation and injection of devices",
        {
            "nvml": Box(0, 0, "NVML, npu-smi, …\ndriver tools", is_outside=True),
            "koordlet": Box(0, 1, "koordlet\ndevice-daemon"),
            "device": Box(1, 1, "Device\nper node"),
            "manager": Box(1, 0, "koord manager\nnode resources"),
            "scheduler": Box(2, 1, "scheduler\nDeviceShare"),
            "pod": Box(2, 0, "Pod annotation\ndevice-allocated"),
        },
        _arrows(
            "nvml > koordlet\nkoordlet > device: reports\ndevice > manager: sums\n"
            "device > scheduler: minors\nscheduler > pod: writes\n"
        ),
    ),
    "numa": Diagram(
        "NUMA-aware scheduling of CPUs, memory and devices",
        {
            "koordlet": Box(0, 0, "koordlet"),
            "nrt": Box(1, 0, "NodeResourceTopology\nzones, CPU topology"),
            "scheduler": Box(2, 0, "scheduler\nhints, policy, alignment"),
            "pod": Box(2, 1, "Pod annotation\nresource-status"),
            "cgroup": Box(0, 1, "cpuset cgroups\nof the containers"),
        },
        _arrows(
            "koordlet > nrt: reports\nnrt > scheduler\nscheduler > pod: CPUs, zones\n"
            "pod > cgroup: koordlet applies"
        ),
    ),
    "descheduling": Diagram(
        "A pod migration from its selection to its eviction",
        {
            "plugins": Box(0, 0, "Plugins\ndeschedule, balance"),
            "job": Box(1, 0, "PodMigrationJob"),
            "limits": Box(2, 0, "Arbitration\nlimits, order"),
            "reserve": Box(2, 1, "Reservation\nfor the replacement"),
            "evict": Box(1, 1, "Eviction\nof the pod"),
            "replace": Box(0, 1, "Replacement\nuses the reservation", is_outside=True),
        },
        _arrows(
            "plugins > job: candidates\njob > limits\nlimits > reserve: admitted\n"
            "reserve > evict: Available\nevict > replace: workload"
        ),
    ),
    "colocation-loop": Diagram(
        "The co-location loop between services, batch pods and the node agent",
        {
            "services": Box(0, 0, "Services\nprod pods"),
            "koordlet": Box(1, 0, "koordlet\nevery second"),
            "batch": Box(2, 0, "Batch pods\nbest effort"),
            "manager": Box(1, 1, "koord manager\nevery minute"),
            "scheduler": Box(2, 1, "scheduler"),
        },
        _arrows(
            "services > koordlet: usage\nkoordlet > batch: suppress, / evict\n"
            "koordlet > manager: NodeMetric\nmanager > scheduler: batch-cpu, / batch-memory\n"
            "scheduler > batch: places"
        ),
    ),
}


def draw_all(folder: Path = FOLDER) -> None:
    """Write every diagram as ``NAME.svg``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, diagram in DIAGRAMS.items():
        (folder / f"{name}.svg").write_text(diagram.svg(), "utf-8")


if __name__ == "__main__":
    draw_all()
