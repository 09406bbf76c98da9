//! The command-line tools of SieveDB, as a library of its two programs (`src/bin`): so that one can write
//! the man pages and completions of both.
//!
//! | file | what |
//! |---|---|
//! | `shell` | the command `sievedb`: its commands are the files of `commands` |
//! | `dump` | the command `sievedb-dump` |
//! | `failure` | why a command ends early, and with which exit code |
//! | `store` | opening a store the way a command may |
//! | `bulk` | writing what many lines say, and being interrupted at it |
//! | `escape`, `json`, `lines` | bytes as text: what is printed, what is read |
//! | `output` | standard output that may be closed at any time |
//! | `progress`, `units` | what is for people: bars, and numbers they can read |

mod bulk;
mod commands;
pub mod dump;
mod escape;
mod failure;
mod json;
mod lines;
mod output;
mod progress;
pub mod shell;
mod store;
mod units;
