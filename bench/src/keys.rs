//! Distinct keys of several shapes, computed from their numbers. The order is random unless the shape is ordered.

use byteorder::{BigEndian, ByteOrder};

use crate::random::{below, number};
use crate::store;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum KeyShape {
    /// 16 random bytes, the reference.
    Random,
    Hex,
    /// File paths below eight roots, in directories of packages.
    Paths,
    Urls,
    /// Pages of thousands of hosts, most of them from a few hosts.
    ManyHosts,
    /// One of a thousand tenants, then the bytes of a version 7 UUID.
    TenantUuids,
    /// 12 equal bytes, then 16 random bytes.
    EqualStart,
    /// Times in nanoseconds, big-endian.
    TimesInOrder,
    TimesInNoOrder,
    LongUrls,
    /// 1 KiB; only the last three bytes differ.
    EqualKibibyte,
}

impl KeyShape {
    pub(crate) const ALL: [Self; 11] = [
        Self::Random,
        Self::Hex,
        Self::Paths,
        Self::Urls,
        Self::ManyHosts,
        Self::TenantUuids,
        Self::EqualStart,
        Self::TimesInOrder,
        Self::TimesInNoOrder,
        Self::LongUrls,
        Self::EqualKibibyte,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Random => "16 random bytes",
            Self::Hex => "36 hex digits",
            Self::Paths => "file paths",
            Self::Urls => "URLs of one host",
            Self::ManyHosts => "URLs of many hosts",
            Self::TenantUuids => "tenant and UUIDv7",
            Self::EqualStart => "12 equal bytes, then random ones",
            Self::TimesInOrder => "big-endian times, in order",
            Self::TimesInNoOrder => "big-endian times, in no order",
            Self::LongUrls => "200-byte URLs of one host",
            Self::EqualKibibyte => "1 KiB, the last three bytes differ",
        }
    }

    pub(crate) fn key(self, index: u64) -> Vec<u8> {
        let random = number(40, index);
        match self {
            Self::Random => store::key(index).to_vec(),
            Self::Hex => format!("{random:016x}{:016x}{:04x}", number(41, index), index % 0x1_0000).into(),
            Self::Paths => path(index),
            Self::Urls => format!("https://example.org/page/{}?x=7", mixed(index)).into(),
            Self::ManyHosts => {
                let host = below(random, 1 + below(number(41, index), 1 + below(number(42, index), 5000)));
                let page = ["page", "articles/2026", "item", "users/profile"][index as usize % 4];
                format!("https://www.{}{host}.example/{page}/{}", word(host), mixed(index)).into()
            }
            Self::TenantUuids => {
                let (time, tail) = (0x0193_6f00_0000 + index / 4, number(41, index) >> 2 | 1 << 63);
                let uuid = u128::from(time << 16 | 0x7000 | random >> 52) << 64 | u128::from(tail);
                let mut bytes = [0; 16];
                BigEndian::write_u128(&mut bytes, uuid);
                [format!("tenant-{:04}/", random % 1000).as_bytes(), &bytes].concat()
            }
            Self::EqualStart => [&b"equal start:"[..], &store::key(index)].concat(),
            Self::TimesInOrder => time(index),
            Self::TimesInNoOrder => time(mixed(index)),
            Self::LongUrls => {
                format!("https://example.org/{:-<171}/{:08}", "a/long/path/", mixed(index)).into()
            }
            Self::EqualKibibyte => {
                let mut key = vec![b'k'; 1 << 10];
                BigEndian::write_u24(&mut key[(1 << 10) - 3..], mixed(index) as u32);
                key
            }
        }
    }

    pub(crate) fn absent_key(self, index: u64) -> Vec<u8> {
        match self {
            Self::TimesInOrder => time_after(index, 500),
            _ => self.key(index + (1 << 23)),
        }
    }
}

fn mixed(index: u64) -> u64 {
    let mixed = |index: u64| (index ^ index >> 11).wrapping_mul(0x9e37_79b1) & 0xff_ffff;
    mixed(mixed(index))
}

fn time(index: u64) -> Vec<u8> {
    time_after(index, 0)
}

fn time_after(index: u64, nanoseconds: u64) -> Vec<u8> {
    let mut key = vec![0; 8];
    let within = (number(43, index) + nanoseconds) % 1000;
    BigEndian::write_u64(&mut key, 1_767_225_600_000_000_000 + index * 1000 + within);
    key
}

fn word(index: u64) -> &'static str {
    const WORDS: [&str; 16] = [
        "alpha", "base", "cloud", "core", "data", "doc", "fonts", "gtk", "kernel", "lib", "net", "perl",
        "python", "qt", "ruby", "x",
    ];
    WORDS[below(number(44, index), WORDS.len() as u64) as usize]
}

fn path(index: u64) -> Vec<u8> {
    const ROOTS: [&str; 8] = [
        "usr/share/doc",
        "usr/lib/x86_64-linux-gnu",
        "usr/include",
        "usr/share/locale",
        "usr/src/linux-headers-6.12",
        "usr/share/icons/hicolor",
        "var/lib/dpkg/info",
        "home/user/projects",
    ];
    let draw = |stream: u64, end| below(number(stream, index), end);
    let package = draw(45, 1 + draw(46, 6000));
    let mut path = format!(
        "{}/{}-{}{package}",
        ROOTS[draw(47, 1 + draw(48, 8)) as usize],
        word(package),
        word(package + 9000)
    );
    for level in 0..draw(49, 4) {
        path.push('/');
        path.push_str(word(draw(50 + level, 40)));
    }
    let end = ["html", "h", "so", "mo", "png"][draw(54, 5) as usize];
    format!("{path}/{}{:x}.{end}", word(draw(55, 300)), mixed(index)).into()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn keys_of_a_shape_all_differ_and_only_times_in_order_are_sorted() {
        for shape in KeyShape::ALL {
            let keys: Vec<_> = (0..20_000).map(|index| shape.key(index)).collect();
            assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len(), "{shape:?}");
            assert_eq!(keys.is_sorted(), shape == KeyShape::TimesInOrder, "{shape:?}");
            let (keys, absent): (HashSet<_>, Vec<_>) =
                (keys.into_iter().collect(), (0..20_000).map(|index| shape.absent_key(index)).collect());
            assert!(absent.iter().all(|key| !keys.contains(key)), "{shape:?}");
            let range = keys.iter().min()..=keys.iter().max();
            let among = absent.iter().filter(|key| range.contains(&Some(*key))).count();
            assert!(among > 19_900, "{shape:?}: {among}");
        }
        assert_eq!(KeyShape::LongUrls.key(77).len(), 200);
    }
}
