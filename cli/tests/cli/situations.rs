//! Output and exit code of every command in many situations: `tests/golden/situations.txt`, with the first three lines of an
//! output, and all of `verify` and `repair`. Varying values are replaced: the directory by `DB`, checksums by `########`, points
//! in time by `TIME`, sizes, times, rates and the offsets of filters by `#`. `SIEVEDB_BLESS=1 cargo test -p sievedb-cli
//! situations` writes it again; read it before you commit it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use sievedb::{Db, Options};

use crate::tool::{TempStore, command, dump_command, temp_store};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/situations.txt");

const NOBODY: u32 = 65534;

/// Commands of `sievedb`, unless `sievedb-dump` is named, and their input. `DB` is the store, `INPUT` a file with the input,
/// `TABLE` the store's table.
const COMMANDS: [(&str, &str); 28] = [
    ("get DB key00000", ""),
    ("get DB none", ""),
    ("get DB -", "key00000\nnone\n"),
    ("contains DB key00000", ""),
    ("contains DB -", "key00000\nnone\n"),
    ("scan DB --limit 1", ""),
    ("count DB", ""),
    ("keyspaces DB", ""),
    ("stats DB", ""),
    ("verify DB", ""),
    ("diff DB DB", ""),
    ("digest DB --output /dev/null", ""),
    ("put DB key00000 new", ""),
    ("delete DB key00000", ""),
    ("delete DB -", "key00000\n"),
    ("load DB -", "key00000\tnew\n"),
    ("compact DB", ""),
    ("refilter DB", ""),
    ("repair DB --into DB.new", ""),
    ("demo DB --from INPUT", "one\ntwo\n"),
    ("sievedb-dump DB/CURRENT", ""),
    ("sievedb-dump TABLE", ""),
    ("sievedb-dump DB", ""),
    ("sievedb-dump tree DB", ""),
    ("sievedb-dump filter show TABLE", ""),
    ("sievedb-dump filter verify TABLE", ""),
    ("sievedb-dump filter measure TABLE", ""),
    ("sievedb-dump filter plan DB", ""),
];

type Held = Box<dyn std::any::Any>;

struct Situation {
    name: &'static str,
    make: fn(&TempStore) -> Result<Held, String>,
    as_nobody: bool,
}

const SITUATIONS: [Situation; 16] = [
    Situation { name: "no such directory", make: |_| nothing(), as_nobody: false },
    Situation {
        name: "a file instead of a directory",
        make: |store| std::fs::write(&store.db, "a file").map_or_else(failed, |()| nothing()),
        as_nobody: false,
    },
    Situation {
        name: "an empty directory",
        make: |store| std::fs::create_dir(&store.db).map_or_else(failed, |()| nothing()),
        as_nobody: false,
    },
    Situation {
        name: "an empty store",
        make: |store| {
            drop(Db::open(&store.db).unwrap());
            nothing()
        },
        as_nobody: false,
    },
    Situation { name: "a sound store", make: |store| with_store(store, |_| {}), as_nobody: false },
    Situation {
        name: "a store that another program writes to",
        make: |store| {
            fill(store);
            Ok(Box::new(Db::open(&store.db).unwrap()))
        },
        as_nobody: false,
    },
    Situation {
        name: "a store that another program reads",
        make: |store| {
            fill(store);
            Ok(Box::new(Options::new().read_only().open(&store.db).unwrap()))
        },
        as_nobody: false,
    },
    Situation {
        name: "a damaged data block",
        make: |store| with_store(store, |store| flip(&path_of(store, ".sst"), |_| 200)),
        as_nobody: false,
    },
    Situation {
        name: "a damaged filter",
        make: |store| {
            with_store(store, |store| {
                flip(&path_of(store, ".sst"), |bytes| {
                    let is_filter = |at: &usize| bytes[*at..].starts_with(b"\x89SVFLT\r\n");
                    (0..bytes.len()).step_by(64).find(is_filter).expect("the table has a filter") + 40
                });
            })
        },
        as_nobody: false,
    },
    Situation {
        name: "a missing table",
        make: |store| with_store(store, |store| std::fs::remove_file(path_of(store, ".sst")).unwrap()),
        as_nobody: false,
    },
    Situation {
        name: "a damaged log",
        make: |store| with_store(store, |store| flip(&path_of(store, ".wal"), |_| 100)),
        as_nobody: false,
    },
    Situation {
        name: "a damaged manifest",
        make: |store| with_store(store, |store| flip(&path_of(store, "MANIFEST"), |_| 100)),
        as_nobody: false,
    },
    Situation {
        name: "a missing CURRENT",
        make: |store| with_store(store, |store| std::fs::remove_file(path_of(store, "CURRENT")).unwrap()),
        as_nobody: false,
    },
    Situation {
        name: "no permission to read",
        make: |store| with_store(store, |store| permit(store, 0o000, 0o000)),
        as_nobody: true,
    },
    Situation {
        name: "permission to read, none to write",
        make: |store| with_store(store, |store| permit(store, 0o555, 0o444)),
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

static STORE: LazyLock<BTreeMap<String, Vec<u8>>> = LazyLock::new(|| {
    let store = temp_store();
    let db = Options::new().background_threads(0).open(&store.db).unwrap();
    for n in 0..1000 {
        db.put(format!("key{n:05}"), format!("value {n}")).unwrap();
    }
    db.compact().unwrap();
    db.put("later", "in the log").unwrap();
    db.close().unwrap();
    store.files()
});

static TABLE: LazyLock<&str> =
    LazyLock::new(|| STORE.keys().find(|name| name.ends_with(".sst")).expect("the store has a table"));

fn fill(store: &TempStore) {
    std::fs::create_dir_all(&store.db).unwrap();
    for (name, bytes) in &*STORE {
        std::fs::write(Path::new(&store.db).join(name), bytes).unwrap();
    }
}

fn with_store(store: &TempStore, change: fn(&TempStore)) -> Result<Held, String> {
    fill(store);
    change(store);
    nothing()
}

fn path_of(store: &TempStore, part: &str) -> PathBuf {
    let mut found: Vec<_> =
        std::fs::read_dir(&store.db).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.file_name().unwrap().to_str().unwrap().contains(part));
    assert_eq!(found.len(), 1, "{part}: {found:?}");
    found.remove(0)
}

fn flip(path: &Path, offset: impl FnOnce(&[u8]) -> usize) {
    let mut bytes = std::fs::read(path).unwrap();
    let offset = offset(&bytes);
    bytes[offset] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

fn permit(store: &TempStore, dir: u32, files: u32) {
    let set =
        |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    set(store.folder.path(), 0o755);
    let entries: Vec<_> = std::fs::read_dir(&store.db).unwrap().collect();
    entries.into_iter().for_each(|entry| set(&entry.unwrap().path(), files));
    set(Path::new(&store.db), dir);
}

/// A file system in memory.
pub(crate) struct Disk(String);

impl Disk {
    pub(crate) fn mount(dir: &str, size: &str) -> Result<Self, String> {
        std::fs::create_dir(dir).unwrap();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs", dir])
            .stderr(Stdio::null())
            .status();
        if !mount.is_ok_and(|status| status.success()) {
            return Err("a file system of its own cannot be mounted here".into());
        }
        Ok(Self(dir.to_owned()))
    }

    pub(crate) fn fill(&self) {
        let mut ballast = std::fs::File::create(Path::new(&self.0).join("ballast")).unwrap();
        while std::io::Write::write_all(&mut ballast, &[0; 4096]).is_ok() {}
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

fn full_disk(store: &TempStore) -> Result<Held, String> {
    let disk = Disk::mount(&store.db, "256k")?;
    fill(store);
    disk.fill();
    Ok(Box::new(disk))
}

/// The superuser ignores permissions.
fn as_nobody(mut command: Command, store: &TempStore) -> Command {
    if std::fs::metadata(store.folder.path()).unwrap().uid() == 0 {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

fn check_nobody(store: &TempStore) -> Result<(), String> {
    let can = |command: Command| {
        let status = as_nobody(command, store).stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    if !can(command(&["--version"])) {
        return Err("only the superuser can run the program".into());
    }
    // A temporary folder may be restricted to its owner.
    let mut list = Command::new("ls");
    list.arg(store.folder.path());
    if !can(list) {
        return Err("only the superuser can reach the parent folder of the store".into());
    }
    Ok(())
}

fn try_all(situation: &Situation) -> Result<String, String> {
    let mut table = format!("== {}\n", situation.name);
    for (line, input) in COMMANDS {
        let store = temp_store();
        let held = (situation.make)(&store)?;
        let input_path = store.folder.path().join("input");
        std::fs::write(&input_path, input).unwrap();
        let line_here = line.replace("TABLE", &format!("DB/{}", *TABLE));
        let line_here = line_here.replace("INPUT", input_path.to_str().unwrap()).replace("DB", &store.db);
        let args: Vec<&str> = line_here.split(' ').collect();
        let mut command = match &args[..] {
            ["sievedb-dump", args @ ..] => dump_command(args),
            args => command(args),
        };
        if situation.as_nobody {
            check_nobody(&store)?;
            command = as_nobody(command, &store);
        }
        let output = command.stdin(std::fs::File::open(&input_path).unwrap()).output().unwrap();
        drop(held);
        if situation.as_nobody {
            std::fs::set_permissions(&store.db, std::fs::Permissions::from_mode(0o700)).unwrap();
        }
        writeln!(table, "{line:22} {}", output.status.code().expect("it is ended by no signal")).unwrap();
        for (mark, bytes) in [('|', output.stdout), ('!', output.stderr)] {
            let text = String::from_utf8(bytes).expect("output is text").replace(&store.db, "DB");
            let text = text.replace(input_path.to_str().unwrap(), "INPUT");
            let is_whole = line.starts_with("verify") || line.starts_with("repair");
            let shown = if is_whole { usize::MAX } else { 3 };
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

fn plain(line: &str) -> String {
    // Another thread creates RESERVE.
    let line = if line.starts_with("on disk") { line.replace("KiB", "B") } else { line.into() };
    let words: Vec<&str> = line.split(' ').collect();
    let mut out = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let is_far = at > 0 && words[at - 1] == "offset" && bare.len() > 3;
        let next = words.get(at + 1).map_or("", |word| word.trim_end_matches([',', ';', ':', ')']));
        let is_measured = matches!(next, "B" | "KiB" | "MiB" | "s" | "bytes" | "wasted" | "%")
            || words[at + 1..].starts_with(&["lines", "a", "second;"]);
        let is_hex = bare.len() >= 8
            && bare.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        let is_time = bare.len() == 20 && bare.ends_with('Z') && bare.contains('T');
        out.push(match () {
            () if is_time => word.replace(bare, "TIME"),
            () if is_hex => word.replace(bare, "########"),
            () if is_far => word.replace(bare, "#"),
            () if is_measured && !word.starts_with('(') && bare.starts_with(|c: char| c.is_ascii_digit()) => {
                word.replace(bare, "#")
            }
            () => (*word).to_owned(),
        });
    }
    out.join(" ")
}

#[test]
fn every_command_prints_the_output_in_the_table_in_every_situation() {
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
