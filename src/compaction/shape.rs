//! The target sizes of levels and tables.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) l0_runs: usize,
    pub(crate) level_base_bytes: u64,
    pub(crate) level_ratio: u64,
    pub(crate) table_bytes: u64,
}

impl Shape {
    /// Level 0 has no target size; its runs are counted.
    pub(super) fn target(&self, level: usize) -> u64 {
        (1..level).fold(self.level_base_bytes, |target, _| target.saturating_mul(self.level_ratio)).max(1)
    }

    pub(super) fn overlap_max(&self) -> u64 {
        self.table_bytes.saturating_mul(10)
    }
}
