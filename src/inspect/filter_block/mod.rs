//! Filter blocks.

mod block;
mod facts;
mod known;
mod survey;

pub(in crate::inspect) use block::{
    ALIGN, describe, describe_block, describe_file, intact_len, is_aligned, is_at,
};
pub(in crate::inspect) use facts::{facts_at, facts_in_short, rate};
pub(in crate::inspect) use known::Known;
