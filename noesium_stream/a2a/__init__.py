"""A2A 1.0: agents of this log for others, and others' agents for the nodes here.

The modules need the extra `a2a`; importing this package needs nothing.

Decision record: the server has no task store of its own. A task is a run, its id names the agent type and the
run, and its state is a fold over the run's journal (`tasks`), so that any server process on the same log
answers for it. The SDK's default handler keeps running tasks in memory; here its interface for handlers is
implemented on the log (`handler`), and of the SDK are used: the types, the dispatchers and the client.
"""
