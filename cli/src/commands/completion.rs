//! `sievedb completion` and `sievedb man`: what a shell and `man` want to know of the programs here.

use std::path::PathBuf;

use clap::ValueEnum;
use clap_complete::{Shell, generate};

use crate::failure::{Failure, Result};
use crate::output::Output;

/// Prints a script that makes a shell complete the commands and options of a program.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sievedb completion bash > ~/.local/share/bash-completion/completions/sievedb
  sievedb completion zsh > ~/.zfunc/_sievedb                # with ~/.zfunc in $fpath
  sievedb completion fish > ~/.config/fish/completions/sievedb.fish")]
pub(crate) struct CompletionArgs {
    /// The shell.
    shell: Shell,
    /// The program to complete.
    #[arg(long, value_name = "NAME", value_enum, default_value_t = Program::Sievedb)]
    program: Program,
}

/// Writes the manual pages of all programs and commands into a directory.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sievedb man ~/.local/share/man/man1 && man sievedb-scan")]
pub(crate) struct ManArgs {
    /// The directory; it is created if it is not there, and pages of these names in it are replaced.
    dir: PathBuf,
}

/// The programs of this package.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Program {
    Sievedb,
    SievedbDump,
}

impl Program {
    fn command(self) -> clap::Command {
        match self {
            Self::Sievedb => crate::shell::command(),
            Self::SievedbDump => crate::dump::command(),
        }
    }
}

pub(crate) fn completion(args: &CompletionArgs) -> Result<()> {
    let mut command = args.program.command();
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    generate(args.shell, &mut command, name, &mut script);
    let mut out = Output::new();
    out.raw(&script)?;
    out.finish()
}

pub(crate) fn man(args: &ManArgs) -> Result<()> {
    let cannot = |error| Failure::io(format!("write manual pages into {}", args.dir.display()), error);
    std::fs::create_dir_all(&args.dir).map_err(cannot)?;
    for program in Program::value_variants() {
        clap_mangen::generate_to(program.command(), &args.dir).map_err(cannot)?;
    }
    Ok(())
}
