//! Keys and values, computed from numbers. Present keys have numbers below 2^31, absent keys the others, so both have the same
//! shape and are interleaved.

use byteorder::{BigEndian, ByteOrder, LittleEndian};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::random::{below, mix, mix32};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum KeySet {
    /// 16 bytes in random order.
    Hashed,
    /// 16 bytes that ascend with the number.
    Ascending,
    /// File paths of about 60 bytes, about 40 per directory.
    Paths,
    /// URLs of about 60 bytes, about 100 per host.
    Urls,
    /// Version 7 UUIDs, which ascend with the number, to within 64.
    Uuids,
    /// One of 1,000 tenants and a version 7 UUID; a tenant's keys ascend with the number, to within 64.
    Tenants,
}

pub(crate) const ABSENT: u32 = 1 << 31;

const WORDS: [&str; 32] = [
    "share", "locale", "python", "include", "linux", "module", "render", "config", "network", "driver",
    "image", "theme", "sound", "kernel", "object", "parser", "client", "server", "report", "backup",
    "library", "message", "archive", "example", "console", "monitor", "session", "storage", "texture",
    "version", "address", "buffer",
];
const ENDINGS: [&str; 8] = [".h", ".py", ".so", ".txt", ".html", ".json", ".png", ".md"];

fn word(bits: u64, place: u32) -> &'static [u8] {
    WORDS[(bits >> (place * 5) & 31) as usize].as_bytes()
}

fn digits(number: u32) -> [u8; 8] {
    std::array::from_fn(|place| b"0123456789abcdef"[(number >> (28 - 4 * place) & 15) as usize])
}

fn decimals(number: u32) -> [u8; 4] {
    [1000, 100, 10, 1].map(|unit| b'0' + (number / unit % 10) as u8)
}

fn write_uuid(number: u32, key: &mut Vec<u8>) {
    let random = mix(8, number.into());
    let time = 0x0193_6f00_0000 + u64::from((number & !ABSENT) / 64);
    let mut uuid = [0; 16];
    BigEndian::write_u64(&mut uuid[..8], time << 16 | 0x7000 | random & 0xfff);
    BigEndian::write_u64(&mut uuid[8..], 1 << 63 | random >> 34 << 32 | u64::from(mix32(number)));
    key.extend_from_slice(&uuid);
}

impl KeySet {
    #[inline]
    pub(crate) fn write(self, number: u32, key: &mut Vec<u8>) {
        key.clear();
        match self {
            Self::Hashed => {
                key.extend_from_slice(&[0; 16]);
                LittleEndian::write_u64(&mut key[..8], mix(1, number.into()));
                LittleEndian::write_u64(&mut key[8..], mix(2, number.into()));
            }
            Self::Ascending => {
                key.extend_from_slice(&[0; 16]);
                BigEndian::write_u64(&mut key[..8], number.into());
                LittleEndian::write_u64(&mut key[8..], mix(2, number.into()));
            }
            Self::Paths => {
                let name = mix32(number);
                let directory = mix(3, below(mix(4, name.into()), 50_000));
                for part in [
                    b"/usr/share/",
                    word(directory, 0),
                    b"/",
                    word(directory, 1),
                    b"-",
                    word(directory, 2),
                    b"/",
                    word(directory, 3),
                    &digits((directory >> 40) as u32)[4..],
                    b"/",
                    word(name.into(), 1),
                    b"_",
                    &digits(name),
                    ENDINGS[(directory >> 21 & 7) as usize].as_bytes(),
                ] {
                    key.extend_from_slice(part);
                }
            }
            Self::Urls => {
                let name = mix32(number);
                let host = mix(5, below(mix(6, name.into()), 20_000));
                for part in [
                    b"https://www.",
                    word(host, 0),
                    b"-",
                    word(host, 1),
                    &digits((host >> 40) as u32)[4..],
                    b".example/",
                    word(name.into(), 2),
                    b"/",
                    word(name.into(), 1),
                    b"?id=",
                    &digits(name),
                ] {
                    key.extend_from_slice(part);
                }
            }
            Self::Uuids => write_uuid(number, key),
            Self::Tenants => {
                let tenant = below(mix(8, number.into()), 1000) as u32;
                key.extend_from_slice(b"tenant-");
                key.extend_from_slice(&decimals(tenant));
                key.push(b'/');
                write_uuid(number, key);
            }
        }
    }

    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    pub(crate) fn bytes(self, count: u64) -> u64 {
        let mut key = Vec::new();
        let len = |number| {
            self.write(number as u32, &mut key);
            key.len() as u64
        };
        (0..count).map(len).sum()
    }

    #[inline]
    pub(crate) fn miss_nearly(self, number: u32, key: &mut [u8]) {
        if let Some(last) = key.last_mut() {
            *last ^= match self {
                Self::Hashed | Self::Ascending | Self::Uuids | Self::Tenants => mix32(number) as u8 | 1,
                Self::Paths | Self::Urls => 1,
            };
        }
    }
}

#[inline]
pub(crate) fn value_word(number: u32) -> u64 {
    mix(7, number.into())
}

#[inline]
pub(crate) fn fill_value(number: u32, value: &mut [u8]) {
    for (place, part) in value.chunks_mut(8).enumerate() {
        let mut word = [0; 8];
        LittleEndian::write_u64(&mut word, mix(7 + place as u64, number.into()));
        part.copy_from_slice(&word[..part.len()]);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const SETS: [KeySet; 6] =
        [KeySet::Hashed, KeySet::Ascending, KeySet::Paths, KeySet::Urls, KeySet::Uuids, KeySet::Tenants];

    fn key(set: KeySet, number: u32) -> Vec<u8> {
        let mut key = Vec::new();
        set.write(number, &mut key);
        key
    }

    #[test]
    fn absent_keys_and_near_misses_are_never_present() {
        for set in SETS {
            let present: BTreeSet<_> = (0..20_000).map(|number| key(set, number)).collect();
            assert_eq!(present.len(), 20_000, "{set:?}");
            for number in 0..20_000 {
                assert!(!present.contains(&key(set, ABSENT + number)), "{set:?}");
                let mut near = key(set, number);
                set.miss_nearly(number, &mut near);
                assert!(!present.contains(&near), "{set:?}");
            }
        }
    }

    #[test]
    fn absent_keys_have_the_shape_of_present_ones_and_lie_among_them() {
        for set in SETS.into_iter().filter(|set| *set != KeySet::Ascending) {
            let present: BTreeSet<_> = (0..20_000).map(|number| key(set, number)).collect();
            let (first, last) = (present.first().unwrap(), present.last().unwrap());
            let absent: Vec<_> = (0..20_000).map(|number| key(set, ABSENT + number)).collect();
            let among = absent.iter().filter(|key| (first..=last).contains(key)).count();
            assert!(among > 19_900, "{set:?}: {among}");
            let mean = |bytes: usize| bytes as f64 / 20_000.0;
            let lengths = [present.iter().map(Vec::len).sum(), absent.iter().map(Vec::len).sum()].map(mean);
            assert!((lengths[0] - lengths[1]).abs() < 0.2, "{set:?}: {lengths:?}");
            if matches!(set, KeySet::Paths | KeySet::Urls) {
                assert!((45.0..70.0).contains(&lengths[0]), "{set:?}: {lengths:?}");
            }
        }
    }

    #[test]
    fn the_bytes_of_keys_are_those_that_are_written() {
        assert_eq!([KeySet::Hashed, KeySet::Tenants].map(|set| set.bytes(10)), [160, 280]);
        let paths = (0..10).map(|number| key(KeySet::Paths, number).len() as u64);
        assert_eq!(KeySet::Paths.bytes(10), paths.sum::<u64>());
    }

    #[test]
    fn a_value_begins_with_the_word_that_is_compared() {
        let mut value = [0; 100];
        fill_value(5, &mut value);
        assert_eq!(LittleEndian::read_u64(&value), value_word(5));
        let mut other = [0; 100];
        fill_value(6, &mut other);
        assert_ne!(value[96..], other[96..]);
    }
}
