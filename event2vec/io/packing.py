"""How much a packet of LZ4 or zstd unpacks to at most, found without unpacking it."""

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
LZ4_MAGIC = b"\x04\x22\x4d\x18"
LARGEST_ZSTD_BLOCK = 1 << 17
RAW, RUN = 0, 1  # kinds of zstd blocks that say how many bytes they stand for


def unpacked_at_most(packet: bytes) -> int:
    """An upper bound in bytes; that of zstd trusts the length that a frame names."""
    if packet.startswith(ZSTD_MAGIC):
        return _zstd_at_most(packet)
    if packet.startswith(LZ4_MAGIC):
        # Four bytes of LZ4 copy 273 at most, and only bytes of 255 add to that, as many each.
        return min(69 * len(packet) + 256 * packet.count(b"\xff"), 255 * len(packet))
    return len(packet)


def _zstd_at_most(packet: bytes) -> int:
    """The sum over all frames of the packet."""
    position, total = 0, 0
    while packet[position : position + 4] == ZSTD_MAGIC and position + 4 < len(packet):
        descriptor = packet[position + 4]
        single = descriptor >> 5 & 1
        length = (single, 2, 4, 8)[descriptor >> 6]  # bytes of the field that names the length of the content
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
        position += 4 * (descriptor >> 2 & 1)  # a sum of the content
        total += max(exact, min(exact + packed, named)) if length else exact + packed
    return total
