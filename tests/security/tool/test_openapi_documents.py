"""OpenAPI documents that are enemies: a wrong operation is left out alone, and costs little."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.errors import ConfigError, ToolInputError
from noesium_stream.tool.openapi import OpenApiToolkit
from tests.support.shop_api import call_tool, shop
from tests.support.sites import Site, answer

OK = {"responses": {"204": {"description": "done"}}}


def left_out(path: str = "/x", method: str = "get", **operation: Any) -> str:
    """Why an operation is left out; the others of the document are there."""
    toolkit = OpenApiToolkit(shop(**{path: {method: {**OK, **operation}}}))
    assert [one.name for one in toolkit.tools()] == sorted(
        ("addItem", "deleteItem", "findItems", "getItem", "putItem")
    )
    (problem,) = toolkit.problems
    assert problem.isprintable()
    assert len(problem) <= 500
    return problem


def parameter(**changed: Any) -> list[dict[str, Any]]:
    return [{"name": "a", "in": "query", "schema": {"type": "string"}, **changed}]


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        ({"servers": [{"url": "https://evil.example"}]}, "server of its own"),
        ({"operationId": "getItem"}, "another operation is called getItem"),
        ({"operationId": "../"}, "without letters"),
        ({"parameters": parameter(name="")}, "no name"),
        ({"parameters": parameter(**{"in": "cookie", "required": True})}, "in a cookie"),
        ({"parameters": parameter(style="evil")}, "style"),
        ({"parameters": parameter(**{"in": "path"})}, "do not fit the path"),
        (
            {"parameters": [*parameter(name="a/b"), *parameter(name="a_b"), *parameter(name="a?b")]},
            "same name",
        ),
        ({"parameters": parameter(schema={"type": "nonsense"})}, "cannot be used"),
        ({"parameters": [{"$ref": "#/nowhere"}]}, "not in the document"),
        ({"parameters": [{"$ref": "file:///etc/passwd"}]}, "not in the document"),
        ({"parameters": [{"$ref": "http://evil.example/a.json"}]}, "not in the document"),
        ({"parameters": [{"$ref": "#/paths/~1x/get/parameters/0"}]}, "cycle"),
        ({"parameters": parameter(schema={"$ref": "https://evil.example/s"})}, "not in the document"),
        ({"parameters": parameter(schema={"enum": ["x" * 300_000]})}, "more than 256,000 bytes"),
        ({"requestBody": {"content": {"multipart/form-data": {}}}}, "no JSON"),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_an_operation_that_cannot_be_used_is_left_out_with_a_reason(
    operation: dict[str, Any], reason: str
) -> None:
    assert reason in left_out(**operation)


@pytest.mark.parametrize("path", ["x", "/a?b=c", "/a#b", "/\x1b[31m", "/a\\b", "@evil.example/", "/{id}"])
def test_a_path_that_is_none_is_left_out(path: str) -> None:
    left_out(path)


async def test_a_path_cannot_choose_another_host() -> None:
    paths = {"//evil.example/a": {"get": {"operationId": "a", **OK}}}
    async with Site({"/v1//evil.example/a": answer("", 204)}) as site:
        document = shop(site.url("/v1"), **paths)
        assert (await call_tool(document, site, "a", {}))["status"] == 204
        odd = shop(site.url(""), **paths)
        site.pages["//evil.example/a"] = answer("", 204)
        assert (await call_tool(odd, site, "a", {}))["status"] == 204
    assert {asked.headers["host"] for asked in site.asked} == {site.host}


async def test_no_document_decides_about_headers_of_the_client() -> None:
    names = (
        "Host",
        "Cookie",
        "Content-Length",
        "Transfer-Encoding",
        "Proxy-Authorization",
        "X-Forwarded-For",
    )
    headers = [{"name": name, "in": "header", "schema": {"type": "string"}} for name in names]
    document = shop(**{"/x": {"get": {"operationId": "x", "parameters": headers, **OK}}})
    tool = next(one for one in OpenApiToolkit(document).tools() if one.name == "x")
    with pytest.raises(ToolInputError):
        tool.check_input({"Host": "evil.example"})
    assert tool.input_schema["properties"] == {}


def test_a_thousand_operations_are_a_thousand_tools() -> None:
    item = {"$ref": "#/components/schemas/Item"}
    body = {"requestBody": {"content": {"application/json": {"schema": item}}}}
    paths = {f"/p{number}": {"post": {"operationId": f"op{number}", **body, **OK}} for number in range(1_000)}
    toolkit = OpenApiToolkit(shop(**paths), operations=("op*",))
    assert len(toolkit.tools()) == 1_000
    assert toolkit.problems == ()


def test_more_operations_than_the_limit_are_left_out_together() -> None:
    paths = {f"/p{number}": {"get": {"operationId": f"op{number}"}} for number in range(5_100)}
    toolkit = OpenApiToolkit(shop(**paths))
    assert len(toolkit.tools()) <= 5_000
    assert "over 5,000 operations" in toolkit.problems[-1]


def schemas(**found: Any) -> dict[str, Any]:
    """A document with an operation that takes the first of these schemas."""
    first = next(iter(found))
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{first}"}}}
    document = shop(
        version="3.1.0", **{"/x": {"post": {"operationId": "x", "requestBody": {"content": content}}}}
    )
    document["components"]["schemas"] |= found
    return document


def test_recursive_schemas_stay_recursive() -> None:
    tree = {
        "type": "object",
        "properties": {"left": {"$ref": "#/components/schemas/Tree"}},
        "required": ["id"],
    }
    tool = next(one for one in OpenApiToolkit(schemas(Tree=tree)).tools() if one.name == "x")
    tool.check_input({"body": {"id": 1, "left": {"id": 2}}})
    with pytest.raises(ToolInputError, match="left"):
        tool.check_input({"body": {"id": 1, "left": {}}})


def doubling(levels: int) -> dict[str, Any]:
    """Schemas whose work doubles with each level."""

    def twice(number: int) -> dict[str, Any]:
        return {"allOf": [{"$ref": f"#/components/schemas/L{number + 1}"}] * 2}

    return {**{f"L{number}": twice(number) for number in range(levels)}, f"L{levels}": {}}


@pytest.mark.parametrize(
    "found",
    [
        {"A": {"$ref": "#/components/schemas/A"}},
        {"A": {"$ref": "#/components/schemas/B"}, "B": {"$ref": "#/components/schemas/A"}},
        doubling(40),
        {"A": {"properties": {f"p{number}": {"type": "string"} for number in range(30_000)}}},
        {"A": {"required": 5}},
        {"A": {"$ref": "#/components/schemas/A/properties/x", "$id": "https://evil.example/"}},
    ],
    ids=["itself", "each other", "doubling", "wide", "wrong", "nowhere"],
)
def test_hostile_schemas_leave_out_their_operation_or_judge_in_little_time(found: dict[str, Any]) -> None:
    toolkit = OpenApiToolkit(schemas(**found))
    tools = {one.name: one for one in toolkit.tools()}
    assert "getItem" in tools
    assert len(toolkit.problems) == ("x" not in tools)


def test_a_pattern_of_another_dialect_is_left_out_alone() -> None:
    toolkit = OpenApiToolkit(schemas(A={"type": "string", "pattern": "(?<a", "maxLength": 3}))
    tool = next(one for one in toolkit.tools() if one.name == "x")
    with pytest.raises(ToolInputError):
        tool.check_input({"body": "four"})


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x, x]\nb: &b [*a, *a]\n"
        + "".join(
            f"{chr(99 + n)}: &{chr(99 + n)} [{', '.join(['*' + chr(98 + n)] * 9)}]\n" for n in range(9)
        ),
        "openapi: &x [*x]",
        "!!python/object/apply:os.system ['touch /tmp/owned']",
        "{" * 100_000,
        '{"a":' * 100_000,
        "\0",
        "openapi: 3.0.0\npaths: {1: {2: 3}, 2020-01-01: null}",
        json.dumps({"openapi": "3.0.0", "servers": [{"url": "https://{host}/", "variables": {"host": 5}}]}),
    ],
    ids=["laughs", "alias", "python", "braces", "deep", "nul", "keys", "variables"],
)
def test_a_hostile_file_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "api.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as refused:
        OpenApiToolkit(file)
    assert len(refused.value.message) < 600


def test_a_document_that_holds_itself_is_refused() -> None:
    document = shop()
    document["components"]["self"] = document
    with pytest.raises(ConfigError, match="levels"):
        OpenApiToolkit(document)
