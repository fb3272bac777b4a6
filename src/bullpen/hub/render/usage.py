"""What agents used: a table. Pure."""

from bullpen.hub.render.words import to_the_right
from bullpen.model.usage import Report, Totals, short_count, short_seconds, short_usd
from bullpen.text import align, printable

TOKEN_HEADERS = ("IN", "OUT", "CACHE READ", "CACHE WRITE")
USAGE_HEADERS = (*TOKEN_HEADERS, "COST", "REQUESTS", "TOOLS", "TOOL TIME", "WORKED")


def usage_text(report: Report) -> str:
    """`bullpen usage`: a line each, and one for all."""
    if not report.rows:
        since = f" since {report.since}" if report.since else ""
        return f"nothing was used{since} · agents report it while they work\n"
    rows: list[tuple[str, ...]] = [(report.by.upper(), *USAGE_HEADERS)]
    rows += [(printable(row.name) or f"no {report.by}", *_figures(row.used)) for row in report.rows]
    rows.append(("total", *_figures(report.total)))
    return "\n".join(align(to_the_right(rows, range(1, len(rows[0]))))) + "\n"


def _figures(used: Totals) -> tuple[str, ...]:
    counts = (used.input, used.output, used.cache_read, used.cache_write)
    return (
        *(short_count(count) if count else "–" for count in counts),
        short_usd(used.usd) if used.usd else "–",
        short_count(used.requests) if used.requests else "–",
        short_count(used.tool_calls) if used.tool_calls else "–",
        short_seconds(used.tool_seconds) if used.tool_calls else "–",
        short_seconds(used.work_seconds) if used.work_seconds else "–",
    )
