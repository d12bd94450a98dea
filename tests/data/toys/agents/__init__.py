"""Agents that the tests of the command line run: this folder's parent is their current folder."""
