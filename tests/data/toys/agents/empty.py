"""Holds no agent."""
