"""Every annotation and label that the source names, and hostile texts for them."""

import re
from pathlib import Path

_SOURCE = Path(__file__).parent.parent / "src/koordinator"
_DEEP = 5_000
TEXTS: tuple[str, ...] = (
    "[" * _DEEP + "]" * _DEEP,
    '{"a":' * _DEEP + "1" + "}" * _DEEP,
    '{"cpu":' + "[" * 150 + "]" * 150 + "}",
    '{"x":"' + "a" * 300_000 + '"}',
    "[" + "{}," * 3_000 + "{}]",
    "9" * 5_000,
    '{"cpu":"1e999999999","minor":1e999,"memory":"-9223372036854775808Ei"}',
    '{"gpu":[{"minor":-1,"resources":{"koordinator.sh/gpu-core":"9e18"}}]}',
    '{"cpuset":"0-999999999","numaNodeResources":[{"node":99999999}]}',
    '"\\ud800"',
    '["\\u0000/../..",null,{"":null}]',
    "[[[]]]",
    "NaN",
    "-",
    "\x00\x1b[2J",
    "default/" * 500,
    "99999999999999999999",
    "1e400",
    "-1",
)


#: What has a meaning somewhere, in the wrong place.
MEANT: tuple[str, ...] = (
    *("", "true", "false", "0", "-1", "n0", "n1", "g", "q", "held", "Reservation", "LSR", "BE"),
    *("{}", "[]", "null", '"x"', '{"a":1}', "[{}]", '["default/g","other/h"]', "koord-prod"),
    '{"name":"held","uid":"00000000-0000-4000-8000-000068656c64"}',
    '{"cpuset":"0-3"}',
    '{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-core":"100"}}]}',
    '{"gpu":[{"minor":99999999,"resources":{}}],"rdma":[{"minor":0,"extension":{"vfs":[{}]}}]}',
    '[{"labelSelector":{}}]',
    '[{"labelSelector":{"matchExpressions":[{"key":"a","operator":"Bad"}]}}]',
    '{"preferredCPUBindPolicy":"FullPCPUs","requiredCPUBindPolicy":"SpreadByPCPUs"}',
    '{"numaNodeResources":[{"node":9,"resources":{"cpu":"-5","memory":"9E"}}]}',
    '{"resources":{"cpu":"-1"},"reservedCPUs":"0-9"}',
    '{"name":"held","requiredDuringSchedulingIgnoredDuringExecution":{}}',
    '{"gatherStrategy":[{"layer":"x","strategy":"MustGather"}]}',
    '{"preAllocation":{"preAllocationRequired":true},"owners":[{"labelSelector":{}}]}',
)
_KEY = re.compile(
    r"""["']((?:[a-z0-9]([-a-z0-9]*[a-z0-9])?\.)+[a-z]+/[A-Za-z0-9][-A-Za-z0-9_.]*)["']"""
)


def keys() -> list[str]:
    """Return the keys, read off the whole source; what begins a key is made a whole one."""
    texts: set[str] = set()
    for path in _SOURCE.rglob("*.py"):
        texts |= {match[1] for match in _KEY.finditer(path.read_text())}
    return sorted(key if key[-1].isalnum() else f"{key}x" for key in texts)
