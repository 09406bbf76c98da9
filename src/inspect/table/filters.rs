//! The filters of a table. They are read before the walk, then probed with each key or described alone.

use super::ends::Ends;
use crate::codec::DecodeError;
use crate::filter::header::{DOMAIN_WHOLE_KEY, HEADER_BYTES};
use crate::filter::{AlignedBytes, Expect, Filter, Header};
use crate::hash::key_hash;
use crate::inspect::file::{Head, Window};
use crate::inspect::filter_block::{self, ALIGN, intact_len, is_aligned};
use crate::inspect::output::{Keys, Out, Result};
use crate::table_meta::FilterRef;

pub(crate) struct Held {
    filter: Filter<AlignedBytes>,
    offset: u64,
    denied: u64,
    /// The smallest and the largest denied key. In a damaged table, keys may be out of order.
    keys: Option<Keys>,
    block: u64,
}

impl Held {
    pub(crate) fn new(filter: Filter<AlignedBytes>, offset: u64) -> Self {
        Self { filter, offset, denied: 0, keys: None, block: 0 }
    }

    pub(super) fn probe(&mut self, user: &[u8], block: u64) {
        if self.filter.may_contain(key_hash(self.filter.header().seed, user)) {
            return;
        }
        if self.denied == 0 {
            self.block = block;
        }
        self.denied += 1;
        let (smallest, largest) = self.keys.get_or_insert_with(|| (user.to_vec(), user.to_vec()));
        if user < smallest.as_slice() {
            user.clone_into(smallest);
        } else if user > largest.as_slice() {
            user.clone_into(largest);
        }
    }

    pub(crate) fn denial(&self) -> Option<(DecodeError, &Keys)> {
        let keys = self.keys.as_ref()?;
        let detail =
            format!("denies {} of the table's keys, the first in the block at {}", self.denied, self.block);
        Some((DecodeError::corrupt(self.offset, "filter", detail), keys))
    }
}

pub(in crate::inspect) fn open_filters(out: &Out<'_>, window: &Window<'_>, ends: &Ends) -> Result<Vec<Held>> {
    let Ok(properties) = &ends.properties else { return Ok(Vec::new()) };
    let mut filters = ends.filters();
    filters.dedup_by_key(|filter| filter.offset);
    let mut held = Vec::new();
    for named in filters {
        let end = named.offset.checked_add(named.len);
        let fits = end.is_some_and(|end| end <= ends.blocks_end) && named.len <= out.filter_bytes_max;
        if !ends.uses(out, &named) || named.domain != DOMAIN_WHOLE_KEY || !is_aligned(named.offset) || !fits {
            continue;
        }
        let first = window.apart(named.offset, (HEADER_BYTES as u64).min(named.len))?;
        let Ok(header) = Header::decode(&first) else { continue };
        let seed = ends.stated.as_ref().map_or(header.seed, |stated| stated.seed);
        let expected = Expect::table(ends.file_id, seed, properties.keys);
        let expected = expected.header_checksum(named.header_checksum);
        let bytes = AlignedBytes::copy_of(&window.apart(named.offset, named.len)?);
        held.extend(Filter::open(bytes, expected).ok().map(|filter| Held::new(filter, named.offset)));
    }
    Ok(held)
}

pub(super) fn facts(out: &mut Out<'_>, window: &mut Window<'_>, ends: &Ends) -> Result {
    let Ok(properties) = &ends.properties else { return Ok(()) };
    if properties.filters.is_empty() {
        return out.fact("filter", "none", "");
    }
    let mut filters = ends.filters();
    filters.dedup_by_key(|filter| filter.offset);
    for filter in filters {
        let header = Header::decode(&window.apart(filter.offset, HEADER_BYTES as u64)?);
        match header {
            Ok(header) => filter_block::facts_in_short(out, &header)?,
            Err(error) => out.fact("filter", "cannot be used", error.to_string())?,
        }
    }
    Ok(())
}

pub(in crate::inspect) fn describe_filters(
    out: &mut Out<'_>,
    window: &mut Window<'_>,
    head: &Head,
) -> Result {
    let ends = Ends::read(window, head, None)?;
    let end = ends.blocks_end;
    ends.describe_other_id(out)?;
    let named = ends.filters().into_iter().map(|filter| (filter.offset, Some(filter)));
    let mut places: Vec<(u64, Option<FilterRef>)> = named.collect();
    if let Err(error) = &ends.properties {
        out.refused(0, error)?;
        for at in (ALIGN..end).step_by(ALIGN as usize) {
            places.extend(intact_len(window, at, &ends.file_id)?.map(|_| (at, None)));
        }
    }
    if places.is_empty() {
        out.fact("filter", "none", "")?;
    }
    let mut distinct: Vec<u64> = places.iter().map(|(at, _)| *at).collect();
    distinct.dedup();
    distinct.into_iter().try_for_each(|at| filter_block::facts_at(out, window, at))?;
    let mut behind = 0;
    for (number, (at, name)) in places.into_iter().enumerate() {
        if at < behind {
            out.damage(at, "filter handle", "the filter before it does not end there yet")?;
            continue;
        }
        let known = (true, ends.known(name.as_ref(), None));
        let label = format!("filter {number}");
        let described = filter_block::describe(out, window, (at.min(end), end), label, known)?;
        behind = at.saturating_add(described.unwrap_or(1));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::{FilterBuilder, Kind};

    #[test]
    fn the_range_of_denied_keys_holds_each_of_them_in_whatever_order_they_come() {
        let mut builder = FilterBuilder::new(Kind::Bloom, 20.0, 1, 2, [3; 16]).unwrap();
        builder.add_key(b"in it");
        let block = builder.finish().unwrap();
        let mut denied = [&b"a"[..], b"m", b"z"];
        for turn in 0..6 {
            denied.swap(turn % 2, turn % 2 + 1);
            let filter = Filter::open(AlignedBytes::copy_of(&block), Expect::anything()).unwrap();
            let mut held = Held::new(filter, 0);
            held.probe(b"in it", 0);
            assert!(held.denial().is_none());
            denied.iter().for_each(|key| held.probe(key, 0));
            let (error, keys) = held.denial().unwrap();
            assert!(error.to_string().contains("denies 3 of"), "{error}");
            assert_eq!(*keys, (b"a".to_vec(), b"z".to_vec()), "{denied:?}");
        }
    }
}
