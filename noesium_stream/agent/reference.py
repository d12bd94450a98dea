"""References to agents: `MODULE[:NAME]`, where MODULE is the name of a module or the path of its file.

Decision record: a path means the module that Python imports from the current folder, `a/b.py` is `a.b`: what
a run records of its code (compensations, the agent type) is then the same whichever way the user wrote it. A
file elsewhere is imported from the folder above its package, which is added to the import path. If another
module has that name already, the reference is refused: no command may run other code than what it was given.
"""

from __future__ import annotations

import importlib
import os
import sys
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Final, NamedTuple

from noesium_stream.errors import AgentLoadError, brief
from noesium_stream.private_files import permission_advice
from noesium_stream.shipped_agents import lend

FORM: Final = (
    "Give it as MODULE or MODULE:NAME, importable from the current folder, or by its file: FILE.py:NAME."
)
_SUFFIX: Final = ".py"


class Reference(NamedTuple):
    """The parts of a reference: a module as it was written, and a name in it, which may be empty."""

    module: str
    name: str


class _Source(NamedTuple):
    """The module of a file, and the folder that it is imported from."""

    module: str
    folder: Path
    file: Path


def parse_reference(text: str) -> Reference:
    """Split a reference.

    Raises:
        AgentLoadError: a part of it is no name.
    """
    module, _, name = text.partition(":")
    if not module.strip():
        raise AgentLoadError(f"{text!r} names no module.", hint=FORM)
    if name and not all(part.isidentifier() for part in name.split(".")):
        raise AgentLoadError(f"{text!r}: {name!r} is no name of a class or a graph.", hint=FORM)
    return Reference(module, name)


def load_module(written: str) -> ModuleType:
    """Import a module of agents or graphs, by its name or the path of its file.

    Modules in the current folder can be imported.

    Raises:
        AgentLoadError: there is no such module, or its import fails.
    """
    if "" not in sys.path:
        sys.path.insert(0, "")
    source = _source(written) if _is_path(written) else None
    if source is None:
        return _imported(written)
    if source.folder != Path.cwd() and str(source.folder) not in sys.path:
        sys.path.insert(1, str(source.folder))
    module = _imported(source.module)
    if not _is_from(module, source.file):
        raise AgentLoadError(
            f"{written} cannot be imported: Python has another module {source.module!r}.",
            hint="Give the file another name.",
        )
    return module


def _is_path(written: str) -> bool:
    return (
        os.sep in written
        or written.startswith((".", "~"))
        or (written.endswith(_SUFFIX) and Path(written).is_file())
    )


def _source(written: str) -> _Source:
    """Find the module of a path.

    Raises:
        AgentLoadError: there is no such file, or its name is no module's.
    """
    path = Path(os.path.abspath(Path(written).expanduser()))
    file = next((one for one in _candidates(path) if one.is_file()), None)
    if file is None:
        what = "has no __init__.py: it is a folder, and no module" if path.is_dir() else "does not exist"
        raise AgentLoadError(f"{written} {what}.", hint=FORM)
    module = file.parent if file.name == "__init__.py" else file.with_suffix("")
    here = Path.cwd()
    if not module.is_relative_to(here) or not _is_importable(module.relative_to(here)):
        here = module.parent
        while (here / "__init__.py").is_file() and here != here.parent:
            here = here.parent
    parts = module.relative_to(here)
    if not _is_importable(parts):
        raise AgentLoadError(
            f"{written} cannot be imported: {parts.name!r} is no name of a module.",
            hint="Give the file a name of letters, digits and underscores.",
        )
    return _Source(".".join(parts.parts), here, file)


def _candidates(path: Path) -> list[Path]:
    given = [path] if path.suffix == _SUFFIX else []
    return [*given, path.with_name(path.name + _SUFFIX), path / "__init__.py"]


def _is_importable(parts: Path) -> bool:
    return bool(parts.parts) and not any("." in part for part in parts.parts)


def _is_from(module: ModuleType, file: Path) -> bool:
    found = getattr(module, "__file__", None)
    return found is not None and Path(found).exists() and os.path.samefile(found, file)


def _imported(name: str, *, lent: bool = False) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            if not lent and lend(name):
                return _imported(name, lent=True)
            raise AgentLoadError(f"There is no agent module {name!r}.", hint=_meant(name) or FORM) from error
        raise _broken(name, error) from error
    except AgentLoadError:  # raised by the module, with its own advice
        raise
    except (Exception, SystemExit) as error:
        raise _broken(name, error) from error


def _meant(name: str) -> str | None:
    """Advice for a misspelt module of the current folder."""
    here = [path.stem for path in Path().glob(f"*{_SUFFIX}")]
    close = get_close_matches(name, here, n=1)
    return f"Did you mean {close[0]}? {FORM}" if close else None


def _broken(name: str, error: BaseException) -> AgentLoadError:
    hint = "Import it with python -c to see the whole traceback."
    if isinstance(error, PermissionError) and error.filename:
        hint = permission_advice(os.fsdecode(error.filename))
    return AgentLoadError(
        f"The agent module {name!r} cannot be imported: {type(error).__name__}: {brief(error)}", hint=hint
    )
