//! What bytes are, without knowing it before.

use crate::bloom::Bloom;
use crate::counting::Counting;
use crate::envelope::{DecodeError, Envelope, Kind};
use crate::sketch::{Parts, Sketch, Summary};
use crate::spectral::Spectral;

/// Decodes a structure of any kind and says what it is. Linear in its size.
///
/// # Errors
///
/// As [`Sketch::decode`].
pub fn describe(bytes: &[u8]) -> Result<Summary, DecodeError> {
    let parts = Parts(Envelope::open(bytes)?);
    match parts.0.kind {
        Kind::Bloom => summary::<Bloom>(parts),
        Kind::Counting => summary::<Counting>(parts),
        Kind::Spectral => summary::<Spectral>(parts),
    }
}

fn summary<S: Sketch>(parts: Parts<'_>) -> Result<Summary, DecodeError> {
    S::from_parts(parts).map(|sketch| sketch.summary())
}
