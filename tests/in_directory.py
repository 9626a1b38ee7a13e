"""`python -m tests.in_directory DIRECTORY OUTPUT ERRORS MODULE …`: runs a module elsewhere.

What it prints goes to the two files, its standard output and error, which may be one.
"""

import os
import runpy
import sys


def main():
    directory, output, errors, module = sys.argv[1:5]
    os.chdir(directory)
    sys.path[0] = directory  # As `python -m` has it.
    for fd, path in ((1, output), (2, errors)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, fd)
        os.close(file)
    sys.argv = [module, *sys.argv[5:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
