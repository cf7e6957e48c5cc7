"""The loop: reports of the cluster go into state and queue, pods from the queue become decisions.

One ``step`` takes in all news and then works until no pod is ready.  Between steps nothing happens,
so whoever embeds the scheduler decides when time passes: a thread that waits for the watch, or a
simulation.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from koordinator.api.codec import subject_of
from koordinator.api.labels import OPERATING_MODE
from koordinator.api.meta import KubeObject, ObjectMeta
from koordinator.api.namespace import Namespace
from koordinator.api.node import Node
from koordinator.api.pod import Container as PodContainer
from koordinator.api.pod import Pod, PodSpec
from koordinator.api.pod_group import PodGroup
from koordinator.api.reservation import Reservation
from koordinator.cluster.port import NO_SELECTORS, Cluster, EventType, Watch, WatchEvent
from koordinator.domain.reservations.owners import claimant_of, is_owner
from koordinator.domain.reservations.reserve_pod import is_reserve_pod, reserve_pod
from koordinator.domain.transforms import as_scheduled
from koordinator.foundation.clock import Clock, to_epoch_s
from koordinator.foundation.faults import Fault, FaultHandler, raise_fault
from koordinator.scheduler.app.audit import Audit
from koordinator.scheduler.app.binding import Assumed, Binder
from koordinator.scheduler.app.binding_cycle import BindingCycle, BindingDoings
from koordinator.scheduler.app.consistency import validate_waiting
from koordinator.scheduler.app.diagnoses import Diagnoses
from koordinator.scheduler.app.evictions import Evictions
from koordinator.scheduler.app.gang_turns import GangDoings, GangTurns
from koordinator.scheduler.app.gates import Gates
from koordinator.scheduler.app.isolation import Isolation, LeftOut, bare
from koordinator.scheduler.app.job_queues import EVENTS, GATE, JobQueues
from koordinator.scheduler.app.journal import Journal, label_of
from koordinator.scheduler.app.limited_pods import LimitedPods
from koordinator.scheduler.app.options import Options
from koordinator.scheduler.app.outcomes import Outcome
from koordinator.scheduler.app.queued_quotas import QueuedQuotas
from koordinator.scheduler.app.recovery import Recovery
from koordinator.scheduler.app.reporter import Reporter
from koordinator.scheduler.app.reservations import ReservationKeeper, build_keeper
from koordinator.scheduler.app.terminating_pods import TerminatingPods
from koordinator.scheduler.app.upkeep import Upkeep
from koordinator.scheduler.contract import Action, ClusterEvent, PostFilterResult, Profile
from koordinator.scheduler.cycle import Choice, Cycle, Refused, Scorecard
from koordinator.scheduler.diagnosis import Diagnosis, never_fits
from koordinator.scheduler.ingest import Ingest, is_over
from koordinator.scheduler.plugins.elastic_quota import ElasticQuotaPlugin
from koordinator.scheduler.queue import Need, Nominator, QueuedPod, SchedulingQueue
from koordinator.scheduler.snapshot import ClusterState, IntArray, PodClass, Snapshot

if TYPE_CHECKING:  # what measures is not loaded where nobody asks for figures
    from koordinator.scheduler.app.metrics import Metrics

log = logging.getLogger(__name__)


class Scheduler:
    """Schedules the pods whose ``schedulerName`` is that of one of the profiles."""

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        profiles: Sequence[Profile],
        state: ClusterState,
        watched: Sequence[type[KubeObject]],
        *,
        field_selectors: Mapping[type[KubeObject], str] = NO_SELECTORS,
        options: Options | None = None,
        metrics: "Metrics | None" = None,
        audit: Audit | None = None,
        on_fault: FaultHandler = raise_fault,
    ) -> None:
        """``on_fault`` is told what broke; by default it is raised, and nothing goes on."""
        self.state = state
        self.options = options or Options()
        self._cluster = cluster
        self._clock = clock
        self._ingest = Ingest(state)
        self._metrics = metrics
        self._isolation = Isolation(profiles, on_fault)
        self._left_out = LeftOut(clock, self._isolation, self._handle, self._leave_out)
        self._keeper = build_keeper(cluster, state, clock, profiles, self._isolation)
        quotas = [
            a.plugin
            for p in profiles
            for a in p.pre_filter
            if isinstance(a.plugin, ElasticQuotaPlugin)
        ]
        untimed = profiles
        if metrics is not None:
            profiles = [metrics.timed(profile) for profile in profiles]
        self.cycles = {p.scheduler_name: Cycle(p, state) for p in profiles}
        hints = {name: events for p in profiles for name, events in p.events.items()}
        hints[GATE] = EVENTS
        self.queue = SchedulingQueue(
            hints,
            lambda pod: self._gates.ask(pod),  # noqa: PLW0108 -- they are made later
            initial_backoff_s=self.options.initial_backoff_s,
            max_backoff_s=self.options.max_backoff_s,
            max_unschedulable_s=self.options.max_unschedulable_s,
        )
        self.nominator = Nominator()
        self._limited = LimitedPods(clock, state, self.queue, self.cycles, self._isolation)
        self._binder = Binder(cluster, state, clock)
        self._journal = Journal(clock, self.queue, self._binder, metrics, audit)
        self._reporter = Reporter(cluster, clock, enabled=self.options.report)
        self.gangs = [active.plugin.gangs for p in profiles for active in p.gangs]
        if audit is not None:
            audit.watch(state, untimed, self.gangs, metrics)
        self._diagnoses = Diagnoses(
            state, self.nominator, frozenset(self.cycles), explain=self.options.explain
        )
        self._bindings = BindingCycle(
            clock,
            state,
            self._binder,
            self._reporter,
            self._journal,
            queue=self.queue,
            cycles=self.cycles,
            keeper=self._keeper,
            doings=self._binding_doings(),
            isolation=self._isolation,
        )
        self._evictions = Evictions(
            cluster,
            clock,
            state,
            self._reporter,
            queue=self.queue,
            nominator=self.nominator,
            gangs=self.gangs,
            bindings=self._bindings,
            journal=self._journal,
        )
        self.quotas = next(iter(quotas), None)  # those of further profiles would say the same
        queued = QueuedQuotas(self.quotas, state) if self.quotas is not None else None
        self._job_queues = JobQueues(clock, state, queued, self.gangs)
        self.job_queues = self._job_queues.book
        self._upkeep = Upkeep(
            cluster,
            clock,
            state,
            self._reporter,
            gangs=self.gangs,
            queues=self._job_queues,
            keeper=self._keeper,
            quotas=self.quotas,
            message_of=self._message_of,
            metrics=metrics,
            report=self.options.report,
            writes_network=self.options.writes_network,
            isolation=self._isolation,
        )
        self._gates = Gates(
            clock,
            self._isolation,
            self._reporter,
            cycles=self.cycles,
            queues=self._job_queues,
            gangs=self._upkeep.gangs,
            again_after_s=self.options.max_backoff_s,
        )
        self._recovery = Recovery(
            self._isolation,
            self._binder,
            self._bindings,
            self._journal,
            queue=self.queue,
            gangs=self.gangs,
            decide=self._decide,
            fail=self._fail,
        )
        self._gang_turns = GangTurns(
            clock,
            state,
            self._binder,
            queue=self.queue,
            nominator=self.nominator,
            diagnoses=self._diagnoses,
            evictions=self._evictions,
            queues=self._job_queues,
            reports=self._upkeep.gangs,
            bindings=self._bindings,
            journal=self._journal,
            doings=self._gang_doings(),
            metrics=metrics,
            explain=self.options.explain,
            merges=self._merges(),
        )
        self._terminating = (
            TerminatingPods(clock, state, self.quotas) if self.quotas is not None else None
        )
        self._watched: tuple[type[KubeObject], ...] = (Namespace, Node, *watched, Pod)
        self._field_selectors = field_selectors
        self._watch: Watch | None = None
        self._class_of: dict[str, tuple[Pod, PodClass]] = {}  # of pods not tried yet
        self.attempts = 0
        self.is_synced = False  # everything that existed when last asked has been taken in
        self._bookmarks_due = 0
        if metrics is not None:
            self._show_to(metrics)

    def _gang_doings(self) -> GangDoings:
        return GangDoings(
            class_of=self._class,
            cycle_of=lambda queued: self.cycles[queued.pod.spec.scheduler_name],
            fail=self._fail,
            reject=self._reject,
            tell=self._tell,
        )

    def _binding_doings(self) -> BindingDoings:
        return BindingDoings(
            refuse=self._refuse,
            fail=self._fail,
            reserved=self._handle_reserved,
            ask_for_everything=self._ask_for_everything,
        )

    def _show_to(self, metrics: "Metrics") -> None:
        metrics.watch(self.queue, self.state, lambda: self._bindings.assumed)
        if self.quotas is not None:
            self.quotas.ledger(Snapshot(self.state)).hooks.timer = metrics
        metrics.jobs.watch(self.gangs, self._upkeep.quota_gauges, self._queue_lengths)

    def _queue_lengths(self) -> Mapping[str, int]:
        return {name: len(queue) for name, queue in list(self.job_queues.queues.items())}

    # -- news --------------------------------------------------------------------------------

    def sync(self) -> None:
        """Take in the whole cluster, kind by kind (pods last), and watch it from there.

        Called again, it makes sure that nothing that happened before is missed.  ``is_synced``
        tells when that is so; until then nothing is decided.
        """
        self._ask_for_everything()
        self._take_in()

    def _ask_for_everything(self) -> None:
        self.is_synced = False
        self._bookmarks_due += 1
        if self._watch is None:
            self._watch = self._cluster.watch(self._watched, self._field_selectors)
        else:
            self._watch.refresh()

    def _take_in(self) -> None:
        if self._watch is None:
            self.sync()
            return
        self.state.advance(self._clock.now_s())
        for event in self._watch.poll():
            if event.type is EventType.BOOKMARK:
                self._bookmarks_due -= 1
                self.is_synced = not self._bookmarks_due
                continue
            began_s = self._metrics.now_s() if self._metrics is not None else 0.0
            if self._left_out.events:
                self._left_out.forget(event.object)
            self._reporter.heard_of(event)
            try:
                self._handle(event)
            except Exception as error:  # noqa: BLE001 -- told
                self._left_out.add(event, error)
            if self._metrics is not None:
                self._metrics.handled(label_of(event), self._metrics.now_s() - began_s)
        self._left_out.step()
        self._follow_up()

    def _follow_up(self) -> None:
        """Do what all news together are a reason for."""
        with self._isolation.barrier("ingest"):
            if self._terminating is not None:
                self._terminating.step()
            if self.is_synced:
                self._evictions.end_stale_nominations()
        self._limited.wake()
        for complaint in self._ingest.complaints:
            if self._reporter.complained(complaint.about, complaint.problem):
                log.warning("annotation ignored", extra={"complaint": complaint.problem})
        self._ingest.complaints.clear()

    def _leave_out(self, obj: KubeObject, fault: Fault) -> None:
        """Go on as if an object were not there; but what runs on a node keeps its amounts."""
        for gone in (obj, bare(obj)):
            with suppress(Exception):  # whatever it is, it has been told
                self._handle(WatchEvent(EventType.DELETED, gone, gone))
                break
        if isinstance(obj, Pod) and obj.spec.node_name and not is_over(obj):
            with self._isolation.barrier("ingest", subject_of(obj)):
                self._ingest.put_placed(bare(obj), None)
        elif isinstance(obj, Pod) and obj.spec.scheduler_name in self.cycles:
            self._reporter.failed(obj, fault.problem, "SchedulerError")

    def _handle(self, event: WatchEvent) -> None:
        if isinstance(event.object, Pod):
            if not self._is_known_bind(event, event.object):
                self._handle_any_pod(event, event.object)
            return
        change = self._ingested(event)
        if isinstance(event.object, PodGroup):
            gone = event.type is EventType.DELETED
            change = self._evictions.heard_group(event) or change
            for gangs in self.gangs:
                ready = (gangs.drop_group if gone else gangs.put_group)(event.object)
                self.queue.activate(ready, self._clock.now_s())
        self._tell_queue(change)
        if self._keeper is not None:
            if isinstance(event.object, Reservation):
                self._handle_reservation(self._keeper, event.type, event.object, event.previous)
            elif isinstance(event.object, Node) and event.type is EventType.DELETED:
                self._keeper.touch_node(event.object.metadata.name)

    def _handle_any_pod(self, event: WatchEvent, pod: Pod) -> None:
        previous, new = event.previous, as_scheduled(pod)
        old = as_scheduled(previous) if isinstance(previous, Pod) else None
        used = self._used_by(pod)
        holds = OPERATING_MODE in pod.metadata.labels
        handle = self._handle_holder if holds else self._handle_pod
        handle(event.type, new, old)
        if self.options.heeds_other_schedulers:
            self._heed(event.type, new)
        uses = self._used_by(pod)
        if uses and uses != used and old is not None and old.spec.node_name:
            # What it took beside the reservation counts as part of it from now on.
            self._tell_queue(ClusterEvent("AssignedPod", Action.DELETE, old, None))
        if self._keeper is not None:
            for uid in filter(None, {used, uses}):
                self._keeper.touch_user(uid)

    def _is_known_bind(self, event: WatchEvent, pod: Pod) -> bool:
        """Take in a bind of ours to which nobody has added anything, if that is the news.

        As ``_handle_any_pod`` would; most news in a busy cluster are of this kind.
        """
        placed = self.state.pods.by_key.get(pod.key)
        if (
            placed is None
            or placed.pod is not event.previous
            or not self._ingest.is_bare_bind(placed, pod)
            or self._bindings.holds(placed.key)
            or self.options.heeds_other_schedulers
            or any(gangs.is_member(pod) for gangs in self.gangs)
        ):
            return False
        self.state.drop_unbound(placed.key)
        self.state.renew(placed, pod)
        return True

    def _ingested(self, event: WatchEvent) -> ClusterEvent:
        """Take anything but a pod into the state; return what that means for the queue."""
        if isinstance(event.object, Node):
            self._journal.node_changed(event)
        if event.type is EventType.DELETED:
            return self._ingest.drop(event.object)
        return self._ingest.put(event.object, event.previous)

    def _heed(self, kind: EventType, pod: Pod) -> None:
        """Keep the place to which another scheduler has nominated a pod, or keep it no more."""
        if self._diagnoses.lost_rival(pod, gone=kind is EventType.DELETED or is_over(pod)):
            self._tell_queue(ClusterEvent("AssignedPod", Action.DELETE, pod, None))

    def _used_by(self, pod: Pod) -> str:
        """Return the uid of the reservation that a placed pod uses; empty if none."""
        placed = self.state.pods.by_key.get(pod.key)
        return placed.belongings.uses if placed is not None else ""

    def _handle_reservation(
        self,
        keeper: ReservationKeeper,
        kind: EventType,
        reservation: Reservation,
        previous: KubeObject | None,
    ) -> None:
        """Handle the pod that stands for a reservation.

        What the cluster answered to a write of ours may be newer than the news.
        """
        if kind is not EventType.DELETED:
            reservation = self.state.objects.get(Reservation, reservation.key) or reservation
        old = as_scheduled(reserve_pod(previous)) if isinstance(previous, Reservation) else None
        new = as_scheduled(reserve_pod(reservation))
        held = self.state.placed(new.key)
        waits = not new.spec.node_name and not is_over(new)
        if waits and held is not None and held.pod.spec.node_name:
            self._handle_holder(EventType.DELETED, held.pod, None)  # it wants a node again
        self._handle_holder(kind, new, old)
        keeper.touch(reservation.metadata.name)
        if kind is EventType.DELETED:
            keeper.forget(reservation.metadata.uid)

    def _handle_reserved(self, pod: Pod, available: Reservation) -> None:
        """Handle what the pod of a reservation has become by being bound."""
        self._handle_holder(EventType.MODIFIED, as_scheduled(reserve_pod(available)), pod)

    def _handle_holder(self, kind: EventType, pod: Pod, previous: Pod | None) -> None:
        """Handle a pod that may hold something for others; these try at once if it is new."""
        uid, by_uid = pod.metadata.uid, self.state.holds.by_uid
        before = by_uid.get(uid)
        self._handle_pod(kind, pod, previous)
        now = by_uid.get(uid)
        if now is not None and (before is None or before.offer != now.offer):
            owners, pending = now.offer.owners, self.state.unbound.items()
            ready = [key for key, (other, _) in pending if is_owner(owners, claimant_of(other))]
            self.queue.activate(ready, self._clock.now_s())

    def _handle_pod(self, kind: EventType, pod: Pod, previous: Pod | None) -> None:
        key = pod.key
        gone = kind is EventType.DELETED or is_over(pod)
        waited = (gone or bool(pod.spec.node_name)) and self._bindings.forget(key, gone=gone)
        ready = self._tell_gangs(pod, previous, gone=kind is EventType.DELETED)
        placed = self.state.pods.by_key.get(key)
        if gone or pod.spec.node_name:
            self.state.drop_unbound(key)
        if gone:
            self._leave_queue(pod)
            if waited or self.state.has_place(key) or pod.spec.node_name:
                self._tell_queue(self._ingest.drop_placed(pod))
        elif pod.spec.node_name:
            if placed is None:
                self._leave_queue(pod)
            old = previous if previous is not None and previous.spec.node_name else None
            change = self._ingest.put_placed(pod, placed, old)
            if change is not None:
                self._leave_queue(pod)
                self._tell_queue(change)
        elif pod.spec.scheduler_name in self.cycles and not pod.metadata.deletion_timestamp:
            self._handle_unplaced(pod, pod if previous is None else previous)
        else:
            self.state.put_unbound(pod, self.state.classes.of(pod))
            self._leave_queue(pod)
        self.queue.activate(ready, self._clock.now_s())

    def _handle_unplaced(self, pod: Pod, old: Pod) -> None:
        """Queue a pod that needs a node, or tell what of it changed.

        A pod that is bound here already stays as it is: this version of it is older than its bind.
        """
        key, cycle = pod.key, self.cycles[pod.spec.scheduler_name]
        for active in cycle.profile.transform:
            pod, old = active.plugin.transform(pod), active.plugin.transform(old)
        pod_class = self.state.classes.of(pod)
        self.state.put_unbound(pod, pod_class)
        has_place = self.state.has_place(key)
        if has_place and self.queue.get(key) is None:
            return
        self._class_of[key] = (pod, pod_class)
        try:
            alone = any(active.plugin.permits(pod_class) for active in cycle.profile.gangs)
            run_key = None if alone else cycle.run_key(pod_class)
        except Exception as error:  # noqa: BLE001 -- told; its attempt will show
            self._isolation.note("ingest", error, subject_of(pod))
            run_key = None
        self.queue.update(old, pod, run_key, self._arrived_s(pod))
        if not has_place:
            self._evictions.heard_nomination(pod)

    def _tell_gangs(self, pod: Pod, previous: Pod | None, *, gone: bool) -> list[str]:
        """Let gangs and quotas know of a pod; return who should try to enter the queue now."""
        if self._terminating is not None:
            self._terminating.note(pod, gone=gone)
        ready: list[str] = []
        self._evictions.gangs_shrank |= gone
        for gangs in self.gangs:
            ready += gangs.drop_pod(pod) if gone else gangs.put_pod(pod)
            self._gang_turns.waiting.changed(gangs, pod, None if gone else previous)
            if previous is None and not gone:
                ready += gangs.speakers_for(pod)  # one more may be the one that fits
        if gone:
            self._job_queues.lost_member(pod)
        return ready

    def _arrived_s(self, pod: Pod) -> float:
        """Return when the pod joined the queue: a restart doesn't cost it its place."""
        now_s = self._clock.now_s()
        if self.is_synced:
            return now_s
        return min(now_s, to_epoch_s(pod.metadata.creation_timestamp, now_s))

    def _leave_queue(self, pod: Pod) -> None:
        key = pod.key
        self._class_of.pop(key, None)
        self.queue.remove(key)
        self._evictions.forget_nomination(pod, pod.spec.node_name)
        self._job_queues.removed(key)
        self._upkeep.gangs.gone(key)

    def _tell_queue(self, event: ClusterEvent) -> None:
        self.queue.on_event(event, self._clock.now_s())

    def _message_of(self, key: str) -> str:
        queued = self.queue.get(key)
        return queued.message if queued is not None else ""

    # -- work --------------------------------------------------------------------------------

    def step(self, limit: int | None = None) -> list[Outcome]:
        """Take in the news and decide pods until none is ready, or about ``limit`` are decided.

        Bindings that have begun may still be under way.  Returns what has come to an end, in order.
        Raises ClusterError when the cluster can't be read.
        """
        self._exchange()
        self.queue.flush(self._clock.now_s())
        self._bindings.settle_waiting()
        self._bindings.settle_preparing()
        decided, most = 0, self.options.run_limit
        while self.is_synced and (limit is None or decided < limit):
            if self.is_saturated:
                break
            if limit is not None:
                most = min(self.options.run_limit, limit - decided)
            run = self._next_run(most if self._merges() else 1)
            if run:
                decided += len(run)
                self._decide(run)
                if is_reserve_pod(run[-1].pod.metadata):
                    self._bindings.begin()  # the next pod may be the one that it is for
            elif not (self._bindings.decided or self._keeps_reservations()):
                break
            if not run or self._bindings.decided >= self.options.in_flight:
                self._exchange()
        self._bindings.begin()
        self._bindings.end()
        with self._isolation.barrier("gang"):
            self._gang_turns.waiting.wake()  # what was given back may make room
        self._upkeep.settle()
        self._isolation.tell_of_hints(self.queue)
        self._journal.note_all(self._upkeep.step(leads=limit != 0) if self.is_synced else ())
        return self._journal.take()

    def _keeps_reservations(self) -> bool:
        """Do what is due for reservations; return whether there was anything."""
        done = False
        if self._keeper is not None:
            with self._isolation.barrier("reservation"):
                done = self._keeper.step()
        return done

    def warm_up(self) -> None:
        """Decide about pods that nobody has, so that the first real one finds all code loaded."""
        for name, cycle in self.cycles.items():
            spec = PodSpec(containers=(PodContainer(name="c"),), scheduler_name=name)
            pod = Pod(metadata=ObjectMeta(name="warm-up", namespace="default"), spec=spec)
            pod_class = self.state.classes.of(pod)
            if cycle.choose(pod, pod_class, {}, first_attempt=False) is not None:
                cycle.choose_run([pod_class, pod_class])

    @property
    def is_saturated(self) -> bool:
        """Whether so much is under way that deciding waits for it."""
        return self._binder.in_flight > self.options.in_flight // 2

    def why_not_gathered(self, queued: QueuedPod) -> Refused | None:
        """Return why no domain takes a member's gang; None: one does, or it needs none."""
        cycle = self.cycles[queued.pod.spec.scheduler_name]
        return self._gang_turns.why_not_gathered(cycle, queued)

    def finish(self) -> None:
        """Send what has been decided and wait for the answers; for the end of the process."""
        self._bindings.begin()
        self._bindings.end(wait=True)
        self._journal.close()

    def validate(self) -> None:
        """Derive everything redundant again, between two steps.  Raises BugError."""
        self.state.validate()
        self.queue.validate()
        self.nominator.validate()
        validate_waiting(self.state, self.queue, self.nominator, self.cycles, self._bindings)

    def report_quotas(self) -> None:
        """Write at once what would be written of quotas in the next seconds."""
        self._upkeep.finish()

    def _exchange(self) -> None:
        """Send what has been decided, and learn what has happened."""
        self._bindings.begin()
        self._bindings.end()
        self._take_in()

    def _next_run(self, most: int) -> list[QueuedPod]:
        now_s = self._clock.now_s()
        try:  # as a barrier, which would cost each pod a microsecond
            self.queue.release(self._job_queues.take_ready(), now_s)
        except Exception as error:  # noqa: BLE001 -- told
            self._isolation.note("job queue", error)
        self.queue.release(self._gates.take_due(), now_s)
        try:
            self._gang_turns.waiting.wake()
        except Exception as error:  # noqa: BLE001 -- told
            self._isolation.note("gang", error)
        for cycle in self.cycles.values():
            for active in cycle.profile.next_pod:
                with self._isolation.barrier("next_pod"):
                    key = active.plugin.next_pod(self.queue.get)
                    queued = self.queue.take(key) if key is not None else None
                    if queued is not None:
                        return [queued]
        return self.queue.pop_run(now_s, most)

    def next_wakeup_s(self) -> float | None:
        """Return when there is something to do even without news; None: only news can help."""
        times = self._bindings.deadlines()
        sources = (self.queue, self._left_out, self._gates)
        wakeups = [source.next_wakeup_s() for source in sources]
        if self.is_synced:
            wakeups += self._upkeep.next_wakeups()
        if self._terminating is not None:
            wakeups.append(self._terminating.next_wakeup_s())
        if self._keeper is not None:
            wakeups.append(self._keeper.next_wakeup_s())
        times += [due_s for due_s in wakeups if due_s is not None]
        return min(times, default=None)

    def _merges(self) -> bool:
        return self.options.merge_runs and not self.options.explain

    def _decide(self, run: list[QueuedPod]) -> None:
        self._journal.begin(run)
        self._binder.assumed.clear()
        try:
            self._decide_run(run)
        except Exception as error:  # noqa: BLE001 -- told
            self._recovery.recover(run, error)
        else:
            self._journal.end(run)

    def _decide_run(self, run: list[QueuedPod]) -> None:
        if not self._job_queues.is_empty:
            run = self._in_turn(run)
            if not run:
                return
        cycle = self.cycles[run[0].pod.spec.scheduler_name]
        if run[0].run_key is None:
            tried = self._gang_turns.decide(cycle, run[0])
            if tried is not None:
                self.attempts += tried
                return
        classes = [self._class(queued) for queued in run]
        self.attempts += len(run)
        done = 0
        if len(run) > 1 and not cycle.permits(classes) and self._can_merge(run):
            rows = self._choose_run(cycle, classes)
            if rows is not None:
                done = len(rows)
                assumed_run = self._binder.assume_run(run[:done], classes[:done], rows)
                for assumed in assumed_run if self._metrics is not None else ():
                    assumed.began_s = self._journal.began_s
                self._bindings.let_go(assumed_run)
                for queued in run[:done]:
                    self._job_queues.started(queued.pod)
        for queued, pod_class in zip(run[done:], classes[done:], strict=True):
            self._decide_one(cycle, queued, pod_class)

    def _choose_run(self, cycle: Cycle, classes: Sequence[PodClass]) -> IntArray | None:
        rows = cycle.choose_run(classes)
        if rows is not None:
            self._journal.compare(classes[0])
        return rows

    def _can_merge(self, run: Sequence[QueuedPod]) -> bool:
        """Return whether the pods of a run are alike, and no place is kept for anybody.

        A node's usage may be reported of a former pod of the same name: then they aren't.
        """
        if self._diagnoses.nominated():
            return False
        return not self.state.load.names_any([queued.key for queued in run])

    def _in_turn(self, run: Sequence[QueuedPod]) -> list[QueuedPod]:
        """Send those back before whom others have come in their queues since they passed."""
        left = []
        for queued in run:
            if self._job_queues.may_be_tried(queued.pod):
                left.append(queued)
            else:
                self.queue.postpone(queued, self._clock.now_s())
        return left

    def _class(self, queued: QueuedPod) -> PodClass:
        """Return the pod's class; looked up when the pod came, unless it has been tried since."""
        pod, pod_class = self._class_of.pop(queued.key, (None, None))
        is_stale = pod is not queued.pod or (self.state.holds.names(queued.pod))
        return self.state.classes.of(queued.pod) if pod_class is None or is_stale else pod_class

    def _decide_one(self, cycle: Cycle, queued: QueuedPod, pod_class: PodClass) -> None:
        known = self._diagnoses.known(cycle, pod_class)
        choice: Choice | Refused | None = None
        if known is None:
            choice = cycle.choose(
                queued.pod,
                pod_class,
                self._diagnoses.nominated(),
                nominated_node=self.nominator.node_of(queued.key),
                first_attempt=queued.attempts <= 1,
            )
        scorecard = cycle.scorecard(pod_class) if self.options.explain else None
        if isinstance(choice, Choice):
            self._journal.compare(pod_class)
            self._evictions.forget_nomination(queued.pod, choice.node)  # not to count twice there
            assumed = self._binder.assume(queued, pod_class, choice)
            assumed.scorecard, assumed.began_s = scorecard, self._journal.began_s
            if queued.run_key is None:  # else it is in no gang
                for gangs in self.gangs:
                    gangs.hold(queued.pod)
            self._job_queues.started(queued.pod)
            self._bindings.permit(assumed)
        elif isinstance(choice, Refused):
            main, plugins = (choice.plugin, choice.reason), frozenset((choice.plugin,))
            self._evictions.end_nomination(queued.pod)
            self._reject(queued, main, plugins, choice.reason, scorecard)
        else:
            diagnosis = known or self._diagnoses.diagnose(cycle, queued.pod, pod_class, scorecard)
            self._handle_failure(cycle, queued, pod_class, diagnosis, scorecard)

    # -- failures ----------------------------------------------------------------------------

    def _handle_failure(
        self,
        cycle: Cycle,
        queued: QueuedPod,
        pod_class: PodClass,
        diagnosis: Diagnosis,
        scorecard: Scorecard | None,
    ) -> None:
        said: list[str] = []
        nomination = PostFilterResult()
        keeps_nomination = False
        if diagnosis.node_count:
            nominated, own = self._diagnoses.nominated(), self.nominator.node_of(queued.key)
            attempt = cycle.attempt(queued.pod, pod_class, diagnosis, nominated, nominated_node=own)
            for active in cycle.profile.post_filter:
                result = active.plugin.postfilter(attempt)
                if result.node:
                    nomination = result
                    said.clear()  # there is nothing to explain any more
                    break
                keeps_nomination |= result.keeps_nomination
                if result.message:
                    said.append(result.message)
            if cycle.profile.post_filter:
                self._journal.preempted(len(nomination.victims))
        message = diagnosis.message(", ".join(said))
        plugins = diagnosis.plugins
        if nomination.node:
            error = self._evictions.preempt(queued.pod, nomination)
            if error is not None:
                self._fail(queued, f"preemption failed: {error}")
                return
        elif not keeps_nomination:
            self._evictions.end_nomination(queued.pod)
        plugin, reason = diagnosis.main
        never = never_fits(diagnosis, self.state, pod_class)
        main = (plugin, f"{reason}; {never}" if never else reason)
        self._reject(queued, main, plugins, message, scorecard, nominated=nomination.node)

    def _reject(
        self,
        queued: QueuedPod,
        main: tuple[str, str],
        plugins: frozenset[str],
        message: str,
        scorecard: Scorecard | None,
        *,
        nominated: str = "",
        need: Need | None = None,
    ) -> None:
        self._journal.rejected(queued, main, message, scorecard, nominated)
        self._tell(queued.pod, message)
        now_s = self._clock.now_s()
        self.queue.reject(queued, plugins, frozenset(), message, now_s, need=need)

    def _tell(self, pod: Pod, message: str) -> None:
        """Tell a pod why it waits, or write it on the reservation for which the pod stands."""
        self._reporter.failed(pod, message)
        if self._keeper is not None and is_reserve_pod(pod.metadata) and self.options.report:
            self._keeper.unschedulable(pod, message)

    def _refuse(self, assumed: Assumed, plugin: str, refusal: str) -> None:
        queued, rejector = assumed.queued, frozenset((plugin,))
        self._evictions.end_nomination(queued.pod)
        self._reject(queued, (plugin, refusal), rejector, refusal, assumed.scorecard)

    def _fail(self, queued: QueuedPod, message: str) -> None:
        log.warning("pod not bound", extra={"pod": queued.key, "error": message})
        self._journal.failed(queued, message)
        self._evictions.end_nomination(queued.pod)
        if self.queue.get(queued.key) is queued:  # else it was deleted, or has a node by now
            self._reporter.failed(queued.pod, message, "SchedulerError")
        self.queue.fail(queued, message, self._clock.now_s())
