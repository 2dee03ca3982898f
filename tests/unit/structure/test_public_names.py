"""Each package has the names that its ``__all__`` lists."""

import importlib
import pkgutil
from collections.abc import Iterator

import controlplane
import rollbox


def _packages() -> Iterator[str]:
    for root in (controlplane, rollbox):
        yield root.__name__
        yield from (one.name for one in pkgutil.walk_packages(root.__path__, f"{root.__name__}.") if one.ispkg)


def test_every_listed_name_is_there() -> None:
    modules = [importlib.import_module(name) for name in _packages()]
    missing = [
        f"{one.__name__}.{name}" for one in modules for name in getattr(one, "__all__", ()) if not hasattr(one, name)
    ]
    assert missing == []
    assert any(hasattr(one, "__all__") for one in modules)
