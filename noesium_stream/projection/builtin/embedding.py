"""A local embedding model for semantic search: `pip install noesium-stream[semantic]`.

The model is WordLlama. It is static (one vector per token, averaged): 256 dimensions, 16 MB, no GPU and no
download. It finds the same meaning in other words; word order has no effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import wordllama
from wordllama import WordLlama


class WordLlamaEmbedder:
    """`Embedder` with the model in the `wordllama` package."""

    def __init__(self) -> None:
        # WordLlama looks for its packaged tokenizer only in its cache folder.
        self._model = WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)

    @property
    def name(self) -> str:
        """The model's name and the package's version."""
        return f"wordllama-l2-supercat-256/{wordllama.__version__}"

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Vectors of length 1."""
        vectors: Any = self._model.embed(list(texts), norm=True)
        return [[float(one) for one in vector] for vector in vectors]
