"""``python -m calibrant.cli``."""

from calibrant.cli import main

main()
