"""The tool that runs code in an interpreter. Its docstring is what a model is told of it."""

from __future__ import annotations

from rollbox import Cell, CellResult
from rollbox_integrations.mcp.excerpts import excerpt
from rollbox_integrations.mcp.inputs import RunCode
from rollbox_integrations.mcp.outputs import CellErrorOutput, CellOutput
from rollbox_integrations.mcp.pictures import MOST_PICTURE_BYTES, MOST_PICTURES, Picture, Shown
from rollbox_integrations.mcp.sandboxes import Sandboxes


async def run_code(sandboxes: Sandboxes, given: RunCode) -> Shown:
    """Run Python or JavaScript in an interpreter of the sandbox that keeps its variables from one call to the next.

    The value of a last expression is returned as `value`; figures are shown as pictures. An exception is a result.
    """
    held = sandboxes.get(given.sandbox_id)
    interpreter = await held.interpreter(given.language, restart=given.restart)
    cell = await interpreter.run(given.code, timeout=given.timeout)
    if max(cell.stdout_total_bytes, cell.stderr_total_bytes) > given.max_output_bytes:
        held.keep(cell)
    pictures = _pictures(cell.results)
    return Shown(_told(cell, given.max_output_bytes, len(pictures)), pictures)


def _told(cell: Cell, most: int, pictures: int) -> CellOutput:
    hint = f"read_output with output_id {cell.cell_id}"

    def shown(text: str | None) -> str | None:
        data = (text or "").encode()
        return None if text is None else excerpt(data, len(data), most, hint="print a part of it")

    raised = cell.error
    error = raised and CellErrorOutput(
        name=raised.name, value=shown(raised.value) or "", traceback=shown(raised.traceback) or ""
    )
    return CellOutput(
        end=cell.end,
        value=shown(cell.text),
        error=error,
        stdout=excerpt(cell.stdout_bytes, cell.stdout_total_bytes, most, hint=hint),
        stderr=excerpt(cell.stderr_bytes, cell.stderr_total_bytes, most, hint=f"{hint} and stream stderr"),
        stdout_truncated=cell.stdout_total_bytes > most,
        stderr_truncated=cell.stderr_total_bytes > most,
        stdout_bytes=cell.stdout_total_bytes,
        stderr_bytes=cell.stderr_total_bytes,
        displayed=[shown(one.text) or "" for one in cell.results if not one.main][:MOST_PICTURES],
        pictures=pictures,
        results_omitted=cell.results_omitted,
        variables_lost=cell.variables_lost,
        restarted=cell.restarted,
        reason=cell.reason,
        run_ms=cell.run_ms,
        output_id=cell.cell_id,
    )


def _pictures(results: tuple[CellResult, ...]) -> list[Picture]:
    found = []
    for one in results:
        for mime, data in (("image/png", one.png), ("image/jpeg", one.jpeg)):
            if data is not None and len(data) <= MOST_PICTURE_BYTES:
                found.append(Picture(mime, data))
                break
    return found[:MOST_PICTURES]
