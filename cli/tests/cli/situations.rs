//! What every command prints, and with which exit code it ends, in every situation it can find itself in: the table
//! `tests/golden/situations.txt`. `SIEVEDB_BLESS=1 cargo test -p sievedb-cli situations` writes it anew, to be read
//! before it is committed.
//!
//! Of an output the first three lines stand in the table, of that of `verify` all. What is not the same twice is
//! replaced: the directory by `DB`, checksums by `########`, sizes, times and the offsets of filters by `#`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use sievedb::{Db, Options};

use crate::tool::{Place, command, dump_command, place};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/situations.txt");

/// The user `nobody`.
const NOBODY: u32 = 65534;

/// The commands of `sievedb`, and of `sievedb-dump` where that is named, and what they read. Replaced are `DB`, `INPUT` (a
/// file that holds what they read) and `TABLE` (that of the store, if it is there).
const COMMANDS: [(&str, &str); 21] = [
    ("get DB key00000", ""),
    ("get DB none", ""),
    ("get DB -", "key00000\nnone\n"),
    ("contains DB key00000", ""),
    ("contains DB -", "key00000\nnone\n"),
    ("scan DB --limit 1", ""),
    ("stats DB", ""),
    ("verify DB", ""),
    ("put DB key00000 new", ""),
    ("delete DB key00000", ""),
    ("delete DB -", "key00000\n"),
    ("load DB -", "key00000\tnew\n"),
    ("compact DB", ""),
    ("demo DB --from INPUT", "one\ntwo\n"),
    ("sievedb-dump DB/CURRENT", ""),
    ("sievedb-dump TABLE", ""),
    ("sievedb-dump tree DB", ""),
    ("sievedb-dump filter show TABLE", ""),
    ("sievedb-dump filter verify TABLE", ""),
    ("sievedb-dump filter measure TABLE", ""),
    ("sievedb-dump filter plan DB", ""),
];

/// Something that stays as it is while commands run: an open store, a mounted file system.
type Held = Box<dyn std::any::Any>;

struct Situation {
    name: &'static str,
    /// Makes it; `Err` says why it cannot be made here.
    make: fn(&Place) -> Result<Held, String>,
    /// Commands run as somebody who owns nothing.
    as_nobody: bool,
}

const SITUATIONS: [Situation; 16] = [
    Situation { name: "no such directory", make: |_| nothing(), as_nobody: false },
    Situation {
        name: "a file instead of a directory",
        make: |place| std::fs::write(&place.db, "a file").map_or_else(failed, |()| nothing()),
        as_nobody: false,
    },
    Situation {
        name: "an empty directory",
        make: |place| std::fs::create_dir(&place.db).map_or_else(failed, |()| nothing()),
        as_nobody: false,
    },
    Situation {
        name: "an empty store",
        make: |place| {
            drop(Db::open(&place.db).unwrap());
            nothing()
        },
        as_nobody: false,
    },
    Situation { name: "a sound store", make: |place| with_store(place, |_| {}), as_nobody: false },
    Situation {
        name: "a store that another program writes to",
        make: |place| {
            fill(place);
            Ok(Box::new(Db::open(&place.db).unwrap()))
        },
        as_nobody: false,
    },
    Situation {
        name: "a store that another program reads",
        make: |place| {
            fill(place);
            Ok(Box::new(Options::new().read_only().open(&place.db).unwrap()))
        },
        as_nobody: false,
    },
    Situation {
        name: "a damaged data block",
        make: |place| with_store(place, |place| flip(&path_of(place, ".sst"), |_| 200)),
        as_nobody: false,
    },
    Situation {
        name: "a damaged filter",
        make: |place| {
            with_store(place, |place| {
                flip(&path_of(place, ".sst"), |bytes| {
                    let is_filter = |at: &usize| bytes[*at..].starts_with(b"\x89SVFLT\r\n");
                    (0..bytes.len()).step_by(64).find(is_filter).expect("the table has a filter") + 40
                });
            })
        },
        as_nobody: false,
    },
    Situation {
        name: "a missing table",
        make: |place| with_store(place, |place| std::fs::remove_file(path_of(place, ".sst")).unwrap()),
        as_nobody: false,
    },
    Situation {
        name: "a damaged log",
        make: |place| with_store(place, |place| flip(&path_of(place, ".wal"), |_| 100)),
        as_nobody: false,
    },
    Situation {
        name: "a damaged manifest",
        make: |place| with_store(place, |place| flip(&path_of(place, "MANIFEST"), |_| 100)),
        as_nobody: false,
    },
    Situation {
        name: "a missing CURRENT",
        make: |place| with_store(place, |place| std::fs::remove_file(path_of(place, "CURRENT")).unwrap()),
        as_nobody: false,
    },
    Situation {
        name: "no permission to read",
        make: |place| with_store(place, |place| permit(place, 0o000, 0o000)),
        as_nobody: true,
    },
    Situation {
        name: "permission to read, none to write",
        make: |place| with_store(place, |place| permit(place, 0o555, 0o444)),
        as_nobody: true,
    },
    Situation { name: "a full disk", make: full_disk, as_nobody: false },
];

fn nothing() -> Result<Held, String> {
    Ok(Box::new(()))
}

fn failed(error: std::io::Error) -> Result<Held, String> {
    Err(error.to_string())
}

/// The files of a store with a table and a log.
static STORE: LazyLock<BTreeMap<String, Vec<u8>>> = LazyLock::new(|| {
    let place = place();
    let db = Options::new().background_threads(0).open(&place.db).unwrap();
    for n in 0..1000 {
        db.put(format!("key{n:05}"), format!("value {n}")).unwrap();
    }
    db.compact().unwrap();
    db.put("later", "in the log").unwrap();
    db.close().unwrap();
    place.files()
});

/// The name of its table.
static TABLE: LazyLock<&str> =
    LazyLock::new(|| STORE.keys().find(|name| name.ends_with(".sst")).expect("the store has a table"));

fn fill(place: &Place) {
    std::fs::create_dir_all(&place.db).unwrap();
    for (name, bytes) in &*STORE {
        std::fs::write(Path::new(&place.db).join(name), bytes).unwrap();
    }
}

fn with_store(place: &Place, change: fn(&Place)) -> Result<Held, String> {
    fill(place);
    change(place);
    nothing()
}

fn path_of(place: &Place, part: &str) -> PathBuf {
    let mut found: Vec<_> =
        std::fs::read_dir(&place.db).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.file_name().unwrap().to_str().unwrap().contains(part));
    assert_eq!(found.len(), 1, "{part}: {found:?}");
    found.remove(0)
}

fn flip(path: &Path, place: impl FnOnce(&[u8]) -> usize) {
    let mut bytes = std::fs::read(path).unwrap();
    let place = place(&bytes);
    bytes[place] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

fn permit(place: &Place, dir: u32, files: u32) {
    let set =
        |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    set(place.folder.path(), 0o755);
    let entries: Vec<_> = std::fs::read_dir(&place.db).unwrap().collect();
    entries.into_iter().for_each(|entry| set(&entry.unwrap().path(), files));
    set(Path::new(&place.db), dir);
}

/// A file system of its own that has no room left. Only where this user may mount one.
fn full_disk(place: &Place) -> Result<Held, String> {
    struct Mounted(String);
    impl Drop for Mounted {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg(&self.0).status();
        }
    }
    std::fs::create_dir(&place.db).unwrap();
    let mount = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=256k", "tmpfs", &place.db])
        .stderr(Stdio::null())
        .status();
    if !mount.is_ok_and(|status| status.success()) {
        return Err("a file system of its own cannot be mounted here".into());
    }
    let mounted = Mounted(place.db.clone());
    fill(place);
    let mut hole = std::fs::File::create(Path::new(&place.db).join("ballast")).unwrap();
    while std::io::Write::write_all(&mut hole, &[0; 4096]).is_ok() {}
    Ok(Box::new(mounted))
}

/// A command as somebody else, so that permissions count: the superuser has them all.
fn as_nobody(mut command: Command, place: &Place) -> Command {
    if std::fs::metadata(place.folder.path()).unwrap().uid() == 0 {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

/// Why commands cannot be run as somebody else here, if so.
fn check_nobody(place: &Place) -> Result<(), String> {
    let can = |command: Command| {
        let status = as_nobody(command, place).stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    if !can(command(&["--version"])) {
        return Err("the program cannot be run by somebody who is not the superuser".into());
    }
    // A folder for temporary files may be its owner's alone.
    let mut list = Command::new("ls");
    list.arg(place.folder.path());
    if !can(list) {
        return Err("the store's parent folder cannot be reached by somebody who is not the superuser".into());
    }
    Ok(())
}

fn try_all(situation: &Situation) -> Result<String, String> {
    let mut table = format!("== {}\n", situation.name);
    for (line, input) in COMMANDS {
        let place = place();
        let held = (situation.make)(&place)?;
        let input_path = place.folder.path().join("input");
        std::fs::write(&input_path, input).unwrap();
        let line_here = line.replace("TABLE", &format!("DB/{}", *TABLE));
        let line_here = line_here.replace("INPUT", input_path.to_str().unwrap()).replace("DB", &place.db);
        let args: Vec<&str> = line_here.split(' ').collect();
        let mut command = match &args[..] {
            ["sievedb-dump", args @ ..] => dump_command(args),
            args => command(args),
        };
        if situation.as_nobody {
            check_nobody(&place)?;
            command = as_nobody(command, &place);
        }
        let output = command.stdin(std::fs::File::open(&input_path).unwrap()).output().unwrap();
        drop(held);
        if situation.as_nobody {
            // So that it can be removed.
            std::fs::set_permissions(&place.db, std::fs::Permissions::from_mode(0o700)).unwrap();
        }
        writeln!(table, "{line:22} {}", output.status.code().expect("it is ended by no signal")).unwrap();
        for (mark, bytes) in [('|', output.stdout), ('!', output.stderr)] {
            let text = String::from_utf8(bytes).expect("output is text").replace(&place.db, "DB");
            let text = text.replace(input_path.to_str().unwrap(), "INPUT");
            let shown = if line.starts_with("verify") { usize::MAX } else { 3 };
            for line in text.lines().take(shown) {
                writeln!(table, "    {mark} {}", plain(line)).unwrap();
            }
            if text.lines().count() > shown {
                writeln!(table, "    {mark} …").unwrap();
            }
        }
    }
    Ok(table)
}

/// A line without what is not the same twice.
fn plain(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let mut out = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let is_far = at > 0 && words[at - 1] == "offset" && bare.len() > 3;
        let next = words.get(at + 1).map_or("", |word| word.trim_end_matches([',', ';', ':', ')']));
        let is_measured = matches!(next, "B" | "KiB" | "MiB" | "s" | "bytes" | "wasted")
            || words[at + 1..].starts_with(&["keys", "a", "second"]);
        let is_hex = bare.len() >= 8
            && bare.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        out.push(match () {
            () if is_hex => word.replace(bare, "########"),
            () if is_far => word.replace(bare, "#"),
            () if is_measured && bare.starts_with(|c: char| c.is_ascii_digit()) => word.replace(bare, "#"),
            () => (*word).to_owned(),
        });
    }
    out.join(" ")
}

#[test]
fn every_command_says_what_is_the_matter_in_every_situation() {
    let golden = std::fs::read_to_string(GOLDEN).unwrap_or_default();
    let known = |name: &str| {
        let start = golden.find(&format!("== {name}\n"))?;
        let end = golden[start + 3..].find("\n== ").map_or(golden.len(), |len| start + 3 + len + 1);
        Some(&golden[start..end])
    };
    let mut all = String::new();
    let mut different = String::new();
    for situation in &SITUATIONS {
        let expected = known(situation.name).unwrap_or_default();
        match try_all(situation) {
            Ok(found) => {
                if found.trim_end() != expected.trim_end() {
                    writeln!(different, "expected\n{expected}\nfound\n{found}").unwrap();
                }
                all.push_str(&found);
            }
            Err(why) => {
                println!("skipped: {}: {why}", situation.name);
                all.push_str(expected.trim_end());
                all.push('\n');
            }
        }
        all.push('\n');
    }
    if std::env::var_os("SIEVEDB_BLESS").is_some() {
        std::fs::create_dir_all(Path::new(GOLDEN).parent().unwrap()).unwrap();
        std::fs::write(GOLDEN, all.trim_end().to_owned() + "\n").unwrap();
    } else {
        assert!(different.is_empty(), "{different}");
    }
}
