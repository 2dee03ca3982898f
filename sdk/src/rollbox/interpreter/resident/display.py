"""What a value looks like: IPython's display protocol, tables and figures."""

from __future__ import annotations

import sys

from . import wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Protocol

    class Frames(Protocol):
        """What takes the frames of a cell."""

        def frame(self, kind: bytes, data: bytes, *, soon: bool) -> None:
            """Send a whole frame: at the end of the cell, or `soon`."""


PLAIN = "text/plain"
TABLE = "application/vnd.rollbox.table+json"
_METHODS = {
    "text/html": "_repr_html_",
    "text/markdown": "_repr_markdown_",
    "image/svg+xml": "_repr_svg_",
    "image/png": "_repr_png_",
    "image/jpeg": "_repr_jpeg_",
    "text/latex": "_repr_latex_",
    "application/json": "_repr_json_",
    "application/javascript": "_repr_javascript_",
    "application/pdf": "_repr_pdf_",
}
_BINARY = ("image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf")
# They have no other form.
_PLAIN = (int, float, str, bool, bytes)
_TEXT_BYTES = 2**20
_PART_BYTES = 2**23
_CELL_BYTES = 2**25
_CELL_RESULTS = 1000
_TABLE_ROWS = 1000


class Display:
    """Sends results of a cell.

    Attributes:
        omitted: how many results or forms of them were too large, or too many.
    """

    def __init__(self, output: Frames) -> None:
        self.omitted = 0
        self._output = output
        self._bytes = 0
        self._count = 0
        self._shown: list[Any] = []

    def ready(self) -> None:
        """Make ready for the next cell."""
        self.omitted = self._bytes = self._count = 0
        self._shown.clear()

    def display(
        self,
        *objects: Any,
        raw: bool = False,
        include: Any = None,
        exclude: Any = None,
        display_id: Any = None,
        **others: Any,
    ) -> Handle | None:
        """Show objects as results of the cell. It takes what IPython's takes.

        Args:
            objects: to be shown.
            raw: whether they are dictionaries of media types.
            include: media types to show alone; None: all.
            exclude: media types to leave out.
            display_id: a name to show more under, or True for any; what is shown again is a further result.
            others: what results have no place for (metadata, transient, update, clear).
        """
        for one in objects:
            forms = dict(one) if raw else bundle(one)
            left_out = [mime for mime in forms if (include and mime not in include) or mime in (exclude or ())]
            for mime in left_out:
                del forms[mime]
            self.send(forms, main=False)
            self._shown.append(one)
        return None if display_id is None else Handle(self, display_id)

    def publish(self, data: Mapping[str, Any], *_: Any, **__: Any) -> None:
        """Show a dictionary of media types, as IPython's `publish_display_data` does."""
        self.display(data, raw=True)

    def value(self, value: Any) -> None:
        """Send the value of the last expression of a cell."""
        self.send({PLAIN: repr(value)} if type(value) in _PLAIN else bundle(value), main=True)
        self._shown.append(value)

    def figures(self) -> None:
        """Show and close the figures that matplotlib has open; those that were shown are closed only."""
        helpers = sys.modules.get("matplotlib._pylab_helpers")
        if helpers is None:
            return
        for manager in helpers.Gcf.get_all_fig_managers():
            figure = manager.canvas.figure
            if not any(figure is one for one in self._shown):
                self.send(bundle(figure), main=False)
        helpers.Gcf.destroy_all()

    def send(self, forms: Mapping[str, Any], *, main: bool) -> None:
        """Send one result in all its forms."""
        self._count += 1
        if self._count > _CELL_RESULTS:
            self.omitted += 1
            return
        parts = []
        cut = False
        for mime, data in forms.items():
            part = _bytes(mime, data)
            if mime == PLAIN and len(part) > _TEXT_BYTES:
                part, cut = part[:_TEXT_BYTES], True
            if len(part) > _PART_BYTES or self._bytes + len(part) > _CELL_BYTES:
                self.omitted += 1
                continue
            self._bytes += len(part)
            parts += [mime.encode(), part]
        flags = (b"main" if main else b"") + (b" cut" if cut else b"")
        self._output.frame(wire.RESULT, wire.encoded(wire.RESULT, flags, *parts), soon=not main)


class Handle:
    """What `display` returns for a `display_id`: shows more under it."""

    def __init__(self, to: Display, display_id: Any) -> None:
        self.display_id = display_id if isinstance(display_id, str) else f"{id(self):x}"
        self._to = to

    def display(self, value: Any, **how: Any) -> None:
        """Show a value."""
        self._to.display(value, **how)

    update = display


def bundle(value: Any) -> dict[str, Any]:
    """All forms of a value, by media type."""
    forms: dict[str, Any] = {}
    if not isinstance(value, type) and not hasattr(value, "_ipython_canary_method_should_not_exist_"):
        forms.update(_tried(_mimebundle, value) or {})
        for mime, method in _METHODS.items():
            if mime not in forms and callable(getattr(value, method, None)):
                found = _tried(getattr(value, method))
                if found is not None:
                    forms[mime] = found[0] if isinstance(found, tuple) else found
        for form in (_figure, _table):
            forms.update(_tried(form, value) or {})
    forms.setdefault(PLAIN, repr(value))
    return forms


def _tried(call: Callable[..., Any], *args: Any) -> Any:
    """What it returns; a form that fails is told on stderr, and the others are shown."""
    try:
        return call(*args)
    except Exception as error:
        sys.stderr.write(f"a form of the result failed: {type(error).__name__}: {error}\n")
        return None


def _mimebundle(value: Any) -> dict[str, Any]:
    if not callable(getattr(value, "_repr_mimebundle_", None)):
        return {}
    found = value._repr_mimebundle_(include=None, exclude=None)
    return dict((found[0] if isinstance(found, tuple) else found) or {})


def _figure(value: Any) -> dict[str, Any]:
    figures = sys.modules.get("matplotlib.figure")
    if figures is None or not isinstance(value, figures.Figure):
        return {}
    import io

    png = io.BytesIO()
    value.savefig(png, format="png", bbox_inches="tight")
    return {"image/png": png.getvalue()}


def _table(value: Any) -> dict[str, Any]:
    name = type(value).__module__.partition(".")[0] + "." + type(value).__name__
    if name == "pandas.DataFrame":
        import json

        found = json.loads(value.head(_TABLE_ROWS).to_json(orient="split", date_format="iso", default_handler=str))
        columns, rows = found["columns"], found["data"]
        if type(value.index).__name__ != "RangeIndex":
            # It is data too: what rows were grouped by, or a time.
            names = value.index.names
            columns = [_index_name(name, at) for at, name in enumerate(names)] + columns
            keys = found["index"] if len(names) > 1 else [[key] for key in found["index"]]
            # A frame without columns has no rows there.
            rows = [key + (rows[at] if rows else []) for at, key in enumerate(keys)]
    elif name == "polars.DataFrame":
        columns, rows = value.columns, value.head(_TABLE_ROWS).rows()
    else:
        return {}
    return {TABLE: {"columns": columns, "rows": rows, "total_rows": len(value)}}


def _index_name(name: Any, at: int) -> Any:
    return name if name is not None else f"level_{at}" if at else "index"


def _bytes(mime: str, data: Any) -> bytes:
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    if isinstance(data, str):
        if mime in _BINARY:
            import binascii

            return binascii.a2b_base64(data)
        return data.encode("utf-8", "backslashreplace")
    import json

    return json.dumps(data, default=str).encode()
