//! Bucket boundaries, which the commit leader writes with the first entries of a keyspace in a new time bucket.

use std::sync::Arc;

use crate::batch::KeyspaceId;
use crate::db::engine::Engine;
use crate::db::generation::expiry::time_by;
use crate::db::queues::commit_queue::{Turn, Wanted};
use crate::db::queues::condition::PartMut;
use crate::db::state::failure::catch;
use crate::db::state::keyspace::tree::Tree;
use crate::error::Result;
use crate::expiry::options::Expiry;
use crate::key::SeqNo;
use crate::sorting::sort_by_key;
use crate::wal::Boundary;

pub(super) struct Begun {
    pub(super) boundaries: Vec<(KeyspaceId, Boundary)>,
    pub(super) first: SeqNo,
}

impl Begun {
    pub(super) fn none(first: SeqNo) -> Self {
        Self { boundaries: Vec::new(), first }
    }
}

impl Engine {
    /// Returns the boundaries to write before a group that begins at `first`. If the clock has just failed, there are
    /// none, and entries live longer.
    #[inline(never)]
    pub(super) fn next_buckets(&self, group: &[PartMut<'_>], first: SeqNo) -> Begun {
        let mut begun = Begun::none(first);
        let trees = group.iter().flat_map(|(_, trees)| trees.iter()).filter(|tree| tree.expires());
        let mut trees: Vec<&Arc<Tree>> = trees.collect();
        sort_by_key(&mut trees, |tree| tree.id);
        trees.dedup_by_key(|tree| tree.id);
        let now = self.clock.read().ok();
        for tree in trees {
            let time = |expiry: Expiry| Some((expiry, time_by(now, tree, &expiry)?));
            let Some((expiry, time)) = tree.expiry().and_then(time) else { continue };
            let next = tree.buckets().next(&expiry, time.now, time.is_doubtful, first);
            begun.boundaries.extend(next.boundaries.into_iter().map(|boundary| (tree.id, boundary)));
            begun.first = begun.first.max(next.first);
        }
        begun
    }

    /// Call before the entries of logged boundaries are visible.
    #[cold]
    pub(super) fn begin_buckets(&self, boundaries: &[(KeyspaceId, Boundary)]) {
        for of_tree in boundaries.chunk_by(|(one, _), (next, _)| one == next) {
            let Some(tree) = self.keyspaces.get(of_tree[0].0) else { continue };
            tree.begin_buckets(of_tree.iter().map(|(_, boundary)| *boundary));
            match tree.expiry() {
                Some(_) if tree.buckets().is_undated() => self.look_at_expiry(),
                Some(expiry) => self.look_at_expiry_at(of_tree[0].1.time.saturating_add(expiry.ttl)),
                None => {}
            }
        }
    }

    pub(in crate::db) fn as_leader<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let Turn::Leads(_) = self.commit.enter(Wanted::Alone) else {
            unreachable!("a request that is alone is carried out by nobody else");
        };
        let done = catch("work of the commit leader", work);
        self.commit.hand_on();
        done.unwrap_or_else(|panic| Err(self.fail(panic)))
    }

    /// Writes the due boundaries of a keyspace, without a batch. Returns whether any was due. Called by the leader
    /// only.
    pub(in crate::db) fn begin_bucket_of(&self, tree: &Arc<Tree>) -> Result<bool> {
        let Some(expiry) = tree.expiry() else { return Ok(false) };
        let Some(time) = self.time_of(tree, &expiry)? else { return Ok(false) };
        let first = self.sequence.visible() + 1;
        let boundaries = tree.buckets().next(&expiry, time.now, time.is_doubtful, first).boundaries;
        if boundaries.is_empty() || !self.lifecycle.is_ready() {
            return Ok(false);
        }
        let all: Vec<_> = boundaries.into_iter().map(|boundary| (tree.id, boundary)).collect();
        self.log_boundaries(&all).map(|()| true)
    }

    pub(in crate::db) fn write_boundary(&self, tree: &Arc<Tree>, time: u64) -> Result<()> {
        self.as_leader(|| {
            let seqno = self.sequence.visible() + 1;
            self.log_boundaries(&[(tree.id, Boundary { time, seqno })])
        })
    }

    fn log_boundaries(&self, all: &[(KeyspaceId, Boundary)]) -> Result<()> {
        self.log().append(all, std::iter::empty()).map_err(|error| self.suspend(error))?;
        self.begin_buckets(all);
        Ok(())
    }
}
