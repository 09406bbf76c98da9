//! Background work, in the store's threads and in waiting callers' threads.
//!
//! | file | responsibility |
//! |---|---|
//! | `background` | the search for a job; `step` |
//! | `flush_and_compact`, `refilter`, `filter_memory` | the jobs |
//! | `expire` | raises horizons, drops expired tables |
//! | `maintain` | waiting calls: flush, settle |
//! | `compact`, `refilter_keyspace`, `open_all` | work on whole keyspaces in a caller's thread |

mod background;
mod compact;
mod expire;
mod filter_memory;
mod flush_and_compact;
mod maintain;
mod open_all;
mod refilter;
mod refilter_keyspace;

#[cfg(test)]
mod range_deletes;
