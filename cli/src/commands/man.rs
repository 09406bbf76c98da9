//! `sievedb man`: manual pages from the definitions of the arguments.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use clap::{Command, ValueEnum};
use clap_mangen::Man;

use super::completion::Program;
use crate::failure::{Failure, Result};
use crate::store::check_parent;

/// Writes the manual pages of all programs and commands into a directory.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  mkdir -p ~/.local/share/man && sievedb man ~/.local/share/man/man1 && man sievedb-scan")]
pub(crate) struct Args {
    /// The directory, created if it does not exist, in an existing parent. Pages of the same names are replaced.
    dir: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let cannot = |error| Failure::io(format!("write manual pages into {}", args.dir.display()), error);
    check_parent(&args.dir)?;
    if let Err(error) = std::fs::create_dir(&args.dir)
        && error.kind() != ErrorKind::AlreadyExists
    {
        return Err(cannot(error));
    }
    for program in Program::value_variants() {
        let mut command = program.command().disable_help_subcommand(true);
        command.build();
        write_pages(&command, &args.dir).map_err(cannot)?;
    }
    Ok(())
}

fn write_pages(command: &Command, dir: &Path) -> io::Result<()> {
    command.get_subcommands().try_for_each(|command| write_pages(command, dir))?;
    let help = command.get_after_long_help().or_else(|| command.get_after_help());
    let help = help.map(ToString::to_string).unwrap_or_default();
    let version = env!("CARGO_PKG_VERSION");
    let man = Man::new(command.clone()).source(format!("sievedb {version}"));
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    page.extend_from_slice(sections(&help).as_bytes());
    std::fs::write(dir.join(man.get_filename()), page)
}

/// The text below the options of a command's help. Lines that end with a colon are titles; indented lines are kept.
fn sections(help: &str) -> String {
    let mut page = String::new();
    let mut is_literal = false;
    for line in help.lines() {
        let literal = line.starts_with(' ') || (is_literal && line.is_empty());
        if literal != is_literal {
            page += if literal { ".nf\n" } else { ".fi\n" };
            is_literal = literal;
        }
        match line.strip_suffix(':') {
            Some(title) if !literal => page += &format!(".SH \"{}\"\n", escaped(&title.to_uppercase())),
            _ if line.is_empty() => page += ".PP\n",
            _ => page += &format!("{}\n", escaped(line)),
        }
    }
    if is_literal {
        page += ".fi\n";
    }
    page
}

fn escaped(line: &str) -> String {
    let line = line.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq").replace('`', "\\(ga");
    if line.starts_with('.') { format!("\\&{line}") } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_become_a_section_and_keep_their_lines() {
        let help = "A word.\nExamples:\n  a 'b\\x00' --c\n  d\n\nExit codes:\n  0  done\n.end";
        let expected = "A word.\n.SH \"EXAMPLES\"\n.nf\n  a \\(aqb\\ex00\\(aq \\-\\-c\n  d\n.PP\n.fi\n\
                        .SH \"EXIT CODES\"\n.nf\n  0  done\n.fi\n\\&.end\n";
        assert_eq!(sections(help), expected);
    }
}
