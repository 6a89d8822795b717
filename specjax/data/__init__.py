"""Data: examples, tokens, rows to train on, and corpora to look up in.

What it offers stands in its modules.
"""

__all__: list[str] = []
