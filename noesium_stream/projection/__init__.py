"""Projections: local state as a pure fold over the log (RFC-0004)."""

from noesium_stream.projection.attached import AttachedProjection
from noesium_stream.projection.base import BaseProjection, Projection, catch_up
from noesium_stream.projection.compose import FederatedProjection, compose
from noesium_stream.projection.engine import ProjectionEngine
from noesium_stream.projection.headers import EventHeaders

__all__ = [
    "AttachedProjection",
    "BaseProjection",
    "EventHeaders",
    "FederatedProjection",
    "Projection",
    "ProjectionEngine",
    "catch_up",
    "compose",
]
