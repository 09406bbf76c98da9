#!/usr/bin/env python3
"""Reads SieveDB filters, written from format.md, and reports whether keys are absent.

`sieve_filter.py FILE [KEY...]` prints "absent" or "maybe" for each key, or for each line of its input. FILE is a filter
file of a store, or a filter block alone. A damaged file is an error. With the package `xxhash` it is faster.
"""
import os, struct, sys, zlib
try:
    from xxhash import xxh3_64_intdigest
except ImportError:
    from xxh3 import xxh3_64_intdigest

M64, GOLDEN, ROW, PAGE = (1 << 64) - 1, 0x9E3779B97F4A7C15, 0x6A09E667F3BCC909, 4096
HEADER = struct.Struct("<8s2HI16sQ4B2H5QB3B2H4Q120sQ")
FIELDS = "magic version header_length checksum owner length kind domain hash_id section_count required optional seed " \
         "salt keys rate size probes g1 g2 g3 attempt reserved b1 b2 b3 b4 entries plain".split()

class Corrupt(ValueError): """The bytes are damaged."""
class Unsupported(ValueError): """The bytes are intact, but newer than this reader."""

def check(is_right, problem, error=Corrupt):
    if not is_right:
        raise error(problem)
def crc(owner, offset, data):
    return zlib.crc32(owner + offset.to_bytes(8, "little") + data)
def up(x, unit):
    return -(-x // unit) * unit
def remix(x):
    return (x ^ x >> 32) * 0xD6E8FEB86659FD93 & M64
def fold(product):
    return product & M64 ^ product >> 64
def bits(data, at, count):
    return int.from_bytes(data[at // 8:up(at + count, 8) // 8], "little") >> at % 8 & (1 << count) - 1

class Filter:
    """A completely verified filter block. `expected`: the owner, seed or keys of the table."""
    def __init__(self, block, **expected):
        self.block = block
        self.__dict__.update(zip(FIELDS, HEADER.unpack_from(block.ljust(256, b"\0"))))
        check(len(block) >= 40 and self.magic == b"\x89SVFLT\r\n", "not a filter block")
        check(self.header_length in range(64, min(4096, len(block)) + 1, 64), "header length")
        check(crc(self.owner, 0, block[:12] + block[16:self.header_length]) == self.checksum, "header checksum")
        check(self.header_length <= self.length == len(block) and self.length % 64 == 0, "block length")
        check((self.version, self.required) == (1, 0), "format version or required flag", Unsupported)
        check(self.kind in (1, 2, 3) and (self.domain, self.hash_id) == (0, 1), "kind, domain or hash id", Unsupported)
        check(self.header_length == 256 and self.reserved == 0, "header length or reserved bytes")
        self.check_sections(self.section_bits())
        for name, value in expected.items():
            check(getattr(self, name) == value, f"the table has another value of {name}", ValueError)
        self.is_known_empty = expected.get("keys") == 0

    def section_bits(self):
        """The bits of each section, computed from the parameters."""
        groups, buckets = [self.g1, self.g2, self.g3], [self.b1, self.b2, self.b3, self.b4]
        of_ribbon, self.layers, self.last, bucket = [*groups, self.attempt, *buckets, self.plain], [], 0, 0
        check(self.kind == 3 or not any(of_ribbon), "parameters of a ribbon in another kind")
        if self.keys == 0 or self.kind == 3 and self.size == 0:
            check(not any([self.size, self.probes, *of_ribbon]) and (self.keys or self.rate == 0), "parameters")
            return []
        if self.kind < 3:
            check(1 <= self.probes <= 30 and self.size > 0, "probes or size")
            return [self.size if self.kind == 1 else 512 * self.size]
        check(self.probes == 0 and 128 <= self.size <= 1 << 48 and max(buckets) <= 1 << 48, "probes, size or buckets")
        check(all(a or not b for parts in (groups, buckets) for a, b in zip(parts, parts[1:])), "groups or layers")
        for n in filter(None, buckets):
            self.layers.append((self.last, 128 * n, bucket))
            self.last, bucket = self.last + 2 * n + up(n, 512) // 512, bucket + n
        self.blocks, self.tail = self.last + up(self.size, 64) // 64, (self.size - 1) % 64 + 1
        more, used = int(self.plain < self.blocks), list(filter(None, groups)) or [0]
        check(self.plain <= self.blocks and 1 <= sum(groups) + more <= 32, "columns or plain blocks")
        self.groups = [(n, n + more * (i == len(used))) for i, n in enumerate(used, 1)]
        in_tail = [self.tail * group[self.blocks > self.plain] for group in self.groups]
        return [up(2 * bucket, 8), *(self.start(group, self.blocks - 1) + n for group, n in zip(self.groups, in_tail))]

    def start(self, group, block):
        """The bits before a block in a column group."""
        return 64 * (group[0] * min(block, self.plain) + group[1] * max(block - self.plain, 0))

    def check_sections(self, sizes):
        lengths, sums, self.sections, padding = [up(n, 8) // 8 for n in sizes], 256, [], self.entries[24 * len(sizes):]
        at = sums + 4 * sum(up(n, PAGE) // PAGE for n in lengths)
        check(self.section_count == len(sizes) and at <= self.length, "section count or block length")
        for i, (size, n) in enumerate(zip(sizes, lengths)):
            start, sums_end = up(at, PAGE if n >= 1 << 20 else 64), sums + up(n, PAGE) // PAGE * 4
            offset, length, checksum, reserved = struct.unpack_from("<2Q2I", self.entries, 24 * i)
            check((offset, length, reserved) == (start, n, 0) and start + n <= self.length, f"place of section {i}")
            check(crc(self.owner, sums, self.block[sums:sums_end]) == checksum, f"checksum of section {i}")
            padding, at = padding + self.block[at:start], start + n
            for page in range(start, at, PAGE):
                content = self.block[page:min(page + PAGE, at)]
                check(crc(self.owner, page, content) == bits(self.block, 8 * sums, 32), f"checksum of page {page}")
                sums += 4
            self.sections.append(self.block[start:at])
            check(bits(self.sections[i], size, 8 * n - size) == 0, f"unused bits of section {i}")
        check(self.length == up(at, 64) and not any(padding + self.block[at:]), "block length or padding")

    def may_contain(self, key):
        """False: the key is certainly absent."""
        if not self.sections:
            return not self.is_known_empty
        h = fold((xxh3_64_intdigest(key, self.seed) ^ self.salt) * GOLDEN)
        return self.probe_ribbon(h) if self.kind == 3 else self.probe_bits(h)

    def probe_bits(self, h):
        x, y, z, w, line = h, remix(h) | 1, GOLDEN, h & 0xFFFFFFFF, 512 * (h * self.size >> 64)
        for _ in range(self.probes):
            w = w * 0x9E3779B9 & 0xFFFFFFFF
            if not bits(self.sections[0], x * self.size >> 64 if self.kind == 1 else line + (w >> 23), 1):
                return False
            x, y, z = x + y & M64, y + z & M64, z + GOLDEN & M64
        return True

    def probe_ribbon(self, h):
        for first, starts, bucket in self.layers:
            start, product = h * starts >> 64, h * ROW
            if start % 128 >= (128, 40, 16, 0)[bits(self.sections[0], 2 * (bucket + start // 128), 2)]:
                return self.probe_row(64 * first + start + 64 * (start >> 16), product & M64 | 1, fold(product))
            h = remix(h)
        g = remix(fold((h ^ GOLDEN * (self.attempt + 1) & M64) * GOLDEN))
        start, low = min(max((g * (self.size - 1) >> 64) - 63, 0), self.size - 128), g * ROW & M64
        return self.probe_row(64 * self.last + start, low | 1 | remix(low) << 64, fold(g * ROW))

    def probe_row(self, slot, coefficients, mark):
        block, coefficients, column = slot // 64, coefficients << slot % 64, 0
        for group, section in zip(self.groups, self.sections[1:]):
            for own in range(group[block >= self.plain]):
                solution = 0
                for i in range(min(3, self.blocks - block)):
                    width = self.tail if block + i == self.blocks - 1 else 64
                    solution |= bits(section, self.start(group, block + i) + width * own, width) << 64 * i
                if bin(solution & coefficients).count("1") % 2 != mark >> column & 1:
                    return False
                column += 1
        return True

def read(data, **expected):
    """The filter of a filter file or block; a file is also verified up to the block."""
    if data[:8] == b"\x89SIEVE\r\n":
        check(len(data) >= PAGE and crc(data[32:48], 0, data[:60]) == bits(data, 480, 32), "file header")
        kind, *newer, length, features = struct.unpack_from("<4H32xI", data, 8)
        check((*newer, features) == (1, 1, 0) and 1 <= kind <= 5, "file of a newer version", Unsupported)
        check((kind, length) == (5, 64) and not any(data[56:60] + data[64:PAGE]), "not a filter file, or padding")
        data = data[PAGE:]
    return Filter(data, **expected)

if __name__ == "__main__":
    FILTER = read(open(sys.argv[1], "rb").read())
    KEYS = [os.fsencode(key) for key in sys.argv[2:]] or sys.stdin.buffer.read().split(b"\n")
    for key in KEYS if len(sys.argv) > 2 or KEYS[-1] else KEYS[:-1]:
        sys.stdout.buffer.write((b"maybe  " if FILTER.may_contain(key) else b"absent ") + key + b"\n")
