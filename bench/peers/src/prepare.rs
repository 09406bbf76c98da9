use std::sync::Arc;

use crate::Result;
use crate::engine::{Batch, Engine, Writes};
use crate::keys::{KeySet, fill_value};
use crate::machine::{self, QUIET};
use crate::order::Order;
use crate::plan::Kind;
use crate::workload::{Cache, Shape};

const PREPARED_BATCH: usize = 100;

pub(crate) fn prepare<E: Engine>(order: &Order, keys: KeySet, shape: Shape) -> Result<()> {
    let sizes = &order.sizes;
    let mut engine = E::open(&order.dir, &sizes.settings(shape, Cache::Usual, Writes::Only))?;
    let change: (Kind, Vec<u32>) = match shape {
        Shape::Empty => return Err("an empty store needs no preparation".into()),
        Shape::Left | Shape::Tables => (Kind::Put, (0..sizes.keys).collect()),
        Shape::Log => (Kind::Put, (0..sizes.logged_keys()).collect()),
        Shape::Deleted => (Kind::Delete, (0..sizes.keys).step_by(2).collect()),
        Shape::Settled => (Kind::Put, Vec::new()),
    };
    let shared = Arc::new(engine);
    shared.run_clients(vec![change_all(shared.clone(), keys, sizes.value_bytes, change)])?;
    engine = Arc::into_inner(shared).ok_or("a client still holds the engine")?;
    if shape == Shape::Log {
        std::process::exit(0);
    }
    engine.flush()?;
    engine.settle()?;
    machine::wait_until_idle(QUIET);
    if shape == Shape::Settled {
        engine.compact()?;
        engine.settle()?;
        machine::wait_until_idle(QUIET);
    }
    engine.close()
}

async fn change_all<E: Engine>(
    engine: Arc<E>,
    keys: KeySet,
    value_bytes: usize,
    (kind, numbers): (Kind, Vec<u32>),
) -> Result<()> {
    let (mut key, mut value, mut batch) = (Vec::new(), vec![0; value_bytes], Batch::default());
    for numbers in numbers.chunks(PREPARED_BATCH) {
        batch.clear();
        for &number in numbers {
            keys.write(number, &mut key);
            if kind == Kind::Delete {
                engine.delete(&key).await?;
            } else {
                fill_value(number, &mut value);
                batch.put(&key, &value);
            }
        }
        if batch.len() > 0 {
            engine.write(&batch).await?;
        }
    }
    Ok(())
}
