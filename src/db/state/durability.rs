/// Durability of a write when its call returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Durability {
    /// Survives the end of the process, but not a power loss.
    #[default]
    Buffered,
    /// On disk: survives a power loss.
    Synced,
}
