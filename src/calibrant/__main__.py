"""``python -m calibrant``: the command line."""

from calibrant.cli import main

if __name__ == "__main__":
    main()
