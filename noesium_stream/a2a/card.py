"""The agent card: made from the capability registry, one skill for each live capability."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any, Final

from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentExtension,
    AgentInterface,
    AgentSkill,
    HTTPAuthSecurityScheme,
    SecurityRequirement,
    SecurityScheme,
    StringList,
)
from a2a.utils.constants import PROTOCOL_VERSION_1_0, TransportProtocol
from a2a.utils.signing import ProtectedHeader, create_agent_card_signer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from noesium_stream.a2a.parts import JSON_TYPE, TEXT_TYPE, fits_data, to_struct
from noesium_stream.serving.offers import Offer

SCHEMAS: Final = "urn:noesium:a2a:skill-schemas:1"
"""The extension whose parameters are the JSON Schemas of the skills, by id."""
BEARER: Final = "bearer"
MOST_SKILLS: Final = 1_000
_MOST_DESCRIPTION: Final = 4_000
_MOST_SCHEMAS_BYTES: Final = 200_000


def make_card(offers: Sequence[Offer], url: str, *, name: str, authenticated: bool) -> AgentCard:
    """Make the card of these skills.

    Args:
        offers: what is on offer.
        url: where clients reach the server.
        name: of the card.
        authenticated: whether requests need a bearer token.
    """
    shown = list(offers[:MOST_SKILLS])
    types = ", ".join(sorted({one.agent_type for one in shown})) or "none now"
    card = AgentCard(
        name=name,
        description=f"Agents of an event log: {types}."[:_MOST_DESCRIPTION],
        version=version("noesium-stream"),
        supported_interfaces=[
            AgentInterface(url=place, protocol_binding=binding.value, protocol_version=PROTOCOL_VERSION_1_0)
            for place, binding in (
                (url, TransportProtocol.JSONRPC),
                (url.rstrip("/"), TransportProtocol.HTTP_JSON),
            )
        ],
        capabilities=AgentCapabilities(
            streaming=True,
            push_notifications=False,
            extended_agent_card=False,
            extensions=[
                AgentExtension(
                    uri=SCHEMAS,
                    description="JSON Schemas of input and output of the skills, by skill id.",
                    params=to_struct({"skills": _schemas(shown)}),
                )
            ],
        ),
        default_input_modes=[JSON_TYPE, TEXT_TYPE],
        default_output_modes=[JSON_TYPE, TEXT_TYPE],
        skills=[_skill(offer) for offer in shown],
    )
    if authenticated:
        card.security_schemes[BEARER].CopyFrom(
            SecurityScheme(http_auth_security_scheme=HTTPAuthSecurityScheme(scheme="Bearer"))
        )
        card.security_requirements.append(SecurityRequirement(schemes={BEARER: StringList()}))
    return card


def card_signer(key_id: str, key: Ed25519PrivateKey) -> Callable[[AgentCard], AgentCard]:
    """Make what signs cards with a key: a JWS (EdDSA), whose `kid` is the key's id."""
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    header = ProtectedHeader(kid=key_id, alg="EdDSA", jku=None, typ="JOSE")
    return create_agent_card_signer(text, header)


def _skill(offer: Offer) -> AgentSkill:
    capability = offer.capability
    if capability is None:
        text = f"A run of the agent {offer.agent_type}; its input is a JSON object."
        return AgentSkill(
            id=offer.skill,
            name=offer.skill,
            description=text,
            tags=[offer.agent_type],
            input_modes=[JSON_TYPE],
            output_modes=[JSON_TYPE, TEXT_TYPE],
        )
    modes = [JSON_TYPE] if offer.text_field is None else [JSON_TYPE, TEXT_TYPE]
    return AgentSkill(
        id=offer.skill,
        name=offer.skill,
        description=(capability.description or f"{offer.skill} of {offer.agent_type}")[:_MOST_DESCRIPTION],
        tags=list(dict.fromkeys([offer.agent_type, *capability.tags])),
        input_modes=modes,
        output_modes=[JSON_TYPE, TEXT_TYPE],
    )


def _schemas(offers: Sequence[Offer]) -> dict[str, Any]:
    """Return the schemas that fit into the card, by skill."""
    found: dict[str, Any] = {}
    left = _MOST_SCHEMAS_BYTES
    for offer in offers:
        if offer.capability is None:
            continue
        one = {
            "version": offer.capability.version,
            "input": offer.capability.input_schema,
            "output": offer.capability.output_schema,
        }
        size = len(json.dumps(one))
        if size > left or not fits_data(one):
            continue
        left -= size
        found[offer.skill] = one
    return found
