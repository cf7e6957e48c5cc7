"""Integer program for the fewest moves that make room, for small clusters and as a benchmark.

The program does not require an order in which each target has room, so its number of moves is a
lower bound for sequential plans.  A pod does not move within its node.
"""

import math
from dataclasses import field
from itertools import chain

import numpy as np

from koordinator.descheduler.plugins.gpu_defragmentation.room.problem import (
    MemberPlace,
    RoomCluster,
    RoomLedger,
    RoomPlan,
    RoomRequest,
)
from koordinator.domain.gpus.mix import WHOLE_GPU
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.linear_program import IntegerProgram

#: Of a plan's cost in its number of moves: all costs together count less than one move.
_COST_WEIGHT = 0.5


@dataclass(slots=True)
class _Variables:
    """Positions of variables in the solution."""

    members: dict[tuple[int, int], int] = field(default_factory=dict)  # row, group
    given: dict[tuple[int, int], int] = field(default_factory=dict)  # row, GPU: to a member
    taken: dict[tuple[int, int], int] = field(default_factory=dict)  # row, GPU: by pods that come
    goes: dict[int, int] = field(default_factory=dict)  # pod
    comes: dict[tuple[int, int], int] = field(default_factory=dict)  # pod, row
    shares: dict[tuple[int, int, int], int] = field(default_factory=dict)  # pod, row, GPU


def fewest_moves(cluster: RoomCluster, request: RoomRequest) -> int | None:
    """Return the minimum number of moves; None if no moves make the room."""
    variables, solution = _solved(cluster, request)
    if solution is None:
        return None
    return sum(solution[position] for position in variables.goes.values())


def solve_room(cluster: RoomCluster, request: RoomRequest) -> RoomPlan | None:
    """Return a cheapest plan with the fewest moves.

    The result is None if there is none, or if these moves have no feasible order.
    """
    variables, solution = _solved(cluster, request)
    if solution is None:
        return None
    places = []
    for (row, group), position in variables.members.items():
        given = [slot for (r, slot), p in variables.given.items() if r == row and solution[p]]
        own = given if request.groups is None else request.groups[row][group]
        gpus = [slot for slot in given if slot in own]
        for _ in range(solution[position]):
            places.append(MemberPlace(row, tuple(gpus[: request.gpus])))
            gpus = gpus[request.gpus :]
    targets = {pod: row for (pod, row), position in variables.comes.items() if solution[position]}
    return _ordered(cluster, request, places, targets)


def _ordered(
    cluster: RoomCluster, request: RoomRequest, places: list[MemberPlace], targets: dict[int, int]
) -> RoomPlan | None:
    """Return the plan with its moves in a feasible order; None without one."""
    ledger = RoomLedger(cluster)
    kept = {(place.row, slot) for place in places for slot in place.gpus}
    for row, slot in kept:  # from moved pods
        ledger.gpu_free[row, slot] -= WHOLE_GPU
    left = dict(sorted(targets.items()))
    while left:
        before = len(left)
        for pod, row in list(left.items()):
            has_room = bool((ledger.free[row] >= ledger.pods[pod].requests).all())
            if has_room and ledger.move(pod, row):
                del left[pod]
        if len(left) == before:
            return None
    for place in places:
        ledger.free[place.row] -= request.requests
    if (ledger.free[[place.row for place in places]] < 0).any():
        return None
    return RoomPlan(tuple(ledger.moves.values()), tuple(places), ledger.cost())


def _solved(cluster: RoomCluster, request: RoomRequest) -> tuple[_Variables, list[int] | None]:
    program, variables = IntegerProgram(), _Variables()
    if not _add_members(program, variables, cluster, request):
        return variables, None
    _add_moves(program, variables, cluster)
    _add_gpu_limits(program, variables, cluster)
    _add_resource_limits(program, variables, cluster, request)
    solution = program.solve()
    return variables, None if solution is None else solution.tolist()


def _add_members(
    program: IntegerProgram, variables: _Variables, cluster: RoomCluster, request: RoomRequest
) -> bool:
    """Require places for all members; return False if there can't be any."""
    by_domain: dict[int, list[int]] = {}
    for row in range(len(cluster.free)):
        if request.accepts is not None and not request.accepts[row]:
            continue
        domain = 0 if request.domain is None else int(request.domain[row])
        own = _add_members_of(program, variables, cluster, request, row) if domain >= 0 else []
        if own:
            by_domain.setdefault(domain, []).extend(own)
    if not by_domain:
        return False
    everyone = dict.fromkeys(chain.from_iterable(by_domain.values()), 1.0)
    program.add_row(request.members, request.members, everyone)
    chosen = {domain: program.add_variable() for domain in by_domain}
    program.add_row(1.0, 1.0, dict.fromkeys(chosen.values(), 1.0))
    for domain, own in by_domain.items():
        limits = {**dict.fromkeys(own, 1.0), chosen[domain]: -float(request.members)}
        program.add_row(-math.inf, 0.0, limits)
    return True


def _add_members_of(
    program: IntegerProgram,
    variables: _Variables,
    cluster: RoomCluster,
    request: RoomRequest,
    row: int,
) -> list[int]:
    """Require GPUs for the members on a row; return the variables of their number, by group."""
    slots = np.flatnonzero(cluster.gpu_free[row] >= 0).tolist()
    groups = [tuple(slots)] if request.groups is None else list(request.groups[row])
    own = []
    for number, group in enumerate(groups):
        most = len(group) // request.gpus if request.gpus else request.members
        if request.groups is not None:
            most = min(most, 1)
        if most:
            own.append(program.add_variable(highest=most))
            variables.members[row, number] = own[-1]
    if not own:
        return own
    for slot in slots:
        variables.given[row, slot] = program.add_variable()
    for number, group in enumerate(groups):
        if (row, number) in variables.members:
            enough = {variables.given[row, slot]: 1.0 for slot in group}
            enough[variables.members[row, number]] = -float(request.gpus)
            program.add_row(0.0, math.inf, enough)
    total = {variables.given[row, slot]: 1.0 for slot in slots}
    program.add_row(0.0, 0.0, total | dict.fromkeys(own, -float(request.gpus)))
    return own


def _add_moves(program: IntegerProgram, variables: _Variables, cluster: RoomCluster) -> None:
    """Add variables for the targets of pods, and require a target for each moved pod."""
    weight = _COST_WEIGHT / max(sum(pod.cost for pod in cluster.pods), 1e-9)
    for index, pod in enumerate(cluster.pods):
        if not pod.may_move:
            continue
        goes = variables.goes[index] = program.add_variable(1.0 + weight * pod.cost)
        comes = {goes: -1.0}
        for row in range(len(cluster.free)):
            if row == pod.row or (pod.accepts is not None and not pod.accepts[row]):
                continue
            position = variables.comes[index, row] = program.add_variable()
            comes[position] = 1.0
            if pod.is_share:
                slots = np.flatnonzero(cluster.gpu_free[row] >= 0).tolist()
                own = {position: -1.0}
                for slot in slots:
                    share = variables.shares[index, row, slot] = program.add_variable()
                    own[share] = 1.0
                program.add_row(0.0, 0.0, own)
        program.add_row(0.0, 0.0, comes)


def _add_gpu_limits(program: IntegerProgram, variables: _Variables, cluster: RoomCluster) -> None:
    """Limit the allocation of each GPU."""
    holders: dict[tuple[int, int], list[int]] = {}
    for index, pod in enumerate(cluster.pods):
        for slot in pod.gpus:
            holders.setdefault((pod.row, slot), []).append(index)
    shares_at: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for (index, row, slot), position in variables.shares.items():
        shares_at.setdefault((row, slot), []).append((position, cluster.pods[index].gpu_milli))
    for row, slot in np.argwhere(cluster.gpu_free >= 0).tolist():
        taken = variables.taken[row, slot] = program.add_variable()
        limits = {taken: float(WHOLE_GPU)}
        if (row, slot) in variables.given:
            limits[variables.given[row, slot]] = float(WHOLE_GPU)
        for index in holders.get((row, slot), ()):
            if index in variables.goes:
                limits[variables.goes[index]] = -float(cluster.pods[index].gpu_milli)
        for position, milli in shares_at.get((row, slot), ()):
            limits[position] = float(milli)
        program.add_row(-math.inf, float(cluster.gpu_free[row, slot]), limits)
    _add_coming(program, variables, cluster)


def _add_coming(program: IntegerProgram, variables: _Variables, cluster: RoomCluster) -> None:
    """Require the requested number of whole GPUs on the targets of pods."""
    whole_at: dict[int, dict[int, float]] = {}
    for (index, row), position in variables.comes.items():
        pod = cluster.pods[index]
        if pod.gpus and not pod.is_share:
            whole_at.setdefault(row, {})[position] = -float(len(pod.gpus))
    for row, coming in whole_at.items():
        slots = np.flatnonzero(cluster.gpu_free[row] >= 0).tolist()
        taken_there = {variables.taken[row, slot]: 1.0 for slot in slots}
        program.add_row(0.0, math.inf, {**taken_there, **coming})


def _add_resource_limits(
    program: IntegerProgram, variables: _Variables, cluster: RoomCluster, request: RoomRequest
) -> None:
    """Limit the allocation of the other resources of each node."""
    for row, free in enumerate(cluster.free.tolist()):
        for column, amount in enumerate(free):
            limits: dict[int, float] = {}
            for (at, _), position in variables.members.items():
                if at == row and request.requests[column]:
                    limits[position] = float(request.requests[column])
            for index, pod in enumerate(cluster.pods):
                demand = float(pod.requests[column])
                if not demand:
                    continue
                if pod.row == row and index in variables.goes:
                    limits[variables.goes[index]] = -demand
                elif (index, row) in variables.comes:
                    limits[variables.comes[index, row]] = demand
            if limits:
                # A node that holds more than it has needs no repair.
                program.add_row(-math.inf, float(max(amount, 0)), limits)
