"""The texts of tokens, in a form that different tokenizers have in common.

Byte-level tokenizers write each byte as a printable character, 'Ġ' for a space.
SentencePiece writes '▁' for a space, and '<0x0A>' for a byte that is not part
of any other token.
"""

import re

import tokenizers

# Bytes that byte-level tokenizers write as the character with the same number;
# the others are written as those from 256 on.
_PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
_CODES = {
  chr(code): byte
  for code, byte in [
    *((byte, byte) for byte in _PRINTABLE),
    *enumerate((b for b in range(256) if b not in _PRINTABLE), 256),
  ]
}
_BYTE = re.compile('<0x([0-9A-F]{2})>')


def read(core: tokenizers.Tokenizer) -> dict[int, bytes | str]:
  """Returns the bytes of each token, and the names of special tokens.

  Tokens for single bytes of SentencePiece come last, since their texts may have
  other tokens.

  Args:
    core: a tokenizer of the library `tokenizers`.
  """
  added = core.get_added_tokens_decoder()
  is_byte_level = '"ByteLevel"' in core.to_str()
  texts: dict[int, bytes | str] = {}
  single_bytes: dict[int, bytes | str] = {}
  for spelling, token in sorted(core.get_vocab().items(), key=_id):
    byte = _BYTE.fullmatch(spelling)
    if token in added and added[token].special:
      texts[token] = spelling
    elif token in added and is_byte_level:
      texts[token] = spelling.encode()
    elif is_byte_level:
      texts[token] = b''.join(
        bytes([_CODES[char]]) if char in _CODES else char.encode()
        for char in spelling
      )
    elif byte is not None:
      single_bytes[token] = bytes.fromhex(byte[1])
    else:
      texts[token] = spelling.replace('▁', ' ').encode()
  return texts | single_bytes


def _id(entry: tuple[str, int]) -> int:
  """Returns the token of an entry of a vocabulary."""
  return entry[1]
