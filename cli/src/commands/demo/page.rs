//! The page about the demo's store, next to it. Other users may create files there, so links are never followed: only an earlier
//! demo's page is replaced, and a new page needs a free name.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use sievedb::Db;
use sievedb_report::Report;

use crate::failure::Result;
use crate::store;

const MARK: &str = ": SieveDB report</title>";

const MARK_WITHIN: u64 = 8192;

pub(super) fn write(db: &Db) -> Result<Option<PathBuf>> {
    let mut name = db.path().as_os_str().to_owned();
    name.push(".html");
    let path = PathBuf::from(name);
    let page = Report::of_db(db)?.page();
    let written = remove_earlier(&path).and_then(|()| {
        let mut file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        file.write_all(page.as_bytes())
    });
    match written {
        Ok(()) => Ok(Some(path)),
        Err(error) => {
            store::note(&format!("the page {} is not written: {error}", path.display()));
            Ok(None)
        }
    }
}

fn remove_earlier(path: &Path) -> io::Result<()> {
    match path.symlink_metadata() {
        Ok(metadata) if metadata.is_file() && is_page(path)? => fs::remove_file(path),
        _ => Ok(()),
    }
}

fn is_page(path: &Path) -> io::Result<bool> {
    let mut beginning = Vec::new();
    File::open(path)?.take(MARK_WITHIN).read_to_end(&mut beginning)?;
    Ok(String::from_utf8_lossy(&beginning).contains(MARK))
}
