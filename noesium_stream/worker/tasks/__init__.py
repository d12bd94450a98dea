"""Tasks that an agent's workers take from the topics of its capabilities, and hand on to its inbox.

Open `taking.py` first.
"""
