//! People by number, and by address: a second keyspace finds them by what they can change. A batch is atomic
//! over keyspaces, so the two never disagree, whenever the program is stopped.
//!
//! `cargo run --example secondary_index`

#![expect(clippy::disallowed_methods, reason = "the store is all that the example depends on")]

use sievedb::{Db, Keyspace, KeyspaceOptions, Result, WriteBatch};

struct People {
    db: Db,
    /// Number (big-endian, so that the order of keys is that of numbers) to address.
    by_number: Keyspace,
    /// Address to number.
    by_address: Keyspace,
}

impl People {
    fn open(dir: &std::path::Path) -> Result<Self> {
        let db = Db::open(dir)?;
        let by_number = db.keyspace("people", KeyspaceOptions::default())?;
        let by_address = db.keyspace("people by address", KeyspaceOptions::default())?;
        Ok(Self { db, by_number, by_address })
    }

    /// Gives a person an address, the first or another one. Two callers at once would have to agree on an
    /// order, by a lock for example.
    fn set_address(&self, number: u32, address: &str) -> Result<()> {
        let number = number.to_be_bytes();
        let mut batch = WriteBatch::new();
        if let Some(old) = self.by_number.get(number)? {
            batch.delete_in(&self.by_address, old);
        }
        batch.put_in(&self.by_number, number, address);
        batch.put_in(&self.by_address, address, number);
        self.db.write(batch)
    }

    fn find(&self, address: &str) -> Result<Option<u32>> {
        let number = self.by_address.get(address)?;
        Ok(number.map(|number| u32::from_be_bytes(number[..].try_into().expect("numbers have four bytes"))))
    }

    /// Follows every entry there and back, as both were at one moment.
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

    // The last handle closes the store.
    drop(people);
    let people = People::open(&dir)?;
    println!("{} people, each found both ways, after opening again", people.check()?);

    drop(people);
    std::fs::remove_dir_all(&dir).ok();
    Ok(())
}
