use super::contender::{Contender, Product, floor, open};
use super::lane::Lane;
use crate::Result;
use crate::clock;
use crate::random::number;
use crate::rounds::{Rounds, Spread};

pub(super) const PRESENT: u64 = 1;

pub(super) struct Built {
    pub(super) contender: Contender,
    pub(super) time: Spread,
    /// Per key. Includes all hashes if the builder needs them in memory.
    pub(super) peak_bytes: f64,
    pub(super) lanes: Vec<(String, Box<dyn Lane>)>,
}

pub(super) fn run(contenders: &[Contender], keys: usize, rounds: usize) -> Result<Vec<Built>> {
    let hashes: Vec<u64> = (0..keys as u64).map(|index| number(PRESENT, index)).collect();
    let mut products: Vec<Option<Product>> = contenders.iter().map(|_| None).collect();
    let mut peaks = vec![0u64; products.len()];
    let mut failure = None;
    let times = Rounds::run(rounds, products.len(), |index| {
        let contender = contenders[index];
        products[index] = None;
        let mut cost = None;
        let memory = allocation_counter::measure(|| cost = Some(clock::cost(|| contender.make(&hashes))));
        peaks[index] = memory.bytes_max + if contender.borrows_hashes() { 8 * keys as u64 } else { 0 };
        match cost {
            Some((time, Ok(product))) => {
                products[index] = Some(product);
                time.as_secs_f64() * 1e9 / keys as f64
            }
            Some((_, Err(error))) => {
                failure = Some(format!("{}: {error}", contender.name()));
                f64::NAN
            }
            None => f64::NAN,
        }
    });
    if let Some(failure) = failure {
        return Err(failure.into());
    }
    let mut built = Vec::new();
    for (index, product) in products.into_iter().enumerate() {
        let contender = contenders[index];
        built.push(Built {
            contender,
            time: times.of(index),
            peak_bytes: peaks[index] as f64 / keys as f64,
            lanes: lanes(contender, product)?,
        });
    }
    Ok(built)
}

fn lanes(contender: Contender, product: Option<Product>) -> Result<Vec<(String, Box<dyn Lane>)>> {
    let name = contender.name();
    Ok(match product {
        None => Vec::new(),
        Some(Product::Lane(lane)) => vec![(name.into(), lane)],
        Some(Product::Block(block)) => {
            let filter = open(&block)?;
            let portable = filter.clone().portable();
            vec![(name.into(), Box::new(filter)), (format!("{name}, portable"), Box::new(portable))]
        }
    })
}

pub(super) fn floor_lane(keys: usize) -> (String, Box<dyn Lane>) {
    ("(one random line)".into(), Box::new(floor(keys)))
}
