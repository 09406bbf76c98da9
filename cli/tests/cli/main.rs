//! The commands end to end: the built binaries, their output, exit codes and files.

#![expect(clippy::disallowed_methods, reason = "tests spell out keys and the bytes that they expect")]

mod answers;
mod backups;
mod browser;
mod damage;
mod demo;
mod diff;
mod dump;
mod entries;
mod expiry;
mod keyspaces;
mod lines;
mod opening;
mod repair;
mod report;
#[cfg(target_os = "linux")]
mod situations;
mod tool;
mod uniq;
#[cfg(unix)]
mod unix;
mod verify;
