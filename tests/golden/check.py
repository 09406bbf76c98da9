#!/usr/bin/env python3
"""Checks the vectors of format-vectors.md with code that shares nothing with the crate.

Written from format.md alone: every vector is encoded from its facts, and a table and a store are decoded.
Needs Python 3.9 and the package `xxhash`. From the root of the repository: tests/golden/check.py
"""

import re
import struct
import sys
import tempfile
import zlib
from pathlib import Path

import xxhash

HERE = Path(__file__).parent
DOCUMENT = (HERE / "../../format.md").resolve()
VECTORS = (HERE / "../../format-vectors.md").resolve()
MASK = (1 << 64) - 1


# --- conventions ---

def u(size, value):
    return value.to_bytes(size, "little")


def varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out + bytes([value]))


def string(value):
    return varint(len(value)) + value


def field(number, critical, payload):
    return varint(2 * number + critical) + string(payload)


def crc(owner, offset, data):
    return zlib.crc32(owner + u(8, offset) + data)


def checksum(owner, offset, data):
    if len(data) <= 16384:
        return crc(owner, offset, data)
    return xxhash.xxh3_64_intdigest(owner + u(8, offset) + data)


def unhex(text):
    return b"" if text == "-" else bytes.fromhex(text)


class Cursor:
    def __init__(self, data, at=0):
        self.data, self.at = data, at

    def take(self, n):
        assert self.at + n <= len(self.data), f"{n} bytes at {self.at} of {len(self.data)}"
        self.at += n
        return self.data[self.at - n:self.at]

    def u(self, n):
        return int.from_bytes(self.take(n), "little")

    def varint(self):
        value, shift, start = 0, 0, self.at
        while True:
            byte = self.u(1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        assert self.data[start:self.at] == varint(value) and value <= MASK, "not the shortest form"
        return value

    def string(self):
        return self.take(self.varint())

    def rest(self):
        return self.take(len(self.data) - self.at)

    def ended(self):
        return self.at == len(self.data)

    def fields(self):
        while not self.ended():
            tag = self.varint()
            yield tag >> 1, tag & 1, Cursor(self.string())


def varints(f, facts):
    return b"".join(varint(int(value)) for _, value in facts)


def checksums(f, facts):
    contents = [value.split(" * ") for key, value in facts if key == "content"]
    return b"".join(u(8, checksum(unhex(f["owner"]), int(f["offset"]), unhex(byte) * int(n))) for byte, n in contents)


def contents(f, facts):
    return b"".join(xxhash.xxh3_128(bytes(i % 251 for i in range(int(n)))).digest() for _, n in facts)


# --- file header, CURRENT ---

def header(kind, store, file, optional=0):
    out = bytes.fromhex("8953494556450d0a") + struct.pack("<HHHH", kind, 1, 1, 64) + store + file + struct.pack("<III", 0, optional, 0)
    return out + u(4, crc(file, 0, out))


def file_header(f):
    return header(int(f["file kind"]), unhex(f["store id"]), unhex(f["file id"]), int(f["optional features"]))


def current(f):
    file = unhex(f["file id"])
    body = u(8, int(f["manifest number"])) + unhex(f["manifest file id"]) + u(4, 0)
    return header(4, unhex(f["store id"]), file) + body + u(4, crc(file, 64, body))


def backup_index(f, facts):
    body = u(8, int(f["time"])) + u(8, int(f["sequence number"])) + u(4, sum(key == "file" for key, _ in facts))
    for text in (value for key, value in facts if key == "file"):
        text, _, parts = text.partition(" parts=")
        one = dict(part.split("=") for part in text.split())
        body += u(2, int(one["kind"])) + string(one["name"].encode()) + unhex(one["file"])
        body += u(4, int(one["checksum"], 16)) + varint(int(one["length"])) + unhex(one["content"])
        body += b"".join(u(4, int(part, 16)) for part in parts.split())
    backup = unhex(f["backup id"])
    return header(6, unhex(f["store id"]), backup) + body + u(8, checksum(backup, 64, body))


# --- framed files ---

PAGE = 32768


def fragments(owner, offset, kind, synced, payload, first=True):
    """The fragments of a record, or of what is left of it."""
    out = b""
    while True:
        left = PAGE - (offset + len(out)) % PAGE
        now, payload = payload[:left - 16], payload[left - 16:]
        at, last = offset + len(out), not payload
        extent = (16 + len(now) + 7) // 8 * 8
        if left - extent < 16:
            extent = left
        body = u(2, len(now)) + u(1, kind * 4 + last * 2 + first) + u(1, 0) + u(8, synced) + now
        body += bytes(extent - 4 - len(body))
        out += u(4, crc(owner, at, body)) + body
        first = False
        if last:
            return out


def log(f, facts):
    owner = unhex(f["file id"])
    out = header(int(f["file kind"]), unhex(f["store id"]), owner)
    for key, value in facts:
        if key == "record":
            offset, kind, synced, payload = value.split(" ")
            assert int(offset) == len(out)
            out += fragments(owner, len(out), int(kind), int(synced), unhex(payload))
        if key == "room":
            out += bytes(int(value))
    return out


def fragment(f):
    more = b"" if f["last"] == "1" else b"more"
    out = fragments(unhex(f["file id"]), int(f["offset"]), int(f["kind"]), int(f["synced"]),
                    unhex(f["payload"]) + more, f["first"] == "1")
    return out[:16 + len(unhex(f["payload"]))] if more else out


def records(data, kind, store, file):
    """The records (kind, offset, payload) of a framed file that ends well."""
    assert data[:64] == header(kind, store, file)
    at, out, begun = 64, [], None
    while at < len(data):
        if kind == 2 and begun is None and not any(data[at:]):
            break
        left = PAGE - at % PAGE
        stored, n, typ, reserved, synced = struct.unpack_from("<IHBBQ", data, at)
        extent = (16 + n + 7) // 8 * 8
        if left - extent < 16:
            extent = left
        body = data[at + 4:at + extent]
        assert extent <= left and len(body) == extent - 4 and stored == crc(file, at, body)
        assert reserved == 0 and synced <= at and not any(body[12 + n:])
        assert (begun is None) == bool(typ & 1) and (typ & 2 or 16 + n == left)
        begun = begun or (typ >> 2, at, b"")
        assert begun[0] == typ >> 2
        begun = (begun[0], begun[1], begun[2] + body[12:12 + n])
        if typ & 2:
            out.append(begun)
            begun = None
        at += extent
    assert begun is None
    return out


# --- records of a log ---

def words(text):
    return dict(word.split("=") for word in text.split(" ") if "=" in word)


def batch(f, facts):
    entries = [value for key, value in facts if key == "entry"]
    first = int(f["first sequence number"])
    out = u(8, first) + u(4, len(entries))
    for index, entry in enumerate(entries):
        w = words(entry)
        assert int(w["seqno"]) == first + index
        kind = {"Delete": 0, "Put": 1, "RangeDelete": 3}[entry.split(" ")[0]]
        out += u(1, kind) + varint(int(w["keyspace"])) + string(unhex(w["key"]))
        if kind:
            out += string(unhex(w["value" if kind == 1 else "end"]))
    return out


def boundary(text):
    w = words(text)
    return b"".join(varint(int(w[name])) for name in ["keyspace", "time", "seqno"])


def boundaries(f, facts):
    return b"".join(boundary(value) for key, value in facts if key == "boundary")


def promise(f):
    return u(8, int(f["edit count"])) + u(8, int(f["edit hash"], 16))


def close(f):
    return u(8, int(f["last sequence number"])) + promise(f)


# --- manifest ---

def options(f):
    w = words(f["filter"])
    kind = {"None": 0, "Bloom": 1, "BlockedBloom": 2, "Ribbon": 3, "Auto": 255}[w["kind"]]
    code, size = (0, w["bits_per_key"]) if "bits_per_key" in w else (1, w["false_positive_rate"])
    policy = bytes([kind, code, ["Uniform", "Optimal"].index(w["allocation"])]) + struct.pack("<d", float(size))
    shape = ["table bytes", "memtable bytes", "level 0 runs", "level 1 bytes", "level ratio"]
    return field(1, 1, varint(int(f["comparator"]))) + field(2, 1, varint(int(f["hash domain"]))) \
        + field(3, 0, policy) + field(4, 0, varint(int(f["block bytes"]))) \
        + field(5, 0, bytes(map(int, f["compression"].split(" ")))) \
        + field(6, 0, b"".join(varint(int(f[name])) for name in shape)) + expiry(f.get("expiry"))


def expiry(text):
    if text is None:
        return b""
    w = words(text)
    codes = ["OnWrite", "OnSight"].index(w["refresh"]), ["System", "Caller"].index(w["time_source"])
    return field(8, 1, varint(int(w["ttl"])) + varint(int(w["buckets"])) + bytes(codes))


def table_record(f, facts):
    numbers = lambda names: b"".join(varint(int(f[name])) for name in names)
    low, high = f["sequence numbers"].split("..=")
    out = field(1, 1, u(8, int(f["number"])) + unhex(f["file id"]) + u(8, int(f["file length"]))
                + u(4, int(f["footer checksum"], 16)))
    out += field(2, 1, numbers(["entries", "deletes", "keys", "key and value bytes"]))
    out += field(3, 1, varint(int(low)) + varint(int(high)))
    if "cut" in f:
        out += field(4, 1, u(1, int(f["cut"])) + string(unhex(f["smallest"])) + string(unhex(f["largest"])))
    for key, value in facts:
        if key == "filter":
            w = words(value)
            out += field(5, 0, varint(int(w["file"])) + bytes([int(w["kind"]), int(w["domain"])])
                         + varint(int(w["offset"])) + varint(int(w["length"])) + u(4, int(w["header_checksum"], 16)))
    if "spans" in f:
        w = words(f["spans"])
        out += field(6, 1, varint(int(w["count"])) + u(1, int(w["cut"])) + string(unhex(w["start"])) + string(unhex(w["end"])))
    return out


def item(text):
    w = {key.split(" ")[-1]: value for key, value in words(text).items()}
    v = lambda *names: b"".join(varint(int(w[name])) for name in names)
    start = text.split("=")[0]
    if start == "base count":
        return field(1, 1, u(8, int(w["count"])) + u(8, int(w["hash"], 16)))
    if start == "hash seed":
        return field(2, 1, u(8, int(w["seed"], 16)))
    single = {"next file": 3, "next keyspace": 4, "last sequence number": 5, "log floor": 8, "keyspace dropped": 10}
    if start in single:
        return field(single[start], 1, varint(int(text.split("=")[1])))
    if start == "log created number":
        return field(6, 1, v("number") + unhex(w["file_id"]) + v("predecessor"))
    if start == "log closed number":
        return field(7, 1, v("number", "length", "last"))
    if start == "log cut number":
        return field(17, 1, v("number", "length", "last"))
    if start == "keyspace created id":
        return field(9, 1, v("id") + string(w["name"].encode()) + unhex(w["options"]))
    if start == "keyspace options id":
        return field(11, 1, v("id") + unhex(w["options"]))
    if start == "flushed keyspace":
        return field(12, 1, v("keyspace", "up_to"))
    if start == "table added keyspace":
        return field(13, 1, v("keyspace") + u(1, int(w["level"])) + v("run") + unhex(w["record"]))
    if start == "table removed keyspace":
        return field(14, 1, v("keyspace", "number"))
    if start == "filters replaced keyspace":
        return field(15, 0, v("keyspace", "number") + unhex(w["filters"]))
    if start == "store ids":
        return field(16, 1, unhex(text.split("=")[1].replace(" ", "")))
    if start == "boundary keyspace":
        return field(18, 1, boundary(text))
    if start == "horizon keyspace":
        return field(19, 1, v("keyspace", "seqno"))
    raise AssertionError(text)


def edit(count, hash_before, fields):
    digest = xxhash.xxh3_64_intdigest(u(8, hash_before) + u(8, count) + fields)
    return u(8, count) + u(8, digest) + fields, digest


def manifest(f, facts):
    owner = unhex(f["file id"])
    out = header(3, unhex(f["store id"]), owner)
    groups = []
    for key, value in facts:
        if key == "edit":
            groups.append([words(value), b""])
        elif key == "item":
            if value.startswith("base"):
                last = int(words(value)["hash"], 16)
            groups[-1][1] += item(value)
    synced = 0
    for w, fields in groups:
        record, last = edit(int(w["count"]), last, fields)
        assert (int(w["offset"]), w["hash"]) == (len(out), f"{last:016x}"), (len(out), f"{last:016x}")
        out += fragments(owner, len(out), 4, synced, record)
        synced = len(out)
    return out


# --- table ---

def seal(owner, offset, kind, payload, compression=0, raw=None):
    flags = 1 if kind in (1, 2) and payload[-1] else 0
    head = bytes([kind, compression, flags, 0]) + u(4, len(payload)) + u(4, len(payload) if raw is None else raw)
    return head + u(8, checksum(owner, offset, head + payload)) + payload


def block(entries, interval=None):
    """The payload of a block of (user key, tag, value); a data block if no interval is given."""
    is_data, out, restarts, before = interval is None, b"", [], b""
    interval = interval or 16
    for index, (key, tag, value) in enumerate(entries):
        shared = 0
        while shared < min(len(key), len(before)) and key[shared] == before[shared]:
            shared += 1
        if is_data and interval == 16 and index in (4, 8) and (4 + shared) * 64 <= len(out):
            interval = index
        if index % interval == 0:
            restarts.append(len(out))
            shared = 0
        out += varint(shared) + varint(len(key) - shared) + varint(tag) + varint(2 * len(value)) + key[shared:] + value
        before = key
    interval = min(interval, len(entries))
    if not is_data or len(restarts) * interval * 64 > len(out):
        interval = 0
    hashes = bytes(xxhash.xxh3_64_intdigest(key) & 255 for key, _, _ in entries) if interval else b""
    hashes = hashes.ljust(len(restarts) * interval, b"\0")
    return out + hashes + b"".join(u(4, at) for at in restarts) + u(3, len(restarts)) + u(1, interval)


def entry(text):
    w = words(text)
    byte, _, times = w["value"].partition("*")
    return unhex(w["key"]), int(w["seqno"]) * 256 + (w["kind"] == "Put"), unhex(byte) * int(times or 1)


def data_block(f, facts):
    entries = [entry(value) for key, value in facts if key == "entry"]
    return seal(unhex(f["file id"]), int(f["offset"]), int(f["kind"]), block(entries))


def span(text):
    w = words(text)
    return unhex(w["start"]), unhex(w["end"]), [int(number) for number in w["seqnos"].split(",")]


def span_payload(spans):
    out = b""
    for start, end, seqnos in spans:
        out += string(start) + string(end) + varint(len(seqnos)) + varint(seqnos[0])
        out += b"".join(varint(a - b) for a, b in zip(seqnos, seqnos[1:]))
    return out


def span_block(f, facts):
    spans = [span(value) for key, value in facts if key == "span"]
    return seal(unhex(f["file id"]), int(f["offset"]), int(f["kind"]), span_payload(spans))


def footer_bytes(owner, root, properties, filters, entries, length, count, depth):
    numbers = [*root, *properties, *filters, entries, length]
    out = b"".join(u(8, n) for n in numbers) + u(4, count) + bytes([depth, 0, 0, 0]) + bytes(8) + owner + bytes(18) + u(2, 1)
    return out + u(4, crc(owner, length - 128, out)) + bytes.fromhex("89535654424c0d0a")


def footer(f):
    place = lambda text: (int(text.split(" ")[3]), int(text.split(" ")[0]))
    out = footer_bytes(unhex(f["file id"]), place(f["root index"]), place(f["properties"]), place(f["first filter"]),
                       int(f["entries"]), int(f["file length"]), int(f["filters"]), int(f["index depth"]))
    assert f["checksum"] == f"{int.from_bytes(out[116:120], 'little'):08x}"
    return out


def origin(f):
    def bound(text):
        kind, _, key = text.partition(" ")
        return {"none": b"\0", "included": b"\1", "excluded": b"\2"}[kind] + (string(unhex(key)) if key else b"")

    def numbers(text):
        found = [int(number) for number in text.split(" ") if number != "-"]
        return varint(len(found)) + b"".join(varint(abs(b - n)) for b, n in zip([0] + found, found))

    return varint(int(f["keyspace"])) + string(f["name"].encode()) + varint(int(f["newest"])) + bound(f["from"]) \
        + bound(f["to"]) + numbers(f["replaced"]) + numbers(f["earlier"])


def table(f, data, span_facts=()):
    """A whole table of one data block, made from the entries in `data` (the vector data-block), and of spans."""
    owner = unhex(f["file id"])
    entries = [entry(value) for key, value in data if key == "entry"]
    spans = [span(value) for key, value in span_facts if key == "span"]
    out = header(1, unhex(f["store id"]), owner)
    root, blocks = (0, 0), 0
    if entries:
        first = seal(owner, 64, 1, block(entries))
        out += first
        blocks = 1
    data_end = len(out)
    if entries:
        index = seal(owner, len(out), 2, block([(entries[-1][0], 0, varint(64) + varint(len(first)))], 4))
        root = (len(out), len(index))
        out += index
    keys, values = [e[0] for e in entries], [e[2] for e in entries]
    seqnos = [e[1] >> 8 for e in entries] + [seqno for s in spans for seqno in s[2]]
    n = lambda *numbers: b"".join(varint(number) for number in numbers)
    sizes = sum(map(len, keys)), sum(map(len, values))
    deletes = sum(e[1] & 255 == 0 for e in entries)
    payload = field(1, 1, n(len(entries), deletes, len(set(keys)), *sizes))
    payload += field(2, 1, n(min(seqnos), max(seqnos)))
    if entries:
        payload += field(3, 1, string(min(keys)) + string(max(keys)))
    payload += field(4, 1, u(1, blocks) + n(data_end, blocks, 0, blocks)) + field(5, 0, u(1, 0) + n(4096))
    facts = {"entries": len(entries), "tombstones": deletes, "keys": len(set(keys)),
             "key and value bytes": sum(sizes), "sequence numbers": f"{min(seqnos)}..={max(seqnos)}"}
    if entries:
        facts.update(smallest=min(keys).hex(), largest=max(keys).hex())
    if spans:
        sealed = seal(owner, len(out), 7, span_payload(spans))
        count = sum(len(s[2]) for s in spans)
        payload += field(8, 1, n(len(spans), count) + string(spans[0][0]) + string(spans[-1][1]) + n(len(out), len(sealed)))
        out += sealed
        facts["spans"] = f"count={len(spans)} start={spans[0][0].hex()} end={spans[-1][1].hex() or '-'}"
    properties = seal(owner, len(out), 4, payload)
    place = (len(out), len(properties))
    out += properties
    out += footer_bytes(owner, root, place, (0, 0), len(entries), len(out) + 128, 0, blocks)
    facts.update({"length": len(out), "footer checksum": out[-12:-8][::-1].hex()})
    for key, value in facts.items():
        assert f[key] == str(value), (key, value)
    return out


def lz4(data, raw):
    """Decompresses one LZ4 block."""
    c, out = Cursor(data), bytearray()

    def length(nibble):
        n = nibble
        if nibble == 15:
            while True:
                byte = c.u(1)
                n += byte
                if byte < 255:
                    break
        return n
    while True:
        token = c.u(1)
        out += c.take(length(token >> 4))
        if c.ended():
            break
        distance = c.u(2)
        assert 0 < distance <= len(out)
        for _ in range(length(token & 15) + 4):
            out.append(out[-distance])
    assert len(out) == raw
    return bytes(out)


def open_block(owner, data, offset, length=None):
    """(kind, payload, length with envelope) of the block at `offset`."""
    kind, compression, flags, stored, raw, found = struct.unpack_from("<BBHIIQ", data, offset)
    payload = data[offset + 20:offset + 20 + stored]
    assert flags == 0 or (flags == 1 and kind in (1, 2))
    assert len(payload) == stored and max(stored, raw) <= 4194304
    assert found == checksum(owner, offset, data[offset:offset + 12] + payload), "checksum"
    assert length in (None, 20 + stored)
    assert compression in (0, 1) and (compression or stored == raw)
    payload = lz4(payload, raw) if compression else payload
    assert kind not in (1, 2) or flags == (payload[-1] != 0)
    return kind, payload, 20 + stored


def compressed_block(f, want):
    kind, payload, length = open_block(unhex(f["file id"]), bytes(int(f["offset"])) + want, int(f["offset"]))
    byte, count = f["payload"].split(" * ")
    assert kind == int(f["kind"]) and length == len(want) and payload == unhex(byte) * int(count)
    return want


# --- filter block ---

GOLDEN = 0x9E3779B97F4A7C15


def remix(x):
    return (x ^ x >> 32) * 0xD6E8FEB86659FD93 & MASK


def table_hash(key, seed, salt):
    product = (xxhash.xxh3_64_intdigest(key, seed=seed) ^ salt) * GOLDEN
    return product >> 64 ^ product & MASK


def positions(kind, h, size, probes):
    if kind == 1:
        x, y, z = h, remix(h) | 1, GOLDEN
        for _ in range(probes):
            yield x * size >> 64
            x, y, z = x + y & MASK, y + z & MASK, z + GOLDEN & MASK
    else:
        line, product = h * size >> 64, h & 0xFFFFFFFF
        for _ in range(probes):
            product = product * 0x9E3779B9 & 0xFFFFFFFF
            yield 512 * line + (product >> 23)


def thresholds(kind):
    text = DOCUMENT.read_text().split("as many probes as 1 +")[1]
    rows = re.search(rf"kind {kind}((?:\s+\d+)+)\s*(?:kind|```)", text)
    return [int(number) for number in rows[1].split()]


def rate(kind, bits, size, probes):
    def power(a, b):
        share = min(MASK, (a << 64) // b)
        out = share
        for _ in range(probes - 1):
            out = out * share >> 64
        return out
    ones = lambda data: sum(bin(byte).count("1") for byte in data)
    if kind == 1:
        return power(ones(bits), size)
    return sum(power(ones(bits[at:at + 64]), 512) for at in range(0, len(bits), 64)) // size


def up(n, to):
    return (n + to - 1) // to * to


SPREAD = 0x6A09E667F3BCC909
BUMPED_BELOW = [128, 40, 16, 0]


def mark_of(product):
    return (product >> 64 ^ product) & 0xFFFFFFFF


def narrow(h, starts):
    """Start, coefficients and mark in a bumped layer."""
    product = h * SPREAD
    return h * starts >> 64, product & MASK | 1, mark_of(product)


def wide(h, attempt, size):
    """The same in the last layer."""
    p = (h ^ GOLDEN * (attempt + 1) & MASK) * GOLDEN
    g = remix(p >> 64 ^ p & MASK)
    start = min(max((g * (size - 1) >> 64) - 63, 0), size - 128)
    product = g * SPREAD
    return start, product & MASK | 1 | remix(product & MASK) << 64, mark_of(product)


def add_row(band, slot, coefficients, mark):
    """The slot that the row came to stand in, -1 if it follows from others, None if it contradicts them."""
    while slot in band:
        there = band[slot]
        coefficients, mark = coefficients ^ there[0], mark ^ there[1]
        if not coefficients:
            return None if mark else -1
        zeros = (coefficients & -coefficients).bit_length() - 1
        coefficients, slot = coefficients >> zeros, slot + zeros
    band[slot] = (coefficients, mark)
    return slot


def solve(band, slots):
    """The solution bits of each slot, all columns in one number."""
    out = [0] * slots
    for slot in sorted(band, reverse=True):
        coefficients, value = band[slot]
        coefficients ^= 1
        while coefficients:
            low = coefficients & -coefficients
            value ^= out[slot + low.bit_length() - 1]
            coefficients ^= low
        out[slot] = value
    return out


def bumped_layer(hashes, mask):
    """(buckets, thresholds, solution, the hashes that were bumped)."""
    s = len(hashes) * 980 // 1024
    buckets = max(1, (s - 64 * -(-s // 65600) + 64) // 128)
    parts = [[[], [], []] for _ in range(buckets)]
    for h in hashes:
        start = narrow(h, 128 * buckets)[0]
        parts[start >> 7][(start & 127 < 40) + (start & 127 < 16)].append(h)
    band, thresholds, bumped = {}, [], []
    for bucket in parts:
        threshold = 3
        for number, part in enumerate(bucket):
            added = []
            for h in part if threshold == 3 else []:
                start, coefficients, mark = narrow(h, 128 * buckets)
                added.append(add_row(band, start + 64 * (start >> 16), coefficients, mark & mask))
                if added[-1] is None:
                    threshold = number
                    for slot in added[:-1]:
                        band.pop(slot, None)
                    break
            if threshold < 3:
                bumped += map(remix, part)
        thresholds.append(threshold)
    return buckets, thresholds, solve(band, 64 * (2 * buckets + up(buckets, 512) // 512)), bumped


def last_layer(hashes, mask):
    """(attempt, solution)."""
    n = len(hashes)
    for attempt in range(256):
        size = max(128, n + n // 1024 * (5 + (n // 1024).bit_length()) + n % 1024 // 256 + 1
                   + attempt // 16 * (n // 256 + 1))
        band = {}
        rows = (wide(h, attempt, size) for h in hashes)
        if all(add_row(band, start, coefficients, mark & mask) is not None for start, coefficients, mark in rows):
            return attempt, solve(band, size)
    raise AssertionError("no attempt succeeds")


class Ribbon:
    """A ribbon filter of these table hashes, with the columns that its writer chose."""

    def __init__(self, hashes, groups, plain):
        self.columns, self.plain = sum(groups), plain
        mask = (2 << self.columns) - 1
        self.buckets, self.thresholds, self.solution = [], [], []
        while len(hashes) > 6000 and len(self.buckets) < 4:
            buckets, thresholds, solution, hashes = bumped_layer(hashes, mask)
            self.buckets.append(buckets)
            self.thresholds += thresholds
            self.solution += solution
        self.first = len(self.solution)
        self.attempt, last = last_layer(hashes, mask)
        self.size = len(last)
        self.solution += last
        groups = [columns for columns in groups if columns] or [0]
        packed = bytearray(up(len(self.thresholds), 4) // 4)
        for i, threshold in enumerate(self.thresholds):
            packed[i // 4] |= threshold << 2 * (i % 4)
        below = [sum(groups[:i]) for i in range(len(groups))]
        self.sections = [bytes(packed)] + [
            self.group(low, columns, low == below[-1]) for low, columns in zip(below, groups)]

    def group(self, low, columns, is_last):
        out = b""
        for block in range(up(len(self.solution), 64) // 64):
            slots = self.solution[64 * block:64 * block + 64]
            bits = "".join("01"[slot >> column & 1] for column in
                           range(low, low + columns + (is_last and block >= self.plain)) for slot in slots)
            out += u(up(len(bits), 8) // 8, int(bits[::-1] or "0", 2))
        return out

    def layers(self):
        """(first slot, first bucket, starts) of the bumped layers."""
        slot = bucket = 0
        for buckets in self.buckets:
            yield slot, bucket, 128 * buckets
            slot, bucket = slot + 64 * (2 * buckets + up(buckets, 512) // 512), bucket + buckets

    def rate(self):
        def step(a, b, z, before):
            return min(MASK, ((2 * a + b) * 2 ** (63 - self.columns) + z * before) // (a + b + z))
        counts = [0, 0]
        for start in range(self.size - 127):
            times = 1 + 63 * (start == 0) + 63 * (start == self.size - 128)
            counts[(self.first + start) // 64 >= self.plain] += times
        out = step(*counts, 0, 0)
        for slot, bucket, starts in reversed(list(self.layers())):
            counts = [0, 0, 0]
            for start in range(starts):
                kept = start & 127 >= BUMPED_BELOW[self.thresholds[bucket + (start >> 7)]]
                counts[(slot + start + 64 * (start >> 16)) // 64 >= self.plain if kept else 2] += 1
            out = step(*counts, out)
        return out

    def may_contain(self, h):
        for slot, bucket, starts in self.layers():
            start, coefficients, mark = narrow(h, starts)
            if start & 127 >= BUMPED_BELOW[self.thresholds[bucket + (start >> 7)]]:
                slot += start + 64 * (start >> 16)
                break
            h = remix(h)
        else:
            start, coefficients, mark = wide(h, self.attempt, self.size)
            slot = self.first + start
        columns = self.columns + (slot // 64 >= self.plain)
        for i in range(coefficients.bit_length()):
            if coefficients >> i & 1:
                mark ^= self.solution[slot + i]
        return mark & (1 << columns) - 1 == 0


def filter_block(kind, bits_per_key, seed, salt, owner, keys):
    n = len(keys)
    size = probes = the_rate = 0
    bits = b""
    if n:
        wanted = max(1, int(n * bits_per_key + 0.5))
        size = max(64, up(wanted, 64)) if kind == 1 else max(1, up(wanted, 512) // 512)
        probes = 1 + sum(t < int(1000 * bits_per_key) for t in thresholds(kind))
        array = bytearray(size // 8 if kind == 1 else size * 64)
        for key in keys:
            for bit in positions(kind, table_hash(key, seed, salt), size, probes):
                array[bit // 8] |= 1 << bit % 8
        bits = bytes(array)
        the_rate = rate(kind, bits, size, probes)
    return assemble(kind, seed, salt, owner, n, the_rate, size, u(1, probes), [bits] if n else [], 0)


def ribbon_block(groups, plain, seed, salt, owner, keys):
    """The block, and the filter that it is of."""
    first, tries = salt, 16 if 6000 < len(keys) <= 65536 else 0
    for tried in [*range(tries), 0]:
        salt = (first + tried * GOLDEN) & MASK
        ribbon = Ribbon([table_hash(key, seed, salt) for key in keys], groups, plain)
        if len(ribbon.solution) <= len(keys) + len(keys) // 128:
            break
    parameters = bytes([0, *groups]) + u(2, ribbon.attempt) + u(2, 0)
    parameters += b"".join(u(8, buckets) for buckets in ribbon.buckets)
    sections = ribbon.sections
    return assemble(3, seed, salt, owner, len(keys), ribbon.rate(), ribbon.size, parameters, sections, plain), ribbon


def assemble(kind, seed, salt, owner, n, the_rate, size, parameters, sections, plain):
    paged = [[bits[at:at + 4096] for at in range(0, len(bits), 4096)] for bits in sections]
    end, sums_at, sums, body, entries = 256 + 4 * sum(map(len, paged)), 256, b"", b"", b""
    body_at = end
    for bits, pages in zip(sections, paged):
        start = up(end, 4096 if len(bits) >= 1 << 20 else 64)
        own = b"".join(u(4, crc(owner, start + 4096 * i, page)) for i, page in enumerate(pages))
        entries += u(8, start) + u(8, len(bits)) + u(4, crc(owner, sums_at, own)) + u(4, 0)
        sums, sums_at = sums + own, sums_at + len(own)
        body += bytes(start - end) + bits
        end = start + len(bits)
    assert sums_at == body_at
    body = sums + body + bytes(-end % 64)
    tail = owner + u(8, 256 + len(body)) + bytes([kind, 0, 1, len(sections)]) + u(4, 0) + u(8, seed) + u(8, salt)
    tail += u(8, n) + u(8, the_rate) + u(8, size) + parameters + bytes(40 - len(parameters)) + entries
    tail += bytes(248 - 16 - len(tail)) + u(8, plain)
    head = bytes.fromhex("895356464c540d0a") + u(2, 1) + u(2, 256)
    return head + u(4, crc(owner, 0, head + tail)) + tail + body


def filter_vector(f, want):
    quoted = lambda name: [key.encode() for key in re.findall(r'"([^"]*)"', f.get(name, ""))]
    hexed = lambda name: int(f[name], 16)
    seed, salt, kind, keys = hexed("seed"), hexed("salt"), int(f["kind"]), quoted("keys")
    keys = [u(8, key) for key in range(int(f.get("numbered_keys", 0)))] or keys
    if kind == 3:
        # The columns are the writer's choice, and no reader depends on it.
        groups, plain = list(want[89:92]), int.from_bytes(want[248:256], "little")
        assert sum(column > 0 for column in groups) == int(f["column_groups"])
        out, ribbon = ribbon_block(groups, plain, seed, salt, unhex(f["owner"]), keys)
        may_contain = lambda key: ribbon.may_contain(table_hash(key, seed, salt))
    else:
        out = filter_block(kind, float(f["bits_per_key"]), seed, salt, unhex(f["owner"]), keys)
        may_contain = lambda key: all(
            bits[b // 8] >> b % 8 & 1 for b in positions(kind, table_hash(key, seed, salt), size, probes))
    size, probes = int.from_bytes(out[80:88], "little"), out[88]
    assert (str(size), str(probes)) == (f["size"], f["probes"])
    assert int.from_bytes(out[72:80], "little") == hexed("rate")
    if keys:
        assert xxhash.xxh3_64_intdigest(keys[0], seed=seed) == hexed("first_key_hash")
        assert table_hash(keys[0], seed, salt) == hexed("first_table_hash")
        bits = out[int.from_bytes(out[128:136], "little"):]
        assert all(map(may_contain, keys[:1000])) and not any(map(may_contain, quoted("absent")))
    return out[:256] if "numbered_keys" in f else out


def filter_file(f, known):
    block = filter_vector(dict(known[f["filter block"]]), None)
    out = header(5, unhex(f["store id"]), unhex(f["file id"])) + bytes(4032) + block
    assert len(out) == int(f["length"])
    return out


# --- a whole store ---

def apply_edits(data, store, file):
    """The state that a manifest describes: hash seed, logs, keyspaces {id: (name, options, flushed, tables)}."""
    seed, logs, spaces, mark, known = None, {}, {}, None, 0
    for kind, _, payload in records(data, 3, store, file):
        c = Cursor(payload)
        count, digest = c.u(8), c.u(8)
        fields = c.rest()
        for index, (number, critical, p) in enumerate(Cursor(fields).fields()):
            assert kind == 4 and critical == (number != 15) and 1 <= number <= 17 and number != 16 and (number == 1) == (mark is None and index == 0)
            if number == 1:
                mark = (p.u(8), p.u(8))
            elif number == 2:
                seed = p.u(8)
            elif number in (3, 4, 5, 8):
                value = p.varint()
                if number == 4:
                    known = max(known, value)
                if number == 8:
                    logs = {log: state for log, state in logs.items() if log >= value}
            elif number == 6:
                log = p.varint()
                logs[log] = [p.take(16), p.varint(), None]
            elif number == 7:
                log = logs[p.varint()]
                log[2] = (p.varint(), p.varint())
            elif number == 17:
                log = logs[p.varint()]
                assert log[2] is None
                log[2] = (p.varint(), p.varint(), "cut")
            elif number == 9:
                space = p.varint()
                spaces[space] = [p.string().decode(), p.rest(), 0, {}]
                known = max(known, space + 1)
            elif number == 10:
                del spaces[p.varint()]
            elif number == 11:
                space = spaces[p.varint()]
                space[1] = p.rest()
            elif number == 12:
                space = spaces[p.varint()]
                space[2] = max(space[2], p.varint())
            elif number == 13:
                tables, level, run = spaces[p.varint()][3], p.u(1), p.varint()
                record = read_table_record(p.rest())
                assert record["number"] not in tables and level < 7
                tables[record["number"]] = (level, run, record)
            elif number == 14:
                del spaces[p.varint()][3][p.varint()]
            else:
                record = spaces[p.varint()][3][p.varint()][2]
                record["filters"] = read_table_record(p.rest())["filters"]
            assert p.ended()
        assert edit(count, mark[1], fields)[1] == digest and count == mark[0] + 1
        mark = (count, digest)
    return seed, logs, spaces, mark, known


def read_table_record(data):
    out = {"filters": []}
    for number, critical, p in Cursor(data).fields():
        if number == 1:
            out.update(number=p.u(8), file=p.take(16), length=p.u(8), footer=p.u(4))
        elif number == 2:
            out["counts"] = [p.varint() for _ in range(4)]
        elif number == 3:
            out["seqnos"] = (p.varint(), p.varint())
        elif number == 4:
            out.update(cut=p.u(1), bounds=(p.string(), p.string()))
        elif number == 5:
            out["filters"].append((p.varint(), p.u(1), p.u(1), p.varint(), p.varint(), p.u(4)))
        else:
            assert not critical
            p.rest()
        assert p.ended()
    return out


def block_entries(payload, interval):
    n, hashed = int.from_bytes(payload[-4:-1], "little"), payload[-1]
    end = len(payload) - 4 - 4 * n
    restarts = [int.from_bytes(payload[end + 4 * i:end + 4 * i + 4], "little") for i in range(n)]
    hashes = payload[end - n * hashed:end]
    c, key, out, since = Cursor(payload[:end - n * hashed]), b"", [], 0
    assert n >= 1 and restarts[0] == 0
    while not c.ended():
        at = c.at
        shared, unshared, tag, code = (c.varint() for _ in range(4))
        since = 0 if at in restarts else since + 1
        assert (shared == 0 or since) and since < interval and shared <= len(key)
        assert not hashed or (since == 0) == (len(out) % hashed == 0)
        key = key[:shared] + c.take(unshared)
        out.append((key, tag, c.take(code >> 1), code & 1))
    order = [(key, -tag) for key, tag, _, _ in out]
    assert order == sorted(set(order)) and out
    if hashed:
        made = bytes(xxhash.xxh3_64_intdigest(key) & 255 for key, _, _, _ in out)
        assert hashes == made.ljust(n * hashed, b"\0") and hashed <= 16
    return out


def read_table(data, store, record, seed, policy):
    """All entries of a table, of which every byte is accounted for; its filter is built again and compared."""
    owner, length = record["file"], len(data)
    assert length == record["length"] and data[:64] == header(1, store, owner)
    f = Cursor(data[-128:])
    root, properties, first_filter = ((f.u(8), f.u(8)) for _ in range(3))
    entry_count, stated, filters, depth = f.u(8), f.u(8), f.u(4), f.u(1)
    assert data[-128:] == footer_bytes(owner, root, properties, first_filter, entry_count, stated, filters, depth)
    assert stated == length and int.from_bytes(data[-12:-8], "little") == record["footer"]

    kind, payload, _ = open_block(owner, data, *properties)
    assert kind == 4
    known = {}
    for number, critical, p in Cursor(payload).fields():
        known.setdefault(number, []).append(p)
    counts = [known[1][0].varint() for _ in range(5)]
    low, high = known[3][0].string(), known[3][0].string()
    assert known[4][0].u(1) == depth
    data_end, data_blocks, chunk_blocks, index_blocks = (known[4][0].varint() for _ in range(4))

    # Walked from the front, without the index.
    at, kinds, filter_at = 64, {}, {reference[3]: reference for reference in record["filters"]}
    while at < length - 128:
        if at in filter_at:
            at += filter_at[at][4]
            continue
        kind, payload, n = open_block(owner, data, at)
        assert kind != 5 or not any(payload)
        kinds.setdefault(kind, []).append(at)
        at += n
    assert at == length - 128 and [len(kinds.get(kind, [])) for kind in (1, 3, 2)] == [data_blocks, chunk_blocks, index_blocks]
    assert all((block < data_end) == (kind in (1, 3)) for kind, blocks in kinds.items() for block in blocks)

    # Through the index.
    def walk(place, level):
        kind, payload, _ = open_block(owner, data, *place)
        assert kind == (2 if level else 1)
        found = []
        for key, tag, value, chunks in block_entries(payload, 16):
            if not level:
                if chunks:
                    c, value = Cursor(value), b""
                    total, offset, count = c.varint(), c.varint(), c.varint()
                    for _ in range(count):
                        kind, part, n = open_block(owner, data, offset)
                        assert kind == 3 and len(part) == min(1048576, total - len(value))
                        value, offset = value + part, offset + n
                    assert c.ended() and len(value) == total > 32768
                found.append((key, tag, value))
                continue
            assert not chunks
            c = Cursor(value)
            below = walk((c.varint(), c.varint()), level - 1)
            assert c.ended() and (not found or before < (below[0][0], -below[0][1]))
            before = (key, -tag)
            assert (below[-1][0], -below[-1][1]) <= before
            found += below
        return found
    found = walk(root, depth)

    order = [(key, -tag) for key, tag, _ in found]
    keys = sorted({key for key, _, _ in found})
    assert order == sorted(set(order)) and len(found) == entry_count == counts[0] == record["counts"][0]
    assert counts[1:] == [sum(tag % 256 == 0 for _, tag, _ in found), len(keys), sum(len(e[0]) for e in found),
                          sum(len(e[2]) for e in found)]
    assert record["counts"][1:] == counts[1:3] + [counts[3] + counts[4]]
    assert (low, high) == (keys[0], keys[-1]) and record["bounds"] == (low[:1024], high[:1024])
    assert record["cut"] == (len(high) > 1024 or len(low) > 1024)
    assert record["seqnos"] == (min(tag >> 8 for _, tag, _ in found), max(tag >> 8 for _, tag, _ in found))

    (file, kind, domain, offset, n, head), = record["filters"]
    assert (file, domain) == (0, 0) and (offset, n) == first_filter and policy[:2] == bytes([kind, 0])
    bits, = struct.unpack("<d", policy[3:])
    block = filter_block(kind, bits, seed, int.from_bytes(owner[:8], "little"), owner, keys)
    assert data[offset:offset + n] == block and block[12:16] == u(4, head)
    return found


def read_store(directory):
    """{name: {key: value}} of a store that was closed."""
    read = lambda name: (directory / name).read_bytes()
    c = Cursor(read("CURRENT"))
    c.take(16)
    store, own = c.take(16), c.take(16)
    assert c.take(16) and c.data[:64] == header(4, store, own)
    number, manifest_id = c.u(8), c.take(16)
    assert c.u(4) == 0 and c.u(4) == crc(own, 64, c.data[64:92]) and c.ended()
    seed, logs, spaces, mark, known = apply_edits(read(f"MANIFEST-{number:06}"), store, manifest_id)
    entries = {space: [] for space in spaces}
    for space, (_, raw, _, tables) in spaces.items():
        policy = {number: p.rest() for number, _, p in Cursor(raw).fields()}[3]
        for level, run, record in tables.values():
            found = read_table(read(f"{record['number']:06}.sst"), store, record, seed, policy)
            entries[space] += [(key, -tag, value) for key, tag, value in found]
    for log, (file, predecessor, closed) in sorted(logs.items()):
        data, last = read(f"{log:06}.wal"), None
        for kind, _, payload in records(data, 2, store, file):
            c = Cursor(payload)
            if kind == 1:
                first = c.u(8)
                for index in range(c.u(4)):
                    entry_kind, space, key = c.u(1), c.varint(), c.string()
                    value = c.string() if entry_kind else b""
                    assert space < known
                    if space in spaces and first + index > spaces[space][2]:
                        entries[space].append((key, -(first + index) * 256 - entry_kind, value))
            else:
                last = c.u(8) if kind == 3 else None
                count, digest = c.u(8), c.u(8)
                assert count <= mark[0] and (count < mark[0] or digest == mark[1])
            assert c.ended()
        assert closed == (len(data), last)
    out = {}
    for space, found in entries.items():
        values = {}
        for key, tag, value in sorted(found):
            values.setdefault(key, (-tag % 256, value))
        out[spaces[space][0]] = {key: value for key, (kind, value) in values.items() if kind}
    return out


def store_contents():
    """What src/testing/format/store.rs wrote."""
    key = lambda i: b"k" * 200 + b"%05d" % i
    default = {key(i): bytes([i % 251]) * (i % 300) for i in range(1200)}
    default.update({key(i): b"new" for i in range(1200) if i % 11 == 5})
    for i in range(1200):
        if i % 7 == 3 or i == 0:
            del default[key(i)]
    default.update({b"long": b"0123456789" * 10000, b"z" * 2000: b"end", b"logged": b"default"})
    users = {b"user%03d" % i: b"%d" % (i * i) for i in range(200)}
    users[b"logged"] = b"users"
    return {"default": default, "users": users}


# --- the vectors ---

def vectors():
    for name, body in re.findall(r"```vector (\S+)\n(.*?)```", VECTORS.read_text(), re.S):
        facts, data = body.split("bytes:\n")
        yield name, [tuple(line.split(" = ", 1)) for line in facts.splitlines()], b"".join(map(row, data.splitlines()))


def row(line):
    byte, _, times = line.partition(" * ")
    return bytes.fromhex(byte) * int(times or 1)


def encode(name, facts, want, known):
    f = dict(facts)
    plain = {"file-header": file_header, "current": current, "promise": promise, "close": close,
             "keyspace-options": options, "keyspace-options-expiry": options, "footer": footer, "table-origin": origin}
    listed = {"contents": contents, "backup-index": backup_index, "varints": varints, "checksums": checksums, "log-small": log, "log-room": log, "batch": batch, "batch-range-delete": batch,
              "boundaries": boundaries, "manifest": manifest, "manifest-log-cut": manifest,
              "manifest-store-ids": manifest, "manifest-expiry": manifest, "table-record": table_record,
              "table-record-spans": table_record, "table-record-spans-only": table_record,
              "data-block": data_block, "data-block-hash-index": data_block, "span-block": span_block}
    if name in plain:
        return plain[name](f)
    if name in listed:
        return listed[name](f, facts)
    if name.startswith("log-fragment-"):
        return fragment(f)
    if name == "filter-file":
        return filter_file(f, known)
    if name.startswith("filter-"):
        return filter_vector(f, want)
    if name == "compressed-block":
        return compressed_block(f, want)
    if name == "table":
        return table(f, known["data-block"])
    if name == "table-hash-index":
        return table(f, known["data-block-hash-index"])
    if name == "table-spans":
        return table(f, known["data-block"], known["span-block"])
    if name == "table-spans-only":
        return table(f, [], known["span-block"])
    raise AssertionError("no encoder for this vector")


# --- backup repository ---

def restore(repository, to):
    """Copies the files of the newest complete backup to a directory."""
    found = {}
    for path in (repository / "backups").glob("*.index"):
        c = Cursor(path.read_bytes())
        c.take(16)
        store, backup = c.take(16), c.take(16)
        assert c.data[:64] == header(6, store, backup), "another header"
        c = Cursor(c.data, 64)
        body, end = c.data[64:-8], len(c.data) - 8
        assert int.from_bytes(c.data[end:], "little") == checksum(backup, 64, body), "another checksum"
        time, _, files = c.u(8), c.u(8), []
        for _ in range(c.u(4)):
            kind, name, _, _ = c.u(2), c.string().decode(), c.take(16), c.u(4)
            length, content = c.varint(), c.take(16)
            files.append((name, content, length, [c.u(4) for _ in range(-(-length // 1048576))]))
            assert 1 <= kind <= 5 and "/" not in name
        assert c.at == end
        found[time] = files
    for _, files in sorted(found.items(), reverse=True):
        names = [f"{content.hex()}-{length}" for _, content, length, _ in files]
        places = {path.name.split("-", unused)[-1]: path for unused, kind in enumerate(["files", "unused"])
                  for path in (repository / kind).glob("*")}
        if not all(name in places for name in names):
            continue
        for name, (target, content, length, parts) in zip(names, files):
            data = places[name].read_bytes()
            assert len(data) == length and xxhash.xxh3_128_digest(data) == content, f"{name} is damaged"
            assert parts == [zlib.crc32(data[at:at + 1048576]) for at in range(0, length, 1048576)]
            (to / target).write_bytes(data)
        return
    raise AssertionError("no complete backup")


def main():
    known, bad = {}, 0
    for name, facts, want in vectors():
        known[name] = facts
        try:
            made = encode(name, facts, want, known)
            assert made == want, "made:\n" + made.hex(" ")
            assert (HERE / "v1" / f"{name}.bin").read_bytes() == want, "not the golden file"
            print("right ", name)
        except (AssertionError, KeyError, OSError, ValueError) as error:
            bad += 1
            print("WRONG ", name, repr(error))
    whole = read_store(HERE / "v1/store") == store_contents()
    print("right " if whole else "WRONG ", "store")
    with tempfile.TemporaryDirectory() as folder:
        restore(HERE / "v1/repository", Path(folder))
        restored = read_store(Path(folder)) == store_contents()
    print("right " if restored else "WRONG ", "repository")
    sys.exit(bad > 0 or not whole or not restored)


if __name__ == "__main__":
    main()
