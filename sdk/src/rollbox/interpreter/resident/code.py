"""A cell's code: compiled with the value of its last expression, run, and what its errors say."""

from __future__ import annotations
import __future__

import _ast
import builtins
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

# Of ast, which costs a megabyte: an unevaluated tree, and `await` outside functions.
_ONLY_AST, _TOP_LEVEL_AWAIT = 0x400, 0x2000
_COROUTINE = 0x80
_FUTURES = [getattr(__future__, name).compiler_flag for name in __future__.all_feature_names]
_NAME_BYTES, _VALUE_BYTES, _TRACEBACK_BYTES = 2**10, 2**14, 2**16
_SOURCES = 256
_SOURCES_BYTES = 2**20


class Code:
    """Runs code in one namespace, that of `__main__`."""

    def __init__(self) -> None:
        self.names = sys.modules["__main__"].__dict__
        for name in [name for name in self.names if not (name.startswith("__") and name.endswith("__"))]:
            del self.names[name]
        self._own = set(self.names)
        self._futures = 0
        self._sources: dict[str, str] = {}
        self._kept = 0
        self._loop: Any = None

    def run(self, source: str, name: str, show: Callable[[Any], None]) -> None:
        """Run a cell; `show` gets the value of its last expression unless that is None, or a semicolon follows it."""
        self._keep(source, name)
        value = self._value(source, name)
        if value is not None and not source.rstrip().endswith(";"):
            setattr(builtins, "_", value)  # noqa: B010 - no type knows it
            show(value)

    def _value(self, source: str, name: str) -> Any:
        if "\n" not in source:
            # Most of the time of a short cell is that of its tree, which a single expression does not need.
            try:
                whole = self._compiled(source, name, "eval")
            except SyntaxError:
                whole = None
            if whole is not None:
                return self._evaluated(whole)
        tree = self._compiled(source, name, "exec", _ONLY_AST)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], _ast.Expr) else None
        if tree.body:
            self._evaluated(self._compiled(tree, name, "exec"))
        return self._evaluated(self._compiled(_ast.Expression(body=last.value), name, "eval")) if last else None

    def variables(self) -> list[tuple[str, str, str]]:
        """Name, type and the first characters of the text of each variable that cells have made."""
        found = []
        for name, value in list(self.names.items()):
            if name not in self._own and not name.startswith("_"):
                try:
                    text = repr(value)[:200]
                except Exception as error:
                    text = f"<no text: {type(error).__name__}>"
                found.append((name, type(value).__name__, text))
        return found

    def lines_for(self, linecache: Any) -> None:
        """Give the sources of cells to the module that tracebacks and `inspect` read lines from."""
        for name, source in self._sources.items():
            linecache.cache[name] = _lines(source, name)

    def _keep(self, source: str, name: str) -> None:
        sources = self._sources
        sources[name] = source
        self._kept += len(source)
        cache: Any = getattr(sys.modules.get("linecache"), "cache", None)
        if cache is not None:
            cache[name] = _lines(source, name)
        while len(sources) > _SOURCES or (len(sources) > 1 and self._kept > _SOURCES_BYTES):
            gone = next(iter(sources))
            self._kept -= len(sources.pop(gone))
            if cache is not None:
                cache.pop(gone, None)

    def _compiled(self, source: Any, name: str, mode: str, flags: int = 0) -> Any:
        return compile(source, name, mode, self._futures | flags | _TOP_LEVEL_AWAIT, True)

    def _evaluated(self, code: Any) -> Any:
        for flag in _FUTURES:
            self._futures |= code.co_flags & flag
        value = eval(code, self.names)  # noqa: S307 - what it is for
        return self._awaited(value) if code.co_flags & _COROUTINE else value

    def _awaited(self, started: Coroutine[Any, Any, Any]) -> Any:
        import asyncio

        if self._loop is None or self._loop.is_closed():
            self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        task = self._loop.create_task(started)
        try:
            return self._loop.run_until_complete(task)
        finally:
            if not task.done():
                # Interrupted: the cell's own `finally` runs, what it has started goes on with the next one.
                task.cancel()
                self._loop.run_until_complete(asyncio.wait([task]))


def _lines(source: str, name: str) -> tuple[int, None, list[str], str]:
    return len(source), None, source.splitlines(True), name


def told(error: BaseException, code: Code) -> list[bytes]:
    """Name, value and traceback of what a cell has raised."""
    try:
        value = str(error)
    except Exception:
        value = "<no text>"
    try:
        text = "" if isinstance(error, SystemExit) else _traceback(error, code)
    except Exception as failure:
        text = f"<no traceback: {type(failure).__name__}>"
    parts = (type(error).__name__, _NAME_BYTES), (value, _VALUE_BYTES), (text, _TRACEBACK_BYTES)
    return [part.encode("utf-8", "backslashreplace")[:most] for part, most in parts]


def _traceback(error: BaseException, code: Code) -> str:
    import linecache
    import traceback

    code.lines_for(linecache)
    first = error.__traceback__
    while first is not None and first.tb_frame.f_code.co_filename.startswith("<rollbox "):
        first = first.tb_next
    lines = "".join(traceback.format_exception(type(error), error, first)).splitlines(True)
    return "".join([line for line in lines if not line.startswith('  File "<rollbox ')])
