#!/usr/bin/env python3
"""Restores a backup from a SieveDB backup repository: restore.py REPO DIR [--at ID]

A reference implementation of "Backup repository" in format.md, format version 1. All checksums of the index and of the
files are verified. DIR appears when it is complete and durable. It is a store with the id of its origin and may take
the place of the origin; `sievedb checkpoint` makes a copy with an id of its own. Exit code 1: an error, and no DIR.
"""
import argparse, contextlib, os, re, shutil, struct, sys, tempfile, zlib
from operator import xor
from pathlib import Path

PART = 1 << 20
NUMBER = r"(?!0{6})(?:[0-9]{6}|[1-9][0-9]{6,18})"
NAMES = {1: NUMBER + r"\.sst", 2: NUMBER + r"\.wal", 3: "MANIFEST-" + NUMBER, 4: "CURRENT", 5: NUMBER + r"\.filter"}


def fail(path, what, offset=None):
    raise ValueError(f"{path}: {what}" if offset is None else f"{path}: offset {offset}: {what}")


# XXH3 of xxHash 0.8 with seed 0: 64 bits of more than 240 bytes, 128 bits of more than 16 bytes. Shorter inputs do not
# occur: each file of a store has at least the 64 bytes of its header.
M32, M64, A1, A2, A3 = (1 << 32) - 1, (1 << 64) - 1, 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
B1, B2, B3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
B4, B5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221b8084674f743248e"
    "e03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d"
    "8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc"
    "8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e")


def words(data, offset, count):
    return struct.unpack_from(f"<{count}Q", data, offset)


def fold(a, b):
    return a * b & M64 ^ a * b >> 64


def avalanche(h):
    h = (h ^ h >> 37) * 0x165667919E3779F9 & M64
    return h ^ h >> 32


def accumulate(data):
    """Blocks of 16 stripes of 8 words, the stripes that remain, and the last 64 bytes."""
    acc = [A3, B1, B2, B3, B4, A2, B5, A1]

    def add(offset, stripes, secret):
        values = words(data, offset, 8 * stripes)
        for i in range(8):
            mixed = map(xor, values[i::8], words(SECRET, secret + 8 * i, stripes))
            acc[i ^ 1] += sum(values[i::8])
            acc[i] += sum([(v & M32) * (v >> 32) for v in mixed])

    end = (len(data) - 1) // 1024 * 1024
    for offset in range(0, end, 1024):
        add(offset, 16, 0)
        acc = [((a & M64) ^ (a & M64) >> 47 ^ key) * A1 & M64 for a, key in zip(acc, words(SECRET, 128, 8))]
    add(end, (len(data) - 1 - end) // 64, 0)
    add(len(data) - 64, 1, 121)
    return [a & M64 for a in acc]


def merge(acc, secret, start):
    mixed = list(map(xor, acc, words(SECRET, secret, 8)))
    return avalanche((start + sum(map(fold, mixed[::2], mixed[1::2]))) & M64)


def xxh3_128(data):
    n, low, high = len(data), len(data) * B1 & M64, 0
    if n > 240:
        acc = accumulate(data)
        return merge(acc, 117, ~(n * B2)) << 64 | merge(acc, 11, low)

    def mix(first, second, secret):
        nonlocal low, high
        (a, b), (c, d), (s, t, u, v) = words(data, first, 2), words(data, second, 2), words(SECRET, secret, 4)
        low = (low + fold(a ^ s, b ^ t) & M64) ^ (c + d & M64)
        high = (high + fold(c ^ u, d ^ v) & M64) ^ (a + b & M64)

    if n <= 128:
        for i in reversed(range((n + 31) // 32)):
            mix(16 * i, n - 16 * i - 16, 32 * i)
    else:
        for i in range(n // 32):
            mix(32 * i, 32 * i + 16, 32 * i if i < 4 else 32 * i - 125)
            if i == 3:
                low, high = avalanche(low), avalanche(high)
        mix(n - 16, n - 32, 103)
    return (-avalanche((low * B1 + high * B4 + n * B2) & M64) & M64) << 64 | avalanche(low + high & M64)


def checksum(owner, offset, data):  # SUM of format.md
    whole = owner + struct.pack("<Q", offset) + data
    return zlib.crc32(whole) if len(data) <= 16384 else merge(accumulate(whole), 11, len(whole) * B1)


def read_index(path):
    """Returns the time of a backup, its files: {name: (length, content, CRC-32 of each part)}, and the store id."""
    data = path.read_bytes()
    if len(data) < 92 or data[:8] != bytes.fromhex("89 53 49 45 56 45 0d 0a"):
        fail(path, "not a backup index, or it ends early", 0)
    kind, version, sums, header, required, _, reserved, stated = struct.unpack_from("<4H32x4I", data, 8)
    owner, end, at = data[32:48], len(data) - 8, 64
    if stated != checksum(owner, 0, data[:60]):
        fail(path, "the checksum of the file header differs", 60)
    if (version, required, sums, kind, header, reserved) != (1, 0, 1, 6, 64, 0):
        fail(path, f"not a backup index that this reader knows: kind {kind}, version {version}", 8)
    if checksum(owner, 64, data[64:end]) != words(data, end, 1)[0]:
        fail(path, f"the checksum of the bytes 64..{end} differs", 64)

    def take(size):
        nonlocal at
        if size > end - at:
            fail(path, "the index ends within a file", at)
        at += size
        return data[at - size:at]

    def varint():
        first, value, byte = at, 0, 128
        while byte & 128:
            byte = take(1)[0]
            value |= (byte & 127) << 7 * (at - first - 1)
            if value > M64 or at - first > 10 or at - first > 1 and byte == 0:
                fail(path, "not a varint", first)
        return value

    time, _, count = struct.unpack("<QQI", take(20))
    files, last = {}, ""
    for _ in range(count):
        start = at
        kind = int.from_bytes(take(2), "little")
        name = take(varint()).decode("latin-1")
        take(16 + 4)  # File id and checksum: a writer finds a file by them.
        length = varint()
        content = f"{take(16).hex()}-{length}"
        parts = [part for part, in struct.iter_unpack("<I", take(-(-length // PART) * 4))]
        if not re.fullmatch(NAMES.get(kind, "(?!)"), name) or name <= last:
            fail(path, f"{name!r} of kind {kind} after {last!r}", start)
        files[name], last = (length, content, parts), name
    if at != end:
        fail(path, "bytes after the last file", at)
    return time, files, data[16:32]


def listing(directory, pattern):
    """Returns {group 1 of the pattern: path} of the files of a directory; of several, the last path by name."""
    paths = sorted(directory.iterdir()) if directory.is_dir() else []
    return {match[1]: path for path in paths if (match := re.fullmatch(pattern, path.name))}


def read_stored(repo, content):
    """Returns path and bytes of a file, or None. Meanwhile a writer may move it between the directories."""
    for directory, prefix in (("files", ""), ("unused", "[0-9]+-"), ("files", "")):
        for path in listing(repo / directory, f"{prefix}({content})").values():
            with contextlib.suppress(FileNotFoundError):
                return path, path.read_bytes()


def choose(repo, at):
    """Returns the files and the path of an index; by default of the newest complete backup, if all are of one store."""
    backups, errors = [], []
    for id, path in listing(repo / "backups", r"([0-9A-Za-z-][0-9A-Za-z.-]*)\.index").items():
        try:
            backups += [(*read_index(path), path)] if at in (None, id) else []
        except ValueError as error:
            errors.append(error)
    if not backups:
        raise errors[0] if errors else ValueError(f"{repo / 'backups'}: no backup{f' {at}' if at else ''}")
    backups.sort(key=lambda backup: (backup[0], backup[3]), reverse=True)
    if len(stores := {backup[2]: backup[3].stem for backup in reversed(backups)}) > 1:
        fail(repo, "backups of several stores; choose one with --at, such as the newest: " + ", ".join(stores.values()))
    there = listing(repo / "unused", "[0-9]+-(.+)").keys() | listing(repo / "files", "(.+)").keys()
    there -= listing(repo / "files", r"(.+)\.damaged").keys()
    complete = [backup for backup in backups if all(file[1] in there for file in backup[1].values())]
    chosen = (complete or backups)[0]
    for why in errors + [f"{newer[3]}: incomplete" for newer in backups[:backups.index(chosen)]]:
        print(f"restore.py: note: passed over: {why}", file=sys.stderr)
    return chosen[1], chosen[3]


def restore(repo, directory, at):
    if os.path.lexists(directory):
        fail(directory, "exists")
    files, index = choose(repo, at)
    work = Path(tempfile.mkdtemp(prefix=directory.name + ".incomplete-", dir=directory.parent))
    try:
        for name, (length, content, parts) in files.items():
            lost = f"{name} is missing: {content} is neither in files/ nor in unused/"
            path, data = read_stored(repo, content) or fail(index, lost)
            if len(data) != length:
                fail(path, f"{name} has {len(data)} bytes instead of {length}", min(len(data), length))
            for i, part in enumerate(parts):
                if zlib.crc32(data[i * PART:(i + 1) * PART]) != part:
                    fail(path, f"{name} is damaged: wrong CRC-32 of the part that begins here", i * PART)
            if length < 64 or f"{xxh3_128(data):032x}-{length}" != content:
                fail(path, f"{name} is damaged: wrong XXH3-128, or shorter than a file header", 0)
            (work / name).write_bytes(data)
        for path in (*work.iterdir(), work):
            os.fsync(handle := os.open(path, os.O_RDONLY))
            os.close(handle)
        work.rename(directory)
        os.fsync(os.open(directory.parent, os.O_RDONLY))
    finally:
        shutil.rmtree(work, ignore_errors=True)  # After the rename there is nothing to remove.
    return f"{index}: {len(files)} files, {sum(file[0] for file in files.values())} bytes"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Restores a backup of a SieveDB store.")
    parser.add_argument("repo", metavar="REPO", type=Path, help="the repository")
    parser.add_argument("directory", metavar="DIR", type=Path, help="the restored store; must not exist")
    parser.add_argument("--at", metavar="ID", help="the backup to restore; otherwise the newest complete one")
    os.umask(0o077)
    try:
        print(restore(**vars(parser.parse_args())))
    except (ValueError, OSError) as error:
        sys.exit(f"restore.py: {error}")
