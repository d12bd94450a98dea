"""JSON payloads: text, values, schemas and the canonical form (RFC 8785).

Concepts: JSON values and their text with its limits, JSON Schema 2020-12, canonical bytes for hashes and
signatures. Open `value.py` first.
"""
