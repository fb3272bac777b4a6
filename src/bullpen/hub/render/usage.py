"""What agents used: a table. Pure."""

from bullpen.model.usage import Totals, UsageReport, short_count, short_seconds, short_usd
from bullpen.table import lay_out
from bullpen.text import printable

TOKEN_HEADERS = ("IN", "OUT", "CACHE READ", "CACHE WRITE")
USAGE_HEADERS = (*TOKEN_HEADERS, "COST", "REQUESTS", "TOOLS", "TOOL TIME", "WORKED")
DROPPED = ("TOOL TIME", "CACHE WRITE", "TOOLS", "REQUESTS", "CACHE READ", "WORKED", "IN", "OUT")


def usage_text(report: UsageReport, columns: int = 0) -> str:
    """`bullpen usage`: a line each, and one for all."""
    if not report.rows:
        since = f" since {report.since}" if report.since else ""
        return f"nothing was used{since} · agents report it while they work\n"
    names = (report.by.upper(), *USAGE_HEADERS)
    rows = [(printable(row.name) or f"no {report.by}", *_figures(row.used)) for row in report.rows]
    table = [names, *rows, ("total", *_figures(report.total))]
    lines = lay_out(names, table, columns, drop=DROPPED, cut=names[:1], figures=USAGE_HEADERS)
    return "\n".join(lines) + "\n"


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
