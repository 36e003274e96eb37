"""`python -m accelsweep` is `accelsweep`."""

from accelsweep.cli import main

if __name__ == "__main__":
    main()
