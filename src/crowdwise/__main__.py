"""``python -m crowdwise`` is the program ``crowdwise``."""

from crowdwise.cli import main

if __name__ == "__main__":
    main()
