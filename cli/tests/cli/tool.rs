use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Outcome {
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert!(self.code == Some(0) && self.stderr.is_empty(), "{self:?}");
        String::from_utf8(self.stdout).expect("output is printable")
    }

    #[track_caller]
    pub(crate) fn differs(self) -> String {
        assert!(self.code == Some(1) && self.stderr.is_empty(), "{self:?}");
        String::from_utf8(self.stdout).expect("output is printable")
    }

    /// Succeeds, with a note that it created this keyspace.
    #[track_caller]
    pub(crate) fn creates(self, keyspace: &str) -> String {
        let note = format!("sievedb: note: created keyspace \"{keyspace}\"\n");
        assert_eq!((self.code, &self.stderr), (Some(0), &note));
        String::from_utf8(self.stdout).expect("output is printable")
    }

    #[track_caller]
    pub(crate) fn fails(self, code: i32) -> String {
        assert!(self.code == Some(code) && self.stdout.is_empty(), "{self:?}");
        self.stderr
    }
}

pub(crate) fn command<S: AsRef<OsStr>>(args: &[S]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sievedb"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub(crate) fn dump_command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sievedb-dump"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub(crate) fn run<S: AsRef<OsStr>>(args: &[S]) -> Outcome {
    run_with(args, b"")
}

pub(crate) fn run_with<S: AsRef<OsStr>>(args: &[S], input: &[u8]) -> Outcome {
    let mut child = command(args).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let stderr = String::from_utf8(output.stderr).expect("messages are text");
    Outcome { code: output.status.code(), stdout: output.stdout, stderr }
}

/// A temporary folder, and the path of a new store in it.
pub(crate) struct TempStore {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) db: String,
}

pub(crate) fn temp_store() -> TempStore {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("db").to_str().unwrap().to_owned();
    TempStore { folder, db }
}

impl TempStore {
    #[track_caller]
    pub(crate) fn load(&self, lines: &[u8]) -> String {
        run_with(&["load", &self.db, "-", "--escaped"], lines).ok()
    }

    pub(crate) fn files(&self) -> BTreeMap<String, Vec<u8>> {
        self.paths().map(|path| (name(&path), std::fs::read(&path).unwrap())).collect()
    }

    pub(crate) fn paths_of(&self, ending: &str) -> Vec<PathBuf> {
        self.paths().filter(|path| name(path).ends_with(ending)).collect()
    }

    fn paths(&self) -> impl Iterator<Item = PathBuf> + use<> {
        std::fs::read_dir(&self.db).unwrap().map(|entry| entry.unwrap().path())
    }
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

pub(crate) struct Conversation {
    child: Child,
    stdin: Option<ChildStdin>,
    answers: Receiver<String>,
}

impl Conversation {
    pub(crate) fn begin(args: &[&str]) -> Self {
        let mut child = command(args).stdin(Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.take();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (send, answers) = channel();
        std::thread::spawn(
            move || while lines.next().is_some_and(|line| send.send(line.unwrap()).is_ok()) {},
        );
        Self { child, stdin, answers }
    }

    pub(crate) fn send(&mut self, text: &str) {
        self.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// Fails after a minute without an answer.
    #[track_caller]
    pub(crate) fn receive(&self) -> String {
        self.answers.recv_timeout(Duration::from_secs(60)).expect("no answer within a minute")
    }

    pub(crate) fn end(self) {
        assert_eq!(self.end_with(), Some(0));
    }

    /// Ends the input. Returns the exit code.
    pub(crate) fn end_with(mut self) -> Option<i32> {
        drop(self.stdin.take());
        let code = self.child.wait().unwrap().code();
        assert_eq!(self.answers.recv().ok(), None);
        code
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
