"""The sizes of every decode loop in the tests that does not test sizes.

Equal components of equal sizes are one program, which is compiled once and
found by all files that use it. A test of sizes has its own.
"""

ROWS = 4  # Of a batch.
BUFFER = 64  # `max_length`.
NEW = 24  # New tokens at most; no shape depends on it.
PROMPT_WIDTH = 16  # What prompts are padded to.

# `ROWS` prompts of different lengths, the longest near `PROMPT_WIDTH`; their
# tokens belong to every vocabulary of `tests.arms` but those of Markov models.
PROMPTS = [[1], [2, 3, 4], list(range(12)), [5, 6]]
# The same lengths for Markov models of three tokens.
MARKOV_PROMPTS = [[token % 3 for token in prompt] for prompt in PROMPTS]
