use std::collections::hash_map::DefaultHasher;

use cuckoofilter::CuckooFilter;
use fastbloom::BloomFilter;
use growable_bloom_filter::GrowableBloom;
use probabilistic_collections::bloom::{self, BSBloomFilter, BSSDBloomFilter, RLBSBloomFilter};
use probabilistic_collections::count_min_sketch::{CountMinSketch, CountMinStrategy};
use probabilistic_collections::cuckoo;
use scalable_cuckoo_filter::ScalableCuckooFilter;
use stable_bloom_filter::Filter;
use stable_bloom_filter::stable::StableBloomFilter;

use super::lane::{Grow, Set};
use crate::random::bytes_of;

impl Set for BloomFilter {
    fn contains(&self, key: u64) -> bool {
        Self::contains(self, &key)
    }
}

impl Grow for BloomFilter {
    fn insert(&mut self, key: u64) {
        Self::insert(self, &key);
    }
}

impl Set for GrowableBloom {
    fn contains(&self, key: u64) -> bool {
        Self::contains(self, key)
    }
}

impl Grow for GrowableBloom {
    fn insert(&mut self, key: u64) {
        Self::insert(self, key);
    }
}

impl Set for CuckooFilter<DefaultHasher> {
    fn contains(&self, key: u64) -> bool {
        Self::contains(self, &key)
    }
}

impl Grow for CuckooFilter<DefaultHasher> {
    fn insert(&mut self, key: u64) {
        let _ = self.add(&key);
    }
}

impl Set for ScalableCuckooFilter<u64> {
    fn contains(&self, key: u64) -> bool {
        Self::contains(self, &key)
    }
}

impl Grow for ScalableCuckooFilter<u64> {
    fn insert(&mut self, key: u64) {
        Self::insert(self, &key);
    }
}

impl Set for qfilter::Filter {
    fn contains(&self, key: u64) -> bool {
        Self::contains(self, key)
    }
}

impl Grow for qfilter::Filter {
    fn insert(&mut self, key: u64) {
        let _ = self.insert_duplicated(key);
    }
}

impl Set for StableBloomFilter {
    fn contains(&self, key: u64) -> bool {
        self.test(&bytes_of(key))
    }
}

impl Grow for StableBloomFilter {
    fn insert(&mut self, key: u64) {
        self.add(&bytes_of(key));
    }
}

impl Set for CountMinSketch<CountMinStrategy, u64> {
    fn contains(&self, key: u64) -> bool {
        self.count(&key) > 0
    }
}

impl Grow for CountMinSketch<CountMinStrategy, u64> {
    fn insert(&mut self, key: u64) {
        Self::insert(self, &key, 1);
    }
}

macro_rules! collections {
    ($($set:ty),*) => {$(
        impl Set for $set {
            fn contains(&self, key: u64) -> bool {
                <$set>::contains(self, &key)
            }
        }

        impl Grow for $set {
            fn insert(&mut self, key: u64) {
                let _ = <$set>::insert(self, &key);
            }
        }
    )*};
}

collections!(
    bloom::BloomFilter<u64>,
    bloom::ScalableBloomFilter<u64>,
    cuckoo::CuckooFilter<u64>,
    BSBloomFilter<u64>,
    BSSDBloomFilter<u64>,
    RLBSBloomFilter<u64>
);
