"""Training: losses, and the loop that lowers them.

What it offers stands in its modules.
"""

__all__: list[str] = []
