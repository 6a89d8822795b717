"""Checkpoints as llama.cpp writes them: one file with all that there is."""
