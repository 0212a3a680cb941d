"""What pyproject.toml cannot say: a package whose modules are listed one by one has its py.typed too."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

TYPED = "event2vec/py.typed"


class BuildWithTypes(build_py):
    def run(self) -> None:
        super().run()
        self.copy_file(str(Path("..") / TYPED), str(Path(self.build_lib) / TYPED))


setup(cmdclass={"build_py": BuildWithTypes})
