"""What the verbs that act on several agents share: which ones, all at once, one line each."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bullpen.cli import output
from bullpen.client.hub import HubClient
from bullpen.errors import BullpenError, Kind

AT_ONCE = 32

Act = Callable[[HubClient, str], dict[str, Any]]


def chosen(hub: HubClient, names: Sequence[str], everyone: bool, pod: str | None) -> list[str]:
    """The running agents that are meant; named ones whether they run or not."""
    if sum((bool(names), everyone, pod is not None)) != 1:
        raise BullpenError("which agents?", hint="names, --pod POD or --all, one of them")
    if names:
        return list(dict.fromkeys(names))
    found = hub.get("agents", pod=pod)["agents"]
    if pod is not None and not found:
        raise BullpenError(f"no pod called {pod}", hint="bullpen pod list", kind=Kind.NOT_FOUND)
    return [agent["name"] for agent in found if agent["running"]]


def act_on_each(hub: HubClient, names: Sequence[str], act: Act, done: str, as_json: bool) -> None:
    """Do it to all side by side; what failed is said for each, and the first of it raised."""

    def attempt(name: str) -> dict[str, Any] | BullpenError:
        try:
            return act(HubClient(hub.home), name)
        except BullpenError as error:
            return error

    began = time.time()
    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        results = list(pool.map(attempt, names))
    failed = [found for found in results if isinstance(found, BullpenError)]
    if as_json:
        output.write_json([found for found in results if not isinstance(found, BullpenError)])
    else:
        for found in results:
            if not isinstance(found, BullpenError):
                is_new = found["running"] or found["since"] >= began
                what = done if is_new else "had ended before"
                output.write(f"{found['name']} {what} · {output.printable(found['words'])}")
    for error in failed[1:]:
        output.write_error(error.message, error.hint)
    if failed:
        raise failed[0]
