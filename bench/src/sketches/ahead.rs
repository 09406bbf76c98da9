use super::lane::Probed;

pub(super) const RULE: &str = "A peer is ahead in space if it takes over 1 % less for the same error rate \
    (by *over*), and in time if it takes over 10 % less. Only peers without lost keys and with at most 1.5 \
    times the error rate are compared. The reason follows the table.";

/// The name, the ratio from which another crate is better, and the ratio of two structures' figures.
type Column<'a> = (&'a str, f64, &'a dyn Fn(&Figures, &Figures) -> f64);

pub(super) struct Figures {
    pub(super) ours: bool,
    pub(super) name: String,
    pub(super) lost: u64,
    pub(super) bits: f64,
    pub(super) value_bits: f64,
    pub(super) rate: f64,
    pub(super) absent: Probed,
    pub(super) insert_ns: f64,
    pub(super) present_ns: f64,
    pub(super) absent_ns: f64,
}

impl Figures {
    /// The excess over the minimum size for the error rate, as a fraction; `None` for an error rate of 0.
    pub(super) fn over(&self) -> Option<f64> {
        (self.rate > 0.0).then(|| self.bits / (self.value_bits - self.rate.log2()) - 1.0)
    }

    pub(super) fn behind(&self, all: &[Self]) -> Vec<String> {
        let peers = || all.iter().filter(|peer| !peer.ours && peer.lost == 0 && peer.rate <= 1.5 * self.rate);
        let space = |figures: &Self, other: &Self| match (figures.over(), other.over()) {
            (Some(over), Some(_)) => 1.0 + over,
            _ => figures.bits,
        };
        let columns: [Column<'_>; 4] = [
            ("space", 1.01, &space),
            ("insert", 1.1, &|figures, _| figures.insert_ns),
            ("present", 1.1, &|figures, _| figures.present_ns),
            ("absent", 1.1, &|figures, _| figures.absent_ns),
        ];
        let behind = columns.iter().filter_map(|(what, room, figure)| {
            let ratio = |peer: &Self| figure(self, peer) / figure(peer, self);
            let best = peers().max_by(|one, two| ratio(one).total_cmp(&ratio(two)))?;
            (ratio(best) > *room).then(|| format!("{what} ({})", best.name))
        });
        behind.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(ours: bool, name: &str, bits: f64, found: u64, ns: f64) -> Figures {
        Figures {
            ours,
            name: name.into(),
            lost: 0,
            bits,
            value_bits: 0.0,
            rate: found as f64 / f64::from(1 << 20),
            absent: Probed { ns, probes: 1 << 20, found },
            insert_ns: ns,
            present_ns: ns,
            absent_ns: ns,
        }
    }

    #[test]
    fn a_peer_is_ahead_only_at_an_error_like_ours() {
        let ours = figures(true, "ours", 12.0, 1 << 10, 50.0);
        let wrong = figures(false, "wrong", 12.0, 1 << 15, 10.0);
        let exact = figures(false, "exact", 20.0, 1, 50.0);
        let quick = figures(false, "quick", 15.0, 1 << 10, 44.0);
        let lossy = Figures { lost: 1, ..figures(false, "lossy", 1.0, 1, 1.0) };
        let all = [wrong, exact, quick, lossy];
        assert_eq!(ours.over().map(|over| format!("{over:.3}")), Some("0.200".into()));
        assert_eq!(
            ours.behind(&all),
            ["space (exact)", "insert (quick)", "present (quick)", "absent (quick)"]
        );
        assert!(ours.behind(&all[..1]).is_empty());
    }
}
