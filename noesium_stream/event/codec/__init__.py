"""Envelopes to bytes and back: Avro single-object encoding (RFC-0002).

Concepts: `EnvelopeCodec`, the hand-written encoder and decoder of the envelope's own schema, the guard that
checks sizes before memory is used, other writer schemas (fastavro), and the Confluent registry's format. Open
`codec.py` first; `avro/` has every schema that was ever written, by fingerprint.
"""
