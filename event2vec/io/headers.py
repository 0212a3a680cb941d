"""Tell a text header from the binary records after it."""

CONTROL = bytes(code for code in range(32) if code not in b"\t\r\n") + b"\x7f"


def is_text(line: bytes) -> bool:
    """Whether these bytes can be a line of text; binary records contain zeros and other control characters."""
    return len(line.translate(None, CONTROL)) == len(line)
