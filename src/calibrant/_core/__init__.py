"""Helpers: checks, arrays, files, memory, signals, formatting, score rows."""
