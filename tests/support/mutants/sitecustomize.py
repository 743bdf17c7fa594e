"""Python reads this where this folder is in PYTHONPATH: a process that a test starts gets the mutant too."""

import os

if os.environ.get("FASTPE_MUTANT"):
    import mutant_import

    mutant_import.install()
