"""The command line, installed as ``fastpe_cli``: one file for each command. Only these files print."""
