//! The structures of other crates, as their documentation has them used.

use std::collections::hash_map::DefaultHasher;

use cuckoofilter::CuckooFilter;
use fastbloom::BloomFilter;
use growable_bloom_filter::GrowableBloom;
use probabilistic_collections::bloom::{self, BSBloomFilter, BSSDBloomFilter, RLBSBloomFilter};
use probabilistic_collections::cuckoo;
use scalable_cuckoo_filter::ScalableCuckooFilter;

use super::lane::Set;

impl Set for BloomFilter {
    fn insert(&mut self, key: u64) {
        Self::insert(self, &key);
    }

    fn contains(&self, key: u64) -> bool {
        Self::contains(self, &key)
    }
}

impl Set for GrowableBloom {
    fn insert(&mut self, key: u64) {
        Self::insert(self, key);
    }

    fn contains(&self, key: u64) -> bool {
        Self::contains(self, key)
    }
}

impl Set for CuckooFilter<DefaultHasher> {
    fn insert(&mut self, key: u64) {
        let _ = self.add(&key);
    }

    fn contains(&self, key: u64) -> bool {
        Self::contains(self, &key)
    }
}

impl Set for ScalableCuckooFilter<u64> {
    fn insert(&mut self, key: u64) {
        Self::insert(self, &key);
    }

    fn contains(&self, key: u64) -> bool {
        Self::contains(self, &key)
    }
}

impl Set for qfilter::Filter {
    fn insert(&mut self, key: u64) {
        let _ = self.insert_duplicated(key);
    }

    fn contains(&self, key: u64) -> bool {
        Self::contains(self, key)
    }
}

macro_rules! collections {
    ($($set:ty),*) => {$(
        impl Set for $set {
            fn insert(&mut self, key: u64) {
                let _ = <$set>::insert(self, &key);
            }

            fn contains(&self, key: u64) -> bool {
                <$set>::contains(self, &key)
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
