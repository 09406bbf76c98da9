#!/usr/bin/env python3
"""Tests of the reader against the golden filters and the vectors of format-vectors.md."""

import re
import unittest
import zlib
from pathlib import Path

import sieve_filter
import xxh3
from sieve_filter import Corrupt, Filter, Unsupported, read

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests/golden/v1"
VECTORS = (ROOT / "format-vectors.md").read_text()
WHOLE = ["filter-bloom", "filter-blocked", "filter-blocked-many-probes", "filter-empty", "filter-ribbon", "filter-file"]


def golden(name):
    return (GOLDEN / f"{name}.bin").read_bytes()


def fact(vector, name):
    facts = re.search(rf"```vector {vector}\n(.*?)bytes:", VECTORS, re.S)[1]
    found = re.search(rf"^{name} = (.*)$", facts, re.M)
    return found[1] if found else ""


def keys(vector, name):
    return [key.encode() for key in re.findall(r'"(.*?)"', fact(vector, name))]


def sealed(block, at, value):
    """The block with changed header bytes and a correct checksum."""
    block = block[:at] + value + block[at + len(value):]
    length = int.from_bytes(block[10:12], "little")
    checksum = zlib.crc32(block[16:32] + bytes(8) + block[:12] + block[16:length])
    return block[:12] + checksum.to_bytes(4, "little") + block[16:]


class GoldenFilters(unittest.TestCase):
    def test_keys_may_be_there_and_the_absent_ones_are_absent(self):
        for name in WHOLE:
            vector = fact(name, "filter block") or name
            found, absent = read(golden(name)), keys(vector, "absent")
            self.assertEqual(found.keys, len(keys(vector, "keys")), name)
            self.assertTrue(all(map(found.may_contain, keys(vector, "keys"))), name)
            self.assertEqual(len(absent), 3)
            self.assertEqual([found.may_contain(key) for key in absent], [found.keys == 0] * 3, name)

    def test_hashes_are_those_of_the_vectors(self):
        for name in WHOLE[:3] + ["filter-ribbon"]:
            seed, expected = int(fact(name, "seed"), 16), int(fact(name, "first_key_hash"), 16)
            self.assertEqual(xxh3.xxh3_64_intdigest(keys(name, "keys")[0], seed), expected)

    def test_a_filter_without_keys_says_absent_only_of_a_table_without_keys(self):
        self.assertTrue(Filter(golden("filter-empty")).may_contain(b"grape"))
        self.assertFalse(Filter(golden("filter-empty"), keys=0).may_contain(b"grape"))

    def test_filters_of_other_tables_are_refused(self):
        owner = bytes(range(16))
        Filter(golden("filter-bloom"), owner=owner, seed=0x0123456789ABCDEF, keys=6)
        for expected in [{"owner": owner[::-1]}, {"seed": 1}, {"keys": 7}, {"keys": 0}]:
            with self.assertRaises(ValueError):
                Filter(golden("filter-bloom"), **expected)

    def test_the_filters_in_the_golden_store_are_read(self):
        filters = 0
        for table in (GOLDEN / "store").glob("*.sst"):
            data = table.read_bytes()
            for at in range(4096, len(data), 4096):
                if data[at:at + 8] == b"\x89SVFLT\r\n":
                    length = int.from_bytes(data[at + 32:at + 40], "little")
                    self.assertEqual(Filter(data[at:at + length]).owner, data[32:48])
                    filters += 1
        self.assertGreaterEqual(filters, 3)


class DamagedFilters(unittest.TestCase):
    def test_every_flipped_bit_is_noticed(self):
        for name in WHOLE:
            data = golden(name)
            for at in range(len(data)):
                damaged = data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1:]
                with self.assertRaises(Corrupt, msg=f"{name}, byte {at}"):
                    read(damaged)

    def test_every_other_length_is_noticed(self):
        for name in WHOLE + ["filter-ribbon-layers"]:
            data = golden(name)
            for length in range(0, len(data), 7):
                with self.assertRaises(Corrupt, msg=f"{name}, {length} bytes"):
                    read(data[:length])
            with self.assertRaises(Corrupt):
                read(data + bytes(64))

    def test_what_is_newer_is_unsupported_and_not_corrupt(self):
        for at in [8, 40, 41, 42, 44]:  # version, kind, domain, hash id, required flags
            with self.assertRaises(Unsupported, msg=f"byte {at}"):
                Filter(sealed(golden("filter-bloom"), at, b"\x09"))
        Filter(sealed(golden("filter-bloom"), 46, b"\x09"))  # an optional flag

    def test_parameters_that_contradict_the_format_are_corrupt(self):
        bad = [(43, b"\x02"), (80, b"\x81"), (88, b"\0"), (88, b"\x1f"), (89, b"\1"), (94, b"\1"), (128, b"\x41"), (148, b"\1")]
        for at, value in bad + [(72, b"\1"), (80, b"\1")]:
            block = golden("filter-bloom" if (at, value) in bad else "filter-empty")
            with self.assertRaises(Corrupt, msg=f"byte {at}"):
                Filter(sealed(block, at, value))


class Hashes(unittest.TestCase):
    def test_xxh3_is_that_of_the_package_for_all_its_cases(self):
        digest = 0
        for length in [*range(520), 1023, 1024, 1025, 1088, 2048, 2049, 65536]:
            data = bytes(at * at + length & 0xFF for at in range(length))
            for seed in (0, 0x0123456789ABCDEF, sieve_filter.M64):
                digest = (digest * 31 + xxh3.xxh3_64_intdigest(data, seed)) & sieve_filter.M64
        self.assertEqual(digest, 0x4FF2F7705C7C4AFC)  # made with the package `xxhash` 4.1.0


if __name__ == "__main__":
    unittest.main()
