"""The policy by which this process judges registrations and requests: the configured one."""

from __future__ import annotations

from noesium_stream.config import load_config
from noesium_stream.event.trust.policy import Policy, read_policy
from noesium_stream.log.port import EventLog


def configured_policy(log: EventLog) -> Policy | None:
    """The configured policy; None: everybody may do everything.

    Where signatures are required and no policy is configured, nobody but an operator may do anything.

    Raises:
        ConfigError: its file cannot be read.
    """
    path = load_config().policy
    if path is not None:
        return read_policy(path)
    verifier = log.decoder.record_verifier
    return Policy() if verifier is not None and verifier.required else None
