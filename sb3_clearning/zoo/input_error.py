"""An error of the one who typed the command."""


class InputError(SystemExit, ValueError):
    """An error of the user's, for which one line says more than a traceback: the interpreter prints it and exits with 1."""
