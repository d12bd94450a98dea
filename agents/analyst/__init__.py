"""The analyst: answers questions over an SQLite or Postgres database with a table and a chart."""

from agents.analyst.agent import Analyst, AnalystOptions

AGENT = Analyst

__all__ = ["AGENT", "Analyst", "AnalystOptions"]
