use std::path::PathBuf;

use super::keys::Keys;
use super::measure::{self, Figures, Scarce};
use crate::Result;

/// Measures one store for `scale`, and prints its figures as JSON.
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(crate) struct Args {
    pub(super) dir: PathBuf,
    #[arg(long)]
    keys: u64,
    #[arg(long)]
    paths: Option<PathBuf>,
    #[arg(long)]
    pub(super) value: usize,
    #[arg(long)]
    pub(super) budget: usize,
    #[arg(long)]
    scarce_budget: Option<usize>,
    #[arg(long)]
    pub(super) lookups: u64,
}

#[derive(serde::Serialize, serde::Deserialize)]
pub(super) struct Measured {
    pub(super) figures: Figures,
    pub(super) scarce: Option<Scarce>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let keys = match &args.paths {
        Some(paths) => Keys::paths(paths, args.keys)?,
        None => Keys::random(args.keys),
    };
    let figures = measure::measure(&keys, args)?;
    let scarce = args.scarce_budget.map(|budget| measure::scarce(&keys, args, budget)).transpose()?;
    println!("{}", serde_json::to_string(&Measured { figures, scarce })?);
    Ok(())
}
