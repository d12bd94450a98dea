"""Check of the event versions that a projection is written for (RFC-0002: upcasters convert old ones).

A projection sees every event in the newest major version of the catalogue; upcasters convert older ones.
Registering a new major version therefore changes the input of all projections. A projection that declares
`event_versions` refuses to start instead of reading another version.
"""

from __future__ import annotations

from noesium_stream.errors import ProjectionError
from noesium_stream.event.catalogue import Catalogue
from noesium_stream.projection.base import AnyProjection


def require_versions(projection: AnyProjection, catalogue: Catalogue) -> None:
    """Check a projection's `event_versions` against the newest known versions.

    Types that the catalogue does not know are not checked: either there are no such events yet, or they are
    held back.

    Raises:
        ProjectionError: the newest version of a type is another major version, or the declared version is
            invalid.
    """
    for event_type, wanted in projection.event_versions.items():
        major, *rest = wanted.split(".")
        if not major.isdecimal() or rest:
            raise ProjectionError(
                f"The projection {projection.name} reads {event_type} {wanted!r}, which is no major version.",
                hint='Say the major alone: event_versions = {"invoice.created": "1"}.',
            )
        known = catalogue.versions(event_type)
        if not known or known[-1].partition(".")[0] == str(int(major)):
            continue
        if int(known[-1].partition(".")[0]) > int(major):
            hint = (
                f"Events of major {major} come translated. Write `key` and `apply` for {known[-1]}, say so "
                "in `event_versions`, and count `version` up."
            )
        else:
            hint = "Register the newer version's class or schema with the log's catalogue."
        raise ProjectionError(
            f"The projection {projection.name} reads {event_type} {major}, and the newest version that is "
            f"known here is {known[-1]}.",
            hint=hint,
        )
