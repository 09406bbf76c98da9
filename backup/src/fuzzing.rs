//! The fuzz target of the index decoder. The first byte of an input selects raw bytes, or a body with a valid header
//! and checksum.

use sievedb::{FileHeader, FileKind};
use sievedb_filter::checksum::checksum;

use crate::index::Index;

/// Decodes an index.
///
/// # Panics
///
/// If a decoded index does not survive encoding and decoding.
pub fn backup_index(data: &[u8]) {
    let Some((&mode, data)) = data.split_first() else { return };
    let bytes = if mode % 2 == 0 { data.to_vec() } else { sealed(data) };
    if let Ok(index) = Index::decode(&bytes) {
        assert!(index.bytes() >= index.files.iter().map(|file| file.content.len).max().unwrap_or(0));
        let again = index.encode();
        assert_eq!(Index::decode(&again).as_ref(), Ok(&index));
        assert!(again.len() <= bytes.len());
    }
}

fn sealed(body: &[u8]) -> Vec<u8> {
    let ids = [[7; 16], [9; 16]];
    let mut bytes = FileHeader::new(FileKind::BackupIndex, ids[0], ids[1]).encode().to_vec();
    bytes.extend_from_slice(body);
    let sum = checksum(&ids[1], 64, &[body]);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

#[cfg(test)]
mod replay {
    use super::*;
    use crate::index::tests::example;

    #[test]
    fn seeds_and_slightly_changed_seeds_are_decoded_or_refused() {
        let whole = example().encode();
        if std::env::var_os("SIEVEDB_SEEDS").is_some() {
            let folder: std::path::PathBuf =
                [env!("CARGO_MANIFEST_DIR"), "..", "fuzz", "corpus", "backup_index"].iter().collect();
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("seed-raw"), [&[0], &whole[..]].concat()).unwrap();
            std::fs::write(folder.join("seed-body"), [&[1], &whole[64..whole.len() - 8]].concat()).unwrap();
        }
        backup_index(&[&[0], &whole[..]].concat());
        let body = &whole[64..whole.len() - 8];
        let mut decoded = 0;
        for at in 0..body.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff, body[at] ^ 1] {
                let mut changed = body.to_vec();
                changed[at] = value;
                backup_index(&[&[1], &changed[..]].concat());
                decoded += u64::from(Index::decode(&sealed(&changed)).is_ok());
            }
            backup_index(&[&[1], &body[..at]].concat());
        }
        assert!(decoded > 500, "{decoded} were decoded");
    }
}
