//! Opens a table, from the outside in.
//!
//! 1. The length of the file is that of the manifest.
//! 2. The file header is a table's, of this store, with the file id of the manifest.
//! 3. The footer is intact and has the checksum that the manifest has.
//! 4. The properties agree with footer and manifest.
//! 5. The root of the index is read and kept in memory.
//!
//! Footer, properties and root lie side by side: one read of [`TAIL_BYTES`] has all three, unless the root is long.
//!
//! The filter (read by `version/filter`), data blocks and index partitions are not read.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::block::{BlockIter, BlockKind, BlockValues};
use crate::checksum::FileId;
use crate::error::{Error, InFile, Result};
use crate::file_header::{FileHeader, FileKind, HEADER_BYTES};
use crate::filename::FileName;
use crate::fs::ReadFile;
use crate::memory::LeaseKind;
use crate::table_meta::TableMeta;

use super::context::TableContext;
use super::file::{TableFile, Tail, open_file, read_exact};
use super::footer::{FOOTER_BYTES, Footer};
use super::index::IndexNode;
use super::origin::Origin;
use super::properties::Properties;
use super::reader::{Table, TableLeases};

impl Table {
    /// Opens the table that `meta` describes.
    ///
    /// # Errors
    ///
    /// [`Error::Corruption`] if the file is damaged or another one, [`Error::Unsupported`] if it is newer,
    /// [`Error::Io`] if it cannot be read. A filter never causes an error.
    pub(crate) fn open(ctx: &Arc<TableContext>, meta: Arc<TableMeta>) -> Result<Arc<Self>> {
        let path = FileName::Table(meta.number).path(&ctx.dir);
        let unverified = UnverifiedTable::read(ctx, meta.number, &path)?;
        if unverified.len != meta.len {
            let detail = format!("expected {}, found {}", meta.len, unverified.len);
            return Err(Error::corruption(&path, meta.len.min(unverified.len), "file length", detail));
        }
        if unverified.header.file_id != meta.file_id {
            return Err(Error::corruption(&path, 32, "file id", "not that of the manifest"));
        }
        let tail = unverified.tail(&path)?;
        let (footer, checksum) = unverified.footer(&path, &tail)?;
        if checksum != meta.footer_checksum {
            let detail = format!("expected {:08x}, found {checksum:08x}", meta.footer_checksum);
            return Err(Error::corruption(&path, unverified.blocks_end(), "footer checksum", detail));
        }
        let file = unverified.into_file(Arc::clone(ctx), meta.number, path);
        // Repair alone needs the origin, and reads it from the file.
        let properties = Properties { origin: None, ..read_properties(&file, &footer, &tail)? };
        let at = footer.properties.offset;
        properties.agree_with(&meta).map_err(|error| file.error_in_block(error, at))?;
        let root = file.read_block_near(&tail, footer.root, BlockKind::Index)?;
        BlockIter::new(root.clone(), BlockValues::Index)
            .map_err(|error| file.error_in_block(error, footer.root.offset))?;
        let lease = ctx.memory.try_lease_open_table(Self::bytes_of(&meta));
        let root_lease = match &lease {
            Some(_) => ctx.memory.try_lease(LeaseKind::Tables, root.len() as u64),
            None => None,
        };
        // A table that is open only for a moment keeps the root that it has read.
        let root = (lease.is_none() || root_lease.is_some()).then_some(root);
        let bytes = Self::bytes_of(&meta) + root.as_ref().map_or(0, |root| root.len() as u64);
        let held = lease.is_none().then(|| ctx.memory.hold(bytes));
        let leases = TableLeases { table: lease, _root: root_lease, _held: held };
        Ok(Arc::new(Self {
            file: Arc::new(file),
            properties,
            footer,
            root,
            index: IndexNode::default(),
            leases,
        }))
    }

    /// What an open table takes of the memory budget, without the root of its index.
    pub(crate) fn bytes_of(meta: &TableMeta) -> u64 {
        (TABLE_BYTES + 2 * (meta.smallest.len() + meta.largest.len())) as u64
    }

    /// Whether the memory budget has room for the table. Otherwise it should be closed soon.
    pub(crate) fn has_room(&self) -> bool {
        self.leases.table.is_some()
    }

    /// Where the entries come from, read from the file; `None` if the table does not say.
    pub(crate) fn read_origin(&self) -> Result<Option<Origin>> {
        Ok(read_properties(&self.file, &self.footer, &Tail::default())?.origin.map(|origin| *origin))
    }

    /// Describes a table from its file alone, for a store whose manifest is lost and for tools.
    pub(crate) fn read_meta(ctx: &Arc<TableContext>, number: u64, path: &Path) -> Result<TableMeta> {
        let unverified = UnverifiedTable::read(ctx, number, path)?;
        let tail = unverified.tail(path)?;
        let (footer, checksum) = unverified.footer(path, &tail)?;
        let (len, file_id) = (unverified.len, unverified.header.file_id);
        let file = unverified.into_file(Arc::clone(ctx), number, path.to_path_buf());
        Ok(read_properties(&file, &footer, &tail)?.to_meta(number, file_id, len, checksum))
    }
}

/// The metadata with whole bounds, for a manifest that stores them trimmed.
pub(crate) fn with_full_bounds(ctx: &Arc<TableContext>, meta: &Arc<TableMeta>) -> Result<TableMeta> {
    let table = Table::open(ctx, Arc::clone(meta))?;
    let (smallest, largest) = (table.properties.smallest.clone(), table.properties.largest.clone());
    Ok(TableMeta { smallest, largest, trimmed: false, ..(**meta).clone() })
}

/// What is read before anything in the file can be trusted.
struct UnverifiedTable {
    file: Arc<dyn ReadFile>,
    len: u64,
    header: FileHeader,
}

impl UnverifiedTable {
    fn read(ctx: &Arc<TableContext>, number: u64, path: &Path) -> Result<Self> {
        let file = ctx.files.get_or_open(number, || open_file(ctx, path))?;
        let (len, header) = read_header(&*file, path, FileKind::Table, &ctx.store_id)?;
        Ok(Self { file, len, header })
    }

    fn blocks_end(&self) -> u64 {
        self.len.saturating_sub(FOOTER_BYTES as u64)
    }

    /// The footer and what comes before it; if that cannot be read, the footer alone: perhaps nobody needs more.
    fn tail(&self, path: &Path) -> Result<Tail> {
        let read = |start| -> Result<Tail> {
            Ok(Tail { start, bytes: read_exact(&*self.file, path, start, self.len - start)? })
        };
        let (start, end) = (self.len.saturating_sub(TAIL_BYTES), self.blocks_end());
        match read(start) {
            Err(Error::Io { .. }) if start < end => read(end),
            tail => tail,
        }
    }

    fn footer(&self, path: &Path, tail: &Tail) -> Result<(Footer, u32)> {
        let offset = self.blocks_end();
        let bytes = tail.bytes.get((offset - tail.start) as usize..).unwrap_or_default();
        Footer::decode(bytes, &self.header.file_id, self.len).map_err(|error| error.in_file(path, offset))
    }

    fn into_file(self, ctx: Arc<TableContext>, number: u64, path: PathBuf) -> TableFile {
        TableFile { ctx, number, path, blocks_end: self.blocks_end(), file_id: self.header.file_id }
    }
}

/// Reads the length and the header of a file, which must be of this kind and of this store.
pub(super) fn read_header(
    file: &dyn ReadFile,
    path: &Path,
    kind: FileKind,
    store_id: &FileId,
) -> Result<(u64, FileHeader)> {
    let len = file.len().map_err(|source| Error::io("read", path, source))?;
    let head = read_exact(file, path, 0, len.min(HEADER_BYTES as u64))?;
    let header = FileHeader::decode_kind(&head, kind).map_err(|error| error.in_file(path, 0))?;
    if header.store_id != *store_id {
        return Err(Error::corruption(path, 16, "store id", "the file is of another store"));
    }
    Ok((len, header))
}

fn read_properties(file: &TableFile, footer: &Footer, tail: &Tail) -> Result<Properties> {
    let at = footer.properties.offset;
    let payload = file.read_block_near(tail, footer.properties, BlockKind::Properties)?;
    let properties = Properties::decode(&payload).map_err(|error| file.error_in_block(error, at))?;
    let first = properties.filters.first().map_or((0, 0), |filter| (filter.offset, filter.len));
    let own = (properties.entries, properties.index_depth, properties.filters.len() as u64, first);
    let expected = (footer.entries, footer.index_depth, u64::from(footer.filters), footer.filter);
    if own != expected {
        let detail =
            format!("the footer has (entries, depth, filters, first) {expected:?}, the properties {own:?}");
        return Err(file.corrupt(at, "properties", detail));
    }
    Ok(properties)
}

/// Approximate memory of an open table and of all that refers to it, without its bounds and the root of its
/// index.
const TABLE_BYTES: usize = 2048;

/// How much of the end of a file is read at once when it is opened: a page.
const TAIL_BYTES: u64 = 4096;
