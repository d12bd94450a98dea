"""A real embedding model, which a package brings along: `pip install noesium-stream[semantic]`.

WordLlama's is static (a vector per token, averaged): 256 dimensions, 16 MB, no GPU and no download. What
means the same in other words is found; the order of words counts for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import wordllama
from wordllama import WordLlama


class WordLlamaEmbedder:
    """`Embedder` over the model in the package `wordllama`."""

    def __init__(self) -> None:
        # It looks for its own tokenizer in its cache alone.
        self._model = WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)

    @property
    def name(self) -> str:
        """The model's name, with the package's version."""
        return f"wordllama-l2-supercat-256/{wordllama.__version__}"

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Vectors of length 1."""
        vectors: Any = self._model.embed(list(texts), norm=True)
        return [[float(one) for one in vector] for vector in vectors]
