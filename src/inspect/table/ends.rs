//! The ends of a table: header, footer, properties.

use super::block::Opened;
use crate::block::{BlockHandle, BlockKind, Compression};
use crate::checksum::{FileId, checksum32};
use crate::codec::DecodeError;
use crate::file_header::HEADER_BYTES;
use crate::inspect::extensible::range;
use crate::inspect::file::{Head, Window};
use crate::inspect::filter_block::Known;
use crate::inspect::output::{
    Detail, Form, Keys, Out, Payload, Place, Result, Value, bytes, count, counted, fields,
};
use crate::sorting::sort_by_key;
use crate::table::{FOOTER_BYTES, Footer, Properties};
use crate::table_meta::{FilterRef, TableMeta};

pub(in crate::inspect) struct Stated {
    pub(in crate::inspect) file_id: FileId,
    pub(super) len: u64,
    pub(in crate::inspect) bounds: Keys,
    pub(super) seed: u64,
    /// The filters in use. The others were replaced by separate files and are not read.
    pub(super) filters: Vec<u64>,
}

impl Stated {
    pub(in crate::inspect) fn of(meta: &TableMeta, seed: u64) -> Self {
        let bounds = meta.wide_bounds();
        let own = meta.filters.iter().filter(|filter| filter.file.is_none());
        Self {
            file_id: meta.file_id,
            len: meta.len,
            bounds: (bounds.0.to_vec(), bounds.1.to_vec()),
            seed,
            filters: own.map(|filter| filter.offset).collect(),
        }
    }
}

pub(in crate::inspect) struct Ends {
    pub(in crate::inspect) file_id: FileId,
    /// The offset of the footer, or the end of a file without a footer.
    pub(in crate::inspect) blocks_end: u64,
    pub(in crate::inspect) footer: Result<(Footer, u32), DecodeError>,
    footer_bytes: Vec<u8>,
    other_id: bool,
    pub(in crate::inspect) properties: Result<Properties, DecodeError>,
    pub(super) stated: Option<Stated>,
}

impl Ends {
    pub(in crate::inspect) fn read(
        window: &mut Window<'_>,
        head: &Head,
        stated: Option<Stated>,
    ) -> Result<Self> {
        let len = window.len();
        let offset = len.saturating_sub(FOOTER_BYTES as u64).max(HEADER_BYTES as u64);
        let footer_bytes = window.get(offset, FOOTER_BYTES as u64)?.to_vec();
        let mut file_id = head.file_id;
        let mut footer = Footer::decode(&footer_bytes, &file_id, len);
        let mut other_id = false;
        // The id in the file header may be damaged.
        if let (Err(_), Some(own)) = (&footer, footer_bytes.get(80..96).and_then(|id| id.first_chunk::<16>()))
            && let Ok(found) = Footer::decode(&footer_bytes, own, len)
        {
            file_id = *own;
            footer = Ok(found);
            other_id = head.decoded.is_ok();
        }
        if let (Err(_), Err(_), Some(stated)) = (&footer, &head.decoded, &stated) {
            file_id = stated.file_id;
        }
        let has_magic = footer_bytes.len() == FOOTER_BYTES && footer_bytes.ends_with(b"\x89SVTBL\r\n");
        let is_whole = stated.as_ref().is_some_and(|stated| stated.len == len);
        let blocks_end = if has_magic || is_whole || footer.is_ok() { offset } else { len };
        let properties = match &footer {
            Ok((footer, _)) => read_properties(window, &file_id, footer.properties)?,
            Err(error) => Err(error.clone()),
        };
        Ok(Self { file_id, blocks_end, footer, footer_bytes, other_id, properties, stated })
    }

    pub(super) fn facts(&self, out: &mut Out<'_>) -> Result {
        let p = match (&self.footer, &self.properties) {
            (_, Ok(properties)) => properties,
            (Ok(_), Err(error)) => return out.fact("properties", "damaged", error.to_string()),
            (Err(error), _) => return out.fact("footer", "damaged", error.to_string()),
        };
        let keys = counted(p.keys, "key", "keys");
        let of_data = format!("{keys}, {}", counted(p.tombstones, "tombstone", "tombstones"));
        out.fact("entries", count(p.entries), of_data)?;
        let sizes = format!("{} of keys, {} of values", bytes(p.key_bytes), bytes(p.value_bytes));
        out.fact("data", bytes(p.key_bytes.saturating_add(p.value_bytes)), sizes)?;
        if p.entries > 0 {
            out.fact("smallest key", Value::Bytes(p.smallest.to_vec().into()), "")?;
            out.fact("largest key", Value::Bytes(p.largest.to_vec().into()), "")?;
        }
        if let Some(spans) = &p.spans {
            let deletes = format!("{} of range deletes", counted(spans.deletes, "number", "numbers"));
            out.fact("spans", count(spans.count), format!("{}; {deletes}", range(&spans.start, &spans.end)))?;
        }
        out.fact("sequence", format!("{}..={}", p.seqno_min, p.seqno_max), "")?;
        let aimed = match p.compression {
            Some(Compression::None) => "not compressed",
            Some(Compression::Lz4) => "LZ4",
            None => "unknown compression",
        };
        let blocks = counted(p.data_blocks, "data block", "data blocks");
        let chunks = counted(p.chunk_blocks, "value chunk", "value chunks");
        let sizes = format!("of about {}, {aimed}", bytes(p.block_bytes));
        out.fact("blocks", format!("{blocks}, {chunks}"), sizes)?;
        let levels = counted(p.index_depth.into(), "level", "levels");
        out.fact("index", counted(p.index_blocks, "block", "blocks"), levels)
    }

    pub(super) fn filters(&self) -> Vec<FilterRef> {
        let mut filters = self.properties.as_ref().map_or(Vec::new(), |own| own.filters.clone());
        sort_by_key(&mut filters, |filter| filter.offset);
        filters
    }

    pub(super) fn uses(&self, out: &Out<'_>, filter: &FilterRef) -> bool {
        let is_in_use = |stated: &Stated| stated.filters.contains(&filter.offset);
        !out.view.skips_filters && self.stated.as_ref().is_none_or(is_in_use)
    }

    pub(super) fn known<'a>(&self, name: Option<&'a FilterRef>, seed: Option<u64>) -> Known<'a> {
        match (&self.properties, name) {
            (Ok(properties), Some(filter)) => {
                Known::Named { filter, owner: self.file_id, keys: properties.keys, seed }
            }
            (Ok(_), None) => Known::Unnamed,
            (Err(_), _) => Known::Nothing,
        }
    }

    pub(in crate::inspect) fn bounds(&self) -> Option<Keys> {
        let properties = self.properties.as_ref().ok()?;
        let bounds = properties.to_meta(1, self.file_id, 0, 0);
        Some((bounds.smallest.to_vec(), bounds.largest.to_vec()))
    }

    pub(super) fn describe_other_id(&self, out: &mut Out<'_>) -> Result {
        match self.other_id {
            true => out.damage(32, "file id", "differs from the footer and the blocks"),
            false => Ok(()),
        }
    }

    pub(super) fn describe_footer(&self, out: &mut Out<'_>) -> Result {
        let offset = self.blocks_end;
        if self.footer_bytes.len() == FOOTER_BYTES && offset + FOOTER_BYTES as u64 == out.report.len {
            out.report.accounted += FOOTER_BYTES as u64;
            let shown = out.detail == Detail::Bytes || self.footer.is_err();
            out.group(Place::File(offset), FOOTER_BYTES as u64, "footer", "", |out| {
                out.showing(shown, |out| self.describe_footer_fields(out))
            })?;
        }
        match &self.footer {
            Ok(_) => Ok(()),
            Err(_) if offset == out.report.len => out.damage(offset, "footer", "the file ends without one"),
            Err(error) => out.refused(offset, error),
        }
    }

    fn describe_footer_fields(&self, out: &mut Out<'_>) -> Result {
        let computed = checksum32(&self.file_id, self.blocks_end, &[&self.footer_bytes[..116]]);
        let layout = [
            ("root index offset", Form::Number(8)),
            ("root index length", Form::Number(8)),
            ("properties offset", Form::Number(8)),
            ("properties length", Form::Number(8)),
            ("filter offset", Form::Number(8)),
            ("filter length", Form::Number(8)),
            ("entries", Form::Number(8)),
            ("file length", Form::Number(8)),
            ("filter count", Form::Number(4)),
            ("index depth", Form::Number(1)),
            ("reserved", Form::Raw(3)),
            ("required features", Form::Hex(4)),
            ("optional features", Form::Hex(4)),
            ("file id", Form::Id),
            ("reserved", Form::Raw(18)),
            ("format version", Form::Number(2)),
            ("checksum", Form::Checksum(computed)),
            ("magic", Form::Raw(8)),
        ];
        fields(out, Payload::Plain(self.blocks_end), &self.footer_bytes, &layout)
    }
}

fn read_properties(
    window: &mut Window<'_>,
    file_id: &FileId,
    handle: BlockHandle,
) -> Result<Result<Properties, DecodeError>> {
    let sealed = window.get(handle.offset, handle.len)?;
    let opened = Opened::open(file_id, handle.offset, sealed).map_err(|error| error.at(handle.offset));
    Ok(opened.and_then(|block| {
        if block.kind != BlockKind::Properties {
            let detail = format!("expected properties, found {}", block.kind.name());
            return Err(DecodeError::corrupt(handle.offset, "block kind", detail));
        }
        Properties::decode(&block.payload).map_err(|error| match block.place() {
            Payload::Plain(start) => error.at(start),
            Payload::Made(offset) => DecodeError { offset, ..error },
        })
    }))
}
