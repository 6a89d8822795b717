"""Training: losses, teachers' outputs and the training loop.

Import its modules.
"""

__all__: list[str] = []
