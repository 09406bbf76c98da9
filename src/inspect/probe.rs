//! Probes the filter of a table with its keys, and with absent keys to measure its false-positive rate.
//!
//! Absent keys are random (16 bytes), or differ from a present key in one changed, added or removed byte. They are
//! sorted and compared with the table to remove present keys.

use byteorder::{ByteOrder, LittleEndian};

use crate::codec::DecodeError;
use crate::filter::header::HEADER_BYTES;
use crate::filter::{AlignedBytes, Expect, Filter, Header};
use crate::fs::ReadFile;
use crate::hash::key_hash;
use crate::inspect::describe::{describe_to, kind_of};
use crate::inspect::file::{Head, Window};
use crate::inspect::output::{Entries, Event, FileDamage, Kind, Out, Stop, View};
use crate::inspect::table::Ends;
use crate::table::FILTER_OFFSET;

const NEAR_BYTES_MAX: usize = 256 << 20;

const DENIED_LISTED_MAX: usize = 10;

const RANDOM_KEY_BYTES: usize = 16;

/// The reason why a filter could not be probed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Trouble {
    /// The file could not be read.
    Stopped(Stop),
    /// The first damage of the table or its filter.
    Damaged(Box<FileDamage>),
    /// The file is not a table.
    NoTable,
    /// Neither the table nor the other file has a filter.
    NoFilter,
    /// The reason concerns the separate filter file.
    Beside(Box<Trouble>),
}

impl From<Stop> for Trouble {
    fn from(stop: Stop) -> Self {
        Self::Stopped(stop)
    }
}

/// The result of [`verify_filter`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// Distinct user keys of the table.
    pub keys: u64,
    /// Present keys that the filter denied; 0 in a correct filter.
    pub denied: u64,
    /// The first denied keys.
    pub first_denied: Vec<Vec<u8>>,
}

/// The result of [`measure_filter`].
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Measured {
    /// Distinct user keys of the table.
    pub keys: u64,
    /// The false-positive rate that the filter states.
    pub predicted: f64,
    /// The result for random keys.
    pub random: Sample,
    /// The result for keys that differ in a byte.
    pub near: Sample,
}

/// The result of probing absent keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Sample {
    /// Probed absent keys.
    pub asked: u64,
    /// Probes answered with "maybe".
    pub positive: u64,
}

impl Sample {
    /// The measured false-positive rate.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.positive as f64 / self.asked.max(1) as f64
    }

    /// The 95 % confidence interval: Wilson's score interval (E. B. Wilson, Probable Inference, 1927; z = 1.96).
    #[must_use]
    pub fn interval(&self) -> (f64, f64) {
        const Z: f64 = 1.959_964;
        let (n, rate) = (self.asked.max(1) as f64, self.rate());
        let middle = rate + Z * Z / (2.0 * n);
        let half = Z * (rate * (1.0 - rate) / n + Z * Z / (4.0 * n * n)).sqrt();
        let whole = 1.0 + Z * Z / n;
        (((middle - half) / whole).max(0.0), ((middle + half) / whole).min(1.0))
    }

    fn ask(&mut self, filter: &Filter<AlignedBytes>, key: &[u8]) {
        self.asked += 1;
        self.positive += u64::from(filter.may_contain_key(key));
    }
}

/// Probes the filter of a table with every key of the table. `beside` is the separate file of the filter, if any.
///
/// # Errors
///
/// The first [`Trouble`].
pub fn verify_filter(table: &dyn ReadFile, beside: Option<&dyn ReadFile>) -> Result<Verified, Trouble> {
    let filter = open_filter(table, beside)?;
    let mut found = Verified { keys: 0, denied: 0, first_denied: Vec::new() };
    each_key(table, &mut |key| {
        found.keys += 1;
        if !filter.may_contain(key_hash(filter.header().seed, key)) {
            found.denied += 1;
            if found.first_denied.len() < DENIED_LISTED_MAX {
                found.first_denied.push(key.to_vec());
            }
        }
    })?;
    Ok(found)
}

/// Probes the filter of a table with about `probes` absent keys of each kind. The `seed` determines the keys.
///
/// # Errors
///
/// The errors of [`verify_filter`].
pub fn measure_filter(
    table: &dyn ReadFile,
    beside: Option<&dyn ReadFile>,
    probes: u64,
    seed: u64,
) -> Result<Measured, Trouble> {
    let filter = open_filter(table, beside)?;
    let mut random = Random(seed);
    let mut result = Measured {
        keys: 0,
        predicted: filter.predicted_rate(),
        random: Sample::default(),
        near: Sample::default(),
    };
    for _ in 0..probes {
        let mut key = [0; RANDOM_KEY_BYTES];
        LittleEndian::write_u64(&mut key[..8], random.next());
        LittleEndian::write_u64(&mut key[8..], random.next());
        result.random.ask(&filter, &key);
    }
    let keys = filter.key_count().max(1);
    let (each, every) = (probes.div_ceil(keys), (keys / probes.max(1)).max(1));
    let (mut near, mut room): (Vec<Vec<u8>>, usize) = (Vec::new(), NEAR_BYTES_MAX);
    result.keys = each_key(table, &mut |key| {
        if random.next().is_multiple_of(every) {
            random.near_misses(key, each, &mut room, &mut near);
        }
    })?;
    near.sort_unstable();
    near.dedup();
    let mut absent = near.iter().peekable();
    each_key(table, &mut |key| {
        while let Some(missed) = absent.next_if(|missed| missed.as_slice() <= key) {
            if missed != key {
                result.near.ask(&filter, missed);
            }
        }
    })?;
    absent.for_each(|missed| result.near.ask(&filter, missed));
    Ok(result)
}

fn open_filter(table: &dyn ReadFile, beside: Option<&dyn ReadFile>) -> Result<Filter<AlignedBytes>, Trouble> {
    let mut window = Window::new(table)?;
    let head = Head::read(&mut window)?.ok_or(Trouble::NoTable)?;
    if head.kind() != Kind::Table {
        return Err(Trouble::NoTable);
    }
    let ends = Ends::read(&mut window, &head, None)?;
    let properties = ends.properties.map_err(|error| damaged(0, &error))?;
    let open = |window: &Window<'_>, at| {
        let (block, seed) = read_filter(window, at)?;
        let opened = Filter::open(block, Expect::table(ends.file_id, seed, properties.keys));
        let verified = opened.and_then(|filter| filter.verify().map(|()| filter));
        verified.map_err(|error| damaged(at, &error))
    };
    if let Some(file) = beside {
        let opened = place_beside(file).and_then(|at| open(&Window::new(file)?, at));
        return opened.map_err(|trouble| Trouble::Beside(Box::new(trouble)));
    }
    open(&window, properties.filters.first().ok_or(Trouble::NoFilter)?.offset)
}

fn place_beside(file: &dyn ReadFile) -> Result<u64, Trouble> {
    match kind_of(file, &View::new())? {
        Kind::FilterBlock => Ok(0),
        Kind::FilterFile => Ok(FILTER_OFFSET),
        _ => Err(Trouble::NoFilter),
    }
}

/// Decodes the header before it allocates the stated length.
fn read_filter(window: &Window<'_>, at: u64) -> Result<(AlignedBytes, u64), Trouble> {
    let first = window.apart(at, HEADER_BYTES as u64)?;
    let header = Header::decode(&first).map_err(|error| damaged(at, &error))?;
    let room = window.len().saturating_sub(at);
    if header.block_len > room {
        let detail = format!("{} bytes, {room} are left", header.block_len);
        return Err(damaged(at, &DecodeError::corrupt(32, "filter block length", detail)));
    }
    Ok((AlignedBytes::copy_of(&window.apart(at, header.block_len)?), header.seed))
}

fn damaged(base: u64, error: &DecodeError) -> Trouble {
    Trouble::Damaged(Box::new(FileDamage::of(base, error)))
}

fn each_key(table: &dyn ReadFile, visit: &mut dyn FnMut(&[u8])) -> Result<u64, Trouble> {
    let (mut last, mut count): (Option<Vec<u8>>, u64) = (None, 0);
    let mut sink = |event: &Event<'_>| {
        if let Event::Entry(entry) = event
            && entry.end.is_none()
            && last.as_deref() != Some(entry.key)
        {
            visit(entry.key);
            count += 1;
            entry.key.clone_into(last.get_or_insert_default());
        }
        Ok(())
    };
    let (view, mut window) = (View::new().entries(Entries::Keys), Window::new(table)?);
    let mut out = Out::new(&mut sink, &view, window.len());
    out.probes_filters = false;
    match describe_to(out, &mut window, &view)?.first_damage {
        Some(damage) => Err(Trouble::Damaged(Box::new(damage))),
        None => Ok(count),
    }
}

/// SplitMix64 (Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators, 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    fn near_misses(&mut self, key: &[u8], count: u64, room: &mut usize, out: &mut Vec<Vec<u8>>) {
        let bytes_each = key.len() + 1 + size_of::<Vec<u8>>();
        let count = count.min((*room / bytes_each) as u64);
        out.extend((0..count).map(|_| self.near(key)));
        *room -= count as usize * bytes_each;
    }

    fn near(&mut self, key: &[u8]) -> Vec<u8> {
        let (choice, byte) = (self.next(), (self.next() >> 56) as u8);
        let mut near = key.to_vec();
        match (choice % 4, near.len()) {
            (0, _) | (_, 0) => near.push(byte),
            (1, _) => drop(near.pop()),
            (_, len) => near[(choice >> 2) as usize % len] ^= byte.max(1),
        }
        near
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_that_of_the_published_examples() {
        // Newcombe, Two-sided confidence intervals for the single proportion, 1998, table I, method 3.
        for (positive, asked, low, high) in [
            (81, 263, 0.2553, 0.3662),
            (15, 148, 0.0624, 0.1605),
            (0, 20, 0.0, 0.1611),
            (1, 29, 0.0061, 0.1718),
        ] {
            let (found_low, found_high) = Sample { asked, positive }.interval();
            assert!((found_low - low).abs() < 5e-5 && (found_high - high).abs() < 5e-5, "{positive}/{asked}");
        }
    }

    #[test]
    fn near_misses_of_long_keys_stay_within_their_room() {
        let (mut near, mut room) = (Vec::new(), 1 << 20);
        for _ in 0..3 {
            Random(5).near_misses(&[7; 65_536], 1_000_000, &mut room, &mut near);
        }
        assert_eq!(near.len(), 15);
        Random(5).near_misses(b"short", 3, &mut room, &mut near);
        assert_eq!(near.len(), 18);
    }

    #[test]
    fn a_near_miss_differs_in_one_byte() {
        let mut random = Random(5);
        for len in [0, 1, 20] {
            let key = vec![7; len];
            for _ in 0..200 {
                let near = random.near(&key);
                assert!(near != key && near.len().abs_diff(len) <= 1);
            }
        }
    }
}
