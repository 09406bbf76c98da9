//! The command-line tools of SieveDB: one library, so that `sievedb` can write the manual pages and completions of both
//! programs.
//!
//! | file | noun |
//! |---|---|
//! | `shell` | the command `sievedb`: its commands are the files of `commands` |
//! | `dump` | the command `sievedb-dump` |
//! | `failure` | why a command ends early, and its exit code |
//! | `store` | opening a store, and sums over its keyspaces |
//! | `bulk` | writing many lines, and being interrupted |
//! | `interrupt` | work that ends soon when it is interrupted |
//! | `signals` | signals that must not end a command without a message |
//! | `escape`, `json` | bytes as text |
//! | `arguments`, `keys`, `bounds` | keys, values and ranges of keys in arguments |
//! | `describe` | options of a keyspace as text |
//! | `lines`, `line_format`, `line_key` | input lines, their format, the key of a line |
//! | `whole_file` | files that are read and written as a whole |
//! | `journal` | a file of lines, each written exactly once |
//! | `output` | standard output that may be closed at any time |
//! | `window` | the time to live of entries |
//! | `progress` | progress bars |

mod arguments;
mod bounds;
mod bulk;
mod commands;
mod describe;
pub mod dump;
mod escape;
mod failure;
mod interrupt;
mod journal;
mod json;
mod keys;
mod line_format;
mod line_key;
mod lines;
mod output;
mod progress;
pub mod shell;
mod signals;
mod store;
mod whole_file;
mod window;

use sievedb_report::units;
