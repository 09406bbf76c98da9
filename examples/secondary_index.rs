//! People by number, with a second keyspace as an index by address. A transaction is atomic over keyspaces and commits only if
//! its reads are still valid, so both always agree.
//!
//! `cargo run --example secondary_index`

#![expect(clippy::disallowed_methods, reason = "the store is all that the example depends on")]

use std::sync::Barrier;

use sievedb::{Db, Keyspace, KeyspaceOptions, Result};

const THREADS: u32 = 4;
const ROUNDS: u32 = 50;

struct People {
    db: Db,
    /// Number (big-endian, to sort as numbers) to address.
    by_number: Keyspace,
    by_address: Keyspace,
}

impl People {
    fn open(dir: &std::path::Path) -> Result<Self> {
        let db = Db::open(dir)?;
        let by_number = db.keyspace("people", KeyspaceOptions::default())?;
        let by_address = db.keyspace("people by address", KeyspaceOptions::default())?;
        Ok(Self { db, by_number, by_address })
    }

    /// `false` if another person has the address.
    fn set_address(&self, number: u32, address: &str) -> Result<bool> {
        let number = number.to_be_bytes();
        self.db.transact(|tx| {
            let (by_number, by_address) = (tx.keyspace(&self.by_number), tx.keyspace(&self.by_address));
            if by_address.get(address)?.is_some_and(|owner| owner[..] != number) {
                return Ok(false);
            }
            if let Some(old) = by_number.get(number)? {
                by_address.delete(old);
            }
            by_number.put(number, address);
            by_address.put(address, number);
            Ok(true)
        })
    }

    fn find(&self, address: &str) -> Result<Option<u32>> {
        let number = self.by_address.get(address)?;
        Ok(number.map(|number| u32::from_be_bytes(number[..].try_into().expect("numbers have four bytes"))))
    }

    /// Checks every entry in both directions.
    fn check(&self) -> Result<usize> {
        let now = self.db.snapshot();
        let (by_number, by_address) = (now.keyspace(&self.by_number), now.keyspace(&self.by_address));
        let mut people = 0;
        for item in by_number.iter() {
            let (number, address) = item?;
            assert_eq!(by_address.get(&address)?.as_deref(), Some(&number[..]), "not found by address");
            people += 1;
        }
        assert_eq!(by_address.iter().count(), people, "addresses that lead to nobody");
        Ok(people)
    }
}

fn whose(number: Option<u32>) -> String {
    number.map_or_else(|| "nobody's".into(), |number| format!("the address of number {number}"))
}

fn race(people: &People, round: u32) -> Result<()> {
    let start = Barrier::new(THREADS as usize);
    let move_all = |thread: u32| -> Result<()> {
        start.wait();
        for step in round..round + 100 {
            people.set_address(step % 3, &format!("room{}@example.org", (step + thread) % 6))?;
        }
        Ok(())
    };
    let move_all = &move_all;
    std::thread::scope(|scope| {
        let movers: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || move_all(thread))).collect();
        movers.into_iter().try_for_each(|mover| mover.join().expect("nobody panics"))
    })
}

fn main() -> Result<()> {
    let dir = std::env::temp_dir().join(format!("sievedb-secondary-index-{}", std::process::id()));
    let people = People::open(&dir)?;
    for number in 0..5_000 {
        people.set_address(number, &format!("person{number}@example.org"))?;
    }
    for number in (0..5_000).step_by(3) {
        people.set_address(number, &format!("moved{number}@example.net"))?;
    }
    println!("moved42@example.net is {}", whose(people.find("moved42@example.net")?));
    println!("person42@example.org is {} now", whose(people.find("person42@example.org")?));
    println!("{} people, each found both ways", people.check()?);

    for round in 0..ROUNDS {
        race(&people, round)?;
        people.check()?;
    }
    println!("each found both ways after each of {ROUNDS} races of {THREADS} threads");

    drop(people);
    let people = People::open(&dir)?;
    println!("{} people, each found both ways, after opening again", people.check()?);

    drop(people);
    std::fs::remove_dir_all(&dir).ok();
    Ok(())
}
