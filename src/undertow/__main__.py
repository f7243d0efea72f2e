"""`python -m undertow` is the command line, for where its script is not on the path."""

from undertow.cli.main import main

if __name__ == "__main__":
    main()
