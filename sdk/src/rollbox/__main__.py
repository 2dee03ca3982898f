"""`python -m rollbox`: the command line."""

from rollbox.cli import main

if __name__ == "__main__":
    main()
