"""A real Kafka broker on this machine, for `noesium broker up` and for tests.

Concepts: the runtime (Java and Kafka from Python packages), the local broker (a process with a folder) and a
broker in Docker.

Open `local.py` first.
"""
