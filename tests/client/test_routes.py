"""Every route of the hub has a call, and every call a route: same method, path, query and body.

The calls are all functions of `client/<noun>.py` that return a `Call` or a `Stream`. Each is called
with a value for everything that it takes, and compared with `/openapi.json`. The names of modules
and functions are those of `hub/http`.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Any, Literal, get_args, get_origin, get_type_hints
from urllib.parse import unquote

import pytest
from fastapi.routing import APIRoute, APIWebSocketRoute
from pydantic import TypeAdapter

import bullpen.client
import bullpen.hub.http
from bullpen.client import terminals
from bullpen.client.call import Call, Either, Model, Models, Request, Stream
from bullpen.client.shell import Shell
from bullpen.hub.http.app import make_app

# What nobody but an engine or a browser calls, and why.
WITHOUT_A_CALL = {
    ("POST", "/agents/{name}/hooks"): "the engine's hook, by hot/hook.py",
    ("POST", "/agents/{name}/mcp"): "the agent's own tools, by hot/mcp_relay.py",
    ("POST", "/agents/{name}/permission"): "the engine's hook, by hot/permission.py",
    ("POST", "/v1/metrics"): "telemetry of the engine, in OTLP",
    ("POST", "/v1/logs"): "telemetry of the engine, in OTLP",
    ("POST", "/v1/traces"): "telemetry of the engine, in OTLP",
}
FOR_TEXT = {"colour", "columns", "full"}  # what `as_text` adds
VALUES: dict[str, Any] = {
    "name": "{name}",
    "agent": "{name}",
    "id": "{id}",
    "request": "{request}",
    "shell": Shell("/"),
}

API = make_app(None).openapi()  # type: ignore[arg-type]
ROUTES = {(method.upper(), path) for path, methods in API["paths"].items() for method in methods}


def nouns() -> Iterator[ModuleType]:
    """The modules of the client that are named as one of `hub/http`."""
    served = {module.name for module in iter_modules(bullpen.hub.http.__path__)}
    for module in iter_modules(bullpen.client.__path__):
        if module.name in served:
            yield import_module(f"bullpen.client.{module.name}")


def functions() -> Iterator[tuple[str, Callable[..., Request]]]:
    for module in nouns():
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ == module.__name__ and not name.startswith("_"):
                yield f"{module.__name__.rpartition('.')[2]}.{name}", function


FUNCTIONS = dict(functions())


def hints(function: Callable[..., Request]) -> dict[str, Any]:
    """With the names that are imported for type checkers only."""
    models = {
        name: value
        for module in iter_modules(import_module("bullpen.model").__path__)
        for name, value in vars(import_module(f"bullpen.model.{module.name}")).items()
        if isinstance(value, type) and value.__module__ == f"bullpen.model.{module.name}"
    }
    return get_type_hints(function, {**models, "Shell": Shell, **function.__globals__})


def sample(name: str, hint: Any) -> Any:
    """Something of that type that is not the default."""
    if name in VALUES:
        return VALUES[name]
    kind = next((each for each in get_args(hint) if each is not type(None)), hint)
    if isinstance(kind, str):
        return kind  # of a Literal
    if get_origin(kind) is Literal:
        return get_args(kind)[0]
    if kind in (str, int, float, bool):
        return kind(1)
    return {"a": "b"} if get_origin(kind) is Mapping else ["a"]


def calls(name: str) -> list[Request]:
    """With everything that it takes; if an agent is optional, also without one."""
    function = FUNCTIONS[name]
    types = hints(function)
    given: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            fields = get_args(types[parameter.name])[0]
            given |= {key: sample(key, hint) for key, hint in get_type_hints(fields).items()}
        else:
            given[parameter.name] = sample(parameter.name, types[parameter.name])
    found = [function(**given)]
    agent = inspect.signature(function).parameters.get("agent")
    if agent is not None and agent.default == "":
        found.append(function(**given | {"agent": ""}))
    return found


def route(call: Request) -> tuple[str, str]:
    return call.method, unquote(call.path)


ALL = [(name, call) for name in FUNCTIONS for call in calls(name)]
IDS = [f"{name} {route(call)[1]}" for name, call in ALL]


def operation(call: Request) -> dict[str, Any]:
    method, path = route(call)
    found: dict[str, Any] = API["paths"][path][method.lower()]
    return found


def test_every_route_has_a_call() -> None:
    assert {route(call) for _, call in ALL} | set(WITHOUT_A_CALL) == ROUTES


def test_no_exemption_is_left_over() -> None:
    assert not {route(call) for _, call in ALL} & set(WITHOUT_A_CALL)


def test_a_route_has_one_call() -> None:
    routes = [route(call) for _, call in ALL]
    assert len(routes) == len(set(routes))


def test_calls_are_called_as_the_hubs_functions() -> None:
    served = {
        f"{each.endpoint.__module__.rpartition('.')[2]}.{each.endpoint.__name__}"
        for each in make_app(None).routes  # type: ignore[arg-type]
        if isinstance(each, APIRoute) and each.include_in_schema
    }
    assert set(FUNCTIONS) <= served


@pytest.mark.parametrize(("name", "call"), ALL, ids=IDS)
def test_the_query_is_the_routes(name: str, call: Request) -> None:
    parameters = operation(call).get("parameters", ())
    taken = {each["name"] for each in parameters if each["in"] == "query"}
    word = "lines" if "text" in call.query else "text"  # a text may be what is looked for
    has_text = word in taken
    assert set(call.query) == taken - ((FOR_TEXT | {word}) - set(call.query) if has_text else set())
    if has_text and isinstance(call, Call):
        assert set(call.as_text().query) - set(call.query) == {word}


@pytest.mark.parametrize(("name", "call"), ALL, ids=IDS)
def test_the_headers_are_the_routes(name: str, call: Request) -> None:
    parameters = operation(call).get("parameters", ())
    taken = {each["name"] for each in parameters if each["in"] == "header"}
    # `after` says the same.
    assert set(call.headers) == (taken if "after" not in call.query else set())


@pytest.mark.parametrize(("name", "call"), ALL, ids=IDS)
def test_the_body_is_the_routes(name: str, call: Request) -> None:
    content = operation(call).get("requestBody", {}).get("content", {})
    schema = resolved(content.get("application/json", {}).get("schema"))
    if schema is None:
        assert call.body is None
    elif "properties" in schema and name != "status.shut_down":
        # The hub has nothing to wait for, so nothing can be said of that.
        assert set(call.body or {}) == set(schema["properties"])


@pytest.mark.parametrize(("name", "call"), ALL, ids=IDS)
def test_the_answer_is_of_the_routes_type(name: str, call: Request) -> None:
    returned = hints(FUNCTIONS[name])["return"]
    (answer,) = get_args(returned)
    success = next(
        content
        for status, content in operation(call)["responses"].items()
        if status.startswith("2")
    )
    schema = next(iter(success.get("content", {}).values()), {}).get("schema", {})
    if isinstance(call, Stream) or answer is str:
        assert "$ref" not in schema
        return
    assert isinstance(call, Call)
    read = call.read
    if isinstance(read, Either):
        assert {read.model.type, read.other.type} == set(get_args(answer))
    elif isinstance(read, Models):
        assert list[read.model.type] == answer  # type: ignore[name-defined]
    else:
        assert isinstance(read, Model)
        assert read.type is answer
    wanted = TypeAdapter(answer).json_schema(mode="serialization")
    assert answered(schema) & names_of(wanted)


def test_the_calls_of_terminals_are_those_of_their_route() -> None:
    """A WebSocket stands not in `/openapi.json`."""
    (served,) = (one for one in make_app(None).routes if isinstance(one, APIWebSocketRoute))  # type: ignore[arg-type]
    calls = (terminals.attach("{name}"), terminals.hold("{name}"))
    assert {unquote(call.path) for call in calls} == {served.path}
    taken = {parameter.name for parameter in served.dependant.query_params}
    assert {name for call in calls for name in call.query} == taken


def resolved(schema: dict[str, Any] | None) -> dict[str, Any] | None:
    """The schema itself; of one that may be null the other."""
    if schema is None:
        return None
    for other in schema.get("anyOf", ()):
        if other.get("type") != "null":
            return resolved(other)
    reference = schema.get("$ref")
    if reference is None:
        return schema
    found: dict[str, Any] = API["components"]["schemas"][reference.rpartition("/")[2]]
    return found


def answered(schema: dict[str, Any]) -> set[str]:
    """The sets of properties that the route may answer."""
    parts = schema.get("anyOf") or [schema.get("items", schema)]
    return {properties(resolved(part) or {}) for part in parts}


def names_of(schema: dict[str, Any]) -> set[str]:
    parts = schema.get("anyOf") or [schema.get("items", schema)]
    found = set()
    for part in parts:
        reference = part.get("$ref")
        found.add(properties(schema["$defs"][reference.rpartition("/")[2]] if reference else part))
    return found


def properties(schema: dict[str, Any]) -> str:
    return " ".join(sorted(schema.get("properties", {})))
