//! The durability that a caller asks for.

/// What a write has to survive when its call returns; see [`Db::write_with`](crate::Db::write_with).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Durability {
    /// The write was handed to the operating system: it survives the end of the process, but not a power
    /// loss.
    #[default]
    Buffered,
    /// The write is on disk: it survives a power loss.
    Synced,
}
