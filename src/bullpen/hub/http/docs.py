"""`/docs`: the description of the API as a page, made here and whole: no scripts, no other host.
Also the description of one agent's part, which its own port has at `/openapi.json`."""

from html import escape
from typing import Any

from fastapi import APIRouter, Depends, Request
from starlette.responses import HTMLResponse, JSONResponse

from bullpen.hub.http.guard import owner_or_self
from bullpen.hub.http.parameters import Name
from bullpen.hub.http.state import HubPart

router = APIRouter(include_in_schema=False)

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #222; background: #fff }
code, pre { font: 13px/1.4 ui-monospace, monospace }
h2 { margin: 2.5rem 0 .3rem; border-top: 1px solid #ddd; padding-top: 1rem; font-size: 1.05rem }
table { border-collapse: collapse; margin: .5rem 0 } caption { text-align: left; color: #666 }
td, th { text-align: left; vertical-align: top; padding: .15rem 1rem .15rem 0 }
p { white-space: pre-line; margin: .3rem 0 }
@media (prefers-color-scheme: dark) { body { color: #ddd; background: #181818 } }
"""


@router.get("/docs")
async def show_docs(request: Request) -> HTMLResponse:
    """The page."""
    return HTMLResponse(page(request.app.openapi()), headers=HEADERS)


AGENT = "/agents/{name}"


@router.get(f"{AGENT}/openapi.json", dependencies=[Depends(owner_or_self)])
async def describe_agent(hub: HubPart, request: Request, name: Name) -> JSONResponse:
    """The API of one agent as its own port has it."""
    hub.registry.get(name)
    return JSONResponse(of_agent(request.app.openapi()))


def of_agent(api: dict[str, Any]) -> dict[str, Any]:
    """What is below an agent's name, with that name left out. Pure."""
    paths = {
        path.removeprefix(AGENT): {method: _unnamed(route) for method, route in methods.items()}
        for path, methods in api["paths"].items()
        if path.startswith(f"{AGENT}/")
    }
    return {**api, "paths": paths}


def _unnamed(operation: dict[str, Any]) -> dict[str, Any]:
    kept = [one for one in operation.get("parameters", ()) if one["name"] != "name"]
    return {**operation, "parameters": kept}


def page(api: dict[str, Any]) -> str:
    """The whole description as HTML."""
    info, schemas = api["info"], api["components"]["schemas"]
    routes = [
        _route(method, path, operation)
        for path, methods in api["paths"].items()
        for method, operation in methods.items()
    ]
    types = [_type(name, schema) for name, schema in sorted(schemas.items())]
    title = f"{escape(info['title'])} {escape(info['version'])}"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{STYLE}</style></head><body><h1>{title}</h1>"
        f"<p>{_prose(info['description'])}</p>"
        '<p>For programs: <a href="/openapi.json">/openapi.json</a></p>'
        f"{''.join(routes)}<h1>Types</h1>{''.join(types)}</body></html>"
    )


def _route(method: str, path: str, operation: dict[str, Any]) -> str:
    parameters = [
        (
            p["name"],
            f"{_shape(p['schema'])}, in {p['in']}",
            p.get("description", "") or p["schema"].get("description", ""),
        )
        for p in operation.get("parameters", ())
    ]
    body = operation.get("requestBody")
    answers = [
        (status, _content(answer), answer["description"])
        for status, answer in operation["responses"].items()
    ]
    return (
        f"<h2><code>{escape(method.upper())} {escape(path)}</code></h2>"
        f"<p>{_prose(operation.get('description', ''))}</p>"
        + _table("parameters", parameters)
        + (f"<p>body: {escape(_content(body))}</p>" if body else "")
        + _table("answers", answers)
    )


def _type(name: str, schema: dict[str, Any]) -> str:
    required = schema.get("required", ())
    fields = [
        (
            field,
            _shape(shape) + ("" if field in required else ", optional"),
            shape.get("description", ""),
        )
        for field, shape in schema.get("properties", {}).items()
    ]
    about = _prose(schema.get("description", ""))
    return f'<h2 id="{escape(name)}"><code>{escape(name)}</code></h2><p>{about}</p>' + _table(
        "", fields
    )


def _table(caption: str, rows: list[tuple[str, str, str]]) -> str:
    lines = (
        f"<tr><td><code>{escape(name)}</code></td><td>{escape(shape)}</td>"
        f"<td>{_prose(about)}</td></tr>"
        for name, shape, about in rows
    )
    return f"<table><caption>{caption}</caption>{''.join(lines)}</table>" if rows else ""


def _content(described: dict[str, Any]) -> str:
    """What is in a body: its type, or its media type where that says more."""
    return " or ".join(
        _shape(content["schema"]) if content.get("schema") else media
        for media, content in described.get("content", {}).items()
    )


def _shape(schema: dict[str, Any]) -> str:
    """A schema in a few words."""
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " or ".join(map(_shape, schema[key]))
    if "const" in schema:
        return repr(schema["const"])
    if "enum" in schema:
        return " or ".join(map(repr, schema["enum"]))
    if schema.get("type") == "array" and isinstance(schema.get("items"), dict):
        return f"list of {_shape(schema['items'])}"
    return str(schema.get("type", "anything"))


def _prose(text: str) -> str:
    """Escaped; between backquotes it is code."""
    parts = escape(text.strip()).split("`")
    return "".join(f"<code>{part}</code>" if n % 2 else part for n, part in enumerate(parts))
