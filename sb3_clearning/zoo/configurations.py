"""Our configuration files, which `train` finds by their names."""

from pathlib import Path

import rl_zoo3

from sb3_clearning.checks import UsageError

#: The folders of our configurations.
FOLDERS = ("hyperparams", "zoo_configs")


def configuration_folder(name: str) -> Path:
    """:return: The folder "hyperparams" or "zoo_configs", inside the installed package or next to it in a checkout"""
    package = Path(__file__).resolve().parent.parent
    return package / name if (package / name).is_dir() else package.parent / name


def find_configuration(algo: str, config: str) -> str:
    """
    :param config: a path, a Python module, the name of one of our files with or without its folder, or rl-zoo3's default
        path, which does not exist for our algorithms
    :return: the configuration to read
    """
    path = Path(config)
    if path.suffix not in (".yml", ".yaml", ".py") or path.is_file():
        return config
    package = Path(rl_zoo3.__file__).parent
    # A path to anywhere else is not one of ours, even if the file name is the same.
    folders = {
        Path(): FOLDERS,
        **{Path(folder): (folder,) for folder in FOLDERS},
        **{place / "hyperparams": ("hyperparams",) for place in (package, package.parent)},
    }.get(path.parent, ())
    for folder in folders:
        if (configuration_folder(folder) / path.name).is_file():
            return str(configuration_folder(folder) / path.name)
    ours = sorted(file.name for folder in FOLDERS for file in configuration_folder(folder).glob("*.*"))
    raise UsageError(f"There is no configuration {config} for {algo}. Files of sb3_clearning: {', '.join(ours)}")
