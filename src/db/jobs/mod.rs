//! Background work, in the store's threads and in those of callers that wait for it.
//!
//! | file | responsibility |
//! |---|---|
//! | `background` | which job is next; `step`, which does one |
//! | `flush_and_compact`, `refilter`, `filter_memory` | the jobs |
//! | `expire` | horizons rise, and expired tables are dropped |
//! | `maintain` | `wait_or_work`, and the calls that wait: flush, settle |
//! | `compact`, `refilter_keyspace`, `open_all` | work of a whole keyspace in the thread of a caller |

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
