//! The read calls of transactions and readable batches.

use super::handle::{KeyspaceTransaction, Transaction};
use super::indexed_batch::BatchView;
use crate::db::handles::iteration::cursor::Cursor;
use crate::db::handles::iteration::iter::{Iter, Keys, Scan, Values};
use crate::db::handles::read_calls::{into_iterators, read_calls};
use crate::db::queues::value::Value;
use crate::error::Result;
use crate::snapshot_read::{KeyBounds, KeyRange};

read_calls! {
    [] BatchView => 'static;
    [] Transaction => '_;
    ['t] KeyspaceTransaction<'t> => 't;
}

into_iterators! {
    [] &BatchView => 'static;
    ['t] &'t Transaction => 't;
    ['t] &KeyspaceTransaction<'t> => 't;
}
