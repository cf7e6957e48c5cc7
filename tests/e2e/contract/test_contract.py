"""The contract of the cluster port, over a real API server.

Here are all tests of ``tests/contract/cluster``; fixtures come from this folder's conftest.
"""

from importlib import import_module
from pathlib import Path

_FOLDER = Path(__file__).parents[2] / "contract" / "cluster"
_MODULES = [
    import_module(f"tests.contract.cluster.{path.stem}")
    for path in sorted(_FOLDER.glob("test_*.py"))
]

for _module in _MODULES:
    _contract_tests = {
        name: value for name, value in vars(_module).items() if not name.startswith("_")
    }
    _twice = {name for name in _contract_tests if name.startswith("test_")} & globals().keys()
    assert not _twice, f"{_module.__name__}: a test of that name is in another module: {_twice}"
    globals().update(_contract_tests)
