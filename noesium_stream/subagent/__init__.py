"""Command-line sub-agents: programs that answer requests line by line, as capabilities (RFC-0005).

Decision record: what is on the log of a sub-agent. A call is a run of the agent that has the program, and its
request is an effect: `effect.requested` and `effect.completed` say when the sub-agent was BUSY and IDLE, so
no other event repeats that. What they cannot say is in `subagent.state` events of the same run: a process was
started for it, and why (CREATED to RUNNING), or it was killed in the middle (BUSY to TERMINATED). They are
made of the recorded outcomes of effects and are part of the step's commit, so a second execution makes the
same ones. The end of a process that nobody waits for belongs to no run and is not recorded: the registry's
one partition, which is kept for good, is no place for the comings and goings of processes.
"""
