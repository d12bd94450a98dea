"""Small agents to copy from; each module says how to run it.

- `refund`: a call of the outside world, a question to a person, and what is undone if a later step fails.
- `word_count`: map and reduce with LangGraph's `Send`.
- `budget`: a handler, which makes events of events without a graph.
- `release`: a plan with dependencies, which changes when a part of it fails and waits for a signal.
- `shop`: tools of one agent that another one calls.
"""
