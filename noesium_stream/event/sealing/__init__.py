"""Payloads that are readable only as long as a person's key exists: crypto-shredding (see `seal.py`)."""
