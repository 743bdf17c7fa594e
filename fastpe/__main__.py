"""``python -m fastpe`` is the command ``fastpe``."""

from fastpe_cli.main import main

if __name__ == "__main__":
    main()
