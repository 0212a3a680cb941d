"""An upper bound on the unpacked size of an LZ4 or zstd packet, without unpacking it."""

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
LZ4_MAGIC = b"\x04\x22\x4d\x18"
LARGEST_ZSTD_BLOCK = 1 << 17
RAW, RUN = 0, 1  # kinds of zstd blocks that state their unpacked size


def unpacked_at_most(packet: bytes) -> int:
    """An upper bound in bytes; for zstd it trusts the content size in the frame header."""
    if packet.startswith(ZSTD_MAGIC):
        return _zstd_at_most(packet)
    if packet.startswith(LZ4_MAGIC):
        # Four bytes of LZ4 copy at most 273 bytes, and each byte of value 255 adds 255.
        return min(69 * len(packet) + 256 * packet.count(b"\xff"), 255 * len(packet))
    return len(packet)


def _zstd_at_most(packet: bytes) -> int:
    """The sum over all frames of the packet."""
    position, total = 0, 0
    while packet[position : position + 4] == ZSTD_MAGIC and position + 4 < len(packet):
        descriptor = packet[position + 4]
        single = descriptor >> 5 & 1
        length = (single, 2, 4, 8)[descriptor >> 6]  # bytes of the field with the content size
        position += 5 + (1 - single) + (0, 1, 2, 4)[descriptor & 3]
        named = int.from_bytes(packet[position : position + length], "little") + (256 if length == 2 else 0)
        position += length
        exact, packed, last = 0, 0, 0
        while not last and position + 3 <= len(packet):
            block = int.from_bytes(packet[position : position + 3], "little")
            last, kind, size = block & 1, block >> 1 & 3, block >> 3
            if kind in (RAW, RUN):
                exact += size
            else:
                packed += LARGEST_ZSTD_BLOCK
            position += 3 + (1 if kind == RUN else size)
        position += 4 * (descriptor >> 2 & 1)  # the content's checksum
        total += max(exact, min(exact + packed, named)) if length else exact + packed
    return total
