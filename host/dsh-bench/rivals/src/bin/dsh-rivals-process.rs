//! The policy as a program that is started for each call: the history on standard input, `1` or `0` on standard output.

use std::io::Read as _;

use dsh_rivals_policy::{Reads, allows};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let reads = if std::env::args().nth(1).as_deref() == Some("all") { Reads::All } else { Reads::Last };
    let mut history = Vec::new();
    std::io::stdin().read_to_end(&mut history)?;
    print!("{}", u8::from(allows(&history, reads)?));
    Ok(())
}
