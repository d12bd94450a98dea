"""The toolkit `content`: reads what was set aside. Each agent that has tools has it."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final

from pydantic import Field

from noesium_stream.event.payload.canonical import canonical_json
from noesium_stream.event.standard import DeterminismClass, SideEffectClass
from noesium_stream.tool.atomic import ToolSource
from noesium_stream.tool.content.set_aside import LIMIT_BYTES
from noesium_stream.tool.content.store import MAX_CONTENT, ContentStore
from noesium_stream.tool.function import tool
from noesium_stream.tool.toolkit import BaseToolkit

READ_CONTENT: Final = "read_content"
_LENGTH: Final = 20_000
_ROOM: Final = 1_024
"""Bytes of a result beside its text."""

Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Offset = Annotated[int, Field(ge=0, le=MAX_CONTENT)]
Length = Annotated[int, Field(ge=1, le=_LENGTH)]


class ContentToolkit(BaseToolkit):
    """Reads the contents of one agent's store.

    It needs no permission: it reads only by hash, and the agent's own results have told the hash.
    """

    name: ClassVar[str] = "content"
    source: ClassVar[ToolSource] = ToolSource.BUILTIN

    def __init__(self, store: ContentStore) -> None:
        super().__init__()
        self._store = store

    @tool(
        side_effects=SideEffectClass.PURE,
        determinism=DeterminismClass.DETERMINISTIC,
        tags=("category:content",),
    )
    def read_content(self, hash: Hash, offset: Offset = 0, length: Length = _LENGTH) -> dict[str, Any]:
        """Read a result that was too long to be shown whole, by the hash under its "$content".

        The result has text, total (characters of the whole) and next_offset: go on there; null at the end.
        """
        whole = self._store.get(hash).decode(errors="replace")
        text = whole[offset : offset + length]
        while len(canonical_json(text)) > LIMIT_BYTES - _ROOM:  # or the result were set aside itself
            text = text[: len(text) // 2]
        end = offset + len(text)
        return {"text": text, "total": len(whole), "next_offset": end if end < len(whole) else None}
