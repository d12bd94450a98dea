"""Signatures of records: one Ed25519 signature for many records of an append, a proof for each of them.

A record's proof covers what anything acts upon: topic, partition, key, headers (but those of `UNSIGNED`) and
value. So the same bytes in another topic, partition or run do not verify. Up to 64 records of an append are
the leaves of a Merkle tree (RFC 9162, section 2.1, with SHA-256); the signature covers the root, and each
record carries the path from its leaf to it. A reader verifies a record with nothing but the record and the
public key; it remembers verified trees, so that the records of one tree cost it one verification.

The header `noesium_proof` has six parts, separated by spaces, in ASCII:

    1 <key id> <index of the leaf> <number of leaves> <path, base64> <signature, base64>

A signed envelope (RFC-0002, `signing.py`) says who made an event, wherever it goes. A proof says who put this
record into this place. Where signatures are required, the proof is what is required.
"""

from __future__ import annotations

import binascii
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Final

from noesium_stream.errors import SignatureError
from noesium_stream.event.envelope_fields import short
from noesium_stream.event.signing import Signer, Verifier
from noesium_stream.event.trust.speaking import journal_problem
from noesium_stream.event.trust.trusted_key import TrustedKey, check_key_id

PROOF: Final = "noesium_proof"
"""The header that holds a record's proof."""

UNSIGNED: Final = frozenset({PROOF, "noesium_commit"})
"""Headers that a proof does not cover. Nothing acts upon them."""

MAX_PROOF_BYTES: Final = 2_048
"""Largest proof that is read: 32 hashes, for a tree of four billion records."""

_VERSION: Final = "1"
_DOMAIN: Final = b"noesium record proof 1\n"
_HASH_BYTES: Final = 32
_MAX_DEPTH: Final = 32
_REMEMBERED: Final = 512
"""Number of verified trees that a verifier remembers, up to 30 kB each."""

_TOP: Final = -1
"""The level under which a tree's root is remembered."""

_TREE_RECORDS: Final = 64
"""Records under one signature: six hashes in each proof (256 bytes), and a signature costs a record 1 µs."""

_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")
_STANDARD: Final = bytes.maketrans(b"-_", b"+/")

Headers = Iterable[tuple[str, bytes | None]]
Place = tuple[str, int, str, Headers, bytes]
"""Topic, partition, key, headers and value of a record."""


class RecordSigner:
    """Proves records with the key of one `Signer`.

    Raises:
        ConfigError: the key's id is longer than 256 characters, or has others than ASCII's visible ones.
    """

    def __init__(self, signer: Signer) -> None:
        check_key_id(signer.public_key_id)
        self._signer = signer

    @property
    def key_id(self) -> str:
        """The id of the key."""
        return self._signer.public_key_id

    def prove(self, records: Sequence[Place]) -> list[tuple[str, bytes]]:
        """The header `noesium_proof` of each record of one append; a signature for each 64 of them."""
        headers: list[tuple[str, bytes]] = []
        for start in range(0, len(records), _TREE_RECORDS):
            headers += self._proofs([leaf_of(*record) for record in records[start : start + _TREE_RECORDS]])
        return headers

    def _proofs(self, leaves: Sequence[bytes]) -> list[tuple[str, bytes]]:
        root, paths = _tree(leaves)
        signature = self._signer.sign_bytes(_statement(root, len(leaves)))
        start, end = f"{_VERSION} {self._signer.public_key_id}", signature
        return [
            (PROOF, f"{start} {index} {len(leaves)} {_base64(b''.join(path))} {end}".encode())
            for index, path in enumerate(paths)
        ]


class RecordVerifier:
    """Checks the proofs of records against the keys of a `Verifier`.

    It remembers the nodes of trees whose signature it verified, so that each of a tree's records costs it one
    or two hashes. A record without a proof is refused if the verifier requires signatures.
    """

    def __init__(self, verifier: Verifier) -> None:
        self._verifier = verifier
        self._trees: OrderedDict[tuple[str, str, int], dict[tuple[int, int], bytes]] = OrderedDict()

    def key(self, key_id: str) -> TrustedKey | None:
        """The key with this id; None: it is not known."""
        return self._verifier.keys.get(key_id)

    @property
    def required(self) -> bool:
        """Whether a record without a proof is refused."""
        return self._verifier.required

    def check(
        self,
        topic: str,
        partition: int,
        key: str,
        headers: Headers,
        value: bytes,
        at_ms: int | None = None,
    ) -> TrustedKey | None:
        """Check one record, which the log took at `at_ms`; return the key that signed it, None: nobody did.

        Raises:
            SignatureError: the proof is missing although required, malformed, made with an unknown key, of
                another record or place, or its key was not valid at that time, or may not write there.
        """
        found = [content for name, content in headers if name == PROOF]
        if not found:
            if self._verifier.required:
                raise SignatureError(PROOF, "is missing, and here only signed records are accepted")
            return None
        if len(found) > 1:
            raise SignatureError(PROOF, "is there twice")
        key_id, index, count, path, signature = _parsed(found[0])
        leaf = leaf_of(topic, partition, key, headers, value)
        tree = self._trees.get((key_id, signature, count))
        nodes = _climbed(leaf, index, count, path, tree or {})
        if tree is None:
            self._verify(key_id, signature, _statement(nodes[_TOP, 0], count))
            tree = self._trees[key_id, signature, count] = {}
            if len(self._trees) > _REMEMBERED:
                self._trees.popitem(last=False)
        elif tree.get((_TOP, 0), b"") != nodes[_TOP, 0]:
            raise SignatureError(PROOF, "is not of this record in this place")
        if len(tree) < 4 * _TREE_RECORDS:
            tree.update(nodes)
        signed_by = self._verifier.keys[key_id]
        problem = journal_problem(signed_by, topic)
        if problem is None and at_ms is not None:
            problem = signed_by.problem_at(at_ms)
        if problem is not None:
            raise SignatureError(PROOF, problem)
        return signed_by

    def _verify(self, key_id: str, signature: str, statement: bytes) -> None:
        try:
            self._verifier.verify_bytes(key_id, signature, statement)
        except SignatureError as error:
            if error.field == "signature.value":
                raise SignatureError(PROOF, "is not of this record in this place") from None
            raise


def leaf_of(topic: str, partition: int, key: str, headers: Headers, value: bytes) -> bytes:
    """The hash of a record and its place: SHA-256 of 0x00 and the parts.

    Texts and headers stand behind their lengths in bytes, so that no two records have the same parts.
    """
    parts = [b"\x00", b"%d:" % partition, _sized(topic), _sized(key)]
    for name, content in headers:
        if name not in UNSIGNED:
            parts += (_sized(name), b"-" if content is None else b"%d:%b" % (len(content), content))
    parts += (b"=", value)
    return sha256(b"".join(parts)).digest()


def _sized(text: str) -> bytes:
    data = text.encode(errors="surrogateescape")
    return b"%d:%b" % (len(data), data)


def _statement(root: bytes, count: int) -> bytes:
    """What a signature covers."""
    return _DOMAIN + b"%d\n" % count + root


def _node(left: bytes, right: bytes) -> bytes:
    return sha256(b"\x01" + left + right).digest()


def _tree(leaves: Sequence[bytes]) -> tuple[bytes, list[list[bytes]]]:
    """The root of a tree, and the path of each leaf, from the leaf's sibling upwards.

    A level's last node without a sibling moves up as it is: the same tree as that of RFC 9162.
    """
    paths: list[list[bytes]] = [[] for _ in leaves]
    below = [range(number, number + 1) for number in range(len(leaves))]
    level = list(leaves)
    while len(level) > 1:
        for number in range(0, len(level) - 1, 2):
            for leaf in below[number]:
                paths[leaf].append(level[number + 1])
            for leaf in below[number + 1]:
                paths[leaf].append(level[number])
        pairs = range(0, len(level), 2)
        below = [range(below[n].start, below[min(n + 1, len(level) - 1)].stop) for n in pairs]
        level = [_node(*level[n : n + 2]) if n + 1 < len(level) else level[n] for n in pairs]
    return level[0], paths


def _climbed(
    leaf: bytes, index: int, count: int, path: bytes, known: Mapping[tuple[int, int], bytes]
) -> dict[tuple[int, int], bytes]:
    """The nodes between a leaf and the root by level and index, siblings too; the root is at `(_TOP, 0)`.

    The rule of RFC 9162, section 2.1.3.2. It climbs to the first node that is known; `known` has the root.

    Raises:
        SignatureError: the path is too short or too long.
    """
    nodes, node, level, last, at = {(0, index): leaf}, leaf, 0, count - 1, 0
    while last:
        if known.get((level, index)) == node:
            nodes[_TOP, 0] = known[_TOP, 0]
            return nodes
        if index % 2 or index < last:  # the leaf's branch has a sibling on this level
            sibling = path[at : at + _HASH_BYTES]
            if not sibling:
                raise SignatureError(PROOF, "has a path that is too short")
            at += _HASH_BYTES
            nodes[level, index ^ 1] = sibling
            node = _node(sibling, node) if index % 2 else _node(node, sibling)
        level, index, last = level + 1, index // 2, last // 2
        nodes[level, index] = node
    if at != len(path):
        raise SignatureError(PROOF, "has a path that is too long")
    nodes[_TOP, 0] = node
    return nodes


def _parsed(proof: bytes | None) -> tuple[str, int, int, bytes, str]:
    """Key id, index, count, path and signature of a proof.

    Raises:
        SignatureError: it has another form.
    """
    if proof is None or len(proof) > MAX_PROOF_BYTES or not proof.isascii():
        raise SignatureError(PROOF, f"is no text of at most {MAX_PROOF_BYTES:,} ASCII characters")
    parts = proof.decode().split(" ")
    if len(parts) != 6 or parts[0] != _VERSION:
        raise SignatureError(PROOF, f"is no proof of version {_VERSION}: {short(proof.decode())}")
    _, key_id, index, count, path, signature = parts
    if not (index.isdigit() and count.isdigit() and len(index) < 11 and len(count) < 11):
        raise SignatureError(PROOF, "has no index or no count")
    if int(index) >= int(count):
        raise SignatureError(PROOF, "has an index beyond its count")
    hashes = _bytes(path)
    if len(hashes) % _HASH_BYTES or len(hashes) > _MAX_DEPTH * _HASH_BYTES:
        raise SignatureError(PROOF, "has a path that is no list of hashes")
    return key_id, int(index), int(count), hashes, signature


def _base64(data: bytes) -> str:
    """Url-safe base64 without padding."""
    return binascii.b2a_base64(data, newline=False).translate(_URL_SAFE).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    """The bytes of `_base64`'s text.

    Raises:
        SignatureError: it is not what `_base64` writes.
    """
    padded = text.encode().translate(_STANDARD) + b"=" * (-len(text) % 4)
    try:
        data = binascii.a2b_base64(padded, strict_mode=True)
    except binascii.Error:
        raise SignatureError(PROOF, "has a path that is no base64") from None
    if _base64(data) != text:
        raise SignatureError(PROOF, "has a path in another base64 than the one that is written")
    return data
