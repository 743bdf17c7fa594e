"""The command line, installed as ``fastpe_cli``: one file = one command; the only place that prints."""
