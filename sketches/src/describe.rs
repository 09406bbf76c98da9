use crate::approximator::{Approximator, Flags, Lattice, Max, lattice_id};
use crate::bloom::Bloom;
use crate::counting::Counting;
use crate::cuckoo::Cuckoo;
use crate::difference_size::DifferenceSize;
use crate::digest::Digest;
use crate::dleft::DLeft;
use crate::envelope::{DecodeError, Envelope, Kind};
use crate::expiring::Expiring;
use crate::golomb::GolombSet;
use crate::hash_compaction::HashCompaction;
use crate::iblt::Iblt;
use crate::rateless::Rateless;
use crate::ring::Ring;
use crate::scalable::Scalable;
use crate::sketch::{Parts, Sketch, Summary};
use crate::spectral::Spectral;
use crate::stable::Stable;
use crate::static_map::StaticMap;

/// Decodes a structure of any kind and returns its summary. Linear.
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
        Kind::DLeft => summary::<DLeft>(parts),
        Kind::Scalable => summary::<Scalable>(parts),
        Kind::Stable => summary::<Stable>(parts),
        Kind::Ring => summary::<Ring>(parts),
        Kind::Expiring => summary::<Expiring>(parts),
        Kind::Cuckoo => summary::<Cuckoo>(parts),
        Kind::HashCompaction => summary::<HashCompaction>(parts),
        Kind::GolombSet => summary::<GolombSet>(parts),
        Kind::StaticMap => summary::<StaticMap>(parts),
        Kind::Approximator => match lattice_id(&parts.0)? {
            Flags::ID => summary::<Approximator<Flags>>(parts),
            _ => summary::<Approximator<Max>>(parts),
        },
        Kind::Iblt => summary::<Iblt>(parts),
        Kind::Rateless => summary::<Rateless>(parts),
        Kind::DifferenceSize => summary::<DifferenceSize>(parts),
        Kind::Digest => summary::<Digest>(parts),
    }
}

fn summary<S: Sketch>(parts: Parts<'_>) -> Result<Summary, DecodeError> {
    S::from_parts(parts).map(|sketch| sketch.summary())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::reseal;

    #[test]
    fn the_error_of_a_damaged_approximator_is_that_of_its_own_lattice() {
        let max = Approximator::<Max>::with_shape(10, 3, 1).unwrap();
        assert!(describe(&max.encode()).unwrap().to_string().contains("max"));
        let flags = Approximator::<Flags>::with_shape(10, 3, 1).unwrap();
        assert!(describe(&flags.encode()).unwrap().to_string().contains("flags"));
        let mut bytes = max.encode();
        bytes[56..64].fill(0);
        reseal(&mut bytes);
        let error = describe(&bytes).unwrap_err().to_string();
        assert!(error.contains("approximator probes"), "{error}");
    }
}
