"""The command line: ``tightmap solve | batch | info | convert | methods | compile | bench | demo``.

Results go to standard output, progress and errors to standard error.

Outputs.  Every file that a command is asked to write is checked before the work begins: its folder is there and takes
files, its suffix is known, and no file is named twice or is the model itself.  ``-`` (for --json, --labels, --trace) is
standard output, which then carries nothing else; the summary goes to standard error.  Files appear complete or not at
all.  JSON, labels and trace come first, then the summary, then the picture.  An output that fails takes no other along.

Signals.  Ctrl-C, SIGTERM and SIGHUP do the same.  While the model is read they end the command at once.  While it is
solved the run returns its best so far, and every output is written.  After that JSON, labels and trace are still
written, and the picture is left out.  A second signal ends the command as quickly as it can; no file is half written.

Exit codes:

    0    solved, or stopped by a limit
    2    bad input or usage, out of memory, or an output that could not be written: one sentence on standard error
    3    proven infeasible
    130  interrupted by Ctrl-C (129: SIGHUP, 143: SIGTERM); the best so far and what was finished is written
    141  whoever read standard output went away; files are written all the same
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from tightmap.runtime.interruption import Guard, Interrupted, guarded, ignore_signals, install

if TYPE_CHECKING:
    from tightmap.cli.outputs import Session


def main() -> NoReturn:
    """Entry point of the process."""
    code = _command(install(exits=True), None)
    ignore_signals()
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run a command inside of this process and return its exit code."""
    with guarded() as guard:
        return _command(guard, arguments)


def _command(guard: Guard, arguments: Sequence[str] | None) -> int:
    try:
        from tightmap.cli.outputs import Session, dependable_streams

        with dependable_streams():
            session = Session(guard)
            code = _outcome(session, arguments)
            session.flush()
            return session.exit_code(code)
    except Interrupted as interruption:  # outside of everything that has something to say
        return 128 + interruption.signum


def _outcome(session: Session, arguments: Sequence[str] | None) -> int:
    """What the command returns; bad input is one sentence, never a traceback."""
    from tightmap.errors import ModelError, OptionError

    try:
        from tightmap.cli.commands import app

        app(args=arguments, prog_name="tightmap", obj=session)
        return 0
    except SystemExit as leaving:
        if sys.stdout is not session.stdout is not None:  # typer replaces it when nobody reads any more
            session.pipe_closed = True
        return leaving.code if isinstance(leaving.code, int) else 0 if leaving.code is None else 1
    except (ModelError, OptionError) as error:
        session.complain(str(error))
    except Interrupted:
        session.remark(session.guard.farewell)
    except RecursionError as error:
        session.complain(f"nested too deeply ({error})")
    except (MemoryError, SystemError) as error:
        session.complain(_out_of_memory(error))
    except OSError as error:
        session.flush()
        if not session.pipe_closed and not session.failed:  # it was not standard output
            session.complain(str(error))
    return 2


def _out_of_memory(error: BaseException) -> str:
    """Memory that ends inside of a compiled kernel may arrive as a SystemError around the MemoryError."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, MemoryError):
        cause = cause.__cause__ or cause.__context__
    if cause is None:
        return f"a compiled part failed ({error})"
    return f"out of memory ({cause})" if str(cause) else "out of memory"


def __getattr__(name: str) -> Any:
    if name == "app":  # imported when it is used: signals are handled before anything else is loaded
        from tightmap.cli.commands import app

        return app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if __name__ == "__main__":
    main()
