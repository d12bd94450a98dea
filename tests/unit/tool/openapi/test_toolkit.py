"""`tool/openapi/toolkit.py`: tools of a document, called on real servers on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from noesium_stream.errors import (
    ConfigError,
    OutcomeUnknownError,
    ToolExecutionError,
    ToolInputError,
    ToolPermissionError,
    ToolServerError,
)
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.tool.context import ToolContext
from noesium_stream.tool.openapi import OpenApiToolkit
from tests.support.shop_api import call, call_tool, shop, tools_of
from tests.support.sites import Site, answer, redirect

ONE = {"id": 7, "name": "tea", "note": None}


def made(body: Any, status: int = 200) -> bytes:
    return answer(json.dumps(body), status, "application/json")


def test_each_operation_is_a_tool_with_the_class_of_its_method_and_one_host() -> None:
    tools = tools_of(shop(), name="shop")
    assert {name: tool.side_effect_class.value for name, tool in tools.items()} == {
        "addItem": "external",
        "deleteItem": "idempotent",
        "findItems": "pure",
        "getItem": "pure",
        "putItem": "idempotent",
    }
    assert {tool.permissions for tool in tools.values()} == {("net:outbound:shop.example:443",)}
    assert tools["getItem"].tool_id == "builtin:shop.getItem"
    assert tools["getItem"].description == "One item."
    assert tools["getItem"].labels == ("web",)


def test_schemas_are_those_of_the_document_without_what_a_direction_does_not_have() -> None:
    tools = tools_of(shop())
    tools["addItem"].check_input({"body": {"name": "tea", "secret": "x", "note": None, "parts": []}})
    with pytest.raises(ToolInputError, match="secret"):
        tools["addItem"].check_input({"body": {"name": "tea", "parts": [{"name": "leaf"}]}})
    with pytest.raises(ToolInputError):
        tools["addItem"].check_input({"body": {"name": "x" * 51, "secret": "x"}})
    with pytest.raises(ToolInputError):
        tools["getItem"].check_input({"id": "7", "other": 1})
    assert set(tools["findItems"].input_schema["properties"]) == {"tag", "X-Trace"}
    tools["getItem"].check_output({"status": 200, "body": {**ONE, "parts": [ONE]}})
    with pytest.raises(ToolExecutionError):
        tools["getItem"].check_output({"status": 200, "body": {"name": "tea"}})


async def test_parameters_are_encoded_and_results_judged() -> None:
    pages = {"/v1/items/a%2Fb%20%3F%23%C3%A9": made(ONE), "/v1/items": made([])}
    async with Site(pages) as site:
        assert await call(site, "getItem", id="a/b ?#é") == {"status": 200, "body": ONE}
        found = await call(site, "findItems", tag=["a&b=c", "d"], **{"X-Trace": "t1"})
    assert found == {"status": 200, "body": []}
    assert site.asked[1].path == "/v1/items?tag=a%26b%3Dc&tag=d"
    assert site.asked[1].headers["x-trace"] == "t1"


async def test_a_post_sends_its_key_and_a_json_body() -> None:
    async def items(asked: Any, writer: Any) -> None:
        writer.write(made(ONE, 201) if asked.method == "POST" else made([]))

    async with Site({"/v1/items": items}) as site:
        body = {"name": "tea", "secret": "x"}
        assert (await call(site, "addItem", key="run-1/3", body=body))["status"] == 201
        await call(site, "findItems", key="run-1/4")
    asked, finding = site.asked
    assert "idempotency-key" not in finding.headers
    assert asked.headers["idempotency-key"] == "run-1/3"
    assert asked.headers["content-type"] == "application/json"
    assert json.loads(asked.body) == body


async def test_an_answer_without_a_body_is_none() -> None:
    async with Site({"/v1/items/7": answer("", 204)}) as site:
        assert await call(site, "deleteItem", id="7") == {"status": 204, "body": None}


@pytest.mark.parametrize("value", ["..", ".", "", "a/../b", "..\\b", "../../admin"])
async def test_no_argument_leads_to_another_path(value: str) -> None:
    async with Site() as site:
        with pytest.raises(ToolInputError):
            await call(site, "getItem", id=value)
    assert site.asked == []


async def test_the_key_comes_from_the_environment_and_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_KEY", "hidden-key")

    async def echo(asked: Any, writer: Any) -> None:
        writer.write(answer(f"bad key {asked.headers['authorization']}", 401))

    async with Site({"/v1/items/7": echo}) as site, Site() as other:
        document = shop(site.url("/v1"))
        with pytest.raises(ToolExecutionError, match="status 401: bad key") as refused:
            await call_tool(document, site, "getItem", {"id": "7"}, auth_env="SHOP_KEY")
        assert "hidden-key" not in str(refused.value)
        assert site.asked[0].headers["authorization"] == "Bearer hidden-key"
        site.pages["/v1/items/7"] = redirect(other.url("/"))
        with pytest.raises(ToolPermissionError):
            await call_tool(document, site, "getItem", {"id": "7"}, auth_env="SHOP_KEY")
    assert other.asked == []
    tool = tools_of(document, auth_env="SHOP_KEY", allow_private=(site.host,))["getItem"]
    assert "hidden-key" not in json.dumps(tool.definition)
    monkeypatch.delenv("SHOP_KEY")
    with pytest.raises(ConfigError, match="SHOP_KEY"):
        await call_tool(document, site, "getItem", {"id": "7"}, auth_env="SHOP_KEY")


@pytest.mark.parametrize(
    ("page", "external", "idempotent"),
    [
        (answer("", 500), ToolExecutionError, ToolExecutionError),
        (answer("", 422), ToolExecutionError, ToolExecutionError),
        (answer("", 502), OutcomeUnknownError, ToolExecutionError),
        (redirect("/v1/other", 303), OutcomeUnknownError, ToolExecutionError),
        (redirect("/v1/other", 307), ToolExecutionError, ToolExecutionError),
        (b"", OutcomeUnknownError, ToolServerError),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nx", OutcomeUnknownError, ToolServerError),
        (answer("x", Content_Encoding="br"), OutcomeUnknownError, ToolExecutionError),
    ],
)
async def test_an_external_call_without_a_clear_answer_is_of_unknown_outcome(
    page: bytes, external: type[Exception], idempotent: type[Exception]
) -> None:
    async with Site({"/v1/items": page, "/v1/items/7": page}) as site:
        body = {"name": "tea", "secret": "x"}
        with pytest.raises(external):
            await call(site, "addItem", body=body)
        with pytest.raises(idempotent):
            await call(site, "putItem", id="7", body=body)
    assert len(site.asked) == 2


async def test_a_server_that_was_not_reached_did_nothing() -> None:
    async with Site() as site:
        pass
    with pytest.raises(ToolServerError):
        await call(site, "addItem", body={"name": "tea", "secret": "x"})


async def test_a_call_without_the_grant_reaches_nothing() -> None:
    async with Site() as site:
        tool = tools_of(shop(site.url("/v1")), allow_private=(site.host,))["getItem"]
        with pytest.raises(ToolPermissionError):
            await tool.execute(
                {"id": "7"}, ToolContext("clerk", Path("/nowhere"), ("net:outbound:a.example",))
            )
    assert site.asked == []


def test_settings_choose_operations_classes_and_the_server() -> None:
    tools = tools_of(
        shop(),
        operations=("get*", "findItems"),
        side_effects={"getItem": SideEffectClass.EXTERNAL},
        server="https://other.example:8443/x",
    )
    assert set(tools) == {"findItems", "getItem"}
    assert tools["getItem"].side_effect_class is SideEffectClass.EXTERNAL
    assert tools["getItem"].permissions == ("net:outbound:other.example:8443",)


@pytest.mark.parametrize("dump", [json.dumps, yaml.safe_dump])
def test_a_file_of_json_or_yaml_is_read(dump: Any, tmp_path: Path) -> None:
    file = tmp_path / "shop.txt"
    file.write_text(dump(shop()))
    assert [one.name for one in OpenApiToolkit(file).tools()] == sorted(tools_of(shop()))


@pytest.mark.parametrize(
    ("document", "settings"),
    [
        ({}, {}),
        ({"openapi": "2.0"}, {}),
        ({"openapi": "3.1.0", "paths": {}}, {}),
        (shop("/relative"), {}),
        (shop("file:///etc"), {}),
        (shop("http://shop.example"), {"auth_env": "KEY"}),
        (shop(), {"auth": "secret"}),
        (shop(), {"auth_header": "a\r\nb"}),
    ],
)
def test_a_wrong_document_or_setting_is_refused(document: Any, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        OpenApiToolkit(document, **settings)
