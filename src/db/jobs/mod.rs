mod background;
mod compact;
mod filter_memory;
mod flush_and_compact;
mod maintain;
mod open_all;
mod refilter;
mod refilter_keyspace;
