"""Calls of `/gc`: remove what ended agents left. No I/O."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from bullpen.client.call import Model, Stream, given, path
from bullpen.client.streams import Lines

if TYPE_CHECKING:
    from bullpen.model.gc import GcPlan, GcProgress


def collect(
    older_than_seconds: float | None = None, *, dry_run: bool = False, force: bool = False
) -> "Stream[GcProgress | GcPlan]":
    """Remove sessions and clean, merged worktrees of agents that have ended; with `dry_run` only
    say what would go. How far it is, and at last what was done."""

    def read(line: Mapping[str, object]) -> "GcProgress | GcPlan":
        model: Model[GcProgress | GcPlan] = Model(
            "gc.GcPlan" if "steps" in line else "gc.GcProgress"
        )
        return model.parse(line)

    body = {**given(older_than_seconds=older_than_seconds), "dry_run": dry_run, "force": force}
    return Stream("POST", path("gc"), body=body, again=True, reader=lambda: Lines(read))
