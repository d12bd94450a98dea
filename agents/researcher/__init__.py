"""The researcher: answers questions from documents, with citations."""

from agents.researcher.agent import Researcher, ResearcherOptions

AGENT = Researcher

__all__ = ["AGENT", "Researcher", "ResearcherOptions"]
