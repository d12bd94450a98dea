"""A snapshot of the registry in one file, so that a process does not fold the topic from its beginning.

It may be lost, old or damaged at any time: whatever is wrong with it, it is removed and the topic is folded
again. It belongs to one topic of one log (by the topic's id), to one version of the state and to one policy,
because a policy decides which registrations count. A later writer replaces the file as a whole.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from noesium_stream.capabilities.registry_bytes import FORMAT, registry_bytes, registry_from
from noesium_stream.capabilities.state import RegistryState
from noesium_stream.errors import StateFileError, brief
from noesium_stream.event.standard import Capability
from noesium_stream.event.trust.policy import Policy
from noesium_stream.private_files import make_folder, private

SNAPSHOTS: Final = "registry"
"""Folder of the snapshots in the home."""

_HEAD_LENGTH: Final = 4_096


@dataclass(frozen=True, slots=True)
class SnapshotIdentity:
    """What a snapshot belongs to; `format` is that of the state, with the fields of a capability."""

    log: str
    topic_id: str
    policy: str
    format: str


def identity_of(log_url: str, topic_id: str, policy: Policy | None) -> SnapshotIdentity:
    """The identity of the snapshots of a registry topic."""
    rules = "" if policy is None else hashlib.sha256(policy.model_dump_json().encode()).hexdigest()
    return SnapshotIdentity(log_url, topic_id, rules, f"{FORMAT} {' '.join(Capability.model_fields)}")


def snapshot_path(folder: Path, identity: SnapshotIdentity) -> Path:
    """Path of the snapshot; logs and policies have files of their own."""
    text = "\n".join((identity.log, identity.policy))
    return folder / f"registry-{hashlib.sha256(text.encode()).hexdigest()[:16]}.snapshot"


def write_snapshot(path: Path, identity: SnapshotIdentity, state: RegistryState, position: int) -> None:
    """Replace the snapshot by the state at a position, the next offset.

    Raises:
        OSError: it cannot be written.
    """
    body = registry_bytes(state)
    head = orjson.dumps({**asdict(identity), "position": position, "sum": _sum(body)})
    make_folder(path.parent)
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        with open(new, "wb", opener=private) as file:
            file.write(head + b"\n" + body)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)


def read_snapshot(path: Path, identity: SnapshotIdentity) -> tuple[RegistryState, int] | None:
    """The state and its position; None: there is no snapshot.

    Raises:
        StateFileError: it is damaged, or of another topic, policy or version; the message says which.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StateFileError(f"{path} cannot be read: {brief(error, 200)}.") from error
    head = _head(path, content)
    for name, wanted in asdict(identity).items():
        if head.get(name) != wanted:
            raise StateFileError(f"{path}: its {name} is another one.")
    body = content.split(b"\n", 1)[1]
    position = head.get("position")
    if head.get("sum") != _sum(body) or not isinstance(position, int) or position < 0:
        raise StateFileError(f"{path} is damaged.")
    try:
        return registry_from(body), position
    except (ValueError, TypeError, LookupError) as error:
        raise StateFileError(f"{path}: {brief(error, 200)}.") from error


def _head(path: Path, content: bytes) -> dict[str, Any]:
    end = content.find(b"\n", 0, _HEAD_LENGTH)
    try:
        head = orjson.loads(content[: max(end, 0)])
    except orjson.JSONDecodeError:
        head = None
    if not isinstance(head, dict):
        raise StateFileError(f"{path} is no snapshot of a registry.")
    return head


def _sum(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=16).hexdigest()
