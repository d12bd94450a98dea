"""The approver: routes questions of runs to people by rules, reminds, escalates, and denies at the end.

    noesium worker agents.approver agents.approver.case --rules approver.toml

The guide `permission` says how the rules are written.
"""

from agents.approver.router import Approver

AGENT = Approver

__all__ = ["AGENT", "Approver"]
