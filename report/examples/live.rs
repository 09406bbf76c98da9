//! An open store writes a page with the answers of its filters.
//!
//! ```sh
//! cargo run -p sievedb-report --example live -- report.html
//! ```

use sievedb::{Compression, Db, FilterKind, FilterPolicy, KeyspaceOptions, Options, Result};

const KEYS: u64 = 200_000;

fn key(number: u64) -> String {
    format!("/data/{:08x}/file-{number}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32)
}

fn fill(db: &Db) -> Result<()> {
    for number in 0..KEYS {
        if number == KEYS / 2 {
            let keyspace = db.default_keyspace();
            keyspace.set_options(keyspace.options().filter(FilterPolicy::new(FilterKind::BlockedBloom)))?;
        }
        db.put(key(number), "a value")?;
        while number.is_multiple_of(500) && db.step()? {}
    }
    db.flush()
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let small = KeyspaceOptions::new()
        .memtable_bytes(256 << 10)
        .table_bytes(256 << 10)
        .level_base_bytes(1 << 20)
        .level_ratio(4)
        .compression(Compression::None);
    let db = Options::new().background_threads(0).default_keyspace(small).open(folder.path())?;
    fill(&db)?;
    for number in 0..KEYS {
        assert!(!db.contains(key(number) + "?")?);
    }
    let page = std::env::args().nth(1).map_or_else(|| folder.path().join("report.html"), Into::into);
    sievedb_report::write(&db, &page)?;
    println!("{} bytes in {}", std::fs::metadata(&page)?.len(), page.display());
    Ok(())
}
