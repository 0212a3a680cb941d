"""Telling the text at the head of a file from the records behind it."""

CONTROL = bytes(code for code in range(32) if code not in b"\t\r\n") + b"\x7f"


def is_text(line: bytes) -> bool:
    """Whether these bytes can be a line that a person or a program wrote; records have zeros and other controls."""
    return len(line.translate(None, CONTROL)) == len(line)
