"""
The build step that adds the import hook, the hyperparameters and the configurations to the wheel.

setuptools loads this file by its path, so it imports nothing from the package.
"""

from pathlib import Path

from setuptools.command.build_py import build_py

#: The module at the root of site-packages, and the files that make the interpreter run it. Interpreters that read the second
#: (PEP 829) ignore the import line of the first.
HOOK_MODULE = "_sb3_clearning_zoo"
STARTUP_FILES = {
    "sb3_clearning_zoo.pth": f"import {HOOK_MODULE}; {HOOK_MODULE}.install()\n",
    "sb3_clearning_zoo.start": f"{HOOK_MODULE}:install\n",
}
#: Folders that are copied into the installed package.
CONFIGURATION_FOLDERS = ("hyperparams", "zoo_configs")


class BuildWithStartupHook(build_py):
    """setuptools' build step with our files."""

    def run(self) -> None:
        """Build the modules, then add our files."""
        super().run()
        project = Path(__file__).resolve().parents[2]
        if self.editable_mode:
            # The package stays in the checkout with its folders; only the hook goes to site-packages.
            root = Path(self.get_finalized_command("install").install_lib)
        else:
            root = Path(self.build_lib)
            for folder in CONFIGURATION_FOLDERS:
                self.mkpath(str(root / "sb3_clearning" / folder))
                for path in sorted((project / folder).iterdir()):
                    if path.suffix in (".yml", ".py"):
                        self.copy_file(str(path), str(root / "sb3_clearning" / folder / path.name))
        self.mkpath(str(root))
        self.copy_file(str(project / "sb3_clearning" / "zoo" / "import_hook.py"), str(root / f"{HOOK_MODULE}.py"))
        for name, text in STARTUP_FILES.items():
            (root / name).write_text(text, encoding="utf-8")
