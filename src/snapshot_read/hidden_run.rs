//! A sequence of hidden keys: the jump over later ones, and the claim on the passed ones.

use super::empty_ranges::{Claim, Edge, Known};
use crate::key::SeqNo;

/// After this many hidden keys in a row, a half looks for an empty range, and claims the passed keys.
pub(super) const HIDDEN_MAX: usize = 16;

#[derive(Clone)]
pub(crate) struct Moment {
    pub(super) seqno: SeqNo,
    known: Option<Known>,
}

pub(super) struct HiddenRun {
    moment: Moment,
    upward: bool,
    hidden: usize,
    first: Vec<u8>,
    claim: Option<Claim>,
}

impl Moment {
    /// `known` was taken before the view was loaded.
    pub(crate) fn new(seqno: SeqNo, known: Known) -> Self {
        Self { seqno, known: Some(known) }
    }

    pub(crate) fn seqno(&self) -> SeqNo {
        self.seqno
    }
}

impl From<SeqNo> for Moment {
    fn from(seqno: SeqNo) -> Self {
        Self { seqno, known: None }
    }
}

impl HiddenRun {
    pub(super) fn new(moment: Moment, upward: bool) -> Self {
        Self { moment, upward, hidden: 0, first: Vec::new(), claim: None }
    }

    pub(super) fn begin(&mut self) {
        self.hidden = 0;
        self.first.clear();
        self.claim = None;
    }

    #[inline]
    pub(super) fn pass(&mut self, key: &[u8]) -> Option<Edge> {
        if self.hidden == 0 && self.first.is_empty() {
            self.first.extend_from_slice(key);
        }
        self.hidden += 1;
        if self.hidden.is_multiple_of(HIDDEN_MAX) { self.jump(key) } else { None }
    }

    #[inline(never)]
    fn jump(&mut self, key: &[u8]) -> Option<Edge> {
        let Moment { seqno, known } = &self.moment;
        let known = known.as_ref()?;
        let edge = known.end_of(key, *seqno, self.upward);
        match &edge {
            Some(_) => self.hidden = 0,
            None if self.claim.is_none() => self.claim = known.claim(&self.first, *seqno, self.upward),
            None => {}
        }
        edge
    }

    #[inline]
    pub(super) fn end(&mut self, edge: impl FnOnce() -> Edge) {
        if let Some(claim) = self.claim.take() {
            claim.end(&edge());
        }
    }
}
