"""Runs commands in forks of itself, in which the file system kills, fails or is slow.

`faulty_process.py MODULE...` imports the modules, and then reads a list in JSON from each line: a
folder, the fault and the number of the change there that meets it (see `file_faults.c`),
a file for the output, a module and the arguments of its `main`. It answers with how that ended.
"""

import ctypes
import importlib
import json
import os
import sys

for module in sys.argv[1:]:
    importlib.import_module(module)
for line in sys.stdin:
    folder, fault, number, log, module, arguments = json.loads(line)
    process = os.fork()
    if process == 0:
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        library = ctypes.CDLL(None)
        library.arrange(os.fsencode(folder), ctypes.c_char(fault[:1].encode()), number)
        try:
            status = importlib.import_module(module).main(arguments)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            status = 70
        print(f"{library.changes()} changes", flush=True)
        os._exit(status)
    _, status = os.waitpid(process, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
