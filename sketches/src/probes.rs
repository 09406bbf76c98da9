use crate::hash::{STEP, nth, reduce, remix, spread};

/// The store's filter block has up to 30.
pub(crate) const PROBES_MAX: u64 = 64;

/// The mapping of a hash to `k` bits. Append only: the numbers are on disk. The high bits of numbers `x`, `y` and `z` from the
/// hash choose the position.
///
/// | | probe `i` | source |
/// |---|---|---|
/// | `Double` | `x + i·y` | Kirsch and Mitzenmacher 2006 |
/// | `Triple` | `x + i·y + i(i-1)/2·z` | Dillinger and Manolios 2004, section 5.2 |
/// | `Enhanced` | `x + i·y + i(i-1)/2·c + i(i-1)(i-2)/6·c` with a constant `c` | the same, section 5.3, scaled |
/// | `Seeded` | hash number `i` | the simplest, and the reference for the others |
///
/// Small `Double` filters with low rates miss the formula: keys that share two bits may share all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u8)]
pub enum Hashing {
    /// An arithmetic progression.
    Double = 1,
    /// Adds a quadratic term from a third hash.
    Triple = 2,
    /// Adds constant quadratic and cubic terms.
    Enhanced = 3,
    /// A separate hash for each probe.
    Seeded = 4,
}

impl Hashing {
    /// All values, by number.
    pub const ALL: [Self; 4] = [Self::Double, Self::Triple, Self::Enhanced, Self::Seeded];

    /// The positions, some of which may be equal.
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

#[inline]
pub(crate) fn positions(hash: u64, probes: u64, size: u64) -> impl Iterator<Item = u64> + Clone {
    Hashing::Enhanced.positions(hash, probes, size)
}
