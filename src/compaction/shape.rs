//! The shape of a tree: how large its levels and tables may become.

/// The shape that compaction keeps a tree in. Sizes in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Number of runs at which level 0 is compacted.
    pub(crate) l0_runs: usize,
    /// Size of level 1.
    pub(crate) level_base_bytes: u64,
    /// Size of a level over that of the level above it.
    pub(crate) level_ratio: u64,
    /// Length at which an output table ends.
    pub(crate) table_bytes: u64,
}

impl Shape {
    /// The size a level may have before it is compacted. Level 0 has none: it counts runs.
    pub(super) fn target(&self, level: usize) -> u64 {
        (1..level).fold(self.level_base_bytes, |target, _| target.saturating_mul(self.level_ratio)).max(1)
    }

    /// An output that overlaps more bytes than this of the level after next is cut.
    pub(super) fn overlap_max(&self) -> u64 {
        self.table_bytes.saturating_mul(10)
    }
}
