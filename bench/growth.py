"""Row g: what must not cost more where there is more of it. Each cost is taken at two sizes in one
run; the larger is beside the smaller."""

from collections.abc import Iterator

from bench import growth_log, growth_messages, growth_tasks, growth_trees
from bench.table import Row


def rows(short: bool) -> Iterator[Row]:
    """One thing that grows after the other."""
    for part in (growth_log, growth_tasks, growth_messages, growth_trees):
        yield from part.rows(short)
