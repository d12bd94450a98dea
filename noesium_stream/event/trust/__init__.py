"""Who may say what: public keys and the names that each may speak for, and the policy of a log.

Concepts: a trusted key, the names in whose name an event speaks, the fold that says which keys are trusted at
a position of the registry, and the policy that says which names may do what. Open `trusted_key.py` first.
"""
