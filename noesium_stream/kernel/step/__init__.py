"""The requests of a node's code while it runs: effects, calls, questions, timers, signals.

Concepts: `Step` (the user's interface), the position of a call in its task, effects with intent and outcome,
delegation, waits, and answers by people.

Open `step.py` first; a step's effect is recorded in `effects.py`.
"""
