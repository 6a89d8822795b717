"""Data: examples, tokenizers, packed training rows and retrieval corpora.

Import its modules.
"""

__all__: list[str] = []
