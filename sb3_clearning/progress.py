"""A progress bar where it is asked for."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def progress(shown: bool, description: str, total: int | None = None) -> Iterator[Any]:
    """
    :param shown: Whether there is a bar
    :param description: What stands before it
    :param total: When it is full; None: it only counts
    :return: tqdm's bar, or None
    """
    if not shown:
        yield None
        return
    try:
        from tqdm.auto import tqdm
    except ImportError as error:
        raise ImportError('The progress bar needs tqdm: pip install "sb3_clearning[extra]"') from error
    with tqdm(total=total, desc=description) as bar:
        yield bar
