"""Faults of intents: the report of an unexpected exception."""

from koordinator.foundation.faults import Fault, fault_of
from koordinator.koordlet.intents import (
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
