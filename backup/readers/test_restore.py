"""Tests of restore.py with the golden repository and the vectors of format-vectors.md."""
import hashlib, os, shutil, struct, subprocess, sys, tempfile, unittest, unittest.mock
from pathlib import Path

import restore

SCRIPT = Path(restore.__file__)
ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests/golden/v1"
SHA256 = {
    "000005.sst": "3d842ac9555b67cd1a576cf00040093229127a8ed2fb3e0c7c1af80259db8dde",
    "000006.wal": "9660fd36930bb8416ae31d73d8b0786207293d02e40394357b9c7c3be319d62f",
    "000007.sst": "5c5ade3cf1470402e315872f27de688b8047587bf455b0c8706fb76ea119bcf2",
    "000008.sst": "c71d132b709d9a488e98d8868ec80081116083b97723646772cd24dab32fd570",
    "CURRENT": "71afbf5e57dd1da94351588a4fcbe577d60f18b5f2d385e9fea60af6b4cfb4d3",
    "MANIFEST-000002": "817419c05f8136c66a2b871e671446ac1e57d45b024fde2d1a6e7cf9ba5e130b",
}


class Restore(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = Path(scratch.name)
        self.repo, self.dir = self.root / "repo", self.root / "dir"
        shutil.copytree(GOLDEN / "repository", self.repo)
        self.index, = (self.repo / "backups").glob("*.index")
        self.files = {name: self.repo / "files" / file[1] for name, file in restore.read_index(self.index)[1].items()}

    def run_script(self, *arguments):
        return subprocess.run([sys.executable, SCRIPT, self.repo, self.dir, *arguments], capture_output=True, text=True)

    def restored(self, *arguments):
        done = self.run_script(*arguments)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual({p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in self.dir.iterdir()}, SHA256)
        shutil.rmtree(self.dir)

    def refused(self, path, what, at=None):
        with self.assertRaises(ValueError) as error:
            restore.restore(self.repo, self.dir, at)
        self.assertIn(f"{path}: {what}", str(error.exception))
        self.assertEqual([p.name for p in self.root.iterdir()], ["repo"])

    def change(self, path, offset, bits=1):
        data = bytearray(path.read_bytes())
        data[offset] ^= bits
        path.write_bytes(data)

    def test_intact(self):
        self.restored()
        self.restored("--at", self.index.stem)

    def test_file_in_unused(self):
        (self.repo / "unused").mkdir()
        path = self.files["CURRENT"]
        path.rename(self.repo / "unused" / f"1700000000-{path.name}")
        self.restored()

    def test_damaged_file(self):
        for name, path in self.files.items():
            data = path.read_bytes()
            for offset in (0, len(data) // 2, len(data) - 1):
                self.change(path, offset)
                self.refused(path, f"offset 0: {name} is damaged: wrong CRC-32")
                path.write_bytes(data)
            path.write_bytes(data[:-1])
            self.refused(path, f"offset {len(data) - 1}: {name} has {len(data) - 1} bytes instead of {len(data)}")
            path.write_bytes(data + b"\0")
            self.refused(path, f"offset {len(data)}: {name} has {len(data) + 1} bytes instead of {len(data)}")
            path.write_bytes(data)
        self.restored()

    def test_missing_file(self):
        self.files["000006.wal"].unlink()
        self.refused(self.index, "000006.wal is missing")
        done = self.run_script()
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertTrue(done.stderr.startswith(f"restore.py: {self.index}: 000006.wal is missing"))

    def test_damaged_index(self):
        data = self.index.read_bytes()
        for offset in range(len(data)):  # Every byte of the index is covered by a checksum.
            self.index.write_bytes(data[:offset] + bytes([data[offset] ^ 1]) + data[offset + 1:])
            with self.assertRaisesRegex(ValueError, rf"offset {0 if offset < 8 else 60 if offset < 64 else 64}:"):
                restore.read_index(self.index)
        for length in (0, 63, 91, 92, len(data) - 1):
            self.index.write_bytes(data[:length])
            self.refused(self.index, f"offset {0 if length < 92 else 64}: ")

    def test_wrong_index_with_right_checksums(self):
        data = self.index.read_bytes()
        for offset, value, what in ((10, 2, "offset 8: not a backup index"), (80, 7, "offset "), (80, 5, "offset "),
                                    (84, 9, "offset 84: '000005.sst' of kind 9"), (87, ord("/"), "offset 84: '/00005")):
            changed = bytearray(data)
            changed[offset] = value
            changed[60:64] = struct.pack("<I", restore.checksum(data[32:48], 0, bytes(changed[:60])))
            changed[-8:] = struct.pack("<Q", restore.checksum(data[32:48], 64, bytes(changed[64:-8])))
            self.index.write_bytes(changed)
            self.refused(self.index, what)

    def copy_of_index(self, id, time, store=None):
        """Adds a backup of the same files."""
        data = bytearray(self.index.read_bytes())
        data[16:32], data[64:72] = store or data[16:32], struct.pack("<Q", time)
        data[60:64] = struct.pack("<I", restore.checksum(data[32:48], 0, bytes(data[:60])))
        data[-8:] = struct.pack("<Q", restore.checksum(data[32:48], 64, bytes(data[64:-8])))
        path = self.index.with_name(id + ".index")
        path.write_bytes(data)
        return path

    def test_damaged_and_foreign_indexes_are_passed_over(self):
        newer = self.copy_of_index("20990101T000000.000Z-x", 1 << 42)
        self.change(newer, 70)
        for name in (f"._{newer.name}", f"{self.index.stem} (1).index", f"{self.index.stem} 2.index"):
            (newer.parent / name).write_bytes(b"other")
        done = self.run_script()
        self.assertEqual(done.returncode, 0)
        self.assertTrue(done.stderr.startswith(f"restore.py: note: passed over: {newer}: offset 64: "), done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1)
        shutil.rmtree(self.dir)
        self.refused(newer, "offset 64: ", newer.stem)

    def test_marked_file_makes_a_backup_incomplete(self):
        only = self.files["000006.wal"]
        only.with_name(only.name + ".damaged").touch()
        self.restored()  # No other is complete, and the file is intact.
        self.change(only, 70)
        self.refused(only, "offset 0: 000006.wal is damaged")

    def test_newer_incomplete_backup_is_passed_over(self):
        newer = self.copy_of_index("20990101T000000.000Z-x", 1 << 42)
        content = self.files["000006.wal"].name.encode()
        checksum = bytes.fromhex(content.decode().split("-")[0])
        data = newer.read_bytes().replace(checksum, b"\1" * 16)
        newer.write_bytes(data[:-8] + struct.pack("<Q", restore.checksum(data[32:48], 64, data[64:-8])))
        done = self.run_script()
        self.assertEqual((done.returncode, done.stderr), (0, f"restore.py: note: passed over: {newer}: incomplete\n"))

    def test_several_stores(self):
        other = self.copy_of_index("20990101T000000.000Z-x", 1 << 42, b"s" * 16)
        self.copy_of_index("20980101T000000.000Z-x", 1 << 41, b"s" * 16)
        self.refused(self.repo, f"backups of several stores; choose one with --at, such as the newest: "
                                f"{self.index.stem}, {other.stem}")
        self.restored("--at", self.index.stem)

    def test_file_that_is_moved_meanwhile(self):
        path, looks = self.files["CURRENT"], []
        unused = self.repo / "unused" / f"1700000000-{path.name}"
        unused.parent.mkdir()
        path.rename(unused)

        def moved_after(directory, pattern, listing=restore.listing):
            found = listing(directory, pattern)
            if path.name in found and pattern != "[0-9]+-(.+)":
                looks.append(directory.name)
                if directory.name == "unused":
                    unused.rename(path)
            return found

        with unittest.mock.patch("restore.listing", moved_after):
            restore.restore(self.repo, self.dir, None)
        self.assertEqual(looks, ["unused", "files"])

    def test_directory_exists_and_unknown_backup(self):
        self.refused(self.repo / "backups", "no backup other", "other")
        self.dir.mkdir()
        done = self.run_script()
        self.assertEqual((done.returncode, list(self.dir.iterdir())), (1, []))
        self.assertIn(f"{self.dir}: exists", done.stderr)

    def test_vectors(self):
        lengths = [17, 64, 96, 130, 200, 241, 1024, 1025, 20000]
        contents = [restore.xxh3_128(bytes(i % 251 for i in range(n))).to_bytes(16, "big") for n in lengths]
        self.assertEqual(b"".join(contents), (GOLDEN / "contents.bin").read_bytes())
        owner, vector = bytes(range(16, 32)), (GOLDEN / "checksums.bin").read_bytes()
        sums = [restore.checksum(owner, 4096, b"x" * n) for n in (0, 16384, 16385)]
        self.assertEqual(struct.pack("<3Q", *sums), vector)
        index = self.root / "vector"
        shutil.copy(GOLDEN / "backup-index.bin", index)
        time, files, store = restore.read_index(index)
        self.assertEqual((time, len(files), store), (1795678105123, 5, index.read_bytes()[16:32]))
        self.assertEqual(files["000002.sst"], (2500000, "11" * 16 + "-2500000", [0x1000, 0x1001, 0x1002]))


if __name__ == "__main__":
    unittest.main()
