"""Executor of intents of all kinds, with an audit entry per write.

Source: koordinator pkg/koordlet/resourceexecutor; pkg/koordlet/qosmanager/plugins/util/evictor.go,
helpers/kill.go.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from koordinator.domain.cgroups.files import device_line, has_device_line
from koordinator.foundation.clock import Clock, SystemClock, to_datetime
from koordinator.foundation.errors import (
    Fault,
    FaultHandler,
    HostError,
    MissingFileError,
    fault_of,
    raise_fault,
)
from koordinator.host.port import CoreScheduling, Host, Roots
from koordinator.koordlet.cgroup_tree import CgroupTree
from koordinator.koordlet.executor.audit import AgentAuditTrail, AuditEvent
from koordinator.koordlet.executor.cgroup_writer import (
    FORCED_AFTER_S,
    KEPT_S,
    CgroupWrite,
    CgroupWriter,
    ResctrlWriter,
)
from koordinator.koordlet.executor.cookie_writer import CookieWriter
from koordinator.koordlet.intents import (
    EndContainers,
    EvictPod,
    Intent,
    RemoveResctrl,
    SetBlockDevice,
    SetCgroup,
    SetCoreCookie,
    SetFile,
    SetOomScore,
    SetResctrl,
)

STAGE = "applying"

log = logging.getLogger(__name__)


def fault_over(intent: Intent, error: Exception) -> Fault:
    """Return the fault; its source is the audit type of the intent."""
    return fault_of(STAGE, error, kind_of(intent), target_of(intent))


def kind_of(intent: Intent) -> str:
    """Return the audit type of an intent."""
    match intent:
        case SetCgroup() | SetBlockDevice():
            return "cgroup"
        case SetFile():
            return "file"
        case SetResctrl() | RemoveResctrl():
            return "resctrl"
        case SetOomScore():
            return "oom"
        case SetCoreCookie():
            return "core"
        case EvictPod():
            return "eviction"


def target_of(intent: Intent) -> str:
    """Return the target of an intent, from its own fields."""
    match intent:
        case SetCgroup(file=file, folder=folder) | SetBlockDevice(file=file, folder=folder):
            return f"{folder}/{file}"
        case SetFile(tree=tree, path=path):
            return f"{tree}/{path}"
        case SetResctrl(group=group) | RemoveResctrl(group=group):
            return group
        case SetOomScore(folder=folder) | SetCoreCookie(folder=folder):
            return folder
        case EvictPod(namespace=namespace, name=name):
            return f"{namespace}/{name}"


def owner_of(intent: Intent) -> str:
    """Return the owner of an intent, for the audit."""
    match intent:
        case SetResctrl() | RemoveResctrl() | EvictPod():
            return target_of(intent)
        case _:
            return intent.owner


#: Called after each change of the machine with its kind, its duration, and whether it failed.
WriteObserver = Callable[[str, float, bool], None]


class Executor:
    """Executor of intents.  Errors of the machine are audited and logged, not raised.

    For an intent with an unexpected exception ``on_fault`` is called, and all others are applied;
    the default raises.  ``outcomes`` counts by kind and by ``written`` or ``failed``.
    """

    def __init__(
        self,
        host: Host,
        roots: Roots,
        cgroups: CgroupTree,
        audit: AgentAuditTrail,
        *,
        core_scheduling: CoreScheduling,
        forced_after_s: float = FORCED_AFTER_S,
        on_fault: FaultHandler = raise_fault,
        clock: Clock | None = None,
        on_write: WriteObserver | None = None,
    ) -> None:
        self.audit = audit
        self.cookies = CookieWriter(core_scheduling, cgroups)
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self._host = host
        self._roots = roots
        self._cgroups = cgroups
        self._clock = clock or SystemClock()
        self._on_write = on_write
        self._writer = CgroupWriter(cgroups, forced_after_s, self._clock)
        self._resctrl = ResctrlWriter(host, cgroups, roots.resctrl)
        self._on_fault = on_fault
        self._refused: dict[str, tuple[str, float]] = {}  # last error and its time, by file

    def apply(self, intents: Iterable[Intent], now_s: float) -> Sequence[CgroupWrite]:
        """Apply the intents, except evictions, for which there is ``kill``.

        Return the writes to cgroups, including failed ones.
        """
        together = list(intents)
        for intent in together:
            began_s = self._clock.now_s()
            try:
                for error in self._apply(intent, now_s):
                    self._observe(kind_of(intent), self._clock.now_s() - began_s, error)
            except Exception as error:  # noqa: BLE001 -- reported
                self._break(intent, error, now_s)
        self._set_cookies([each for each in together if isinstance(each, SetCoreCookie)], now_s)
        writes = self._writer.apply([it for it in together if isinstance(it, SetCgroup)], now_s)
        for write in writes:
            self._note_write(write, now_s)
            self._observe("cgroup", write.took_s, write.error)
        self.audit.flush(now_s)
        return writes

    def kill(self, victim: EvictPod, now_s: float) -> int:
        """Kill every process of a pod's containers; return their number.

        The cgroup of a container must be a direct child of the pod's, and the host checks the
        cgroup of each process, so that no process of another pod is killed.
        """
        ended = 0
        problem = ""
        for folder in victim.folders:
            if not victim.pod_folder or folder.rpartition("/")[0] != victim.pod_folder:
                problem = f"{folder} is not a container cgroup of {victim.pod_folder or 'a pod'}"
                continue
            try:
                for pid in self._cgroups.processes(folder):
                    try:
                        ended += self._host.kill(pid, folder)
                    except HostError as error:
                        problem = str(error)
            except Exception as error:  # noqa: BLE001 -- reported
                self._break(victim, error, now_s)
        key = f"{victim.namespace}/{victim.name}"
        self._note("eviction", key, "", "", f"{ended} processes ended", victim.message, problem,
                   now_s)  # fmt: skip
        return ended

    def note_eviction(
        self, victim: EvictPod, error: str, now_s: float, done: str = "evicted"
    ) -> None:
        """Audit an eviction by the API server or a stop by the runtime."""
        key = f"{victim.namespace}/{victim.name}"
        self._note("eviction", key, "", "", done, victim.message, error, now_s)

    def note_release(self, request: EndContainers, released: str, error: str, now_s: float) -> None:
        """Audit a release of containers of another runtime."""
        self._note("eviction", "yarn", "", "", released, request.message, error, now_s)
        self.audit.flush(now_s)

    def note_writes(self, writes: Iterable[CgroupWrite], now_s: float) -> None:
        """Audit writes to cgroups that the caller has done."""
        for write in writes:
            self._note_write(write, now_s)
        self.audit.flush(now_s)

    def note_network(self, target: str, done: str, error: str, now_s: float) -> None:
        """Audit a change of the network."""
        self._note("network", "node", target, "", done, "network QoS", error, now_s)
        self.audit.flush(now_s)

    def note_hook(self, owner: str, hook: str, stage: str, error: str, now_s: float) -> None:
        """Audit a failed call of a hook."""
        self._note("hook", owner, f"{stage}/{hook}", "", "", "runtime hook", error, now_s)
        self.audit.flush(now_s)

    def invalidate(self, folders: Collection[str] | None = None) -> None:
        """Drop the cached values of these cgroups, or of all."""
        self._writer.invalidate(folders)

    def forget(self, now_s: float) -> None:
        """Drop state of cgroups without a recent intent."""
        self._writer.forget(now_s)
        self._refused = {
            file: refusal for file, refusal in self._refused.items() if now_s - refusal[1] < KEPT_S
        }

    def _apply(self, intent: Intent, now_s: float) -> Iterator[str]:
        """Apply an intent; yield the error of each write, empty on success."""
        match intent:
            case SetBlockDevice():
                yield from self._set_block_device(intent, now_s)
            case SetFile():
                yield from self._set_file(intent, now_s)
            case SetOomScore():
                yield from self._set_oom_score(intent, now_s)
            case SetResctrl(group=group, reason=reason):
                for path, before, after, error in self._resctrl.apply(intent):
                    self._note("resctrl", group, path, before, after, reason, error, now_s)
                    yield error
            case RemoveResctrl(group=group, reason=reason):
                error = self._resctrl.remove(group)
                path = f"{self._roots.resctrl}/{group}"
                self._note("resctrl", group, path, "", "removed", reason, error, now_s)
                yield error

    def _observe(self, kind: str, took_s: float, error: str) -> None:
        if self._on_write is not None:
            self._on_write(kind, took_s, bool(error))

    def _note_write(self, write: CgroupWrite, now_s: float) -> None:
        done = write.intent
        if write.unforeseen is not None:
            self._break(done, write.unforeseen, now_s)
            return
        try:
            path = self._cgroups.path(done.file, done.folder) or str(done.file)
            self._note(
                "cgroup", done.owner, path, write.before, write.after, done.reason,
                write.error, now_s,
            )  # fmt: skip
        except Exception as error:  # noqa: BLE001 -- reported
            self._break(done, error, now_s)

    def _set_cookies(self, intents: Sequence[SetCoreCookie], now_s: float) -> None:
        for change in self.cookies.apply(intents):
            cause = change.intent
            if change.unforeseen is not None:
                self._break(cause, change.unforeseen, now_s)
                continue
            after = f"cookie {change.cookie:x} for {change.moved} processes"
            try:
                self._note(
                    "core", cause.owner, cause.folder, "", after, cause.reason, change.error, now_s
                )
            except Exception as error:  # noqa: BLE001 -- reported
                self._break(cause, error, now_s)

    def _set_block_device(self, intent: SetBlockDevice, now_s: float) -> Iterator[str]:
        lines = self._cgroups.lines(intent.file, intent.folder)
        line = device_line(intent.file, intent.device, intent.value, self._cgroups.version)
        before = next((old for old in lines if old.startswith(f"{intent.device} ")), "")
        if has_device_line(line, before) or (intent.reset and not before):
            return
        try:
            self._cgroups.write(intent.file, intent.folder, line)
            error = ""
        except MissingFileError:
            return
        except HostError as failure:
            error = str(failure)
        path = self._cgroups.path(intent.file, intent.folder) or ""
        self._note("cgroup", intent.owner, path, before, line, intent.reason, error, now_s)
        yield error

    def _set_file(self, intent: SetFile, now_s: float) -> Iterator[str]:
        path = self._path(intent)
        try:
            current = self._host.read(path).strip()
        except HostError:
            return  # the kernel lacks it
        matches = current == intent.value
        if intent.matches:
            matches = intent.matches in current.split()
        if matches:
            return
        try:
            self._host.write(path, intent.value)
            error = ""
        except HostError as failure:
            error = str(failure)
        before = "" if intent.matches else current
        self._note("file", intent.owner, path, before, intent.value, intent.reason, error, now_s)
        yield error

    def _path(self, intent: SetFile) -> str:
        match intent.tree:
            case "sysctl":
                return self._roots.sysctl(intent.path)
            case "sys":
                return f"{self._roots.sys}/{intent.path}"
            case _:
                return f"{self._roots.proc}/{intent.path}"

    def _set_oom_score(self, intent: SetOomScore, now_s: float) -> Iterator[str]:
        for pid in self._cgroups.processes(intent.folder):
            path = f"{self._roots.proc}/{pid}/oom_score_adj"
            try:
                before = self._host.read(path).strip()
                if before == str(intent.value):
                    continue
                self._host.write(path, str(intent.value))
                error = ""
            except MissingFileError:
                continue
            except HostError as failure:
                before, error = "", str(failure)
            value = str(intent.value)
            self._note("oom", intent.owner, path, before, value, intent.reason, error, now_s)
            yield error

    def _break(self, intent: Intent, error: Exception, now_s: float) -> None:
        """Audit and report an unexpected exception for one intent."""
        fault = fault_over(intent, error)
        try:
            self._note(kind_of(intent), owner_of(intent), target_of(intent), "", "",
                       intent.reason, fault.problem, now_s)  # fmt: skip
        except Exception as again:  # noqa: BLE001 -- reported: the audit rejects this intent
            self._on_fault(fault_over(intent, again))
        self._on_fault(fault)

    def _note(  # noqa: PLR0917 -- the columns of the audit
        self,
        kind: str,
        owner: str,
        target: str,
        before: str,
        after: str,
        reason: str,
        error: str,
        now_s: float,
    ) -> None:
        self.outcomes[kind, "failed" if error else "written"] += 1
        event = AuditEvent(
            created_at=to_datetime(now_s),
            type=kind,
            owner=owner,
            target=target,
            before=before,
            after=after,
            reason=reason,
            error=error,
        )
        if not error:
            self._refused.pop(target, None)
        elif (known := self._refused.get(target)) is not None and known[0] == error:
            self._refused[target] = (error, now_s)
            return  # once a second would flood the audit
        else:
            self._refused[target] = (error, now_s)
            log.warning("write rejected", extra={"file": target, "value": after, "error": error})
        self.audit.add(event)
