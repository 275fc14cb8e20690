"""What knows nothing of calibration: checks, arrays, files, memory, signals, text, score rows."""
