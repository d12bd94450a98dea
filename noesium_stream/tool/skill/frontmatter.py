"""The front matter of a SKILL.md: bounded YAML whose scalars are all text, with the line of each field.

Only mappings and scalars, as the open format has them. A tag has no effect; anchors and aliases, which let a
small file stand for a large value, are refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from noesium_stream.tool.skill.problem import SkillProblem

SKILL_FILE: Final = "SKILL.md"
MAX_FRONT_MATTER: Final = 16_384
"""Characters of a front matter."""
MAX_DEPTH: Final = 8
_FENCE: Final = "---"


@dataclass(slots=True)
class FrontMatter:
    """A parsed SKILL.md.

    Attributes:
        fields: by name; a text, or what it was instead: a mapping of texts, or None (a list, or deeper).
        lines: the line of each field, and of `metadata`'s as `metadata.KEY`.
        body: the text after the front matter.
        body_line: the line on which it begins.
        problems: what is wrong with the form of it.
    """

    fields: dict[str, str | dict[str, str] | None] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    body: str = ""
    body_line: int = 1
    problems: list[SkillProblem] = field(default_factory=list)

    def problem(self, line: int | None, message: str) -> None:
        """Note a problem."""
        self.problems.append(SkillProblem(SKILL_FILE, line, message))


class _Loader(yaml.SafeLoader):
    """Composes nodes, and refuses what the format has no use for."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise yaml.MarkedYAMLError(
                problem="anchors and aliases are not allowed", problem_mark=event.start_mark
            )
        if self.depth >= MAX_DEPTH:
            raise yaml.MarkedYAMLError(problem="it is nested too deep", problem_mark=event.start_mark)
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1


def parse_front_matter(text: str) -> FrontMatter:
    """Split a SKILL.md, and parse its front matter; nothing is raised, problems are listed."""
    found = FrontMatter()
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    if lines[0].rstrip() != _FENCE:
        found.problem(1, "It does not begin with a front matter: its first line has to be ---.")
        return found
    end = next((at for at, line in enumerate(lines[1:], 1) if line.rstrip() == _FENCE), None)
    if end is None:
        found.problem(1, "The front matter has no end: a line --- has to follow it.")
        return found
    found.body, found.body_line = "\n".join(lines[end + 1 :]), end + 2
    matter = "\n".join(lines[1:end])
    if len(matter) > MAX_FRONT_MATTER:
        found.problem(1, f"The front matter has more than {MAX_FRONT_MATTER:,} characters.")
        return found
    _parse(matter, found)
    return found


def _parse(matter: str, found: FrontMatter) -> None:
    try:
        root = yaml.compose(matter, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        found.problem(_line(mark), f"The front matter is no YAML: {error.problem or error.context}.")
        return
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        found.problem(1, f"The front matter is no YAML: {str(error).splitlines()[0][:200]}.")
        return
    if not isinstance(root, yaml.MappingNode):
        found.problem(2, "The front matter is no mapping of names to values.")
        return
    for name, line, node in _members(root, "", found):
        found.lines[name] = line
        if isinstance(node, yaml.ScalarNode):
            found.fields[name] = str(node.value)
        elif isinstance(node, yaml.MappingNode):
            found.fields[name] = _texts(name, node, found)
        else:
            found.fields[name] = None


def _texts(name: str, node: yaml.MappingNode, found: FrontMatter) -> dict[str, str]:
    texts = {}
    for key, line, value in _members(node, f"{name}.", found):
        found.lines[f"{name}.{key}"] = line
        if isinstance(value, yaml.ScalarNode):
            texts[key] = str(value.value)
        else:
            found.problem(line, f"{name}.{key[:200]} is no text.")
    return texts


def _members(node: yaml.MappingNode, inside: str, found: FrontMatter) -> list[tuple[str, int, yaml.Node]]:
    """The members of a mapping: name, line, value; the first of each name counts."""
    members: dict[str, tuple[str, int, yaml.Node]] = {}
    for key, value in node.value:
        line = _line(key.start_mark)
        if not isinstance(key, yaml.ScalarNode) or not key.value:
            found.problem(line, "A name in the front matter is no text.")
        elif key.value in members:
            found.problem(line, f"{inside}{key.value[:200]} is given twice.")
        else:
            members[key.value] = key.value, line, value
    return list(members.values())


def _line(mark: Any) -> int:
    """The line in the file: the front matter begins on the second one."""
    return 1 if mark is None else int(mark.line) + 2
