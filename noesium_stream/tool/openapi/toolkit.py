"""The toolkit of an OpenAPI document: one tool for each operation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, ClassVar, Final

from pydantic import Field

from noesium_stream.errors import ConfigError, ToolError
from noesium_stream.escapes import escaped
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.tool.atomic import AtomicTool, ToolFunction, ToolSource
from noesium_stream.tool.context import ToolContext
from noesium_stream.tool.net.client import GuardedClient
from noesium_stream.tool.net.grants import need_of
from noesium_stream.tool.net.resolve import Resolver, system_resolver
from noesium_stream.tool.net.settings import NetSettings
from noesium_stream.tool.net.target import parse_target
from noesium_stream.tool.openapi.call import Server, call_operation
from noesium_stream.tool.openapi.document import Document
from noesium_stream.tool.openapi.operation import Operation, operations_of
from noesium_stream.tool.toolkit import BaseToolkit, ToolkitConfig

SIDE_EFFECTS: Final = {
    "GET": SideEffectClass.PURE,
    "HEAD": SideEffectClass.PURE,
    "PUT": SideEffectClass.IDEMPOTENT,
    "DELETE": SideEffectClass.IDEMPOTENT,
    "POST": SideEffectClass.EXTERNAL,
    "PATCH": SideEffectClass.EXTERNAL,
}
"""The class of an operation by its method (RFC 9110 §9.2), where the settings say nothing else."""

_VARIABLE: Final = re.compile(r"\{([^{}]{1,100})\}")


class OpenApiConfig(ToolkitConfig):
    """Settings of a toolkit of an OpenAPI document, set by an operator.

    Attributes:
        name: the toolkit's name, a part of its tools' ids.
        server: the base URL; None: that of the document's first server.
        operations: names of the operations to offer, with `*`; empty: all.
        side_effects: classes by operation, where the method is not the truth.
        auth_env: the variable of the worker's environment that holds the key; None: there is no key.
        auth_header, auth_prefix: the header that carries it, and what stands before it.
        labels: the provenance of results.
        allow_private: hosts, each with an optional port, that may have private addresses.
        max_bytes: size of an answer, as it comes and as it unpacks.
        timeout_s: the time of one call, in seconds.
        ca_file: a file of certificates to trust beside the usual ones.
    """

    name: str = Field("openapi", pattern=r"^[A-Za-z0-9_-]{1,64}$")
    server: str | None = None
    operations: tuple[str, ...] = ()
    side_effects: Mapping[str, SideEffectClass] = Field(default_factory=dict)
    auth_env: str | None = None
    auth_header: str = Field("Authorization", pattern=r"^[A-Za-z0-9-]{1,100}$")
    auth_prefix: str = "Bearer "
    labels: tuple[str, ...] = ("web",)
    allow_private: tuple[str, ...] = ()
    max_bytes: int = Field(5_000_000, ge=1, le=100_000_000)
    timeout_s: float = Field(25.0, gt=0, le=600)
    ca_file: Path | None = None


class OpenApiToolkit(BaseToolkit):
    """The operations of an OpenAPI document of version 3.0 or 3.1, as tools.

    The document is data of someone else: it decides about names, schemas and paths, and not about the host,
    the key or the permissions. An operation that cannot be used is left out, and `problems` says why.

    Attributes:
        problems: one sentence for each operation that was left out.
    """

    name: ClassVar[str] = "openapi"
    Config: ClassVar[type[ToolkitConfig]] = OpenApiConfig
    source: ClassVar[ToolSource] = ToolSource.BUILTIN
    config: OpenApiConfig

    def __init__(
        self,
        document: str | Path | Mapping[str, Any],
        config: ToolkitConfig | None = None,
        *,
        resolver: Resolver = system_resolver,
        **settings: Any,
    ) -> None:
        """Load a document: a file of JSON or YAML, or what was read from one.

        Raises:
            ConfigError: it is no OpenAPI document, has no server, or a setting is not valid.
        """
        super().__init__(config, **settings)
        loaded = Document(document)
        self._server = self._server_of(loaded, resolver)
        self.problems: tuple[str, ...] = ()
        self._tools = self._tools_of(loaded)

    def tools(self) -> list[AtomicTool]:
        """One tool for each operation that the settings offer and that can be used, by name."""
        return list(self._tools)

    def _tools_of(self, document: Document) -> list[AtomicTool]:
        found: dict[str, AtomicTool] = {}
        problems: list[str] = []
        for where, operation in operations_of(document, self.config.auth_header):
            if isinstance(operation, Operation) and not self._is_offered(operation.name):
                continue
            try:
                if not isinstance(operation, Operation):
                    raise operation
                if operation.name in found:
                    raise ValueError(f"another operation is called {operation.name}")
                found[operation.name] = self._tool(operation)
            except (ValueError, ConfigError) as error:
                problems.append(escaped(f"{where}: {str(error).splitlines()[0]}")[:500])
        self.problems = tuple(problems)
        return [found[name] for name in sorted(found)]

    def _is_offered(self, name: str) -> bool:
        wanted = self.config.operations
        return not wanted or any(fnmatchcase(name, pattern) for pattern in wanted)

    def _tool(self, operation: Operation) -> AtomicTool:
        side_effects = self.config.side_effects.get(operation.name, SIDE_EFFECTS[operation.method])
        return AtomicTool(
            name=operation.name,
            description=operation.description or f"{operation.method} {operation.path}",
            input_schema=operation.input_schema,
            output_schema=operation.output_schema,
            source=self.source,
            toolkit_name=self.config.name,
            side_effect_class=side_effects,
            permissions=(need_of(self._server.target),),
            timeout_ms=round(self.config.timeout_s * 1000) + 5_000,
            tags=("category:http",),
            labels=self.config.labels,
            function=_function(self._server, operation, side_effects),
        )

    def _server_of(self, document: Document, resolver: Resolver) -> Server:
        config = self.config
        base = (config.server or _first_server(document)).rstrip("/")
        try:
            target = parse_target(base)
        except ToolError as error:
            raise ConfigError(
                f"{document.name} has no server that can be called: {error.message}",
                hint="Set server='https://…'.",
            ) from None
        if target.url.query or "#" in base:
            raise ConfigError(f"{document.name} has a server with a query.", hint="Set server='https://…'.")
        net = NetSettings(
            allow_private=config.allow_private,
            max_bytes=config.max_bytes,
            total_s=config.timeout_s,
            ca_file=None if config.ca_file is None else str(config.ca_file),
        )
        if config.auth_env is not None and target.scheme == "http" and not net.may_be_private(target):
            raise ConfigError(
                f"The key for {target.authority} would be sent without TLS.", hint="Set server='https://…'."
            )
        client = GuardedClient(net, resolver)
        return Server(client, base, target, config.auth_header, config.auth_env, config.auth_prefix)


def _first_server(document: Document) -> str:
    servers = document.root.get("servers")
    first = servers[0] if isinstance(servers, list) and servers else {}
    url = first.get("url") if isinstance(first, dict) else None
    variables = first.get("variables") if isinstance(first, dict) else None

    def default(found: re.Match[str]) -> str:
        variable = variables.get(found[1]) if isinstance(variables, dict) else None
        return str(variable.get("default", "")) if isinstance(variable, dict) else ""

    return _VARIABLE.sub(default, url) if isinstance(url, str) else ""


def _function(server: Server, operation: Operation, side_effects: SideEffectClass) -> ToolFunction:
    async def call(arguments: dict[str, Any], context: ToolContext) -> Any:
        return await call_operation(server, operation, side_effects, arguments, context)

    return call
