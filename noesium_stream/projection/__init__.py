"""Projections: local state as a pure fold over the log (RFC-0004)."""

from noesium_stream.projection.base import BaseProjection, catch_up

__all__ = ["BaseProjection", "catch_up"]
