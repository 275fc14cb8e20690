"""``python -m calibrant.cli``."""

from calibrant.cli import main

if __name__ == "__main__":
    main()
