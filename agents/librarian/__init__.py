"""The librarian: keeps an index of a folder of documents and finds passages in it for other agents."""

from agents.librarian.agent import Librarian, LibrarianOptions

AGENT = Librarian

__all__ = ["AGENT", "Librarian", "LibrarianOptions"]
