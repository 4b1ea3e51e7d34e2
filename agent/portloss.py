"""Whether an engine ended because somebody else had its port: told by its last words. Pure.

Between handing a port over and the engine's binding it, another program may take it. That is nobody's failure: the
engine is started again on another port, and no attempt is counted.
"""

import re

# What engines and their libraries say; vLLM and SGLang speak with uvicorn's and Python's words, TGI with Rust's.
_WORDS = re.compile(
    r"address already in use"
    r"|\bEADDRINUSE\b|\bAddrInUse\b|\bWSAEADDRINUSE\b"
    r"|errno 98\b"
    r"|couldn't bind (?:http )?server socket|failed to bind|unable to bind|could not bind|cannot bind|error binding"
    r"|port \d+ is (?:already )?(?:in use|occupied|not available|taken)"
    r"|exiting due to http server error",
    re.IGNORECASE,
)


def tells_of_a_lost_port(lines: tuple[str, ...]) -> bool:
    """Whether the last lines of an engine that ended say that it could not bind."""
    return any(_WORDS.search(line) for line in lines)
