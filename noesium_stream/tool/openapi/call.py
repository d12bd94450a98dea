"""Calls of an operation: a request to the server that was fixed when the document was loaded."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlencode

import orjson

from noesium_stream.errors import ConfigError, OutcomeUnknownError, ToolExecutionError, ToolInputError
from noesium_stream.escapes import escaped
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.tool.context import ToolContext
from noesium_stream.tool.net.client import Answer, Call, GuardedClient, SentError
from noesium_stream.tool.net.target import Target, parse_target
from noesium_stream.tool.openapi.operation import BODY, FORM, Operation

MAX_EXCERPT: Final = 300

_PLACE: Final = re.compile(r"\{([^{}/]+)\}")
_UNKNOWN: Final = (301, 302, 303, 502, 504)
"""Statuses that leave open whether an external call was done."""


@dataclass(frozen=True)
class Server:
    """Where the operations of a document are.

    Attributes:
        client: makes the requests.
        base: URL without a slash at its end.
        target: the base, parsed.
        auth_header, auth_env, auth_prefix: the header with the key, and the variable that holds the key.
    """

    client: GuardedClient
    base: str
    target: Target
    auth_header: str
    auth_env: str | None
    auth_prefix: str

    def secrets(self) -> dict[str, str]:
        """The header with the key.

        Raises:
            ConfigError: the variable is not set.
        """
        if self.auth_env is None:
            return {}
        key = os.environ.get(self.auth_env, "")
        if not key or not key.isascii() or not key.isprintable():
            raise ConfigError(
                f"The key for {self.target.authority} is to be in {self.auth_env}, which holds none.",
                hint=f"Set {self.auth_env} in the worker's environment.",
            )
        return {self.auth_header: f"{self.auth_prefix}{key}"}


async def call_operation(
    server: Server,
    operation: Operation,
    side_effects: SideEffectClass,
    arguments: Mapping[str, Any],
    context: ToolContext,
) -> dict[str, Any]:
    """Call an operation, and give `{"status": …, "body": …}`.

    Raises:
        OutcomeUnknownError: an external call was sent, and its answer does not say whether it was done.
        ToolExecutionError: the server says that it failed (a status of 300 or more).
        ToolError: as `GuardedClient.request`.
    """
    external = side_effects is SideEffectClass.EXTERNAL
    call = _call(server, operation, arguments, context)
    try:
        answer = await server.client.request(call)
    except (SentError, ToolExecutionError) as error:
        if external:  # all of these come after the request was sent
            raise OutcomeUnknownError(f"{operation.name}: {error.message}") from None
        raise
    if external and answer.status in _UNKNOWN:
        raise OutcomeUnknownError(
            f"{operation.name}: {server.target.authority} answers with status {answer.status}."
        )
    if answer.status >= 300:
        raise ToolExecutionError(
            f"{operation.name}: {server.target.authority} answers with status {answer.status}"
            f"{_excerpt(answer, call.secrets)}."
        )
    return {"status": answer.status, "body": _body(answer)}


def _call(server: Server, operation: Operation, arguments: Mapping[str, Any], context: ToolContext) -> Call:
    url = server.base + _path(operation, arguments)
    query = [pair for one in _given(operation, "query", arguments) for pair in one[0].in_query(one[1])]
    if query:
        url = f"{url}?{'&'.join(query)}"
    if parse_target(url).origin != server.target.origin:
        raise ToolInputError(f"{operation.name} would leave {server.target.authority}.")
    headers = {"Accept": "application/json, text/plain;q=0.5, */*;q=0.1"}
    headers |= {one.name: one.in_header(value) for one, value in _given(operation, "header", arguments)}
    body = None
    if operation.body_type is not None and BODY in arguments:
        headers["Content-Type"] = operation.body_type
        body = _encoded(operation, arguments[BODY])
    if operation.method in ("POST", "PATCH") and context.call_id is not None:
        headers["Idempotency-Key"] = context.call_id
    return Call(
        url,
        context.granted_permissions,
        method=operation.method,
        headers=headers,
        body=body,
        secrets=server.secrets(),
        follow=operation.method in ("GET", "HEAD"),
    )


def _given(operation: Operation, place: str, arguments: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    found = (one for one in operation.parameters if one.place == place)
    return [(one, arguments[one.argument]) for one in found if one.argument in arguments]


def _path(operation: Operation, arguments: Mapping[str, Any]) -> str:
    texts = {one.name: one.in_path(value) for one, value in _given(operation, "path", arguments)}
    parts = _PLACE.split(operation.path)  # text, name, text, name, ..., text
    for number, part in enumerate(parts):
        parts[number] = texts[part] if number % 2 else quote(part, safe="/:@!$&'()*+,;=-._~%")
    return "".join(parts)


def _encoded(operation: Operation, body: Any) -> bytes:
    if operation.body_type != FORM:
        return orjson.dumps(body)
    if not isinstance(body, dict):
        raise ToolInputError(f"{operation.name}: the body of a form is to be an object.")
    fields = {name: v if isinstance(v, str) else orjson.dumps(v).decode() for name, v in body.items()}
    return urlencode(fields).encode()


def _body(answer: Answer) -> Any:
    """The body of an answer: a JSON value, a text, or None for what is neither."""
    if not answer.body:
        return None
    media_type = answer.media_type
    if media_type == "application/json" or media_type.endswith("+json"):
        try:
            return orjson.loads(answer.body)
        except orjson.JSONDecodeError:
            return answer.body.decode("utf-8", "replace")
    return answer.body.decode("utf-8", "replace") if media_type.startswith("text/") else None


def _excerpt(answer: Answer, secrets: Mapping[str, str]) -> str:
    text = answer.body[: 4 * MAX_EXCERPT].decode("utf-8", "replace")
    for secret in secrets.values():
        text = text.replace(secret, "***").replace(secret.rpartition(" ")[2], "***")
    text = escaped(" ".join(text.split()))[:MAX_EXCERPT]
    return f": {text}" if text else ""
