"""Settings of the framework and of agents (RFC-1001 §13), with the source of each value.

A command-line option beats a `NOESIUM_*` variable, which beats `noesium.toml` (or `[tool.noesium]` of
`pyproject.toml`) in the current folder, which beats the default. An empty variable counts as not set.

RFC-1001 names two settings that are one here: `event_bus_backend` and `event_store_backend` are the scheme of
`log`, because the log is the bus. The execution mode is an attribute of an agent's class: its code depends on
it. Capabilities are always registered, and events always carry trace context.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Literal, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from noesium_stream.errors import ConfigError
from noesium_stream.redaction import HIDDEN, hide_secrets, redacted_url

DEFAULT: Final = "default"
PREFIX: Final = "NOESIUM_"
_URLS: Final = ("log", "schema_registry")
_SECRET_URLS: Final = ("approval_webhook",)
"""URLs whose paths are secrets: whoever has one may post there."""
_PATHS: Final = ("public_keys", "signing_key", "signatures", "subject_keys", "a2a_tokens")


class ExecutionMode(StrEnum):
    """Freedom of a node's code (RFC-1001 §12.3)."""

    STRICT = "strict"
    PRAGMATIC = "pragmatic"
    SANDBOX = "sandbox"


class _Redacted(BaseModel):
    """Settings whose `repr` shows no secret."""

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """See `BaseModel`."""
        return ((name, _shown(name or "", value)) for name, value in super().__repr_args__())


class NoesiumConfig(_Redacted):
    """Settings of the framework (RFC-1001 §13.2)."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    runtime_id: str = Field(
        "local", min_length=1, description="Which installation events say they come from."
    )
    home: Path = Field(
        default_factory=lambda: Path(".noesium"),
        validate_default=True,
        description="Folder of the embedded log, of indexes and of the local broker.",
    )
    log: str = Field(
        default_factory=lambda known: f"sqlite:///{quote(str(known['home'] / 'log.db'))}",
        min_length=1,
        description="URL of the event log: memory://, sqlite:///PATH or kafka://HOST:PORT.",
    )
    namespace: str = Field(
        "noesium", pattern=r"^[a-z][a-z0-9_-]{0,62}$", description="First part of the names of all topics."
    )
    partitions: int = Field(8, ge=1, le=1000, description="Partitions of a topic that is made new.")
    concurrency: int = Field(
        200,
        ge=1,
        description="Runs of each agent that a worker works at, at once; not those that wait.",
    )
    seen_days: float = Field(
        30.0, gt=0, description="For so long after a run has ended its command, sent again, is no second run."
    )
    seen_count: int = Field(
        200_000, ge=1, description="The same, in runs of one partition that have ended since."
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        "WARNING", description="What is logged on standard error."
    )
    schema_registry: str | None = Field(
        None,
        min_length=1,
        description="URL of a schema registry; records are then written in the Confluent wire format.",
    )
    public_keys: Path | None = Field(
        None,
        description="JSON file of Ed25519 public keys by id, with the names that each may speak for.",
    )
    signatures: Literal["optional", "required"] = Field(
        "optional", description="Whether records without a signature are taken."
    )
    signing_key: Path | None = Field(
        None,
        description="JSON file of one Ed25519 private key by its id; signs records and pushes.",
    )

    subject_keys: Path | None = Field(
        None,
        description="Folder with the keys that seal events about people; on SQLite beside the log's file.",
    )

    policy: Path | None = Field(
        None, description="TOML file that says who may ask what of which agents (noesium.policy.toml)."
    )

    on_approval: str | None = Field(
        None,
        min_length=1,
        description="Command that a worker runs once for each question that waits; it gets JSON.",
    )
    approval_webhook: str | None = Field(
        None, min_length=1, description="URL to which a worker posts the same JSON."
    )

    a2a_allow: tuple[str, ...] = Field(
        (), description="Hosts that nodes may call by A2A, beside this machine: HOST or HOST:PORT, by commas."
    )
    a2a_tokens: Path | None = Field(
        None, description="TOML file with the bearer tokens for these hosts, in a table [tokens]."
    )

    @field_validator("a2a_allow", mode="before")
    @classmethod
    def _listed(cls, hosts: object) -> object:
        found = hosts.split(",") if isinstance(hosts, str) else hosts
        if not isinstance(found, list | tuple) or not all(isinstance(host, str) for host in found):
            return found
        return tuple(host.strip().lower() for host in found if host.strip())

    @field_validator("home")
    @classmethod
    def _absolute(cls, home: Path) -> Path:
        return home.expanduser().absolute()

    @field_validator("log_level", mode="before")
    @classmethod
    def _upper(cls, level: object) -> object:
        return level.upper() if isinstance(level, str) else level


_ELSEWHERE: Final[Mapping[str, str]] = {"model": "llm_model", "model_provider": "llm_provider"}


def llm_config_problem(settings: Mapping[str, Any]) -> str | None:
    """The problem with an agent's `llm_config` as far as known without the provider; None if there is none.

    The other settings are checked when the provider's client is created.
    """
    for name, own in _ELSEWHERE.items():
        if name in settings:
            return f"{name!r} has a setting of its own, agent.{own} ({VARIABLES[f'agent.{own}']})"
    temperature, seed, version = (settings.get(name) for name in ("temperature", "seed", "version"))
    if temperature is not None and (
        isinstance(temperature, bool) or not isinstance(temperature, int | float)
    ):
        return f"'temperature' is a number, not {temperature!r}"
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
        return f"'seed' is an integer, not {seed!r}"
    if version is not None and (not isinstance(version, str) or not version):
        return f"'version' is a text, not {version!r}"
    return None


class AgentConfig(_Redacted):
    """Settings of one agent (RFC-1001 §13.1).

    Without `llm_model` an agent works without a model. In `llm_config` the keys `temperature` (a number, or
    null to pass none), `seed` (an integer) and `version` (a string: the provider's version of the model)
    control sampling; all other keys are passed to the provider's client unchanged.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    llm_provider: str = Field("openai", min_length=1, description="Provider of the model.")
    llm_model: str | None = Field(None, min_length=1, description="Name of the model; none if not set.")
    llm_config: dict[str, Any] = Field(
        default_factory=dict,
        description="temperature, seed, version, and more for the provider of the model, as JSON.",
    )

    @field_validator("llm_config")
    @classmethod
    def _samples(cls, settings: dict[str, Any]) -> dict[str, Any]:
        problem = llm_config_problem(settings)
        if problem is not None:
            raise ValueError(problem)
        return settings

    @property
    def model(self) -> str | None:
        """`PROVIDER:NAME`, or None without a model."""
        return f"{self.llm_provider}:{self.llm_model}" if self.llm_model else None


VARIABLES: Final[Mapping[str, str]] = {
    "runtime_id": "NOESIUM_RUNTIME_ID",
    "home": "NOESIUM_HOME",
    "log": "NOESIUM_LOG",
    "namespace": "NOESIUM_NAMESPACE",
    "partitions": "NOESIUM_PARTITIONS",
    "concurrency": "NOESIUM_CONCURRENCY",
    "seen_days": "NOESIUM_SEEN_DAYS",
    "seen_count": "NOESIUM_SEEN_COUNT",
    "log_level": "NOESIUM_LOG_LEVEL",
    "schema_registry": "NOESIUM_SCHEMA_REGISTRY",
    "public_keys": "NOESIUM_PUBLIC_KEYS",
    "signatures": "NOESIUM_SIGNATURES",
    "signing_key": "NOESIUM_SIGNING_KEY",
    "subject_keys": "NOESIUM_SUBJECT_KEYS",
    "policy": "NOESIUM_POLICY",
    "on_approval": "NOESIUM_ON_APPROVAL",
    "approval_webhook": "NOESIUM_APPROVAL_WEBHOOK",
    "a2a_allow": "NOESIUM_A2A_ALLOW",
    "a2a_tokens": "NOESIUM_A2A_TOKENS",
    "agent.llm_provider": "NOESIUM_LLM_PROVIDER",
    "agent.llm_model": "NOESIUM_LLM_MODEL",
    "agent.llm_config": "NOESIUM_LLM_CONFIG",
}
"""The environment variable of each setting."""


@dataclass(frozen=True, slots=True)
class Setting:
    """An effective value; `source` is `default`, or the name of a variable, an option or a file."""

    name: str
    value: Any
    source: str
    variable: str
    description: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """All effective settings; `sources` has the source of each value."""

    noesium: NoesiumConfig
    agent: AgentConfig
    sources: Mapping[str, str]

    @property
    def shown_log(self) -> str:
        """The log's URL without secrets."""
        return redacted_url(self.noesium.log)

    def settings(self) -> list[Setting]:
        """Every setting, in the order of the models; secrets are hidden."""
        found = []
        for prefix, model in (("", self.noesium), ("agent.", self.agent)):
            values = model.model_dump(mode="json")
            for field, info in type(model).model_fields.items():
                name = prefix + field
                value = _shown(field, values[field])
                found.append(
                    Setting(name, value, self.sources[name], VARIABLES[name], info.description or "")
                )
        return found


def load_config(
    options: Mapping[str, Any] | None = None,
    *,
    env: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> NoesiumConfig:
    """The framework's effective settings; see `load_all`."""
    return load_all(options, env=env, folder=folder).noesium


def load_all(
    options: Mapping[str, Any] | None = None,
    *,
    env: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Loaded:
    """Read settings from `options` (by name, `agent.` before an agent's), variables, file and defaults.

    Options that are None count as not given. `folder` (default: the current one) may contain `noesium.toml`
    or `pyproject.toml`.

    Raises:
        ConfigError: a value is not allowed, or a file has a setting that does not exist; names both.
    """
    values: dict[str, Any] = {}
    sources = dict.fromkeys(VARIABLES, DEFAULT)
    file_name, from_file = _read_file(folder or Path.cwd())
    variables = os.environ if env is None else env
    # Lowest precedence first: each later source overrides earlier ones.
    for name, value in from_file.items():
        values[name], sources[name] = value, file_name
    for name, variable in VARIABLES.items():
        if variables.get(variable):
            values[name], sources[name] = _from_text(name, variables[variable], variable), variable
    for name, value in (options or {}).items():
        if value is not None:
            values[name], sources[name] = value, f"--{name.removeprefix('agent.').replace('_', '-')}"
    _refuse_unknown(values, sources)
    noesium = _validated(NoesiumConfig, "", values, sources)
    agent = _validated(AgentConfig, "agent.", values, sources)
    return Loaded(noesium, agent, sources)


def _read_file(folder: Path) -> tuple[str, dict[str, Any]]:
    """The name of the settings file and its content, flattened (`agent.` before an agent's settings)."""
    own, project = folder / "noesium.toml", folder / "pyproject.toml"
    if own.is_file():
        return own.name, _flat(_toml(own))
    if project.is_file():
        table = _toml(project).get("tool", {}).get("noesium", {})
        return f"{project.name} [tool.noesium]", _flat(table)
    return own.name, {}


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path} is not valid TOML: {error}.",
            hint='Correct that place. A setting is a line such as namespace = "crm": texts stand in quotes.',
        ) from error
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}.",
            hint="Let this user read it, or work in a folder without it.",
        ) from error


def _flat(table: Mapping[str, Any]) -> dict[str, Any]:
    agent = table.get("agent", {})
    flat = {name: value for name, value in table.items() if name != "agent"}
    if not isinstance(agent, Mapping):
        return {**flat, "agent": agent}
    return {**flat, **{f"agent.{name}": value for name, value in agent.items()}}


def _from_text(name: str, text: str, variable: str) -> Any:
    if name != "agent.llm_config":
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"{variable} is not valid JSON: {error}.",
            hint='It takes an object, for example {"temperature": 0}.',
        ) from error


def _refuse_unknown(values: Mapping[str, Any], sources: Mapping[str, str]) -> None:
    for name in values:
        if name not in VARIABLES:
            known = ", ".join(VARIABLES)
            raise ConfigError(f"{sources[name]}: there is no setting {name!r}.", hint=f"There are: {known}.")


_Model = TypeVar("_Model", bound=BaseModel)


def _validated(
    model: type[_Model], prefix: str, values: Mapping[str, Any], sources: Mapping[str, str]
) -> _Model:
    own = {name.removeprefix(prefix): values[name] for name in values if ("." in name) == bool(prefix)}
    try:
        return model.model_validate(own)
    except ValidationError as error:
        first = error.errors()[0]
        name = prefix + str(first["loc"][0])
        value = _shown(str(first["loc"][-1]), first["input"])
        reason = first["msg"][:1].lower() + first["msg"][1:]
        raise ConfigError(
            f"{sources[name]}: {value!r} cannot be the value of {name}: {reason}.", hint=_what(model, name)
        ) from None  # it quotes the value


def _shown(field: str, value: Any) -> Any:
    """The value of a setting for display; the settings that name files of keys are paths."""
    if field in _URLS and isinstance(value, str):
        return redacted_url(value)
    if field in _SECRET_URLS and isinstance(value, str):
        scheme, _, rest = value.partition("://")
        return f"{scheme}://{rest.partition('/')[0].rpartition('@')[2]}/{HIDDEN}" if rest else HIDDEN
    return hide_secrets(value, "" if field in _PATHS else field)


def _what(model: type[BaseModel], name: str) -> str:
    info = model.model_fields[name.rpartition(".")[2]]
    return f"{name} ({VARIABLES[name]}): {info.description}"
