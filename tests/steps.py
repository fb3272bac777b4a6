"""Steps of the hub at which a test can kill it: right before or right after a function's n-th call.

A test names its steps in plain words and gives the function itself: when that is renamed or moved,
the test follows or does not load. A step is text, `module:function:call:moment`, because the hub
that is to die there is another process.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

Moment: TypeAlias = Callable[..., str]


def before(function: Callable[..., Any], call: int = 1) -> str:
    return f"{function.__module__}:{function.__qualname__}:{call}:before"


def after(function: Callable[..., Any], call: int = 1) -> str:
    return f"{function.__module__}:{function.__qualname__}:{call}:after"
