"""The researcher: answers questions from documents, with citations."""

from agents.documents.extra import require_extra
from agents.researcher.agent import Researcher, ResearcherOptions

require_extra()

AGENT = Researcher

__all__ = ["AGENT", "Researcher", "ResearcherOptions"]
