//! Absent keys: each key with a character of its last path component changed, checked against all keys.

use super::random::Random;
use super::source::Record;

const CHARACTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";

pub(super) fn absent_keys(records: &[Record], random: &mut Random) -> Vec<Vec<u8>> {
    records.iter().map(|record| neighbour(records, &record.key, random)).collect()
}

fn exists(records: &[Record], key: &[u8]) -> bool {
    records.binary_search_by(|record| (*record.key).cmp(key)).is_ok()
}

fn neighbour(records: &[Record], key: &[u8], random: &mut Random) -> Vec<u8> {
    let name = key.iter().rposition(|byte| b"/\\".contains(byte)).map_or(0, |separator| separator + 1);
    let changeable: Vec<usize> = (name..key.len()).filter(|&at| key[at].is_ascii_alphanumeric()).collect();
    let mut changed = key.to_vec();
    for _ in 0..16 {
        if changeable.is_empty() {
            break;
        }
        let at = changeable[random.below(changeable.len())];
        changed[at] = CHARACTERS[random.below(CHARACTERS.len())];
        if !exists(records, &changed) {
            return changed;
        }
        changed[at] = key[at];
    }
    while exists(records, &changed) {
        changed.push(CHARACTERS[random.below(CHARACTERS.len())]);
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(keys: &[&str]) -> Vec<Record> {
        let record = |key: &&str| Record { key: key.as_bytes().into(), value: Box::default() };
        let mut records: Vec<Record> = keys.iter().map(record).collect();
        records.sort_unstable();
        records
    }

    #[test]
    fn an_absent_key_differs_in_one_character_of_the_last_component() {
        let records = records(&["/usr/bin/env", "/usr/bin/eny", "/usr/lib/libz.so.1"]);
        for seed in 0..500 {
            let absent = absent_keys(&records, &mut Random(seed));
            for (record, absent) in records.iter().zip(absent) {
                assert!(!exists(&records, &absent));
                assert_eq!(absent.len(), record.key.len());
                let differing: Vec<usize> =
                    (0..absent.len()).filter(|&at| absent[at] != record.key[at]).collect();
                assert!(differing.len() == 1 && differing[0] >= 9, "{}", absent.escape_ascii());
            }
        }
    }

    #[test]
    fn a_key_with_nothing_to_change_or_no_free_neighbour_gets_longer() {
        let all: Vec<String> = CHARACTERS.iter().map(|&byte| char::from(byte).to_string()).collect();
        let mut keys: Vec<&str> = all.iter().map(String::as_str).collect();
        keys.extend(["", "---"]);
        let records = records(&keys);
        for absent in absent_keys(&records, &mut Random(1)) {
            assert!(!exists(&records, &absent));
        }
    }
}
