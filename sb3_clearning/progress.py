"""A progress bar where it is asked for."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def progress(shown: bool, description: str, total: int | None = None) -> Iterator[Any]:
    """:return: tqdm's bar if it is ``shown``, else None. Without a total it only counts"""
    if not shown:
        yield None
        return
    try:
        from tqdm.auto import tqdm
    except ImportError as error:
        raise ImportError('The progress bar needs tqdm: pip install "sb3_clearning[extra]"') from error
    with tqdm(total=total, desc=description) as bar:
        yield bar
