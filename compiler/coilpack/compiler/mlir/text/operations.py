"""Which form of the grammar an operation has."""

from __future__ import annotations

# The kind of token that an operation's name is; the rules of the grammar start with them.
FORMS = {
    "func.func": "FUNCTION",
    "module": "MODULE",
    "builtin.module": "MODULE",
}
