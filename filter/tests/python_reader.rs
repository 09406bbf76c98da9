//! Compares the Python reader (`readers/`) with this crate, for filters too large for golden files. Without `python3` the
//! test is skipped, unless `SIEVEDB_THOROUGH` is set.

use std::io::{BufRead, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use sievedb_filter::{Expect, Filter, FilterBuilder, Kind};

const SEED: u64 = 0x0123_4567_89ab_cdef;

fn key(number: u64) -> String {
    // The hash distinguishes lengths up to 16, 128, 240 and more.
    format!("{number}{}", "x".repeat((number % 7) as usize * (number % 61) as usize))
}

fn block(kind: Kind, bits_per_key: f64, keys: u64) -> Vec<u8> {
    let mut builder = FilterBuilder::new(kind, bits_per_key, SEED, keys, [7; 16]).unwrap();
    if kind == Kind::Ribbon {
        builder = builder.column_groups(keys as usize % 3 + 1);
    }
    (0..keys).for_each(|number| builder.add_key(key(number).as_bytes()));
    builder.finish().unwrap()
}

/// Output of the reader for these keys, one per line. `None` if Python is missing.
fn read_in_python(block: &[u8], keys: &[u8]) -> Option<Vec<u8>> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("block");
    std::fs::write(&path, block).unwrap();
    let reader = Path::new(env!("CARGO_MANIFEST_DIR")).join("readers/sieve_filter.py");
    let mut command = Command::new("python3");
    command.arg("-B").arg(reader).arg(path).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            assert!(std::env::var_os("SIEVEDB_THOROUGH").is_none(), "python3: {error}");
            eprintln!("python3 is not installed: skipped");
            return None;
        }
    };
    let mut input = child.stdin.take().unwrap();
    input.write_all(keys).unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    Some(output.stdout)
}

#[test]
fn the_reader_in_python_gives_the_same_answer_for_every_key() {
    let all_kinds = [Kind::Bloom, Kind::BlockedBloom, Kind::Ribbon];
    let small =
        all_kinds.into_iter().flat_map(|kind| [(kind, 10.0, 1), (kind, 7.5, 300), (kind, 12.0, 5_999)]);
    // A bumped layer, two of them and a shard's end, the additional column in every block and in none.
    let ribbons = [(6_500, 4.2), (70_000, 9.5), (20_000, 1.0), (20_000, 0.4)]
        .map(|(keys, bits)| (Kind::Ribbon, bits, keys));
    for (kind, bits, keys) in small.chain(ribbons).chain([(Kind::BlockedBloom, 16.0, 70_000)]) {
        let block = block(kind, bits, keys);
        let filter = Filter::open(&block, Expect::table([7; 16], SEED, keys)).unwrap();
        // Present keys, and as many absent ones.
        let probed = (0..200).flat_map(|number| [number * keys / 200, keys + number]);
        let (mut input, mut expected, mut absent) = (Vec::new(), Vec::new(), 0);
        for key in probed.map(key) {
            let may_contain = filter.may_contain_key(key.as_bytes());
            absent += u32::from(!may_contain);
            writeln!(input, "{key}").unwrap();
            writeln!(expected, "{} {key}", if may_contain { "maybe " } else { "absent" }).unwrap();
        }
        assert!(absent > 20, "{kind:?}: {absent} keys are absent");
        let Some(answers) = read_in_python(&block, &input) else { return };
        let lines = |text: &[u8]| text.lines().map(Result::unwrap).collect::<Vec<_>>();
        let (answers, expected) = (lines(&answers), lines(&expected));
        let differ = answers.iter().zip(&expected).find(|(answer, expected)| answer != expected);
        assert_eq!(differ, None, "{kind:?}, {bits} bits, {keys} keys");
        assert_eq!(answers.len(), 400);
    }
}

#[test]
fn the_reader_in_python_takes_lines_of_any_bytes() {
    let keys = [&b"a\x0b\x0cb"[..], b"\xff\xfe", "c\u{2028}d\u{85}".as_bytes(), b"", b"e\r", b" f"];
    let mut builder = FilterBuilder::new(Kind::Bloom, 20.0, SEED, keys.len() as u64, [7; 16]).unwrap();
    keys.iter().for_each(|key| builder.add_key(key));
    let block = builder.finish().unwrap();
    for end in [&b""[..], b"\n"] {
        let Some(answers) = read_in_python(&block, &[&keys.join(&b'\n')[..], end].concat()) else { return };
        let expected: Vec<u8> = keys.iter().flat_map(|key| [b"maybe  ", *key, b"\n"].concat()).collect();
        assert_eq!(answers, expected);
    }
}
