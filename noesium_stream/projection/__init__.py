"""Projections: local state as a pure fold over the log (RFC-0004)."""

from noesium_stream.projection.attached import AttachedProjection
from noesium_stream.projection.base import BaseProjection, fold_to_end
from noesium_stream.projection.compose import FederatedProjection, compose
from noesium_stream.projection.engine import ProjectionEngine
from noesium_stream.projection.event_headers import EventHeaders

__all__ = [
    "AttachedProjection",
    "BaseProjection",
    "EventHeaders",
    "FederatedProjection",
    "ProjectionEngine",
    "compose",
    "fold_to_end",
]
