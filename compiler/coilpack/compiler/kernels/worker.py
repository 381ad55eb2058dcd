"""The process that runs Triton's stages for `pool.WorkerPool`: requests on standard input, replies on standard output.

A process of its own, because LLVM ends the process on some kernels, writes its messages to standard error, and does not
share well between threads. It imports Triton but not torch. Both directions speak JSON, one object a line.
"""

from __future__ import annotations

import json
import os
import sys


def main() -> None:
    """Serves requests until standard input ends."""
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what Triton prints must not mix with the replies
    from coilpack.compiler._triton_compat import lower_ir

    for line in sys.stdin:
        request = json.loads(line)
        try:
            ptx, metadata = lower_ir(request["ir"], request["options"], request["compute_capability"])
            reply = {"ptx": ptx, "metadata": metadata}
        except Exception as error:  # noqa: BLE001 (whatever Triton raises is an answer; the parent reports it)
            reply = {"error": f"{type(error).__name__}: {error}"}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()
