//! The command `sievedb`; see `sievedb_cli::shell`.

fn main() -> std::process::ExitCode {
    sievedb_cli::shell::main()
}
