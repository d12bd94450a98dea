"""MCP: capabilities of this log as tools, and runs as tasks, for clients of other systems.

The modules need the extra `mcp`; importing this package needs nothing.

Decision record: the server keeps nothing. A task is a run, its id names the agent type and the run, and its
state is a fold over the run's journal (`task`), so that any server process on the same log answers for it.
What a client has to hand back (`requestState`) is sealed by a key that all these processes have. Of the SDK
are used: the types, the dispatchers and the transports, without its sessions.

A call without an idempotency key is a new run, each time. The id of a JSON-RPC request does not tell calls
apart: every client counts from 1, and a second call with the arguments of an earlier one may be meant.
"""
