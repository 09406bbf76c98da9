//! Refused inserts that restart the time to live of their keys ([`Refresh::OnSight`](crate::Refresh::OnSight)).
//!
//! If a present key's entry is in an older bucket of time, the key is written again with its value, once per bucket.
//! A concurrent write of the key has the same effect, so no retry is needed. The insert's answer does not depend on
//! this write.

use std::slice;
use std::sync::Arc;

use super::conditional_loop::{Conditional, Look};
use crate::batch::WriteBatch;
use crate::db::engine::Engine;
use crate::db::queues::bits::Bits;
use crate::db::queues::condition::{Admitted, AskedKey, Condition, Rule};
use crate::db::queues::value::Value;
use crate::db::state::expiry::horizons::Past;
use crate::db::state::keyspace::tree::Tree;
use crate::db::state::log::LogPosition;
use crate::error::Result;
use crate::hash::key_hash;

const BATCH_BYTES: usize = 1 << 20;

struct Seen<'t, 'k> {
    tree: &'t Arc<Tree>,
    keys: &'t [&'k [u8]],
    taken: usize,
}

impl Conditional for Seen<'_, '_> {
    type Answer = ();

    fn look(&mut self, engine: &Engine, read_at: Past) -> Result<Look<()>> {
        let (mut batch, mut asked) = (WriteBatch::new(), Vec::new());
        let Some(begins_at) = engine.open_bucket(self.tree)? else { return Ok(Look::Answer(())) };
        self.taken = 0;
        for key in self.keys {
            if batch.size_bytes() >= BATCH_BYTES {
                break;
            }
            self.taken += 1;
            let found = engine.look_up_entry(self.tree, key, None, |seqno, value| {
                if seqno >= begins_at { Ok(None) } else { Value::read(value).map(Some) }
            })?;
            let Some(value) = found.flatten() else { continue };
            if let Some(place) = batch.add_put(self.tree.id, key, &value) {
                asked.push(AskedKey { place, hash: Some(key_hash(engine.keyspaces.hash_seed, key)) });
            }
        }
        if asked.is_empty() {
            return Ok(Look::Answer(()));
        }
        let writes = asked.iter().map(|_| true).collect::<Bits>();
        let (bytes, ..) = batch.into_parts()?;
        Admitted::conditional(self.tree, bytes, read_at, Rule::Unchanged, asked, writes).map(Look::Ask)
    }

    fn decided(&mut self, _: &Engine, condition: Condition, _: Vec<u8>) -> Result<Option<()>> {
        Ok((!condition.is_undecided()).then_some(()))
    }
}

impl Engine {
    /// Returns the log position up to which a sync makes these writes durable. A failure is only traced: the entries
    /// expire earlier.
    pub(super) fn note_seen<'k>(
        &self,
        tree: &Arc<Tree>,
        keys: impl IntoIterator<Item = &'k [u8]>,
    ) -> Option<LogPosition> {
        let mut keys: Vec<&[u8]> = keys.into_iter().collect();
        keys.sort_unstable();
        keys.dedup();
        let (mut left, mut up_to) = (&keys[..], None);
        while !left.is_empty() {
            let mut call = Seen { tree, keys: left, taken: 0 };
            match self.conditional(slice::from_ref(tree), &mut call) {
                Ok(((), position)) => up_to = up_to.max(position),
                Err(error) => {
                    tracing::warn!(keyspace = tree.name, %error, "the time of seen keys could not be restarted");
                    break;
                }
            }
            left = &left[call.taken.max(1)..];
        }
        up_to
    }
}
