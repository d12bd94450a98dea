"""Programs that this process starts and guards: sub-agents, servers of tools."""
