"""What is changed in modules of others when a cell imports them."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Hooks:
    """Finds the modules that are named, as all others do, and calls a function when one was executed."""

    def __init__(self, patches: dict[str, Callable[[Any], None]]) -> None:
        self._patches = patches
        for name in [name for name in patches if name in sys.modules]:
            patches.pop(name)(sys.modules[name])
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The specification of a module that is named, whose loader patches it; None for all others."""
        if name not in self._patches:
            return None
        patch = self._patches.pop(name)
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None and hasattr(spec.loader, "exec_module"):
                loader: Any = _Patching(spec.loader, patch)
                spec.loader = loader
                return spec
        self._patches[name] = patch
        return None


class _Patching:
    """A loader that patches what it has loaded."""

    def __init__(self, loader: Any, patch: Callable[[Any], None]) -> None:
        self._loader = loader
        self._patch = patch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._patch(module)
