"""Which major versions of events a projection is written for (RFC-0002: upcasters bring old ones forward).

A projection sees every event in the newest major version that the catalogue knows: upcasters translate older
ones. Whoever registers a new major changes what all projections are given; one that says what it reads is not
given anything else, but refuses to start.
"""

from __future__ import annotations

from noesium_stream.errors import ProjectionError
from noesium_stream.event.catalogue import Catalogue
from noesium_stream.projection.base import AnyProjection


def require_versions(projection: AnyProjection, catalogue: Catalogue) -> None:
    """Check what a projection says in `reads` against the newest versions that are known here.

    Types that the catalogue does not know are left alone: there are none yet, or they are held back.

    Raises:
        ProjectionError: it reads another major version of a type than the newest; or says no version.
    """
    for event_type, wanted in projection.reads.items():
        major, *rest = wanted.split(".")
        if not major.isdecimal() or rest:
            raise ProjectionError(
                f"The projection {projection.name} reads {event_type} {wanted!r}, which is no major version.",
                hint='Say the major alone: reads = {"invoice.created": "1"}.',
            )
        known = catalogue.versions(event_type)
        if not known or known[-1].partition(".")[0] == str(int(major)):
            continue
        if int(known[-1].partition(".")[0]) > int(major):
            hint = (
                f"Events of major {major} come translated. Write `key` and `apply` for {known[-1]}, say so "
                "in `reads`, and count `version` up."
            )
        else:
            hint = "Register the newer version's class or schema with the log's catalogue."
        raise ProjectionError(
            f"The projection {projection.name} reads {event_type} {major}, and the newest version that is "
            f"known here is {known[-1]}.",
            hint=hint,
        )
