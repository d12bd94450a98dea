"""Tools of any origin under one executor (RFC-2003, RFC-2004)."""

from typing import TYPE_CHECKING

from noesium_stream.exports import exports

if TYPE_CHECKING:
    from noesium_stream.tool.atomic import AtomicTool, ToolSource
    from noesium_stream.tool.builtin.code import CodeToolkit
    from noesium_stream.tool.builtin.documents import DocumentsToolkit
    from noesium_stream.tool.builtin.files import FilesToolkit
    from noesium_stream.tool.builtin.python import PythonToolkit
    from noesium_stream.tool.builtin.shell import ShellToolkit
    from noesium_stream.tool.builtin.sql.toolkit import SqlToolkit
    from noesium_stream.tool.builtin.time import TimeToolkit
    from noesium_stream.tool.builtin.web import WebToolkit
    from noesium_stream.tool.context import Mode, ToolContext
    from noesium_stream.tool.convert import ToolConverter
    from noesium_stream.tool.executor import ToolExecutor
    from noesium_stream.tool.function import tool, tool_of_function
    from noesium_stream.tool.openapi.toolkit import OpenApiToolkit
    from noesium_stream.tool.registry import ToolRegistry
    from noesium_stream.tool.sandbox.function import sandboxed
    from noesium_stream.tool.sandbox.python import python_folders
    from noesium_stream.tool.skill.function import skill_of
    from noesium_stream.tool.skill.registry import SkillRegistry
    from noesium_stream.tool.skill.skill import Skill, SkillRun
    from noesium_stream.tool.skill.step import SkillStep
    from noesium_stream.tool.skill.toolkit import SkillToolkit
    from noesium_stream.tool.toolkit import (
        AsyncBaseToolkit,
        BaseToolkit,
        ToolkitConfig,
        ToolkitRegistry,
        register_toolkit,
    )

__all__ = [
    "AsyncBaseToolkit",
    "AtomicTool",
    "BaseToolkit",
    "CodeToolkit",
    "DocumentsToolkit",
    "FilesToolkit",
    "Mode",
    "OpenApiToolkit",
    "PythonToolkit",
    "ShellToolkit",
    "Skill",
    "SkillRegistry",
    "SkillRun",
    "SkillStep",
    "SkillToolkit",
    "SqlToolkit",
    "TimeToolkit",
    "ToolContext",
    "ToolConverter",
    "ToolExecutor",
    "ToolRegistry",
    "ToolSource",
    "ToolkitConfig",
    "ToolkitRegistry",
    "WebToolkit",
    "python_folders",
    "register_toolkit",
    "sandboxed",
    "skill_of",
    "tool",
    "tool_of_function",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "AsyncBaseToolkit": "toolkit",
            "AtomicTool": "atomic",
            "BaseToolkit": "toolkit",
            "CodeToolkit": "builtin.code",
            "DocumentsToolkit": "builtin.documents",
            "FilesToolkit": "builtin.files",
            "Mode": "context",
            "OpenApiToolkit": "openapi.toolkit",
            "PythonToolkit": "builtin.python",
            "ShellToolkit": "builtin.shell",
            "Skill": "skill.skill",
            "SkillRegistry": "skill.registry",
            "SkillRun": "skill.skill",
            "SkillStep": "skill.step",
            "SkillToolkit": "skill.toolkit",
            "SqlToolkit": "builtin.sql.toolkit",
            "TimeToolkit": "builtin.time",
            "ToolContext": "context",
            "ToolConverter": "convert",
            "ToolExecutor": "executor",
            "ToolRegistry": "registry",
            "ToolSource": "atomic",
            "ToolkitConfig": "toolkit",
            "ToolkitRegistry": "toolkit",
            "WebToolkit": "builtin.web",
            "python_folders": "sandbox.python",
            "register_toolkit": "toolkit",
            "sandboxed": "sandbox.function",
            "skill_of": "skill.function",
            "tool": "function",
            "tool_of_function": "function",
        },
    )
