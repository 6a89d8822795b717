"""Checkpoints as HuggingFace writes them: configs, names and files."""
