"""The librarian: keeps an index of a folder of documents and finds passages in it for other agents."""

from agents.documents.extra import require_extra
from agents.librarian.agent import Librarian, LibrarianOptions

require_extra()

AGENT = Librarian

__all__ = ["AGENT", "Librarian", "LibrarianOptions"]
