//! How much of a table's filter comes into memory.
//!
//! A filter comes in column groups ([`Header::column_group_count`]): all of them, or the first ones; with
//! none of them it is probed by pages ([`FilterPages`](crate::table::FilterPages)), and so are those that are
//! missing, for keys that pass the others. When a table is first opened, as many are read as there is room for; they
//! stay in memory when it is closed. Later `db/residency` decides from the counters how many each table is to have. A handle with another number of column
//! groups takes the place of the old one, over the same table: lookups that are under way keep the filter that
//! they have probed, and its memory comes back when they are done.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::filter::{AlignedBytes, Filter, Header};
use crate::fs::is_out_of_files;
use crate::memory::{Lease, LeaseKind};
use crate::table::{FilterPages, FilterSource, Table, TableContext};
use crate::table_meta::TableMeta;

use super::filter_state::{FilterState, ReadFilter, Rest};

/// The first filter that can be used, or why none can: as much of it as there is room for.
///
/// # Errors
///
/// Too many files are open, which says nothing about the filter.
pub(super) fn read_what_fits(table: &Table, meta: &TableMeta, ctx: &TableContext) -> Result<ReadFilter> {
    let mut state = FilterState::None;
    for filter in meta.whole_key_filters() {
        match table.filter_source(meta, filter).and_then(|source| fit(source, ctx)) {
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

/// A filter of which nothing is in memory but what describes it.
fn without_memory(state: FilterState) -> ReadFilter {
    ReadFilter { state, rest: None, _lease: None }
}

/// Whether the process had too many open files.
pub(super) fn is_lack_of_files(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if is_out_of_files(source))
}

/// The filter of a table outside of a tree.
#[cfg(any(test, fuzzing))]
pub(crate) fn read_filter(table: &Table, meta: &TableMeta, ctx: &TableContext) -> FilterState {
    read_what_fits(table, meta, ctx).expect("files can be opened").state
}

/// As many column groups as there is room for, and the memory that they have.
fn fit(source: FilterSource<'_>, ctx: &TableContext) -> Result<ReadFilter> {
    let lease = |len| ctx.memory.try_lease(LeaseKind::Filters, len);
    if let Some(lease) = lease(source.filter.len) {
        return Ok(loaded(source.read()?, None, lease));
    }
    let header = source.read_header()?;
    for column_groups in (1..header.column_group_count()).rev() {
        if let Some(lease) = lease(header.column_groups_len(column_groups)) {
            let filter = source.read_column_groups(&header, &[], column_groups)?;
            let rest = rest(source, &header, filter.as_bytes(), ctx, 0)?;
            return Ok(loaded(filter, rest, lease));
        }
    }
    page(source, header, ctx)
}

fn loaded(filter: Filter<AlignedBytes>, rest: Option<Arc<Rest>>, lease: Lease) -> ReadFilter {
    ReadFilter { state: FilterState::Loaded(filter), rest, _lease: Some(Arc::new(lease)) }
}

/// What it takes to probe the column groups by pages that are not in memory, if it can be read and there is room for it
/// once `before` bytes are released. The first ones are `known`.
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

/// `None` if it cannot be read now.
fn if_readable<T>(read: Result<Option<T>>) -> Result<Option<T>> {
    match read {
        Err(Error::Io { .. }) => Ok(None),
        read => read,
    }
}

/// No column groups, but the head, to probe the filter by pages, if there is room for that.
fn page(source: FilterSource<'_>, header: Header, ctx: &TableContext) -> Result<ReadFilter> {
    Ok(match ctx.memory.try_lease(LeaseKind::Filters, FilterPages::memory_bytes_of(&header)) {
        Some(lease) => {
            let state = FilterState::Paged(Arc::new(source.read_pages(&[])?));
            ReadFilter { state, rest: None, _lease: Some(Arc::new(lease)) }
        }
        None => without_memory(FilterState::Unloaded(Box::new(header))),
    })
}

/// The same filter with another number of column groups in memory. Fewer groups are copied; for more, only
/// the missing ones are read; for none at all, the head of a paged filter is. `None` if there is no room
/// (readers may be using the old groups, so both count), or if something cannot be read now.
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
        // The filter may still be good: what is in memory of it stays.
        Err(Error::Io { .. }) => None,
        Err(error) => {
            ctx.io.note_unusable_filter(meta.number, &error);
            Some(without_memory(FilterState::Unusable(Arc::new(error))))
        }
    }
}
