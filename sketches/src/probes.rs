//! Maps a hash to the positions of `k` of `m` cells.

use crate::hash::{STEP, nth, reduce, remix, spread};

/// Most probes of a structure. The store's filter block has at most 30.
pub(crate) const PROBES_MAX: u64 = 64;

/// The mapping of a hash to the positions of `k` bits. The numbers are on disk: append only.
///
/// `x`, `y` and `z` are 64-bit numbers from the key's hash, whose high bits choose the position. Probe `i` is
/// at
///
/// | | probe `i` | source |
/// |---|---|---|
/// | `Double` | `x + i·y` | Kirsch and Mitzenmacher 2006 |
/// | `Triple` | `x + i·y + i(i-1)/2·z` | Dillinger and Manolios 2004, section 5.2 |
/// | `Enhanced` | `x + i·y + i(i-1)/2·c + i(i-1)(i-2)/6·c` with a constant `c` | the same, section 5.3, scaled |
/// | `Seeded` | hash number `i` | the simplest, and the reference for the others |
///
/// In the limit of large filters `Double` is as good as `Seeded`. Small `Double` filters with low rates are
/// worse than the formula, because keys that share two bits may share all. `Triple` and `Enhanced` do not
/// have that floor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u8)]
pub enum Hashing {
    /// An arithmetic progression.
    Double = 1,
    /// With a quadratic term from a third hash.
    Triple = 2,
    /// With a constant quadratic and cubic term: the placement of the store's filter block.
    Enhanced = 3,
    /// A separate hash for each probe.
    Seeded = 4,
}

impl Hashing {
    /// All values, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Double, Self::Triple, Self::Enhanced, Self::Seeded];

    /// The positions in test order; some may be equal.
    #[inline]
    pub(crate) fn positions(self, hash: u64, probes: u64, size: u64) -> impl Iterator<Item = u64> + Clone {
        let first = spread(hash);
        let (mut x, mut y) = (first, remix(first) | 1);
        let (mut z, step) = match self {
            Self::Double | Self::Seeded => (0, 0),
            Self::Triple => (nth(hash, 1), 0),
            Self::Enhanced => (STEP, STEP),
        };
        (0..probes).map(move |probe| {
            if self == Self::Seeded {
                return reduce(nth(hash, probe), size);
            }
            let position = reduce(x, size);
            x = x.wrapping_add(y);
            y = y.wrapping_add(z);
            z = z.wrapping_add(step);
            position
        })
    }
}

/// The positions by enhanced double hashing, for all structures but the Bloom filter.
#[inline]
pub(crate) fn positions(hash: u64, probes: u64, size: u64) -> impl Iterator<Item = u64> + Clone {
    Hashing::Enhanced.positions(hash, probes, size)
}
