//! Loading filters into memory.
//!
//! All column groups ([`Header::column_group_count`]) of a filter, or the first ones, are in memory; the others are
//! probed by pages ([`FilterPages`](crate::table::FilterPages)).
//!
//! The first opening of a table reads as many groups as fit, if every filter that was not read yet ([`Unread`]) can
//! have one group less, and a head. So the first groups of all filters are loaded before the second group of any, and
//! every filter can be probed. If not even the first groups fit, upper levels precede deeper ones: every lookup reaches
//! upper levels, so their tables are opened first. Later, `db/jobs/filter_memory` changes the number of groups by
//! replacing the handle. Running lookups keep the handle that they use.
//!
//! [`Unread`]: crate::memory::Unread

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::filter::{AlignedBytes, Filter, Header};
use crate::fs::is_out_of_files;
use crate::memory::{FilterBytes, Lease, LeaseKind};
use crate::table::{FilterPages, FilterSource, Table, TableContext};
use crate::table_meta::TableMeta;

use super::filter_state::{FilterState, ReadFilter, Rest};

/// `others` is the size of the other filters that were not read yet.
pub(super) fn read_what_fits(
    table: &Table,
    meta: &TableMeta,
    ctx: &TableContext,
    others: FilterBytes,
) -> Result<ReadFilter> {
    let mut state = FilterState::None;
    for filter in meta.whole_key_filters() {
        match table.filter_source(meta, filter).and_then(|source| fit(source, ctx, others)) {
            Ok(read) => return Ok(read),
            Err(error) if is_lack_of_files(&error) => return Err(error),
            Err(error) => {
                ctx.io.note_unusable_filter(meta.number, &error);
                state = FilterState::Unusable(Arc::new(error));
            }
        }
    }
    Ok(without_memory(state))
}

fn without_memory(state: FilterState) -> ReadFilter {
    ReadFilter { state, rest: None, _lease: None }
}

pub(super) fn is_lack_of_files(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if is_out_of_files(source))
}

#[cfg(any(test, fuzzing))]
pub(crate) fn read_filter(table: &Table, meta: &TableMeta, ctx: &TableContext) -> FilterState {
    read_what_fits(table, meta, ctx, FilterBytes::default()).expect("files can be opened").state
}

fn fit(source: FilterSource<'_>, ctx: &TableContext, others: FilterBytes) -> Result<ReadFilter> {
    let lease = |len, left| ctx.memory.try_lease_leaving(LeaseKind::Filters, len, left);
    if let Some(lease) = lease(source.filter.len, others.whole) {
        return Ok(loaded(source.read()?, None, lease));
    }
    let header = source.read_header()?;
    let head = FilterPages::memory_bytes_of(&header);
    let count = header.column_group_count();
    for column_groups in (1..=count).rev() {
        let fewer = header.column_groups_len(column_groups - 1) as f64 / header.block_len.max(1) as f64;
        let own_head = if column_groups < count { head } else { 0 };
        let left = ((others.whole as f64 * fewer) as u64).saturating_add(others.head + own_head);
        if let Some(lease) = lease(header.column_groups_len(column_groups), left) {
            let filter = source.read_column_groups(&header, &[], column_groups)?;
            let rest = match column_groups < count {
                true => rest(source, &header, filter.as_bytes(), ctx, 0)?,
                false => None,
            };
            return Ok(loaded(filter, rest, lease));
        }
    }
    page(source, header, ctx)
}

fn loaded(filter: Filter<AlignedBytes>, rest: Option<Arc<Rest>>, lease: Lease) -> ReadFilter {
    ReadFilter { state: FilterState::Loaded(filter), rest, _lease: Some(Arc::new(lease)) }
}

/// `known` are the groups in memory. Returns `None` if a read fails, or if memory is too short even after `before`
/// bytes are released.
fn rest(
    source: FilterSource<'_>,
    header: &Header,
    known: &[u8],
    ctx: &TableContext,
    before: u64,
) -> Result<Option<Arc<Rest>>> {
    let bytes = FilterPages::memory_bytes_of(header);
    let lease = ctx.memory.try_lease_instead(LeaseKind::Filters, bytes, before);
    let read = |lease| Ok(Arc::new(Rest { pages: source.read_pages(known)?, _lease: lease }));
    if_readable(lease.map(read).transpose())
}

fn if_readable<T>(read: Result<Option<T>>) -> Result<Option<T>> {
    match read {
        Err(Error::Io { .. }) => Ok(None),
        read => read,
    }
}

fn page(source: FilterSource<'_>, header: Header, ctx: &TableContext) -> Result<ReadFilter> {
    Ok(match ctx.memory.try_lease(LeaseKind::Filters, FilterPages::memory_bytes_of(&header)) {
        Some(lease) => {
            let state = FilterState::Paged(Arc::new(source.read_pages(&[])?));
            ReadFilter { state, rest: None, _lease: Some(Arc::new(lease)) }
        }
        None => without_memory(FilterState::Unloaded(Box::new(header))),
    })
}

/// Removing groups copies the other groups; adding groups reads the missing ones. Returns `None` if memory has no room
/// for both copies, or if a read fails.
pub(super) fn read_column_groups(
    table: &Table,
    meta: &TableMeta,
    ctx: &TableContext,
    current: &ReadFilter,
    column_groups: usize,
) -> Option<ReadFilter> {
    let header = current.state.header()?;
    let source = || match meta.filters.iter().find(|filter| filter.header_checksum == header.checksum) {
        Some(filter) => table.filter_source(meta, filter),
        None => Err(table.corrupt_filter("is not one of the table's any more")),
    };
    let changed = if column_groups == 0 {
        source().and_then(|source| page(source, header.clone(), ctx))
    } else {
        let after = header.column_groups_len(column_groups);
        let before = header.column_groups_len(current.state.column_groups());
        let lease = ctx.memory.try_lease_instead(LeaseKind::Filters, after, before)?;
        let change = || {
            let old = current.state.loaded();
            let filter = match old {
                Some(old) if column_groups <= old.column_groups() => old.keep_groups(column_groups),
                _ => {
                    let known = old.map_or(&[][..], Filter::as_bytes);
                    source()?.read_column_groups(header, known, column_groups)?
                }
            };
            let rest = match &current.rest {
                _ if column_groups == header.column_group_count() => None,
                Some(rest) => Some(Arc::clone(rest)),
                None => match if_readable(source().map(Some))? {
                    Some(source) => rest(source, header, old.unwrap_or(&filter).as_bytes(), ctx, before)?,
                    None => None,
                },
            };
            Ok(loaded(filter, rest, lease))
        };
        change()
    };
    match changed {
        Ok(changed) => Some(changed),
        // A failed read proves no damage: the filter stays.
        Err(Error::Io { .. }) => None,
        Err(error) => {
            ctx.io.note_unusable_filter(meta.number, &error);
            Some(without_memory(FilterState::Unusable(Arc::new(error))))
        }
    }
}
