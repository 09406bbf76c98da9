use std::fmt;

use crate::envelope::{DecodeError, Envelope, Kind, seal};

/// An encodable structure; `format.md` defines the bytes.
pub trait Sketch: Sized {
    /// The kind of structure.
    const KIND: Kind;

    /// The seed of its hash, [`key_hash`](crate::hash::key_hash).
    fn seed(&self) -> u64;

    #[doc(hidden)]
    fn parameters(&self) -> Vec<u64>;

    #[doc(hidden)]
    fn body(&self) -> Vec<u8>;

    #[doc(hidden)]
    fn from_parts(parts: Parts<'_>) -> Result<Self, DecodeError>;

    /// A summary for display. At most linear.
    fn summary(&self) -> Summary;

    /// The encoding. Equal contents have equal bytes on every machine. Linear.
    fn encode(&self) -> Vec<u8> {
        seal(Self::KIND, self.seed(), &self.parameters(), &self.body())
    }

    /// Decodes a structure. Verifies lengths before it allocates. Linear.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](crate::DecodeErrorKind::Unsupported) for intact bytes of a newer version, unknown kind or required flag;
    /// [`Corrupt`](crate::DecodeErrorKind::Corrupt) otherwise.
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let envelope = Envelope::open(bytes)?;
        if envelope.kind != Self::KIND {
            let detail = format!("expected a {}, found a {}", Self::KIND, envelope.kind);
            return Err(DecodeError::corrupt(32, "sketch kind", detail));
        }
        Self::from_parts(Parts(envelope))
    }
}

/// Verified bytes of the right kind.
#[doc(hidden)]
#[derive(Debug, Clone)]
pub struct Parts<'a>(pub(crate) Envelope<'a>);

/// A summary of a structure, for display.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Summary {
    /// The kind of structure.
    pub kind: Kind,
    /// Seed of its hash.
    pub seed: u64,
    /// Parameters and contents.
    pub facts: Vec<(&'static str, String)>,
    /// The predicted error rate, if any.
    pub predicted_rate: Option<f64>,
    /// Length of the body in bytes, without the header.
    pub body_bytes: u64,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, {} bytes without the header", self.kind, self.body_bytes)?;
        for (name, value) in &self.facts {
            writeln!(f, "  {name:<18}{value}")?;
        }
        if let Some(rate) = self.predicted_rate {
            writeln!(f, "  {:<18}{:.4} %", "predicted rate", 100.0 * rate)?;
        }
        Ok(())
    }
}
