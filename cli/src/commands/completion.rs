use clap::ValueEnum;
use clap_complete::{Shell, generate};

use crate::failure::Result;
use crate::output::Output;

/// Prints the completion script of a program for a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sievedb completion bash > ~/.local/share/bash-completion/completions/sievedb
  sievedb completion zsh > ~/.zfunc/_sievedb                # with ~/.zfunc in $fpath
  sievedb completion fish > ~/.config/fish/completions/sievedb.fish")]
pub(crate) struct Args {
    /// The shell.
    shell: Shell,
    /// The program to complete.
    #[arg(long, value_name = "NAME", value_enum, default_value_t = Program::Sievedb)]
    program: Program,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum Program {
    Sievedb,
    SievedbDump,
}

impl Program {
    pub(super) fn command(self) -> clap::Command {
        match self {
            Self::Sievedb => crate::shell::command(),
            Self::SievedbDump => crate::dump::command(),
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut command = args.program.command();
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    generate(args.shell, &mut command, name, &mut script);
    let mut out = Output::new();
    out.raw(&script)?;
    out.finish()
}
