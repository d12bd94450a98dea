"""Toolkits: classes whose methods are tools (RFC-2003 §5.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from noesium_stream.errors import ConfigError, ToolNotFoundError
from noesium_stream.tool.atomic import AtomicTool, ToolSource
from noesium_stream.tool.function import MARK, tool_of_function

T = TypeVar("T", bound="type[BaseToolkit]")


class ToolkitConfig(BaseModel):
    """Settings of a toolkit; each toolkit has a subclass with its own fields. Unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class BaseToolkit:
    """Some tools that share settings.

        class Clock(BaseToolkit):
            name = "clock"

            @tool(side_effects=SideEffectClass.PURE)
            def seconds(self, minutes: int) -> int:
                \"\"\"How many seconds these minutes have.\"\"\"
                return 60 * minutes

    Its tools are its methods that are marked by `@tool`, and what `get_tools_map` returns. An instance serves
    all agents of a worker that name it; it keeps nothing of a call.

    Class attributes:
        name: the toolkit's name, a part of its tools' ids.
        Config: the class of its settings.
        source: where its tools come from.
    """

    name: ClassVar[str]
    Config: ClassVar[type[ToolkitConfig]] = ToolkitConfig
    source: ClassVar[ToolSource] = ToolSource.USER

    def __init__(self, config: ToolkitConfig | None = None, **settings: Any) -> None:
        """Take settings as a config, or by their names.

        Raises:
            ConfigError: a setting is unknown or not valid.
        """
        try:
            self.config = config if config is not None else self.Config(**settings)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise ConfigError(f"The toolkit {self.name}: {where}: {first['msg'][:200]}.") from None

    def get_tools_map(self) -> Mapping[str, Callable[..., Any]]:
        """Functions by the names of their tools, beside the marked methods."""
        return {}

    def tools(self) -> list[AtomicTool]:
        """Its tools; by default those of the marked methods and of `get_tools_map`, in this order."""
        marked = [name for name in dir(type(self)) if hasattr(getattr(type(self), name, None), MARK)]
        found = [
            tool_of_function(getattr(self, name), toolkit=self.name, source=self.source) for name in marked
        ]
        for name, function in self.get_tools_map().items():
            one = tool_of_function(function, toolkit=self.name, source=self.source)
            found.append(one if one.name == name else replace(one, name=name))
        return found

    def prepare(self, working_directory: Path) -> None:
        """Get ready for the agents of this workspace; called before the first call in a process.

        Raises:
            NoesiumError: it cannot be used here; says what to do.
        """
        return


class AsyncBaseToolkit(BaseToolkit):
    """A toolkit that holds connections: `start` before the first call in a process, `stop` after the last.

    `start` may find out which tools there are (`tools` is asked for after it).
    """

    async def start(self) -> None:
        """Connect.

        Raises:
            NoesiumError: it cannot be used here; says what to do.
        """
        return

    async def stop(self) -> None:
        """Release what `start` has taken."""
        return

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call back, in the loop of `start`, when `tools` has other definitions than before; here never."""
        return


_BUILTIN: Final[Mapping[str, str]] = {
    "code": "noesium_stream.tool.builtin.code",
    "documents": "noesium_stream.tool.builtin.documents",
    "files": "noesium_stream.tool.builtin.files",
    "python": "noesium_stream.tool.builtin.python",
    "shell": "noesium_stream.tool.builtin.shell",
    "sql": "noesium_stream.tool.builtin.sql.toolkit",
    "skills": "noesium_stream.tool.skill.toolkit",
    "time": "noesium_stream.tool.builtin.time",
    "web": "noesium_stream.tool.builtin.web",
}
"""Toolkits of this package by name: their modules are imported when they are asked for."""


class ToolkitRegistry:
    """Classes of toolkits by name."""

    def __init__(self) -> None:
        self._classes: dict[str, type[BaseToolkit]] = {}

    def register(self, name: str, toolkit: type[BaseToolkit]) -> None:
        """Add a class.

        Raises:
            ConfigError: another class has this name.
        """
        if self._classes.setdefault(name, toolkit) is not toolkit:
            raise ConfigError(
                f"There are two toolkits {name!r}: {self._classes[name].__qualname__} and "
                f"{toolkit.__qualname__}.",
                hint="Rename one of them.",
            )

    def get(self, name: str) -> type[BaseToolkit]:
        """The class of this name.

        Raises:
            ToolNotFoundError: there is none.
        """
        if name in _BUILTIN and name not in self._classes:
            import_module(_BUILTIN[name])
        if name not in self._classes:
            raise ToolNotFoundError(
                f"There is no toolkit {name[:200]!r}.", hint=f"There are {', '.join(self.names()) or 'none'}."
            )
        return self._classes[name]

    def names(self) -> list[str]:
        """The names of all, sorted."""
        return sorted({*self._classes, *_BUILTIN})


TOOLKITS: Final = ToolkitRegistry()
"""The toolkits of this process: the built-in ones, and those that imported modules have registered."""


def register_toolkit(name: str) -> Callable[[T], T]:
    """Register a class of toolkits by name (RFC-2003 §5.1).

    Raises:
        ConfigError: another class has this name.
    """

    def registered(toolkit: T) -> T:
        TOOLKITS.register(name, toolkit)
        toolkit.name = name
        return toolkit

    return registered
