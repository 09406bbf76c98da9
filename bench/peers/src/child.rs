use crate::Result;
use crate::names::with_engine;
use crate::order::{Order, Task};
use crate::prepare::prepare;
use crate::run::run;

pub(crate) fn obey(order: &str) -> Result<()> {
    let order: Order = serde_json::from_str(order)?;
    match &order.task {
        Task::Prepare { engine, keys, shape } => with_engine!(*engine, prepare(&order, *keys, *shape)),
        Task::Run { engine, workload, amount } => {
            let outcome = with_engine!(*engine, run(&order, *engine, workload, *amount))?;
            println!("{}", serde_json::to_string(&outcome)?);
            Ok(())
        }
    }
}
