//! Reproducible pseudorandom numbers.

/// SplitMix64's finaliser: a bijection.
#[inline]
pub(crate) fn mix(stream: u64, number: u64) -> u64 {
    let mut mixed = (stream << 40 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

#[inline]
pub(crate) fn mix32(number: u32) -> u32 {
    let mut mixed = number.wrapping_mul(0x9e37_79b1);
    mixed = (mixed ^ mixed >> 16).wrapping_mul(0x85eb_ca6b);
    mixed = (mixed ^ mixed >> 13).wrapping_mul(0xc2b2_ae35);
    mixed ^ mixed >> 16
}

#[inline]
pub(crate) fn below(number: u64, end: u64) -> u64 {
    ((u128::from(number) * u128::from(end)) >> 64) as u64
}

#[derive(Debug)]
pub(crate) struct Random {
    stream: u64,
    count: u64,
}

impl Random {
    pub(crate) fn new(stream: u64) -> Self {
        Self { stream, count: 0 }
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.count += 1;
        mix(self.stream, self.count)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        below(self.number(), end)
    }

    /// A number between 0 and 1, both excluded.
    fn fraction(&mut self) -> f64 {
        ((self.number() >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
    }
}

/// Ranks 0 to `count` − 1 with probabilities proportional to (r + 1)^−0.99, as in YCSB, by rejection-inversion (Hörmann and
/// Derflinger, 1996).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Zipf {
    count: f64,
    low: f64,
    high: f64,
    accepted: f64,
}

const SKEW: f64 = 0.99;

impl Zipf {
    pub(crate) fn new(count: u64) -> Self {
        let count = count.max(1) as f64;
        Self {
            count,
            low: integral(1.5) - 1.0,
            high: integral(count + 0.5),
            accepted: 2.0 - inverse(integral(2.5) - 2.0_f64.powf(-SKEW)),
        }
    }

    pub(crate) fn draw(&self, random: &mut Random) -> u64 {
        loop {
            let height = self.high + random.fraction() * (self.low - self.high);
            let x = inverse(height);
            let rank = x.round().clamp(1.0, self.count);
            if rank - x <= self.accepted || height >= integral(rank + 0.5) - rank.powf(-SKEW) {
                return rank as u64 - 1;
            }
        }
    }
}

/// The integral of x^−SKEW, up to a constant.
fn integral(x: f64) -> f64 {
    (x.powf(1.0 - SKEW) - 1.0) / (1.0 - SKEW)
}

fn inverse(y: f64) -> f64 {
    (1.0 + y * (1.0 - SKEW)).powf(1.0 / (1.0 - SKEW))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_drawn_as_often_as_the_law_says() {
        let (zipf, mut random) = (Zipf::new(1000), Random::new(1));
        let mut drawn = vec![0_u32; 1000];
        for _ in 0..200_000 {
            drawn[zipf.draw(&mut random) as usize] += 1;
        }
        let total: f64 = (1..=1000).map(|rank| f64::from(rank).powf(-SKEW)).sum();
        for rank in [0, 1, 9, 99] {
            let expected = 200_000.0 * f64::from(rank + 1).powf(-SKEW) / total;
            let deviation = (f64::from(drawn[rank as usize]) - expected) / expected.sqrt();
            assert!(deviation.abs() < 5.0, "rank {rank}: {} for {expected:.0}", drawn[rank as usize]);
        }
        assert_eq!(Zipf::new(1).draw(&mut random), 0);
    }

    #[test]
    fn different_numbers_stay_different() {
        let mut mixed: Vec<u32> = (0..100_000).map(mix32).collect();
        mixed.sort_unstable();
        mixed.dedup();
        assert_eq!(mixed.len(), 100_000);
    }
}
