"""``python -m fastpe`` is the command ``fastpe``."""

from fastpe_cli.start import start

if __name__ == "__main__":
    start()
