"""Flags of ``koord manager`` for job queues, from koord-queue and koord-queue-controllers."""

from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from koordinator.api.queue_unit import UnitPolicy
from koordinator.cli.component.flags import BOOL, parse_bool, parse_list, parse_seconds
from koordinator.foundation.errors import InputError
from koordinator.foundation.files import LARGEST_CONFIGURATION_BYTES, read_file
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.yaml_documents import yaml_document
from koordinator.manager.admission.gates import ManagerFeature
from koordinator.manager.queue_units.kinds import BY_NAME

if TYPE_CHECKING:
    from koordinator.manager.queue_units.configuration import QueueConfiguration
    from koordinator.manager.queue_units.controller import QueueChoice, QueueUnitOptions

_QUEUES = "Jobs held back until their quota has room"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFlags:
    """Jobs that wait for quota before their pods are created; flags of koord-queue."""

    enabled_extensions: Annotated[
        str,
        typer.Option(
            help="Kinds of jobs that are queued. Default: none. "
            f"Known kinds: {', '.join(BY_NAME)}.",
            metavar="NAME,NAME",
            rich_help_panel=_QUEUES,
        ),
    ] = ""
    enable_job_extensions: Annotated[
        str,
        typer.Option(
            help="Queue the kinds of --enabled-extensions; with false, no job is queued.",
            metavar=BOOL,
            rich_help_panel=_QUEUES,
        ),
    ] = "true"
    manage_all_jobs: Annotated[
        str,
        typer.Option(
            help="Charge also jobs that are not created suspended.",
            metavar=BOOL,
            rich_help_panel=_QUEUES,
        ),
    ] = "false"
    queue_config: Annotated[
        list[str] | None,
        typer.Option(
            help="File of a KoordQueueConfiguration, or of arguments of extensions. Repeatable.",
            metavar="FILE",
            rich_help_panel=_QUEUES,
        ),
    ] = None
    oversellrate: Annotated[
        float,
        typer.Option(
            help="Factor by which admitted jobs may exceed the maximum of their quota.",
            min=0.001,
            max=1000,
            rich_help_panel=_QUEUES,
        ),
    ] = 1.0
    default_preemptible: Annotated[
        str,
        typer.Option(
            help="Whether queue units without an explicit setting may be preempted.",
            metavar=BOOL,
            rich_help_panel=_QUEUES,
        ),
    ] = "true"
    default_queue_policy: Annotated[
        UnitPolicy,
        typer.Option(help="Policy of queues that set none.", rich_help_panel=_QUEUES),
    ] = UnitPolicy.PRIORITY
    strict_dequeue_mode: Annotated[
        str,
        typer.Option(
            help="Wait for the scheduler's result: a unit is set to SchedReady, and the scheduler "
            "answers SchedSucceed or SchedFailed.",
            metavar=BOOL,
            rich_help_panel=_QUEUES,
        ),
    ] = "false"
    queue_list: Annotated[
        str,
        typer.Option(
            help="Queues that --strict-dequeue-mode applies to; !NAME excludes one. Default: all.",
            metavar="NAME,!NAME",
            rich_help_panel=_QUEUES,
        ),
    ] = ""
    enable_visibility_server: Annotated[
        str,
        typer.Option(
            help="Serve the aggregated API visibility.koord-queue.x-k8s.io.",
            metavar=BOOL,
            rich_help_panel=_QUEUES,
        ),
    ] = "false"
    visibility_port: Annotated[
        int,
        typer.Option(
            help="HTTPS port of the aggregated API.", min=1, max=65535, rich_help_panel=_QUEUES
        ),
    ] = 8082
    queue_namespace: Annotated[
        str, typer.Option(help="Namespace of the Queues.", rich_help_panel=_QUEUES)
    ] = "koord-queue"
    pods_running_timeout: Annotated[
        str,
        typer.Option(
            help="Time for the pods of an admitted job to run, in queues that wait for pods.",
            metavar="DURATION",
            rich_help_panel=_QUEUES,
        ),
    ] = "10m"
    pod_initial_backoff_seconds: Annotated[
        float,
        typer.Option(
            help="Initial backoff in seconds of a job whose pods did not run in time.",
            min=0,
            rich_help_panel=_QUEUES,
        ),
    ] = 1.0
    pod_max_backoff_seconds: Annotated[
        float,
        typer.Option(
            help="Longest backoff in seconds of a job whose pods did not run in time.",
            min=0,
            rich_help_panel=_QUEUES,
        ),
    ] = 20.0

    @property
    def shows_queues(self) -> bool:
        """Whether the aggregated API is served.  Raises InputError."""
        return parse_bool(self.enable_visibility_server, "--enable-visibility-server")

    def options(self, gates: AbstractSet[ManagerFeature], config: str = "") -> "QueueUnitOptions":
        """Return the options of the controller; ``config`` is an additional file.

        Raises InputError.
        """
        from koordinator.manager.queue_units.controller import QueueUnitOptions  # noqa: PLC0415 -- takes long to load

        names = parse_list(self.enabled_extensions)
        unknown = [name for name in names if name not in BY_NAME]
        if unknown:
            raise InputError(
                f"must be one of {', '.join(BY_NAME)}, got {unknown[0]!r}",
                source="--enabled-extensions",
            )
        extends = parse_bool(self.enable_job_extensions, "--enable-job-extensions")
        return QueueUnitOptions(
            kinds=tuple(BY_NAME[name] for name in dict.fromkeys(names)) if extends else (),
            manages_all=parse_bool(self.manage_all_jobs, "--manage-all-jobs"),
            configuration=self._configuration(config),
            oversell_rate=self.oversellrate,
            default_preemptible=parse_bool(self.default_preemptible, "--default-preemptible"),
            default_policy=self.default_queue_policy,
            strict_queues=self._strict_queues(),
            checks_available=ManagerFeature.TREE_AVAILABLE_QUOTAS in gates,
            makes_queues=ManagerFeature.TREE_QUEUES in gates,
            queue_namespace=self.queue_namespace,
            pods_ready_s=parse_seconds(self.pods_running_timeout, "--pods-running-timeout"),
            initial_backoff_s=self.pod_initial_backoff_seconds,
            longest_backoff_s=self.pod_max_backoff_seconds,
        )

    def _strict_queues(self) -> "QueueChoice":
        from koordinator.manager.queue_units.controller import NO_QUEUE, QueueChoice  # noqa: PLC0415 -- as above

        if not parse_bool(self.strict_dequeue_mode, "--strict-dequeue-mode"):
            return NO_QUEUE
        names = parse_list(self.queue_list)
        only = frozenset(name for name in names if not name.startswith("!"))
        but = frozenset(name.removeprefix("!") for name in names) - only
        return QueueChoice(only or None, but)

    def _configuration(self, config: str) -> "QueueConfiguration":
        from koordinator.manager.queue_units.configuration import (  # noqa: PLC0415 -- as above
            QueueConfiguration,
            read_queue_configuration,
        )

        known = QueueConfiguration()
        for file in (*(self.queue_config or ()), *filter(None, (config,))):
            try:
                text = read_file(Path(file), LARGEST_CONFIGURATION_BYTES)
            except OSError as error:
                raise InputError(f"cannot be read: {error.strerror}", source=file) from None
            known = read_queue_configuration(known, yaml_document(text, file), file)
        return known
