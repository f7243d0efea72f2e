"""`python -m undertow`: the command line, where the script `undertow` is not on the path."""

from undertow.cli.main import main

if __name__ == "__main__":
    main()
