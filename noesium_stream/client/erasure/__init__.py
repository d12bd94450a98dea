"""Erasing a person: their keys are destroyed, local states are cleaned, and what is left is looked for."""

from noesium_stream.client.erasure.erase import Erasure, erase

__all__ = ["Erasure", "erase"]
