"""The treasurer: grants runs slices of the budgets of users and tenants, as `noesium budget set` says."""

from noesium_stream.agent.accounts.treasurer import Treasurer

AGENT = Treasurer

__all__ = ["AGENT", "Treasurer"]
