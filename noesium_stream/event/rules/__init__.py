"""Rules over events that several layers share.

Concepts: which answer belongs to which call (`agent_calls`), which answer a question accepts
(`approval_answers`), the state of an effect by its events (`effect_ledger`), the status of a run by its
events (`run_life`), and which pieces of an answer count (`stream_pieces`). Open `agent_calls.py` first.
"""
