//! The benchmarks of SieveDB: each command is a module and prints Markdown (see `README.md`).

mod backups;
mod callgrind;
mod clock;
mod conditional;
mod costs;
mod deletions;
mod engine;
mod filters;
mod instructions;
mod keys;
mod machine;
mod paths;
mod random;
mod report;
mod rounds;
mod scale;
mod shapes;
mod sketches;
mod soak;
mod store;
mod uniq;
mod wasted;

use clap::{Parser, Subcommand};

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// Measures SieveDB.
#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Filters(filters::Args),
    Wasted(wasted::Args),
    Costs(costs::Args),
    Backups(backups::Args),
    BackupsWriter(backups::writer::Args),
    Deletions(deletions::Args),
    Conditional(conditional::Args),
    Uniq(uniq::Args),
    Engine(engine::Args),
    Instructions(instructions::Args),
    Shapes(shapes::Args),
    Scale(scale::Args),
    ScaleStore(scale::store::Args),
    Paths(paths::Args),
    Sketches(sketches::Args),
    Forbidden(sketches::forbidden::Args),
    Inside(sketches::inside::Args),
    Soak(soak::Args),
}

fn main() -> Result<()> {
    match Cli::parse().command {
        Command::Filters(args) => filters::run(&args),
        Command::Wasted(args) => wasted::run(&args),
        Command::Costs(args) => costs::run(&args),
        Command::Backups(args) => backups::run(&args),
        Command::BackupsWriter(args) => backups::writer::run(&args),
        Command::Deletions(args) => deletions::run(&args),
        Command::Conditional(args) => conditional::run(&args),
        Command::Uniq(args) => uniq::run(&args),
        Command::Engine(args) => engine::run(&args),
        Command::Instructions(args) => instructions::run(&args),
        Command::Shapes(args) => shapes::run(&args),
        Command::Scale(args) => scale::run(&args),
        Command::ScaleStore(args) => scale::store::run(&args),
        Command::Paths(args) => paths::run(&args),
        Command::Sketches(args) => sketches::run(&args),
        Command::Forbidden(args) => sketches::forbidden::run(&args),
        Command::Inside(args) => sketches::inside::run(&args),
        Command::Soak(args) => soak::run(&args),
    }
}
