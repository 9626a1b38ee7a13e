"""Where the checkout is, for tests of files that are not part of the package."""

import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[1]
